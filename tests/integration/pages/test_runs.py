"""Runs: the list, the plan that a page shows, and taking a lease away."""

from __future__ import annotations

import pytest
from django.db import connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext

from console.models import Role
from console.pages.present.steps import axis_of
from runs.journal.ending import complete_run
from runs.leases import add_pause_reason, claim
from runs.locking import lock_run
from runs.models import AuditLeaf, Run
from runs.plan import build_plan
from runs.states import PauseReason
from tests import cases, factories
from tests.browser.seeding import _many_steps
from tests.cases import REASON
from tests.integration.pages.conftest import Login
from tests.integration.pages.forms import decide, page_of
from tests.many import more_cases

RUN_QUERIES_MAX = 12


@pytest.fixture
def operator(login: Login) -> Client:
    return login(Role.OPERATOR)


def pause(run: Run, reason: PauseReason) -> None:
    with transaction.atomic():
        add_pause_reason(lock_run(run_id=run.pk, team=None), reason)


def test_the_page_promises_what_a_resuming_worker_is_told(operator: Client) -> None:
    cases.needs_decision()
    run = _many_steps(factories.TEAM)
    page = page_of(operator, f"/runs/{run.pk}/")
    rows = [row for turn in page.turns for row in turn.rows]
    planned = [call["next"] for turn in build_plan(run)["turns"] for call in turn["calls"]]
    assert [row.next for row in rows] == planned == ["skip", "skip", "wait", "send", "send"]
    assert {one.next: one.count for one in page.plan} == {"skip": 2, "wait": 1, "send": 2}
    assert [turn.title for turn in page.turns] == ["Turn 1", "Turn 2", "Turn 3, paused here"]
    assert page.steps_summary == "2 of 5 steps done"
    here = [row for row in rows if row.here]
    assert [row.name for row in here] == ["Refund €1,240.00"]
    assert here[0].href.startswith("/cases/case_")


def test_the_budget_is_shown_in_exact_parts(operator: Client) -> None:
    cases.needs_decision()
    run = _many_steps(factories.TEAM)
    budget = page_of(operator, f"/runs/{run.pk}/").budget
    parts = (budget.limit, budget.spent, budget.reserved, budget.remaining)
    assert [one.minor for one in parts] == [500_000, 231_040, 124_000, 144_960]
    assert budget.spent_width + budget.reserved_width <= 1000


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        (PauseReason.BUDGET, "the next effect would exceed its budget"),
        (PauseReason.APPROVAL, "its approval has ended"),
        (PauseReason.FLOW_VERSION, "no worker of its pinned flow version comes"),
        (PauseReason.FROZEN, "sending is frozen after a restore"),
    ],
)
def test_a_paused_run_says_why_and_what_would_let_it_go_on(
    operator: Client, reason: PauseReason, said: str
) -> None:
    run = factories.make_run()
    pause(run, reason)
    page = page_of(operator, f"/runs/{run.pk}/")
    assert said in page.banner.title[0]
    assert page.banner.text
    rows = page_of(operator, "/runs/").rows
    assert rows[0].why == said
    assert page.timeline[-1].text == (f"{said[0].upper()}{said[1:]}.",)


def test_a_run_that_waits_for_a_decision_leads_to_its_case(operator: Client) -> None:
    opened = cases.needs_decision()
    page = page_of(operator, f"/runs/{opened.run.pk}/")
    assert page.banner.title == ("Paused at step 1: the outcome of the €1,240.00 refund is unknown",)
    assert page.banner.action.href == f"/cases/{opened.case_id}/"


