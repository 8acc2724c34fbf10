"""What a case's page says, and that nothing in it can do anything."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from console.models import Person, Role
from console.queries import cases as case_queries
from reconciliation.gate_models import AccountGate
from reconciliation.models import Case
from reconciliation.notes import add_note
from reconciliation.snoozing import snooze
from reconciliation.working import Worker, claim_case
from runs.actors import Actor, ActorKind
from runs.journal.sending import begin_send
from runs.locking import database_now
from runs.models import Evidence
from tests import cases, factories
from tests.browser.seeding import decided, late_success, people
from tests.cases import Effect
from tests.integration.pages.conftest import Login
from tests.integration.pages.forms import decide, page_of

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'`{{7*7}}\u202e\u200b"
# The session and the person, the case, that they are there, what is a few rows each, the evidence to judge by
# and that to show, a receipt's other owners, the leaves, their actors' names, related cases, and the frame.
CASE_QUERIES_MAX = 12


@pytest.fixture
def operator(login: Login) -> Client:
    return login(Role.OPERATOR)


def show(client: Client, opened: cases.Opened) -> str:
    answer = client.get(f"/cases/{opened.case_id}/")
    assert answer.status_code == 200
    return answer.content.decode()


# --- What it says ---------------------------------------------------------------------------------------


def test_the_human_question_comes_first(operator: Client) -> None:
    opened = cases.needs_decision()
    assert ">Did the refund of €1,240.00 happen?</h1>" in show(operator, opened)


def test_a_mismatch_shows_what_differs_before_what_is_the_same(operator: Client) -> None:
    opened = cases.open_case()
    cases.looked_up(opened, cases.mismatch(opened))
    page = page_of(operator, f"/cases/{opened.case_id}/")
    assert page.verdict.title == "A receipt was found for a different payload"
    assert (page.verdict.counts.requests, page.verdict.counts.effects) == (1, 1)
    differing = {row.field: row.result for row in page.diff.differing}
    assert differing == {"Amount": "€36.00 less"}, "said once, though two members say it"
    marked = [
        "".join(f"[{one.text}]" if one.differs else one.text for one in row.provider)
        for row in page.diff.differing
    ]
    assert marked == ["€1,2[04].00"]
    assert {row.field for row in page.diff.matching} == {"currency", "order", "payment"}


def test_every_record_that_was_found_is_compared(operator: Client) -> None:
    opened = cases.open_case()
    cases.looked_up(opened, cases.several(opened))
    page = page_of(operator, f"/cases/{opened.case_id}/")
    assert (page.verdict.counts.effects, page.verdict.counts.carrying_key) == (2, 2)
    assert page.verdict.title == "More effects than intended"
    assert page.question == "Which refund of €1,240.00 is the one that was intended?"
    assert len(page.other_diffs) == 1
    body = show(operator, opened)
    assert "What becomes of the other effect is asked next" in body
    for title in ("Intended effect and record 1 of 2, rfd_01", "Intended effect and record 2 of 2, rfd_02"):
        assert body.count(title) == 1
    ids = re.findall(r'\bid="([^"]+)"', body)
    assert len(ids) == len(set(ids))


def test_something_alike_is_not_called_ours(operator: Client) -> None:
    opened = cases.open_case()
    cases.looked_up(opened, cases.candidate(opened))
    page = page_of(operator, f"/cases/{opened.case_id}/")
    counts = page.verdict.counts
    assert (counts.effects, counts.uncounted, counts.alike) == (None, "not known", 1)
    ((row,),) = (group.rows for group in page_of(operator, "/").groups)
    assert (row.counts.effects, row.counts.uncounted) == (None, "not known"), "the same as on the page"
    _, standing = page.diff.standing
    assert standing == "Receipt rfd_01 doesn’t carry our key or reference.", "and no reason that doesn't hold"
    assert page.diff.differing[0].field == "Our key or reference"
    assert page.diff.differing[0].provider is None


def test_not_found_is_never_said_to_be_proof_where_it_isnt(operator: Client) -> None:
    opened = cases.needs_decision()
    page = page_of(operator, f"/cases/{opened.case_id}/")
    assert page.verdict.title == "Not found, which proves nothing"
    assert page.verdict.open
    assert page.diff is None
    assert page.no_diff == "Nothing to compare: lookups have found no effect."


def test_a_provider_that_cant_be_asked_is_said_to_be_one(operator: Client) -> None:
    opened = cases.needs_decision(Effect(tool="book_pickup", provider=cases.COURIER, minor=None))
    page = page_of(operator, f"/cases/{opened.case_id}/")
    assert page.verdict.title == "Nobody can look this up"
    assert page.verdict.counts.effects is None
    assert page.verdict.lookup_href == ""
    assert page.panel.window.note == "No key support"


def test_what_settled_by_itself_asks_nobody(operator: Client) -> None:
    opened = cases.open_case()
    cases.looked_up(opened, cases.found(opened))
    page = page_of(operator, f"/cases/{opened.case_id}/")
    assert page.verdict.title == "It happened"
    assert page.panel.kind == "closed"
    assert "without a person" in page.panel.text[0]
    assert "limits what you can do" not in page.questions_summary
    assert [str(one.answer) for one in page.questions][-1] == "settled"
    assert "no" not in page.questions_summary.split(), page.questions_summary
    assert (
        '<span class="ans ans--settled tone-grey">'
        in operator.get(f"/cases/{opened.case_id}/").content.decode()
    )
    ((row,),) = (group.rows for group in page_of(operator, "/?view=resolved").groups)
    assert row.answers == tuple(one.answer for one in page.questions)
    assert (page.verdict.counts.requests, page.verdict.counts.effects) == (1, 1)


def test_a_late_success_is_one_effect_more_than_was_given_up(db: None) -> None:
    by_role = people()
    opened = cases.needs_decision(team="demo")
    decided(opened, by_role[Role.OPERATOR], "abandon", then="end")  # type: ignore[arg-type]
    late = late_success(opened)
    client = Client()
    client.force_login(by_role[Role.OPERATOR])
    page = page_of(client, f"/cases/{late.case_id}/")
    assert page.verdict.title == "An effect appeared after the operation was abandoned"
    assert page.verdict.counts.effects == 1
    assert page.panel.window is None
    assert page.keyfacts[1].label == "Open for", "what became of it is known by now"
    assert page.is_conflict
    ((row,),) = (group.rows for group in page_of(client, "/").groups)
    assert row.counts.effects == 1, "the same as on the page"


def test_the_record_holds_the_payload_byte_for_byte(operator: Client) -> None:
    args = {"note": "a  b", "ratio": 1.5, "big": 9007199254740991, "empty": {}, "list": []}
    opened = cases.needs_decision(Effect(args=args, minor=None))
    page = page_of(operator, f"/cases/{opened.case_id}/")
    stored = bytes(opened.operation.payload)
    assert json.loads(page.payload.text) == json.loads(stored)
    # White space between tokens is all that laying it out may add.
    assert re.sub(r'\s(?=(?:[^"]*"[^"]*")*[^"]*$)', "", page.payload.text) == stored.decode()
    assert page.payload.digest == opened.operation.payload_digest
    facts = {fact.label: fact.copy for fact in page.record}
    assert facts["Idempotency key"] == opened.operation.key


def test_the_timeline_tells_who_did_what_in_order(operator: Client) -> None:
    opened = cases.needs_decision()
    page = page_of(operator, f"/cases/{opened.case_id}/")
    titles = [item.title for item in page.timeline]
    assert titles == [
        "Intent recorded",
        "Request sent",
        "The sender’s report",
        "Case opened",
        "Lookup: not found, no proof",
        "2 more lookups, the same answer",
        "A person is asked",
        "Decision",
    ]
    assert page.timeline[1].actor.name == factories.WORKER
    assert [item.gap for item in page.timeline[:2]] == [False, True]


def test_the_same_answer_again_is_one_piece_of_evidence_with_its_number(operator: Client) -> None:
    opened = cases.needs_decision()
    page = page_of(operator, f"/cases/{opened.case_id}/")
    assert len(page.evidence) == 2
    assert "came 2 times before" in "".join(str(part) for part in page.evidence[0].text)


def test_older_evidence_is_a_page_away(operator: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(case_queries, "EVIDENCE_ROWS", 2)
    opened = cases.needs_decision()
    page = page_of(operator, f"/cases/{opened.case_id}/")
    assert page.evidence_more is not None
    older = page_of(operator, f"/cases/{opened.case_id}/{page.evidence_more.href.split('#')[0]}")
    assert {one.evidence_id for one in older.evidence}.isdisjoint(one.evidence_id for one in page.evidence)
    assert older.evidence_more is None


def test_neighbours_in_the_queue_are_one_link_away(operator: Client) -> None:
    first, second, third = (cases.needs_decision(Effect(minor=minor)) for minor in (300, 200, 100))
    at = first.case.worsens_at
    type(first.case).objects.update(worsens_at=at)
    page = page_of(operator, f"/cases/{second.case_id}/")
    around = [f"/cases/{one.case_id}/#question" for one in (first, third)]
    assert [page.previous_href, page.next_href] == around
    assert page.place == "2 of 3"


# --- Moving parts ---------------------------------------------------------------------------------------


def test_a_page_is_asked_for_again_only_while_something_is_under_way(operator: Client) -> None:
    waiting = cases.needs_decision()
    later = waiting.case.opened_at + timedelta(hours=1)
    type(waiting.case).objects.filter(pk=waiting.case_id).update(next_lookup_at=later)
    assert page_of(operator, f"/cases/{waiting.case_id}/").live_href == ""
    looking = cases.open_case()
    live = page_of(operator, f"/cases/{looking.case_id}/").live_href
    body = operator.get(live, headers={"HX-Request": "true"}).content.decode()
    assert "Not looked up yet" in body
    assert "<html" not in body
    assert (
        '<form method="post" action="/cases/' not in body.replace('no-print" ', "") or "decision" not in body
    )


def test_a_case_that_waits_for_its_provider_says_what_for_and_until_when(operator: Client) -> None:
    opened = cases.open_case()
    due = page_of(operator, f"/cases/{opened.case_id}/").verdict
    assert due.note == ("A lookup is due now and runs by itself.",)
    now = database_now()
    AccountGate.objects.create(
        account_id=opened.case.provider_slug,
        breaker_state="open",
        breaker_since_at=now,
        breaker_probe_at=now + timedelta(minutes=5),
        failed_because="The provider answered 500 to the question.",
    )
    held = page_of(operator, f"/cases/{opened.case_id}/").verdict
    assert "Breaker open since" in str(held.note[0])
    assert "next probe at" in str(held.note[0])
    assert "The provider answered 500" in str(held.note[0])
    assert (held.lookup_href, due.lookup_href) == ("", "")


def test_a_parked_case_that_nobody_was_asked_about_says_why(operator: Client) -> None:
    opened = cases.open_case()
    why = "It could not be looked up in time. Breaker open since 30 Nov 01:18:09Z."
    Case.objects.filter(pk=opened.case_id).update(
        state="needs_decision", need="parked", needs_decision_since_at=database_now(), parked_because=why
    )
    verdict = page_of(operator, f"/cases/{opened.case_id}/").verdict
    assert (verdict.title, verdict.text) == ("The provider couldn’t be asked", (why,))


def test_news_come_only_when_the_case_has_moved_and_swap_no_form(operator: Client) -> None:
    opened = cases.needs_decision()
    news = page_of(operator, f"/cases/{opened.case_id}/").news_href
    assert operator.get(news).content.decode().strip() == ""
    cases.looked_up(opened, cases.not_found())
    assert operator.get(news).content.decode().strip() == ""
    cases.looked_up(opened, cases.candidate(opened))
    body = operator.get(news).content.decode()
    assert "This case has changed since you opened it." in body
    assert "One record looks alike" in body
    assert "<form" not in body
    assert "<textarea" not in body
    for odd in ("?version=x", "?version=99999999999999999999", "", "?digest=%00"):
        assert operator.get(f"/cases/{opened.case_id}/news/{odd}").status_code == 200


# --- Inert, bounded, cheap ------------------------------------------------------------------------------


def test_hostile_text_of_agents_and_providers_is_only_text(operator: Client) -> None:
    opened = cases.open_case(
        Effect(args={"title": HOSTILE, HOSTILE: HOSTILE, "order": "1"}),
        external_id=HOSTILE[:150],
        goal=HOSTILE,
    )
    record = cases.record_of(opened, order=HOSTILE, note=HOSTILE, status=HOSTILE)
    finding = cases.mismatch(opened, order=HOSTILE, note=HOSTILE)
    cases.looked_up(opened, finding)
    with factories.held(opened.operation) as locked:
        from runs.actors import Actor, ActorKind
        from runs.journal.evidence import record_evidence
        from runs.states import Claim, EvidenceKind

        record_evidence(
            locked,
            kind=EvidenceKind.WEBHOOK,
            claim=Claim.UNKNOWN,
            summary=HOSTILE,
            actor=Actor(ActorKind.WORKER, HOSTILE[:90]),
            reference=HOSTILE,
            seen={"headers": [[HOSTILE, HOSTILE]], "error": HOSTILE},
            body=(HOSTILE + json.dumps(record)).encode(),
        )
    run = opened.run.pk
    for path in (
        "/",
        f"/cases/{opened.case_id}/",
        "/runs/",
        f"/runs/{run}/",
        "/effects/",
        f"/search/?q={run[:8]}",
    ):
        body = operator.get(path, follow=True).content.decode()
        assert "<script>alert" not in body, path
        assert "<img src=x" not in body, path
        assert "\u202e" not in body, path
        assert "\u200b" not in body, path
    shown = show(operator, opened)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in shown
    assert "⟨U+202E⟩" in shown


def test_secrets_in_evidence_are_not_shown(operator: Client) -> None:
    opened = cases.needs_decision()
    with factories.held(opened.operation) as locked:
        from runs.actors import SWEEPER
        from runs.journal.evidence import record_evidence
        from runs.states import Claim, EvidenceKind

        record_evidence(
            locked,
            kind=EvidenceKind.WEBHOOK,
            claim=Claim.UNKNOWN,
            summary="A notice.",
            actor=SWEEPER,
            seen={"headers": [["X", "y"]], "token": "tok-very-secret-1"},
            body=b'{"password": "hunter2hunter2", "card": "4111 1111 1111 1111"}',
        )
    body = show(operator, opened)
    for secret in ("tok-very-secret-1", "hunter2hunter2", "4111 1111 1111 1111"):
        assert secret not in body
    assert "[redacted" in body


def test_a_huge_body_is_cut_and_says_so(operator: Client) -> None:
    opened = cases.needs_decision()
    body = json.dumps({"data": ["x" * 50] * 4_000}).encode()
    finding = cases.not_found()
    cases.looked_up(
        opened,
        type(finding)(
            summary="Nothing of ours.",
            exchange=type(finding.exchange)(  # type: ignore[misc]
                method="GET",
                url="http://127.0.0.1/",
                status=200,
                body=body.decode()[:65_536],
                body_length=len(body),
            ),
        ),
    )
    answer = operator.get(f"/cases/{opened.case_id}/")
    assert len(answer.content) < 200_000
    views = [view for item in answer.context["page"].evidence for view in item.bodies if view.cut]
    assert views


def statements(client: Client, address: str) -> int:
    """How many a page costs that was opened before."""
    client.get(address)
    with CaptureQueriesContext(connection) as asked:
        assert client.get(address).status_code == 200
    return len(asked)


def test_a_case_of_many_events_costs_as_many_queries_as_one_of_few(operator: Client) -> None:
    opened = cases.needs_decision()
    address = f"/cases/{opened.case_id}/"
    few = statements(operator, address)
    for _ in range(32):
        cases.looked_up(opened, cases.not_found())
    assert statements(operator, address) == few <= CASE_QUERIES_MAX
    older = Evidence.objects.order_by("-recorded_at", "-id")[30]
    assert statements(operator, f"{address}?evidence_before={older.pk}") <= CASE_QUERIES_MAX
    for fragment in ("live/", "news/", "desk/"):
        assert statements(operator, f"{address}{fragment}") <= CASE_QUERIES_MAX


def test_older_evidence_goes_on_where_the_page_ended(operator: Client) -> None:
    opened = cases.needs_decision()
    for _ in range(2):
        cases.looked_up(opened, cases.not_found())
    newest, last, *older = Evidence.objects.order_by("-recorded_at", "-id")
    assert older

    def shown(before: str) -> list[Evidence]:
        read = case_queries.read_case(opened.case_id, teams=[factories.TEAM], evidence_before=before)
        return list(read.evidence)

    assert shown(last.pk) == older
    # Of one instant, the id goes on.
    Evidence.objects.filter(pk=newest.pk).update(recorded_at=last.recorded_at)
    assert set(shown(max(newest.pk, last.pk))) == {*older, min(newest, last, key=lambda one: one.pk)}
    assert set(shown("ev_01KB7PW2ZC0000000000000000")) == {newest, last, *older}


def _put_off(by: object) -> cases.Opened:
    opened = cases.needs_decision()
    now = database_now()
    kim = Worker(actor=Actor(ActorKind.PERSON, "person:1", "operator"), name="Kim")
    claim_case(case_id=opened.case_id, team=None, worker=kim)
    snooze(
        case_id=opened.case_id,
        team=None,
        worker=kim,
        until_at=now + timedelta(minutes=30),
        reason="Waiting for their answer.",
    )
    add_note(case_id=opened.case_id, team=None, worker=kim, text="Phoned them.", key="k1")
    return opened


def _retrying(by: object) -> cases.Opened:
    opened = cases.needs_decision()
    decided(opened, by, "retry", executor="agent")  # type: ignore[arg-type]
    return opened


def _due(by: object) -> cases.Opened:
    opened = cases.open_case()
    Case.objects.filter(pk=opened.case_id).update(next_lookup_at=database_now())
    return opened


def _settled(by: object) -> cases.Opened:
    opened = cases.open_case()
    cases.looked_up(opened, cases.found(opened))
    return opened


def _conflict(by: object) -> cases.Opened:
    opened = cases.needs_decision()
    decided(opened, by, "abandon", then="end")  # type: ignore[arg-type]
    return late_success(opened)


def _several(by: object) -> cases.Opened:
    opened = cases.open_case()
    cases.looked_up(opened, cases.several(opened))
    return opened


@pytest.mark.parametrize("made", [_put_off, _retrying, _due, _settled, _conflict, _several])
def test_a_case_in_any_state_costs_no_more_than_so_many_statements(
    made: Callable[[object], cases.Opened], operator: Client
) -> None:
    by = Person.objects.get()
    opened = made(by)
    assert statements(operator, f"/cases/{opened.case_id}/") <= CASE_QUERIES_MAX


def test_a_case_of_an_account_that_is_gone_says_so_and_the_queue_still_works(
    operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    from reconciliation.providers import registry

    opened = cases.needs_decision()

    def gone(slug: str) -> None:
        raise registry.UnknownProvider(f"No provider account “{slug}” is declared.")

    monkeypatch.setattr(registry, "account", gone)
    page = page_of(operator, f"/cases/{opened.case_id}/")
    assert "(no longer declared)" in page.subject[0]
    assert [action.selectable for action in page.panel.actions] == [True, True, True]
    ((row,),) = (group.rows for group in page_of(operator, "/").groups)
    assert row.window.note == "No key support"
    answer = operator.get(f"/runs/{opened.run.pk}/")
    assert answer.status_code == 200


# --- What became of a retry -------------------------------------------------------------------------------


def progress(client: Client, opened: cases.Opened) -> list[tuple[str, str]]:
    page = page_of(client, f"/cases/{opened.case_id}/")
    return [(one.title, one.state) for one in page.progress]


def test_a_retry_is_told_from_requested_to_sent_to_verified_as_it_becomes_true(operator: Client) -> None:
    opened = cases.needs_decision()
    assert progress(operator, opened) == []
    assert decide(operator, opened, "retry", executor="agent").status_code == 302
    asked = ("Requested", "done")
    assert progress(operator, opened) == [asked, ("To be sent", "now"), ("To be verified", "ahead")]
    cases.looked_up(opened, cases.not_found())
    assert progress(operator, opened) == [asked, ("To be sent", "now"), ("To be verified", "ahead")]
    token = factories.claim(opened.run)
    begin_send(team=opened.case.team_id, operation_id=opened.operation.pk, token=token, attempt_id="a2")
    live = operator.get(f"/cases/{opened.case_id}/live/").content.decode()
    assert "The retry, step by step" in live, "it follows by itself"
    assert progress(operator, opened) == [asked, ("Sent", "done"), ("To be verified", "now")]
    cases.looked_up(opened, cases.found(opened))
    assert progress(operator, opened) == [asked, ("Sent", "done"), ("Verified", "done")]


def test_a_retry_that_a_lookup_made_needless_says_that_nothing_was_sent(operator: Client) -> None:
    opened = cases.needs_decision()
    decide(operator, opened, "retry", executor="agent")
    cases.looked_up(opened, cases.found(opened))
    assert progress(operator, opened) == [("Requested", "done"), ("Not sent", "ended"), ("Verified", "done")]
