"""The approver's pages: what waits for whom, the four-eyes decision, and every way in which it is refused."""

from __future__ import annotations

import json
import re
import time
from datetime import UTC, datetime, timedelta
from html import unescape
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from console import access
from console.access import REAUTHENTICATED_KEY
from console.models import Person, Role
from reconciliation import approvals
from reconciliation.accounts import sync_accounts
from reconciliation.approval_models import ApprovalKind, ApprovalMessage, ApprovalRequest
from reconciliation.persons import Worker
from reconciliation.run_approvals import keep_parameters, move_parameters, raise_parameters
from runs.journal.pausing import add_pause_reason
from runs.locking import database_now, lock_run
from runs.models import AuditLeaf, FlowVersion, Run
from runs.money import Money
from runs.states import PauseReason
from tests import cases, factories
from tests.cases import Effect
from tests.factories import TEAM, Claimed, fresh, make_claimed
from tests.integration.pages.conftest import Login
from tests.integration.pages.forms import decide
from tests.integration.test_journal_consenting import given_up, run_under_approval, stopped_by_budget

pytestmark = pytest.mark.django_db(transaction=True)

WHY = "The supplier's offer ends today."
COMMENT = "Agreed with finance <b>today</b>."


def worker(name: str) -> Worker:
    person = Person.objects.get(username=name)
    return Worker(actor=access.person_actor(person), name=name)


@pytest.fixture
def jonas(login: Login) -> Client:
    return login(Role.OPERATOR, name="jonas")


@pytest.fixture
def ines(login: Login) -> Client:
    """The approver, whose sign-in is a moment old."""
    client = login(Role.APPROVER, name="ines")
    signed_in(client, seconds_ago=1)
    return client


def signed_in(client: Client, *, seconds_ago: float) -> None:
    session = client.session
    session[REAUTHENTICATED_KEY] = (datetime.now(UTC) - timedelta(seconds=seconds_ago)).timestamp()
    session.save()


def asked_for(
    name: str = "jonas",
    *,
    claimed: Claimed | None = None,
    minor: int = 3_000,
    ends_in: timedelta | None = None,
) -> ApprovalRequest:
    """Somebody asked to raise a run's budget."""
    about = claimed or stopped_by_budget()
    return approvals.request(
        kind=ApprovalKind.BUDGET_RAISE,
        worker=worker(name),
        team=TEAM,
        parameters=raise_parameters(limit=Money("EUR", minor)),
        reason=WHY,
        key=f"form_{about.run.pk}",
        run_id=about.run.pk,
        until_at=database_now() + ends_in if ends_in is not None else None,
    ).approval


def answer(client: Client, made: ApprovalRequest, act: str, **more: str) -> Any:
    data = {
        "act": act,
        "comment": COMMENT,
        "content_digest": made.content_digest,
        "key": "form_1",
        **more,
    }
    return client.post(f"/approvals/{made.pk}/answer/", data)


def text_of(reply: Any) -> str:
    return unescape(reply.content.decode())


# --- The list --------------------------------------------------------------------------------------------


def test_requests_wait_by_deadline_and_ones_own_are_elsewhere(jonas: Client, ines: Client) -> None:
    later, sooner = asked_for(), asked_for(ends_in=timedelta(minutes=30))
    own = asked_for("ines")
    page = ines.get("/approvals/").context["page"]
    assert [row.approval_id for row in page.rows] == [sooner.pk, later.pk]
    assert [row.late for row in page.rows] == [True, False]
    assert [(tab.label, tab.count) for tab in page.tabs] == [
        ("For you", "2"), ("Asked by you", "1"), ("Decided", ""),
    ]  # fmt: skip
    assert [row.approval_id for row in ines.get("/approvals/?view=own").context["page"].rows] == [own.pk]
    # The tab counts what waits for whoever looks.
    assert 'Approvals <span class="count">2' in text_of(ines.get("/approvals/"))
    assert 'Approvals <span class="count">' not in text_of(jonas.get("/approvals/"))


