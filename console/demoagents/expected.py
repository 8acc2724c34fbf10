"""How a run must stand when its act is over, and in which ways it doesn't."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from console.demoagents.facts import CaseFacts, RunFacts


@dataclass(frozen=True, kw_only=True)
class Effects:
    """One operation: its state, and how many requests and effects the provider must count."""

    state: str
    requests: int
    effects: int


CONFIRMED = Effects(state="confirmed", requests=1, effects=1)
# Decided and on record, and nothing of it has left.
UNSENT = Effects(state="ready", requests=0, effects=0)


@dataclass(frozen=True, kw_only=True)
class Expected:
    """The end of an act. `case` is the newest case's state, or its resolution; empty: there must be none."""

    run: str
    operations: Mapping[str, Effects]
    reasons: tuple[str, ...] = ()
    case: str = ""
    need: str = ""
    permissions: Mapping[str, str] = field(default_factory=dict)
    # Decisions by people; what evidence settles takes none.
    decisions: int = 0
    # Anything else that must hold, each with the sentence that says so when it doesn't.
    also: Mapping[str, Callable[[RunFacts], bool]] = field(default_factory=dict)


def differences(facts: RunFacts, expected: Expected) -> list[str]:
    """Every way in which the run isn't as it must be, in sentences; empty when it is."""
    return [*_of_run(facts, expected), *_of_case(facts.case, expected)]


def past_mending(facts: RunFacts, expected: Expected) -> bool:
    """Whether the provider counts more than it ever should: no waiting takes that back."""
    return any(
        one.requests > due.requests or one.effects > due.effects
        for one in facts.operations
        if (due := expected.operations.get(one.call_id)) is not None
    )


def _of_run(facts: RunFacts, expected: Expected) -> Iterator[str]:
    if (facts.state, facts.reasons) != (expected.run, expected.reasons):
        yield (
            f"the run is {standing(facts.state, facts.reasons)}, "
            f"not {standing(expected.run, expected.reasons)}"
        )
    seen = {one.call_id: one for one in facts.operations}
    for call_id, due in expected.operations.items():
        one = seen.get(call_id)
        if one is None:
            yield f"{call_id} is not on record"
            continue
        if one.state != due.state:
            yield f"{call_id} is {one.state}, not {due.state}"
        if (one.requests, one.effects) != (due.requests, due.effects):
            yield (
                f"{call_id}: the provider counts {one.requests} requests and {one.effects} effects, "
                f"not {due.requests} and {due.effects}"
            )
    if unexpected := sorted(set(seen) - set(expected.operations)):
        yield f"nobody expected {', '.join(unexpected)}"
    for sentence, holds in expected.also.items():
        if not holds(facts):
            yield sentence


def _of_case(case: CaseFacts | None, expected: Expected) -> Iterator[str]:
    if case is None:
        if expected.case:
            yield f"no case is open, and one should be {expected.case}"
        return
    if not expected.case:
        yield f"case {case.id} was opened, and nothing was in doubt"
        return
    if expected.case not in (case.state, case.resolution):
        yield f"its case is {case.resolution or case.state}, not {expected.case}"
    if case.need != expected.need:
        yield f"a person is asked because of {case.need or 'nothing'}, not {expected.need or 'nothing'}"
    for action, permission in expected.permissions.items():
        if case.permissions.get(action) != permission:
            yield f"{action} is {case.permissions.get(action, 'not offered')}, not {permission}"
    if case.decisions != expected.decisions:
        yield f"people decided {case.decisions} times, not {expected.decisions}"


def standing(state: str, reasons: tuple[str, ...]) -> str:
    """`paused (budget)`, or the state alone."""
    return f"{state} ({', '.join(reasons)})" if reasons else state
