"""Claims, renewals, releases and revocations: what is refused, in which order, and what a repeat gets."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction

from runs import leases
from runs.journal.ending import abandon_run, complete_run
from runs.journal.pausing import add_pause_reason, end_lease
from runs.leases import (
    AlreadyClaimed,
    FlowVersionMismatch,
    RunEnded,
    RunPaused,
    StaleToken,
)
from runs.locking import database_now, lock_run
from runs.models import AuditLeaf, FlowVersion, Lease, Run
from runs.refusals import Invalid, NotFound
from runs.states import LeaseEnd, PauseReason
from tests.concurrency import Connect, holding_run, start
from tests.factories import (
    PERSON,
    TEAM,
    VERSION,
    WORKER,
    claim,
    doubt,
    end_lease_in,
    fresh,
    make_claimed,
    make_run,
    make_team,
    send,
)

pytestmark = pytest.mark.django_db(transaction=True)


def ask(run: Run, claim_id: str = "claim-x", **fields: Any) -> leases.Claimed:
    chosen: dict[str, Any] = {
        "team": run.team_id,
        "worker": WORKER,
        "flow_version": VERSION,
        "lease_seconds": 60,
    }
    return leases.claim(run_id=run.pk, claim_id=claim_id, **{**chosen, **fields})


def pause(run: Run, reason: PauseReason) -> None:
    with transaction.atomic():
        add_pause_reason(lock_run(run_id=run.pk, team=None), reason)


# --- Claim ---------------------------------------------------------------------------------------------


def test_a_claim_gives_the_next_token_until_its_end_by_the_database_clock() -> None:
    run = make_run()
    before = database_now()
    got = ask(run, lease_seconds=60)
    after = database_now()
    assert got.token.startswith("1-")
    assert not got.replayed
    assert got.expires_in_ms == 60_000
    assert before + timedelta(seconds=60) <= got.expires_at <= after + timedelta(seconds=60)
    run = fresh(run)
    assert (run.lease_token, run.lease_holder, run.lease_expires_at) == (got.token, WORKER, got.expires_at)


def test_tokens_grow_and_carry_bits_that_nobody_can_guess() -> None:
    run = make_run()
    tokens = []
    for _ in range(3):
        tokens.append(claim(run))
        leases.release(team=TEAM, run_id=run.pk, token=tokens[-1])
    numbers, secrets = zip(*(token.split("-") for token in tokens), strict=True)
    assert numbers == ("1", "2", "3")
    # The random digits, before those that only tell that we gave it out.
    assert len({secret[:20] for secret in secrets}) == 3
    assert {len(secret) for secret in secrets} == {40}


def test_the_token_of_the_last_lease_that_a_run_can_have_fits_its_column() -> None:
    run = make_run()
    Run.objects.filter(pk=run.pk).update(lease_number=2**53 - 2)
    token = claim(run)
    assert leases.given_number(run_id=run.pk, token=token) == 2**53 - 1


def test_a_held_run_is_refused_with_its_holder_and_how_long_the_lease_lasts() -> None:
    run = make_run()
    ask(run, "claim-1", worker="first", lease_seconds=60)
    with pytest.raises(AlreadyClaimed) as refused:
        ask(run, "claim-2", worker="second")
    assert refused.value.details["holder"] == "first"
    assert 0 < refused.value.details["expires_in_ms"] <= 60_000
    assert Lease.objects.filter(run=run).count() == 1


def test_the_same_claim_again_gets_the_same_token_with_less_time() -> None:
    run = make_run()
    first = ask(run, lease_seconds=60)
    end_lease_in(run, 30)
    again = ask(run, lease_seconds=60)
    assert (again.token, again.replayed) == (first.token, True)
    assert again.expires_in_ms <= 30_000
    assert AuditLeaf.objects.filter(action="run.claimed").count() == 1


def test_the_same_claim_id_from_another_worker_is_another_claim() -> None:
    run = make_run()
    ask(run, worker="first")
    with pytest.raises(AlreadyClaimed) as refused:
        ask(run, worker="second")
    assert refused.value.details["holder"] == "first"


def test_the_same_claim_id_for_another_version_is_refused_for_the_version() -> None:
    run = make_run()
    ask(run)
    with pytest.raises(FlowVersionMismatch):
        ask(run, flow_version="7")


@pytest.mark.parametrize("end", ["expired", "released", "revoked"])
def test_a_claim_id_whose_lease_has_ended_is_stale(end: str) -> None:
    run = make_run()
    token = ask(run).token
    match end:
        case "expired":
            end_lease_in(run, -1)
        case "released":
            leases.release(team=TEAM, run_id=run.pk, token=token)
        case _:
            leases.revoke(team=TEAM, run_id=run.pk, actor=PERSON, reason="stuck")
    with pytest.raises(StaleToken):
        ask(run)
    assert ask(run, "claim-y").token.startswith("2-")


def test_a_restarted_process_with_a_new_claim_id_waits_for_its_own_old_lease() -> None:
    run = make_run()
    ask(run, "claim-1")
    with pytest.raises(AlreadyClaimed) as refused:
        ask(run, "claim-2")
    assert refused.value.details["holder"] == WORKER


def test_a_lease_that_ran_out_is_ended_on_record_by_the_next_claim() -> None:
    run = make_run()
    ask(run, "claim-1", worker="first")
    end_lease_in(run, -1)
    assert ask(run, "claim-2", worker="second").token.startswith("2-")
    ended = Lease.objects.get(run=run, number=1)
    assert (ended.ended_by, ended.ended_at is not None) == ("expired", True)
    leaf = AuditLeaf.objects.get(action="lease.ended")
    # Nobody ended it: time did.
    assert (leaf.actor_kind, leaf.actor) == ("system", "journal")


@pytest.mark.parametrize("left_seconds", [0.0, -0.001])
def test_a_lease_is_over_at_its_very_end(left_seconds: float) -> None:
    run = make_run()
    ask(run, "claim-1")
    end_lease_in(run, left_seconds)
    assert ask(run, "claim-2").token.startswith("2-")


def test_refusals_of_a_claim_come_in_their_order() -> None:
    run = make_run()
    # Held, of another version, and nothing else: the version is said before the holder.
    token = ask(run, "claim-1").token
    with pytest.raises(FlowVersionMismatch):
        ask(run, "claim-2", flow_version="7")
    # Paused before the version.
    pause(run, PauseReason.BUDGET)
    with pytest.raises(RunPaused) as refused:
        ask(run, "claim-2", flow_version="7")
    assert refused.value.details == {"run": run.pk, "reasons": ["budget"]}
    # The claim that once held it hears the same as everybody.
    with pytest.raises(RunPaused):
        ask(run, "claim-1")
    # Ended before everything.
    abandon_run(team=TEAM, run_id=run.pk, actor=PERSON, reason="over")
    for claim_id, version in (("claim-1", VERSION), ("claim-2", "7")):
        with pytest.raises(RunEnded) as ended:
            ask(run, claim_id, flow_version=version)
        assert ended.value.details["state"] == "abandoned"
    assert token.startswith("1-")
    assert Lease.objects.filter(run=run).count() == 1


@pytest.mark.parametrize("seconds", [4, 3601, 0, -5])
def test_a_lease_of_an_unreasonable_length_is_refused(seconds: int) -> None:
    run = make_run()
    with pytest.raises(Invalid) as refused:
        ask(run, lease_seconds=seconds)
    assert refused.value.details["where"] == "lease_seconds"
    token = ask(run).token
    with pytest.raises(Invalid):
        leases.renew(team=TEAM, run_id=run.pk, token=token, lease_seconds=seconds)


@pytest.mark.parametrize("seconds", [5, 3600])
def test_the_shortest_and_the_longest_lease_are_given(seconds: int) -> None:
    assert ask(make_run(), lease_seconds=seconds).expires_in_ms == seconds * 1000


@pytest.mark.parametrize("bad", ["", "a b", "a" * 65, 'a"b', "a\\b", "é", "a\n", "a\x00"])
@pytest.mark.parametrize("field", ["claim_id", "worker"])
def test_an_id_that_could_break_a_leaf_is_refused(field: str, bad: str) -> None:
    run = make_run()
    with pytest.raises(Invalid) as refused:
        ask(run, **{field: bad})
    assert refused.value.details["where"] == field


@pytest.mark.parametrize("run_id", ["run_unknown", "", "run_\x00", "x" * 500, "run_é"])
def test_a_run_that_is_not_there_is_not_found(run_id: str) -> None:
    make_team()
    with pytest.raises(NotFound):
        leases.claim(
            team=TEAM,
            run_id=run_id,
            claim_id="c",
            worker="w",
            flow_version=VERSION,
            lease_seconds=60,
        )
    with pytest.raises(NotFound):
        leases.renew(team=TEAM, run_id=run_id, token="1-x")
    with pytest.raises(NotFound):
        leases.release(team=TEAM, run_id=run_id, token="1-x")


def test_a_run_of_another_team_is_not_found() -> None:
    run = make_run()
    make_team("other")
    with pytest.raises(NotFound):
        ask(run, team="other")
    token = ask(run).token
    for call in (leases.renew, leases.release):
        with pytest.raises(NotFound):
            call(team="other", run_id=run.pk, token=token)
    with pytest.raises(NotFound):
        leases.revoke(team="other", run_id=run.pk, actor=PERSON, reason="not ours")
    assert fresh(run).lease_token == token


# --- The version that a run is pinned to ----------------------------------------------------------------


def test_another_version_changes_nothing_but_when_its_worker_was_last_seen() -> None:
    run = make_run()
    make_run(flow_version="7")
    before = Run.objects.filter(pk=run.pk).values().get()
    leaves = AuditLeaf.objects.count()
    with pytest.raises(FlowVersionMismatch) as refused:
        ask(run, flow_version="7")
    assert refused.value.details == {"pinned": VERSION, "pinned_digest": "", "yours": "7"}
    assert Run.objects.filter(pk=run.pk).values().get() == before
    assert AuditLeaf.objects.count() == leaves
    assert FlowVersion.objects.get(version="7").last_worker_at is not None
    assert FlowVersion.objects.get(version=VERSION).last_worker_at is None


def test_a_version_that_was_never_recorded_is_not_recorded_by_a_refused_claim() -> None:
    run = make_run()
    with pytest.raises(FlowVersionMismatch):
        ask(run, flow_version="8")
    assert list(FlowVersion.objects.values_list("version", flat=True)) == [VERSION]


def test_another_program_under_the_same_version_is_refused() -> None:
    run = make_run(flow_digest="a" * 64)
    with pytest.raises(FlowVersionMismatch) as refused:
        ask(run, flow_digest="b" * 64)
    assert refused.value.details["pinned_digest"] == "a" * 64
    assert ask(run, flow_digest="a" * 64).token


def test_a_worker_of_the_pinned_version_ends_the_pause_for_its_absence() -> None:
    run = make_run(flow_digest="a" * 64)
    pause(run, PauseReason.FLOW_VERSION)
    with pytest.raises(RunPaused):
        ask(run, flow_version="7")
    # The same version, another program: it hasn't come.
    with pytest.raises(FlowVersionMismatch):
        ask(run, flow_digest="b" * 64)
    assert fresh(run).state == "paused"
    assert ask(run, flow_digest="a" * 64).token.startswith("1-")
    assert (fresh(run).state, fresh(run).paused_reasons) == ("open", [])


def test_a_worker_of_the_pinned_version_does_not_end_a_pause_for_anything_else() -> None:
    run = make_run()
    pause(run, PauseReason.FLOW_VERSION)
    pause(run, PauseReason.BUDGET)
    with pytest.raises(RunPaused) as refused:
        ask(run)
    assert refused.value.details["reasons"] == ["budget", "flow_version"]
    assert fresh(run).paused_reasons == ["budget", "flow_version"]


def test_a_run_moved_to_another_version_while_we_wait_for_it_is_still_found(connect: Connect) -> None:
    """Locking a join would lose the row: after the wait its version no longer joins (READ COMMITTED)."""
    run = make_run()
    make_run(flow_version="7")
    seven = FlowVersion.objects.get(version="7")
    with holding_run(connect, run.pk) as mover:
        claiming = start(lambda: ask(run, flow_version="7"))
        mover.wait_for_waiters(1)
        mover.execute("UPDATE runs_run SET flow_version_id = %s WHERE id = %s", [seven.pk, run.pk])
        mover.release()
    assert claiming.result().answer.token.startswith("1-")


# --- Renew, release, revoke ------------------------------------------------------------------------------


def test_a_renewal_moves_the_end_by_as_much_as_the_claim_asked() -> None:
    run = make_run()
    token = ask(run, lease_seconds=60).token
    end_lease_in(run, 1)
    renewed = leases.renew(team=TEAM, run_id=run.pk, token=token)
    assert 59_000 < renewed.expires_in_ms <= 60_000
    assert fresh(run).lease_expires_at == renewed.expires_at == Lease.objects.get().expires_at


def test_a_renewal_never_shortens_what_was_promised() -> None:
    run = make_run()
    first = ask(run, lease_seconds=600)
    renewed = leases.renew(team=TEAM, run_id=run.pk, token=first.token, lease_seconds=5)
    assert renewed.expires_at == first.expires_at


def test_a_renewal_after_the_end_is_stale_and_revives_nothing() -> None:
    run = make_run()
    token = ask(run).token
    end_lease_in(run, -0.001)
    before = fresh(run).lease_expires_at
    with pytest.raises(StaleToken):
        leases.renew(team=TEAM, run_id=run.pk, token=token)
    assert fresh(run).lease_expires_at == before


def test_a_renewal_of_a_paused_run_says_so() -> None:
    claimed = make_claimed()
    send(claimed)
    doubt(claimed.operation)
    with pytest.raises(RunPaused) as refused:
        leases.renew(team=TEAM, run_id=claimed.run.pk, token=claimed.token)
    assert refused.value.details["reasons"] == ["outcome"]


@pytest.mark.parametrize("token", ["", "1-", "1-guess", "0-x", "2-x", "1-x\x00"])
def test_a_token_that_is_not_the_current_one_is_stale_everywhere(token: str) -> None:
    run = make_run()
    ask(run)
    with pytest.raises(StaleToken):
        leases.renew(team=TEAM, run_id=run.pk, token=token)
    with pytest.raises(StaleToken):
        leases.release(team=TEAM, run_id=run.pk, token=token)
    with pytest.raises(StaleToken):
        complete_run(team=TEAM, run_id=run.pk, token=token, output=None)


def test_a_released_run_can_be_claimed_at_once() -> None:
    run = make_run()
    token = ask(run, "claim-1").token
    assert leases.release(team=TEAM, run_id=run.pk, token=token)[1] is False
    assert ask(run, "claim-2", worker="second").token.startswith("2-")


def test_a_release_can_be_repeated_also_when_somebody_else_holds_the_run() -> None:
    run = make_run()
    token = ask(run, "claim-1").token
    leases.release(team=TEAM, run_id=run.pk, token=token)
    ask(run, "claim-2", worker="second")
    assert leases.release(team=TEAM, run_id=run.pk, token=token)[1] is True
    assert fresh(run).lease_holder == "second"
    assert AuditLeaf.objects.filter(action="lease.ended").count() == 1


def test_a_release_after_the_end_is_stale() -> None:
    run = make_run()
    token = ask(run).token
    end_lease_in(run, -1)
    with pytest.raises(StaleToken):
        leases.release(team=TEAM, run_id=run.pk, token=token)


def test_a_revoked_lease_is_stale_and_its_end_names_the_person() -> None:
    run = make_run()
    token = ask(run).token
    leases.revoke(team=TEAM, run_id=run.pk, actor=PERSON, reason="stuck since noon")
    with pytest.raises(StaleToken):
        leases.renew(team=TEAM, run_id=run.pk, token=token)
    leaf = AuditLeaf.objects.get(action="lease.ended")
    assert (leaf.actor_kind, leaf.actor) == ("person", PERSON.id)
    assert b"stuck since noon" in bytes(leaf.body)
    with pytest.raises(StaleToken):
        leases.revoke(team=TEAM, run_id=run.pk, actor=PERSON, reason="again")


def test_a_pause_ends_the_lease_by_itself() -> None:
    run = make_run()
    ask(run)
    pause(run, PauseReason.APPROVAL)
    assert Lease.objects.get().ended_by == "paused"
    leaf = AuditLeaf.objects.get(action="lease.ended")
    assert (leaf.actor_kind, leaf.actor) == ("system", "journal")


def test_ending_a_lease_that_nobody_has_writes_nothing() -> None:
    run = make_run()
    leaves = AuditLeaf.objects.count()
    with transaction.atomic():
        end_lease(lock_run(run_id=run.pk, team=None), by=LeaseEnd.EXPIRED)
    assert AuditLeaf.objects.count() == leaves
