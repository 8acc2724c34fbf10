"""Run the drill: real servers and workers, a provider that is away and comes back; then count there.

What is counted comes from the provider's own record of requests. Nothing here asks Recourse whether it has
kept to the limit.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import connections

from console.drill.staging import ACCOUNT, Staged, stage_cases, stage_effects
from console.embedded import EmbeddedServers
from console.embedded.demo import PROJECT
from console.embedded.processes import AS_WE_ARE, Child, start
from console.sandbox.control import Request, SandboxControl
from console.sandbox.process import SandboxProcess
from console.variables import database
from reconciliation.breaking import BreakerState
from reconciliation.health import AccountHealth, account_health
from reconciliation.models import Case, Lookup
from reconciliation.providers import registry
from reconciliation.providers.base import FindingKind
from reconciliation.states import CaseState
from runs.locking import database_now

WINDOW = timedelta(seconds=1)
LOOK_SECONDS = 0.5
# How long the outage lasts once the breaker has noticed it, so that probes are seen to fail as well.
OUTAGE_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True)
class Drill:
    """What to run. `base_seconds` is the first wait between two lookups of a case."""

    cases: int
    workers: int
    per_second: float
    base_seconds: float
    sweep_seconds: float
    seconds_max: float


class DrillFailed(Exception):
    """The drill itself could not go on; says where it stood."""


def run_drill(drill: Drill, *, folder: Path, say: Callable[[str], None]) -> dict[str, Any]:
    """Run it in `folder` and return the figures. Everything that was started ends with it."""
    store = folder / "sandbox.sqlite3"
    with _recourse(drill, folder) as environment:
        say(f"opening {drill.cases} cases …")
        began = time.monotonic()
        staged = stage_cases(count=drill.cases)
        stage_effects(store=store, staged=staged)
        say(
            f"opened in {time.monotonic() - began:.0f} s; the provider is away, {drill.workers} workers start"
        )
        with ExitStack() as running:
            port = int(environment["SANDBOX_URL"].rpartition(":")[2])
            for child in _workers(drill, folder, environment):
                running.callback(child.stop)
            away = _await_breaker(drill, say)
            time.sleep(OUTAGE_SECONDS)
            say(f"{Lookup.objects.count()} lookups while it was away; the provider comes back")
            sandbox = SandboxProcess.start(store=store, port=port)
            running.callback(sandbox.stop)
            with SandboxControl(sandbox.url) as control:
                for key in staged.poisoned:
                    control.fault("lookup_garbage", account=ACCOUNT, key=key, times=-1)
                back_at = time.monotonic()
                progress = _await_end(drill, say)
                seconds = time.monotonic() - back_at
                requests = control.requests(ACCOUNT)
        # Up to the instant at which it was back, which no other clock knows.
        asked_away = list(
            Lookup.objects.filter(finding=FindingKind.UNAVAILABLE).values_list("operation__key", flat=True)
        )
        return {
            **_counted(drill, staged, requests, asked_away=frozenset(asked_away)),
            "breaker_opened_after_lookups": away,
            "lookups_while_away": len(asked_away),
            "seconds_after_return": round(seconds, 1),
            "progress": progress,
        }


@contextmanager
def _recourse(drill: Drill, folder: Path) -> Iterator[dict[str, str]]:
    """Servers and schema for the drill; this process uses them too. Yields the workers' environment."""
    providers = folder / "providers"
    providers.mkdir()
    declared = (Path(__file__).parent / "account.toml").read_text()
    limit = "rate_limit_per_second = "
    (providers / "drill.toml").write_text(declared.replace(f"{limit}50", f"{limit}{drill.per_second:g}"))
    with EmbeddedServers(folder / "state") as servers:
        environment = {
            **{name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ},
            "DJANGO_SETTINGS_MODULE": "console.settings",
            "PYTHONPATH": str(PROJECT),
            "DATABASE_URL": servers.database_url,
            "BROKER_URL": servers.broker_url,
            "RECOURSE_SECRET_KEY": "outage-drill-" * 4,
            "RECOURSE_KEY_SECRET": "outage-drill-" * 4,
            "RECOURSE_PROVIDERS_DIR": str(providers),
            "RECOURSE_ALLOWED_PROVIDER_HOSTS": "127.0.0.1=loopback",
            "RECOURSE_SWEEP_SECONDS": str(drill.sweep_seconds),
            "RECOURSE_LOOKUP_BASE_SECONDS": str(drill.base_seconds),
            "RECOURSE_LOG_LEVEL": "WARNING",
            "SANDBOX_URL": f"http://127.0.0.1:{_free_port()}",
        }
        subprocess.run(
            [sys.executable, str(PROJECT / "manage.py"), "migrate", "--verbosity", "0"],
            env={**environment, "DATABASE_OWNER_URL": servers.owner_url},
            check=True,
        )
        _use(environment)
        try:
            yield environment
        finally:
            connections.close_all()


