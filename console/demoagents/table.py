"""The table that the demo ends with: what each run asked for and got, and what a person is asked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from console.demoagents.cast import Ending
from console.demoagents.expected import standing
from console.demoagents.facts import CaseFacts, RunFacts
from console.pages.present.marks import NEEDS
from reconciliation.states import Need

_WIDTHS = (48, 14, 9, 8, 13)
_HEAD = ("Run", "effect", "requests", "effects", "operation is", "run is")
_INDENT = " " * 4
_WORDS = {"allowed": "one person", "second_person": "two people", "locked": "locked"}


def lines(endings: Sequence[Ending]) -> Iterator[str]:
    """The table's lines; a run has one for each effect, and then what a person is asked."""
    yield _line(*_HEAD)
    for number, ending in enumerate(endings, start=1):
        title = f"{number:>2}  {ending.story.title}"
        if ending.facts is None:
            yield _line(title, "-", "-", "-", "-", "not played to its end")
        else:
            yield from _of_run(title, ending.facts)
            yield f"{_INDENT}{ending.facts.external_id}: {asked(ending.facts)}"
        for wrong in ending.wrong:
            yield f"{_INDENT}NOT AS IT SHOULD BE: {wrong}"
    seen = [one.facts for one in endings if one.facts is not None]
    operations = [operation for facts in seen for operation in facts.operations]
    requests = sum(one.requests for one in operations)
    effects = sum(one.effects for one in operations)
    yield _line("    Counted at the providers", "", str(requests), str(effects), "", f"{len(seen)} runs")


def _of_run(title: str, facts: RunFacts) -> Iterator[str]:
    for first, one in enumerate(facts.operations):
        yield _line(
            title if first == 0 else "",
            one.call_id,
            str(one.requests),
            str(one.effects),
            one.state,
            standing(facts.state, facts.reasons) if first == 0 else "",
        )


def _line(*cells: str) -> str:
    title, effect, requests, effects, state, run = cells
    widths = _WIDTHS
    return (
        f"{title:<{widths[0]}} {effect:<{widths[1]}} {requests:>{widths[2]}} {effects:>{widths[3]}}  "
        f"{state:<{widths[4]}} {run}"
    ).rstrip()


def asked(facts: RunFacts) -> str:
    """In a sentence or two, what a person is asked about this run now."""
    case = facts.case
    if case is not None and case.state == "needs_decision":
        return f"did it happen? {NEEDS[Need(case.need)]}. {_actions(case)}"
    if case is not None and case.state == "retrying":
        return "nothing is asked now. One more attempt with the same key is granted, and waits for its agent."
    if case is not None and case.state != "resolved":
        return f"nothing is asked yet. Its case is {case.state.replace('_', ' ')}."
    if "budget" in facts.reasons:
        return "may the run's limit be raised? An approver decides; nothing beyond it is sent before."
    if "flow_version" in facts.reasons:
        return f"keep version {facts.flow_version} pinned, or move the run to another? An approver decides."
    if case is None:
        return "nothing is asked."
    return f"nothing is asked. Its case was settled by {'a person' if case.decisions else 'evidence'}."


def _actions(case: CaseFacts) -> str:
    said = (f"{action}: {_WORDS[permission]}" for action, permission in case.permissions.items())
    return f"{', '.join(said)}."