def test_another_account_of_the_same_human_being_finds_nothing_to_answer(jonas: Client, ines: Client) -> None:
    Person.objects.update(principal="hum_one")
    made = asked_for()
    page = ines.get("/approvals/").context["page"]
    assert page.rows == ()
    assert page.empty.title == "Nothing waits for you"
    shown = ines.get(f"/approvals/{made.pk}/").context["page"]
    assert (shown.form, shown.own is not None) == (None, True)


def test_a_list_is_narrowed_to_a_kind_and_says_so_when_nothing_is_left(jonas: Client, ines: Client) -> None:
    made = asked_for()
    same = ines.get("/approvals/?kind=budget_raise").context["page"]
    assert [row.approval_id for row in same.rows] == [made.pk]
    other = ines.get("/approvals/?kind=flow_version").context["page"]
    assert (other.rows, other.empty.title) == ((), "No request matches")


def test_what_has_ended_is_paged_by_its_place(
    jonas: Client, ines: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("console.queries.approvals.PAGE_ROWS", 2)
    made = [asked_for() for _ in range(3)]
    for one in made:
        answer(ines, one, "refuse")
    page = ines.get("/approvals/?view=decided").context["page"]
    assert [row.approval_id for row in page.rows] == [made[2].pk, made[1].pk]
    rest = ines.get(f"/approvals/{page.next.href}").context["page"]
    assert [row.approval_id for row in rest.rows] == [made[0].pk]
    assert rest.next is None
    assert ines.get("/approvals/?after=nonsense").status_code == 400


def test_how_many_wait_is_asked_for_cheaply(jonas: Client, ines: Client) -> None:
    asked_for()
    first = ines.get("/approvals/news/?seen=1")
    assert (first.status_code, first.content.strip()) == (200, b"")
    again = ines.get("/approvals/news/?seen=1", headers={"If-None-Match": first["ETag"]})
    assert (again.status_code, again.content) == (304, b"")
    asked_for()
    more = ines.get("/approvals/news/?seen=1", headers={"If-None-Match": first["ETag"]})
    assert (more.status_code, "1 more waits for you" in text_of(more)) == (200, True)


# --- One request -----------------------------------------------------------------------------------------


def test_a_budget_is_shown_as_it_is_and_as_it_would_be(jonas: Client, ines: Client) -> None:
    made = asked_for()
    page = ines.get(f"/approvals/{made.pk}/").context["page"]
    now, then = page.amounts
    assert [(one.limit.minor, one.reserved.minor, one.remaining.minor) for one in (now, then)] == [
        (1_000, 0, 1_000),
        (3_000, 2_500, 500),
    ]
    assert then.note == "+€20.00, +200 %"
    assert [(part.name, part.x, part.width) for part in page.bar.stretches] == [("next", 0, 833)]
    assert (page.bar.mark_x, page.bar.remaining.minor) == (333, 500)
    text = text_of(ines.get(f"/approvals/{made.pk}/"))
    said = "reserved by what waits €25.00, remaining €5.00. The old limit was €10.00."
    assert f'aria-label="Of the new limit of €30.00: {said}"' in text
    assert "1 run is released" in text
    assert WHY in text
    assert made.content_digest in text


def test_a_raise_that_lets_nothing_through_is_shown_to_be_one(jonas: Client, ines: Client) -> None:
    made = asked_for(minor=2_000)
    text = text_of(ines.get(f"/approvals/{made.pk}/"))
    assert "The run stays paused" in text
    assert "1 run is released" not in text


@pytest.mark.parametrize("move", [False, True])
def test_a_version_shows_what_differs_and_the_plan_under_each(
    jonas: Client, ines: Client, move: bool
) -> None:
    claimed = make_claimed(factories.effect("c1"), factories.read("r2"))
    hold_for_version(claimed)
    FlowVersion.objects.create(flow=claimed.run.flow, version="7", digest="a" * 64)
    wanted = move_parameters(version="7", digest="a" * 64) if move else keep_parameters(wait_seconds=3_600)
    made = approvals.request(
        kind=ApprovalKind.FLOW_VERSION, worker=worker("jonas"), team=TEAM, parameters=wanted, reason=WHY,
        key="form_v", run_id=claimed.run.pk,
    ).approval  # fmt: skip
    page = ines.get(f"/approvals/{made.pk}/").context["page"]
    versions = page.versions
    assert (versions.pinned, versions.other) == ("6", "7" if move else "")
    rows = {row.label: (row.pinned, row.other) for row in versions.rows}
    assert rows["Runs under it"] == (("1 paused",), ("none",) if move else ())
    assert rows["Effects of those runs"] == (("1 not sent yet",), ("none",) if move else ())
    assert ("no programs" in str(versions.note)) is move
    assert [plan.title for plan in page.plans] == [
        "Under version 6",
        "Under version 7" if move else "Under another version",
    ]
    assert "1 effect decided already, to be sent with the stored key" in text_of(
        ines.get(f"/approvals/{made.pk}/")
    )


def hold_for_version(claimed: Claimed) -> None:
    from django.db import transaction

    with transaction.atomic():
        add_pause_reason(lock_run(run_id=claimed.run.pk, team=TEAM), PauseReason.FLOW_VERSION)


def test_a_decision_shows_the_case_and_what_could_go_wrong(jonas: Client, ines: Client) -> None:
    sync_accounts()
    opened = cases.needs_decision()
    sent = decide(jonas, opened, "confirm", receipt="given", given_reference="re_9", given_body='{"id":"x"}')
    assert sent.status_code == 302, text_of(sent)[-3000:]
    made = ApprovalRequest.objects.get()
    page = ines.get(f"/approvals/{made.pk}/").context["page"]
    assert page.verdict is not None
    assert len(page.questions) == 5
    assert page.form.acknowledgement.startswith("I accept that no matching receipt proves this")
    without = answer(ines, made, "approve")
    assert (without.status_code, "Say that you accept" in text_of(without)) == (422, True)
    assert answer(ines, made, "approve", acknowledged="yes").status_code == 302
    assert fresh(opened.operation).state == "confirmed"


def test_an_effect_on_two_peoples_word_is_told_as_that_and_not_as_one_without_our_key(
    jonas: Client, ines: Client
) -> None:
    sync_accounts()
    opened = cases.needs_decision(Effect(provider="sandbox-courier"))
    assert decide(jonas, opened, "confirm", receipt="without").status_code == 302
    made = ApprovalRequest.objects.get()
    asked = text_of(ines.get(f"/approvals/{made.pk}/"))
    assert "What would be consented to" in asked
    assert "No matching receipt is on record. Worst case" in asked, "and no word to whoever asks"
    assert answer(ines, made, "approve", acknowledged="yes").status_code == 302
    answered = text_of(ines.get(f"/approvals/{made.pk}/"))
    assert "What was consented to" in answered
    assert "What would be consented to" not in answered
    case = text_of(jonas.get(f"/cases/{opened.case.pk}/"))
    assert "effect, on two people’s word" in case
    assert "carries our key" not in case
    # The history has the case page's sentences, not the words of the rules.
    history = text_of(ines.get(f"/effects/{opened.operation.pk}/"))
    assert "A second person is asked about “Confirm it happened”." in history
    assert "The provider offers no lookup." in history
    leaves = AuditLeaf.objects.filter(action="case.moved", operation_ref=opened.operation.pk)
    listed = "".join(
        text_of(ines.get(f"/effects/?action=case.moved&q={opened.operation.pk}&entry={leaf.pk}"))
        for leaf in leaves
    )
    for raw in ("a second person is asked: confirm", "policy: no_lookup"):
        # As it is stored it stands in the entry's own bytes alone.
        assert f"<dd>{raw}" not in history + listed
    assert "<dd>A second person is asked about" in listed


def test_a_request_that_was_refused_says_what_was_asked_for(jonas: Client, ines: Client) -> None:
    made = asked_for()
    answer(ines, made, "refuse")
    shown = ines.get(f"/approvals/{made.pk}/")
    assert "What was asked for" in text_of(shown)
    page = shown.context["page"]
    assert [row.name for row in page.amounts] == ["Before", "As it would have been"]
    assert (page.stands, page.answer) == (False, ApprovalRequest.objects.get(pk=made.pk).comment)
    assert "any change voids" not in text_of(shown)


def test_a_record_that_was_given_is_read_before_it_is_consented_to_without_its_secrets(
    jonas: Client, ines: Client
) -> None:
    sync_accounts()
    opened = cases.needs_decision()
    body = '{"id": "re_9", "note": "<b>seen</b>", "api_key": "hush-hush-hush-4711"}'
    decide(jonas, opened, "confirm", receipt="given", given_reference="re_9", given_body=body)
    text = text_of(ines.get(f"/approvals/{ApprovalRequest.objects.get().pk}/"))
    assert '"note": "<b>seen</b>"' in text
    assert "hush-hush" not in text
    assert f"{len(body)} bytes, sha256" in re.sub(r"<[^>]+>", "", text)


def test_a_record_that_was_given_is_compared_with_what_was_intended(jonas: Client, ines: Client) -> None:
    sync_accounts()
    opened = cases.needs_decision()
    body = json.dumps(cases.record_of(opened, id="re_9", amount_minor=120_400, api_key="hush-hush-4711"))
    decide(jonas, opened, "confirm", receipt="given", given_reference="re_9", given_body=body)
    shown = ines.get(f"/approvals/{ApprovalRequest.objects.get().pk}/")
    (diff,) = shown.context["page"].diffs
    assert (diff.title, diff.provider_source) == (
        "Intended effect and the record that was given",
        "given with the request",
    )
    assert [(row.field, row.outcome) for row in diff.differing] == [("Amount", "differs")]
    assert len(diff.matching) > 1
    text = text_of(shown)
    assert "Nothing to compare" not in text
    assert "hush-hush" not in text
    # What is booked is what the receipt says, as it is once it is consented to.
    assert "Books €1,204.00" in text


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ('{"note": "no id"}', "The receipt has no id at"),
        ("Seen in their list.", "The receipt's body is not a JSON object"),
    ],
)
def test_a_record_that_cannot_be_compared_says_why(jonas: Client, ines: Client, body: str, why: str) -> None:
    sync_accounts()
    opened = cases.needs_decision()
    decide(jonas, opened, "confirm", receipt="given", given_reference="re_9", given_body=body)
    text = text_of(ines.get(f"/approvals/{ApprovalRequest.objects.get().pk}/"))
    assert "no lookup found a record, and of the one that was given:" in text
    assert why.replace("'", "&#x27;") in text or why in text


