"""Choosing the receipt: each candidate compared, the chosen one bound to the decision, the rest refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client

from console.models import Role
from console.pages.present.diff import diffs_of
from console.queries.cases import read_case
from reconciliation import decisions
from reconciliation.decisions import ActionLocked, Asked, GivenReceipt
from reconciliation.gathering import judge_now
from reconciliation.models import Decision
from reconciliation.providers.base import Several
from reconciliation.states import Action
from runs.actors import Actor, ActorKind
from runs.journal.evidence import record_evidence
from runs.locking import database_now
from runs.models import Evidence
from runs.refusals import Invalid
from runs.states import Claim, EvidenceKind
from tests import cases, factories
from tests.cases import REASON, Opened
from tests.integration.pages.conftest import Login
from tests.integration.pages.forms import fields, page_of, post, reviewed

pytestmark = pytest.mark.django_db
KIM = Actor(ActorKind.PERSON, "person:1", "operator")


@pytest.fixture
def kim(login: Login) -> Client:
    return login(Role.OPERATOR, name="kim")


def report_another(opened: Opened, *, matches: bool, **changes: Any) -> str:
    """A sender's receipt is on record; returns its evidence."""
    record = cases.record_of(opened, **changes)
    with factories.held(opened.operation) as locked:
        kept = record_evidence(
            locked,
            kind=EvidenceKind.STRAY_REPORT,
            claim=Claim.RECEIPT,
            summary="Somebody reported a receipt.",
            actor=KIM,
            reference=record["id"],
            seen={
                "match": {
                    "matches": matches,
                    "problems": [],
                    "receipt": cases.receipt_of(opened, record).as_json(),
                }
            },
            body=json.dumps(record).encode(),
        )
    return kept.pk


def one_right_and_one_wrong() -> Opened:
    """The provider shows ours, and somebody reported another one that differs: a person chooses."""
    opened = cases.needs_decision()
    report_another(opened, matches=False, id="rfd_wrong", amount_minor=1)
    cases.looked_up(opened, cases.found(opened))
    assert opened.case.state == "needs_decision"
    return opened


def confirm(opened: Opened, **given: str) -> Decision:
    case, operation = opened.case, opened.operation
    judged = judge_now(run=operation.run, operation=operation, case=case, now=database_now())
    decided = decisions.decide(
        case_id=case.pk,
        team=None,
        actor=KIM,
        asked=Asked(
            action=Action.CONFIRM,
            seen_version=case.version,
            evidence_digest=judged.evidence_digest,
            reason_code="other",
            reason=REASON,
            idempotency_key="k1",
            receipt=GivenReceipt(**given),
        ),
        may_ask=False,
    )
    return Decision.objects.get(pk=decided.answer["decision"])


def standings(opened: Opened) -> dict[str, str]:
    """What is said of each record that is compared."""
    read = read_case(opened.case_id, teams=[factories.TEAM])
    return {
        diff.provider_source.partition(" ")[0]: "".join(
            getattr(part, "text", str(part)) for part in diff.standing
        )
        for diff in diffs_of(read)
    }


def test_the_chosen_receipt_is_bound_to_the_decision_by_evidence_and_reference(kim: Client) -> None:
    opened = one_right_and_one_wrong()
    (group,) = page_of(kim, f"/cases/{opened.case_id}/").panel.actions[0].options
    evidence = Evidence.objects.get(finding="found")
    assert [one.value for one in group.options] == [f"{evidence.pk}/rfd_01", "given"]
    form = reviewed(kim, opened, fields(kim, opened, "confirm", receipt=group.options[0].value))
    assert form["receipt"] == f"{evidence.pk}/rfd_01"
    assert post(kim, opened, form).status_code == 302
    made = Decision.objects.get()
    assert (made.reference, made.evidence_id) == ("rfd_01", evidence.pk)
    assert opened.operation.receipt.reference == "rfd_01"


def test_the_same_answer_again_voids_no_choice(kim: Client) -> None:
    opened = one_right_and_one_wrong()
    (group,) = page_of(kim, f"/cases/{opened.case_id}/").panel.actions[0].options
    form = fields(kim, opened, "confirm", receipt=group.options[0].value)
    cases.looked_up(opened, cases.found(opened))
    assert Evidence.objects.filter(finding="found").count() == 2
    again = reviewed(kim, opened, form)
    assert post(kim, opened, again).status_code == 302
    assert Decision.objects.get().reference == "rfd_01"


@pytest.mark.parametrize(
    "given",
    [
        {"reference": "rfd_never"},
        {"evidence_id": "ev_never"},
        {"evidence_id": "its own", "reference": "rfd_never"},
        {"evidence_id": "another's"},
        {"evidence_id": "another's", "reference": "rfd_01"},
    ],
    ids=["reference", "evidence", "reference of its evidence", "another case's", "both of another case"],
)
def test_a_receipt_that_no_evidence_names_is_refused(given: dict[str, str]) -> None:
    opened = one_right_and_one_wrong()
    other = cases.open_case()
    cases.looked_up(other, cases.mismatch(other, id="rfd_other"))
    known = {
        "its own": Evidence.objects.get(operation=opened.operation, finding="found").pk,
        "another's": Evidence.objects.get(operation=other.operation, finding="mismatch").pk,
    }
    with pytest.raises(Invalid, match="No evidence on record names"):
        confirm(opened, **{name: known.get(value, value) for name, value in given.items()})
    assert (opened.operation.state, Decision.objects.count()) == ("sent_unknown", 0)


