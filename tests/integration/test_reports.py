"""Reports: what each kind does, from its own sender, a late one and a stranger, in every state."""

from __future__ import annotations

import pytest

from reconciliation import decisions, gathering, reports
from reconciliation.approval_models import ApprovalRequest
from reconciliation.approving import approve
from reconciliation.models import Case
from reconciliation.reports import ReceiptMismatch, ReceiptReused, SeenReply, Sender
from reconciliation.states import Action, CaseKind, CaseState, Need, Resolution
from runs.journal.sending import begin_send
from runs.models import Attempt, Evidence, Receipt
from runs.states import AttemptOutcome, EvidenceKind, Executor
from tests.cases_world import (
    ANOTHER_TOKEN,
    COURIER,
    asked,
    case_of,
    decide,
    declare,
    given,
    in_doubt,
    make_sent,
    open_case_of,
    record,
    report,
    report_refused,
    state_of,
    take_in,
)
from tests.factories import (
    PERSON,
    TEAM,
    Claimed,
    claim,
    effect,
    end_lease_in,
    fresh,
    grant,
    make_claimed,
    quieten,
    send,
)
from tests.people import approver, operator

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _declared(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    # Configured, and nobody is there: no test of this file asks or sends.
    monkeypatch.setenv("SANDBOX_URL", "http://127.0.0.1:9")
    declare()


def world(state: str) -> Claimed:
    """An operation in this state, whose attempt a1 was sent under the token it returns."""
    claimed = make_sent(minor=500)
    match state:
        case "sent":
            return claimed
        case "doubt":
            report("unknown", claimed)
        case "ready":
            report("not_sent", claimed)
        case "confirmed":
            report("receipt", claimed)
        case "rejected":
            report("rejection", claimed)
        case "abandoned":
            report("unknown", claimed)
            decide(case_of(claimed), Action.ABANDON)
    return claimed


def shown(claimed: Claimed) -> str:
    """What is asked about the operation: nothing, an open case's kind, or how the last one was resolved."""
    case = open_case_of(claimed)
    if case is not None:
        return case.kind
    resolved = Case.objects.filter(operation=claimed.operation).order_by("-number").first()
    return f"was {resolved.resolution}" if resolved else "nothing"


STANDINGS = {
    # Its own token, and the lease is over or the attempt has ended.
    "late": {},
    # The attempt's id with a token that it wasn't minted under.
    "another token": {"token": ANOTHER_TOKEN},
    # An attempt that was never given.
    "stray": {"attempt_id": "never"},
}
KINDS = ("receipt", "rejection", "not_sent", "unknown")
# For each state: what each kind of report leaves, as (the operation's state, what is asked).
UNMOVED = {
    "sent": ("sent_unknown", "nothing"),
    "doubt": ("sent_unknown", "unknown"),
    "ready": ("ready", "nothing"),
    "confirmed": ("confirmed", "nothing"),
    "rejected": ("rejected", "nothing"),
    "abandoned": ("abandoned", "was abandoned"),
}
MOVED = {
    ("late", "sent", "receipt"): ("confirmed", "was confirmed"),
    ("late", "sent", "rejection"): ("rejected", "was rejected"),
    ("late", "sent", "not_sent"): ("ready", "was not_sent"),
    ("late", "sent", "unknown"): ("sent_unknown", "unknown"),
    ("late", "doubt", "receipt"): ("confirmed", "was confirmed"),
    ("late", "doubt", "rejection"): ("rejected", "was rejected"),
    ("late", "doubt", "not_sent"): ("ready", "was not_sent"),
    # The receipt carries our key, whoever brings it.
    ("another token", "sent", "receipt"): ("confirmed", "nothing"),
    ("another token", "doubt", "receipt"): ("confirmed", "was confirmed"),
    ("stray", "sent", "receipt"): ("sent_unknown", "conflict"),
    ("stray", "doubt", "receipt"): ("sent_unknown", "conflict"),
    **{(standing, "ready", "receipt"): ("sent_unknown", "conflict") for standing in STANDINGS},
    **{
        (standing, state, "receipt"): (state, "conflict")
        for standing in STANDINGS
        for state in ("rejected", "abandoned")
    },
}


@pytest.mark.parametrize("state", UNMOVED)
@pytest.mark.parametrize("standing", STANDINGS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_report_from_outside_is_kept_and_moves_only_what_it_proves(
    kind: str, standing: str, state: str
) -> None:
    claimed = world(state)
    if standing == "late" and state == "sent":
        end_lease_in(claimed.run, -1)
    attempts = list(Attempt.objects.values_list("attempt_id", "number"))
    evidence = Evidence.objects.filter(operation=claimed.operation).count()
    # Another body than the own sender's report, which would be the same report again.
    told = {"note": "late"} if kind == "receipt" else {"body": b"later"}
    answer = report(kind, claimed, **STANDINGS[standing], **told)
    assert answer["recorded_as_evidence"]
    assert answer["next"] == "stop"
    assert not answer["replayed"]
    assert (state_of(claimed), shown(claimed)) == MOVED.get((standing, state, kind), UNMOVED[state])
    assert answer["operation"]["state"] == state_of(claimed)
    open_one = open_case_of(claimed)
    assert answer["case"] == (open_one.pk if open_one else None)
    # Kept, and no attempt was made up or taken away.
    assert Evidence.objects.filter(operation=claimed.operation).count() == evidence + 1
    assert list(Attempt.objects.values_list("attempt_id", "number")) == attempts
    again = report(kind, claimed, **STANDINGS[standing], **told)
    assert again == {**answer, "replayed": True}
    assert Evidence.objects.filter(operation=claimed.operation).count() == evidence + 1


@pytest.mark.parametrize(
    ("kind", "state", "outcome", "asks", "goes_on"),
    [
        ("receipt", "confirmed", "receipt", "nothing", "continue"),
        ("rejection", "rejected", "rejected", "nothing", "continue"),
        ("not_sent", "ready", "not_sent", "nothing", "continue"),
        ("unknown", "sent_unknown", "unknown", "unknown", "stop"),
    ],
)
def test_the_own_senders_report_is_taken_at_its_word(
    kind: str, state: str, outcome: str, asks: str, goes_on: str
) -> None:
    claimed = world("sent")
    answer = report(kind, claimed)
    assert not answer["recorded_as_evidence"]
    assert (state_of(claimed), shown(claimed)) == (state, asks)
    assert (answer["attempt"]["outcome"], answer["next"]) == (outcome, goes_on)
    if fresh(claimed.run).lease_token:
        end_lease_in(claimed.run, -1)
    assert report(kind, claimed) == {**answer, "replayed": True}


def test_somebody_elses_word_takes_nothing_from_the_sender() -> None:
    """A stranger who knows the attempt's id says the same as its sender will, and says it first."""
    claimed = world("sent")
    strange = report("not_sent", claimed, token=ANOTHER_TOKEN)
    assert strange["recorded_as_evidence"]
    assert (state_of(claimed), strange["case"]) == ("sent_unknown", None)
    own = report("not_sent", claimed)
    assert (own["replayed"], own["recorded_as_evidence"]) == (False, False)
    assert state_of(claimed) == "ready"


def test_a_report_before_go_is_not_the_answer_to_the_one_after_it() -> None:
    claimed = make_claimed()
    assert report("unknown", claimed)["recorded_as_evidence"]
    send(claimed)
    assert not report("unknown", claimed)["replayed"]
    assert case_of(claimed).kind == CaseKind.UNKNOWN


def test_a_reply_that_only_its_attempt_names_confirms_nothing_under_another_token() -> None:
    """The courier's receipts carry nothing of ours."""
    claimed = make_sent(COURIER)
    report("receipt", claimed, token=ANOTHER_TOKEN, idempotency_key=None)
    assert state_of(claimed) == "sent_unknown"
    report("receipt", claimed, idempotency_key=None)
    assert state_of(claimed) == "confirmed"
    assert Receipt.objects.get().matched_by == "reply_only"


# --- receipts that don't confirm ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [{"quantity": 41}, {"idempotency_key": "another"}, {"idempotency_key": None}, {"amount_minor": 501}],
)
def test_a_receipt_of_something_else_opens_a_case_and_is_kept(changes: dict) -> None:  # type: ignore[type-arg]
    claimed = world("sent")
    with pytest.raises(ReceiptMismatch) as refused:
        report("receipt", claimed, **changes)
    assert refused.value.details["problems"]
    case = case_of(claimed)
    assert (state_of(claimed), case.state, case.need) == (
        "sent_unknown",
        CaseState.NEEDS_DECISION,
        Need.MISMATCH,
    )
    assert Attempt.objects.get().outcome == AttemptOutcome.UNKNOWN
    with pytest.raises(ReceiptMismatch) as again:
        report("receipt", claimed, **changes)
    assert again.value.sentence == refused.value.sentence
    assert again.value.details["replayed"]
    assert Case.objects.count() == 1


def test_a_reference_that_differs_from_the_records_is_a_mismatch() -> None:
    claimed = world("sent")
    assert isinstance(report_refused("receipt", claimed, id="ord_2"), ReceiptMismatch)
    assert state_of(claimed) == "sent_unknown"


@pytest.mark.parametrize("status", ["pending", "failed"])
def test_our_own_record_that_has_not_succeeded_is_no_mismatch(status: str) -> None:
    """It is looked up like any unknown outcome, and settles when it is final."""
    claimed = world("sent")
    assert isinstance(report_refused("receipt", claimed, status=status), ReceiptMismatch)
    case = case_of(claimed)
    assert (state_of(claimed), case.state) == ("sent_unknown", CaseState.LOOKING_UP)
    report("receipt", claimed, attempt_id="a1", note="it is final now")
    assert state_of(claimed) == "confirmed"


@pytest.mark.django_db(transaction=True)
def test_a_receipt_that_confirmed_another_operation_is_a_conflict_on_both() -> None:
    first, second = make_sent(COURIER), make_sent(COURIER)
    report("receipt", first, idempotency_key=None)
    with pytest.raises(ReceiptReused) as refused:
        report("receipt", second, idempotency_key=None)
    assert refused.value.details["confirmed_operation"] == first.operation.pk
    assert (state_of(first), state_of(second)) == ("confirmed", "sent_unknown")
    for claimed in (first, second):
        case = case_of(claimed)
        assert (case.kind, case.state) == (CaseKind.CONFLICT, CaseState.NEEDS_DECISION)
    assert isinstance(report_refused("receipt", second, idempotency_key=None), ReceiptReused)
    assert Case.objects.count() == 2


def test_a_reused_receipt_after_abandonment_is_a_conflict_on_both() -> None:
    first = make_sent(COURIER)
    report("receipt", first, idempotency_key=None)
    second, case = in_doubt(COURIER)
    decide(case, Action.ABANDON)
    assert isinstance(report_refused("receipt", second, idempotency_key=None), ReceiptReused)
    for claimed in (first, second):
        assert case_of(claimed).kind == CaseKind.CONFLICT
        assert case_of(claimed).state == CaseState.NEEDS_DECISION


@pytest.mark.django_db(transaction=True)
def test_a_reused_receipt_in_one_run_is_a_conflict_on_both() -> None:
    claimed = make_claimed(effect("c1", provider=COURIER), effect("c2", provider=COURIER), parallel=True)
    first, second = claimed.operations
    for number, operation in enumerate(claimed.operations, 1):
        send(claimed, attempt_id=f"a{number}", operation=operation)
    report("receipt", claimed, operation=first, idempotency_key=None)
    refused = report_refused("receipt", claimed, operation=second, attempt_id="a2", idempotency_key=None)
    assert isinstance(refused, ReceiptReused)
    assert {open_case_of(claimed, one).kind for one in (first, second)} == {CaseKind.CONFLICT}  # type: ignore[union-attr]
    run = fresh(claimed.run)
    assert (run.in_doubt_count, run.state, run.lease_token) == (1, "paused", None)


# --- success that can't be true at once -----------------------------------------------------------------


def test_a_second_receipt_after_confirmed_is_a_conflict_and_rewrites_nothing() -> None:
    claimed = world("confirmed")
    answer = report("receipt", claimed, reference="ord_2")
    case = case_of(claimed)
    assert answer["case"] == case.pk
    assert (case.kind, case.state, case.need) == (
        CaseKind.CONFLICT,
        CaseState.NEEDS_DECISION,
        Need.CONFLICT,
    )
    assert Receipt.objects.get().reference == "ord_1"
    # Another one still is the same question.
    report("receipt", claimed, reference="ord_3")
    assert Case.objects.count() == 1


def test_the_confirming_receipt_again_in_other_words_is_no_conflict() -> None:
    claimed = world("confirmed")
    assert report("receipt", claimed, note="seen later")["case"] is None


def test_an_extra_effect_that_was_dealt_with_is_not_asked_about_anew() -> None:
    claimed = world("confirmed")
    report("receipt", claimed, reference="ord_2")
    decide(case_of(claimed), Action.ACCEPT)
    assert report("receipt", claimed, reference="ord_2", note="seen later")["case"] is None
    assert report("receipt", claimed, reference="ord_3")["case"] is not None


def test_an_effect_that_was_told_of_before_another_was_dealt_with_is_asked_about() -> None:
    claimed = make_sent(minor=500)
    # Of another content, so it confirms nothing; then the effect that was meant turns up.
    report_refused("receipt", claimed, reference="ord_2", quantity=41)
    case = case_of(claimed)
    decided = decide(case, Action.CONFIRM, actor=operator().actor, receipt=given(claimed.operation, "ord_1"))
    approval = ApprovalRequest.objects.get(pk=decided.approval)
    approve(
        approval_id=approval.pk,
        teams=[TEAM],
        worker=approver(),
        content_digest=approval.content_digest,
        comment="The supplier shows order one, and says nothing of order two.",
    )
    assert state_of(claimed) == "confirmed"
    report("receipt", claimed, reference="ord_3")
    decide(case_of(claimed), Action.COMPENSATE)
    assert report("receipt", claimed, reference="ord_2")["case"] is not None


@pytest.mark.parametrize(("action", "spent"), [(Action.ACCEPT, 500 + 700), (Action.COMPENSATE, 500)])
def test_an_extra_effects_own_amount_is_booked(action: Action, spent: int) -> None:
    claimed = world("confirmed")
    ignored = report_refused("receipt", claimed, reference="ord_2", amount_minor=700)
    assert ignored is None
    decide(case_of(claimed), action)
    assert fresh(claimed.run).budget_spent_minor == spent


@pytest.mark.django_db(transaction=True)
def test_the_owner_of_a_receipt_that_somebody_else_claimed_has_nothing_extra_to_book() -> None:
    first, second = make_sent(COURIER, minor=500), make_sent(COURIER, minor=500)
    report("receipt", first, idempotency_key=None)
    report_refused("receipt", second, idempotency_key=None)
    decide(case_of(first), Action.ACCEPT)
    assert fresh(first.run).budget_spent_minor == 500


def test_an_amount_held_since_abandonment_is_spent_or_freed_when_its_effect_turns_up() -> None:
    for action, spent in ((Action.ACCEPT, 500), (Action.COMPENSATE, 0)):
        claimed = world("abandoned")
        assert fresh(claimed.run).budget_held_minor == 500
        report("receipt", claimed)
        decide(case_of(claimed), action)
        run = fresh(claimed.run)
        assert (run.budget_held_minor, run.budget_spent_minor) == (0, spent)


# --- second attempts ------------------------------------------------------------------------------------


def second_attempt(*, executor: Executor = Executor.AGENT) -> Claimed:
    """Attempt 1 is unknown; attempt 2 is on its way by a grant, under the token that it returns."""
    claimed, case = in_doubt(minor=500)
    decisions.decide(
        case_id=case.pk, team=TEAM, actor=PERSON, asked=asked(case, Action.RETRY, executor=str(executor))
    )
    grant(claimed.operation, executor=executor)
    token = claim(claimed.run)
    begin_send(team=TEAM, operation_id=claimed.operation.pk, token=token, attempt_id="a2")
    return Claimed(claimed.run, token, claimed.operations)


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("rejection", {"status": 402}),
        ("rejection", {"status": 422}),
        ("not_sent", {"error": "ConnectionRefused"}),
        ("unknown", {}),
    ],
)
def test_what_a_second_attempt_meets_says_nothing_of_the_first(kind: str, told: dict) -> None:  # type: ignore[type-arg]
    claimed = second_attempt()
    answer = report(kind, claimed, attempt_id="a2", **told)
    assert (answer["operation"]["state"], answer["next"]) == ("sent_unknown", "stop")
    case = case_of(claimed)
    assert (case.state, case.number) == (CaseState.LOOKING_UP, 1)
    assert case.next_lookup_at is not None
    run = fresh(claimed.run)
    assert (run.state, run.lease_token, run.budget_reserved_minor) == ("paused", None, 500)


