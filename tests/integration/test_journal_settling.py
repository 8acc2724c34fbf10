"""The moves of an operation: which are refused, what a refusal leaves, what each does to the books."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from runs.actors import Actor
from runs.canonical import INTEGER_MAX, digest
from runs.journal.evidence import record_evidence
from runs.journal.settling import (
    MoveRefused,
    ReceiptReused,
    abandon,
    book_conflict,
    conclude_not_sent,
    confirm,
    end_attempt,
    mark_sent_by_unknown,
    reject,
    return_to_ready,
)
from runs.locking import LockedOperation
from runs.models import Attempt, AuditLeaf, Evidence, Operation, Receipt, Run
from runs.refusals import Invalid
from runs.states import AttemptOutcome, Claim, EvidenceKind
from tests.factories import (
    PERSON,
    Claimed,
    claim,
    doubt,
    effect,
    fresh,
    held,
    make_claimed,
    receipt,
    reply,
    send,
)

pytestmark = pytest.mark.django_db(transaction=True)

Move = Callable[[LockedOperation], object]


def evidence_of_success(locked: LockedOperation) -> Evidence:
    return record_evidence(
        locked, kind=EvidenceKind.WEBHOOK, claim=Claim.RECEIPT, summary="Order made", actor=PERSON
    )


def be_confirmed(locked: LockedOperation) -> object:
    return confirm(locked, receipt=receipt("ord_9"), actor=PERSON)


def be_rejected(locked: LockedOperation) -> object:
    return reject(locked, refusal=b'"sold out"', actor=PERSON)


def be_abandoned(locked: LockedOperation) -> object:
    return abandon(locked, actor=PERSON, known_effect="Not known.", reason="given up")


def be_ready(locked: LockedOperation) -> object:
    return return_to_ready(locked, actor=PERSON)


def be_sent_by_unknown(locked: LockedOperation) -> object:
    return mark_sent_by_unknown(locked, actor=PERSON, evidence=evidence_of_success(locked))


def operation_in(state: str, *, minor: int | None = 500) -> Operation:
    claimed = make_claimed(effect(minor=minor), budget_minor=None if minor is None else 10_000)
    operation = claimed.operation
    if state == "ready":
        return operation
    send(claimed)
    if state != "sent_unknown":
        with held(operation) as locked:
            {"confirmed": be_confirmed, "rejected": be_rejected, "abandoned": be_abandoned}[state](locked)
    return operation


def everything_about(operation: Operation) -> list[object]:
    rows: list[object] = []
    for query in (
        Operation.objects.filter(pk=operation.pk),
        Run.objects.filter(pk=operation.run_id),
        Attempt.objects.filter(operation=operation),
        Receipt.objects.all(),
    ):
        rows.extend(query.order_by("pk").values())
    return rows


# --- The machine ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "move"),
    [
        ("ready", be_confirmed),
        ("ready", be_rejected),
        ("ready", be_ready),
        ("sent_unknown", be_sent_by_unknown),
        *(
            (state, move)
            for state in ("confirmed", "rejected", "abandoned")
            for move in (be_confirmed, be_rejected, be_abandoned, be_ready, be_sent_by_unknown)
        ),
    ],
)
def test_a_move_that_the_machine_does_not_have_is_refused_and_leaves_nothing(state: str, move: Move) -> None:
    operation = operation_in(state)
    with held(operation) as locked:
        before = everything_about(operation)
        leaves = AuditLeaf.objects.filter(action__startswith="operation.").count()
        # The caller keeps the transaction: it has evidence to store.
        with pytest.raises(MoveRefused) as refused:
            move(locked)
        assert refused.value.details["state"] == state
        assert everything_about(operation) == before
    assert everything_about(operation) == before
    assert AuditLeaf.objects.filter(action__startswith="operation.").count() == leaves


@pytest.mark.parametrize(
    ("state", "move", "after"),
    [
        ("ready", be_sent_by_unknown, "sent_unknown"),
        ("ready", be_abandoned, "abandoned"),
        ("sent_unknown", be_confirmed, "confirmed"),
        ("sent_unknown", be_rejected, "rejected"),
        ("sent_unknown", be_abandoned, "abandoned"),
    ],
)
def test_each_move_of_the_machine_is_made_with_one_leaf(state: str, move: Move, after: str) -> None:
    operation = operation_in(state)
    before = AuditLeaf.objects.filter(action__startswith="operation.").count()
    with held(operation) as locked:
        move(locked)
    operation = fresh(operation)
    assert operation.state == after
    assert (operation.settled_at is not None) == (after != "sent_unknown")
    assert AuditLeaf.objects.filter(action__startswith="operation.").count() == before + 1


def test_an_operation_returns_to_ready_only_when_every_attempt_is_proved_not_sent() -> None:
    claimed = make_claimed(effect(minor=500), budget_minor=10_000)
    operation = claimed.operation
    send(claimed)
    doubt(operation)
    attempt = Attempt.objects.get()
    with held(operation) as locked:
        with pytest.raises(MoveRefused) as refused:
            be_ready(locked)
        assert refused.value.details["attempts"] == [1]
        assert fresh(operation).state == "sent_unknown"
        conclude_not_sent(locked, attempt)
        be_ready(locked)
    operation = fresh(operation)
    # The reservation and the first send's time are kept: the key's window counts from there.
    assert (operation.state, operation.reservation, operation.reserved_minor) == ("ready", "reserved", 500)
    assert operation.first_sent_at is not None
    assert operation.in_doubt_since_at is None


def test_what_somebody_else_sent_is_not_returned_to_ready_by_our_attempts() -> None:
    operation = make_claimed().operation
    with held(operation) as locked:
        be_sent_by_unknown(locked)
        with pytest.raises(MoveRefused):
            be_ready(locked)
    assert fresh(operation).state == "sent_unknown"


# --- Receipts ------------------------------------------------------------------------------------------


def test_one_receipt_confirms_one_operation_and_the_second_claim_leaves_nothing() -> None:
    first, second = make_claimed(), make_claimed()
    send(first)
    send(second)
    assert reply(first, "ord_1") == 1
    with held(second.operation) as locked:
        with pytest.raises(ReceiptReused) as refused:
            confirm(locked, receipt=receipt("ord_1"), actor=PERSON)
        assert refused.value.details == {
            "operation": second.operation.pk,
            "confirmed_operation": first.operation.pk,
        }
        # The transaction goes on: the caller stores the claim as evidence.
        evidence_of_success(locked)
    assert fresh(second.operation).state == "sent_unknown"
    assert Receipt.objects.count() == 1
    assert Evidence.objects.filter(operation=second.operation).count() == 1


def test_the_usual_reply_with_a_receipt_that_is_taken_changes_nothing() -> None:
    first, second = make_claimed(), make_claimed()
    send(first)
    send(second)
    assert reply(first, "ord_1") == 1
    assert reply(second, "ord_1") is None
    assert fresh(second.operation).state == "sent_unknown"
    assert Attempt.objects.get(operation=second.operation).outcome == "open"


def test_the_same_reference_at_another_account_is_another_receipt() -> None:
    first = make_claimed()
    second = make_claimed(effect(provider="sandbox-mail"))
    send(first)
    send(second)
    assert reply(first, "1") == 1
    assert reply(second, "1") == 1


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"reference": ""}, "reference"),
        ({"reference": "x" * 301}, "reference"),
        ({"reference": "ord\x00"}, "reference"),
        ({"reference": "ord\ud800"}, "reference"),
        ({"minor": -1}, "amount"),
        ({"minor": INTEGER_MAX + 1}, "amount"),
        ({"minor": 5, "amount_currency": "EURO"}, "amount"),
        ({"minor": None, "amount_currency": "EUR"}, "amount"),
    ],
)
def test_a_receipt_that_could_not_be_stored_is_refused_before_anything_is_written(
    fields: dict[str, object], where: str
) -> None:
    with pytest.raises(Invalid) as refused:
        receipt(**{"reference": "ord_1", **fields})  # type: ignore[arg-type]
    assert refused.value.details["where"] == where


# --- The budget ----------------------------------------------------------------------------------------


def books(claimed: Claimed) -> tuple[int, int, int]:
    run = fresh(claimed.run)
    return (run.budget_reserved_minor, run.budget_spent_minor, run.budget_held_minor)


def sent(minor: int = 500) -> Claimed:
    claimed = make_claimed(effect(minor=minor), budget_minor=10_000)
    send(claimed)
    return claimed


def test_a_confirmation_books_what_the_receipt_says() -> None:
    claimed = sent()
    with held(claimed.operation) as locked:
        confirm(locked, receipt=receipt(minor=480), actor=PERSON)
    assert books(claimed) == (0, 480, 0)
    assert (fresh(claimed.operation).reservation, fresh(claimed.operation).settled_minor) == ("settled", 480)


def test_a_receipt_without_an_amount_books_what_was_reserved() -> None:
    claimed = sent()
    with held(claimed.operation) as locked:
        confirm(locked, receipt=receipt(), actor=PERSON)
    assert books(claimed) == (0, 500, 0)


def test_a_receipt_in_another_currency_books_what_was_reserved() -> None:
    claimed = sent()
    with held(claimed.operation) as locked:
        row = confirm(locked, receipt=receipt(minor=99_000, amount_currency="JPY"), actor=PERSON)
    assert books(claimed) == (0, 500, 0)
    # What the provider says is kept as it said it.
    assert (row.amount_currency, row.amount_minor) == ("JPY", 99_000)


def test_the_usual_reply_in_another_currency_goes_the_slow_way() -> None:
    claimed = sent()
    assert reply(claimed, minor=500, amount_currency="JPY") is None
    assert books(claimed) == (500, 0, 0)
    assert reply(claimed, minor=480) == 1
    assert books(claimed) == (0, 480, 0)


def test_a_rejection_releases_the_reservation() -> None:
    claimed = sent()
    with held(claimed.operation) as locked:
        be_rejected(locked)
    operation = fresh(claimed.operation)
    assert books(claimed) == (0, 0, 0)
    assert (operation.reservation, operation.settled_minor) == ("released", 0)
    assert bytes(operation.refusal or b"") == b'"sold out"'


def test_an_abandonment_with_the_effect_unknown_holds_the_amount() -> None:
    claimed = sent()
    with held(claimed.operation) as locked:
        be_abandoned(locked)
    operation = fresh(claimed.operation)
    assert books(claimed) == (0, 0, 500)
    assert (operation.reservation, operation.known_effect) == ("held", "Not known.")


def test_an_abandonment_of_what_is_proved_not_sent_releases_the_reservation() -> None:
    claimed = sent()
    doubt(claimed.operation, outcome=AttemptOutcome.NOT_SENT)
    with held(claimed.operation) as locked:
        be_ready(locked)
        be_abandoned(locked)
    assert books(claimed) == (0, 0, 0)
    assert fresh(claimed.operation).reservation == "released"


def test_an_abandonment_of_what_was_never_sent_books_nothing() -> None:
    claimed = make_claimed(effect(minor=500), budget_minor=10_000)
    with held(claimed.operation) as locked:
        be_abandoned(locked)
    assert books(claimed) == (0, 0, 0)
    assert fresh(claimed.operation).reservation == "none"


def test_what_somebody_else_sent_is_reserved_once() -> None:
    claimed = make_claimed(effect(minor=500), budget_minor=10_000)
    with held(claimed.operation) as locked:
        be_sent_by_unknown(locked)
    assert books(claimed) == (500, 0, 0)
    with held(claimed.operation) as locked:
        be_confirmed(locked)
    assert books(claimed) == (0, 500, 0)


def test_proved_absence_releases_the_reservation_until_the_next_send() -> None:
    claimed = sent()
    doubt(claimed.operation, outcome=AttemptOutcome.NOT_SENT)
    with held(claimed.operation) as locked:
        return_to_ready(locked, actor=PERSON, release=True)
    assert books(claimed) == (0, 0, 0)
    assert (fresh(claimed.operation).state, fresh(claimed.operation).reservation) == ("ready", "none")
    again = Claimed(claimed.run, claim(claimed.run), claimed.operations)
    send(again, attempt_id="a2")
    assert books(claimed) == (500, 0, 0)


@pytest.mark.parametrize(
    ("move", "stands", "booked"),
    [
        # Held is spent or freed.
        (be_abandoned, True, (0, 480, 0)),
        (be_abandoned, False, (0, 0, 0)),
        # A second effect that stands is spent on top; one that was undone isn't.
        (be_confirmed, True, (0, 980, 0)),
        (be_confirmed, False, (0, 500, 0)),
        (be_rejected, True, (0, 480, 0)),
        (be_rejected, False, (0, 0, 0)),
    ],
)
def test_an_extra_effect_is_booked_as_a_person_says(
    move: Move, stands: bool, booked: tuple[int, int, int]
) -> None:
    claimed = sent()
    with held(claimed.operation) as locked:
        move(locked)
        state = locked.operation.state
        book_conflict(locked, minor=480, stands=stands, actor=PERSON, reason="seen at the provider")
    assert books(claimed) == booked
    assert fresh(claimed.operation).state == state


@pytest.mark.parametrize("state", ["ready", "sent_unknown"])
def test_nothing_is_booked_for_an_operation_that_is_not_settled(state: str) -> None:
    operation = operation_in(state)
    with held(operation) as locked:
        before = everything_about(operation)
        with pytest.raises(MoveRefused):
            book_conflict(locked, minor=480, stands=True, actor=PERSON, reason="too early")
        assert everything_about(operation) == before


@pytest.mark.parametrize("minor", [-1, INTEGER_MAX + 1])
def test_an_amount_that_cannot_exist_is_not_booked(minor: int) -> None:
    operation = operation_in("confirmed")
    with held(operation) as locked, pytest.raises(Invalid):
        book_conflict(locked, minor=minor, stands=True, actor=PERSON, reason="wrong")


# --- Attempts ------------------------------------------------------------------------------------------


def test_silence_gives_way_to_what_is_proved_and_a_report_does_not() -> None:
    claimed = make_claimed()
    send(claimed)
    attempt = Attempt.objects.get()
    with held(claimed.operation) as locked:
        assert end_attempt(locked, attempt, outcome=AttemptOutcome.UNREPORTED)
        assert end_attempt(locked, attempt, outcome=AttemptOutcome.UNKNOWN, report_digest="a" * 64)
        assert not end_attempt(locked, attempt, outcome=AttemptOutcome.NOT_SENT)
        assert not end_attempt(locked, attempt, outcome=AttemptOutcome.UNREPORTED)
    attempt = fresh(attempt)
    assert (attempt.outcome, attempt.report_digest) == ("unknown", "a" * 64)


def test_a_refusal_of_one_attempt_leaves_the_operation_as_it_was() -> None:
    claimed = make_claimed()
    send(claimed)
    with held(claimed.operation) as locked:
        end_attempt(locked, Attempt.objects.get(), outcome=AttemptOutcome.REJECTED)
    assert fresh(claimed.operation).state == "sent_unknown"


# --- Evidence ------------------------------------------------------------------------------------------


def test_evidence_is_cut_to_its_bound_and_hashed_whole() -> None:
    claimed = make_claimed()
    body = b"x" * (64 * 1024 + 1)
    with held(claimed.operation) as locked:
        row = record_evidence(
            locked,
            kind=EvidenceKind.REPORT,
            claim=Claim.UNKNOWN,
            summary="s" * 600,
            reference="r" * 400,
            actor=Actor(PERSON.kind, PERSON.id),
            body=body,
        )
    row = fresh(row)
    assert len(bytes(row.body or b"")) == 64 * 1024
    assert (row.body_length, row.body_digest) == (len(body), digest(body))
    assert (len(row.summary), len(row.reference)) == (500, 300)


def test_evidence_that_the_database_could_not_hold_as_text_is_kept_with_those_characters_replaced() -> None:
    claimed = make_claimed()
    hostile = "a\x00b\ud800c"
    with held(claimed.operation) as locked:
        row = record_evidence(
            locked,
            kind=EvidenceKind.LOOKUP,
            claim=Claim.FINDING,
            finding="found",
            summary=hostile,
            reference=hostile,
            actor=PERSON,
            seen={hostile: [hostile, {"deep": hostile}], "status": 200, "none": None},
            body=hostile.encode("utf-8", "surrogatepass"),
        )
    row = fresh(row)
    assert row.summary == row.reference == "a\ufffdb\ufffdc"
    assert row.seen == {
        "a\ufffdb\ufffdc": ["a\ufffdb\ufffdc", {"deep": "a\ufffdb\ufffdc"}],
        "status": 200,
        "none": None,
    }
    assert bytes(row.body or b"") == hostile.encode("utf-8", "surrogatepass")


def test_the_same_words_from_another_account_give_the_same_evidence_digest() -> None:
    digests = []
    for _ in range(2):
        with held(make_claimed().operation) as locked:
            digests.append(evidence_of_success(locked).digest)
    assert digests[0] == digests[1]