def _use(environment: dict[str, str]) -> None:
    """Let this process open and read cases in the drill's own database, whatever its own environment says."""
    login = database(environment["DATABASE_URL"])
    settings.DATABASES["default"].update(login)
    connections["default"].settings_dict.update(login)
    settings.RECOURSE_PROVIDERS_DIR = [environment["RECOURSE_PROVIDERS_DIR"]]
    settings.BROKER_URL = settings.CELERY_BROKER_URL = environment["BROKER_URL"]
    settings.RECOURSE_KEY_SECRET = environment["RECOURSE_KEY_SECRET"]
    settings.SANDBOX_URL = os.environ["SANDBOX_URL"] = environment["SANDBOX_URL"]
    from console.celery import app

    app.conf.update(broker_url=environment["BROKER_URL"])
    registry.reload()


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _workers(drill: Drill, folder: Path, environment: dict[str, str]) -> list[Child]:
    """The workers, each a process of its own, and the beat that wakes the sweeper."""
    celery = [str(Path(sys.executable).parent / "celery"), "-A", "console"]
    worker = [*celery, "worker", "--concurrency", str(drill.workers), "--loglevel", "WARNING"]
    beat = [*celery, "beat", "--loglevel", "WARNING", "--schedule", str(folder / "beat"), "--pidfile="]
    commands = {
        "worker": [*worker, "--hostname", "drill@127.0.0.1", "--without-gossip", "--without-mingle"],
        "beat": beat,
    }
    return [
        start(
            name=name,
            command=command,
            log=folder / f"{name}.log",
            environment=environment,
            folder=PROJECT,
            account=AS_WE_ARE,
        )
        for name, command in commands.items()
    ]


def _await_breaker(drill: Drill, say: Callable[[str], None]) -> int:
    """Wait until the breaker is open; how many lookups that took."""
    for health in _looks(drill):
        if health.breaker.state is not BreakerState.CLOSED:
            say(health.sentence)
            return Lookup.objects.count()
    raise AssertionError