@pytest.mark.parametrize("path", ["/approvals/", "/approvals/?view=decided", "/approvals/{}/"])
def test_no_page_asks_more_than_twelve_times(jonas: Client, ines: Client, path: str) -> None:
    made = asked_for()
    with CaptureQueriesContext(connection) as queries:
        assert ines.get(path.format(made.pk)).status_code == 200
    assert len(queries) <= 12, [one["sql"][:90] for one in queries]


def test_the_page_of_a_decision_asks_no_more_than_twelve_times(jonas: Client, ines: Client) -> None:
    sync_accounts()
    opened = cases.needs_decision()
    decide(jonas, opened, "confirm", receipt="given", given_reference="re_9", given_body='{"id":"x"}')
    made = ApprovalRequest.objects.get()
    with CaptureQueriesContext(connection) as queries:
        assert ines.get(f"/approvals/{made.pk}/").status_code == 200
    assert len(queries) <= 12, [one["sql"][:90] for one in queries]


# --- Answering -------------------------------------------------------------------------------------------


def test_an_approval_is_carried_out_and_leads_to_the_next(jonas: Client, ines: Client) -> None:
    made, following = asked_for(), asked_for()
    reply = answer(ines, made, "approve")
    assert reply["Location"] == f"/approvals/{made.pk}/?done=answered"
    page = ines.get(reply["Location"]).context["page"]
    assert page.banner.title == ("You approved it, and it was carried out.",)
    assert page.banner.action.href == f"/approvals/{following.pk}/"
    assert Run.objects.get(pk=made.run_id).state == "open"
    assert "&lt;b&gt;today" in ines.get(f"/approvals/{made.pk}/").content.decode()


