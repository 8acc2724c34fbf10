"""The matrix: which adapter was held against which peer in which case, and what came of it.

The suite declares every cell; running it says whether the cell holds. Under xdist the rows come to the one
controller with the reports of the workers' tests, and it writes `build/contract-matrix.json`, a list of rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.processes import ROOT

if TYPE_CHECKING:
    from tests.contract.bench import Bench
    from tests.contract.peers.servers import Peers

BUILT = ROOT / "build" / "contract-matrix.json"
PROPERTY = "contract_row"
# What the case of a send that fails on its way begins with.
FAULT = "fault: "
# The case of a notice that a peer signed.
NOTICE = "signed notice"


class Case(StrEnum):
    """What every adapter is put through."""

    SEND = "send"
    SAME_KEY = "same key again"
    OTHER_PAYLOAD = "same key, other payload"
    CONCURRENT = "concurrent first sends"
    LOST_REPLY = "lost reply, then lookup"
    REFUSAL = "refusal"
    ABSENCE = "absence"
    LAG = "lag"
    SEVERAL = "duplicates"
    CLOSED_WINDOW = "closed window"
    LISTED = "listed after a restore"


class Result(StrEnum):
    PASSED = "passed"  # the peer and our adapter do what the contract says
    FAILED = "failed"
    DEPARTURE = "departure"  # held, and the peer differs from the provider in a known way


Run = Callable[["Bench"], None]


@dataclass(frozen=True, kw_only=True)
class Check:
    """One case at one peer. `run` replaces the suite's own; `departure` says what the peer does instead."""

    run: Run | None = None
    departure: str = ""
    # Where the real provider's behaviour is written down.
    source: str = ""

    def __post_init__(self) -> None:
        assert bool(self.departure) == bool(self.source), "a departure has a fact and a source"
        assert not self.departure.endswith("."), "a departure goes on from the peer's name"


@dataclass(frozen=True, kw_only=True)
class Subject:
    """One adapter at one peer: how each case is run there, or why it can't be."""

    adapter: str
    peer: str
    independent: bool
    bench: Callable[[Peers], Bench]
    cases: Mapping[Case, Check]
    not_run: Mapping[Case, str] = field(default_factory=dict)
    # Whether the payload's own bytes are sent, so that a long request can be made.
    takes_big: bool = False
    # Whether the peer keeps a connection open after its answer.
    keeps_connections: bool = True

    def __post_init__(self) -> None:
        both = set(self.cases) & set(self.not_run)
        neither = set(Case) - set(self.cases) - set(self.not_run)
        assert not both, f"{self.adapter} at {self.peer}: run and not run: {sorted(both)}"
        assert not neither, f"{self.adapter} at {self.peer}: neither run nor explained: {sorted(neither)}"


@dataclass(frozen=True, kw_only=True, order=True)
class Row:
    """One row of the matrix."""

    adapter: str
    peer: str
    case: str
    independent: bool
    result: Result = Result.PASSED
    fact: str = ""
    source: str = ""

    @property
    def cell(self) -> tuple[str, str, str]:
        return self.adapter, self.peer, self.case

    def as_json(self) -> dict[str, Any]:
        row: dict[str, Any] = {
            "adapter": self.adapter,
            "case": self.case,
            "peer": self.peer,
            "independent": self.independent,
            "result": self.result.value,
        }
        if self.result is Result.DEPARTURE:
            row |= {"fact": self.fact, "source": self.source}
        return row


@dataclass(frozen=True, kw_only=True)
class Untested:
    """A fact that a contract states and that no peer here can show."""

    provider: str
    fact: str
    why: str


def row_of(subject: Subject, case: Case) -> Row:
    """The row that this cell has when its test passes."""
    check = subject.cases[case]
    return Row(
        adapter=subject.adapter,
        peer=subject.peer,
        independent=subject.independent,
        case=case.value,
        result=Result.DEPARTURE if check.departure else Result.PASSED,
        fact=check.departure,
        source=check.source,
    )


def fault_row(subject: Subject, failure: str) -> Row:
    """The row of a send that fails in this way between this adapter and this peer."""
    return Row(
        adapter=subject.adapter,
        peer=subject.peer,
        independent=subject.independent,
        case=f"{FAULT}{failure}",
    )


def contract_row(row: Row) -> pytest.MarkDecorator:
    """Mark a test as the one that a row rests on."""
    return pytest.mark.contract_row(row)


class MatrixPlugin:
    """Collects the rows of a whole run, from every worker, and writes them at its end."""

    def __init__(self, config: pytest.Config) -> None:
        self._writes = not hasattr(config, "workerinput")
        self._rows: dict[tuple[str, str, str], dict[str, Any]] = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            for mark in item.iter_markers("contract_row"):
                row: Row = mark.args[0]
                item.user_properties.append((PROPERTY, row.as_json()))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not self._writes or report.skipped:
            return
        for name, value in report.user_properties:
            if name != PROPERTY:
                continue
            row = dict(value) if isinstance(value, dict) else {}
            cell = (row["adapter"], row["peer"], row["case"])
            if report.failed:
                self._rows[cell] = {**row, "result": Result.FAILED.value}
            elif report.when == "call":
                # A cell that rests on several tests fails with any of them.
                self._rows.setdefault(cell, row)

    def pytest_sessionfinish(self) -> None:
        if self._writes and self._rows:
            write(list(self._rows.values()), BUILT)


def write(rows: list[dict[str, Any]], path: Path) -> None:
    """Write the rows in order, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".unfinished")
    rows = sorted(rows, key=lambda row: (row["adapter"], row["peer"], row["case"]))
    unfinished.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n")
    unfinished.replace(path)
