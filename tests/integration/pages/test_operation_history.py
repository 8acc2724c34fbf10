"""Everything that happened to one operation, in order; and what was known when somebody decided about it."""

from __future__ import annotations

import json

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from console.access import person_actor
from console.models import Person, Role
from reconciliation import reports
from reconciliation.models import Decision
from reconciliation.retrospect import known_at
from reconciliation.revealing import reveal
from reconciliation.tightening import tighten
from reconciliation.working import Worker, claim_case
from runs.models import AuditLeaf, Evidence
from tests import cases
from tests.cases import REASON
from tests.integration.pages.conftest import Login
from tests.integration.pages.forms import decide, page_of
from tests.many import copy_rows

QUERIES_MAX = 12
SECRET = "hunter2hunter2"


@pytest.fixture
def operator(login: Login) -> Client:
    return login(Role.OPERATOR)


@pytest.fixture
def auditor(login: Login) -> Client:
    return login(Role.AUDITOR)


def worker_of(name: str) -> Worker:
    return Worker(actor=person_actor(Person.objects.get(username=name)), name=name)


def story(operator: Client) -> cases.Opened:
    """A case that was claimed, noted about, looked into and given up."""
    opened = cases.needs_decision(cases.Effect(args={"password": SECRET}))
    person = worker_of("operator")
    claim_case(case_id=opened.case_id, team=None, worker=person)
    reveal(case_id=opened.case_id, team=None, worker=person, name="payload", reason="To compare it by eye.")
    decide(operator, opened, "abandon", then="end")
    return opened


def test_everything_that_happened_stands_in_order_with_who_when_and_why(
    operator: Client, auditor: Client
) -> None:
    opened = story(operator)
    page = page_of(auditor, f"/effects/{opened.operation.pk}/")
    titles = [item.title for item in page.items]
    wanted = [
        "Run started",
        "Run claimed",
        "Intent recorded",
        "Request sent",
        "Case opened",
        "Lookup: not found, no proof",
        "A person is asked",
        "Claimed to work on",
        "Hidden parts shown to somebody",
        "Decided: abandon",
        "Given up",
        "Case resolved",
    ]
    positions = [titles.index(one) for one in wanted]
    assert positions == sorted(positions)
    assert [item.at for item in page.items] == sorted(item.at for item in page.items)
    asked = page.items[titles.index("A person is asked")]
    assert (asked.text, asked.reason) == (("Not found, which proves nothing.",), "")
    decided = page.items[titles.index("Decided: abandon")]
    assert decided.reason == REASON
    assert (decided.actor.name, decided.role) == ("operator", "operator")
    assert decided.evidence == Decision.objects.get().evidence_digest
    assert {one.name: (one.before, one.after) for one in decided.moved}["state"] == ("needs_decision", "")
    given_up = page.items[titles.index("Given up")]
    assert {one.name: (one.before, one.after) for one in given_up.moved}["state"] == (
        "sent_unknown",
        "abandoned",
    )


def test_what_is_hidden_stays_hidden(operator: Client, auditor: Client) -> None:
    opened = story(operator)
    decision = Decision.objects.get()
    for path in (
        f"/effects/{opened.operation.pk}/",
        f"/effects/{opened.operation.pk}/decisions/{decision.pk}/",
    ):
        answer = auditor.get(path)
        assert SECRET not in answer.content.decode(), path
        assert answer.context["page"].payload.hidden_count == 1, path


def test_each_entry_has_an_address_that_leads_to_it_wherever_it_stands(
    operator: Client, auditor: Client
) -> None:
    opened = story(operator)
    for leaf in AuditLeaf.objects.all():
        answer = auditor.get(f"/effects/entries/{leaf.pk}/", follow=True)
        assert f'id="entry-{leaf.pk}"' in answer.content.decode(), leaf.action
    source = AuditLeaf.objects.filter(action="evidence.recorded").latest("id")
    copy_rows("runs_auditleaf", source.pk, 450, id="source.id + 100000 + n")
    late = source.pk + 100_000 + 430
    answer = auditor.get(f"/effects/entries/{late}/", follow=True)
    assert f'id="entry-{late}"' in answer.content.decode()
    page = answer.context["page"]
    assert [item.number for item in page.items if item.current] == [late]
    # From the first entry every page leads on to the next, and none is missed.
    seen: list[int] = []
    path = page.earlier.href
    while path:
        page = page_of(auditor, path)
        seen += [item.number for item in page.items]
        path = page.later.href if page.later else ""
    assert len(seen) == len(set(seen))
    of_it = AuditLeaf.objects.filter(operation_ref=opened.operation.pk)
    assert {late, *of_it.values_list("pk", flat=True)} <= set(seen)


def test_another_teams_history_is_not_found(operator: Client, login: Login) -> None:
    opened = story(operator)
    outsider = login(Role.AUDITOR, name="outsider", team="other")
    leaf = AuditLeaf.objects.latest("id")
    other = cases.needs_decision(team="other")
    decision = Decision.objects.get()
    for path in (
        f"/effects/{opened.operation.pk}/",
        f"/effects/{opened.operation.pk}/decisions/{decision.pk}/",
        # Their own operation with our decision.
        f"/effects/{other.operation.pk}/decisions/{decision.pk}/",
        f"/effects/entries/{leaf.pk}/",
        "/effects/entries/99999999999999999999999/",
        "/effects/op_nothing/",
        "/effects/%00/",
    ):
        assert outsider.get(path).status_code == 404, path


