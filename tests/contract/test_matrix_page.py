"""The committed page says what the suite declares, and a page is written only of a run that shows it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reconciliation.contracts import ProviderAccount, VerifiedWith
from reconciliation.providers.declaration import ADAPTER, read_file
from reconciliation.providers.registry import SHIPPED
from tests.contract.matrix import Case, Result, write
from tests.contract.matrix_page import PAGE, NotShown, check_run, expected_rows, page
from tests.contract.subjects import SUBJECTS


def test_the_committed_page_is_what_the_suite_declares() -> None:
    assert PAGE.read_text() == page(), "run `make matrix`"


def test_every_adapter_is_run_or_excused_in_every_case() -> None:
    for subject in SUBJECTS:
        assert {*subject.cases, *subject.not_run} == set(Case)


@pytest.mark.parametrize("name", sorted({subject.adapter for subject in SUBJECTS}))
def test_every_account_says_what_it_was_run_against(name: str) -> None:
    """An account may claim an independent peer, or a stub, only where the suite has one; and no less."""
    account = _account(name)
    subjects = [subject for subject in SUBJECTS if subject.adapter == name]
    independent = [subject.peer for subject in subjects if subject.independent]
    match account.tested.kind:
        case VerifiedWith.INDEPENDENT_PEER:
            assert any(account.tested.peer.startswith(peer) for peer in independent)
        case VerifiedWith.OWN_STUB:
            assert len(subjects) > len(independent)
            assert all(peer in account.tested.peer for peer in independent)
        case VerifiedWith.NOTHING:
            pytest.fail("the suite runs it against something")


def test_no_shipped_account_is_left_out() -> None:
    shipped = [read_file(path, shown_as=path.name).account for path in SHIPPED.rglob("*.toml")]
    run = {subject.adapter for subject in SUBJECTS}
    assert {one.slug if one.adapter == ADAPTER else one.adapter for one in shipped} == run


def _account(name: str) -> ProviderAccount:
    found = [read_file(path, shown_as=path.name).account for path in SHIPPED.rglob("*.toml")]
    (account,) = [one for one in found if name in (one.slug, one.adapter)]
    return account


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
