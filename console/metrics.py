"""Prometheus metrics, computed from the database when they are asked for; only latencies are a process's own.

There are many processes and any of them may answer, so what is counted in one of them would be a part of the
truth. Each query is capped and follows an index; what the log holds is counted behind it (`counting`).
Latencies are measured in each web process, and put together from files in RECOURSE_METRICS_DIR.
"""

from __future__ import annotations

import hmac
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Final

from django.conf import settings
from django.db import connection, transaction
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_GET

if settings.RECOURSE_METRICS_DIR:
    # Read once, when the library is first imported.
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = settings.RECOURSE_METRICS_DIR

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from console.operating_models import CountingProgress, LogCount, Pulse
from reconciliation.breaking import BreakerState
from reconciliation.gate_models import AccountGate

# Counted of each team and state; more is this many. A scrape must cost the same after an outage.
CASES_MAX: Final = 2_000
MESSAGES_MAX: Final = 2_000
# A scrape that meets a busy database gives up, rather than adding to it.
TIMEOUT_MS: Final = 5_000
# A journal's commit is some milliseconds; a caller who waits for claimable runs waits up to half a minute.
BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

_own = CollectorRegistry()
JOURNAL_SECONDS: Final = Histogram(
    "recourse_journal_seconds",
    "How long calls of the HTTP API took, by call and class of status.",
    ["call", "status"],
    buckets=BUCKETS,
    registry=_own,
)

# Each team's open cases of each state, the newest first and up to a cap, by how long they have been open.
_CASES: Final = """
SELECT state.word, CASE
        WHEN listed.opened_at > now() - interval '15 minutes' THEN 'under_15m'
        WHEN listed.opened_at > now() - interval '1 hour' THEN '15m_to_1h'
        WHEN listed.opened_at > now() - interval '4 hours' THEN '1h_to_4h'
        WHEN listed.opened_at > now() - interval '1 day' THEN '4h_to_1d'
        ELSE 'over_1d' END AS age, count(*)
FROM unnest(%(states)s::text[]) AS state (word)
CROSS JOIN runs_team AS team
CROSS JOIN LATERAL (
    SELECT opened_at FROM reconciliation_case
    WHERE team_id = team.slug AND state = state.word LIMIT %(most)s
) AS listed
GROUP BY 1, 2 ORDER BY 1, 2
"""
_DUE: Final = """
SELECT account.slug, (
    SELECT count(*) FROM (
        SELECT FROM reconciliation_case
        WHERE provider_slug = account.slug AND next_lookup_at <= now() LIMIT %(most)s
    ) AS due
) FROM runs_provideraccount AS account ORDER BY 1
"""
_MESSAGES: Final = """
SELECT 'waiting', count(*) FROM (
    SELECT FROM console_message WHERE state = 'waiting' LIMIT %(most)s
) AS listed
UNION ALL SELECT 'failed', count(*) FROM (
    SELECT FROM runs_team AS team CROSS JOIN LATERAL (
        SELECT FROM console_message WHERE team_id = team.slug AND state = 'failed' LIMIT %(most)s
    ) AS one LIMIT %(most)s
) AS listed
UNION ALL SELECT 'unpacked', count(*) FROM (
    SELECT FROM console_notification WHERE state = 'waiting' LIMIT %(most)s
) AS listed
"""
_OPEN_STATES: Final = ("looking_up", "needs_decision", "awaiting_approval", "retrying")
_DECIDED: Final = "case.decided."
_GRANTS: Final = {"grant.made": "made", "grant.ended": "ended"}
_CASES_WERE: Final = {"case.opened": "opened", "case.resolved": "resolved"}


class Database(Collector):
    """What the database says now."""

    def collect(self) -> Iterable[Metric]:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(f"SET LOCAL statement_timeout = {TIMEOUT_MS}")
            cursor.execute("SET TRANSACTION READ ONLY")
            return list(self._collect())

    def _collect(self) -> Iterator[Metric]:
        yield _gauge(
            "recourse_cases",
            f"Open cases by state and age; at most {CASES_MAX} of each team and state are counted.",
            ["state", "age"],
            _rows(_CASES, states=list(_OPEN_STATES), most=CASES_MAX),
        )
        yield _gauge(
            "recourse_lookups_due",
            "Cases whose next lookup is due, by account, up to a cap.",
            ["account"],
            _rows(_DUE, most=CASES_MAX),
        )
        breakers = AccountGate.objects.order_by("account_id").values_list("account_id", "breaker_state")
        yield _gauge(
            "recourse_breaker_open",
            "1 where lookups at an account have stopped, for want of usable answers.",
            ["account"],
            [(slug, int(state != BreakerState.CLOSED)) for slug, state in breakers],
        )
        yield _gauge(
            "recourse_notifications",
            "Messages that wait or were given up, and notifications in no message yet, up to a cap.",
            ["state"],
            _rows(_MESSAGES, most=MESSAGES_MAX),
        )
        yield _gauge(
            "recourse_pulse_timestamp_seconds",
            "When sweeper and workers last did what they are there for.",
            ["part"],
            [(one.part, one.at.timestamp()) for one in Pulse.objects.order_by("part")],
        )
        yield from _counted()


