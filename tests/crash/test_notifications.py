"""Notifications through real workers, a broker and a mail server that we didn't write: killed, and away."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from console import following
from console.celery import app
from console.notification_models import Happening, Medium, Message, Notification
from console.notifying import channels, occurring
from reconciliation import cases as reconciled
from runs.actors import Actor, ActorKind
from runs.locking import database_now
from tests import cases, factories
from tests.contract.peers.mail import MailServer
from tests.processes import PATIENCE_SECONDS, Process, Spawn, free_port, start_celery_worker, until

pytestmark = [pytest.mark.crash, pytest.mark.timeout(240)]


@pytest.fixture
def server(transactional_db: None) -> Iterator[MailServer]:
    with MailServer() as running:
        yield running


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch, app_env: dict[str, str]) -> str:
    """A mailbox that hears of a case; returns the case's id."""
    monkeypatch.setattr(following, "SETTLE_SECONDS", 0)
    app_env |= {"RECOURSE_PUBLIC_URL": "https://recourse.example", "RECOURSE_LOG_FORMAT": "json"}
    factories.make_team(factories.TEAM)
    channels.add(
        team=factories.TEAM,
        teams=[factories.TEAM],
        medium=Medium.EMAIL,
        address="payments@example.com",
        happenings=list(Happening),
        actor=Actor(ActorKind.PERSON, "person:1"),
    )
    occurring.note(now=database_now())
    opened = cases.needs_decision()
    for last in until(PATIENCE_SECONDS):
        occurring.note(now=database_now())
        if Notification.objects.exists():
            break
        assert not last, "the log never settled"
    # As if it had happened before the seconds in which what happens together is gathered.
    Notification.objects.update(made_at=database_now() - timedelta(minutes=1))
    return opened.case_id


def notify(worker: Process) -> None:
    """Wake the worker, as beat would."""
    assert worker.running()
    app.send_task("console.tasks.notify")


def await_message(worker: Process, **wanted: Any) -> Message:
    for last in until(PATIENCE_SECONDS):
        found = Message.objects.filter(**wanted).first()
        if found is not None:
            return found
        assert not last, (wanted, list(Message.objects.values()), worker.output()[-3000:])
    raise AssertionError


def test_a_worker_killed_between_the_mail_server_s_yes_and_its_note_sends_it_again_under_the_same_id(
    spawn: Spawn, server: MailServer, app_env: dict[str, str], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app_env["RECOURSE_MAIL_URL"] = f"smtp+plain://127.0.0.1:{server.port}"
    worker = start_celery_worker(spawn, env=app_env, concurrency=1)
    accepted, killed = threading.Event(), threading.Event()
    handle = server._handler.handle_DATA

    async def accept_and_kill(*args: Any) -> str:
        answer = await handle(*args)
        if not killed.is_set():
            # It has the mail; nobody there has heard so.
            accepted.set()
            worker.kill_group()
            killed.set()
        return answer

    monkeypatch.setattr(server._handler, "handle_DATA", accept_and_kill)
    notify(worker)
    assert killed.wait(PATIENCE_SECONDS), worker.output()
    message = Message.objects.get()
    assert (message.state, message.attempts_count, len(server.kept)) == ("waiting", 1, 1)
    # Its claim's time is over.
    Message.objects.update(claimed_until_at=database_now(), next_attempt_at=database_now())
    second = start_celery_worker(spawn, env=app_env, concurrency=1)
    notify(second)
    await_message(second, state="sent")
    first, again = server.kept
    assert first.message_id == again.message_id == f"<{message.pk}@recourse.example>"
    assert first.message.get_content() == again.message.get_content()
    assert f"https://recourse.example/cases/{told}/" in first.message.get_content()
    assert Notification.objects.get().state == "packed"


def test_a_mail_server_that_was_away_for_an_hour_gets_every_message_once_when_it_is_back(
    spawn: Spawn, app_env: dict[str, str], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    app_env["RECOURSE_MAIL_URL"] = f"smtp+plain://127.0.0.1:{port}"
    # The worker would look the case below up before the test says what its lookups tell.
    monkeypatch.setattr(reconciled, "wake_after_commit", lambda *call: None)
    worker = start_celery_worker(spawn, env=app_env, concurrency=1)
    # Each attempt of an hour, without its waits: the next is due when the clock says so.
    for attempt in range(1, 8):
        notify(worker)
        message = await_message(worker, attempts_count=attempt, claim="")
        assert (message.state, message.because) == (
            "waiting",
            "The mail server wasn’t reached (ConnectionRefusedError).",
        )
        assert message.next_attempt_at is not None
        assert message.next_attempt_at > database_now()
        Message.objects.update(next_attempt_at=database_now())
    Message.objects.update(made_at=database_now() - timedelta(hours=1))
    # More happens meanwhile.
    cases.needs_decision()
    for last in until(PATIENCE_SECONDS):
        notify(worker)
        if Notification.objects.filter(state="waiting").exists():
            break
        assert not last, worker.output()[-3000:]
    Notification.objects.filter(state="waiting").update(made_at=database_now() - timedelta(minutes=1))
    with MailServer(port=port) as server:
        Message.objects.update(next_attempt_at=database_now())
        for last in until(PATIENCE_SECONDS):
            notify(worker)
            if Message.objects.filter(state="sent").count() == 2:
                break
            assert not last, worker.output()[-3000:]
        ids = [kept.message_id for kept in server.kept]
    assert len(ids) == len(set(ids)) == 2
    # Whatever was logged names the task, and no address.
    lines = [line for line in worker.json_lines() if line.get("event") == "notification_attempt"]
    assert {line["task"] for line in lines} == {"console.tasks.notify"}
    assert "payments@example.com" not in worker.output()
