"""A journal that is restored from a backup sends nothing on a guess, and finds what it has forgotten."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.db import connections
from django.test.utils import CaptureQueriesContext
from psycopg import sql
from pytest_django import Settings

from console.models import Person, Role
from console.pages.present.timeline import timeline_of
from console.pages.present.verdict import verdict_of
from console.queries.cases import read_case
from console.sandbox.control import SandboxControl
from console.sandbox.records import Counts
from reconciliation import gap, marking, place, restoring, retries
from reconciliation.gate_models import SweepFailure
from reconciliation.models import Case, Lookup
from reconciliation.states import Action, CaseState, Need, Permission
from reconciliation.sweeping import sweep
from runs import leases
from runs.journal.freezing import FORGOTTEN_SENDER, SendingFrozen
from runs.journal.sending import begin_repeat_by_console
from runs.leases import RunPaused, StaleToken
from runs.locking import database_now
from runs.models import (
    AccountReturn,
    Attempt,
    AuditLeaf,
    Environment,
    Freeze,
    Grant,
    Lease,
    Operation,
    Orphan,
    ProviderAccount,
    Receipt,
    Run,
)
from runs.refusals import Invalid
from runs.states import Executor, FreezeAnswer, GrantState, ListingState, OperationState, Sending
from tests import cases_world
from tests.cases_world import COURIER, DESK, SUPPLIER, declare
from tests.concurrency import Connect, holding_run
from tests.conftest import _named, urls
from tests.factories import (
    PERSON,
    Claimed,
    claim,
    doubt,
    effect,
    fresh,
    grant,
    make_claimed,
    quieten,
    reply,
    send,
)
from tests.processes import Server, Spawn, start_celery_beat, start_celery_worker, until
from tests.sandbox_client import new_client

pytestmark = pytest.mark.django_db(transaction=True)

READY, AFTER, PER_RUN = 100, 20, 10
REASON = "The disk of the old server was lost."


def orders(number: int) -> list[Any]:
    return [effect(f"c{i}", args={"sku": f"FC-{number}-{i}", "quantity": 1}) for i in range(PER_RUN)]


def make_orders(number: int) -> Claimed:
    return make_claimed(*orders(number), parallel=True, external_id=f"RESTORED-{number}")


def deliver(server: Server, claimed: Claimed) -> list[httpx.Response]:
    """Send every operation as its agent does, and report the receipts."""
    answers = []
    with new_client(server.url) as agent:
        for operation in claimed.operations:
            go = send(claimed, operation=operation)
            headers = {"Idempotency-Key": go.idempotency_key, "Content-Type": "application/json"}
            answer = agent.post("/acct/supplier/orders", content=go.payload, headers=headers)
            assert answer.status_code == 201, answer.text
            assert reply(claimed, answer.json()["id"], operation=operation) is not None
            answers.append(answer)
    return answers


def on_its_own(act: Callable[[], object]) -> None:
    """Do this over a connection of this thread's own."""
    try:
        act()
    finally:
        connections.close_all()


def freeze_and_say(answer: FreezeAnswer = FreezeAnswer.PRODUCTION, *, hours: float = 1.0) -> Freeze:
    frozen = restoring.declare_restored(because="A test restored it.", actor=PERSON)
    at = database_now() - timedelta(hours=hours) if answer is FreezeAnswer.PRODUCTION else None
    return restoring.answer_freeze(
        freeze_id=frozen.pk, answer=answer, backup_taken_at=at, actor=PERSON, actor_name="Maya", reason=REASON
    )


def sending_at(slug: str = SUPPLIER) -> str:
    return ProviderAccount.objects.get(pk=slug).sending


@contextmanager
def other_database(name: str) -> Iterator[None]:
    """Let this process's Django use another database of the same server."""
    connection = connections["default"]
    before = connection.settings_dict["NAME"]
    connection.close()
    connection.settings_dict["NAME"] = name
    try:
        yield
    finally:
        connection.close()
        connection.settings_dict["NAME"] = before


