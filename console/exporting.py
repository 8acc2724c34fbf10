"""Export the effect history: what a filter lets through, up to the moment it was asked for, with its hash.

An export is written piece by piece, each in a transaction with how far it is, so that a worker killed at any
point loses one piece and nothing is written twice; no more than a piece is ever in memory. It begins when
everything up to its last entry is filed: from then on no entry can appear among those that it has passed.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any, ClassVar, Final

from django.db import connection, transaction
from django.http import QueryDict

from console import history_filing
from console.export_models import QUERY_LENGTH, ExportForm, ExportPiece, ExportState, HistoryExport
from console.history_lines import csv_head, csv_lines, json_lines
from console.pages.present.history_address import read_history
from console.queries.effects import Place, Search, read_frame
from reconciliation.working import Worker
from runs import audit
from runs.actors import Actor, ActorKind
from runs.ids import could_be_id, new_id
from runs.locking import database_now
from runs.models import AuditLeaf
from runs.refusals import Invalid, NotFound, Refusal

# Entries of one piece: half a megabyte, and a few hundred milliseconds of work.
PIECE_ENTRIES: Final = 1_000
# A pass lasts about so long; beat calls the next.
PASS_SECONDS: Final = 4.0
# More are a backup, not something to read; what is left can be asked for by its time.
ENTRIES_MAX: Final = 1_000_000
# One person's at once.
RUNNING_MAX: Final = 3
# Long enough to fetch it; it can be made anew at any time.
KEPT_DAYS: Final = 7
# The first half of the advisory lock that one person's asks take in turn: "expo" in ASCII.
_ASKING_LOCK: Final = 0x6578706F


class TooManyExports(Refusal):
    """The person has as many exports under way as one may have."""

    word: ClassVar[str] = "too_many_exports"


class FilterTooLong(Refusal):
    """The filter as an address has it is longer than what is kept with an export."""

    word: ClassVar[str] = "filter_too_long"


def ask_export(*, worker: Worker, teams: Sequence[str], query: str, form: str) -> HistoryExport:
    """Ask for an export of these teams' history as an address narrows it. Owns its transaction.

    What is under way already with the same content is that one. Raises `Invalid`, `FilterTooLong`,
    `TooManyExports`.
    """
    if form not in set(ExportForm):
        raise Invalid("Choose CSV or JSON Lines.", where="form", allowed=[str(one) for one in ExportForm])
    address = read_history(QueryDict(query))
    if address.unread or not teams:
        raise Invalid("The filter can’t be read as it is.", where="query", unread=list(address.unread))
    # Never cut: what is left of a filter asks another question, and its file would hold other entries.
    if max(len(query), len(address.query)) > QUERY_LENGTH:
        raise FilterTooLong(
            f"The filter takes more than the {QUERY_LENGTH:,} characters that an export keeps of it. Nothing"
            " was asked for."
        )
    with transaction.atomic():
        # One at a time of this person: of those under way, none is counted that another is just adding.
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s, hashtext(%s))", [_ASKING_LOCK, worker.actor.id])
        mine = HistoryExport.objects.filter(actor=worker.actor.id, state=ExportState.RUNNING)
        running = list(mine.order_by("id")[: RUNNING_MAX + 1])
        for one in running:
            if (one.query, one.form, one.teams) == (address.query, form, list(teams)):
                return one
        if len(running) >= RUNNING_MAX:
            raise TooManyExports(
                f"{RUNNING_MAX} exports of yours are under way. Another can be asked for when one is done.",
                running=[one.pk for one in running],
            )
        latest = AuditLeaf.objects.order_by("-id").values_list("pk", flat=True).first()
        export = HistoryExport.objects.create(
            id=new_id("exp"),
            form=form,
            query=address.query,
            teams=list(teams),
            actor=worker.actor.id,
            actor_name=worker.name,
            asked_at=database_now(),
            through_leaf=latest or 0,
        )
        _append(export, worker.actor, "history.export_asked")
    return export


def find_export(*, export_id: str, worker: Worker, teams: Sequence[str]) -> HistoryExport:
    """The person's own export, while they are in all of its teams; raises `NotFound`."""
    mine = HistoryExport.objects.filter(actor=worker.actor.id)
    export = mine.filter(pk=export_id).first() if could_be_id(export_id) else None
    if export is None or not set(export.teams) <= set(teams):
        raise NotFound("There is no such export that you can see.", export=export_id[:64])
    return export


