"""`python -m recourse_client spool [DIR] [--deliver]`: what an earlier process could not report."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from recourse_client.client import Client
from recourse_client.errors import RecourseError
from recourse_client.reports import Delivery
from recourse_client.spool import REFUSED, UNREADABLE, Spool, default_folder

# Exit codes: everything is delivered or nothing waited; something still waits or was set aside; no answer.
_DONE, _LEFT, _FAILED = 0, 1, 2


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m recourse_client", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    spool = commands.add_parser("spool", help="list the reports that wait for delivery, or deliver them")
    spool.add_argument("folder", nargs="?", type=Path, default=None, metavar="DIR")
    spool.add_argument("--deliver", action="store_true", help="deliver to $RECOURSE_URL with $RECOURSE_TOKEN")
    chosen = parser.parse_args(arguments)
    folder: Path = chosen.folder or default_folder()
    try:
        return _deliver(folder) if chosen.deliver else _list(folder)
    except RecourseError as error:
        print(error, file=sys.stderr)
        return _FAILED


def _list(folder: Path) -> int:
    spool = Spool(folder)
    waiting, unreadable = spool.waiting()
    for spooled in waiting:
        report = spooled.report
        print(f"{report.outcome:10} {report.operation} {report.attempt_id} {spooled.file}")
    for name in (REFUSED, UNREADABLE):
        for file in spool.aside(name):
            print(f"{name:10} {_reason(file)} {file}")
    print(f"{len(waiting)} waiting in {folder}")
    return _LEFT if waiting or unreadable else _DONE


def _deliver(folder: Path) -> int:
    with Client(spool=folder) as client:
        delivery = client.deliver_spooled()
    _print(delivery)
    left = delivery.kept or delivery.refused or delivery.unreadable or delivery.elsewhere
    return _LEFT if left else _DONE


def _print(delivery: Delivery) -> None:
    for report in delivery.delivered:
        print(f"delivered  {report.outcome} {report.operation} {report.attempt_id}")
    for report in delivery.kept:
        print(f"waiting    {report.outcome} {report.operation} {report.attempt_id}")
    for report in delivery.elsewhere:
        print(f"elsewhere  {report.outcome} {report.operation} {report.attempt_id}: for {report.journal_url}")
    for file, reason in delivery.refused:
        print(f"refused    {file}: {reason}")
    for found in delivery.unreadable:
        print(f"unreadable {found.file}: {found.reason}")


def _reason(file: Path) -> str:
    try:
        return file.with_suffix(".reason").read_text(errors="replace").strip()[:200]
    except OSError:
        return "(no reason on file)"


if __name__ == "__main__":
    sys.exit(main())
