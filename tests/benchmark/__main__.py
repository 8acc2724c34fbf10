"""`make bench`: journaled effects per second, beside a plain psycopg loop with the same two commits.

One effect is begin_send and a receipt: fence, budget, attempt, audit leaf, two durable commits. The plain
loop inserts a row, then updates it and inserts a second one: the least that two commits can cost. Both run
on the same database in the same run, in turns, so that what the machine does meanwhile hits them alike;
each figure is the median of the rounds. Prints a table and writes build/bench.json.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
from contextlib import ExitStack
from multiprocessing.pool import Pool
from pathlib import Path

from console.embedded import EmbeddedServers, folders
from tests.benchmark import measuring
from tests.processes import ROOT, Spawn, start_web_server

ROUNDS = 5
# Long enough that a fsync hiccup is one of hundreds, short enough for a coffee.
EFFECTS_PER_ROUND = {1: 300, 8: 1200}
KINDS = ("plain", "domain", "api")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument(
        "--effects", type=int, help="effects a round, instead of 300 at 1 and 1200 at 8 workers"
    )
    options = parser.parse_args()
    with (
        folders.temporary("recourse-bench-") as folder,
        EmbeddedServers(folder / "state") as servers,
    ):
        environment = environment_of(servers.database_url, servers.broker_url)
        os.environ.update(environment)
        manage("migrate", "--verbosity", "0", owner=servers.owner_url)
        manage("sync_providers")
        measuring.create_plain_tables(servers.owner_url)
        results = _measure(options.rounds, options.effects, folder)
    _print_table(results)
    target = ROOT / "build" / "bench.json"
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps(results, indent=2) + "\n")
    print(f"written to {target.relative_to(ROOT)}")


def environment_of(database_url: str, broker_url: str) -> dict[str, str]:
    return {
        "DATABASE_URL": database_url,
        "BROKER_URL": broker_url,
        "RECOURSE_SECRET_KEY": "benchmark" * 6,
        "RECOURSE_KEY_SECRET": "benchmark" * 6,
        "RECOURSE_SECURE_COOKIES": "0",
        "RECOURSE_LOG_LEVEL": "WARNING",
        "SANDBOX_URL": "http://127.0.0.1:9",
        "DJANGO_SETTINGS_MODULE": "console.settings",
    }


def manage(*arguments: str, owner: str = "") -> str:
    environment = {**os.environ, **({"DATABASE_OWNER_URL": owner} if owner else {})}
    command = [sys.executable, str(ROOT / "manage.py"), *arguments]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True, cwd=ROOT)
    return done.stdout.strip()


def _measure(rounds: int, effects: int | None, folder: Path) -> dict[str, float]:
    context = multiprocessing.get_context("spawn")
    token = manage("createtoken", "--team", "bench", "--create-team", "--scope", "journal", "--name", "bench")
    rates: dict[str, list[float]] = {}
    spawn = Spawn(folder)
    url = start_web_server(spawn, env=dict(os.environ)).url
    with ExitStack() as cleanup:
        cleanup.callback(spawn.stop_all)
        pool = cleanup.enter_context(context.Pool(8, measuring.start_worker))
        counts = pool.apply(measuring.count_queries)
        for number in range(rounds):
            for workers, per_round in EFFECTS_PER_ROUND.items():
                share = (effects or per_round) // workers
                for kind in KINDS:
                    rate = _round(pool, kind, workers, share, url, token)
                    rates.setdefault(f"{kind}_{workers}", []).append(rate)
            print(f"round {number + 1} of {rounds} done", file=sys.stderr)
    results: dict[str, float] = {name: round(statistics.median(values), 1) for name, values in rates.items()}
    for workers in EFFECTS_PER_ROUND:
        plain = results[f"plain_{workers}"]
        results[f"domain_{workers}_ratio"] = round(results[f"domain_{workers}"] / plain, 3)
        results[f"api_{workers}_ratio"] = round(results[f"api_{workers}"] / plain, 3)
    return {**results, **counts}


def _round(pool: Pool, kind: str, workers: int, share: int, url: str, token: str) -> float:
    """Effects per second of all workers together, from the first start to the last end."""
    prepared = pool.map(measuring.prepare, [(kind, share, url, token)] * workers, chunksize=1)
    spans = pool.map(measuring.run, prepared, chunksize=1)
    began, ended = min(span[0] for span in spans), max(span[1] for span in spans)
    return workers * share / (ended - began)


def _print_table(results: dict[str, float]) -> None:
    print(f"\n{'effects per second':<22}{'1 worker':>12}{'8 workers':>12}")
    for kind in KINDS:
        print(f"{kind:<22}{results[f'{kind}_1']:>12,.0f}{results[f'{kind}_8']:>12,.0f}")
    for kind in ("domain", "api"):
        print(
            f"{kind + ' ÷ plain':<22}{results[f'{kind}_1_ratio']:>12.2f}{results[f'{kind}_8_ratio']:>12.2f}"
        )
    print(f"queries per effect: {results['queries_per_effect']:.0f} (domain)")
    print(f"commits per effect: {results['commits_per_effect']:.0f} (domain, those that write)\n")


if __name__ == "__main__":
    main()
