"""Where an act is played: start its agents, kill them in their windows, look at what came of it."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from console.demoagents.expected import Expected, differences, past_mending
from console.demoagents.facts import CaseFacts, RunFacts, ask, connect, find_run, newest_case, read_run
from console.demoagents.stories import Story, sandbox_account
from console.sandbox.control import SandboxControl
from console.sandbox.holds import Point
from console.staged.process import StagedAgent
from recourse_client import Effect

# The API's shortest lease: how long a killed agent's run waits for its successor.
LEASE_SECONDS = 5
# An act takes up to half a minute; the rest is for a machine that is busy with other things.
ACT_SECONDS_MAX = 90.0
LOOK_SECONDS = 0.5
# Each start of an agent takes half a second of a processor; more at once would only slow each other down
# until leases lapse that nobody meant to lose.
STARTING_AT_ONCE = 3
# A loaded machine may cost an agent its lease before it has done anything: its supervisor starts it again.
STARTS_MAX = 4


class ActFailed(Exception):
    """An act didn't come to its end; the message says what is missing."""


@dataclass(frozen=True, kw_only=True)
class World:
    """A running Recourse and its outside provider, and who may do what there."""

    url: str
    sandbox_url: str
    agent_token: str
    # A person's, for the one decision of the demo; empty if nobody is to decide.
    person_token: str
    environment: Mapping[str, str]
    folder: Path
    say: Callable[[str], None]
    starting: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(STARTING_AT_ONCE))


