"""Claimants of one run at once: one of them holds it, and the rest learn who and never send."""

from __future__ import annotations

import pytest

from runs import leases
from runs.journal.sending import begin_send
from runs.leases import AlreadyClaimed, Claimed, StaleToken
from runs.models import Attempt, AuditLeaf, Lease, Run
from tests.concurrency import Connect, Outcome, at_once, holding_run, start
from tests.factories import TEAM, VERSION, claim, fresh, make_claimed, make_run

pytestmark = pytest.mark.django_db(transaction=True)


def contend(run: Run, number: int, *, claim_id: str = "") -> Claimed:
    return leases.claim(
        team=TEAM,
        run_id=run.pk,
        claim_id=claim_id or f"claim-{number}",
        worker=f"worker-{number}",
        flow_version=VERSION,
        lease_seconds=60,
    )


def part(outcomes: list[Outcome[Claimed]]) -> tuple[list[Claimed], list[AlreadyClaimed]]:
    winners = [one.value for one in outcomes if one.value is not None]
    losers = [one.refusal for one in outcomes if one.refusal is not None]
    assert all(isinstance(loser, AlreadyClaimed) for loser in losers), losers
    return winners, losers  # type: ignore[return-value]


@pytest.mark.parametrize("claimants", [2, 32])
def test_every_loser_of_a_claim_is_told_the_holder(claimants: int) -> None:
    run = make_run()
    outcomes = at_once([lambda number=number: contend(run, number) for number in range(claimants)])  # type: ignore[misc]
    winners, losers = part(outcomes)
    assert len(winners) == 1
    assert len(losers) == claimants - 1
    holder = fresh(run)
    assert holder.lease_token == winners[0].token
    for loser in losers:
        assert loser.details["holder"] == holder.lease_holder
        assert 0 < loser.details["expires_in_ms"] <= 60_000
    # The loser left nothing: one lease, one leaf.
    assert Lease.objects.filter(run=run).count() == 1
    assert AuditLeaf.objects.filter(action="run.claimed").count() == 1


def test_the_losers_of_a_claim_that_waited_for_the_winner_are_refused_after_its_commit(
    connect: Connect,
) -> None:
    run = make_run()
    with holding_run(connect, run.pk) as other:
        contending = [start(lambda number=number: contend(run, number)) for number in range(4)]  # type: ignore[misc]
        other.wait_for_waiters(4)
        other.release()
    winners, losers = part([one.result() for one in contending])
    assert (len(winners), len(losers)) == (1, 3)


def test_the_loser_of_a_claim_never_sends() -> None:
    """It has no token; not with an old one, a guessed one or the number of the winner's does it get go."""
    claimed = make_claimed()
    run, operation = claimed.run, claimed.operation
    leases.release(team=TEAM, run_id=run.pk, token=claimed.token)
    outcomes = at_once([lambda number=number: contend(run, number) for number in range(8)])  # type: ignore[misc]
    winners, losers = part(outcomes)
    assert (len(winners), len(losers)) == (1, 7)
    number = winners[0].token.split("-")[0]
    for token in (claimed.token, f"{number}-{'0' * 20}", f"{int(number) + 1}-x", ""):
        with pytest.raises(StaleToken):
            begin_send(team=TEAM, operation_id=operation.pk, token=token, attempt_id="a1")
    assert not Attempt.objects.exists()
    assert (
        begin_send(team=TEAM, operation_id=operation.pk, token=winners[0].token, attempt_id="a1").number == 1
    )


def test_the_same_claim_twice_at_once_is_one_lease_for_both() -> None:
    run = make_run()
    outcomes = at_once(
        [
            lambda: leases.claim(
                team=TEAM,
                run_id=run.pk,
                claim_id="claim-1",
                worker="worker-1",
                flow_version=VERSION,
                lease_seconds=60,
            )
        ]
        * 8
    )
    answers = [one.answer for one in outcomes]
    assert len({answer.token for answer in answers}) == 1
    assert sorted(answer.replayed for answer in answers) == [False] + [True] * 7
    assert Lease.objects.filter(run=run).count() == 1


def test_one_claim_id_of_two_workers_at_once_gives_one_of_them_the_token() -> None:
    run = make_run()
    outcomes = at_once(
        [lambda number=number: contend(run, number, claim_id="claim-1") for number in range(2)]  # type: ignore[misc]
    )
    winners, losers = part(outcomes)
    assert (len(winners), len(losers)) == (1, 1)


def test_tokens_grow_over_every_claim_and_release() -> None:
    run = make_run()
    numbers = []
    for _ in range(5):
        token = claim(run)
        numbers.append(int(token.split("-")[0]))
        leases.release(team=TEAM, run_id=run.pk, token=token)
    assert numbers == [1, 2, 3, 4, 5]


def test_a_release_and_a_claim_at_once_never_leave_two_holders() -> None:
    run = make_run()
    token = claim(run)
    released, claimed = at_once(
        [
            lambda: leases.release(team=TEAM, run_id=run.pk, token=token),
            lambda: contend(run, 2),
        ]
    )
    assert released.refusal is None
    if claimed.refusal is not None:
        assert isinstance(claimed.refusal, AlreadyClaimed)
        assert fresh(run).lease_token is None
    else:
        assert fresh(run).lease_number == 2
    assert Lease.objects.filter(run=run, ended_at__isnull=True).count() <= 1
