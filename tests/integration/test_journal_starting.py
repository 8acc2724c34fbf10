"""Starting a run: its identity, what a second start may differ in, and what is pinned."""

from __future__ import annotations

from datetime import timedelta

import pytest

from runs.journal.starting import ExternalIdReused, FlowDigestDiffers
from runs.locking import database_now
from runs.models import Approval, AuditLeaf, Flow, FlowVersion, Run
from runs.money import Money
from runs.refusals import Invalid
from tests.concurrency import Connect, Holder, at_once, start
from tests.factories import FLOW, TEAM, VERSION, fresh, make_run, make_team

pytestmark = pytest.mark.django_db(transaction=True)

SAME = {"external_id": "ORD-7", "input": {"order": 7, "total": 1.0}}


def test_a_run_is_pinned_to_what_it_was_started_with() -> None:
    run = make_run(**SAME, budget_minor=500, flow_digest="a" * 64, goal="Restock")
    assert (run.flow.name, run.flow_version.version, run.flow_version.digest) == (FLOW, VERSION, "a" * 64)
    assert (run.state, run.goal, run.turn_index) == ("open", "Restock", 0)
    assert (run.budget_currency, run.budget_limit_minor) == ("EUR", 500)
    assert bytes(run.input) == b'{"order":7,"total":1}'


def test_the_same_start_again_is_the_same_run_however_its_numbers_are_written() -> None:
    first = make_run(**SAME)
    again = make_run(external_id="ORD-7", input={"total": 1, "order": 7.0})
    assert again.pk == first.pk
    assert AuditLeaf.objects.filter(action="run.started").count() == 1


def test_a_second_start_keeps_the_run_as_pinned_whatever_it_names() -> None:
    first = make_run(**SAME, budget_minor=500)
    again = make_run(**SAME, flow_version="7", budget_minor=9_999, goal="Other", approval_id="appr_none")
    assert again.pk == first.pk
    assert (again.flow_version.version, again.budget_limit_minor, again.goal) == (VERSION, 500, "")
    # A version that only a repeat names is not recorded by it.
    assert list(FlowVersion.objects.values_list("version", flat=True)) == [VERSION]


def test_the_same_external_id_with_another_input_is_refused() -> None:
    first = make_run(**SAME)
    with pytest.raises(ExternalIdReused) as refused:
        make_run(external_id="ORD-7", input={"order": 8})
    assert refused.value.details["run"] == first.pk
    assert refused.value.details["recorded_input_digest"] == first.input_digest
    assert refused.value.details["your_input_digest"] != first.input_digest
    assert Run.objects.count() == 1


def test_the_same_external_id_in_another_flow_or_team_is_another_run() -> None:
    runs = {make_run(**SAME).pk, make_run(**SAME, flow="mail-agent").pk, make_run(**SAME, team="other").pk}
    assert len(runs) == 3
    assert Flow.objects.count() == 3


def test_a_version_is_recorded_with_its_digest_once_and_for_all() -> None:
    make_run()
    assert FlowVersion.objects.get().digest == ""
    make_run(flow_digest="a" * 64)
    assert FlowVersion.objects.get().digest == "a" * 64
    make_run()
    with pytest.raises(FlowDigestDiffers) as refused:
        make_run(flow_digest="b" * 64)
    assert refused.value.details == {"recorded": "a" * 64, "yours": "b" * 64}
    assert FlowVersion.objects.get().digest == "a" * 64


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"flow": ""}, "flow"),
        ({"flow": " "}, "flow"),
        ({"flow": "f" * 101}, "flow"),
        ({"flow": "a\x00"}, "flow"),
        ({"flow_version": ""}, "flow_version"),
        ({"flow_version": "v" * 101}, "flow_version"),
        ({"flow_version": "\ud800"}, "flow_version"),
        ({"external_id": ""}, "external_id"),
        ({"external_id": "e" * 201}, "external_id"),
        ({"external_id": "\x00"}, "external_id"),
        ({"goal": "g" * 501}, "goal"),
        ({"goal": "\x00"}, "goal"),
        ({"flow_digest": "a" * 63}, "flow_digest"),
        ({"flow_digest": "A" * 64}, "flow_digest"),
        ({"approval_id": "appr_none"}, "approval"),
        ({"approval_id": "\x00"}, "approval"),
    ],
)
def test_words_that_cannot_be_taken_are_refused_before_anything_is_written(
    fields: dict[str, str], where: str
) -> None:
    make_team()
    with pytest.raises(Invalid) as refused:
        make_run(**fields)
    assert refused.value.details["where"] == where
    assert not Run.objects.exists()
    assert not AuditLeaf.objects.exists()


def test_an_approval_of_another_team_is_not_one_that_can_be_named() -> None:
    make_team("other")
    Approval.objects.create(
        id="appr_1",
        team_id="other",
        subject="Restock",
        made_by="person:ines",
        expires_at=database_now() + timedelta(hours=1),
    )
    with pytest.raises(Invalid):
        make_run(approval_id="appr_1")


def test_a_start_waits_for_a_withdrawal_and_ends_the_run_s_approval_with_it(connect: Connect) -> None:
    """Without the lock the run would keep an end that the withdrawal, looking for runs to stop, never saw."""
    make_team()
    Approval.objects.create(
        id="appr_1",
        team_id=TEAM,
        subject="Restock",
        made_by="person:ines",
        expires_at=database_now() + timedelta(hours=1),
    )
    withdrawal = Holder(connect(), connect())
    withdrawal.execute("BEGIN", [])
    withdrawal.execute("UPDATE runs_approval SET withdrawn_at = now() WHERE id = 'appr_1'", [])
    starting = start(lambda: make_run(approval_id="appr_1"))
    withdrawal.wait_for_waiters(1)
    withdrawal.release()
    assert fresh(starting.result().answer).approval_until_at == Approval.objects.get().withdrawn_at


def test_the_same_start_at_once_is_one_run() -> None:
    make_team()
    outcomes = at_once([lambda: make_run(**SAME)] * 8)
    assert len({one.answer.pk for one in outcomes}) == 1
    assert AuditLeaf.objects.filter(action="run.started").count() == 1


def test_of_two_starts_at_once_with_different_inputs_the_loser_is_told_the_run() -> None:
    make_team()
    outcomes = at_once([lambda n=n: make_run(external_id="ORD-7", input={"order": n}) for n in range(2)])  # type: ignore[misc]
    winners = [one.value for one in outcomes if one.value is not None]
    losers = [one.refusal for one in outcomes if one.refusal is not None]
    assert (len(winners), len(losers)) == (1, 1)
    assert isinstance(losers[0], ExternalIdReused)
    assert losers[0].details["run"] == winners[0].pk


def test_a_limit_of_nothing_is_a_limit() -> None:
    run = make_run(budget_limit=Money("EUR", 0))
    assert run.budget_limit_minor == 0