def test_a_refusal_changes_nothing_of_the_run(jonas: Client, ines: Client) -> None:
    made = asked_for()
    answer(ines, made, "refuse")
    assert fresh(made).state == "refused"
    assert Run.objects.get(pk=made.run_id).paused_reasons == ["budget"]
    told = jonas.get(f"/approvals/{made.pk}/").context["page"].banner
    assert (told.title, told.quote) == (("ines refused it. Nothing was done.",), COMMENT)


def test_a_question_is_replied_to_and_the_request_stays_open(jonas: Client, ines: Client) -> None:
    made = asked_for()
    assert not jonas.get(f"/approvals/{made.pk}/").context["page"].own.may_reply
    assert answer(ines, made, "ask").status_code == 302
    assert jonas.get(f"/approvals/{made.pk}/").context["page"].own.may_reply
    reply = jonas.post(
        f"/approvals/{made.pk}/own/", {"act": "reply", "comment": "By order 7.", "key": "form_2"}
    )
    assert reply.status_code == 302
    said = ines.get(f"/approvals/{made.pk}/").context["page"].said
    assert [(one.by.name, one.kind, one.text) for one in said] == [
        ("ines", "question", COMMENT),
        ("jonas", "reply", "By order 7."),
    ]
    assert fresh(made).state == "requested"