def test_runs_are_listed_by_state_and_found_by_what_they_are_called(operator: Client) -> None:
    paused = cases.needs_decision(external_id="ORD-1").run
    fresh = factories.make_run(external_id="ORD-2", flow="other-flow")
    done = factories.make_run(external_id="ORD-3")
    complete_run(team=done.team_id, run_id=done.pk, token=factories.claim(done), output={"ok": True})

    def listed(query: str) -> list[str]:
        return [row.run_id for row in page_of(operator, f"/runs/?{query}").rows]

    assert listed("") == [done.pk, fresh.pk, paused.pk]
    assert listed("view=paused") == [paused.pk]
    assert listed("view=completed") == [done.pk]
    assert listed("q=ORD-2") == [fresh.pk]
    assert listed(f"q={done.pk}") == [done.pk]
    assert listed("flow=other-flow") == [fresh.pk]
    assert listed("q=%00&flow=%00") == [done.pk, fresh.pk, paused.pk]
    assert page_of(operator, "/runs/?q=nothing").empty.title == "No run matches"
    assert page_of(operator, f"/runs/{done.pk}/").output is not None


def test_an_effect_that_nobody_knows_about_isnt_counted_as_none(operator: Client) -> None:
    cases.needs_decision()
    (row,) = page_of(operator, "/runs/").rows
    assert (row.counts.requests, row.counts.effects) == (1, None)
    assert _said_of_effects(operator, row.run_id) == ("1 request, effects not known yet", ())


def test_one_effect_beside_one_that_nobody_knows_about_is_both_and_never_just_one(operator: Client) -> None:
    cases.needs_decision()
    run = _many_steps(factories.TEAM)
    rows = {row.run_id: row for row in page_of(operator, "/runs/").rows}
    counts = rows[run.pk].counts
    assert (counts.effects, counts.unknown) == (1, 1)
    assert "+ 1 unknown" in " ".join(operator.get("/runs/", secure=True).content.decode().split())
    assert _said_of_effects(operator, run.pk)[1] == ("1 more may have happened",)


def _said_of_effects(operator: Client, run_id: str) -> tuple[str, tuple[str, ...]]:
    facts = {fact.label: fact for fact in page_of(operator, f"/runs/{run_id}/").facts}
    return facts["Requests, effects"].value[0], facts["Requests, effects"].note


def test_an_effect_that_was_given_up_isnt_counted_as_none(operator: Client) -> None:
    opened = cases.needs_decision()
    decide(operator, opened, "abandon", then="end")
    (row,) = page_of(operator, "/runs/").rows
    assert (row.counts.requests, row.counts.effects, row.counts.uncounted) == (1, None, "not known")
    assert _said_of_effects(operator, row.run_id) == ("1 request, effects not known", ())
    # Nobody resumes it any more.
    text = operator.get(f"/runs/{row.run_id}/", secure=True).content.decode()
    assert "What came of it</th>" in text
    assert "At resume" not in text
    assert 'class="next' not in text


def test_pages_of_runs_follow_one_another(operator: Client) -> None:
    more_cases(cases.needs_decision(), 70)
    seen: list[str] = []
    path = "/runs/"
    while path:
        page = page_of(operator, path)
        seen += [row.run_id for row in page.rows]
        path = f"/runs/{page.next.href}" if page.next else ""
    assert len(seen) == len(set(seen)) == 71


def test_fifty_runs_cost_as_many_queries_as_one(operator: Client) -> None:
    opened = cases.needs_decision()
    operator.get("/runs/")
    with CaptureQueriesContext(connection) as one:
        operator.get("/runs/")
    more_cases(opened, 60)
    with CaptureQueriesContext(connection) as many:
        operator.get("/runs/")
    assert len(many) == len(one)


def test_a_run_of_many_steps_costs_as_many_queries_as_one_of_few(operator: Client) -> None:
    few_run = cases.needs_decision().run
    many_run = _many_steps(factories.TEAM)
    operator.get("/runs/")
    with CaptureQueriesContext(connection) as few:
        operator.get(f"/runs/{few_run.pk}/")
    with CaptureQueriesContext(connection) as many:
        operator.get(f"/runs/{many_run.pk}/")
    assert len(many) <= len(few) <= RUN_QUERIES_MAX


# --- The lease ------------------------------------------------------------------------------------------