def test_a_second_attempts_receipt_confirms() -> None:
    claimed = second_attempt()
    assert report("receipt", claimed, attempt_id="a2")["next"] == "continue"
    assert (state_of(claimed), case_of(claimed).resolution) == ("confirmed", Resolution.CONFIRMED)
    # The run goes on under the same lease.
    assert fresh(claimed.run).lease_token == claimed.token


def test_a_first_attempts_late_receipt_settles_while_the_second_is_out() -> None:
    claimed = second_attempt()
    first = Attempt.objects.get(number=1)
    answer = report("receipt", claimed, token=first.lease_token, attempt_id="a1")
    assert answer["operation"]["state"] == "confirmed"
    # The repeat brings the same receipt, as it must: nothing new.
    assert report("receipt", claimed, attempt_id="a2")["case"] is None


def test_every_attempt_proved_not_sent_makes_it_ready_and_it_can_be_sent_anew() -> None:
    claimed = second_attempt()
    report("not_sent", claimed, attempt_id="a2")
    assert state_of(claimed) == "sent_unknown"
    first = Attempt.objects.get(number=1)
    answer = report("not_sent", claimed, token=first.lease_token, attempt_id="a1")
    assert answer["operation"]["state"] == "ready"
    assert case_of(claimed).resolution == Resolution.NOT_SENT
    token = claim(claimed.run)
    go = begin_send(team=TEAM, operation_id=claimed.operation.pk, token=token, attempt_id="a3")
    assert (go.number, go.idempotency_key) == (3, claimed.operation.key)
    assert fresh(claimed.run).budget_reserved_minor == 500


