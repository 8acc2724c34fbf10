"""`make bench-pages`: what the console's pages cost with 1,000,000 operations, beside 10,000 in the same run.

Two databases of one embedded server are filled alike (`population`), one with a hundred times as much behind
it. Then every page is asked for in both, in turns, by a signed-in person of two teams through Django's own
client in this process: what is measured is the server's work for the page, without a network and a browser.
Prints each page's queries and medians, and writes build/bench-pages.json: per page ms_10k, ms_1m, ratio and
queries, and how long the page is in each (kb_10k, kb_1m): where the small database has fewer rows to show,
the ratio says little, and the table says so. The plans of all statements in the large database are looked at
too: a table of more than 5,000 rows that one of them reads from end to end is named.
"""

from __future__ import annotations

import argparse
import gc
import html
import json
import os
import random
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode, urljoin, urlsplit, urlunsplit

import psycopg
from psycopg import sql

from console.embedded import EmbeddedServers, folders
from tests.benchmark.__main__ import environment_of, manage
from tests.processes import ROOT

SMALL, LARGE = 10_000, 1_000_000
SAMPLES = 30
RATIO_MAX, QUERIES_MAX = 1.3, 12
LARGE_ROWS = 5_000
# Different rows are asked for from sample to sample, so that no page is measured on the same few blocks.
TARGETS = 10
DEEP_PAGES = 20
# A page that is longer than this by its rows isn't the same page.
LONGER_MAX = 1.15
# What begins and ends a transaction asks nothing.
NO_QUERIES: Final = ("BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE")


@dataclass(kw_only=True)
class Page:
    """What came of one page. Times are medians in milliseconds, sizes medians in thousands of bytes."""

    ms_10k: float = 0.0
    ms_1m: float = 0.0
    ratio: float = 0.0
    queries: int = 0
    kb_10k: float = 0.0
    kb_1m: float = 0.0
    read_whole: list[str] = field(default_factory=list)

    @property
    def is_even(self) -> bool:
        """Whether both databases show about as much on it."""
        return self.kb_1m <= self.kb_10k * LONGER_MAX


