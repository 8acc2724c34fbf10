"""The folder that keeps reports until the journal has acknowledged them.

One file per report: JSON, written under a temporary name, fsynced, renamed, and the folder fsynced, before
the report is delivered for the first time; removed once the journal has answered. A file holds the exact
bytes to post, so that every delivery, by whichever process, is the same report. Delivering twice is
harmless: the journal gives the first answer again.

    DIR/<milliseconds>-<attempt id>-<outcome>.json   waits for delivery
    DIR/refused/…                                    the journal refuses it for good; nothing repeats it
    DIR/unreadable/…                                 not a whole report of ours

Files hold no bearer token. They hold the fencing token, payload answers and provider references: the folder
is created for its owner alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from recourse_client.errors import SpoolFull, SpoolUnavailable

FORMAT = "recourse-report-1"
REFUSED, UNREADABLE = "refused", "unreadable"
# An undelivered report is an effect that nobody has on record. A thousand of them is an outage that has
# gone on too long to add to.
REPORTS_MAX = 1_000
# Larger than any report that the journal takes.
FILE_BYTES_MAX = 4 * 1024 * 1024
_NAME = re.compile(r"[0-9]{13,}-[A-Za-z0-9_.-]{1,64}-(?:receipt|rejection|not-sent|unknown)\.json")


@dataclass(frozen=True)
class Report:
    """One report as it will be posted: where, for which attempt, and the exact bytes."""

    journal_url: str
    path: str
    operation: str
    call_id: str
    attempt_id: str
    outcome: str
    content: bytes

    def to_file(self) -> bytes:
        text = self.content.decode()
        return json.dumps(
            {
                "format": FORMAT,
                "journal": self.journal_url,
                "path": self.path,
                "operation": self.operation,
                "call_id": self.call_id,
                "attempt_id": self.attempt_id,
                "outcome": self.outcome,
                "sha256": hashlib.sha256(self.content).hexdigest(),
                "content": text,
            },
            indent=1,
        ).encode()


@dataclass(frozen=True)
class Spooled:
    """A report in the folder."""

    file: Path
    report: Report


@dataclass(frozen=True)
class Unreadable:
    """A file that was set aside because it is no whole report; `file` is where it lies now."""

    file: Path
    reason: str


class Spool:
    """One folder of undelivered reports, shared by any number of processes."""

    def __init__(self, folder: Path, *, reports_max: int = REPORTS_MAX) -> None:
        self.folder = folder
        self._reports_max = reports_max

    def prepare(self) -> None:
        """Create the folder and see that a file can be kept in it; raises `SpoolUnavailable`."""
        probe = self.folder / f".probe-{os.getpid()}"
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _write_durably(probe, b"")
            probe.unlink()
        except OSError as error:
            self._unavailable(error)

    def check_room(self) -> None:
        """Raise `SpoolFull` if the report of one more effect could not be kept."""
        waiting = len(self._names())
        if waiting >= self._reports_max:
            raise SpoolFull(
                f"{waiting} undelivered reports wait in {self.folder}: nothing more is sent until they are"
                " delivered"
            )

    def put(self, report: Report) -> Path:
        """Keep a report durably and return its file; raises `SpoolUnavailable` if that failed."""
        name = f"{time.time_ns() // 1_000_000:013d}-{report.attempt_id}-{report.outcome}.json"
        final = self.folder / name
        temporary = self.folder / f".{name}.{os.getpid()}.tmp"
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _write_durably(temporary, report.to_file())
            temporary.rename(final)
            _sync_folder(self.folder)
        except OSError as error:
            with contextlib.suppress(OSError):
                temporary.unlink()
            self._unavailable(error)
        return final

    def remove(self, file: Path) -> None:
        """Forget an acknowledged report. One that another process has removed already is no fault.

        Not synced: if the machine dies first, the report is delivered again, which is harmless.
        """
        try:
            file.unlink(missing_ok=True)
        except OSError as error:
            self._unavailable(error)

    def set_aside(self, file: Path, *, folder: str, reason: str) -> Path:
        """Move a file where nothing delivers it, with the reason beside it; return where it lies now."""
        target = self.folder / folder / file.name
        try:
            target.parent.mkdir(mode=0o700, exist_ok=True)
            file.rename(target)
            _write_durably(target.with_suffix(".reason"), reason.encode(errors="replace"))
        except FileNotFoundError:
            pass  # another process was faster
        except OSError as error:
            self._unavailable(error)
        return target

    def waiting(self) -> tuple[list[Spooled], list[Unreadable]]:
        """Return what waits for delivery, oldest first; what can't be read is set aside and named."""
        readable: list[Spooled] = []
        unreadable: list[Unreadable] = []
        for name in sorted(self._names()):
            file = self.folder / name
            try:
                readable.append(Spooled(file, _read(file)))
            except FileNotFoundError:
                continue  # delivered by another process meanwhile
            except OSError as error:
                self._unavailable(error)
            except ValueError as error:
                moved = self.set_aside(file, folder=UNREADABLE, reason=str(error))
                unreadable.append(Unreadable(moved, str(error)))
        return readable, unreadable

    def aside(self, folder: str) -> list[Path]:
        """Return the files that were set aside as refused or unreadable."""
        return sorted((self.folder / folder).glob("*.json"))

    def _names(self) -> list[str]:
        try:
            with os.scandir(self.folder) as entries:
                return [
                    entry.name
                    for entry in entries
                    if entry.name.endswith(".json") and not entry.name.startswith(".")
                ]
        except FileNotFoundError:
            return []
        except OSError as error:
            self._unavailable(error)

    def _unavailable(self, error: OSError) -> NoReturn:
        raise SpoolUnavailable(f"the folder for undelivered reports, {self.folder}: {error}") from error


def default_folder() -> Path:
    """Return `$RECOURSE_SPOOL`, or `recourse/spool` under the user's state folder (XDG)."""
    named = os.environ.get("RECOURSE_SPOOL")
    if named:
        return Path(named)
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "recourse" / "spool"


def _read(file: Path) -> Report:
    """Return the report in a file; raises ValueError, saying why, for anything but a whole report of ours."""
    if not _NAME.fullmatch(file.name):
        raise ValueError("the name isn't that of a report")
    if file.stat().st_size > FILE_BYTES_MAX:
        raise ValueError(f"larger than {FILE_BYTES_MAX} bytes")
    try:
        document: Any = json.loads(file.read_bytes())
    except RecursionError:
        raise ValueError("nested too deep") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ValueError(f"not of the format {FORMAT}")
    fields = ("journal", "path", "operation", "call_id", "attempt_id", "outcome", "sha256", "content")
    texts: dict[str, str] = {}
    for name in fields:
        value = document.get(name)
        if not isinstance(value, str):
            raise ValueError(f"{name!r} is missing")
        texts[name] = value
    content = texts["content"].encode()
    if hashlib.sha256(content).hexdigest() != texts["sha256"]:
        raise ValueError("its digest doesn't match: the file was damaged")
    if not re.fullmatch(r"/operations/[A-Za-z0-9_.:%-]{1,200}/[a-z-]{1,20}", texts["path"]):
        raise ValueError("its path isn't that of a report")
    return Report(
        journal_url=texts["journal"],
        path=texts["path"],
        operation=texts["operation"],
        call_id=texts["call_id"],
        attempt_id=texts["attempt_id"],
        outcome=texts["outcome"],
        content=content,
    )


def _write_durably(file: Path, content: bytes) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


def _sync_folder(folder: Path) -> None:
    """Make a rename durable, where folders can be synced (not on Windows)."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except PermissionError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
