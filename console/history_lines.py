"""Entries of the audit log as lines of a file: JSON with the entry's own bytes in it, or inert CSV."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

from console.pages.present.bulk_file import inert_cell
from reconciliation.retrospect import event_in
from runs.models import AuditLeaf

COLUMNS: Final = (
    "entry",
    "at_utc",
    "action",
    "team",
    "run",
    "operation",
    "actor_kind",
    "actor",
    "role",
    "subject",
    "before",
    "after",
    "reason",
    "evidence_digest",
    "sha256",
)


def json_lines(leaves: Sequence[AuditLeaf]) -> Iterator[bytes]:
    """One object a line: `body` is the entry byte for byte as it is stored, `sha256` is over those bytes."""
    for leaf in leaves:
        body = bytes(leaf.body)
        tail = f',"entry":{leaf.pk},"sha256":"{hashlib.sha256(body).hexdigest()}"}}\n'.encode()
        if event_in(body):
            yield b'{"body":' + body + tail
        else:
            # It isn't JSON, and a line must be.
            yield b'{"base64":"' + base64.b64encode(body) + b'"' + tail


def csv_head() -> bytes:
    """The first line (RFC 4180)."""
    return _line(COLUMNS)


def csv_lines(leaves: Sequence[AuditLeaf]) -> Iterator[bytes]:
    """One line each; a spreadsheet calculates nothing in it."""
    for leaf in leaves:
        event = event_in(bytes(leaf.body))
        actor = event.get("actor")
        yield _line(
            (
                str(leaf.pk),
                leaf.at.isoformat(),
                leaf.action,
                leaf.team_slug,
                leaf.run_ref,
                leaf.operation_ref,
                leaf.actor_kind,
                leaf.actor,
                str(actor.get("role", "")) if isinstance(actor, dict) else "",
                str(event.get("subject", "")),
                _json(event.get("before")),
                _json(event.get("after")),
                str(event.get("reason", "")),
                str(event.get("evidence", "")),
                hashlib.sha256(bytes(leaf.body)).hexdigest(),
            )
        )


def _json(part: Any) -> str:
    return json.dumps(part, ensure_ascii=False, separators=(",", ":")) if part else ""


def _line(cells: Sequence[str]) -> bytes:
    buffer = io.StringIO()
    csv.writer(buffer, quoting=csv.QUOTE_ALL, lineterminator="\r\n").writerow(map(inert_cell, cells))
    return buffer.getvalue().encode()