def test_ones_own_request_is_taken_back(jonas: Client, ines: Client) -> None:
    made = asked_for()
    own = f"/approvals/{made.pk}/own/"
    assert ines.post(own, {"act": "withdraw", "comment": "Not mine."}).status_code == 403
    assert jonas.post(own, {"act": "withdraw", "comment": ""}).status_code == 422
    assert jonas.post(own, {"act": "withdraw", "comment": "No longer needed."}).status_code == 302
    assert fresh(made).state == "withdrawn"


@pytest.mark.parametrize(("seconds_ago", "status"), [(290, 302), (310, 403)])
def test_an_answer_takes_a_sign_in_of_the_last_five_minutes(
    jonas: Client, ines: Client, seconds_ago: float, status: int
) -> None:
    made = asked_for()
    signed_in(ines, seconds_ago=seconds_ago)
    assert answer(ines, made, "approve").status_code == status
    assert fresh(made).state == ("carried_out" if status == 302 else "requested")


def test_what_was_typed_is_there_again_after_the_password_and_is_sent_by_the_person(
    jonas: Client, ines: Client, settings: Any
) -> None:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    made = asked_for()
    person = Person.objects.get(username="ines")
    person.set_password("a password for tests only")
    person.save()
    ines.force_login(person)
    signed_in(ines, seconds_ago=900)
    asked = answer(ines, made, "approve")
    assert "Show that it is you" in text_of(asked)
    draft = asked.context["draft"]
    back = ines.post(
        "/reauthentication/", {"password": "a password for tests only", "draft": draft, "next": "/"}
    )
    assert back["Location"] == f"/approvals/{made.pk}/answer/"
    page = ines.get(back["Location"]).context["page"]
    assert (page.form.comment, fresh(made).state) == (COMMENT, "requested")
    assert answer(ines, made, "approve").status_code == 302
    assert fresh(made).state == "carried_out"


# --- Refusals --------------------------------------------------------------------------------------------


def test_another_teams_request_does_not_exist(jonas: Client, login: Login) -> None:
    made = asked_for()
    stranger = login(Role.APPROVER, name="robin", team="other")
    signed_in(stranger, seconds_ago=1)
    assert stranger.get(f"/approvals/{made.pk}/").status_code == 404
    assert answer(stranger, made, "approve").status_code == 404
    assert stranger.post(f"/approvals/{made.pk}/own/", {"comment": "x"}).status_code == 404
    assert stranger.post(f"/runs/{made.run_id}/asking/", {"ask": "raise"}).status_code == 404
    assert stranger.get("/approvals/").context["page"].rows == ()
    assert fresh(made).state == "requested"