def test_a_candidate_that_differs_is_refused_by_name_although_another_matches(kim: Client) -> None:
    opened = one_right_and_one_wrong()
    with pytest.raises(Invalid, match="Receipt rfd_wrong differs from the payload"):
        confirm(opened, reference="rfd_wrong")
    wrong = Evidence.objects.get(reference="rfd_wrong")
    answer = post(kim, opened, fields(kim, opened, "confirm", receipt=f"{wrong.pk}/rfd_wrong"))
    assert answer.status_code == 422
    assert "Receipt rfd_wrong differs from the payload" in answer.content.decode()
    assert answer.context["page"].panel.draft.reason == REASON
    assert opened.operation.state == "sent_unknown"


def test_choosing_among_several_of_ours_takes_a_second_person_and_says_so_beside_each() -> None:
    opened = cases.open_case()
    cases.looked_up(opened, cases.several(opened))
    evidence = Evidence.objects.get(finding="several")
    with pytest.raises(ActionLocked, match="takes a second person") as refused:
        confirm(opened, evidence_id=evidence.pk, reference="rfd_02")
    assert refused.value.details["permission"] == "second_person"
    said = standings(opened)
    assert set(said) == {"rfd_01", "rfd_02"}
    assert all(one.count("takes a second person") == 1 for one in said.values())
    with pytest.raises(Invalid, match="No evidence on record names receipt rfd_03"):
        confirm(opened, reference="rfd_03")


def test_a_candidate_that_a_hint_showed_takes_a_second_person_and_says_why(kim: Client) -> None:
    opened = cases.open_case()
    factories.quieten(opened.claimed.operation)
    cases.looked_up(opened, cases.candidate(opened))
    (said,) = standings(opened).values()
    assert "takes a second person" in said
    assert "doesn’t carry our key or reference" in said
    page = page_of(kim, f"/cases/{opened.case_id}/")
    assert page.diff.standing_icon == "users"
    with pytest.raises(ActionLocked, match="Receipt rfd_01 doesn’t carry our key"):
        confirm(opened, reference="rfd_01")
    assert opened.operation.state == "sent_unknown"


def test_a_receipt_that_has_confirmed_another_operation_is_named_with_it() -> None:
    first, second = cases.open_case(), cases.needs_decision()
    cases.looked_up(first, cases.found(first))
    report_another(second, matches=True, id="rfd_01")
    with pytest.raises((Invalid, ActionLocked), match=f"has confirmed operation {first.operation.pk}"):
        confirm(second, reference="rfd_01")
    assert second.operation.state == "sent_unknown"


def test_another_teams_operation_that_a_receipt_has_confirmed_is_not_named(login: Login) -> None:
    theirs, ours = cases.open_case(team="theirs"), cases.needs_decision(team="ours")
    cases.looked_up(theirs, cases.found(theirs))
    # The account is both teams', and shows one record to both.
    report_another(ours, matches=True, id="rfd_01")
    page = login(Role.OPERATOR, team="ours").get(f"/cases/{ours.case_id}/").content.decode()
    assert "Receipt rfd_01 has confirmed another operation already" in page
    assert theirs.operation.pk not in page
    # No second person could let it be.
    assert "It can’t be chosen. " in page
    assert "Choosing it takes a second person" not in page


def test_a_candidates_own_words_are_text_in_the_page(kim: Client) -> None:
    opened = cases.open_case()
    hostile = '"><script>x</script>'
    records = [cases.record_of(opened, id=f"{hostile}{number}") for number in (1, 2)]
    cases.looked_up(
        opened,
        Several(
            summary="Two records carry our key.",
            exchange=cases.exchange_of(*records),
            receipts=tuple(cases.receipt_of(opened, one) for one in records),
        ),
    )
    report_another(opened, matches=True, id=hostile)
    assert "<script>x" not in kim.get(f"/cases/{opened.case_id}/").content.decode()


# --- Before anything is chosen ------------------------------------------------------------------------------


def said_of(view: Any) -> str:
    """Everything that an action's box says, as a person reads it."""
    phrases = [one.text for one in view.consequences]
    phrases += [option.text for group in view.options for option in group.options]
    return " ".join("".join(getattr(part, "text", str(part)) for part in phrase) for phrase in phrases)


def test_each_action_says_where_the_run_goes_on_what_is_booked_and_what_cant_be_undone(kim: Client) -> None:
    opened = cases.needs_decision()
    confirm_view, retry_view, abandon_view, _ = page_of(kim, f"/cases/{opened.case_id}/").panel.actions
    confirmed, retried, abandoned = said_of(confirm_view), said_of(retry_view), said_of(abandon_view)
    for wanted in ("The run goes on at step 2", "Books ", "No more requests", "Can’t be undone."):
        assert wanted in confirmed
    for wanted in (
        "A fresh lookup comes first. If it finds the effect, nothing is sent",
        "1 request is sent, number 2, with the same key and the same bytes",
        "stays reserved",
        "The run can be claimed again, for this request alone at first",
        "It can be withdrawn until it is used; what was sent can’t be",
    ):
        assert wanted in retried
    for wanted in ("The run ends", "The run goes on at step 2", "held", "Can’t be undone.", "conflict"):
        assert wanted in abandoned


def test_a_granted_retry_is_withdrawn_until_it_is_used_and_never_after(kim: Client) -> None:
    opened = cases.needs_decision()
    form = reviewed(kim, opened, fields(kim, opened, "retry", executor="agent"))
    assert post(kim, opened, form).status_code == 302
    assert page_of(kim, f"/cases/{opened.case_id}/").panel.withdraw_href
    withdrawn = kim.post(f"/cases/{opened.case_id}/withdrawal/", {"reason": "The customer was paid by hand."})
    assert withdrawn.status_code == 302
    assert opened.operation.attempts_count == 1
    again = kim.post(f"/cases/{opened.case_id}/withdrawal/", {"reason": "The customer was paid by hand."})
    assert again.status_code == 409
    assert "There is no unused retry any more" in again.content.decode()