def _counted() -> Iterator[Metric]:
    """What the audit log holds, as far as it is counted."""
    entries: Counter[tuple[str, ...]] = Counter()
    lookups: Counter[tuple[str, ...]] = Counter()
    decisions: Counter[tuple[str, ...]] = Counter()
    grants: Counter[tuple[str, ...]] = Counter()
    cases: Counter[tuple[str, ...]] = Counter()
    for action, by, finding, count in LogCount.objects.values_list(
        "action", "actor_kind", "finding", "count"
    ):
        entries[action, by] += count
        if finding:
            lookups[finding,] += count
        if action.startswith(_DECIDED):
            decisions[action.removeprefix(_DECIDED), by] += count
        if action in _GRANTS:
            grants[_GRANTS[action],] += count
        if action in _CASES_WERE:
            cases[_CASES_WERE[action],] += count
    yield _counter("recourse_lookups", "Lookups by what they told.", ["finding"], lookups)
    yield _counter("recourse_decisions", "Decisions, by who made them.", ["action", "by"], decisions)
    yield _counter("recourse_grants", "Permissions for one more request.", ["event"], grants)
    yield _counter("recourse_cases_seen", "Cases opened and resolved.", ["event"], cases)
    yield _counter("recourse_audit_entries", "Entries of the audit log.", ["action", "by"], entries)
    through = CountingProgress.objects.values_list("through_at", flat=True).first()
    yield _gauge(
        "recourse_audit_counted_through_timestamp_seconds",
        "Up to when the entries above are counted.",
        [],
        [] if through is None else [(through.timestamp(),)],
    )


def _rows(statement: str, **parameters: list[str] | int) -> list[tuple[object, ...]]:
    given: dict[str, Any] = parameters
    with connection.cursor() as cursor:
        cursor.execute(statement, given)
        rows: list[tuple[object, ...]] = cursor.fetchall()
    return rows


def _counter(name: str, text: str, labels: list[str], counts: Counter[tuple[str, ...]]) -> Metric:
    family = CounterMetricFamily(name, text, labels=labels)
    for values, count in sorted(counts.items()):
        family.add_metric(list(values), count)
    return family


def _gauge(name: str, text: str, labels: list[str], rows: Iterable[tuple[object, ...]]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=labels)
    for *values, number in rows:
        family.add_metric([str(one) for one in values], float(str(number)))
    return family


@require_GET
def metrics(request: HttpRequest) -> HttpResponse:
    """Answer a scrape that shows RECOURSE_METRICS_TOKEN. Without that setting there are no metrics here.

    The numbers are of all teams, so no token of the API, which belongs to one, opens them.
    """
    expected = settings.RECOURSE_METRICS_TOKEN
    if not expected:
        return _plain("Metrics are off here: RECOURSE_METRICS_TOKEN isn't set.\n", status=404)
    shown = request.headers.get("Authorization", "").removeprefix("Bearer ").strip()
    if not hmac.compare_digest(shown.encode(), expected.encode()):
        answer = _plain("Metrics need the deployment's token: Authorization: Bearer ….\n", status=401)
        answer["WWW-Authenticate"] = "Bearer"
        return answer
    registry = CollectorRegistry()
    registry.register(Database())
    body = generate_latest(registry) + generate_latest(_latencies())
    return HttpResponse(body, content_type=CONTENT_TYPE_LATEST, headers={"Cache-Control": "no-store"})


def _latencies() -> CollectorRegistry:
    """Of every web process that writes to the folder; without one, of this process."""
    if not settings.RECOURSE_METRICS_DIR:
        return _own
    registry = CollectorRegistry()
    MultiProcessCollector(registry, path=settings.RECOURSE_METRICS_DIR)  # type: ignore[no-untyped-call]
    return registry


def _plain(text: str, *, status: int) -> HttpResponse:
    headers = {"Cache-Control": "no-store"}
    return HttpResponse(text, status=status, content_type="text/plain; charset=utf-8", headers=headers)