def test_a_rejection_speaks_for_the_operation_once_every_other_attempt_is_proved_not_sent() -> None:
    claimed = second_attempt()
    report("rejection", claimed, attempt_id="a2")
    first = Attempt.objects.get(number=1)
    report("not_sent", claimed, token=first.lease_token, attempt_id="a1")
    assert (state_of(claimed), case_of(claimed).resolution) == ("rejected", Resolution.REJECTED)
    assert fresh(claimed.run).budget_reserved_minor == 0


# --- refusals that aren't -------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 503, 504])
def test_an_answer_that_does_not_say_that_nothing_happened_is_no_refusal(status: int) -> None:
    """Whatever its sender takes it for (DESIGN §5: time-outs, 5xx, conflicts and rate limits are unknown)."""
    claimed = world("sent")
    answer = report("rejection", claimed, status=status)
    assert (answer["operation"]["state"], answer["attempt"]["outcome"]) == ("sent_unknown", "unknown")
    assert f"status {status}" in Evidence.objects.get().summary
    assert case_of(claimed).state == CaseState.LOOKING_UP


@pytest.mark.parametrize("status", [None, 400, 402, 404, 422])
def test_a_definite_refusal_settles_the_only_attempt(status: int | None) -> None:
    claimed = world("sent")
    report("rejection", claimed, status=status)
    assert state_of(claimed) == "rejected"


