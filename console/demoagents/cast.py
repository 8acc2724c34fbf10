"""The whole cast: which acts are still to be played, all of them side by side, and how their runs stand."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

import httpx

from console.demoagents.acts import Act
from console.demoagents.expected import differences
from console.demoagents.facts import RunFacts, connect, find_run, read_run
from console.demoagents.stage import ActFailed, Stage, World
from console.demoagents.stories import STORIES, Story
from console.sandbox.control import NothingCame, SandboxControl, SandboxRefused, StillThere
from console.staged.process import AgentFailed

# A loaded machine can keep an agent from its window; then the act is played again with runs of its own.
PLAYS_MAX = 3
_MISSED = (AgentFailed, NothingCame, StillThere)
# What another play would only show again.
_FAILED = (ActFailed, SandboxRefused, httpx.HTTPError)


@dataclass(frozen=True, kw_only=True)
class Played:
    """An act that was played now, by which external ids, and what wasn't as it must be."""

    act: Act
    external_ids: Mapping[str, str]
    wrong: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How one story's run stands, in the order of the stories."""

    story: Story
    facts: RunFacts | None
    # Whether it was played now; a run of an earlier start may have been decided about since.
    played: bool
    wrong: tuple[str, ...] = ()


def configure_accounts(sandbox_url: str) -> None:
    """Let the sandbox's accounts behave as the shipped provider files declare them."""
    with SandboxControl(sandbox_url) as sandbox:
        for account in ("supplier", "mail", "payments"):
            sandbox.set_account(account, honours_keys=True, lookup="by_key")
        # Contract: shows a new ticket within 3 s.
        sandbox.set_account("desk", honours_keys=True, lookup="by_key", lookup_lag_ms=2_000)
        sandbox.set_account("legacy", honours_keys=True, lookup="by_key", key_window_ms=20_000)
        sandbox.set_account("courier", honours_keys=False, lookup="none")


def acts_to_play(world: World, chosen: Sequence[Act]) -> list[Act]:
    """Those of the chosen acts that no earlier start has played to their end."""
    with connect(world.url, world.agent_token) as api:
        return [act for act in chosen if not all(_played(world, api, story) for story in act.stories)]


def play(world: World, acts: Sequence[Act]) -> Iterator[Played]:
    """Play acts side by side; yields each as it ends, with what isn't as it must be."""
    with ThreadPoolExecutor(max(1, len(acts))) as pool:
        for done in as_completed([pool.submit(_play, world, act) for act in acts]):
            yield done.result()


def endings(world: World, chosen: Sequence[Act], played: Sequence[Played]) -> list[Ending]:
    """How every story's run of the chosen acts stands now, in the order of the stories."""
    by_story = {story.slug: one for one in played for story in one.act.stories}
    told = {story.slug for act in chosen for story in act.stories}
    with connect(world.url, world.agent_token) as api, SandboxControl(world.sandbox_url) as sandbox:
        return [
            _ending(world, api, sandbox, story, by_story.get(story.slug))
            for story in STORIES
            if story.slug in told
        ]


def _ending(
    world: World, api: httpx.Client, sandbox: SandboxControl, story: Story, played: Played | None
) -> Ending:
    external_id = played.external_ids[story.slug] if played else _noted(world.folder, story)
    run_id = find_run(api, flow=story.flow, external_id=external_id) if external_id else None
    facts = read_run(api, sandbox, run_id) if run_id else None
    wrong = played.wrong if played else ()
    if played is not None and facts is not None and not wrong:
        # The other acts went on meanwhile, and nothing of them may have touched this run.
        wrong = tuple(differences(facts, played.act.expected[story.slug]))
    return Ending(story=story, facts=facts, played=played is not None, wrong=wrong)


def _play(world: World, act: Act) -> Played:
    for tries_left in reversed(range(PLAYS_MAX)):
        stage = Stage(world, {story.slug: _fresh_id(world, story) for story in act.stories})
        try:
            act.play(stage)
            for story in act.stories:
                stage.until_as(story, act.expected[story.slug])
        except _MISSED as missed:
            if not tries_left:
                return Played(act=act, external_ids=stage.external_ids, wrong=(str(missed),))
            stage.say(act.stories[0], f"is played again, with a new run: {missed}")
        except _FAILED as failed:
            return Played(act=act, external_ids=stage.external_ids, wrong=(str(failed),))
        else:
            _note(world.folder, stage)
            return Played(act=act, external_ids=stage.external_ids)
        finally:
            stage.close()
    raise AssertionError("the last play returns")


# --- which runs are the demo's ------------------------------------------------------------------------------


def _fresh_id(world: World, story: Story) -> str:
    """The story's external id, or the first numbered one of which the journal has no run."""
    with connect(world.url, world.agent_token) as api:
        numbered = (f"{story.external_id}-{number}" for number in itertools.count(2))
        for external_id in itertools.chain([story.external_id], numbered):
            if find_run(api, flow=story.flow, external_id=external_id) is None:
                return external_id
    raise AssertionError("numbers don't end")


def _note(folder: Path, stage: Stage) -> None:
    for slug, external_id in stage.external_ids.items():
        (folder / f"{slug}.played").write_text(external_id)


def _noted(folder: Path, story: Story) -> str:
    try:
        return (folder / f"{story.slug}.played").read_text().strip()
    except FileNotFoundError:
        return ""


def _played(world: World, api: httpx.Client, story: Story) -> bool:
    external_id = _noted(world.folder, story)
    return bool(external_id) and find_run(api, flow=story.flow, external_id=external_id) is not None
