"""Exports of the effect history as their pages show them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from urllib.parse import parse_qsl

from django.template.defaultfilters import filesizeformat
from django.urls import reverse

from console.export_models import ExportForm, ExportState, HistoryExport
from console.exporting import ENTRIES_MAX, KEPT_DAYS
from console.pages import wording
from console.pages.shapes import Badge, Code, EmptyState, Fact, Link
from console.queries.effects import NAMED_MAX

_FORMS: Final = {ExportForm.CSV: "CSV", ExportForm.JSONL: "JSON Lines"}
_STATES: Final = {
    ExportState.RUNNING: Badge(word="Under way", icon="hourglass", tone="blue"),
    ExportState.DONE: Badge(word="Ready", icon="circle-check", tone="green"),
    ExportState.FORGOTTEN: Badge(word="File deleted", icon="circle-slash", tone="grey"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class ExportRow:
    """An export in the list."""

    href: str
    title: str
    badge: Badge
    asked_at: datetime
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ExportListPage:
    """`exports.html`: a person's own exports, newest first."""

    now: datetime
    rows: tuple[ExportRow, ...]
    empty: EmptyState | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ExportPage:
    """`export.html`: how far an export is; with `file_href` it can be fetched. `poll_href` asks anew."""

    now: datetime
    title: str
    badge: Badge
    lead: str
    progress: str
    facts: tuple[Fact, ...]
    poll_href: str = ""
    file_href: str = ""
    file_name: str = ""
    file_text: str = ""
    manifest_href: str = ""
    back: Link | None = None


def export_list_page(exports: Sequence[HistoryExport], *, now: datetime) -> ExportListPage:
    """The list of a person's exports."""
    empty = EmptyState(
        title="No exports yet",
        text="Narrow the effect history and choose CSV or JSON Lines there; it appears here.",
        icon="download",
        action=Link("Effect history", reverse("effects")),
    )
    rows = tuple(
        ExportRow(
            href=reverse("export", args=[one.pk]),
            title=f"{_FORMS[ExportForm(one.form)]}: {_filters(one)}",
            badge=_STATES[ExportState(one.state)],
            asked_at=one.asked_at,
            text=_count(one),
        )
        for one in exports
    )
    return ExportListPage(now=now, rows=rows, empty=None if rows else empty)


def _count(export: HistoryExport) -> str:
    word = "entry" if export.entries_count == 1 else "entries"
    return f"{export.entries_count:,} {word}, {filesizeformat(export.bytes_count)}"


def _filters(export: HistoryExport) -> str:
    return ", ".join(f"{name} {value}" for name, value in parse_qsl(export.query)) or "everything"


def export_page(export: HistoryExport, *, now: datetime) -> ExportPage:
    """One export as it stands."""
    state, form = ExportState(export.state), ExportForm(export.form)
    running, done = state is ExportState.RUNNING, state is ExportState.DONE
    here = reverse("export", args=[export.pk])
    return ExportPage(
        now=now,
        title=f"Export of the effect history, {_FORMS[form]}",
        badge=_STATES[state],
        lead=_lead(export),
        progress=f"{_count(export)} written" if export.entries_count or not running else _WAITS,
        facts=tuple(_facts(export)),
        poll_href=here if running else "",
        file_href=reverse("export_file", args=[export.pk]) if done else "",
        file_name=f"{export.pk}.{export.form}",
        file_text=f"{_FORMS[form]}, {filesizeformat(export.bytes_count)}",
        manifest_href="" if running else reverse("export_manifest", args=[export.pk]),
        back=Link("The history it is of", f"{reverse('effects')}?{export.query}"),
    )


_WAITS: Final = "Waits until everything up to its last entry is filed, some seconds"


def _lead(export: HistoryExport) -> str:
    match ExportState(export.state):
        case ExportState.RUNNING:
            return "It goes on without this page. What was recorded since it was asked for isn’t in it."
        case ExportState.DONE:
            return f"The file is kept for {KEPT_DAYS} days, and its manifest for ever."
        case ExportState.FORGOTTEN:
            return "The file was deleted after its time. The same filters make it anew; the manifest stays."


def _facts(export: HistoryExport) -> list[Fact]:
    facts = [
        Fact(label="Filters", value=(wording.inert(_filters(export)),)),
        Fact(label="Teams", value=(", ".join(export.teams),)),
        Fact(label="Asked for", value=(wording.full(export.asked_at),), note=(f"by {export.actor_name}",)),
        Fact(label="Up to entry", value=(f"{export.through_leaf}",)),
    ]
    if export.ended_at is not None:
        facts += [
            Fact(label="Entries", value=(f"{export.entries_count:,}",)),
            Fact(label="Bytes", value=(f"{export.bytes_count:,}",)),
            Fact(label="SHA-256 of the file", value=(Code(export.sha256),), copy=export.sha256),
            Fact(label="Ready", value=(wording.full(export.ended_at),), note=("by the database’s clock",)),
            Fact(label="Whole", value=(_whole(export),)),
        ]
    return facts


def _whole(export: HistoryExport) -> str:
    if export.whole == "yes":
        return "yes"
    if export.entries_count >= ENTRIES_MAX:
        return f"no: it ends after {ENTRIES_MAX:,} entries; the rest can be asked for by its time"
    return f"no: more runs have this name than the newest {NAMED_MAX:,}, whose entries it holds"


def manifest_of(export: HistoryExport) -> dict[str, Any]:
    """What the file is, as data."""
    return {
        "what": "Export of the Recourse effect history, newest entry first",
        "export": export.pk,
        "form": export.form,
        "filters": dict(parse_qsl(export.query)),
        "teams": export.teams,
        "through_entry": export.through_leaf,
        "entries": export.entries_count,
        "bytes": export.bytes_count,
        "sha256": export.sha256,
        "whole": export.whole == "yes",
        "asked_by": export.actor,
        "asked_by_name": export.actor_name,
        "asked_at": export.asked_at.isoformat(),
        "made_at": export.ended_at.isoformat() if export.ended_at else None,
        "clock": "the database's",
        "sealed": "not yet: entries aren't in a tree so far",
    }
