"""What came of a run, as anybody outside sees it: the HTTP API's answers and the provider's own counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx

from console.demoagents.stories import sandbox_account
from console.sandbox.control import SandboxControl

ANSWER_SECONDS = 30


@dataclass(frozen=True, kw_only=True)
class OperationFacts:
    """One effect of a run: its state in the journal, and what the provider counted under its key."""

    call_id: str
    provider: str
    key: str
    state: str
    next: str
    requests: int
    effects: int


@dataclass(frozen=True, kw_only=True)
class CaseFacts:
    """The newest case of a run, with what a person may do about it now."""

    id: str
    state: str
    need: str
    resolution: str
    version: int
    evidence_digest: str
    finding_summary: str
    decisions: int
    # allowed, second_person or locked, by action; and the policy's sentence for each.
    permissions: Mapping[str, str]
    sentences: Mapping[str, str]
    # When time alone takes an action away, by action; absent where it doesn't.
    closes: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """A run with its operations in order, and its newest case, if it has one."""

    id: str
    external_id: str
    flow: str
    flow_version: str
    state: str
    reasons: tuple[str, ...]
    operations: tuple[OperationFacts, ...]
    case: CaseFacts | None


def connect(url: str, token: str) -> httpx.Client:
    """A client of the journal's API at `url` with a bearer token."""
    return httpx.Client(
        base_url=f"{url.rstrip('/')}/api/v1",
        headers={"Authorization": f"Bearer {token}"},
        timeout=ANSWER_SECONDS,
        trust_env=False,
    )


def ask(api: httpx.Client, path: str, **query: str) -> dict[str, Any]:
    """GET one answer; raises `httpx.HTTPStatusError`, and `httpx.TransportError` if nobody answers."""
    answer: dict[str, Any] = api.get(path, params=query).raise_for_status().json()
    return answer


def find_run(api: httpx.Client, *, flow: str, external_id: str) -> str | None:
    """The id of the run of this identity, or None."""
    found = ask(api, "/runs", flow=flow, external_id=external_id)["runs"]
    return str(found[0]["id"]) if found else None


def newest_case(api: httpx.Client, run_id: str) -> dict[str, Any] | None:
    """The short form of the run's newest case, or None."""
    cases: list[dict[str, Any]] = ask(api, "/cases", run=run_id)["cases"]
    return cases[0] if cases else None


def read_run(api: httpx.Client, sandbox: SandboxControl, run_id: str) -> RunFacts:
    """Everything about one run as it is now."""
    run = ask(api, f"/runs/{quote(run_id)}")["run"]
    plan = ask(api, f"/runs/{quote(run_id)}/plan")["plan"]
    calls = [call for turn in plan["turns"] for call in turn["calls"] if call["effect"]]
    case = newest_case(api, run_id)
    return RunFacts(
        id=run_id,
        external_id=run["external_id"],
        flow=run["flow"],
        flow_version=run["flow_version"],
        state=run["state"],
        reasons=tuple(run["paused_reasons"]),
        operations=tuple(_operation(sandbox, call) for call in calls),
        case=_case(api, case["id"]) if case else None,
    )


def _operation(sandbox: SandboxControl, call: dict[str, Any]) -> OperationFacts:
    operation = call["operation"]
    counts = sandbox.stats(sandbox_account(call["provider"]), key=operation["idempotency_key"])
    return OperationFacts(
        call_id=call["call_id"],
        provider=call["provider"],
        key=operation["idempotency_key"],
        state=operation["state"],
        next=call["next"],
        requests=counts.requests,
        effects=counts.effects,
    )


def _case(api: httpx.Client, case_id: str) -> CaseFacts:
    case = ask(api, f"/cases/{quote(case_id)}")["case"]
    actions = {one["action"]: one for one in case["actions"]}
    return CaseFacts(
        id=case["id"],
        state=case["state"],
        need=case["need"] or "",
        resolution=case["resolution"] or "",
        version=case["version"],
        evidence_digest=case["evidence_digest"],
        finding_summary=case["finding_summary"] or "",
        decisions=len(case["decisions"]),
        permissions={name: one["permission"] for name, one in actions.items()},
        sentences={name: one["sentence"] for name, one in actions.items()},
        closes={name: one["closes_at"] for name, one in actions.items() if one["closes_at"]},
    )
