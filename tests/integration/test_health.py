"""What says that the deployment is ready, and what it counts: each part on both sides of its limit."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
import structlog
from django.conf import settings as live
from django.db import OperationalError, connection
from django.test import Client
from prometheus_client.parser import text_string_to_metric_families

from console import counting, following, health, metrics
from console.notification_models import Message
from console.operating_models import CountingProgress, LogCount, Part, Pulse
from reconciliation import admission, breaking
from runs.locking import database_now
from runs.models import AuditLeaf
from tests import cases

pytestmark = pytest.mark.usefixtures("transactional_db")
TOKEN = "m" * 40
NOW = "now"


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch, settings: Any) -> Iterator[None]:
    monkeypatch.setattr(following, "SETTLE_SECONDS", 0)
    settings.RECOURSE_METRICS_TOKEN = TOKEN
    settings.SECURE_SSL_REDIRECT = False
    health.lately.forget()
    yield
    health.lately.forget()


def ready() -> tuple[int, dict[str, str]]:
    health.lately.forget()
    answer = Client().get("/readyz")
    assert answer["Cache-Control"] == "no-store"
    return answer.status_code, answer.json()["parts"]


def beat_all() -> None:
    for part in Part:
        health.beat(part)


# --- Ready ------------------------------------------------------------------------------------------------


def test_a_process_that_answers_is_alive_whatever_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connection.settings_dict, "PORT", "1")
    assert Client().get("/healthz").json() == {"status": "ok"}


def test_it_is_ready_when_every_part_is_and_says_which_is_not() -> None:
    assert ready() == (
        503,
        {"database": "ok", "schema": "ok", "broker": "ok", "sweeper": "never", "worker": "never"},
    )
    beat_all()
    assert ready() == (
        200,
        {"database": "ok", "schema": "ok", "broker": "ok", "sweeper": "ok", "worker": "ok"},
    )


@pytest.mark.parametrize(
    ("part", "limit"), [(Part.SWEEPER, health.SWEEPER_SILENT_MIN), (Part.WORKER, health.WORKER_SILENT_MAX)]
)
def test_a_part_that_has_been_silent_for_too_long_is_named(part: Part, limit: timedelta) -> None:
    now = database_now()
    silent = {"now": now, "silent_max": limit}
    assert health.pulse_check(part, now - limit, **silent).word == "ok"
    assert health.pulse_check(part, now - limit - timedelta(milliseconds=1), **silent).word == "silent"
    beat_all()
    Pulse.objects.filter(part=part).update(at=now - limit - timedelta(seconds=1))
    status, parts = ready()
    assert (status, parts[part]) == (503, "silent")
    assert [word for word in parts.values() if word != "ok"] == ["silent"]


def test_a_slow_sweeper_may_be_silent_for_longer(settings: Any) -> None:
    settings.RECOURSE_SWEEP_SECONDS = 60.0
    assert health.sweeper_silent_max() == timedelta(minutes=6)


def test_a_broker_that_is_away_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    beat_all()
    monkeypatch.setattr(health.app.conf, "broker_url", "redis://127.0.0.1:1/0")
    monkeypatch.setattr(health.app, "_pool", None, raising=False)
    monkeypatch.setattr(
        health.app, "connection_for_write", lambda: health.app.connection("redis://127.0.0.1:1/0")
    )
    status, parts = ready()
    assert (status, parts["broker"]) == (503, "unreachable")


def test_a_schema_that_is_behind_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    beat_all()
    monkeypatch.setattr(health, "_migrated", type(health._migrated)())
    monkeypatch.setattr(health.MigrationExecutor, "migration_plan", lambda *_: [("console", "0099")])
    # As in a database that no migration has seen yet.
    monkeypatch.setattr(health.Pulse.objects, "values_list", lambda *_: pytest.fail("asked for pulses"))
    status, parts = ready()
    assert (status, parts) == (503, {"database": "ok", "schema": "behind", "broker": "ok"})


def test_a_database_that_is_away_is_named_and_nothing_that_needs_it_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def away() -> Any:
        raise OperationalError("no connection")

    monkeypatch.setattr(health.connection, "cursor", away, raising=False)
    status, parts = ready()
    assert (status, parts) == (503, {"database": "unreachable", "broker": "ok"})


def test_strangers_make_us_ask_no_more_than_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []
    ask = health._Lately(lambda: asked.append(time.monotonic()) or (health.Check(part="x"),))  # type: ignore[func-returns-value]
    for _ in range(50):
        ask.get()
    assert len(asked) == 1


def test_whoever_asks_while_a_broker_is_waited_for_gets_what_was_known_and_does_not_wait() -> None:
    answers = iter([(health.Check(part="first"),), (health.Check(part="second"),)])
    may_go_on, asking = threading.Event(), threading.Event()
    may_go_on.set()

    def ask() -> tuple[health.Check, ...]:
        asking.set()
        assert may_go_on.wait(60)
        return next(answers)

    lately = health._Lately(ask)
    assert [one.part for one in lately.get()] == ["first"]
    lately._until = time.monotonic()
    may_go_on.clear()
    asking.clear()
    with ThreadPoolExecutor(2) as threads:
        slow = threads.submit(lately.get)
        assert asking.wait(60)
        quick = threads.submit(lately.get)
        try:
            assert [one.part for one in quick.result(timeout=60)] == ["first"]
        finally:
            may_go_on.set()
        assert [one.part for one in slow.result(timeout=60)] == ["second"]


# --- Metrics ----------------------------------------------------------------------------------------------


def count_all() -> None:
    latest = AuditLeaf.objects.order_by("-id").values_list("pk", flat=True).first() or 0
    until = time.monotonic() + 60
    while True:
        counting.count_entries()
        if CountingProgress.objects.filter(through_leaf__gte=latest).exists():
            return
        assert time.monotonic() < until, "the log never settled"
        time.sleep(0.02)


def scrape() -> dict[tuple[str, ...], float]:
    answer = Client().get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
    assert answer.status_code == 200, answer.content
    return {
        (sample.name, *(f"{name}={value}" for name, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(answer.content.decode())
        for sample in family.samples
    }


def test_metrics_are_shown_to_whoever_has_the_token_and_to_nobody_else(settings: Any) -> None:
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Bearer {TOKEN}x"}):
        assert Client().get("/metrics", headers=headers).status_code == 401
    settings.RECOURSE_METRICS_TOKEN = ""
    assert Client().get("/metrics", headers={"Authorization": "Bearer "}).status_code == 404


def test_what_is_scraped_is_what_is_in_the_database() -> None:
    opened = cases.needs_decision()
    cases.open_case()
    settled = cases.open_case()
    cases.looked_up(settled, cases.found(settled))
    failed = admission.Outcome(verdict=breaking.Verdict.FAILED, because="No connection.")
    for _ in range(breaking.FAILURES_TO_OPEN):
        admission.note(slug=cases.PAYMENTS, claim="", outcome=failed)
    beat_all()
    count_all()
    found = scrape()
    assert found["recourse_cases", "age=under_15m", "state=needs_decision"] == 1
    assert found["recourse_cases", "age=under_15m", "state=looking_up"] == 1
    assert found["recourse_cases_seen_total", "event=opened"] == 3
    assert found["recourse_cases_seen_total", "event=resolved"] == 1
    assert found["recourse_lookups_total", "finding=found"] == 1
    assert found["recourse_breaker_open", f"account={opened.operation.provider_id}"] == 1
    assert found["recourse_notifications", "state=waiting"] == Message.objects.count() == 0
    assert found["recourse_pulse_timestamp_seconds", "part=worker"] == pytest.approx(time.time(), abs=300)
    entries = sum(value for key, value in found.items() if key[0] == "recourse_audit_entries_total")
    assert entries == AuditLeaf.objects.count()


def test_entries_are_counted_once_in_batches_and_anew_after_a_pass_that_died(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(counting, "BATCH_LEAVES", 3)
    cases.needs_decision()
    with monkeypatch.context() as broken:
        broken.setattr(CountingProgress, "save", lambda self: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            counting.count_entries()
    assert not LogCount.objects.exists()
    count_all()
    counting.count_entries()
    assert sum(LogCount.objects.values_list("count", flat=True)) == AuditLeaf.objects.count() > 6


def test_a_scrape_changes_nothing_and_counts_no_further_than_its_cap(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metrics, "CASES_MAX", 1)
    cases.needs_decision()
    cases.needs_decision()
    assert scrape()["recourse_cases", "age=under_15m", "state=needs_decision"] == 1


# --- Lines of the log -------------------------------------------------------------------------------------


def test_a_line_logged_during_a_request_names_its_ids_and_holds_no_body(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from console import observing

    lines: list[dict[str, Any]] = []

    def keep(logger: Any, method: str, event: dict[str, Any]) -> dict[str, Any]:
        lines.append(dict(event))
        raise structlog.DropEvent

    wrapped = structlog.wrap_logger(
        None, processors=[structlog.contextvars.merge_contextvars, keep], wrapper_class=structlog.BoundLogger
    )
    monkeypatch.setattr(observing, "log", wrapped)
    operation = "op_01KB7PW2ZC0000000000000000"
    Client().post(
        f"/api/v1/operations/{operation}/send",
        data=json.dumps({"token": "secret-token", "attempt_id": "a1"}),
        content_type="application/json",
        headers={"Authorization": "Bearer rec_wrong"},
    )
    (line,) = lines
    assert line["operation"] == operation
    assert (line["event"], line["method"], line["status"]) == ("request", "POST", 401)
    assert line["request"].startswith("req_")
    assert "secret" not in str(line)
    assert structlog.contextvars.get_contextvars() == {}
    key = ("recourse_journal_seconds_count", f"call={line['route']}", "status=4xx")
    assert scrape()[key] >= 1


def test_a_task_s_lines_name_it() -> None:
    from console.celery import app

    seen: list[dict[str, Any]] = []

    @app.task(name="tests.seen", shared=False)
    def look() -> None:
        seen.append(dict(structlog.contextvars.get_contextvars()))

    try:
        look.apply(task_id="t-1")
    finally:
        app.tasks.unregister("tests.seen")
    assert seen == [{"task": "tests.seen", "task_id": "t-1"}]
    assert structlog.contextvars.get_contextvars() == {}
    assert live.CELERY_WORKER_HIJACK_ROOT_LOGGER is False