def _await_end(drill: Drill, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Wait until every case is settled or with a person; what a page would have shown meanwhile."""
    progress: list[dict[str, Any]] = []
    began = time.monotonic()
    for health in _looks(drill):
        states = Counter(Case.objects.values_list("state", "need"))
        waiting = Case.objects.filter(lookups_count=0).exclude(state=CaseState.RESOLVED).count()
        open_ones = sum(count for (state, _), count in states.items() if state == CaseState.LOOKING_UP)
        settled = sum(count for (state, _), count in states.items() if state == CaseState.RESOLVED)
        seconds = round(time.monotonic() - began, 1)
        progress.append(
            {
                "seconds": seconds,
                "settled": settled,
                "due": health.backlog.due,
                "oldest_due_seconds": _age(health),
                "lookups_per_second": round(health.backlog.looked_up_per_second, 1),
                "seconds_left": _rounded(health.backlog.seconds_left),
                "at_once": health.limiter.at_once,
                "breaker": health.breaker.state.value,
            }
        )
        if len(progress) % 10 == 1:
            say(f"{seconds:6.1f} s  {progress[-1]}")
        if open_ones == 0 and waiting == 0:
            return progress
    raise AssertionError


def _looks(drill: Drill) -> Iterator[AccountHealth]:
    until = time.monotonic() + drill.seconds_max
    while time.monotonic() < until:
        yield account_health(ACCOUNT, database_now())
        time.sleep(LOOK_SECONDS)
    health = account_health(ACCOUNT, database_now())
    raise DrillFailed(f"Not over after {drill.seconds_max:g} s: {health.backlog}, {health.breaker}")


def _age(health: AccountHealth) -> float | None:
    oldest_at = health.backlog.oldest_due_at
    return None if oldest_at is None else round((health.at - oldest_at).total_seconds(), 1)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)


def _counted(
    drill: Drill, staged: Staged, requests: list[Request], *, asked_away: frozenset[str]
) -> dict[str, Any]:
    """The figures, from the provider's record of what it was asked."""
    lookups = [one for one in requests if one.method == "GET"]
    arrived = [datetime.fromisoformat(one.received_at) for one in lookups]
    # What was asked about while nobody answered has gone behind the others since.
    waited = [key for key in staged.keys if key not in asked_away]
    first_asked = list(dict.fromkeys(one.key or "" for one in lookups if one.key not in asked_away))
    places = {key: place for place, key in enumerate(waited)}
    displaced = [abs(place - places[key]) for place, key in enumerate(first_asked)]
    states = Counter(Case.objects.values_list("state", "need"))
    by_need = Counter(
        {need: count for (state, need), count in states.items() if state == CaseState.NEEDS_DECISION}
    )
    parked = Case.objects.filter(need="parked").values_list("parked_because", flat=True)
    return {
        "cases": drill.cases,
        "workers": drill.workers,
        "limit_per_second": drill.per_second,
        "lookups": len(lookups),
        "lookups_of_one_second_max": most_in_window(arrived, WINDOW),
        "lookups_under_way_max": most_at_once(lookups),
        "lookups_of_one_case_at_once_max": max(
            (most_at_once(its) for its in _by_key(lookups).values()), default=0
        ),
        "lookups_per_second_mean": round(len(arrived) / _span_seconds(arrived), 1),
        "settled": sum(count for (state, _), count in states.items() if state == CaseState.RESOLVED),
        "with_a_person": dict(by_need),
        "left": sum(
            count
            for (state, _), count in states.items()
            if state not in (CaseState.RESOLVED, CaseState.NEEDS_DECISION)
        ),
        "wrong": _wrong(staged),
        "parked_because": sorted(set(parked))[:5],
        "asked_out_of_order_by_max": max(displaced, default=0),
        "requests_that_change": sum(one.method == "POST" for one in requests),
    }


def _wrong(staged: Staged) -> int:
    """Cases that ended otherwise than the provider's record says they should."""
    resolved = set(Case.objects.filter(resolution="confirmed").values_list("operation__key", flat=True))
    return len(resolved ^ staged.found)


def _by_key(lookups: list[Request]) -> dict[str, list[Request]]:
    by_key: dict[str, list[Request]] = {}
    for one in lookups:
        by_key.setdefault(one.key or "", []).append(one)
    return by_key


def most_in_window(instants: list[datetime], window: timedelta) -> int:
    """The most of these instants within any one window, wherever it begins (its end not included)."""
    ordered, first, most = sorted(instants), 0, 0
    for last, at in enumerate(ordered):
        while at - ordered[first] >= window:
            first += 1
        most = max(most, last - first + 1)
    return most


def most_at_once(requests: list[Request]) -> int:
    """The most of these requests that the provider was handling at one time."""
    edges: list[tuple[str, int]] = []
    for one in requests:
        edges.append((one.received_at, 1))
        if one.ended_at is not None:
            edges.append((one.ended_at, -1))
    now = most = 0
    for _, step in sorted(edges):
        now += step
        most = max(most, now)
    return most


def _span_seconds(instants: list[datetime]) -> float:
    return max(1.0, (max(instants) - min(instants)).total_seconds()) if instants else 1.0