@dataclass(kw_only=True)
class World:
    """One database: its connection, a signed-in client, and the addresses to ask for."""

    name: str
    operations: int
    wrapper: Any = None
    client: Any = None
    addresses: dict[str, list[str]] = field(default_factory=dict)

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Everything that asks the database here asks this one."""
        from django.db import connections

        before = connections["default"]
        connections["default"] = self.wrapper
        try:
            yield
        finally:
            connections["default"] = before

    def get(self, address: str) -> Any:
        response = self.client.get(address, headers={"host": "127.0.0.1"})
        assert response.status_code in (200, 302), (address, response.status_code)
        return response


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--operations", type=int, default=LARGE, help="of the large database")
    parser.add_argument("--samples", type=int, default=SAMPLES)
    parser.add_argument(
        "--state", type=Path, help="keep the databases in this folder, and use those that are there"
    )
    options = parser.parse_args()
    with (
        folders.temporary("recourse-pages-") as folder,
        EmbeddedServers(options.state or folder / "state") as servers,
    ):
        pages = _run(servers, options.operations, options.samples)
    _print_table(pages, options.operations)
    target = ROOT / "build" / "bench-pages.json"
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps({name: asdict(page) for name, page in pages.items()}, indent=2) + "\n")
    print(f"written to {target.relative_to(ROOT)}")


def _run(servers: EmbeddedServers, operations: int, samples: int) -> dict[str, Page]:
    os.environ.update(environment_of(servers.database_url, servers.broker_url))
    os.environ["RECOURSE_PROVIDERS_CHECK_SECONDS"] = "3600"
    with psycopg.connect(_named(servers.superuser_url, "postgres"), autocommit=True) as connection:
        # Filling writes more at once than a journal ever does.
        connection.execute("ALTER SYSTEM SET max_wal_size = '8GB'")
        connection.execute("SELECT pg_reload_conf()")
    import django

    django.setup()
    worlds = [World(name="small", operations=SMALL), World(name="large", operations=operations)]
    for world in worlds:
        began = time.monotonic()
        _make(world, servers)
        print(f"{world.operations:,} operations made in {time.monotonic() - began:.0f} s", file=sys.stderr)
    pages = _measure(worlds, samples)
    for world in worlds:
        world.wrapper.close()
    return pages


def _named(url: str, name: str) -> str:
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


def _make(world: World, servers: EmbeddedServers) -> None:
    """Make, migrate and fill the database, and sign somebody in."""
    from django.db import connections
    from django.test import Client

    from console.models import Person
    from console.variables import database
    from tests.benchmark import population

    name = f"pages_{world.operations}"
    with psycopg.connect(servers.owner_url, autocommit=True) as connection:
        found = connection.execute("SELECT FROM pg_database WHERE datname = %s", [name]).fetchone()
        if found is None:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    os.environ["DATABASE_URL"] = _named(servers.database_url, name)
    manage("migrate", "--verbosity", "0", owner=_named(servers.owner_url, name))
    world.wrapper = connections.create_connection("default")
    world.wrapper.settings_dict = {**world.wrapper.settings_dict, **database(os.environ["DATABASE_URL"])}
    with world.entered():
        if found is None:
            copied = population.make_samples(world.operations)
            population.copy_all(_named(servers.superuser_url, name), copied, world.operations)
        world.client = Client()
        world.client.force_login(Person.objects.get(username="sam"))
        world.addresses = _addresses(world)


# --- What is asked for ----------------------------------------------------------------------------------


def _addresses(world: World) -> dict[str, list[str]]:
    from console.models import Person
    from reconciliation.models import Case
    from runs.models import AuditLeaf, Operation, Receipt, Run

    rng = random.Random(world.operations)

    def some(rows: Any, column: str = "pk") -> list[str]:
        """Some of these, from everywhere in the table."""
        with world.wrapper.cursor() as cursor:
            table = rows.model._meta.db_table
            share = min(100.0, 100.0 * 3_000 / world.operations)
            cursor.execute(f"SELECT id FROM {table} TABLESAMPLE BERNOULLI ({share}) REPEATABLE (7)")
            ids = [pk for (pk,) in cursor.fetchall()]
        found = sorted(rows.filter(pk__in=ids).values_list(column, flat=True))
        rng.shuffle(found)
        return [str(one) for one in found[:TARGETS]]

    def search(words: list[str]) -> list[str]:
        return [f"/search/?{urlencode({'q': one})}" for one in words]

    operations = Operation.objects.filter(team="ops")
    ids, keys = some(operations), some(operations, "key")
    references = some(Receipt.objects.all(), "reference")
    externals = some(Run.objects.filter(team="ops"), "external_id")
    waiting = Case.objects.filter(team="ops", state="needs_decision")
    robin = Person.objects.get(username="robin").pk
    latest = AuditLeaf.objects.filter(action="operation.sent", team_slug="ops").latest("id")
    one_worker = {"actor": latest.actor, "provider": "sandbox-mail", "action": "operation.sent"}
    days_ago = {"until": f"{latest.at - timedelta(days=2):%Y-%m-%dT%H:%M}"}
    paths = {
        "queue": ["/"],
        "queue, deep": [_deep(world, "/")],
        "queue by provider": ["/?provider=sandbox-supplier"],
        "queue by flow": ["/?flow=restock-agent"],
        "queue by tool": ["/?tool=create_ticket"],
        "queue by finding": ["/?finding=mismatch"],
        "queue by reason": ["/?reason=lookups_exhausted"],
        "queue by age": ["/?age=4h"],
        "queue by amount": ["/?min=3000"],
        "queue, mine": ["/?assignee=me"],
        "queue, nobody's": ["/?assignee=nobody"],
        "queue of a person": [f"/?assignee=person:{robin}"],
        "queue by whole key": [f"/?{urlencode({'q': one})}" for one in some(waiting, "operation__key")],
        "queue by part of an id": [
            f"/?{urlencode({'q': one[-8:]})}" for one in some(waiting, "operation__pk")
        ],
        "queue, ends soon": ["/?view=soon"],
        "queue, put off": ["/?view=snoozed"],
        "queue, looking up": ["/?view=looking_up"],
        "queue, retrying": ["/?view=retrying"],
        "queue, resolved": ["/?view=resolved"],
        "queue, resolved, deep": [_deep(world, "/?view=resolved")],
        "search, whole id": search(ids),
        "search, whole key": search(keys),
        "search, whole reference": search(references),
        "search, nothing": search([f"nothing-{number}-here" for number in range(TARGETS)]),
        "search, beginning": search([one[:16] for one in keys]),
        "search, beginning of all": search(["rk-"]),
        "search, beginning, deep": [_deep(world, "/search/?q=ord-1", pages=5)],
        "search, part": search([one[-9:] for one in (*ids, *references)]),
        "search, written alike": search([one[:8] + one[9] + one[8] + one[10:] for one in externals]),
        "case": [f"/cases/{one}/" for one in some(waiting)],
        "case, resolved": [
            f"/cases/{one}/" for one in some(Case.objects.filter(state="resolved", team="ops"))
        ],
        "run": [f"/runs/{one}/" for one in some(Run.objects.filter(state="completed"))],
        "runs": ["/runs/"],
        "runs, deep": [_deep(world, "/runs/")],
        "runs, paused": ["/runs/?view=paused"],
        "runs by flow": ["/runs/?flow=refund-agent"],
        "runs by external id": [f"/runs/?{urlencode({'q': one})}" for one in externals],
        "history": ["/effects/"],
        "history, deep": [_deep(world, "/effects/")],
        "history, people": ["/effects/?show=people"],
        "history, people at an account": ["/effects/?show=people&provider=sandbox-desk"],
        "history, no exceptions": ["/effects/?show=fenced"],
        "history, lookups": ["/effects/?action=lookups"],
        "history, lookups, deep": [_deep(world, "/effects/?action=lookups")],
        "history at an account": ["/effects/?provider=sandbox-mail"],
        "history of a worker": [f"/effects/?{urlencode({'actor': latest.actor})}"],
        "history by all three": [f"/effects/?{urlencode(one_worker)}"],
        "history, what never was": ["/effects/?action=case.revealed&provider=sandbox-mail"],
        "history until a time": [f"/effects/?{urlencode(days_ago)}"],
        "history of an operation": [f"/effects/?{urlencode({'q': one})}" for one in ids],
        "an operation's history": [f"/effects/{one}/" for one in ids],
    }
    assert all(paths.values()), [name for name, found in paths.items() if not found]
    return paths


def _deep(world: World, address: str, *, pages: int = DEEP_PAGES) -> str:
    """The address so many pages on, or of the last one that is full."""
    full = address
    for _ in range(pages + 1):
        following = re.search(r'rel="next" href="([^"]+)"', world.get(address).content.decode())
        if following is None:
            break
        full, address = address, urljoin(address, html.unescape(following[1]))
    return full


# --- Measuring ------------------------------------------------------------------------------------------


def _measure(worlds: list[World], samples: int) -> dict[str, Page]:
    times: dict[tuple[str, str], list[float]] = {}
    sizes: dict[tuple[str, str], list[int]] = {}
    names = list(worlds[0].addresses)
    for world in worlds:  # what is read once is in memory, as in a console that is in use
        with world.entered():
            for name in names:
                for address in world.addresses[name]:
                    sizes.setdefault((name, world.name), []).append(len(world.get(address).content))
    for number in range(samples):
        for name in names:
            for world in random.sample(worlds, len(worlds)):
                addresses = world.addresses[name]
                address = addresses[number % len(addresses)]
                with world.entered():
                    times.setdefault((name, world.name), []).append(_timed(lambda: world.get(address)))  # noqa: B023
        print(f"sample {number + 1} of {samples}", file=sys.stderr)
    pages: dict[str, Page] = {}
    large = worlds[-1]
    for name in names:
        small_ms, large_ms = (statistics.median(times[name, world.name]) for world in worlds)
        small_kb, large_kb = (statistics.median(sizes[name, world.name]) / 1_000 for world in worlds)
        with large.entered():
            queries, read_whole = _looked_at(large, large.addresses[name])
        pages[name] = Page(
            ms_10k=round(small_ms, 2),
            ms_1m=round(large_ms, 2),
            ratio=round(large_ms / small_ms, 2),
            queries=queries,
            kb_10k=round(small_kb, 1),
            kb_1m=round(large_kb, 1),
            read_whole=read_whole,
        )
    return pages


def _timed(call: Callable[[], Any]) -> float:
    gc.collect()
    began = time.perf_counter()
    call()
    return (time.perf_counter() - began) * 1_000


def _looked_at(world: World, addresses: list[str]) -> tuple[int, list[str]]:
    """The most queries that one of these pages makes, and the large tables that one of them reads whole."""
    from django.test.utils import CaptureQueriesContext

    most, tables = 0, set()
    for address in addresses:
        with CaptureQueriesContext(world.wrapper) as captured:
            world.get(address)
        asked = [one["sql"] for one in captured if not one["sql"].startswith(NO_QUERIES)]
        most = max(most, len(asked))
        for statement in asked:
            tables |= read_whole(world.wrapper, statement, LARGE_ROWS)
    return most, sorted(tables)


def read_whole(connection: Any, statement: str, rows_min: int) -> set[str]:
    """The tables of so many rows that a statement would read from end to end, by the planner's own word."""
    from django.db import transaction

    with connection.cursor() as cursor:
        cursor.execute("SELECT relname FROM pg_class WHERE relkind = 'r' AND reltuples >= %s", [rows_min])
        large = {name for (name,) in cursor.fetchall()}
        # Limits that a statement sets itself are part of what the planner knows.
        limits = re.match(r"(SET LOCAL [^;]+; )*", statement)
        assert limits is not None
        # Not as a pattern with places for values: the values are in it.
        with transaction.atomic(using=connection.alias):
            cursor.execute(
                f"{limits[0]}EXPLAIN (FORMAT JSON) {statement[limits.end() :]}".replace("%", "%%"), []
            )
            while cursor.nextset():
                pass
            (plan,) = cursor.fetchone()
    found: set[str] = set()
    nodes = [plan[0]["Plan"]]
    while nodes:
        node = nodes.pop()
        nodes += node.get("Plans", [])
        if node["Node Type"] == "Seq Scan" and node.get("Relation Name") in large:
            found.add(node["Relation Name"])
    return found


def _print_table(pages: dict[str, Page], operations: int) -> None:
    print(f"\n{'median of a page, ms':<28}{SMALL:>10,}{operations:>12,}{'ratio':>8}{'queries':>9}")
    for name, page in pages.items():
        missed = (page.ratio > RATIO_MAX and page.is_even) or page.queries > QUERIES_MAX or page.read_whole
        note = "" if page.is_even else f"  {page.kb_1m / page.kb_10k:.1f} times as much on the page"
        note += ("  !" if missed else "") + (
            f" reads {', '.join(page.read_whole)}" if page.read_whole else ""
        )
        print(f"{name:<28}{page.ms_10k:>10.1f}{page.ms_1m:>12.1f}{page.ratio:>8.2f}{page.queries:>9}{note}")
    print(f"\nTarget: ratio at most {RATIO_MAX}, at most {QUERIES_MAX} queries, no large table read whole.")


if __name__ == "__main__":
    main()
