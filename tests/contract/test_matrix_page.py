"""The committed page says what the suite declares, and a page is written only of a run that shows it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.contract.matrix import Case, Result, write
from tests.contract.matrix_page import PAGE, NotShown, check_run, expected_rows, page
from tests.contract.subjects import SUBJECTS


def test_the_committed_page_is_what_the_suite_declares() -> None:
    assert PAGE.read_text() == page(), "run `make matrix`"


def test_every_adapter_is_run_or_excused_in_every_case() -> None:
    for subject in SUBJECTS:
        assert {*subject.cases, *subject.not_run} == set(Case)


def test_no_row_stands_twice() -> None:
    cells = [row.cell for row in expected_rows()]
    assert len(cells) == len(set(cells))


def test_a_run_that_shows_every_row_is_taken(tmp_path: Path) -> None:
    built = tmp_path / "matrix.json"
    write([row.as_json() for row in expected_rows()], built)
    check_run(expected_rows(), built)


def test_a_run_without_a_row_is_refused(tmp_path: Path) -> None:
    built = tmp_path / "matrix.json"
    write([row.as_json() for row in expected_rows()[1:]], built)
    with pytest.raises(NotShown, match="not run: "):
        check_run(expected_rows(), built)


def test_a_run_with_a_failed_row_is_refused(tmp_path: Path) -> None:
    built = tmp_path / "matrix.json"
    rows = [row.as_json() for row in expected_rows()]
    rows[0]["result"] = Result.FAILED.value
    write(rows, built)
    with pytest.raises(NotShown, match="failed: "):
        check_run(expected_rows(), built)


def test_rows_are_written_in_order_and_as_a_list(tmp_path: Path) -> None:
    built = tmp_path / "matrix.json"
    rows = [row.as_json() for row in expected_rows()]
    write(list(reversed(rows)), built)
    written = json.loads(built.read_text())
    assert sorted(written, key=lambda row: (row["adapter"], row["peer"], row["case"])) == written
    assert {"adapter", "case", "peer", "independent", "result"} <= set(written[0])
