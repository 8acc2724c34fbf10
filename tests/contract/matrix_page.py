"""docs/providers/matrix.md, made from the suite's declarations once a run has shown that they hold.

`python -m tests.contract.matrix_page` writes it; `make matrix` runs the suite first.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.contract import absences, notices
from tests.contract.faults import FAILURES
from tests.contract.matrix import BUILT, FAULT, Case, Result, Row, Subject, fault_row, row_of
from tests.contract.subjects import FAULTED, SUBJECTS, UNTESTED
from tests.processes import ROOT

PAGE = ROOT / "docs" / "providers" / "matrix.md"

INTRODUCTION = """# What was tested against what

Every adapter runs one suite: it sends, repeats, loses replies and asks, and what it says is held against what
the server on the other side did, counted there and not by us. `make matrix` runs it and writes this page;
`build/contract-matrix.json` has the same rows after every run of the tests.

An **independent** peer is a server that other people wrote. One of **our own** may share our misreading of a
provider's documentation, so what only it has tested is no more than consistent with what we understood.
None of them is the provider itself.

- **passed**: the peer behaves as the contract says, and the adapter concluded what it may.
- **departure**: the peer is known to behave otherwise than the provider. The test holds the adapter to what
  is true of the peer, and fails on the day the peer changes. Numbers lead to the list below.
- **–**: not run, with the reason below.
"""

FAILURES_INTRODUCTION = """A proxy between adapter and peer cuts, resets, delays and truncates. Outcome: what
the adapter said; effects: what the peer held afterwards. A lookup then found each effect, and took absence
for no proof. A peer that reads no long requests, or keeps no connections, has no such row."""

NOTICES_INTRODUCTION = """Webhooks that somebody else's server signed: the right ones hold, and one that was
changed, signed with another secret or, where the time is signed, too long ago is refused."""


ABSENCES_INTRODUCTION = """A request by key that undoes what the key has made. Both peers are stubs of ours,
which do what we read: that Square does the same was never seen."""


class NotShown(Exception):
    """The last run doesn't show what the page would say; the message says which rows are missing."""


def expected_rows() -> list[Row]:
    """Every row that the suite declares, with the result it has when its test passes."""
    rows = [row_of(subject, case) for subject in SUBJECTS for case in subject.cases]
    rows += [
        fault_row(subject, name)
        for subject in FAULTED
        for name, failure in FAILURES.items()
        if failure.can_happen_at(subject)
    ]
    return sorted([*rows, *notices.ROWS, *absences.ROWS])


def check_run(rows: Iterable[Row], path: Path) -> None:
    """Hold the rows against a run's file; raises `NotShown` unless it has each of them, as declared."""
    try:
        ran = json.loads(path.read_text())
    except FileNotFoundError:
        raise NotShown(f"{path.name} isn't there: run the contract suite first.") from None
    found = {(row["adapter"], row["peer"], row["case"]): row for row in ran}
    faults = []
    for row in rows:
        one = found.get(row.cell)
        if one is None:
            faults.append(f"not run: {' / '.join(row.cell)}")
        elif one != row.as_json():
            faults.append(f"{one['result']}: {' / '.join(row.cell)}")
    if faults:
        raise NotShown("\n".join(["The last run doesn't show these rows:", *faults]))


def page() -> str:
    """The whole page, as the declarations make it."""
    notes = _Notes()
    cases = "\n".join(_cases(notes))
    return "\n".join(
        [
            INTRODUCTION,
            "## Adapter, case, peer",
            "",
            cases,
            "",
            "## Departures",
            "",
            *notes.departures(),
            "",
            "## Not run",
            "",
            *notes.reasons(),
            "",
            "## Sends that fail on their way",
            "",
            FAILURES_INTRODUCTION,
            "",
            *_failures(),
            "",
            "## Signed notices",
            "",
            NOTICES_INTRODUCTION,
            "",
            "| adapter | peer | |",
            "|---|---|---|",
            *(f"| `{row.adapter}` | {row.peer} | {row.result.value} |" for row in notices.ROWS),
            "",
            "## Effects made absent",
            "",
            ABSENCES_INTRODUCTION,
            "",
            "| adapter | peer | |",
            "|---|---|---|",
            *(f"| `{row.adapter}` | {row.peer}, our own | {row.result.value} |" for row in absences.ROWS),
            "",
            "## Facts that could not be tested",
            "",
            "| provider | fact | why |",
            "|---|---|---|",
            *(f"| {one.provider} | {one.fact} | {one.why} |" for one in UNTESTED),
            "",
        ]
    )


class _Notes:
    """Numbers for departures, letters for reasons; the same text has one number."""

    def __init__(self) -> None:
        self._departures: dict[tuple[str, str, str], int] = {}
        self._reasons: dict[str, list[str]] = {}

    def departure(self, row: Row) -> int:
        key = (row.peer, row.fact, row.source)
        return self._departures.setdefault(key, len(self._departures) + 1)

    def reason(self, subject: Subject, case: Case) -> None:
        where = f"{subject.adapter} at {subject.peer}, {case}"
        self._reasons.setdefault(subject.not_run[case], []).append(where)

    def departures(self) -> list[str]:
        if not self._departures:
            return ["None."]
        return [
            f"{number}. **{peer}** {fact}. The provider's word: <{source}>"
            for (peer, fact, source), number in self._departures.items()
        ]

    def reasons(self) -> list[str]:
        return [f"- {reason}: {'; '.join(where)}." for reason, where in sorted(self._reasons.items())]


def _cases(notes: _Notes) -> list[str]:
    lines = [_line(["adapter", "peer", "", *(case.value for case in Case)])]
    lines.append("|" + "---|" * (len(Case) + 3))
    for subject in SUBJECTS:
        cells = []
        for case in Case:
            if case in subject.not_run:
                notes.reason(subject, case)
                cells.append("–")
                continue
            row = row_of(subject, case)
            number = f" {notes.departure(row)}" if row.result is Result.DEPARTURE else ""
            cells.append(f"{row.result.value}{number}")
        whose = "independent" if subject.independent else "our own"
        lines.append(_line([f"`{subject.adapter}`", subject.peer, whose, *cells]))
    return lines


def _failures() -> list[str]:
    names = [f"`{one.adapter}` at {one.peer}" for one in FAULTED]
    lines = [_line(["failure", "outcome", "effects", *names]), "|" + "---|" * (len(names) + 3)]
    for name, failure in FAILURES.items():
        cells = ["passed" if failure.can_happen_at(one) else "–" for one in FAULTED]
        lines.append(_line([name, f"`{failure.kind.value}`", str(failure.effects), *cells]))
    return lines


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def main() -> int:
    try:
        check_run(expected_rows(), BUILT)
    except NotShown as error:
        print(error, file=sys.stderr)
        return 1
    PAGE.write_text(page())
    print(f"{PAGE.relative_to(ROOT)}: {len(expected_rows())} rows, {FAULT.strip(': ')}s included")
    return 0


if __name__ == "__main__":
    sys.exit(main())
