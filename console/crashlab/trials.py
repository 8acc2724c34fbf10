"""One trial: an agent is killed in its window, a successor goes on, a person decides where one is asked.

The trial sees what an outsider sees: the HTTP API and the provider's own counts. It never looks into the
database, and the person in it decides by what the API offers, with the version and digest that it showed.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from console.sandbox.control import SandboxControl
from console.sandbox.holds import Point
from console.staged.process import AgentFailed, StagedAgent

# Where the agent is killed, in the order of the five windows of recovery (two of them have two halves).
WINDOWS = ("decided", "go", "received", "committed", "reply_read", "receipt_saved")
PROVIDERS = ("lab-keyed", "lab-proof", "lab-blind")
# At which point of the provider's work a request is held while its sender is killed.
HOLDS: dict[str, Point] = {"received": Point.BEFORE_COMMIT, "committed": Point.AFTER_COMMIT}
# The API's shortest lease: how long a successor waits for a killed worker's term to end.
LEASE_SECONDS = 5
# Quiet time, three lookups, a decision and a repeat take some 20 s; the rest is a loaded machine.
TRIAL_SECONDS_MAX = 180
LOOK_SECONDS = 0.2
WINDOW_TRIES_MAX = 3
SETTLED = ("confirmed", "rejected", "abandoned")


@dataclass(frozen=True, kw_only=True)
class Lab:
    """Where the trials run: a whole Recourse and its outside provider, in processes of their own."""

    web_url: str
    sandbox_url: str
    agent_token: str
    person_token: str
    environment: Mapping[str, str]
    folder: Path


@dataclass(kw_only=True)
class Result:
    """What one trial did, counted at the provider, and what the journal says of it."""

    number: int
    window: str
    provider: str
    hit: bool = False
    requests: int = 0
    effects: int = 0
    state: str = ""
    decisions: list[str] = field(default_factory=list)
    duplicates: int = 0
    losses: int = 0
    wrong_confirmations: int = 0
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0


class Agent(StagedAgent):
    """An agent of a trial; without a window it goes through to the end."""

    def __init__(self, lab: Lab, *, external_id: str, provider: str, window: str = "") -> None:
        job = {
            "url": lab.web_url,
            "token": lab.agent_token,
            "sandbox": lab.sandbox_url,
            "spool": str(lab.folder / external_id),
            "external_id": external_id,
            "provider": provider,
            "window": window,
            "lease_seconds": LEASE_SECONDS,
            "wait_seconds": TRIAL_SECONDS_MAX / 2,
        }
        super().__init__(
            "console.crashlab.agent",
            job,
            environment=lab.environment,
            log=lab.folder / f"{external_id}.log",
            patience_seconds=TRIAL_SECONDS_MAX,
        )


class TrialFailed(AgentFailed):
    """The trial couldn't be carried out; that is neither a pass nor a duplicate."""


def run_trial(lab: Lab, *, number: int, window: str, provider: str) -> Result:
    """Kill an agent in the window, let successors and a person finish, and count."""
    result = Result(number=number, window=window, provider=provider)
    began = time.monotonic()
    try:
        with SandboxControl(lab.sandbox_url) as sandbox, _api(lab) as api:
            external_id, decided = _get_into_window(lab, sandbox, result)
            _finish(lab, api, result, external_id, decided["run"])
            _start_once_more(lab, sandbox, result, external_id, decided["key"])
            _judge(sandbox, api, result, decided)
    except (AgentFailed, httpx.HTTPError) as failed:
        result.problems.append(f"{type(failed).__name__}: {failed}")
    result.seconds = round(time.monotonic() - began, 1)
    return result


def _api(lab: Lab) -> httpx.Client:
    headers = {"Authorization": f"Bearer {lab.person_token}"}
    return httpx.Client(base_url=f"{lab.web_url}/api/v1", headers=headers, timeout=30)


def _get_into_window(lab: Lab, sandbox: SandboxControl, result: Result) -> tuple[str, dict[str, Any]]:
    """See an agent into its window, with a new run if a loaded machine cost it its lease before it got there.

    An agent that gives up early is no kill: its run is not counted, and its window not hit by it.
    """
    for tries_left in reversed(range(WINDOW_TRIES_MAX)):
        external_id = f"trial-{result.number}-{uuid.uuid4().hex[:8]}"
        try:
            return external_id, _kill_one(lab, sandbox, result, external_id)
        except AgentFailed:
            if not tries_left:
                raise
    raise AssertionError("the last try returns or raises")


def _kill_one(lab: Lab, sandbox: SandboxControl, result: Result, external_id: str) -> dict[str, Any]:
    """Start the first agent, see it into its window, kill it there."""
    agent = Agent(lab, external_id=external_id, provider=result.provider, window=result.window)
    with agent.never_left_behind():
        decided = agent.wait_for("decided")
        held_at = HOLDS.get(result.window)
        if held_at is None:
            if result.window != "decided":
                agent.go_on()
            agent.wait_for("here")
            agent.kill()
            counts = sandbox.stats(result.provider, key=decided["key"])
        else:
            with sandbox.hold(held_at, account=result.provider, key=decided["key"]) as hold:
                agent.go_on()
                hold.wait(within_seconds=60)
                agent.kill()
                # Counted while the provider still holds the request of the dead agent.
                counts = sandbox.stats(result.provider, key=decided["key"])
            # Let go, the provider finishes it: an effect that arrives after its sender's death.
            sandbox.wait_until_ended(hold.id, within_seconds=60)
    # A kill hit its window if the provider has seen exactly what had been done until then.
    requests = 0 if result.window in ("decided", "go") else 1
    committed = 1 if result.window in ("committed", "reply_read", "receipt_saved") else 0
    result.hit = (counts.requests, counts.effects) == (requests, committed)
    if not result.hit:
        result.problems.append(f"not hit: the provider counts {counts} after the kill")
    return decided


