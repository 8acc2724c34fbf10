"""The broker only wakes: emptied, doubled and with two beats, nothing is lost and nothing is repeated."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from console.celery import app as celery_app
from console.sandbox.control import SandboxControl
from reconciliation import waking
from reconciliation.models import Case, Decision, Lookup
from reconciliation.providers import registry
from reconciliation.states import Action
from runs.models import Attempt, AuditLeaf, Grant, Operation, Run
from tests.cases_world import (
    COURIER,
    DESK,
    case_of,
    decide,
    declare,
    in_doubt,
    make_sent,
    report,
)
from tests.factories import Claimed, claim, end_lease_in, fresh
from tests.processes import (
    PATIENCE_SECONDS,
    Server,
    Spawn,
    start_celery_beat,
    start_celery_worker,
    until,
)
from tests.sandbox_client import new_client

pytestmark = [pytest.mark.crash, pytest.mark.timeout(240), pytest.mark.django_db(transaction=True)]
# Enough to keep the worker busy with doubles; more would only have to be worked off at the end.
QUEUED_MAX = 20


@pytest.fixture
def control(sandbox: Server, app_env: dict[str, str]) -> Iterator[SandboxControl]:
    app_env |= {"RECOURSE_LOOKUP_BASE_SECONDS": "0.2"}
    declare()
    with SandboxControl(sandbox.url) as control:
        yield control
    # Closes the connections that lookups keep open.
    registry.reload()


def lost_with_its_worker(control: SandboxControl, provider: str) -> Claimed:
    """The provider has made the effect, and the worker died before it read the reply."""
    claimed = make_sent(provider)
    slug, kind = provider.removeprefix("sandbox-"), "tickets" if provider == DESK else "orders"
    with new_client(control.account_url(slug)) as client:
        client.post(
            f"/{kind}",
            json=json.loads(bytes(claimed.operation.payload)),
            headers={"Idempotency-Key": claimed.operation.key},
        )
    end_lease_in(claimed.run, -1)
    return claimed


def await_states(expected: dict[str, str]) -> None:
    """Wait until each operation is in its state; nobody announces it."""
    for last in until(PATIENCE_SECONDS):
        found = dict(Operation.objects.filter(pk__in=expected).values_list("pk", "state"))
        if found == expected:
            return
        assert not last, (found, expected, list(Case.objects.values("state", "need", "next_lookup_at")))


def queue_length() -> int:
    with celery_app.connection_for_write() as connection:
        return int(connection.default_channel.client.llen(celery_app.conf.task_default_queue))


def empty_the_broker() -> None:
    with celery_app.connection_for_write() as connection:
        connection.default_channel.client.flushdb()


def test_with_every_wake_up_call_lost_the_sweeper_finds_all_of_it(
    control: SandboxControl, spawn: Spawn, app_env: dict[str, str]
) -> None:
    found = lost_with_its_worker(control, "sandbox-supplier")
    blind = make_sent(COURIER)
    end_lease_in(blind.run, -1)
    doubtful, case = in_doubt()
    decide(case, Action.RETRY, executor="console")
    # Reports and decisions have called for lookups and a send; nobody hears of it.
    assert waking.flush(within_seconds=PATIENCE_SECONDS)
    assert queue_length() > 0
    empty_the_broker()
    start_celery_worker(spawn, env=app_env)
    start_celery_beat(spawn, env=app_env)
    await_states(
        {
            found.operation.pk: "confirmed",
            blind.operation.pk: "sent_unknown",
            doubtful.operation.pk: "confirmed",
        }
    )
    for last in until(PATIENCE_SECONDS):
        asks = Case.objects.filter(operation=blind.operation).first()
        if asks is not None and (asks.state, asks.need) == ("needs_decision", "no_lookup"):
            break
        assert not last, asks
    for claimed, requests in ((found, 1), (doubtful, 1)):
        counts = control.stats("supplier", key=claimed.operation.key)
        assert (counts.requests, counts.effects) == (requests, 1)
    # The run of each that is settled goes on by itself.
    assert claim(found.run)
    assert claim(doubtful.run)
    assert fresh(blind.run).state == "paused"


def test_the_broker_emptied_again_and_again_delays_and_loses_nothing(
    control: SandboxControl, spawn: Spawn, app_env: dict[str, str]
) -> None:
    lost = [lost_with_its_worker(control, provider) for provider in ("sandbox-supplier", DESK) * 3]
    start_celery_worker(spawn, env=app_env)
    start_celery_beat(spawn, env=app_env)
    wanted = {one.operation.pk: "confirmed" for one in lost}
    for last in until(PATIENCE_SECONDS):
        empty_the_broker()
        if dict(Operation.objects.filter(pk__in=wanted).values_list("pk", "state")) == wanted:
            break
        assert not last, list(Case.objects.values("state", "need", "next_lookup_at"))
    total = control.stats()
    assert (total.requests, total.effects) == (len(lost), len(lost))


def test_every_message_ten_times_and_two_beats_repeat_nothing(
    control: SandboxControl, spawn: Spawn, app_env: dict[str, str]
) -> None:
    found = [lost_with_its_worker(control, "sandbox-supplier") for _ in range(2)]
    doubtful = [in_doubt() for _ in range(2)]
    for _, case in doubtful:
        decide(case, Action.RETRY, executor="console")
    start_celery_worker(spawn, env=app_env)
    beats = [start_celery_beat(spawn, env=app_env) for _ in range(2)]
    wanted = {one.operation.pk: "confirmed" for one in [*found, *(claimed for claimed, _ in doubtful)]}
    for last in until(PATIENCE_SECONDS):
        if dict(Operation.objects.filter(pk__in=wanted).values_list("pk", "state")) == wanted:
            break
        assert not last, list(Case.objects.values("state", "need", "next_lookup_at"))
        if queue_length() > QUEUED_MAX:
            continue
        # Whatever was or will be called for, ten times over: each task's own argument, and the sweeper.
        cases = list(Case.objects.values_list("pk", flat=True))
        grants = list(Grant.objects.values_list("pk", flat=True))
        for _ in range(10):
            celery_app.send_task("reconciliation.tasks.sweep")
            for name, ids in (("look_up", cases), ("send_granted", grants)):
                for one in ids:
                    celery_app.send_task(f"reconciliation.tasks.{name}", args=[one])
    # Every doubled message has been worked off before we count.
    for beat in beats:
        beat.kill_group()
    for last in until(PATIENCE_SECONDS):
        if queue_length() == 0:
            break
        assert not last, queue_length()
    for claimed in [*found, *(one for one, _ in doubtful)]:
        counts = control.stats("supplier", key=claimed.operation.key)
        assert (counts.requests, counts.effects) == (1, 1)
        assert Case.objects.filter(operation=claimed.operation).count() == 1
        confirmed = AuditLeaf.objects.filter(action="operation.confirmed", operation_ref=claimed.operation.pk)
        assert confirmed.count() == 1
    assert Attempt.objects.filter(executor="console").count() == Grant.objects.count() == len(doubtful)
    assert Decision.objects.count() == len(doubtful)
    # Each look was made once: nobody asked while another was asking.
    assert Lookup.objects.filter(used="judged").count() == control.stats("supplier").lookups
    assert not Run.objects.filter(in_doubt_count__gt=0).exists()


def test_a_report_is_kept_while_the_broker_is_gone(
    control: SandboxControl, spawn: Spawn, app_env: dict[str, str]
) -> None:
    """The wake-up call is lost, the case is not."""
    claimed = make_sent()
    broker_url = celery_app.conf.broker_url
    celery_app.conf.broker_url = "redis+socket:///tmp/no-broker-here.sock?virtual_host=0"
    try:
        answer = report("unknown", claimed)
        assert waking.flush(within_seconds=PATIENCE_SECONDS)
    finally:
        celery_app.conf.broker_url = broker_url
    assert answer["case"] == case_of(claimed).pk
    start_celery_worker(spawn, env=app_env)
    start_celery_beat(spawn, env=app_env)
    for last in until(PATIENCE_SECONDS):
        if Lookup.objects.filter(case=answer["case"]).exists():
            return
        assert not last