def test_a_revoked_lease_is_on_record_with_who_and_why(operator: Client) -> None:
    run = factories.make_run()
    token = factories.claim(run)
    page = page_of(operator, f"/runs/{run.pk}/")
    assert page.leases[0].can_write.word == "Yes"
    answer = operator.post(page.revoke_href, {"reason": REASON})
    assert answer["Location"] == f"/runs/{run.pk}/"
    assert factories.fresh(run).lease_token is None
    leaf = AuditLeaf.objects.get(run_ref=run.pk, action="lease.ended")
    assert leaf.actor_kind == "person"
    assert REASON.encode() in bytes(leaf.body)
    page = page_of(operator, f"/runs/{run.pk}/")
    assert page.leases[0].why == "Revoked by a person"
    assert page.revoke_href == ""
    assert token


def test_a_lease_isnt_revoked_without_a_reason_or_twice(operator: Client) -> None:
    run = factories.make_run()
    factories.claim(run)
    path = f"/runs/{run.pk}/lease/revocation/"
    answer = operator.post(path, {"reason": "why not"})
    assert answer.status_code == 422
    assert ">why not</textarea>" in answer.content.decode()
    assert factories.fresh(run).lease_token is not None
    assert operator.post(path, {"reason": REASON}).status_code == 302
    answer = operator.post(path, {"reason": REASON})
    assert answer.status_code == 409
    assert "Nobody holds run" in answer.content.decode()


def test_an_old_worker_that_may_still_reach_the_provider_is_not_called_harmless(operator: Client) -> None:
    claimed = factories.make_claimed()
    factories.send(claimed)
    operator.post(f"/runs/{claimed.run.pk}/lease/revocation/", {"reason": REASON})
    lease = page_of(operator, f"/runs/{claimed.run.pk}/").leases[0]
    assert lease.can_write.word == "To the provider, yes"
    factories.quieten(claimed.operation)
    lease = page_of(operator, f"/runs/{claimed.run.pk}/").leases[0]
    assert lease.can_write.word == "No"


def test_a_run_of_another_version_says_which_versions_run(operator: Client) -> None:
    run = factories.make_run()
    other = factories.make_run(flow_version="7")
    claim(
        team=other.team_id,
        run_id=other.pk,
        claim_id="c",
        worker="w",
        flow_version="7",
        lease_seconds=60,
    )
    fact = page_of(operator, f"/runs/{run.pk}/").facts[0]
    assert "also running: 7" in fact.note[0]


def test_lookups_in_a_row_with_one_answer_are_two_lines_of_the_timeline(operator: Client) -> None:
    opened = cases.needs_decision()
    timeline = page_of(operator, f"/runs/{opened.run.pk}/").timeline
    titles = [item.title for item in timeline]
    first = titles.index("Lookup: not found, no proof")
    made = opened.case.lookups_count
    assert made >= 3
    assert titles[first + 1] == f"{made - 1} more lookups, the same answer"
    assert titles.count("Lookup: not found, no proof") == 1
    assert [item.at for item in timeline] == sorted(item.at for item in timeline)
    # Each says how long after the one before it came, not how long ago.
    assert all(item.elapsed for item in timeline[1:])


def test_the_axis_says_where_the_run_is_paused_and_no_two_labels_meet(operator: Client) -> None:
    opened = cases.needs_decision()
    axis = page_of(operator, f"/runs/{opened.run.pk}/").axis
    assert "paused" in [label.text for label in axis]
    clocks = ("10:00:00Z", "10:01", "10:02", "10:03")
    assert [(one.x, one.text) for one in axis_of(clocks, None)] == list(
        zip((0, 25, 50, 75), clocks, strict=True)
    )
    middle = axis_of(clocks, (400, 250))
    assert [(one.x, one.text) for one in middle] == [(0, "10:00:00Z"), (40, "paused"), (65, "next")]
    late = axis_of(clocks, (950, 50))
    assert [(one.x, one.text, one.anchor) for one in late][-1] == (95, "paused", "end")
    assert "next" not in [one.text for one in late]
