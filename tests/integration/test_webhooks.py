"""Notices of a provider: what each settles, what it never does, and what a forged or repeated one leaves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.core.management import call_command
from django.db import IntegrityError, transaction

from reconciliation import webhook_judging, webhooks
from reconciliation.models import Case
from reconciliation.providers import registry
from reconciliation.providers.webhook_signing import WebhookForged, WebhookNotReady, WebhookStale
from reconciliation.states import Action, CaseKind, CaseState, Need, Resolution, WebhookOutcome
from reconciliation.webhook_models import WebhookEvent, WebhookRefusals
from reconciliation.webhooks import Notice
from runs.canonical import TooLarge
from runs.ids import new_id
from runs.journal.sending import begin_send
from runs.locking import database_now
from runs.models import AuditLeaf, Evidence, Receipt
from runs.refusals import NotFound
from runs.states import Claim, EvidenceKind
from tests.cases_world import case_of, decide, in_doubt, judged, make_sent, open_case_of, report, state_of
from tests.concurrency import at_once
from tests.factories import TEAM, Claimed, claim, effect, fresh, grant, make_claimed, quieten
from tests.hooked import HOOKED, NEXT_SECRET, SECRET, body_of, deliver, event, hooked, rules, signed

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _account(transactional_db: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with hooked(tmp_path, monkeypatch):
        yield


def sent(**fields: Any) -> Claimed:
    return make_sent(HOOKED, **fields)


def doubted(**fields: Any) -> tuple[Claimed, Case]:
    return in_doubt(HOOKED, **fields)


def evidence_of(claimed: Claimed) -> list[Evidence]:
    of = Evidence.objects.filter(operation=claimed.operation, kind=EvidenceKind.WEBHOOK)
    return list(of.order_by("recorded_at", "id"))


def only_event() -> WebhookEvent:
    return WebhookEvent.objects.get()


def all_rows() -> dict[str, int]:
    """How many rows each table of ours has."""
    ours = ("runs", "reconciliation")
    return {
        model.__name__: model._default_manager.count()
        for model in apps.get_models()
        if model._meta.app_label in ours
    }


# --- what a notice settles ------------------------------------------------------------------------------


def test_a_notice_of_success_confirms_and_closes_the_case() -> None:
    claimed, case = doubted()
    taken = deliver(event(claimed.operation))
    assert (taken.outcome, taken.replayed) == (WebhookOutcome.EVIDENCE, False)
    assert state_of(claimed) == "confirmed"
    assert (fresh(case).state, fresh(case).resolution) == (CaseState.RESOLVED, Resolution.CONFIRMED)
    (kept,) = evidence_of(claimed)
    assert kept.claim == Claim.RECEIPT
    assert (kept.actor_kind, kept.actor) == ("system", "webhook")
    assert kept.seen["webhook"]["id"] == "evt_1"
    assert kept.seen["match"]["matches"]
    receipt = Receipt.objects.get(operation=claimed.operation)
    assert (receipt.reference, receipt.matched_by, receipt.evidence_id) == ("ord_1", "key", kept.pk)
    row = only_event()
    assert (row.operation_id, row.evidence_id) == (claimed.operation.pk, kept.pk)
    assert row.signed_at is not None


def test_a_notice_that_overtakes_the_senders_reply_confirms_and_the_reply_is_nothing_new() -> None:
    claimed = sent()
    deliver(event(claimed.operation))
    assert state_of(claimed) == "confirmed"
    answer = report("receipt", claimed)
    assert answer["operation"]["state"] == "confirmed"
    assert answer["next"] == "continue"
    assert open_case_of(claimed) is None
    assert Receipt.objects.filter(operation=claimed.operation).count() == 1


def test_a_mismatch_confirms_nothing_and_asks_a_person() -> None:
    claimed, case = doubted(minor=124_000)
    deliver(event(claimed.operation, amount_minor=120_400))
    assert state_of(claimed) == "sent_unknown"
    assert (fresh(case).state, fresh(case).need) == (CaseState.NEEDS_DECISION, Need.MISMATCH)
    (kept,) = evidence_of(claimed)
    assert not kept.seen["match"]["matches"]
    assert any("amount" in problem for problem in kept.seen["match"]["problems"])


def test_a_mismatch_while_the_sender_is_awaited_opens_a_case_at_once() -> None:
    claimed = sent(minor=124_000)
    deliver(event(claimed.operation, amount_minor=120_400))
    case = case_of(claimed)
    assert (case.state, case.need) == (CaseState.NEEDS_DECISION, Need.MISMATCH)
    # Also the sender's own receipt doesn't settle it now: somebody has to look.
    report("receipt", claimed, reference="ord_9")
    assert state_of(claimed) == "sent_unknown"


def test_a_matching_notice_after_a_mismatch_still_confirms_nothing() -> None:
    claimed, _ = doubted(minor=124_000)
    deliver(event(claimed.operation, amount_minor=120_400))
    deliver(event(claimed.operation, event_id="evt_2"))
    assert state_of(claimed) == "sent_unknown"


def test_a_notice_that_is_not_final_settles_nothing_and_outweighs_that_nothing_was_sent() -> None:
    claimed = sent()
    deliver(event(claimed.operation, status="pending"))
    assert state_of(claimed) == "sent_unknown"
    report("not_sent", claimed)
    assert state_of(claimed) == "sent_unknown"
    assert case_of(claimed).need == Need.CONFLICT


def test_a_refusal_by_notice_settles_the_only_attempt() -> None:
    claimed, case = doubted()
    deliver(event(claimed.operation, status="failed"))
    assert state_of(claimed) == "rejected"
    assert fresh(case).resolution == Resolution.REJECTED
    (kept,) = evidence_of(claimed)
    assert (kept.claim, kept.attempt is not None) == (Claim.REJECTION, True)


def test_a_refusal_by_notice_does_not_speak_for_several_attempts() -> None:
    claimed, case = doubted()
    decide(case, Action.RETRY)
    grant(claimed.operation)
    begin_send(team=TEAM, operation_id=claimed.operation.pk, token=claim(claimed.run), attempt_id="a2")
    deliver(event(claimed.operation, status="failed"))
    assert state_of(claimed) == "sent_unknown"
    (kept,) = evidence_of(claimed)
    assert kept.attempt is None


# --- what is settled stays ------------------------------------------------------------------------------


def test_success_after_a_refusal_opens_a_conflict_and_rewrites_nothing() -> None:
    claimed = sent()
    report("rejection", claimed)
    assert state_of(claimed) == "rejected"
    deliver(event(claimed.operation))
    assert state_of(claimed) == "rejected"
    assert (case_of(claimed).kind, case_of(claimed).state) == (CaseKind.CONFLICT, CaseState.NEEDS_DECISION)


def test_another_receipt_after_the_confirming_one_opens_a_conflict() -> None:
    claimed = sent()
    report("receipt", claimed)
    deliver(event(claimed.operation, reference="ord_2"))
    assert case_of(claimed).kind == CaseKind.CONFLICT
    assert Receipt.objects.get(operation=claimed.operation).reference == "ord_1"


def test_the_confirming_receipt_by_notice_is_nothing_new() -> None:
    claimed = sent()
    report("receipt", claimed)
    deliver(event(claimed.operation))
    assert open_case_of(claimed) is None
    assert len(evidence_of(claimed)) == 1


def test_the_confirming_record_that_ends_without_effect_after_all_opens_a_conflict() -> None:
    claimed = sent()
    report("receipt", claimed)
    deliver(event(claimed.operation, status="failed"))
    assert state_of(claimed) == "confirmed"
    assert case_of(claimed).kind == CaseKind.CONFLICT


@pytest.mark.parametrize("settled", ["receipt", "rejection"])
def test_an_old_pending_behind_what_settled_it_opens_nothing(settled: str) -> None:
    claimed = sent()
    report(settled, claimed)
    deliver(event(claimed.operation, status="pending"))
    assert not Case.objects.filter(operation=claimed.operation).exclude(state="resolved").exists()
    assert len(evidence_of(claimed)) == 1


@pytest.mark.parametrize("status", ["succeeded", "pending"])
def test_an_effect_of_what_was_never_sent_is_a_conflict_and_is_not_sent_any_more(status: str) -> None:
    claimed = make_claimed(effect(provider=HOOKED))
    deliver(event(claimed.operation, status=status))
    assert state_of(claimed) == "sent_unknown"
    assert case_of(claimed).kind == CaseKind.CONFLICT


def test_a_refusal_of_what_was_never_sent_changes_nothing() -> None:
    claimed = make_claimed(effect(provider=HOOKED))
    deliver(event(claimed.operation, status="failed"))
    assert state_of(claimed) == "ready"
    assert open_case_of(claimed) is None


def test_a_receipt_that_confirmed_another_operation_opens_a_conflict_on_both() -> None:
    first, second = sent(), sent()
    report("receipt", first)
    deliver(event(second.operation, reference="ord_1"))
    assert state_of(second) == "sent_unknown"
    assert case_of(first).kind == case_of(second).kind == CaseKind.CONFLICT


def test_a_reused_receipt_is_a_conflict_on_both_also_where_a_mismatch_holds_everything_up() -> None:
    first, (second, _) = sent(), doubted(minor=124_000)
    report("receipt", first, reference="ord_1")
    deliver(event(second.operation, reference="ord_7", amount_minor=120_400))
    deliver(event(second.operation, event_id="evt_2", reference="ord_1"))
    assert case_of(first).kind == case_of(second).kind == CaseKind.CONFLICT


# --- the same again -------------------------------------------------------------------------------------


def test_the_same_notice_again_changes_nothing_but_its_count() -> None:
    claimed, case = doubted(minor=124_000)
    told = event(claimed.operation, amount_minor=120_400)
    first = deliver(told)
    version, before = fresh(case).version, all_rows()
    again = deliver(told)
    assert (again.event, again.replayed) == (first.event, True)
    assert all_rows() == before
    assert fresh(case).version == version
    assert only_event().deliveries_count == 2


def test_the_same_id_with_other_content_changes_nothing() -> None:
    claimed, _ = doubted()
    deliver(event(claimed.operation, status="pending"))
    assert deliver(event(claimed.operation)).replayed
    assert state_of(claimed) == "sent_unknown"


def test_another_notice_that_says_the_same_moves_no_version() -> None:
    claimed, case = doubted(minor=124_000)
    deliver(event(claimed.operation, amount_minor=120_400))
    version, digest = fresh(case).version, judged(case).evidence_digest
    deliver(event(claimed.operation, event_id="evt_2", amount_minor=120_400))
    assert len(evidence_of(claimed)) == 2
    assert (fresh(case).version, judged(case).evidence_digest) == (version, digest)


def test_the_database_holds_a_notice_once_by_id_and_once_by_content() -> None:
    claimed, _ = doubted()
    deliver(event(claimed.operation))
    row = only_event()
    for changes in ({"event_id": "other"}, {"body_digest": "0" * 64}):
        row.pk = new_id("whk")
        row.evidence = None
        for name, value in changes.items():
            setattr(row, name, value)
        with pytest.raises(IntegrityError), transaction.atomic():
            row.save(force_insert=True)
        row.event_id, row.body_digest = only_event().event_id, only_event().body_digest


def test_the_same_notice_at_once_is_taken_once() -> None:
    claimed, _ = doubted()
    body = body_of(event(claimed.operation))
    notice = Notice(account=HOOKED, headers=signed(body), body=body)
    outcomes = at_once([lambda: webhooks.receive(notice=notice)] * 4)
    assert sorted(one.answer.replayed for one in outcomes) == [False, True, True, True]
    assert len(evidence_of(claimed)) == 1
    assert state_of(claimed) == "confirmed"


def test_an_unmatched_notice_at_once_is_kept_once() -> None:
    body = body_of({"id": "evt_9", "type": "refund.created", "data": {"object": {"id": "rfd_9"}}})
    notice = Notice(account=HOOKED, headers=signed(body), body=body)
    outcomes = at_once([lambda: webhooks.receive(notice=notice)] * 4)
    assert sum(one.answer.replayed for one in outcomes) == 3
    assert only_event().deliveries_count == 4


# --- what is refused, and what is of no use -------------------------------------------------------------


def refuse(kind: type[Exception], notice: Notice) -> None:
    before = all_rows()
    with pytest.raises(kind):
        webhooks.receive(notice=notice)
    counted = {"WebhookRefusals": before["WebhookRefusals"] + 1, "AuditLeaf": before["AuditLeaf"] + 1}
    assert all_rows() == {**before, **counted}


def test_a_forged_notice_changes_nothing_and_leaves_a_count_without_its_content() -> None:
    claimed, _ = doubted()
    body = body_of(event(claimed.operation, note="attacker-was-here"))
    headers = {**signed(body), "stripe-signature": "t=1,v1=" + "0" * 64}
    refuse(WebhookForged, Notice(account=HOOKED, headers=headers, body=body, sent_from="192.0.2.66"))
    assert state_of(claimed) == "sent_unknown"
    row = WebhookRefusals.objects.get()
    assert (row.reason, row.count, row.last_from, row.last_length) == ("forged", 1, "192.0.2.66", len(body))
    leaf = AuditLeaf.objects.get(action="webhook.refused")
    assert b"attacker-was-here" not in bytes(leaf.body)
    assert "attacker-was-here" not in str(WebhookRefusals.objects.values().get())


def test_a_flood_of_forged_notices_is_one_row_and_one_leaf_an_hour() -> None:
    for number in range(50):
        with pytest.raises(WebhookForged):
            webhooks.receive(notice=Notice(account=HOOKED, headers={}, body=b"x" * number))
    assert sum(row.count for row in WebhookRefusals.objects.all()) == 50
    # The hour may turn while the test runs.
    assert WebhookRefusals.objects.count() <= 2
    assert AuditLeaf.objects.filter(action="webhook.refused").count() == WebhookRefusals.objects.count()


def test_a_recorded_notice_played_later_is_stale_even_if_it_was_never_taken() -> None:
    claimed, _ = doubted()
    body = body_of(event(claimed.operation))
    refuse(WebhookStale, Notice(account=HOOKED, headers=signed(body, seconds_ago=301), body=body))
    refused = WebhookRefusals.objects.get()
    assert refused.reason == "stale"
    assert state_of(claimed) == "sent_unknown"


def test_the_databases_clock_says_what_is_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    claimed, _ = doubted()
    body = body_of(event(claimed.operation))
    headers = signed(body)
    later = database_now() + timedelta(hours=1)
    monkeypatch.setattr(webhooks, "database_now", lambda: later)
    with pytest.raises(WebhookStale):
        webhooks.receive(notice=Notice(account=HOOKED, headers=headers, body=body))


def test_an_oversized_notice_is_refused_and_counted() -> None:
    body = b'{"id":"' + b"x" * webhooks.BODY_BYTES_MAX + b'"}'
    refuse(TooLarge, Notice(account=HOOKED, headers=signed(body), body=body))
    assert WebhookRefusals.objects.get().reason == "oversized"


def test_without_a_secret_nothing_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    body = body_of({"id": "evt_1", "type": "refund.created"})
    headers = signed(body)
    monkeypatch.delenv("HOOK_A")
    registry.reload()
    refuse(WebhookNotReady, Notice(account=HOOKED, headers=headers, body=body))
    assert WebhookRefusals.objects.get().reason == "not_ready"


def test_a_secret_is_exchanged_without_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    claimed, _ = doubted()
    old = body_of(event(claimed.operation, event_id="evt_old", status="pending"))
    by_old = signed(old)
    monkeypatch.setenv("HOOK_A", NEXT_SECRET)
    monkeypatch.setenv("HOOK_B", SECRET)
    registry.reload()
    assert rules().secrets == (NEXT_SECRET, SECRET)
    webhooks.receive(notice=Notice(account=HOOKED, headers=by_old, body=old))
    deliver(event(claimed.operation, event_id="evt_new"))
    assert state_of(claimed) == "confirmed"


@pytest.mark.parametrize("account", ["nobody", "sandbox-courier", "sandbox-payments"])
def test_an_account_that_takes_no_notices_is_no_address_and_leaves_nothing(account: str) -> None:
    before = all_rows()
    with pytest.raises(NotFound):
        webhooks.receive(notice=Notice(account=account, headers={}, body=b"{}"))
    with pytest.raises(NotFound):
        webhooks.refuse_oversized(account=account, length=10**9, sent_from="")
    assert all_rows() == before


def test_a_notice_that_names_nothing_of_ours_is_kept_as_unmatched_and_changes_nothing_else() -> None:
    claimed, case = doubted()
    told = event(claimed.operation, idempotency_key="somebody-elses")
    before, version = all_rows(), fresh(case).version
    assert deliver(told).outcome == WebhookOutcome.UNMATCHED
    after = all_rows()
    assert {name for name in after if after[name] != before[name]} == {"WebhookEvent", "AuditLeaf"}
    assert fresh(case).version == version
    row = only_event()
    assert (row.outcome, row.reference, row.event_type) == ("unmatched", "ord_1", "refund.created")


def test_another_accounts_operation_is_not_named_by_its_key_here() -> None:
    claimed, _ = in_doubt("sandbox-payments")
    assert deliver(event(claimed.operation)).outcome == WebhookOutcome.UNMATCHED
    assert state_of(claimed) == "sent_unknown"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not json",
        b"[1,2]",
        b'"text"',
        b'{"id":"a","id":"b","type":"refund.created"}',
        b'{"id":"\\u0000","type":"refund.created"}',
        b'{"type":"refund.created","data":{"object":[1]}}',
        b'{"type":"refund.created"}',
        b"[" * 90_000,
    ],
)
def test_a_signed_notice_that_cannot_be_read_is_kept_as_a_digest(body: bytes) -> None:
    taken = deliver(body)
    if taken.outcome is None:
        # Readable, and of no type that the file names.
        assert WebhookRefusals.objects.get().reason == "other_type"
        return
    assert taken.outcome == WebhookOutcome.UNREADABLE
    assert only_event().body_length == len(body)


def test_a_record_without_an_id_is_unreadable() -> None:
    claimed, _ = doubted()
    told = event(claimed.operation)
    del told["data"]["object"]["id"]
    assert deliver(told).outcome == WebhookOutcome.UNREADABLE
    assert state_of(claimed) == "sent_unknown"


def test_a_type_that_the_file_does_not_name_is_acknowledged_and_counted() -> None:
    claimed, _ = doubted()
    taken = deliver(event(claimed.operation, kind="customer.updated"))
    assert (taken.event, taken.outcome) == ("", None)
    assert WebhookEvent.objects.count() == 0
    assert WebhookRefusals.objects.get().reason == "other_type"
    assert state_of(claimed) == "sent_unknown"


# --- whose effect it is ---------------------------------------------------------------------------------


def test_the_notice_itself_may_carry_our_key_where_its_record_does_not() -> None:
    claimed, _ = doubted()
    told = event(claimed.operation, kind="request.done")
    del told["data"]["object"]["idempotency_key"]
    told["request"] = {"idempotency_key": claimed.operation.key}
    deliver(told)
    assert state_of(claimed) == "confirmed"
    assert Receipt.objects.get(operation=claimed.operation).matched_by == "key"


def test_an_operations_id_in_a_longer_text_names_it() -> None:
    claimed, _ = doubted()
    told = event(claimed.operation, kind="request.done")
    told["note"] = f"Bug\n<!-- recourse {new_id('op')} --> <!-- recourse {claimed.operation.pk} -->"
    deliver(told)
    assert state_of(claimed) == "confirmed"
    assert Receipt.objects.get(operation=claimed.operation).matched_by == "reference"


@pytest.mark.parametrize("wrap", ["x{}", "{}9", "op_{}", "{}_"])
def test_an_id_inside_another_word_names_nothing(wrap: str) -> None:
    claimed, _ = doubted()
    told = {**event(claimed.operation, kind="request.done"), "note": wrap.format(claimed.operation.pk)}
    assert deliver(told).outcome == WebhookOutcome.UNMATCHED


def test_a_record_that_carries_anothers_key_is_evidence_of_nothing() -> None:
    claimed, other = sent(), sent()
    told = event(other.operation, kind="request.noted")
    told["request"] = {"idempotency_key": claimed.operation.key}
    assert deliver(told).outcome == WebhookOutcome.EVIDENCE
    assert state_of(claimed) == state_of(other) == "sent_unknown"
    assert open_case_of(claimed) is None
    (kept,) = evidence_of(claimed)
    assert kept.claim == Claim.UNKNOWN
    assert "another's" in kept.summary
    assert evidence_of(other) == []


# --- what is kept ---------------------------------------------------------------------------------------


def test_secrets_in_a_notice_are_gone_from_everything_that_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    claimed, _ = doubted()
    deliver(
        event(
            claimed.operation,
            note=f"signed with {SECRET}",
            card="4242 4242 4242 4242",
            access_token="plain-and-secret-9f2",
        )
    )
    kept = json.dumps(
        [list(Evidence.objects.values("seen", "summary")), str(Receipt.objects.values())], default=str
    )
    body = bytes(evidence_of(claimed)[0].body or b"").decode()
    for secret in (SECRET, "4242 4242", "plain-and-secret"):
        assert secret not in kept
        assert secret not in body


def test_evidence_stays_when_acting_on_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    claimed, case = doubted()

    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("a defect of ours")

    monkeypatch.setattr(webhook_judging, "_conclude", fail)
    deliver(event(claimed.operation))
    assert len(evidence_of(claimed)) == 1
    assert (fresh(case).state, fresh(case).need) == (CaseState.NEEDS_DECISION, Need.PARKED)


def test_what_became_no_evidence_is_forgotten_after_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    claimed, _ = doubted()
    deliver(event(claimed.operation))
    deliver({"id": "old", "type": "refund.created", "data": {"object": {"id": "rfd_9"}}})
    past = database_now() - webhooks.KEPT - timedelta(seconds=1)
    WebhookEvent.objects.update(received_at=past)
    deliver({"id": "new", "type": "refund.created", "data": {"object": {"id": "rfd_8"}}})
    assert set(WebhookEvent.objects.values_list("event_id", flat=True)) == {"evt_1", "new"}


def test_quiet_attempts_are_taken_in_before_the_notice_is_judged() -> None:
    claimed = sent()
    quieten(claimed.operation)
    deliver(event(claimed.operation, status="pending"))
    case = case_of(claimed)
    assert case.state == CaseState.LOOKING_UP
    assert "not reported" in case.opened_because


def test_an_operator_can_list_what_came_and_what_was_refused() -> None:
    claimed, _ = doubted()
    deliver(event(claimed.operation))
    deliver({"id": "evt\u202e_9", "type": "refund.created", "data": {"object": {"id": "rfd_9"}}})
    with pytest.raises(WebhookForged):
        webhooks.receive(notice=Notice(account=HOOKED, headers={}, body=b"{}", sent_from="192.0.2.66"))
    out = StringIO()
    call_command("webhooks", account=HOOKED, stdout=out)
    listed = out.getvalue()
    for said in (claimed.operation.pk, "evt_1", "unmatched", "rfd_9", "forged", "1x", "192.0.2.66"):
        assert said in listed
    assert "\u202e" not in listed
    none = StringIO()
    call_command("webhooks", account="nobody", stdout=none)
    assert "evt_1" not in none.getvalue()
