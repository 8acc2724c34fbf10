"""Working on a case with others: what each person is shown, and what each refusal says."""

from __future__ import annotations

import hashlib
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.test import Client

from console.models import Person, Role
from console.pages.present.timeline import event_of
from reconciliation import next_case, notes, working
from reconciliation.models import Case
from reconciliation.work_models import CaseClaim, CaseNote, CasePresence
from reconciliation.working import Worker
from runs.actors import Actor, ActorKind
from runs.models import AuditLeaf
from runs.refusals import Refusal
from tests import cases
from tests.cases import Effect
from tests.concurrency import Connect
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


# --- Notes --------------------------------------------------------------------------------------------------


def note(client: Client, opened: cases.Opened, text: str, **data: str) -> Any:
    form = page_of(client, f"/cases/{opened.case_id}/").note
    return act(client, opened, "note", **{"text": text, "key": form.key, **data})


def notes_of(client: Client, opened: cases.Opened) -> list[tuple[str, str]]:
    timeline = page_of(client, f"/cases/{opened.case_id}/").timeline
    return [(item.quote, item.actor.name) for item in timeline if item.title == "Note"]


def test_a_note_is_in_the_timeline_inert_and_moves_no_version(kim: Client, robin: Client) -> None:
    opened = cases.needs_decision()
    before = opened.case.version
    text = "<script>alert(1)</script>\nTwo lines\u202e {{7*7}}"
    assert note(kim, opened, text).status_code == 302
    assert notes_of(robin, opened) == [(text, "kim")]
    body = robin.get(f"/cases/{opened.case_id}/").content.decode()
    assert "&lt;script&gt;alert(1)&lt;/script&gt;\nTwo lines" in body
    assert "<script>alert" not in body
    assert "\u202e" not in body
    assert opened.case.version == before
    event = event_of(AuditLeaf.objects.get(action="case.noted"))
    assert event["after"] == {
        "case": opened.case_id,
        "length": len(text),
        "sha256": hashlib.sha256(text.encode()).hexdigest(),
    }
    assert text not in bytes(AuditLeaf.objects.get(action="case.noted").body).decode()


def test_a_note_that_arrives_twice_is_one(kim: Client) -> None:
    opened = cases.needs_decision()
    for _ in range(2):
        assert note(kim, opened, "Called them.", key="form_1").status_code == 302
    assert len(notes_of(kim, opened)) == 1
    other = note(kim, opened, "Called them again.", key="form_1")
    assert other.status_code == 409
    assert "This form was used for another note." in other.content.decode()
    assert other.context["page"].note.text == "Called them again."
    assert other.context["page"].note.key != "form_1"
    assert AuditLeaf.objects.filter(action="case.noted").count() == 1


@pytest.mark.parametrize(("length", "status"), [(0, 422), (1, 302), (4_000, 302), (4_001, 422)])
def test_a_note_has_its_bounds(kim: Client, length: int, status: int) -> None:
    opened = cases.needs_decision()
    answer = note(kim, opened, "x" * length)
    assert answer.status_code == status
    assert CaseNote.objects.count() == (status == 302)
    if status == 422:
        assert "A note has 1 to 4,000 characters" in answer.content.decode()
        assert answer.context["page"].note.text == "x" * length


def test_a_case_holds_only_so_many_notes(kim: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notes, "NOTES_MAX", 2)
    opened = cases.needs_decision()
    for number in range(2):
        assert note(kim, opened, f"Note {number}").status_code == 302
    full = note(kim, opened, "One more")
    assert full.status_code == 409
    assert "A case holds 2 notes, and this one has them." in full.content.decode()
    assert full.context["page"].note.text == "One more"
    assert CaseNote.objects.count() == 2


def test_a_note_can_be_added_after_the_end_and_only_by_those_who_work_on_cases(
    kim: Client, login: Login
) -> None:
    opened = cases.needs_decision()
    decide(kim, opened, "abandon", then="end")
    assert note(kim, opened, "The customer was told.").status_code == 302
    auditor = login(Role.AUDITOR)
    assert page_of(auditor, f"/cases/{opened.case_id}/").note is None
    assert act(auditor, opened, "note", text="x", key="k").status_code == 403
    outsider = login(Role.OPERATOR, name="out", team="other")
    assert act(outsider, opened, "note", text="x", key="k").status_code == 404
    assert CaseNote.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_nobody_changes_a_note(kim: Client, connect: Connect, owner_url: str) -> None:
    opened = cases.needs_decision()
    note(kim, opened, "As it was.")
    with psycopg.connect(owner_url, autocommit=True) as owner:
        for login in (owner, connect()):
            for sql in ("UPDATE {} SET text = 'x'", "DELETE FROM {}", "TRUNCATE {}"):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    login.execute(sql.format("reconciliation_casenote"))
    assert CaseNote.objects.get().text == "As it was."


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
        lambda: notes.add_note(case_id=opened.case_id, team=None, worker=policy, text="x", key="k"),
        lambda: next_case.next_for(teams=["acme"], worker=policy),
    ):
        with pytest.raises(Refusal) as refusal:
            refused()
        assert refusal.value.word == "forbidden"