def test_ones_own_request_is_explained_and_refused_and_the_attempt_is_on_record(ines: Client) -> None:
    made = asked_for("ines")
    page = ines.get(f"/approvals/{made.pk}/").context["page"]
    assert (page.form, page.own is not None) == (None, True)
    assert "somebody else must answer it" in text_of(ines.get(f"/approvals/{made.pk}/"))
    refused = answer(ines, made, "approve")
    assert refused.status_code == 403
    assert "You asked for this" in text_of(refused)
    assert COMMENT in text_of(refused)
    assert AuditLeaf.objects.filter(action="approval.own_attempt_refused").count() == 1


@pytest.mark.parametrize("role", [Role.OPERATOR, Role.AUDITOR, Role.VIEWER, Role.ADMINISTRATOR])
def test_who_is_no_approver_reads_and_is_told_why_they_cannot_answer(
    jonas: Client, login: Login, role: Role
) -> None:
    made = asked_for()
    client = login(role, name=f"other-{role}")
    signed_in(client, seconds_ago=1)
    assert "requests are answered by approvers" in text_of(client.get(f"/approvals/{made.pk}/"))
    refused = answer(client, made, "approve")
    assert (refused.status_code, COMMENT in text_of(refused)) == (403, True)
    assert fresh(made).state == "requested"


@pytest.mark.parametrize("act", ["approve", "refuse", "ask"])
def test_every_answer_takes_a_comment(jonas: Client, ines: Client, act: str) -> None:
    made = asked_for()
    assert answer(ines, made, act, comment="  ").status_code == 422
    assert answer(ines, made, "dance").status_code == 422
    assert (fresh(made).state, ApprovalMessage.objects.count()) == ("requested", 0)


def test_another_content_than_the_requests_is_refused_and_nothing_typed_is_lost(
    jonas: Client, ines: Client
) -> None:
    made = asked_for()
    refused = answer(ines, made, "approve", content_digest="0" * 64)
    assert (refused.status_code, refused.context["page"].form.comment) == (409, COMMENT)
    assert fresh(made).state == "requested"


@pytest.mark.parametrize("how", ["changed", "expired", "answered"])
def test_what_has_ended_says_what_happened_and_keeps_what_was_typed(
    jonas: Client, ines: Client, login: Login, how: str
) -> None:
    made = asked_for(ends_in=timedelta(seconds=0.3) if how == "expired" else None)
    match how:
        case "changed":
            Run.objects.filter(pk=made.run_id).update(budget_spent_minor=10)
            said = "What was spent in minor units changed from 0 to 10."
        case "expired":
            while database_now() < made.expires_at:
                time.sleep(0.02)
            said = "Nothing was done."
        case _:
            other = login(Role.APPROVER, name="tomas")
            signed_in(other, seconds_ago=1)
            answer(other, made, "refuse", comment="Too dear.")
            said = "tomas has refused this request already."
    refused = answer(ines, made, "approve")
    assert refused.status_code == 409
    assert said in text_of(refused)
    assert COMMENT in text_of(refused), "nothing typed is lost"
    assert Run.objects.get(pk=made.run_id).budget_limit_minor == 1_000


# --- Asking from the run's page --------------------------------------------------------------------------


def form_of(client: Client, claimed: Claimed, ask: str) -> Any:
    page = client.get(f"/runs/{claimed.run.pk}/").context["page"]
    return next((one for one in page.asks if one.ask == ask), None)


def asking(client: Client, claimed: Claimed, ask: str, **fields: str) -> Any:
    form = form_of(client, claimed, ask)
    data = {"ask": ask, "key": form.key, "reason": WHY, **fields}
    return client.post(f"/runs/{claimed.run.pk}/asking/", data)