@pytest.fixture
def back_up() -> Iterator[Callable[[], str]]:
    """Copy the test database as it is now; the copy's name."""
    source = connections["default"].settings_dict["NAME"]
    name = f"{source}_backup"
    administrator = psycopg.connect(urls().owner, autocommit=True)
    drop = sql.SQL("DROP DATABASE IF EXISTS {}").format(sql.Identifier(name))

    def copy() -> str:
        connections["default"].close()
        from tests.conftest import _owner

        _owner.close()
        administrator.execute(drop)
        administrator.execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), sql.Identifier(source))
        )
        return name

    with administrator:
        yield copy
        for last in until(60):
            # The server notices a moment later that a killed process has left.
            try:
                administrator.execute(drop)
            except psycopg.errors.ObjectInUse:
                assert not last, "a process still uses the copy"
            else:
                break


@pytest.fixture
def provider(sandbox: Server) -> Iterator[SandboxControl]:
    """What the sandbox has counted."""
    with SandboxControl(sandbox.url) as control:
        yield control


@pytest.mark.timeout(180)
def test_a_restored_journal_finds_what_it_sent_and_what_it_forgot_before_it_sends_again(
    sandbox: Server,
    spawn: Spawn,
    app_env: dict[str, str],
    back_up: Callable[[], str],
    provider: SandboxControl,
) -> None:
    declare()
    known = [make_orders(number) for number in range(READY // PER_RUN)]
    taken_at = database_now()
    backup = back_up()
    # What happens now is lost with the server: the operations are sent, and more runs begin.
    for claimed in known:
        deliver(sandbox, claimed)
    late = [make_orders(1000 + number) for number in range(AFTER // PER_RUN)]
    first = [answer.json()["id"] for claimed in late for answer in deliver(sandbox, claimed)]
    forgotten = {operation.key for claimed in late for operation in claimed.operations}
    assert provider.stats("supplier") == Counts(requests=READY + AFTER, effects=READY + AFTER, lookups=0)

    with other_database(backup):
        assert place.check_place() is not None, "another database was taken for the one it was"
        for claimed in known:
            for operation in claimed.operations:
                with pytest.raises(SendingFrozen):
                    send(claimed, operation=operation, attempt_id="again")
        assert Attempt.objects.count() == 0
        frozen = Freeze.objects.get()
        # Long enough ago that nothing can be under way any more: the list is asked at once.
        Freeze.objects.update(found_at=database_now() - timedelta(minutes=1))
        restoring.answer_freeze(
            freeze_id=frozen.pk,
            answer=FreezeAnswer.PRODUCTION,
            backup_taken_at=taken_at,
            actor=PERSON,
            actor_name="Maya",
            reason=REASON,
        )
        environment = {**app_env, "DATABASE_URL": _named(app_env["DATABASE_URL"], backup)}
        start_celery_worker(spawn, env=environment)
        start_celery_beat(spawn, env=environment)
        for last in until(90):
            if sending_at() == Sending.OPEN:
                break
            assert not last, restoring.progress_of(AccountReturn.objects.get(account=SUPPLIER))
        # Nothing was sent to find that out, and nothing happened twice.
        counts = provider.stats("supplier")
        assert (counts.requests, counts.effects) == (READY + AFTER, READY + AFTER)
        assert counts.lookups >= READY
        assert Operation.objects.filter(state=OperationState.CONFIRMED).count() == READY
        assert Receipt.objects.count() == READY
        assert set(Orphan.objects.values_list("key", flat=True)) == forgotten
        assert set(Orphan.objects.values_list("reference", flat=True)) == set(first)
        back = AccountReturn.objects.get(account=SUPPLIER)
        assert (back.marked_count, back.known_count, back.others_count) == (READY, READY, 0)
        # Where nobody can be asked, people have to look.
        assert sending_at(COURIER) == Sending.FROZEN

        redone = [make_orders(1000 + number) for number in range(AFTER // PER_RUN)]
        assert {operation.key for claimed in redone for operation in claimed.operations} == forgotten
        answers = [answer for claimed in redone for answer in deliver(sandbox, claimed)]
        assert [answer.json()["id"] for answer in answers] == first
        assert {answer.headers["Idempotent-Replayed"] for answer in answers} == {"true"}
        assert provider.stats("supplier").effects == READY + AFTER
        for last in until(60):
            if not Orphan.objects.filter(state="open").exists():
                break
            assert not last, "the redone operations were not linked to their orphans"
        for orphan in Orphan.objects.select_related("operation__receipt"):
            assert orphan.operation is not None
            assert orphan.operation.receipt.reference == orphan.reference
        spawn.stop_all()


def test_while_sending_is_frozen_the_console_repeats_nothing_either() -> None:
    declare()
    claimed = make_claimed()
    send(claimed)
    doubt(claimed.operation)
    quieten(claimed.operation)
    given = grant(claimed.operation, executor=Executor.CONSOLE)
    restoring.declare_restored(because="A test restored it.", actor=PERSON)
    with pytest.raises(SendingFrozen):
        begin_repeat_by_console(grant_id=given.pk, attempt_id="x1")
    assert Attempt.objects.count() == 1


def test_a_grant_from_before_the_restore_is_void_for_it_may_have_been_used() -> None:
    declare()
    claimed = make_claimed()
    send(claimed)
    doubt(claimed.operation)
    quieten(claimed.operation)
    given = grant(claimed.operation)
    freeze_and_say()
    sweep()
    assert fresh(given).state == GrantState.VOID
    assert [one.worker for one in Attempt.objects.order_by("number")][1:] == [FORGOTTEN_SENDER]
    assert Case.objects.get().state == CaseState.LOOKING_UP
    sweep()
    assert Attempt.objects.count() == 2
    ProviderAccount.objects.update(sending=Sending.OPEN)
    with pytest.raises(RunPaused):
        send(claimed, attempt_id="again")


def with_people() -> tuple[Claimed, Case]:
    """Sent, looked up three times without a find, and waiting for a decision."""
    claimed, case = cases_world.in_doubt()
    for _ in range(3):
        assert cases_world.look(case) == "not_found"
    assert fresh(case).state == CaseState.NEEDS_DECISION
    return claimed, case


def test_a_retry_that_was_decided_before_the_restore_and_not_granted_is_decided_anew(sandbox: Server) -> None:
    declare()
    claimed, case = with_people()
    cases_world.decide(case, Action.RETRY)
    assert (fresh(case).state, Grant.objects.count()) == (CaseState.RETRYING, 0)
    freeze_and_say()
    sweep()
    last = Attempt.objects.order_by("number").last()
    assert last is not None
    assert (last.worker, last.number) == (FORGOTTEN_SENDER, 2)
    assert (fresh(case).state, fresh(case).lookups_count) == (CaseState.LOOKING_UP, 0)
    # The lookup that it waited for is made, and no longer a repeat's: people are asked again.
    quieten(claimed.operation)
    for _ in range(3):
        assert cases_world.look(case) == "not_found"
    assert (fresh(case).state, Grant.objects.count()) == (CaseState.NEEDS_DECISION, 0)


def test_what_was_not_found_before_the_backup_is_asked_about_anew(sandbox: Server) -> None:
    declare()
    claimed, case = with_people()
    before = Lookup.objects.count()
    freeze_and_say()
    sweep()
    assert fresh(case).state == CaseState.LOOKING_UP
    told = (
        AuditLeaf.objects.filter(action="case.moved", operation_ref=claimed.operation.pk)
        .order_by("id")
        .last()
    )
    assert told is not None
    assert "whether a repeat was sent" in str(told.body)
    page = read_case(case.pk, teams=[claimed.run.team_id])
    assert verdict_of(page, may_look_up=True, why_not="").title.startswith("Not found before a restore")
    titles = [item.title for item in timeline_of(page)]
    assert titles.index("Perhaps sent in a time that was forgotten") < titles.index("Looked up again")
    # Nobody repeats before what a forgotten repeat may still do has ended, whatever was found before.
    retry = cases_world.judged(fresh(case)).assessment.action(Action.RETRY)
    assert retry is not None
    assert retry.permission is Permission.LOCKED
    sweep()
    assert Attempt.objects.filter(worker=FORGOTTEN_SENDER).count() == 1
    back = AccountReturn.objects.get(account=SUPPLIER)
    assert (back.marked_count, back.marked_at is not None) == (1, True)
    quieten(claimed.operation)
    cases_world.look(case)
    assert Lookup.objects.count() == before + 1
    page = read_case(case.pk, teams=[claimed.run.team_id])
    assert verdict_of(page, may_look_up=True, why_not="").title == "Not found, which proves nothing"


def test_absence_that_was_proved_before_the_backup_proves_nothing_of_the_lost_time(sandbox: Server) -> None:
    declare()
    claimed, case = cases_world.in_doubt(DESK)
    freeze_and_say()
    sweep()
    assert fresh(case).state == CaseState.LOOKING_UP
    # As before the restore it would be proof: the first attempt is quiet, and the lag is over.
    Attempt.objects.filter(number=1).update(quiet_after_at=database_now() - timedelta(hours=1))
    assert cases_world.look(case) == "not_found"
    assert fresh(claimed.operation).state == OperationState.SENT_UNKNOWN


def test_what_is_not_reported_yet_is_marked_once_its_sender_is_given_up() -> None:
    declare()
    claimed = cases_world.make_sent()
    freeze_and_say()
    sweep()
    assert AccountReturn.objects.get(account=SUPPLIER).marked_at is None
    cases_world.report("unknown", claimed)
    sweep()
    assert Attempt.objects.filter(worker=FORGOTTEN_SENDER).count() == 1
    sweep()
    assert AccountReturn.objects.get(account=SUPPLIER).marked_at is not None


def test_what_the_lost_time_may_have_sent_is_found_without_reading_every_operation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    declare()
    monkeypatch.setattr(marking, "ROWS_AT_ONCE", 2)
    sent = [cases_world.make_sent() for _ in range(3)]
    for one in sent:
        cases_world.report("unknown", one)
    ready = [make_claimed() for _ in range(5)]
    frozen = restoring.declare_restored(because="A test restored it.", actor=PERSON)
    said: dict[str, Any] = {"actor": PERSON, "actor_name": "Maya", "reason": REASON}
    restoring.answer_freeze(
        freeze_id=frozen.pk, answer=FreezeAnswer.PRODUCTION, backup_taken_at=database_now(), **said
    )
    with CaptureQueriesContext(connections["default"]) as asked:
        found = marking.perhaps_sent(SweepFailure.objects.none().values_list("subject", flat=True), limit=100)
    assert set(found) == {one.operation.pk for one in (*sent, *ready)}
    of_operations = [one["sql"] for one in asked if 'FROM "runs_operation"' in one["sql"]]
    assert len(of_operations) >= 5
    for one in of_operations:
        # Each names the rows that it is about, as ids or as runs: both are indexed.
        assert re.search(r'"runs_operation"\."(?:id|run_id)" IN \(', one), one


def test_while_sending_is_frozen_no_go_is_said_again() -> None:
    declare()
    claimed = make_claimed()
    send(claimed)
    restoring.declare_restored(because="A test restored it.", actor=PERSON)
    with pytest.raises(SendingFrozen):
        send(claimed)


def test_an_account_that_appears_while_sending_is_frozen_is_frozen_too() -> None:
    declare()
    restoring.declare_restored(because="A test restored it.", actor=PERSON)
    ProviderAccount.objects.create(
        slug="new",
        title="new",
        adapter_version="1",
        endpoint="/",
        start_within_ms=1,
        request_within_ms=1,
        in_flight_ms=0,
    )
    place.check_place()
    assert sending_at("new") == Sending.FROZEN


@pytest.mark.parametrize("column", ["system_identifier", "timeline", "database_oid"])
def test_another_server_timeline_or_database_freezes_sending(column: str) -> None:
    declare()
    assert place.check_place() is None
    Environment.objects.update(**{column: 1_000_001})
    sweep()
    frozen = Freeze.objects.get()
    assert "1000001" in frozen.because
    assert sending_at() == Sending.FROZEN
    sweep()
    assert Freeze.objects.count() == 1


def test_a_move_after_the_answer_freezes_what_was_opened_and_asks_anew() -> None:
    declare()
    first = freeze_and_say(FreezeAnswer.OWN_ENVIRONMENT)
    sweep()
    restoring.open_account(account=SUPPLIER, actor=PERSON, reason=REASON)
    # Restored once more, before every account was open again.
    Environment.objects.update(system_identifier=1_000_001)
    sweep()
    assert sending_at() == Sending.FROZEN
    second = Freeze.objects.get(ended_at__isnull=True)
    assert (second.pk != first.pk, second.answer) == (True, FreezeAnswer.AWAITED)
    sweep()
    assert Freeze.objects.count() == 2


def test_a_send_that_waits_while_sending_is_frozen_is_not_sent(connect: Connect) -> None:
    declare()
    claimed = make_claimed()
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    with holding_run(connect, claimed.run.pk) as holder, ThreadPoolExecutor(max_workers=2) as others:
        sent = others.submit(on_its_own, lambda: send(claimed))
        holder.wait_for_waiters(1)
        frozen = others.submit(
            on_its_own, lambda: restoring.declare_restored(because="A test restored it.", actor=PERSON)
        )
        for last in until(60):
            # Without waiting for the send it would be done by now, and the send would go nevertheless.
            if frozen.done() or holder.watcher.execute(waiting).fetchone() == (2,):
                break
            assert not last, "the freeze neither waits nor ends"
        holder.release()
        try:
            sent.result(timeout=60)
        except SendingFrozen:
            pass
        else:
            frozen.result(timeout=60)
            attempt, made = Attempt.objects.get(), Freeze.objects.get()
            leaves = list(
                AuditLeaf.objects.filter(action__in=["operation.sent", "sending.frozen"])
                .order_by("id")
                .values_list("action", flat=True)
            )
            assert leaves == ["operation.sent", "sending.frozen"], (attempt.minted_at, made.found_at)
        frozen.result(timeout=60)


def test_the_timeline_is_that_of_the_log_that_is_written_now(owner_url: str) -> None:
    with psycopg.connect(owner_url) as owner:
        name = owner.execute("SELECT pg_walfile_name(pg_current_wal_lsn())").fetchone()
    assert name is not None
    assert place.read_fingerprint().timeline == int(name[0][:8], 16)


def forget_lease(claimed: Claimed) -> str:
    """Give the run's next lease out, then let the journal forget it, as one from a backup has; its token."""
    before = fresh(claimed.run)
    leases.release(team=claimed.run.team_id, run_id=claimed.run.pk, token=claimed.token)
    given = claim(claimed.run)
    Lease.objects.filter(run=claimed.run).exclude(token=claimed.token).delete()
    Lease.objects.filter(token=claimed.token).update(ended_at=None, ended_by="")
    Run.objects.filter(pk=before.pk).update(
        lease_number=before.lease_number,
        lease_token=before.lease_token,
        lease_holder=before.lease_holder,
        lease_expires_at=before.lease_expires_at,
    )
    return given


def ask_with(claimed: Claimed, token: str) -> None:
    """Ask for go with this token, and be refused."""
    with pytest.raises(StaleToken):
        retries.begin_send(
            team=claimed.run.team_id, operation_id=claimed.operation.pk, attempt_id="a1", token=token
        )


def test_a_token_from_a_time_that_was_forgotten_freezes_sending() -> None:
    declare()
    claimed = make_claimed()
    forgotten = forget_lease(claimed)
    ask_with(claimed, forgotten)
    assert "showed lease 2" in Freeze.objects.get().because


def test_a_token_that_somebody_made_up_is_refused_and_freezes_nothing() -> None:
    declare()
    claimed, other = make_claimed(), make_claimed()
    rest = claimed.token.partition("-")[2]
    forgotten, others = forget_lease(claimed), forget_lease(other)
    made_up = {
        "an outdated one": "1-00000000000000000000",
        "nothing like a token": "nonsense",
        "a number alone": "2-00000000000000000000",
        "of the right length": f"2-{'0' * len(rest)}",
        "a higher number before its own secret": f"2-{rest}",
        "another run's": others,
        "a changed last digit": forgotten[:-1] + ("1" if forgotten[-1] == "0" else "0"),
        "one with something behind it": f"{forgotten}\n",
        "a number of too many digits": f"{'9' * 30}-{rest}",
        "a number in other digits": f"\u0662-{rest}",
        "nothing that a database takes": "2-\x00\ud800",
    }
    for what, token in made_up.items():
        ask_with(claimed, token)
        assert not place.notice_token(operation_id=claimed.operation.pk, token=token), what
    assert not Freeze.objects.exists()
    ask_with(other, others)
    assert Freeze.objects.exists(), "it was a token that freezes, of the other run"


def test_a_token_is_another_deployments_where_its_secret_is_another(settings: Settings) -> None:
    claimed = make_claimed()
    assert leases.given_number(run_id=claimed.run.pk, token=claimed.token) == 1
    settings.RECOURSE_KEY_SECRET = "another deployment's"
    assert leases.given_number(run_id=claimed.run.pk, token=claimed.token) is None


def test_a_copy_stays_frozen_and_nothing_of_it_is_touched() -> None:
    declare()
    claimed = make_claimed()
    freeze_and_say(FreezeAnswer.COPY)
    sweep()
    assert sending_at() == Sending.FROZEN
    assert fresh(claimed.operation).state == OperationState.READY
    with pytest.raises(restoring.NothingFrozen):
        restoring.open_account(account=SUPPLIER, actor=PERSON, reason=REASON)


def test_a_copy_with_an_environment_of_its_own_sends_only_where_an_administrator_says_so() -> None:
    declare()
    before = Environment.objects.get().id_text
    freeze_and_say(FreezeAnswer.OWN_ENVIRONMENT)
    sweep()
    assert Environment.objects.get().id_text != before
    assert sending_at() == Sending.FROZEN, "an account of the production was taken for the copy's own"
    restoring.open_account(account=SUPPLIER, actor=PERSON, reason=REASON)
    sweep()
    assert (sending_at(), sending_at(DESK)) == (Sending.OPEN, Sending.FROZEN)


def test_what_is_not_found_and_not_proved_absent_is_left_to_people(sandbox: Server) -> None:
    declare()
    claimed = make_claimed()
    freeze_and_say()
    sweep()
    operation = fresh(claimed.operation)
    assert operation.state == OperationState.SENT_UNKNOWN
    assert Attempt.objects.get(operation=operation).worker == FORGOTTEN_SENDER
    case = Case.objects.get()
    with pytest.raises(restoring.NotReconciled, match="still being looked up"):
        restoring.open_account(account=SUPPLIER, actor=PERSON, reason=REASON)
    quieten(operation)
    for _ in range(3):
        assert cases_world.look(case) == "not_found"
    assert (fresh(case).state, fresh(case).need) == (CaseState.NEEDS_DECISION, Need.NOT_FOUND)
    AccountReturn.objects.update(listing=ListingState.DONE)
    sweep()
    assert sending_at() == Sending.FROZEN
    # A person who knows what is left may open the account; that operation still waits for its decision.
    restoring.open_account(account=SUPPLIER, actor=PERSON, reason=REASON)
    assert sending_at() == Sending.OPEN
    assert fresh(operation).state == OperationState.SENT_UNKNOWN


def list_at(account: str) -> AccountReturn:
    """Ask for the account's list now, as the sweeper's task does."""
    one = AccountReturn.objects.get(account=account)
    gap.list_gap(return_id=one.pk)
    return fresh(one)


def test_nothing_is_listed_before_what_was_under_way_has_ended_and_shows(sandbox: Server) -> None:
    declare()
    frozen = freeze_and_say()
    early = list_at(DESK)
    # Five seconds to start, five for the request, one to take effect, three until the list shows it.
    assert early.listing_not_before_at == frozen.found_at + timedelta(seconds=14)
    assert (early.listing, early.listed_at, gap.due().count(early.pk)) == (ListingState.DUE, None, 0)
    sweep()
    told = restoring.progress_of(early)
    assert "asked from" in " ".join(told.left_to_people)
    assert not told.settled
    Freeze.objects.update(found_at=frozen.found_at - timedelta(seconds=14))
    AccountReturn.objects.update(listing_not_before_at=database_now())
    assert list_at(DESK).listing == ListingState.DONE


def test_an_account_that_nobody_can_list_says_why_and_is_left_to_people() -> None:
    declare()
    freeze_and_say()
    assert list_at(COURIER).listing == ListingState.NOT_OFFERED
    sweep()
    left = restoring.progress_of(AccountReturn.objects.get(account=COURIER)).left_to_people
    assert "answers no questions" in " ".join(left)
    assert sending_at(COURIER) == Sending.FROZEN


def test_what_a_whole_list_leaves_out_is_left_to_people() -> None:
    declare()
    freeze_and_say()
    sweep()
    AccountReturn.objects.filter(account=SUPPLIER).update(
        listing=ListingState.DONE, listed_at=database_now(), listing_note="Orders by telephone."
    )
    sweep()
    assert sending_at() == Sending.FROZEN
    assert (
        "Orders by telephone."
        in restoring.progress_of(AccountReturn.objects.get(account=SUPPLIER)).left_to_people[0]
    )
    restoring.open_account(account=SUPPLIER, actor=PERSON, reason=REASON)
    assert sending_at() == Sending.OPEN


def test_an_answer_needs_its_reason_and_the_time_of_the_backup() -> None:
    declare()
    frozen = restoring.declare_restored(because="A test restored it.", actor=PERSON)
    said: dict[str, Any] = {"freeze_id": frozen.pk, "actor": PERSON, "actor_name": "Maya"}
    later = database_now() + timedelta(hours=1)
    never = datetime(1, 1, 1, tzinfo=UTC)
    for fields, where in (
        ({"answer": FreezeAnswer.COPY, "backup_taken_at": None, "reason": "short"}, "reason"),
        ({"answer": FreezeAnswer.PRODUCTION, "backup_taken_at": None, "reason": REASON}, "backup_taken_at"),
        ({"answer": FreezeAnswer.PRODUCTION, "backup_taken_at": later, "reason": REASON}, "backup_taken_at"),
        ({"answer": FreezeAnswer.PRODUCTION, "backup_taken_at": never, "reason": REASON}, "backup_taken_at"),
    ):
        with pytest.raises(Invalid) as refused:
            restoring.answer_freeze(**said, **fields)
        assert refused.value.details["where"] == where
    assert fresh(frozen).answer == FreezeAnswer.AWAITED


def test_the_command_freezes_and_says_which_it_is_for_administrators_alone() -> None:
    declare()
    Person.objects.create(username="ada", roles=[Role.ADMINISTRATOR])
    Person.objects.create(username="olu", roles=[Role.OPERATOR])
    said = ["--backup-taken-at", "2026-11-28T21:00:00+00:00", "--reason", REASON]
    with pytest.raises(CommandError, match="no administrator"):
        call_command("restored", *said, "--by", "olu")
    with pytest.raises(CommandError, match="--backup-taken-at is needed"):
        call_command("restored", "--reason", REASON, "--by", "ada")
    assert not Freeze.objects.exists()
    call_command("restored", *said, "--by", "ada")
    assert (Freeze.objects.get().answer, sending_at()) == (FreezeAnswer.PRODUCTION, Sending.FROZEN)
    told = AuditLeaf.objects.filter(action__startswith="sending.").order_by("id")
    assert list(told.values_list("action", flat=True)) == ["sending.frozen", "sending.freeze_answered"]