def test_a_decision_is_shown_as_it_was_known_and_that_is_proved(operator: Client, auditor: Client) -> None:
    opened = cases.needs_decision()
    shown = page_of(operator, f"/cases/{opened.case_id}/")
    decide(operator, opened, "abandon", then="end")
    # Afterwards the worker comes back with a receipt, which opens a conflict.
    reports.report_receipt(
        sender=reports.Sender(team=opened.run.team_id, token=opened.claimed.token),
        operation_id=opened.operation.pk,
        attempt_id="a1",
        reference="rfd_9",
        seen=reports.SeenReply(status=200, body=b'{"id": "rfd_9"}'),
    )
    decision = Decision.objects.get()
    page = page_of(auditor, f"/effects/{opened.operation.pk}/decisions/{decision.pk}/")
    assert page.proof.tone == "green"
    assert [one.answer for one in page.questions] == [one.answer for one in shown.questions]
    assert [one.why for one in page.questions] == [one.why for one in shown.questions]
    assert [offer.title for offer in page.offers if offer.taken] == ["Abandon"]
    assert {one.evidence_id for one in page.evidence} == {item.evidence_id for item in shown.evidence} | {
        one.pk for one in Evidence.objects.filter(kind="lookup")
    }
    assert page.verdict_title.startswith("Not found")
    assert page.later.startswith("1 piece of evidence")


def test_what_a_decision_brought_with_it_was_not_known_before_it(operator: Client) -> None:
    opened = cases.needs_decision()
    record = json.dumps(cases.record_of(opened, id="rfd_77"))
    decide(operator, opened, "confirm", given_reference="rfd_77", given_body=record)
    decision = Decision.objects.get()
    known = known_at(decision_id=decision.pk, operation=opened.operation)
    assert decision.evidence_id not in {one.pk for one in known.evidence}
    assert known.operation.state == "sent_unknown"
    assert known.agrees


def test_a_contract_that_was_tightened_since_is_wound_back(operator: Client, auditor: Client) -> None:
    opened = cases.needs_decision()
    decide(operator, opened, "abandon", then="end")
    tighten(
        account=opened.operation.provider_id,
        wanted={"lookups": False},
        reason="Their list leaves some out.",
        seen_number=0,
        actor=worker_of("operator").actor,
    )
    known = known_at(decision_id=Decision.objects.get().pk, operation=opened.operation)
    assert known.agrees


def test_where_the_digest_isnt_the_same_the_page_says_so(operator: Client, auditor: Client) -> None:
    opened = cases.needs_decision()
    decide(operator, opened, "abandon", then="end")
    Decision.objects.update(evidence_digest="0" * 64, policy="policy-0")
    page = page_of(auditor, f"/effects/{opened.operation.pk}/decisions/{Decision.objects.get().pk}/")
    assert page.proof.tone == "amber"
    assert "The policy was policy-0 then" in "".join(
        part if isinstance(part, str) else part.text for part in page.proof.text
    )


def test_a_history_costs_as_many_queries_long_as_short(operator: Client, auditor: Client) -> None:
    opened = story(operator)
    decision = Decision.objects.get()
    path = f"/effects/{opened.operation.pk}/"
    auditor.get(path)
    with CaptureQueriesContext(connection) as short:
        auditor.get(path)
    source = AuditLeaf.objects.filter(action="evidence.recorded").latest("id")
    copy_rows("runs_auditleaf", source.pk, 450, id="source.id + 100000 + n")
    with CaptureQueriesContext(connection) as long:
        auditor.get(path)
    assert len(long) <= len(short) <= QUERIES_MAX
    with CaptureQueriesContext(connection) as known:
        auditor.get(f"{path}decisions/{decision.pk}/")
    assert len(known) <= QUERIES_MAX


# --- On paper -------------------------------------------------------------------------------------------


def test_a_case_on_paper_has_everything_with_absolute_times_and_whole_addresses(
    operator: Client, auditor: Client
) -> None:
    opened = story(operator)
    path = f"/cases/{opened.case_id}/report/"
    with CaptureQueriesContext(connection) as asked:
        answer = auditor.get(path)
    assert len(asked) <= QUERIES_MAX
    text = answer.content.decode()
    page = answer.context["page"]
    decision = Decision.objects.get()
    assert SECRET not in text
    for shown in (
        opened.operation.payload_digest,
        opened.operation.key,
        decision.evidence_digest,
        REASON,
        f"http://testserver/effects/{opened.operation.pk}/decisions/{decision.pk}/",
        f"http://testserver/effects/entries/{AuditLeaf.objects.latest('id').pk}/",
        *Evidence.objects.values_list("digest", flat=True),
    ):
        assert shown in text, shown
    assert page.printed.count(" UTC,") == 1
    assert {item.number for item in page.items} >= set(
        AuditLeaf.objects.filter(operation_ref=opened.operation.pk).values_list("pk", flat=True)
    )


def test_a_report_is_for_auditors_and_administrators_of_its_team(operator: Client, login: Login) -> None:
    opened = story(operator)
    path = f"/cases/{opened.case_id}/report/"
    for role in (Role.OPERATOR, Role.APPROVER, Role.VIEWER):
        assert login(role).get(path).status_code == 403, role
    assert login(Role.ADMINISTRATOR).get(path).status_code == 200
    assert login(Role.AUDITOR, name="outsider", team="other").get(path).status_code == 404