def fetch(*, export: HistoryExport, worker: Worker) -> Iterator[bytes]:
    """The bytes of a finished export, whose fetching is an entry of each of its teams' histories.

    The entry is there before the first byte leaves, whether or not all of them arrive. Raises `NotFound` if
    there are none: it isn't done, or its bytes were deleted. Owns its transaction.
    """
    with transaction.atomic():
        # Locked, so that its bytes aren't deleted between this look and the entry.
        held = HistoryExport.objects.select_for_update().get(pk=export.pk)
        if held.state != ExportState.DONE:
            raise NotFound("There is no file of this export now.", export=held.pk)
        _append(held, worker.actor, "history.export_fetched")
    return content_of(held)


def content_of(export: HistoryExport) -> Iterator[bytes]:
    """The bytes of an export, one piece in memory at a time."""
    for number in range(export.pieces_count):
        piece = ExportPiece.objects.filter(export=export, number=number).values_list("content", flat=True)
        yield bytes(piece.get())


# --- Writing --------------------------------------------------------------------------------------------


def make_exports(*, seconds: float = PASS_SECONDS) -> int:
    """Write what is asked for, for at most about so long; returns how many pieces. Owns its transactions."""
    ends = time.monotonic() + seconds
    forget_old()
    if not HistoryExport.objects.filter(state=ExportState.RUNNING).exists():
        return 0
    history_filing.file_history(seconds=seconds / 4)
    pieces = 0
    while time.monotonic() < ends and _write_next():
        pieces += 1
    return pieces


def forget_old() -> None:
    """Delete the bytes of what was made long ago; the manifests stay."""
    until = database_now() - timedelta(days=KEPT_DAYS)
    for export in HistoryExport.objects.filter(state=ExportState.DONE, ended_at__lt=until)[:10]:
        with transaction.atomic():
            ExportPiece.objects.filter(export=export).delete()
            HistoryExport.objects.filter(pk=export.pk).update(state=ExportState.FORGOTTEN)


def _write_next() -> bool:
    """Write one piece of the export that has waited longest, or end it; False where none can go on."""
    with transaction.atomic():
        running = HistoryExport.objects.filter(state=ExportState.RUNNING).order_by("pieces_count", "id")
        export = running.select_for_update(skip_locked=True).first()
        if export is None:
            return False
        frame = read_frame(export.teams)
        if frame.through_leaf < export.through_leaf:
            return False
        asked = read_history(QueryDict(export.query)).asked
        place = Place(at=export.asked_at, leaf=export.through_leaf + 1)
        if export.at_time is not None and export.at_leaf is not None:
            place = Place(at=export.at_time, leaf=export.at_leaf)
        rows = min(PIECE_ENTRIES, ENTRIES_MAX - export.entries_count)
        search = Search(teams=export.teams, asked=asked, frame=frame)
        leaves, following = search.stretch(place, rows)
        _write(export, [leaf for leaf in leaves if leaf.pk <= export.through_leaf])
        if following is None or export.entries_count >= ENTRIES_MAX:
            _end(export, whole=following is None and not search.is_cut)
        else:
            export.at_time, export.at_leaf = following.at, following.leaf
        export.save()
    return True


def _write(export: HistoryExport, leaves: Sequence[AuditLeaf]) -> None:
    lines = csv_lines(leaves) if export.form == ExportForm.CSV else json_lines(leaves)
    head = [csv_head()] if export.form == ExportForm.CSV and export.pieces_count == 0 else []
    content = b"".join([*head, *lines])
    if content:
        ExportPiece.objects.create(export=export, number=export.pieces_count, content=content)
        export.pieces_count += 1
        export.bytes_count += len(content)
    export.entries_count += len(leaves)


def _end(export: HistoryExport, *, whole: bool) -> None:
    hashed = hashlib.sha256()
    for content in content_of(export):
        hashed.update(content)
    export.state, export.whole = ExportState.DONE, "yes" if whole else "no"
    export.sha256, export.ended_at = hashed.hexdigest(), database_now()
    _append(export, Actor(ActorKind.PERSON, export.actor), "history.exported")


def _append(export: HistoryExport, actor: Actor, action: str) -> None:
    """One entry for each team: each finds in its own history that it was taken out."""
    after: dict[str, Any] = {
        "form": export.form,
        "filters": export.query or "none",
        "through_entry": export.through_leaf,
    }
    if export.sha256:
        after |= {
            "entries": export.entries_count,
            "bytes": export.bytes_count,
            "sha256": export.sha256,
            "whole": export.whole,
        }
    for team in export.teams:
        audit.append(audit.Event(action=action, actor=actor, team=team, subject=export.pk, after=after))