def test_a_run_offers_what_its_reasons_fit_and_once(jonas: Client) -> None:
    claimed = stopped_by_budget()
    page = jonas.get(f"/runs/{claimed.run.pk}/").context["page"]
    assert [one.ask for one in page.asks] == ["raise"]
    assert page.asks[0].fields[0].hint == "€25.00 lets the next effect through."
    made = asking(jonas, claimed, "raise", limit="30.00")
    request = ApprovalRequest.objects.get()
    assert made["Location"] == f"/approvals/{request.pk}/"
    page = jonas.get(f"/runs/{claimed.run.pk}/").context["page"]
    assert (page.asks, [one.href for one in page.pending]) == ((), [f"/approvals/{request.pk}/"])


def test_an_approval_is_asked_to_be_renewed(jonas: Client) -> None:
    claimed = run_under_approval(ends_in=timedelta(seconds=-1))
    from django.db import transaction

    with transaction.atomic():
        add_pause_reason(lock_run(run_id=claimed.run.pk, team=TEAM), PauseReason.APPROVAL)
    assert asking(jonas, claimed, "renew", hours="4").status_code == 302
    assert ApprovalRequest.objects.get().kind == "approval_renewal"


def test_a_version_is_asked_to_be_kept_or_moved(jonas: Client) -> None:
    claimed = make_claimed()
    hold_for_version(claimed)
    FlowVersion.objects.create(
        flow=claimed.run.flow, version="7", digest="a" * 64, last_worker_at=database_now()
    )
    assert asking(jonas, claimed, "version", version="", hours="4").status_code == 422
    assert asking(jonas, claimed, "version", version="move:9", hours="4").status_code == 409
    assert asking(jonas, claimed, "version", version="move:7", hours="4").status_code == 302
    assert ApprovalRequest.objects.get().answer == {}


def test_a_held_amount_is_asked_to_be_freed(jonas: Client) -> None:
    claimed = given_up()
    assert asking(jonas, claimed, "free", operation=claimed.operation.pk).status_code == 302
    assert asking_again_is_not_offered(jonas, claimed)


def asking_again_is_not_offered(client: Client, claimed: Claimed) -> bool:
    return form_of(client, claimed, "free") is None


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"limit": "a lot"}, 422),
        ({"limit": "12.345"}, 422),
        # Thirty to somebody who writes so, and not three thousand.
        ({"limit": "30,00"}, 422),
        ({"limit": "1,2400.00"}, 422),
        ({"limit": "30.00", "reason": "short"}, 422),
        ({"limit": "5.00"}, 409),
    ],
)
def test_a_form_that_cannot_be_taken_comes_back_as_it_was(
    jonas: Client, fields: dict[str, str], status: int
) -> None:
    claimed = stopped_by_budget()
    answered = asking(jonas, claimed, "raise", **fields)
    assert answered.status_code == status
    form = answered.context["page"].asks[0]
    assert (form.open, form.reason) == (True, fields.get("reason", WHY))
    assert form.fields[0].value == fields["limit"]
    assert not ApprovalRequest.objects.exists()


def test_who_only_reads_is_told_who_asks(login: Login) -> None:
    claimed = stopped_by_budget()
    viewer = login(Role.VIEWER, name="vera")
    page = viewer.get(f"/runs/{claimed.run.pk}/").context["page"]
    assert (page.asks, "operators and approvers ask" in page.asks_note) == ((), True)
    data = {"ask": "raise", "limit": "30.00", "reason": WHY, "key": "form_9"}
    refused = viewer.post(f"/runs/{claimed.run.pk}/asking/", data)
    assert (refused.status_code, WHY in text_of(refused)) == (403, True)


# --- Where a role begins ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("roles", "page"),
    [
        ([Role.OPERATOR], "queue"),
        ([Role.OPERATOR, Role.APPROVER], "queue"),
        ([Role.APPROVER], "approval_list"),
        ([Role.AUDITOR], "effects"),
        ([Role.VIEWER], "queue"),
    ],
)
def test_each_role_begins_where_its_work_waits(roles: list[Role], page: str) -> None:
    assert access.landing_of(Person(roles=[str(one) for one in roles])) == page
