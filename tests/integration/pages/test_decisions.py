"""Deciding on a case's page: two steps, and no refusal that loses what was typed."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator

import pytest
from django.test import Client

from console.models import Person, Role
from reconciliation import approvals
from reconciliation.approval_kinds import content_of
from reconciliation.approval_models import ApprovalRequest
from reconciliation.approving import approve
from reconciliation.models import Decision
from reconciliation.providers import registry
from reconciliation.states import Action
from runs.actors import SWEEPER
from runs.journal.evidence import record_evidence
from runs.locking import database_now
from runs.models import AuditLeaf, Evidence, Grant, Operation
from runs.states import Claim, EvidenceKind, GrantState
from tests import cases, factories
from tests.browser.seeding import aged, late_success
from tests.cases import REASON, Opened
from tests.integration.pages.conftest import Login
from tests.integration.pages.forms import decide, fields, page_of, post, reviewed
from tests.people import approver, make_person

HTMX = {"HX-Request": "true"}


@pytest.fixture
def operator(login: Login) -> Client:
    return login(Role.OPERATOR)


def rows() -> tuple[int, int, int]:
    return Decision.objects.count(), AuditLeaf.objects.count(), Evidence.objects.count()


def text(answer: object) -> str:
    return answer.content.decode()  # type: ignore[attr-defined,no-any-return]


def typed_is_kept(answer: object) -> bool:
    """Whether the page still holds the typed reason in a field."""
    return bool(re.search(r"<textarea[^>]*>" + re.escape(REASON), text(answer)))


# --- Two steps ------------------------------------------------------------------------------------------


def test_a_review_writes_nothing_and_says_what_would_happen(operator: Client) -> None:
    opened = cases.needs_decision()
    data = fields(operator, opened, "abandon", then="continue")
    before, version = rows(), opened.case.version
    answer = post(operator, opened, data)
    assert answer.status_code == 200
    assert rows() == before
    assert (opened.case.version, opened.case.state) == (version, "needs_decision")
    page = answer.context["page"]
    said = " ".join("".join(str(part) for part in one.text) for one in page.consequences)
    assert "conflict" in said
    assert "held" in said
    assert page.primary == "Abandon the refund"
    assert [one.label for one in page.changes] == ["State", "Reserved", "Held"]
    assert typed_is_kept(answer)


def test_htmx_gets_the_sheet_alone_and_everybody_else_the_whole_page(operator: Client) -> None:
    opened = cases.needs_decision()
    data = fields(operator, opened, "abandon", then="end")
    sheet = text(post(operator, opened, data, **HTMX))
    assert sheet.strip().startswith("<form")
    assert "<html" not in sheet
    for headers in ({}, {**HTMX, "HX-Boosted": "true"}, {**HTMX, "HX-History-Restore-Request": "true"}):
        answer = post(operator, opened, data, **headers)
        assert "<html" in text(answer)
        assert "HX-Request" in answer["Vary"]


def test_the_way_back_from_a_review_keeps_everything_and_records_nothing(operator: Client) -> None:
    opened = cases.needs_decision()
    confirming = reviewed(operator, opened, fields(operator, opened, "abandon", then="end"))
    before = rows()
    answer = post(operator, opened, {**confirming, "step": "edit", "reason": "Rewritten in the review."})
    assert answer.status_code == 200
    assert rows() == before
    panel = answer.context["page"].panel
    assert (panel.draft.action, panel.draft.reason_code) == ("abandon", "other")
    assert panel.draft.reason == "Rewritten in the review."
    (abandon_view,) = (one for one in panel.actions if one.action == Action.ABANDON)
    assert [one.selected for one in abandon_view.options[0].options] == [True, False]


def test_an_abandonment_is_recorded_with_who_and_why(operator: Client) -> None:
    opened = cases.needs_decision()
    answer = decide(operator, opened, "abandon", then="continue")
    assert answer.status_code == 302
    decision = Decision.objects.get()
    assert answer["Location"] == f"/cases/{opened.case_id}/?decided={decision.pk}"
    person = Person.objects.get(username="operator")
    assert (decision.actor, decision.actor_name) == (f"person:{person.pk}", "operator")
    assert (decision.action, decision.reason, decision.then) == ("abandon", REASON, "continue")
    assert opened.operation.state == "abandoned"
    assert opened.run.state == "open"
    shown = text(operator.get(answer["Location"]))
    assert "Recorded: given up." in shown
    assert REASON in shown
    assert "Back to the queue" in shown


def test_the_next_case_is_one_link_away_after_deciding(operator: Client) -> None:
    first, second = cases.needs_decision(), cases.needs_decision()
    answer = operator.get(decide(operator, first, "abandon", then="end")["Location"])
    assert answer.context["page"].banner.action.href == f"/cases/{second.case_id}/#question"


def test_the_run_ends_when_the_person_says_so(operator: Client) -> None:
    opened = cases.needs_decision()
    decide(operator, opened, "abandon", then="end")
    assert opened.run.state == "abandoned"


def test_a_retry_is_decided_for_the_agent_and_can_be_withdrawn_until_it_is_used(operator: Client) -> None:
    opened = cases.needs_decision()
    decide(operator, opened, "retry", executor="agent")
    assert opened.case.state == "retrying"
    cases.looked_up(opened, cases.not_found())
    grant = Grant.objects.get(operation=opened.operation)
    assert grant.state == "open"
    page = page_of(operator, f"/cases/{opened.case_id}/")
    assert page.panel.kind == "made"
    withdraw = page.panel.withdraw_href
    short = operator.post(withdraw, {"reason": "no"})
    assert short.status_code == 422
    assert ">no</textarea>" in text(short)
    answer = operator.post(withdraw, {"reason": REASON})
    assert answer["Location"] == f"/cases/{opened.case_id}/"
    assert factories.fresh(grant).state == "void"
    assert opened.case.state == "needs_decision"
    again = operator.post(withdraw, {"reason": REASON})
    assert again.status_code == 409
    assert "no unused retry any more" in text(again)


def test_a_retry_that_was_used_is_not_withdrawn(operator: Client) -> None:
    opened = cases.needs_decision()
    decide(operator, opened, "retry", executor="agent")
    cases.looked_up(opened, cases.not_found())
    Grant.objects.filter(operation=opened.operation).update(
        state=GrantState.CONSUMED, ended_at=database_now()
    )
    assert page_of(operator, f"/cases/{opened.case_id}/").panel.withdraw_href == ""
    answer = operator.post(f"/cases/{opened.case_id}/withdrawal/", {"reason": REASON})
    assert answer.status_code == 409


@pytest.mark.parametrize(
    ("action", "choices", "run_state"),
    [
        ("confirm", {"given_body": "{}"}, "open"),
        ("retry", {"executor": "agent"}, "paused"),
        ("abandon", {"then": "continue"}, "open"),
        ("abandon", {"then": "end"}, "abandoned"),
    ],
)
def test_what_a_review_announces_is_what_the_decision_does(
    operator: Client, action: str, choices: dict[str, str], run_state: str
) -> None:
    opened = cases.needs_decision(budget_minor=500_000)
    if "given_body" in choices:
        choices = {"given_body": json.dumps(cases.record_of(opened))}
    before = opened.run
    answer = post(operator, opened, fields(operator, opened, action, **choices))
    page = answer.context["page"]
    columns = {
        "Reserved": "budget_reserved_minor",
        "Spent": "budget_spent_minor",
        "Held": "budget_held_minor",
    }
    announced = {one.label: (one.before[0].minor, one.after[0].minor) for one in page.changes[1:]}
    confirming = {"step": "record", "reason": page.reason, **{one.name: one.value for one in page.hidden}}
    assert post(operator, opened, confirming).status_code == 302
    after = opened.run
    changed = {
        label: (getattr(before, column), getattr(after, column))
        for label, column in columns.items()
        if getattr(before, column) != getattr(after, column)
    }
    announced.pop("Remaining", None)
    assert announced == changed
    state = page.changes[0].after[0]
    assert state == "Sent, outcome unknown: a retry under way" or state.lower() == opened.operation.state
    said = " ".join(
        "".join(str(getattr(part, "text", part)) for part in one.text) for one in page.consequences
    )
    assert after.state == run_state
    assert ("The run goes on" in said) is (run_state == "open")
    assert ("The run ends" in said) is (run_state == "abandoned")


# --- Confirming -----------------------------------------------------------------------------------------


def test_the_providers_record_given_by_one_person_confirms_when_it_matches(operator: Client) -> None:
    opened = cases.needs_decision()
    record = json.dumps(cases.record_of(opened, id="rfd_77"))
    answer = decide(operator, opened, "confirm", given_reference="rfd_77", given_body=record)
    assert answer.status_code == 302
    assert opened.operation.state == "confirmed"
    assert opened.operation.receipt.reference == "rfd_77"
    shown = text(operator.get(answer["Location"]))
    assert "Recorded: it happened." in shown
    assert "rfd_77" in shown


def test_a_record_that_differs_takes_two_and_is_shown_to_the_second_before_it_is_evidence(
    operator: Client,
) -> None:
    opened = cases.needs_decision()
    record = json.dumps(cases.record_of(opened, amount_minor=120_400))
    data = fields(operator, opened, "confirm", given_body=record)
    before = rows()
    shown = post(operator, opened, data)
    assert "The receipt given doesn&#x27;t match" in text(shown)
    assert "One person can’t decide this alone" in text(shown)
    assert typed_is_kept(shown)
    assert "&quot;amount_minor&quot;: 120400" in text(shown)
    assert rows() == before
    asked = post(operator, opened, {**data, "step": "record", "idempotency_key": "k1"})
    assert asked.status_code == 302
    given = content_of(ApprovalRequest.objects.get())["parameters"]["receipt"]
    assert json.loads(base64.b64decode(given["body_base64"]))["amount_minor"] == 120_400
    assert not Evidence.objects.filter(kind=EvidenceKind.ATTACHMENT).exists()
    assert not Decision.objects.exists()


def test_a_record_that_belongs_to_another_operation_confirms_only_one(operator: Client) -> None:
    first = cases.needs_decision()
    record = cases.record_of(first, id="rfd_1")
    decide(operator, first, "confirm", given_body=json.dumps(record))
    second = cases.needs_decision()
    theirs = cases.record_of(second, id="rfd_1")
    answer = decide(operator, second, "confirm", given_body=json.dumps(theirs))
    assert answer.status_code == 423
    assert "already confirmed operation" in text(answer)
    assert second.operation.state == "sent_unknown"


def test_without_a_record_the_form_says_what_is_missing(operator: Client) -> None:
    opened = cases.needs_decision()
    answer = post(operator, opened, fields(operator, opened, "confirm"))
    assert answer.status_code == 422
    assert "Paste the provider’s record of it, as JSON" in text(answer)
    assert typed_is_kept(answer)


def test_a_matching_receipt_on_record_is_chosen_never_preselected(operator: Client) -> None:
    opened = _with_matching_receipt()
    page = page_of(operator, f"/cases/{opened.case_id}/")
    confirm = page.panel.actions[0]
    assert confirm.action == Action.CONFIRM
    assert confirm.selectable
    (group,) = confirm.options
    assert [option.selected for option in group.options] == [False, False]
    unchosen = post(operator, opened, fields(operator, opened, "confirm"))
    assert unchosen.status_code == 422
    assert "Choose the receipt" in text(unchosen)
    answer = decide(operator, opened, "confirm", receipt=group.options[0].value)
    assert answer.status_code == 302, text(answer)
    assert opened.operation.receipt.reference == "rfd_late"


def _with_matching_receipt() -> Opened:
    """A receipt that matches is on record and nobody has settled it: a person is still asked."""
    opened = cases.needs_decision()
    record = cases.record_of(opened, id="rfd_late")
    receipt = cases.receipt_of(opened, record).as_json()
    with factories.held(opened.operation) as locked:
        record_evidence(
            locked,
            kind=EvidenceKind.WEBHOOK,
            claim=Claim.RECEIPT,
            summary="The provider’s own notice.",
            actor=SWEEPER,
            reference="rfd_late",
            seen={"match": {"matches": True, "problems": [], "receipt": receipt}},
            body=json.dumps(record).encode(),
        )
    return opened


# --- Refusals that keep what was typed ------------------------------------------------------------------


def test_missing_words_are_named_one_by_one_and_the_rest_is_kept(operator: Client) -> None:
    opened = cases.needs_decision()
    data = fields(operator, opened, "abandon", reason_code="", reason="Too short")
    before = rows()
    answer = post(operator, opened, data)
    assert answer.status_code == 422
    shown = text(answer)
    for sentence in (
        "Say whether the run ends or goes on",
        "Choose a reason code",
        "9 characters so far, 10 needed",
    ):
        assert sentence in shown
    assert "3 things to fix" in shown
    assert ">Too short</textarea>" in shown
    assert re.search(r'id="action-abandon"[^>]* checked', shown)
    assert rows() == before


def test_a_form_without_an_action_is_answered_by_the_form(operator: Client) -> None:
    opened = cases.needs_decision()
    for action in ("", "explode", "<script>"):
        answer = post(operator, opened, fields(operator, opened, action))
        assert answer.status_code == 422
        assert "Choose what you want to record" in text(answer)
        assert typed_is_kept(answer)


@pytest.mark.parametrize("step", ["review", "record"])
def test_whoever_decides_second_is_told_who_was_first_and_keeps_their_words(
    login: Login, operator: Client, step: str
) -> None:
    opened = cases.needs_decision()
    robin = login(Role.OPERATOR, name="robin")
    data = {**fields(robin, opened, "retry", executor="agent"), "step": step, "idempotency_key": "r1"}
    decide(operator, opened, "abandon", then="end", reason="Refunded in the shop, in cash.")
    answer = post(robin, opened, data)
    assert answer.status_code == 409
    shown = text(answer)
    assert "operator decided first. Your decision was not recorded." in shown
    assert "gave it up" in shown
    assert "Refunded in the shop, in cash." in shown
    assert "You decided on version" in shown
    assert typed_is_kept(answer)
    assert Decision.objects.count() == 1


def test_a_decision_on_evidence_that_moved_shows_the_new_version_with_the_words_in_its_form(
    operator: Client,
) -> None:
    opened = cases.needs_decision()
    data = fields(operator, opened, "abandon", then="end")
    cases.looked_up(opened, cases.candidate(opened))
    answer = post(operator, opened, {**data, "step": "record", "idempotency_key": "k1"})
    assert answer.status_code == 409
    page = answer.context["page"]
    assert page.panel.kind == "form"
    assert page.panel.version == opened.case.version != int(data["seen_version"])
    assert page.panel.draft.reason == REASON
    assert page.panel.draft.action == "abandon"
    assert "One record looks alike" in text(answer)
    assert not Decision.objects.exists()


def test_a_form_with_an_altered_version_or_digest_decides_nothing(operator: Client) -> None:
    opened = cases.needs_decision()
    data = fields(operator, opened, "abandon", then="end", step="record", idempotency_key="k1")
    for change in (
        {"seen_version": "999"},
        {"seen_version": "x"},
        {"seen_version": ""},
        {"evidence_digest": "0" * 64},
        {"evidence_digest": ""},
    ):
        assert post(operator, opened, {**data, **change}).status_code == 409
    assert not Decision.objects.exists()


def test_the_same_finding_again_doesnt_void_a_form(operator: Client) -> None:
    opened = cases.needs_decision()
    confirming = reviewed(operator, opened, fields(operator, opened, "abandon", then="end"))
    for _ in range(3):
        cases.looked_up(opened, cases.not_found())
    assert post(operator, opened, confirming).status_code == 302


def test_asking_for_a_lookup_moves_no_version(operator: Client) -> None:
    opened = cases.needs_decision()
    confirming = reviewed(operator, opened, fields(operator, opened, "abandon", then="end"))
    version = opened.case.version
    assert operator.post(f"/cases/{opened.case_id}/lookup/").status_code == 302
    assert opened.case.version == version
    assert post(operator, opened, confirming).status_code == 302


def test_asking_for_a_lookup_of_a_settled_case_says_that_nothing_is_asked(operator: Client) -> None:
    opened = cases.open_case()
    cases.looked_up(opened, cases.found(opened))
    answer = operator.post(f"/cases/{opened.case_id}/lookup/", follow=True)
    assert "nothing left to look up" in text(answer)
    assert "A lookup is asked for." not in text(answer)
    assert not AuditLeaf.objects.filter(action="case.lookup_asked").exists()


def test_a_locked_action_is_refused_in_the_policys_words(operator: Client) -> None:
    opened = cases.open_case()
    cases.looked_up(opened, cases.mismatch(opened))
    assert opened.case.state == "needs_decision"
    page = page_of(operator, f"/cases/{opened.case_id}/")
    retry = next(one for one in page.panel.actions if one.action == Action.RETRY)
    assert not retry.selectable
    answer = post(operator, opened, fields(operator, opened, "retry", executor="agent"))
    assert answer.status_code == 423
    shown = text(answer)
    assert "An effect with our key or reference is on record at the provider." in shown
    assert "What you typed is kept" in shown
    assert typed_is_kept(answer)
    assert not Decision.objects.exists()


def test_an_attempt_that_may_still_arrive_locks_a_retry_by_question_four(operator: Client) -> None:
    opened = cases.open_case()
    page = page_of(operator, f"/cases/{opened.case_id}/")
    retry = next(one for one in page.panel.actions if one.action == Action.RETRY)
    assert retry.locked_by == "Locked by question 4."
    assert page.questions[3].locks == ("Locks Retry", "Locks Make absent")
    assert post(operator, opened, fields(operator, opened, "retry", executor="agent")).status_code == 423


def test_what_takes_a_second_person_says_so_and_asks_for_one(operator: Client) -> None:
    opened = aged(cases.needs_decision(), 25)
    page = page_of(operator, f"/cases/{opened.case_id}/")
    retry = next(one for one in page.panel.actions if one.action == Action.RETRY)
    assert (retry.standing, retry.selectable) == ("second_person", True)
    assert retry.locked_by == "Takes a second person."
    shown = text(operator.get(f"/cases/{opened.case_id}/"))
    assert "A duplicate is possible" in shown
    assert "Somebody else who approves for your team is asked." in shown
    assert "The key’s window has closed" in shown
    data = fields(operator, opened, "retry", executor="agent")
    shown = text(post(operator, opened, data))
    for said in ("Ask a second person: retry", "One person can’t decide this alone", "Ask for approval"):
        assert said in shown
    asked = fields(operator, opened, "retry", executor="agent", step="record", idempotency_key="k1")
    assert post(operator, opened, asked).status_code == 302
    assert not Decision.objects.exists()
    assert not Grant.objects.exists()
    assert opened.case.state == "awaiting_approval"


def _ask_to_confirm(operator: Client, opened: Opened) -> ApprovalRequest:
    data = fields(operator, opened, "confirm", receipt="without", given_reference="PHONE-1", step="record")
    assert post(operator, opened, data).status_code == 302
    return ApprovalRequest.objects.latest("requested_at")


def test_a_case_that_waits_says_who_asked_for_what_and_until_when(operator: Client) -> None:
    opened = cases.needs_decision()
    approval = _ask_to_confirm(operator, opened)
    assert content_of(approval)["parameters"]["receipt"]["reference"] == "PHONE-1"
    page = page_of(operator, f"/cases/{opened.case_id}/")
    assert (page.panel.kind, page.panel.until_at) == ("awaited", approval.expires_at)
    shown = text(operator.get(f"/cases/{opened.case_id}/"))
    for said in ("A second person is asked", "Nothing has been done.", REASON, f"/approvals/{approval.pk}/"):
        assert said in shown
    # Whoever asked can take it back from here, and nobody else sees the form.
    assert "Withdraw the request" in shown
    other = Client()
    other.force_login(make_person("dana", Role.APPROVER))
    elses = text(other.get(f"/cases/{opened.case_id}/"))
    assert "A second person is asked" in elses
    assert "Withdraw the request" not in elses


def test_a_case_that_comes_back_from_approval_says_why(operator: Client) -> None:
    opened = cases.needs_decision()
    approval = _ask_to_confirm(operator, opened)
    approvals.refuse(approval_id=approval.pk, teams=None, worker=approver(), comment="Ask them in writing.")
    page = page_of(operator, f"/cases/{opened.case_id}/")
    assert page.panel.kind == "form"
    shown = text(operator.get(f"/cases/{opened.case_id}/"))
    assert "Dana refused to confirm it happened" in shown
    assert "Ask them in writing." in shown


def test_a_decision_of_two_names_both(operator: Client) -> None:
    opened = cases.needs_decision()
    approval = _ask_to_confirm(operator, opened)
    approve(
        approval_id=approval.pk,
        teams=None,
        worker=approver(),
        content_digest=approval.content_digest,
        comment="Their letter is on file.",
    )
    facts = {one.label: one.value for one in page_of(operator, f"/cases/{opened.case_id}/").panel.facts}
    assert [part.text for part in facts["Approved by"]] == ["Dana"]
    assert opened.operation.receipt.reference == "PHONE-1"


@pytest.fixture
def _unconfigured(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("SANDBOX_URL", raising=False)
    registry.reload()
    yield
    monkeypatch.undo()
    registry.reload()


@pytest.mark.usefixtures("_unconfigured")
def test_the_console_sends_only_where_it_has_what_it_needs(operator: Client) -> None:
    opened = cases.needs_decision()
    page = page_of(operator, f"/cases/{opened.case_id}/")
    retry = next(one for one in page.panel.actions if one.action == Action.RETRY)
    assert [option.value for option in retry.options[0].options] == ["agent"]
    answer = post(operator, opened, fields(operator, opened, "retry", executor="console"))
    assert answer.status_code == 423
    assert "holds no credentials" in text(answer)


# --- Once, whatever happens -----------------------------------------------------------------------------


def test_a_form_that_arrives_twice_decides_once(operator: Client) -> None:
    opened = cases.needs_decision()
    confirming = reviewed(operator, opened, fields(operator, opened, "abandon", then="end"))
    first = post(operator, opened, confirming)
    leaves = AuditLeaf.objects.count()
    second = post(operator, opened, confirming)
    assert (first.status_code, second.status_code) == (302, 302)
    assert first["Location"] == second["Location"]
    assert Decision.objects.count() == 1
    assert AuditLeaf.objects.count() == leaves


def test_the_same_form_with_other_words_is_refused_and_they_are_kept(operator: Client) -> None:
    opened = cases.needs_decision()
    confirming = reviewed(operator, opened, fields(operator, opened, "abandon", then="end"))
    assert post(operator, opened, confirming).status_code == 302
    other = "Entirely other words than before."
    answer = post(operator, opened, {**confirming, "reason": other})
    assert answer.status_code == 409
    assert "was used for another decision" in text(answer)
    assert other in text(answer)
    assert Decision.objects.get().reason == REASON


# --- After the fact -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("action", "resolution", "spent"), [("accept", "accepted", 124_000), ("compensate", "compensated", 0)]
)
def test_a_conflict_after_the_fact_is_accepted_or_compensated(
    operator: Client, action: str, resolution: str, spent: int
) -> None:
    opened = cases.needs_decision(budget_minor=500_000)
    decide(operator, opened, "abandon", then="continue")
    assert opened.run.budget_held_minor == 124_000
    late = late_success(opened)
    page = page_of(operator, f"/cases/{late.case_id}/")
    assert page.question == "What is to become of the extra refund of €1,240.00?"
    assert [str(one.action) for one in page.panel.actions] == ["accept", "compensate"]
    assert decide(operator, late, action).status_code == 302
    assert (late.case.state, late.case.resolution) == ("resolved", resolution)
    run = opened.run
    assert (run.budget_held_minor, run.budget_spent_minor) == (0, spent)
    assert Operation.objects.get(pk=opened.operation.pk).state == "abandoned"


def test_a_retry_whose_lookup_finds_the_effect_confirms_and_grants_nothing(operator: Client) -> None:
    opened = cases.needs_decision()
    decide(operator, opened, "retry", executor="agent")
    cases.looked_up(opened, cases.found(opened))
    assert (opened.case.resolution, opened.operation.state) == ("confirmed", "confirmed")
    assert not Grant.objects.exists()
    page = page_of(operator, f"/cases/{opened.case_id}/")
    assert page.panel.kind == "made"
    assert page.panel.badge.word == "Confirmed"
