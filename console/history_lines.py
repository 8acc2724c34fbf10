"""Entries of the audit log as lines of a file: JSON with the entry's own bytes in it, or inert CSV."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from console.pages.present.bulk_file import inert_cell
from console.queries.people import Names
from reconciliation.retrospect import event_in
from runs.actors import ActorKind
from runs.models import AuditLeaf

# What somebody decided about a case; one that two people took names the approval and who gave it.
_DECIDED: Final = "case.decided."

COLUMNS: Final = (
    "entry",
    "at_utc",
    "action",
    "team",
    "run",
    "operation",
    "actor_kind",
    "actor",
    "actor_name",
    "role",
    "subject",
    "before",
    "after",
    "approval",
    "approver",
    "approver_name",
    "reason",
    "evidence_digest",
    "sha256",
)


@dataclass(frozen=True)
class _Told:
    """What a line says beside the entry: whom ids name now, and of a decision of two the other's part."""

    actor_name: str
    approval: str = ""
    approver: str = ""
    approver_name: str = ""


def json_lines(leaves: Sequence[AuditLeaf]) -> Iterator[bytes]:
    """One object a line: `body` is the entry byte for byte as it is stored, `sha256` is over those bytes.

    What stands beside it isn't part of the entry: `actor_name`, and of a decision of two people `approval`,
    `approver` and `approver_name`.
    """
    read = [(leaf, event_in(bytes(leaf.body))) for leaf in leaves]
    told = _told(read)
    for leaf, event in read:
        body = bytes(leaf.body)
        beside = {
            "entry": leaf.pk,
            "sha256": hashlib.sha256(body).hexdigest(),
            **{name: value for name, value in asdict(told[leaf.pk]).items() if value},
        }
        tail = b"," + json.dumps(beside, ensure_ascii=False, separators=(",", ":")).encode()[1:] + b"\n"
        if event:
            yield b'{"body":' + body + tail
        else:
            # It isn't JSON, and a line must be.
            yield b'{"base64":"' + base64.b64encode(body) + b'"' + tail


def csv_head() -> bytes:
    """The first line (RFC 4180)."""
    return _line(COLUMNS)


def csv_lines(leaves: Sequence[AuditLeaf]) -> Iterator[bytes]:
    """One line each; a spreadsheet calculates nothing in it."""
    read = [(leaf, event_in(bytes(leaf.body))) for leaf in leaves]
    told = _told(read)
    for leaf, event in read:
        actor, beside = event.get("actor"), told[leaf.pk]
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
                beside.actor_name,
                str(actor.get("role", "")) if isinstance(actor, dict) else "",
                str(event.get("subject", "")),
                _json(event.get("before")),
                _json(event.get("after")),
                beside.approval,
                beside.approver,
                beside.approver_name,
                str(event.get("reason", "")),
                str(event.get("evidence", "")),
                hashlib.sha256(bytes(leaf.body)).hexdigest(),
            )
        )


def _told(read: Sequence[tuple[AuditLeaf, Mapping[str, Any]]]) -> dict[int, _Told]:
    """For each entry by its number; the names are as they are now, and are asked for in one query."""
    two: dict[int, tuple[str, str]] = {}
    for leaf, event in read:
        after = event.get("after")
        if leaf.action.startswith(_DECIDED) and isinstance(after, dict) and after.get("approval"):
            two[leaf.pk] = (str(after["approval"]), str(after.get("approver", "")))
    names = Names({leaf.actor for leaf, _ in read} | {approver for _, approver in two.values()})
    told = {}
    for leaf, _ in read:
        approval, approver = two.get(leaf.pk, ("", ""))
        told[leaf.pk] = _Told(
            actor_name=names.of(leaf.actor_kind, leaf.actor),
            approval=approval,
            approver=approver,
            approver_name=names.of(ActorKind.PERSON, approver) if approver else "",
        )
    return told


def _json(part: Any) -> str:
    return json.dumps(part, ensure_ascii=False, separators=(",", ":")) if part else ""


def _line(cells: Sequence[str]) -> bytes:
    buffer = io.StringIO()
    csv.writer(buffer, quoting=csv.QUOTE_ALL, lineterminator="\r\n").writerow(map(inert_cell, cells))
    return buffer.getvalue().encode()
