"""Reports that contradict themselves, or what is known of their operation, strand and repeat nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from reconciliation import reports
from reconciliation.providers import registry
from reconciliation.reports import ReceiptReused, SeenReply, Sender
from reconciliation.states import Action, CaseKind
from runs.journal.ending import abandon_run
from runs.models import Evidence
from tests.cases_world import (
    COURIER,
    case_of,
    decide,
    declare,
    make_sent,
    open_case_of,
    record,
    report,
    report_refused,
    state_of,
)
from tests.factories import PERSON, TEAM, end_lease_in, fresh

pytestmark = pytest.mark.django_db

PROVES_EXISTENCE = "supplier-that-says"
REFUSES_BY_200 = "supplier-that-refuses-politely"
EXISTS = {"status": 409, "body": b'{"error":"already_exists"}'}
_DECLARED = Path(registry.__file__).parent / "declared" / "sandbox-supplier.toml"


@pytest.fixture(autouse=True)
def _declared(db: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """The shipped accounts, one that answers 409 where the effect is there, and one that refuses by 200."""
    polite = '[[send.answer.rejected]]\nstatuses = [200]\npath = "$.ok"\nvalues = ["false"]\n'
    limited = '[[send.answer.unknown]]\nstatuses = [403]\nheader = "X-Remaining"\nheader_values = ["0"]\n'
    text = _DECLARED.read_text().replace("sandbox-supplier", REFUSES_BY_200)
    (tmp_path / f"{REFUSES_BY_200}.toml").write_text(
        text.replace("[lookup.request]", f"{polite}\n{limited}\n[lookup.request]")
    )
    text = _DECLARED.read_text().replace("sandbox-supplier", PROVES_EXISTENCE)
    patterns = (
        '[[contract.proves_existence]]\nstatuses = [409]\npath = "$.error"\nvalues = ["already_exists"]\n'
    )
    (tmp_path / f"{PROVES_EXISTENCE}.toml").write_text(
        text.replace("[contract.success_when]", f"{patterns}\n[contract.success_when]")
    )
    monkeypatch.setenv("SANDBOX_URL", "http://127.0.0.1:9")
    with monkeypatch.context() as patched:
        patched.setattr(settings, "RECOURSE_PROVIDERS_DIR", [str(tmp_path)])
        declare()
        yield
    registry.reload()


@pytest.mark.parametrize("status", [200, 201, 409, 422, 500, 503])
@pytest.mark.parametrize("late", [False, True])
def test_what_was_answered_was_sent(status: int, late: bool) -> None:
    """An answer of the provider's is the proof that the request left, whatever its sender calls it."""
    claimed = make_sent()
    if late:
        end_lease_in(claimed.run, -1)
    report("not_sent", claimed, status=status)
    assert state_of(claimed) == "sent_unknown"
    assert case_of(claimed).kind == CaseKind.UNKNOWN


def test_an_answer_that_the_account_calls_no_refusal_is_none() -> None:
    """422 like any other, and by the supplier's file it says that the key was used for something else."""
    claimed = make_sent()
    answer = report("rejection", claimed, body=b'{"error":{"code":"key_reused"}}')
    assert (state_of(claimed), answer["next"]) == ("sent_unknown", "stop")
    assert case_of(claimed).kind == CaseKind.UNKNOWN


@pytest.mark.parametrize(
    ("provider", "seen", "state"),
    [
        (REFUSES_BY_200, {"status": 200, "body": b'{"ok":false,"error":"no_such_channel"}'}, "rejected"),
        (REFUSES_BY_200, {"status": 200, "body": b'{"ok":true}'}, "sent_unknown"),
        (REFUSES_BY_200, {"status": 200, "body": b'{"ok":fal'}, "sent_unknown"),
        ("sandbox-supplier", {"status": 200, "body": b'{"ok":false}'}, "sent_unknown"),
        (REFUSES_BY_200, {"status": 403, "headers": (("x-remaining", "0"),)}, "sent_unknown"),
        (REFUSES_BY_200, {"status": 403, "headers": (("x-remaining", "9"),)}, "rejected"),
    ],
)
def test_what_the_accounts_file_says_of_an_answer_decides_whether_it_refuses(
    provider: str, seen: dict[str, Any], state: str
) -> None:
    claimed = make_sent(provider)
    report("rejection", claimed, **seen)
    assert state_of(claimed) == state


def test_an_attempt_that_was_answered_is_not_unsent_afterwards() -> None:
    claimed = make_sent()
    report("unknown", claimed, status=500)
    report("not_sent", claimed)
    assert state_of(claimed) == "sent_unknown"


def test_an_attempt_whose_receipt_was_wrong_is_not_unsent_afterwards() -> None:
    claimed = make_sent()
    report_refused("receipt", claimed, quantity=41)
    report("not_sent", claimed)
    assert state_of(claimed) == "sent_unknown"


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_operation_that_is_proved_unsent_after_its_run_was_given_up_is_given_up_too(when: str) -> None:
    claimed = make_sent(minor=500, budget_minor=1000)
    if when == "after":
        report("unknown", claimed)
    abandon_run(team=TEAM, run_id=claimed.run.pk, actor=PERSON, reason="The order was cancelled.")
    report("not_sent", claimed)
    assert state_of(claimed) == "abandoned"
    assert open_case_of(claimed) is None
    run = fresh(claimed.run)
    assert (run.budget_reserved_minor, run.budget_held_minor) == (0, 0)


def test_an_answer_that_proves_an_effect_of_an_unsent_operation_is_a_conflict() -> None:
    """The sender said that it never left, and the provider's answer to somebody says that it is there."""
    claimed = make_sent(PROVES_EXISTENCE)
    report("not_sent", claimed)
    assert state_of(claimed) == "ready"
    answer = report("unknown", claimed, **EXISTS)
    assert (state_of(claimed), answer["case"]) == ("sent_unknown", case_of(claimed).pk)
    assert case_of(claimed).kind == CaseKind.CONFLICT


def test_an_answer_that_proves_an_effect_of_an_abandoned_operation_is_a_conflict() -> None:
    claimed = make_sent(PROVES_EXISTENCE)
    report("unknown", claimed)
    decide(case_of(claimed), Action.ABANDON)
    assert report("unknown", claimed, **EXISTS)["case"] == case_of(claimed).pk
    assert (case_of(claimed).kind, state_of(claimed)) == (CaseKind.CONFLICT, "abandoned")


@pytest.mark.django_db(transaction=True)
def test_a_receipt_that_confirmed_another_teams_operation_names_it_to_nobody_else() -> None:
    theirs, ours = make_sent(COURIER, team="another-team"), make_sent(COURIER)
    body = json.dumps(record(theirs.operation, idempotency_key=None)).encode()
    reports.report_receipt(
        sender=Sender(team="another-team", token=theirs.token),
        operation_id=theirs.operation.pk,
        attempt_id="a1",
        reference="ord_1",
        seen=SeenReply(status=201, body=body),
    )
    refused = report_refused("receipt", ours, idempotency_key=None)
    assert isinstance(refused, ReceiptReused)
    again = report_refused("receipt", ours, idempotency_key=None)
    told = [refused.sentence, refused.details, again, again and again.details]
    told += [case_of(ours).opened_because, *Evidence.objects.filter(operation=ours.operation).values()]
    for theirs_alone in (theirs.operation.pk, theirs.run.pk, case_of(theirs).pk, "another-team"):
        assert theirs_alone not in repr(told)
    assert {open_case_of(one).kind for one in (ours, theirs)} == {CaseKind.CONFLICT}  # type: ignore[union-attr]