class Stage:
    """One act's stage: its stories under the external ids of this performance."""

    def __init__(self, world: World, external_ids: Mapping[str, str]) -> None:
        self.world = world
        self.external_ids = external_ids
        self.api = connect(world.url, world.agent_token)
        self.sandbox = SandboxControl(world.sandbox_url)
        self._ends_at = time.monotonic() + ACT_SECONDS_MAX

    def close(self) -> None:
        self.api.close()
        self.sandbox.close()

    def say(self, story: Story, what: str) -> None:
        self.world.say(f"  {self.external_ids[story.slug]:<14} {what}")

    # --- agents -----------------------------------------------------------------------------------------

    @contextmanager
    def agent(
        self,
        story: Story,
        *,
        stop_call: str = "",
        stop_at: str = "",
        wait_seconds: float = 0.0,
        flow_version: str = "",
    ) -> Iterator[StagedAgent]:
        """Start an agent of the story; it is killed at the end of the block if it still runs."""
        job = {
            "story": story.slug,
            "external_id": self.external_ids[story.slug],
            "url": self.world.url,
            "token": self.world.agent_token,
            "sandbox_url": self.world.sandbox_url,
            "spool": str(self.world.folder / "spool" / story.slug),
            "lease_seconds": LEASE_SECONDS,
            "wait_seconds": wait_seconds,
            "flow_version": flow_version,
            "stop_call": stop_call,
            "stop_at": stop_at,
        }
        with self.world.starting:
            started = StagedAgent(
                "console.demoagents.agent",
                job,
                environment=self.world.environment,
                log=self.world.folder / f"{story.slug}.log",
                patience_seconds=ACT_SECONDS_MAX,
            )
            try:
                started.wait_for("started")
            except BaseException:
                started.kill()
                raise
        # The semaphore is for starting alone; from here on the agent may take as long as it likes.
        with started.never_left_behind() as agent:
            yield agent

    def kill_at(self, story: Story, call_id: str, window: str) -> dict[str, Any]:
        """See an agent into a window of its own and kill it there; returns what it said of the call."""
        with self.agent(story, stop_call=call_id, stop_at=window) as agent:
            decided = agent.wait_for("decided")
            if window != "decided":
                agent.go_on()
            agent.wait_for("here")
            agent.kill()
        return decided

    def kill_while_held(self, story: Story, call_id: str, *, fault: str = "") -> dict[str, Any]:
        """Kill the agent when the provider has committed its request and sent no byte of the answer."""
        account = _account(story, call_id)
        with self.agent(story, stop_call=call_id) as agent:
            decided = agent.wait_for("decided")
            if fault:
                self.sandbox.fault(fault, account=account, key=decided["key"])
            with self.sandbox.hold(Point.AFTER_COMMIT, account=account, key=decided["key"]) as hold:
                agent.go_on()
                hold.wait(within_seconds=ACT_SECONDS_MAX)
                agent.kill()
        return decided

    def kill_while_hanging(self, story: Story, call_id: str) -> dict[str, Any]:
        """Kill the agent while the provider has its request and does nothing; with it the request ends."""
        account = _account(story, call_id)
        with self.agent(story, stop_call=call_id) as agent:
            decided = agent.wait_for("decided")
            self.sandbox.fault("hang_before_commit", account=account, key=decided["key"])
            agent.go_on()
            hang = self.sandbox.wait_for_hang(
                account=account, key=decided["key"], within_seconds=ACT_SECONDS_MAX
            )
            agent.kill()
            self.sandbox.wait_until_ended(hang.id, within_seconds=ACT_SECONDS_MAX)
        return decided

    def run_to(self, story: Story, *ends: str) -> dict[str, Any]:
        """Start agents, as their supervisor would, until one says that it ended so; returns what it said."""
        said: dict[str, Any] = {}
        for _ in range(STARTS_MAX):
            with self.agent(story, wait_seconds=self._left()) as agent:
                said = agent.wait_for("completed", "paused", "ended", "stopped")
                agent.finish()
            if said["event"] in ends:
                return said
        raise ActFailed(f"its agent never came to {' or '.join(ends)}; it last said {said}")

    # --- looking ----------------------------------------------------------------------------------------

    def run_id(self, story: Story) -> str:
        """The id of the story's run; raises `ActFailed` if there is none."""
        found = find_run(self.api, flow=story.flow, external_id=self.external_ids[story.slug])
        if found is None:
            raise ActFailed(f"{story.flow} has no run {self.external_ids[story.slug]}")
        return found

    def facts(self, story: Story) -> RunFacts:
        return read_run(self.api, self.sandbox, self.run_id(story))

    def until_case(self, story: Story, state: str) -> None:
        """Wait until the run's newest case is in this state, asking for nothing more than that."""
        run_id = self.run_id(story)
        self._until(
            lambda: (newest_case(self.api, run_id) or {}).get("state") == state, f"its case is not {state}"
        )

    def until_as(self, story: Story, expected: Expected) -> RunFacts:
        """Wait until the run stands as expected; raises `ActFailed` with the differences."""
        while True:
            facts = self.facts(story)
            wrong = differences(facts, expected)
            if not wrong:
                return facts
            if self._left() == 0 or past_mending(facts, expected):
                raise ActFailed("; ".join(wrong))
            time.sleep(LOOK_SECONDS)

    def until_paused_for(self, story: Story, reason: str, *, meanwhile: Callable[[], None]) -> None:
        """Do something again and again until the run is paused for this reason."""
        run_id = self.run_id(story)

        def paused() -> bool:
            run = ask(self.api, f"/runs/{run_id}")["run"]
            if reason in run["paused_reasons"]:
                return True
            meanwhile()
            return False

        self._until(paused, f"the run is not paused for {reason}")

    def _until(self, holds: Callable[[], bool], otherwise: str) -> None:
        while not holds():
            if self._left() == 0:
                raise ActFailed(otherwise)
            time.sleep(LOOK_SECONDS)

    def _left(self) -> float:
        return max(0.0, self._ends_at - time.monotonic())

    # --- the person -------------------------------------------------------------------------------------

    def grant_retry(self, case: CaseFacts, *, reason: str) -> None:
        """Decide as the demo's person: one more attempt by the agent, on what they have just seen."""
        with connect(self.world.url, self.world.person_token) as person:
            answer = person.post(
                f"/cases/{case.id}/retry",
                headers={"Idempotency-Key": uuid.uuid4().hex},
                json={
                    "seen_version": case.version,
                    "evidence_digest": case.evidence_digest,
                    "reason_code": "not_at_provider",
                    "reason": reason,
                    "executor": "agent",
                },
            )
        if answer.status_code != httpx.codes.OK:
            raise ActFailed(f"the decision was answered {answer.status_code}: {answer.text[:300]}")


def _account(story: Story, call_id: str) -> str:
    for turn in story.turns:
        for call in turn.calls:
            if isinstance(call, Effect) and call.call_id == call_id:
                return sandbox_account(call.provider)
    raise AssertionError(f"{story.slug} has no effect {call_id}")