def _finish(lab: Lab, api: httpx.Client, result: Result, external_id: str, run_id: str) -> None:
    """Start successors until the run is completed, deciding as a person would whenever one is asked."""
    end = time.monotonic() + TRIAL_SECONDS_MAX
    while time.monotonic() < end:
        agent = Agent(lab, external_id=external_id, provider=result.provider)
        with agent.never_left_behind():
            while not agent.ended() and time.monotonic() < end:
                _attend(api, result, run_id)
                time.sleep(LOOK_SECONDS)
            if agent.ended() and "completed" in agent.finish():
                return
    raise TrialFailed("the run was not completed in time")


def _attend(api: httpx.Client, result: Result, run_id: str) -> None:
    """Be the person: retry with the same key where one person may, else abandon; wait where it unlocks."""
    found = api.get("/cases", params={"run": run_id, "state": "needs_decision"}).raise_for_status().json()
    for listed in found["cases"]:
        case = api.get(f"/cases/{listed['id']}").raise_for_status().json()["case"]
        actions = {one["action"]: one for one in case["actions"]}
        retry, abandon = actions.get("retry"), actions.get("abandon")
        more: dict[str, Any]
        if retry and retry["permission"] == "allowed":
            # In turns, so that both ways of carrying a retry out are tried in every window.
            executor = "console" if result.number % 2 else "agent"
            path, more = "retry", {"executor": executor}
        elif retry and retry["permission"] == "locked" and retry.get("unlocks_at"):
            continue
        elif abandon and abandon["permission"] == "allowed":
            path, more = "abandonment", {"then": "continue"}
        else:
            continue
        answer = api.post(
            f"/cases/{case['id']}/{path}",
            headers={"Idempotency-Key": uuid.uuid4().hex},
            json={
                "seen_version": case["version"],
                "evidence_digest": case["evidence_digest"],
                "reason_code": "not_at_provider",
                "reason": "Decided by the crash lab's person.",
                **more,
            },
        )
        # 409 and 423: the case moved under us; the next look decides on what is there then.
        if answer.status_code == 200:
            result.decisions.append(f"{path} {more}")
        elif answer.status_code not in (409, 423):
            raise TrialFailed(f"{path} was answered {answer.status_code}: {answer.text[:300]}")


def _start_once_more(lab: Lab, sandbox: SandboxControl, result: Result, external_id: str, key: str) -> None:
    """A further start of a completed run sends nothing."""
    before = sandbox.stats(result.provider, key=key)
    agent = Agent(lab, external_id=external_id, provider=result.provider)
    with agent.never_left_behind():
        agent.wait_for("ended")
        agent.process.wait(timeout=TRIAL_SECONDS_MAX)
    after = sandbox.stats(result.provider, key=key)
    if before != after:
        result.problems.append(f"a further start was not silent: {before} became {after}")


def _judge(sandbox: SandboxControl, api: httpx.Client, result: Result, decided: dict[str, Any]) -> None:
    plan = api.get(f"/runs/{decided['run']}/plan").raise_for_status().json()
    calls = [call for turn in plan["plan"]["turns"] for call in turn["calls"]]
    for call in calls:
        operation = call["operation"]
        account = result.provider if call["call_id"] == "order" else "mail"
        counts = sandbox.stats(account, key=operation["idempotency_key"])
        effects = sandbox.effects(account, key=operation["idempotency_key"])
        result.requests += counts.requests
        result.effects += counts.effects
        result.duplicates += max(0, counts.effects - 1)
        if operation["state"] not in SETTLED and not _has_open_case(api, operation["id"]):
            result.losses += 1
        if operation["state"] == "confirmed":
            references = {one.id for one in effects}
            if (call.get("receipt") or {}).get("reference") not in references:
                result.wrong_confirmations += 1
        if call["call_id"] == "order":
            result.state = operation["state"]
            _expect(result, counts.effects)


def _has_open_case(api: httpx.Client, operation_id: str) -> bool:
    found = api.get("/cases", params={"operation": operation_id}).raise_for_status().json()
    return any(case["state"] != "resolved" for case in found["cases"])


def _expect(result: Result, effects: int) -> None:
    """Exactly one effect where the provider committed or a keyed retry ran; at most one elsewhere."""
    blind = result.provider == "lab-blind"
    given_up = blind and result.window == "go"
    if effects != 1 and not given_up:
        result.problems.append(f"{effects} effects where one was due")
    unknowable = ("go", "received", "committed", "reply_read")
    if blind and result.window in unknowable and result.state != "abandoned":
        result.problems.append(f"nobody could know, and it is {result.state}")
    if not blind and result.state != "confirmed":
        result.problems.append(f"the order is {result.state}, not confirmed")