# --- waiting, stopping, and what is kept ----------------------------------------------------------------


def test_a_late_report_is_taken_in_before_it_is_judged() -> None:
    claimed = world("sent")
    end_lease_in(claimed.run, -1)
    report("unknown", claimed)
    assert Attempt.objects.get().outcome == AttemptOutcome.UNREPORTED
    assert fresh(claimed.run).state == "paused"


def test_a_slow_sender_under_a_live_lease_is_still_the_sender() -> None:
    claimed = world("sent")
    quieten(claimed.operation)
    assert not report("unknown", claimed)["recorded_as_evidence"]


def test_a_sender_that_was_taken_in_is_late_though_its_lease_lives() -> None:
    claimed = world("sent")
    quieten(claimed.operation)
    take_in(claimed.run)
    answer = report("receipt", claimed)
    assert (answer["recorded_as_evidence"], answer["operation"]["state"]) == (True, "confirmed")


def test_the_consoles_attempt_is_reported_by_the_console_alone() -> None:
    claimed, case = in_doubt()
    decide(case, Action.RETRY, executor="console")
    made = grant(claimed.operation, executor=Executor.CONSOLE)
    from runs.journal.sending import begin_repeat_by_console

    begin_repeat_by_console(grant_id=made.pk, attempt_id="console-1")
    assert report("not_sent", claimed, attempt_id="console-1")["recorded_as_evidence"]
    first = Attempt.objects.get(number=1)
    report("not_sent", claimed, token=first.lease_token)
    # The agent's word for the console's attempt proves nothing.
    assert state_of(claimed) == "sent_unknown"
    reports.report_not_sent(
        sender=Sender(team=None, token=""),
        operation_id=claimed.operation.pk,
        attempt_id="console-1",
        seen=SeenReply(error="ConnectError"),
    )
    assert state_of(claimed) == "ready"


def test_each_standing_is_named_in_the_evidence() -> None:
    claimed = world("doubt")
    report("unknown", claimed, body=b"1")
    report("unknown", claimed, body=b"2", attempt_id="never")
    kinds = list(Evidence.objects.order_by("recorded_at", "id").values_list("kind", flat=True))
    assert kinds == [EvidenceKind.REPORT, EvidenceKind.LATE_REPORT, EvidenceKind.STRAY_REPORT]


def test_a_sender_that_talks_on_and_on_pushes_nothing_that_tells_out_of_sight(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gathering, "EVIDENCE_READ_MAX", 3)
    claimed = world("sent")
    report_refused("receipt", claimed, quantity=41)
    for number in range(4):
        report("unknown", claimed, body=str(number).encode())
    report("receipt", claimed)
    assert (state_of(claimed), case_of(claimed).need) == ("sent_unknown", Need.MISMATCH)


def test_a_record_is_kept_as_it_was_sent() -> None:
    claimed = world("doubt")
    report("receipt", claimed, note="é")
    kept = Receipt.objects.get()
    assert b"\\u00e9" in bytes(kept.body)
    assert record(claimed.operation)["id"] == kept.reference
