"""The audit log can only be added to, and every leaf that the journal writes is canonical."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
from django.db import transaction

import runs
from runs import account_access, audit, leases
from runs.actors import Actor, ActorKind
from runs.canonical import UnreadableJson, canonical_bytes
from runs.journal.consenting import (
    free_held,
    keep_version,
    move_to_version,
    raise_limit,
    renew_approval,
)
from runs.journal.ending import abandon_run, complete_run
from runs.journal.evidence import record_evidence
from runs.journal.freezing import mark_perhaps_sent
from runs.journal.grants import end_grant
from runs.journal.pausing import add_pause_reason
from runs.journal.sending import begin_repeat_by_console
from runs.journal.settling import (
    abandon,
    book_conflict,
    conclude_not_sent,
    confirm,
    mark_sent_by_unknown,
    reject,
    return_to_ready,
)
from runs.journal.turns import save_result
from runs.locking import Locked, database_now, lock_run
from runs.models import Approval, Attempt, AuditLeaf, FlowVersion, Operation, Run
from runs.states import Claim, EvidenceKind, Executor, GrantState, PauseReason
from tests.concurrency import Connect
from tests.factories import (
    PERSON,
    TEAM,
    Claimed,
    claim,
    doubt,
    effect,
    fresh,
    grant,
    held,
    make_account,
    make_claimed,
    make_run,
    make_team,
    quieten,
    read,
    receipt,
    reply,
    send,
)

pytestmark = pytest.mark.django_db(transaction=True)

CHANGES = (
    "UPDATE runs_auditleaf SET actor = 'somebody else'",
    "UPDATE runs_auditleaf SET body = body",
    "DELETE FROM runs_auditleaf",
    "TRUNCATE runs_auditleaf",
    "TRUNCATE runs_auditleaf CASCADE",
)


# --- Nobody changes it -----------------------------------------------------------------------------------


@pytest.mark.parametrize("statement", CHANGES)
def test_the_application_may_not_change_the_log_by_privilege(connect: Connect, statement: str) -> None:
    make_claimed()
    with pytest.raises(psycopg.errors.InsufficientPrivilege) as refused:
        connect().execute(statement)
    # By privilege: the trigger, which uses the same code, hasn't even been asked.
    assert "permission denied" in str(refused.value)


@pytest.mark.parametrize("statement", CHANGES)
def test_the_owner_may_not_change_the_log_by_trigger(owner_url: str, statement: str) -> None:
    make_claimed()
    before = list(AuditLeaf.objects.order_by("id").values())
    with psycopg.connect(owner_url, autocommit=True) as owner:
        with pytest.raises(psycopg.errors.InsufficientPrivilege) as refused:
            owner.execute(statement)
        assert "append-only" in str(refused.value)
    assert list(AuditLeaf.objects.order_by("id").values()) == before


def test_the_log_cannot_be_changed_through_a_conflicting_insert(connect: Connect) -> None:
    make_claimed()
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        connect().execute(
            "INSERT INTO runs_auditleaf SELECT * FROM runs_auditleaf"
            " ON CONFLICT (id) DO UPDATE SET actor = 'somebody else'"
        )


def test_a_leaf_is_undone_with_its_event() -> None:
    claimed = make_claimed()
    leaves = AuditLeaf.objects.count()
    with transaction.atomic():
        leases.revoke(team=TEAM, run_id=claimed.run.pk, actor=PERSON, reason="stuck")
        transaction.set_rollback(True)
    assert AuditLeaf.objects.count() == leaves
    assert fresh(claimed.run).lease_token == claimed.token


# --- Every action --------------------------------------------------------------------------------------

HOSTILE = 'He said "no" \\ and\nleft\u2028 é 😀 </script>'


def sent(minor: int = 500) -> Claimed:
    claimed = make_claimed(effect(minor=minor), budget_minor=10_000)
    send(claimed)
    return claimed


def in_question() -> Operation:
    claimed = sent()
    doubt(claimed.operation)
    quieten(claimed.operation)
    return claimed.operation


def a_read() -> None:
    claimed = make_claimed(read("r1"))
    save_result(team=TEAM, run_id=claimed.run.pk, token=claimed.token, index=1, call_id="r1", result=HOSTILE)


def a_reply() -> None:
    reply(sent(), minor=480)


def a_confirmation() -> None:
    with held(in_question()) as locked:
        confirm(locked, receipt=receipt(HOSTILE), actor=PERSON, reason=HOSTILE)


def a_rejection() -> None:
    with held(sent().operation) as locked:
        reject(locked, refusal=HOSTILE.encode(), actor=PERSON, reason=HOSTILE)


def an_abandonment() -> None:
    with held(sent().operation) as locked:
        abandon(locked, actor=PERSON, known_effect=HOSTILE, reason=HOSTILE)


def a_return() -> None:
    operation = in_question()
    with held(operation) as locked:
        conclude_not_sent(locked, Attempt.objects.get(operation=operation))
        return_to_ready(locked, actor=PERSON, reason=HOSTILE)


def a_stranger() -> None:
    with held(make_claimed().operation) as locked:
        evidence = record_evidence(
            locked,
            kind=EvidenceKind.WEBHOOK,
            claim=Claim.RECEIPT,
            summary=HOSTILE,
            reference=HOSTILE,
            seen={"error": HOSTILE},
            actor=PERSON,
        )
        mark_sent_by_unknown(locked, actor=PERSON, evidence=evidence)


def a_repeat() -> None:
    operation = in_question()
    grant(operation)
    send(Claimed(operation.run, claim(operation.run), [operation]), attempt_id="a2")


def a_repeat_by_the_console() -> None:
    made = grant(in_question(), executor=Executor.CONSOLE)
    begin_repeat_by_console(grant_id=made.pk, attempt_id="console-1")


def a_withdrawn_grant() -> None:
    operation = in_question()
    made = grant(operation)
    with held(operation) as locked:
        end_grant(locked, made, state=GrantState.VOID, actor=PERSON, why=HOSTILE)


def a_booking(*, stands: bool) -> Callable[[], None]:
    def book() -> None:
        claimed = sent()
        reply(claimed)
        with held(claimed.operation) as locked:
            book_conflict(locked, minor=5, stands=stands, actor=PERSON, reason=HOSTILE)

    return book


def a_revocation() -> None:
    leases.revoke(team=TEAM, run_id=make_claimed().run.pk, actor=PERSON, reason=HOSTILE)


def a_completion() -> None:
    run = make_run(external_id=HOSTILE, flow=HOSTILE, budget_minor=5)
    complete_run(team=TEAM, run_id=run.pk, token=claim_of_hostile(run.pk), output=HOSTILE)


def claim_of_hostile(run_id: str) -> str:
    return leases.claim(
        team=TEAM, run_id=run_id, claim_id="c", worker="w", flow_version="6", lease_seconds=60
    ).token


def a_send_that_a_restored_journal_forgot() -> None:
    with held(make_claimed().operation) as locked:
        mark_perhaps_sent(locked, since_at=locked.now, actor=PERSON, reason=HOSTILE)


def a_run_given_up() -> None:
    abandon_run(team=TEAM, run_id=make_claimed().run.pk, actor=PERSON, reason=HOSTILE)


def a_limit_raised() -> None:
    run = make_claimed(effect(minor=2_500), budget_minor=1_000).run
    with transaction.atomic():
        raise_limit(locked(run), limit_minor=2_500, currency="EUR", actor=PERSON, reason=HOSTILE)


def a_hold_freed() -> None:
    claimed = make_claimed(effect(minor=700), budget_minor=1_000)
    send(claimed)
    doubt(claimed.operation)
    with held(claimed.operation) as operation:
        abandon(operation, actor=PERSON, known_effect="Nobody knows.", reason=HOSTILE)
    with held(claimed.operation) as operation:
        free_held(operation, actor=PERSON, reason=HOSTILE)


def an_approval_renewed() -> None:
    make_team()
    ends = database_now() + timedelta(minutes=5)
    approval = Approval.objects.create(
        id="appr_1", team_id=TEAM, subject="Restock", made_by="person:ines", expires_at=ends
    )
    run = make_claimed(approval_id=approval.pk).run
    later = ends + timedelta(hours=1)
    with transaction.atomic():
        renew_approval(locked(run), expires_at=later, subject=HOSTILE, actor=PERSON, reason=HOSTILE)


def a_version_kept() -> None:
    run = make_run()
    with transaction.atomic():
        add_pause_reason(locked(run), PauseReason.FLOW_VERSION)
    with transaction.atomic():
        keep_version(locked(run), wait_seconds=3_600, actor=PERSON, reason=HOSTILE)


def a_version_moved() -> None:
    run = make_run()
    FlowVersion.objects.create(flow=run.flow, version="7")
    with transaction.atomic():
        add_pause_reason(locked(run), PauseReason.FLOW_VERSION)
    with transaction.atomic():
        move_to_version(locked(run), version="7", digest="", actor=PERSON, reason=HOSTILE)


def locked(run: Run) -> Locked:
    return lock_run(run_id=run.pk, team=TEAM)


def teams_named_for_an_account() -> None:
    account = make_account().pk
    account_access.name_teams(
        account=account,
        teams=[make_team().pk],
        seen=account_access.seen_of(account_access.named_teams(account)),
        actor=PERSON,
        reason="Only they have a contract there.",
    )


STORIES: dict[Callable[[], None], set[str]] = {
    a_read: {"run.started", "run.claimed", "turn.saved", "read.saved"},
    a_reply: {"operation.sent", "operation.confirmed"},
    a_confirmation: {"operation.confirmed", "run.paused", "lease.ended", "run.pause_reason_ended"},
    a_rejection: {"operation.rejected"},
    an_abandonment: {"operation.abandoned"},
    a_return: {"operation.not_sent"},
    a_stranger: {"evidence.recorded", "operation.sent_by_unknown"},
    a_repeat: {"grant.made", "operation.sent_again"},
    a_repeat_by_the_console: {"grant.made", "operation.sent_again"},
    a_withdrawn_grant: {"grant.ended"},
    a_booking(stands=True): {"conflict.accepted"},
    a_booking(stands=False): {"conflict.compensated"},
    a_revocation: {"lease.ended"},
    a_completion: {"run.completed", "lease.ended"},
    a_run_given_up: {"run.abandoned", "operation.abandoned"},
    a_send_that_a_restored_journal_forgot: {"operation.perhaps_sent"},
    a_limit_raised: {"run.limit_raised"},
    a_hold_freed: {"operation.held_freed"},
    an_approval_renewed: {"run.approval_renewed"},
    a_version_kept: {"run.version_kept"},
    a_version_moved: {"run.version_moved"},
    teams_named_for_an_account: {"account.teams_named"},
}


@pytest.mark.parametrize(("story", "actions"), STORIES.items())
def test_every_leaf_is_canonical_and_says_when_who_and_what(
    story: Callable[[], None], actions: set[str]
) -> None:
    before = database_now()
    story()
    after = database_now()
    leaves = list(AuditLeaf.objects.order_by("id"))
    assert actions <= {leaf.action for leaf in leaves}
    for leaf in leaves:
        body = bytes(leaf.body)
        told = json.loads(body)
        assert canonical_bytes(told) == body
        assert set(told) == {"at", "event"}
        event = told["event"]
        # The columns beside the body repeat it for searching, and must not tell another story.
        assert (leaf.action, leaf.actor, leaf.actor_kind) == (
            event["action"],
            event["actor"]["id"],
            event["actor"]["kind"],
        )
        assert (leaf.team_slug, leaf.run_ref, leaf.operation_ref) == (
            event.get("team", ""),
            event.get("run", ""),
            event.get("operation", ""),
        )
        assert told["at"] == leaf.at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        assert before - timedelta(seconds=1) <= leaf.at <= after
        # Bodies live elsewhere: no leaf holds a payload, a receipt or an answer.
        assert b"FC-20" not in body


def test_the_stories_above_tell_every_action_that_the_journal_can_write() -> None:
    written: set[str] = set()
    for path in Path(str(runs.__file__)).parent.rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        written.update(re.findall(r'action(?:=|":)"([a-z_]+\.[a-z_]+)"', source))
        written.update(re.findall(r'_append\([^)]*?"([a-z_]+\.[a-z_]+)"', source))
    told = set().union(*STORIES.values())
    # Made from a word in the code: operation.confirmed and its like, conflict.accepted and its like.
    composed = {f"operation.{word}" for word in ("confirmed", "rejected", "abandoned")}
    composed |= {"conflict.accepted", "conflict.compensated"}
    assert written, "the search found nothing"
    assert written | composed == told


def test_a_leaf_that_could_not_be_canonical_is_refused_with_its_event() -> None:
    with pytest.raises(UnreadableJson):
        audit.append(
            audit.Event(action="run.started", actor=Actor(ActorKind.PERSON, "person:maya"), reason="\x00")
        )
    assert not AuditLeaf.objects.exists()
