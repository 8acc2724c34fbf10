"""Working on a case with others: what each person is shown, and what each refusal says."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client

from console.models import Person, Role
from console.pages.present.timeline import event_of
from reconciliation import working
from reconciliation.models import Case
from reconciliation.work_models import CaseClaim, CasePresence
from reconciliation.working import Worker
from runs.actors import Actor, ActorKind
from runs.models import AuditLeaf
from runs.refusals import Refusal
from tests import cases
from tests.cases import Effect
from tests.integration.pages.conftest import Login
from tests.integration.pages.forms import decide, page_of

WHY = "Kim went home; the key ends in an hour."


@pytest.fixture
def kim(login: Login) -> Client:
    return login(Role.OPERATOR, name="kim")


@pytest.fixture
def robin(login: Login) -> Client:
    return login(Role.APPROVER, name="robin")


def worker(name: str) -> Worker:
    person = Person.objects.get(username=name)
    return Worker(actor=Actor(ActorKind.PERSON, f"person:{person.pk}"), name=name)


def act(client: Client, opened: cases.Opened, what: str, **data: str) -> Any:
    return client.post(f"/cases/{opened.case_id}/{what}/", data)


def said(client: Client, opened: cases.Opened) -> str:
    lines = page_of(client, f"/cases/{opened.case_id}/").desk.lines
    return "".join(getattr(part, "text", str(part)) for part in lines)


def leaves() -> list[str]:
    return list(
        AuditLeaf.objects.filter(action__startswith="case.claim")
        .order_by("id")
        .values_list("action", flat=True)
    )


def age(opened: cases.Opened, **by: int) -> None:
    """Let the claim be so much older."""
    claim = CaseClaim.objects.get(case=opened.case_id)
    span = timedelta(**by)
    CaseClaim.objects.filter(pk=claim.pk).update(
        claimed_at=claim.claimed_at - span, used_at=claim.used_at - span, until_at=claim.until_at - span
    )


# --- Claim and give back ------------------------------------------------------------------------------------


def test_a_claim_is_shown_to_its_holder_and_to_everybody_else(kim: Client, robin: Client) -> None:
    opened = cases.needs_decision()
    assert "Nobody works on this case." in said(kim, opened)
    assert act(kim, opened, "claim").status_code == 302
    assert "You work on this case" in said(kim, opened)
    assert "kim works on this case" in said(robin, opened)
    desk = page_of(robin, f"/cases/{opened.case_id}/").desk
    assert (desk.claim_href, desk.release_href) == ("", "")
    assert desk.takeover_href
    titles = [item.title for item in page_of(robin, f"/cases/{opened.case_id}/").timeline]
    assert "Claimed to work on" in titles


def test_a_second_claim_is_refused_with_the_holders_name(kim: Client, robin: Client) -> None:
    opened = cases.needs_decision()
    act(kim, opened, "claim")
    answer = act(robin, opened, "claim")
    assert answer.status_code == 409
    assert "kim works on this case." in answer.content.decode()
    assert CaseClaim.objects.get().actor_name == "kim"
    assert leaves() == ["case.claimed"]


def test_claiming_again_renews_and_isnt_an_entry(kim: Client) -> None:
    opened = cases.needs_decision()
    act(kim, opened, "claim")
    age(opened, minutes=9)
    before = CaseClaim.objects.get().until_at
    act(kim, opened, "claim")
    after = CaseClaim.objects.get()
    assert after.until_at - before >= timedelta(minutes=9)
    assert (after.number, leaves()) == (1, ["case.claimed"])


def test_a_claim_that_ended_is_anybodys(kim: Client, robin: Client) -> None:
    opened = cases.needs_decision()
    act(kim, opened, "claim")
    age(opened, minutes=10)
    assert "Nobody works on this case." in said(robin, opened)
    assert act(robin, opened, "claim").status_code == 302
    assert CaseClaim.objects.get().number == 2


def test_what_is_given_back_is_anybodys_and_only_the_holder_gives_it_back(kim: Client, robin: Client) -> None:
    opened = cases.needs_decision()
    act(kim, opened, "claim")
    answer = act(robin, opened, "claim/release")
    assert answer.status_code == 409
    assert "kim works on the case now" in answer.content.decode()
    assert act(kim, opened, "claim/release").status_code == 302
    assert "Nobody works on this case." in said(robin, opened)
    again = act(kim, opened, "claim/release")
    assert again.status_code == 409
    assert "had ended already" in again.content.decode()
    assert leaves() == ["case.claimed", "case.claim_released"]


def test_a_resolved_case_cant_be_claimed_and_shows_nobody_at_work(kim: Client) -> None:
    opened = cases.needs_decision()
    act(kim, opened, "claim")
    decide(kim, opened, "abandon", then="end")
    answer = act(kim, opened, "claim")
    assert answer.status_code == 409
    assert "This case is resolved" in answer.content.decode()
    assert page_of(kim, f"/cases/{opened.case_id}/").desk is None


def test_a_claim_keeps_nobody_from_deciding(kim: Client, login: Login) -> None:
    opened = cases.needs_decision()
    act(kim, opened, "claim")
    other = login(Role.OPERATOR, name="alex")
    assert decide(other, opened, "abandon", then="end").status_code == 302
    assert Case.objects.get(pk=opened.case_id).state == "resolved"


@pytest.mark.parametrize("role", [Role.AUDITOR, Role.ADMINISTRATOR, Role.VIEWER])
def test_other_roles_see_who_works_and_cant_claim(login: Login, role: Role) -> None:
    opened = cases.needs_decision()
    client = login(role)
    desk = page_of(client, f"/cases/{opened.case_id}/").desk
    assert (desk.claim_href, desk.takeover_href) == ("", "")
    for what in ("claim", "claim/takeover"):
        answer = act(client, opened, what, reason=WHY)
        assert answer.status_code == 403
        assert "cases are worked on by operators and approvers" in answer.content.decode()
    assert not CaseClaim.objects.exists()
    assert client.post("/queue/next/", follow=True).content.decode().count("worked on by operators") == 1


def test_another_teams_case_is_not_found(login: Login) -> None:
    opened = cases.needs_decision()
    outsider = login(Role.OPERATOR, name="out", team="other")
    for what in ("claim", "claim/release", "claim/takeover"):
        assert act(outsider, opened, what, reason=WHY).status_code == 404
    assert outsider.get(f"/cases/{opened.case_id}/desk/").status_code == 404
    assert not CaseClaim.objects.exists()
    assert not CasePresence.objects.exists()


# --- Take over ----------------------------------------------------------------------------------------------


def test_a_takeover_needs_a_reason_and_is_on_record_with_both_names(kim: Client, robin: Client) -> None:
    opened = cases.needs_decision()
    act(kim, opened, "claim")
    short = act(robin, opened, "claim/takeover", number="1", reason="too short"[:9])
    assert short.status_code == 422
    assert "Give a reason of 10" in short.content.decode()
    assert short.context["page"].desk.takeover_reason == "too short"
    assert act(robin, opened, "claim/takeover", number="1", reason="x" * 4_001).status_code == 422
    assert act(robin, opened, "claim/takeover", number="1", reason=WHY).status_code == 302
    assert "robin works on this case" in said(kim, opened)
    event = event_of(AuditLeaf.objects.get(action="case.claim_taken_over"))
    assert event["before"] == {"claimed_by": worker("kim").actor.id}
    assert event["reason"] == WHY
    lost = act(kim, opened, "claim/release")
    assert "robin works on the case now" in lost.content.decode()


def test_a_takeover_of_another_claim_than_the_one_seen_is_refused(
    kim: Client, robin: Client, login: Login
) -> None:
    opened = cases.needs_decision()
    act(kim, opened, "claim")
    alex = login(Role.OPERATOR, name="alex")
    act(robin, opened, "claim/takeover", number="1", reason=WHY)
    late = act(alex, opened, "claim/takeover", number="1", reason=WHY)
    assert late.status_code == 409
    assert "robin works on this case." in late.content.decode()
    assert WHY in late.content.decode()
    assert CaseClaim.objects.get().actor_name == "robin"


def test_a_takeover_of_what_has_ended_is_a_claim(kim: Client, robin: Client) -> None:
    opened = cases.needs_decision()
    act(kim, opened, "claim")
    age(opened, minutes=11)
    assert act(robin, opened, "claim/takeover", number="1", reason=WHY).status_code == 302
    assert leaves() == ["case.claimed", "case.claimed"]


# --- Kept while in use --------------------------------------------------------------------------------------


def test_a_page_in_use_keeps_the_claim_and_one_left_open_only_for_an_hour(kim: Client) -> None:
    opened = cases.needs_decision()
    act(kim, opened, "claim")
    poll = page_of(kim, f"/cases/{opened.case_id}/").desk.live_href

    def left() -> timedelta:
        claim = CaseClaim.objects.get()
        return claim.until_at - claim.used_at

    age(opened, minutes=5)
    kim.get(poll)
    assert timedelta(minutes=14) < left() < timedelta(minutes=16)
    # Nobody has touched the page for 59 minutes; the page alone keeps it, to the hour and no longer.
    now = CaseClaim.objects.get().until_at - timedelta(minutes=10)
    long_ago = now - timedelta(minutes=59)
    CaseClaim.objects.update(claimed_at=long_ago, used_at=long_ago, until_at=now + timedelta(seconds=30))
    kim.get(poll)
    assert left() == timedelta(hours=1)
    kim.get(f"/cases/{opened.case_id}/")
    assert left() == timedelta(minutes=10)


def test_a_claim_that_ended_isnt_brought_back_by_a_page_left_open(kim: Client) -> None:
    opened = cases.needs_decision()
    act(kim, opened, "claim")
    age(opened, minutes=10)
    body = kim.get(f"/cases/{opened.case_id}/desk/").content.decode()
    assert "Nobody works on this case." in body


# --- Who is there -------------------------------------------------------------------------------------------


def test_who_looks_is_shown_until_they_are_gone_and_not_in_the_audit_log(kim: Client, robin: Client) -> None:
    opened = cases.needs_decision()
    entries = AuditLeaf.objects.count()
    said(kim, opened)
    assert "Also looking at it: kim." in said(robin, opened)
    fragment = kim.get(f"/cases/{opened.case_id}/desk/").content.decode()
    assert "Also looking at it: robin." in fragment
    assert "<html" not in fragment
    assert "<form" not in fragment
    gone = CasePresence.objects.get(actor=worker("kim").actor.id)
    CasePresence.objects.filter(pk=gone.pk).update(seen_at=gone.seen_at - timedelta(seconds=51))
    assert "Also looking" not in said(robin, opened)
    CasePresence.objects.filter(pk=gone.pk).update(seen_at=gone.seen_at - timedelta(hours=2))
    said(robin, opened)
    assert CasePresence.objects.count() == 1
    assert AuditLeaf.objects.count() == entries


def test_a_persons_name_is_shown_inert(kim: Client, login: Login) -> None:
    opened = cases.needs_decision()
    hostile = login(Role.OPERATOR, name="mallory")
    Person.objects.filter(username="mallory").update(first_name="<img src=x onerror=alert(1)>\u202e")
    act(hostile, opened, "claim")
    body = kim.get(f"/cases/{opened.case_id}/").content.decode()
    assert "<img" not in body
    assert "\u202e" not in body


# --- The next one -------------------------------------------------------------------------------------------


def test_next_for_me_claims_the_most_urgent_that_nobody_works_on(kim: Client, robin: Client) -> None:
    low, high = cases.needs_decision(Effect(minor=100)), cases.needs_decision(Effect(minor=90_000))
    Case.objects.update(worsens_at=low.case.worsens_at)
    cases.open_case()  # Looked up by itself: nobody's to take.
    assert kim.post("/queue/next/")["Location"] == f"/cases/{high.case_id}/"
    assert robin.post("/queue/next/")["Location"] == f"/cases/{low.case_id}/"
    assert {claim.case_id: claim.actor_name for claim in CaseClaim.objects.all()} == {
        high.case_id: "kim",
        low.case_id: "robin",
    }
    nothing = kim.post("/queue/next/", follow=True)
    assert nothing.redirect_chain == [("/", 302)]
    assert "No case of your teams waits for a decision without somebody at it." in nothing.content.decode()


def test_next_for_me_takes_no_other_teams_case(login: Login) -> None:
    cases.needs_decision(team="other")
    client = login(Role.OPERATOR)
    assert client.post("/queue/next/")["Location"] == "/"
    assert not CaseClaim.objects.exists()


def test_the_queue_has_the_button(kim: Client) -> None:
    assert 'action="/queue/next/"' in kim.get("/").content.decode()


def test_only_a_person_works_on_a_case(db: None) -> None:
    opened = cases.needs_decision()
    policy = Worker(actor=Actor(ActorKind.POLICY, "policy-1"))
    for refused in (
        lambda: working.claim_case(case_id=opened.case_id, team=None, worker=policy),
        lambda: working.take_over(
            case_id=opened.case_id, team=None, worker=policy, reason=WHY, seen_number=1
        ),
        lambda: working.next_for(teams=["acme"], worker=policy),
    ):
        with pytest.raises(Refusal) as refusal:
            refused()
        assert refusal.value.word == "forbidden"
