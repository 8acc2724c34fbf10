"""What is told to the journal about one attempt, and how it is kept until the journal has it.

A report says what was seen, bounded and in a form that strict JSON can hold whatever the provider sent:
text where it is text, base64 where it isn't.
"""

from __future__ import annotations

import base64
import hashlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any
from urllib.parse import quote

from recourse_client.answers import shown
from recourse_client.errors import (
    JournalError,
    NotJson,
    ReceiptMismatch,
    ReceiptReused,
    Refusal,
    ReportNotDelivered,
    SpoolError,
    UnreadableAnswer,
)
from recourse_client.journal import Answer, Journal, Patience, encode
from recourse_client.outcomes import Json, Receipt, Seen
from recourse_client.plan import require
from recourse_client.spool import REFUSED, Report, Spool, Unreadable

_log = logging.getLogger("recourse_client")

# The journal keeps 64 KiB of an answer, and the length and digest of what it got. This much still fits into
# its limit for a call (1 MiB), however it is written: base64 takes 4/3, JSON's escapes up to 6 characters.
BODY_BYTES_MAX = 128 * 1024
_ERROR_LENGTH_MAX = 2_000
_HEADERS_MAX = 64
_HEADER_LENGTH_MAX = 1_000
# These carry somebody's session and prove nothing about an effect.
_HEADERS_LEFT_OUT = frozenset({"set-cookie", "cookie", "authorization", "proxy-authorization"})
# "Start nothing new until it is acknowledged": longer than the short outages of a rolling deployment.
REPORT_PATIENCE = Patience(tries_max=12, total_seconds=45.0)
# The journal stores the report before it gives one of these answers, so they acknowledge it.
_ACKNOWLEDGING = (ReceiptMismatch, ReceiptReused)


class Outcome(StrEnum):
    """The closed set of sending outcomes; the value is the last part of the report's address."""

    # The provider's proof.
    RECEIPT = "receipt"
    # A definite refusal.
    REJECTION = "rejection"
    # Positively never left this process.
    NOT_SENT = "not-sent"
    # Anything else.
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Attempt:
    """One attempt as its reports name it."""

    operation: str
    call_id: str
    attempt_id: str
    token: str


@dataclass(frozen=True)
class Settled:
    """What the journal made of a report."""

    operation_state: str
    attempt_outcome: str
    may_continue: bool
    case: str | None
    recorded_as_evidence: bool


@dataclass(frozen=True)
class Delivery:
    """What came of one pass over the folder of undelivered reports."""

    # Acknowledged by the journal now.
    delivered: tuple[Report, ...] = ()
    # Still waiting: the journal couldn't be asked, or didn't let this token report.
    kept: tuple[Report, ...] = ()
    # Set aside: the journal refuses it for good. The text says why.
    refused: tuple[tuple[Path, str], ...] = ()
    # Set aside: not a whole report.
    unreadable: tuple[Unreadable, ...] = ()
    # Left alone: meant for a journal at another address.
    elsewhere: tuple[Report, ...] = ()


# --- writing ----------------------------------------------------------------------------------------------


def receipt_report(journal_url: str, attempt: Attempt, receipt: Receipt) -> Report:
    """Return the report of a receipt; raises `NotJson` if the receipt has no strict JSON form."""
    reference: object = receipt.reference
    if not isinstance(reference, str) or not reference:
        raise NotJson("a receipt's reference must be a text that isn't empty")
    members: dict[str, Json] = {"reference": reference}
    match receipt.body:
        case dict():
            members["body"] = receipt.body
        case bytes() | bytearray() | memoryview() | str():
            content = _as_bytes(receipt.body)
            if len(content) > BODY_BYTES_MAX:
                raise NotJson(f"a receipt of {len(content)} bytes; at most {BODY_BYTES_MAX} can be journaled")
            members.update(_body(content))
        case _:  # the journal takes an object or a text, and reads a text as JSON again
            members["body"] = encode(receipt.body).decode()
    return _report(journal_url, attempt, Outcome.RECEIPT, members)


def seen_report(journal_url: str, attempt: Attempt, outcome: Outcome, seen: Seen) -> Report:
    """Return a report of what was seen. It has a JSON form whatever the provider or an exception said."""
    members: dict[str, Json] = {}
    if seen.status is not None:
        members["status"] = int(seen.status)
    if seen.headers:
        members["headers"] = _headers(seen.headers)
    error = seen.error
    if seen.body is not None:
        content = _as_bytes(seen.body)
        if len(content) > BODY_BYTES_MAX:
            cut = f"the body was cut: {len(content)} bytes, sha256 {hashlib.sha256(content).hexdigest()}"
            error = f"{_text(error)[: _ERROR_LENGTH_MAX - 200]} ({cut})" if error else cut
            content = content[:BODY_BYTES_MAX]
        members.update(_body(content))
    if error:
        members["error"] = _text(error)[:_ERROR_LENGTH_MAX]
    if seen.phase:
        members["phase"] = _text(seen.phase)[:100]
    return _report(journal_url, attempt, outcome, members)


def _report(journal_url: str, attempt: Attempt, outcome: Outcome, members: dict[str, Json]) -> Report:
    body = {"token": attempt.token, "attempt_id": attempt.attempt_id, **members}
    return Report(
        journal_url=journal_url,
        path=f"/operations/{quote(attempt.operation, safe='')}/{outcome}",
        operation=attempt.operation,
        call_id=attempt.call_id,
        attempt_id=attempt.attempt_id,
        outcome=str(outcome),
        content=encode(body),
    )


def _as_bytes(body: Json | bytes) -> bytes:
    match body:
        case bytes() | bytearray() | memoryview():
            return bytes(body)
        case str():
            return body.encode("utf-8", "surrogatepass")
        case _:
            try:
                return encode(body)
            except NotJson:
                return repr(body)[: 2 * BODY_BYTES_MAX].encode("utf-8", "backslashreplace")


def answer_value(body: Json | bytes) -> Json:
    """Return a provider's answer as a plan shows it later: strict JSON as its value, else bounded text."""
    if body is None:
        return None
    return shown(_as_bytes(body))


def _body(content: bytes) -> dict[str, Json]:
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        text = "\x00"
    if "\x00" in text:
        return {"body_base64": base64.b64encode(content).decode("ascii")}
    return {"body": text}


def _text(value: object) -> str:
    """Return a text that strict JSON and PostgreSQL can hold."""
    return str(value).encode("utf-8", "replace").decode("utf-8").replace("\x00", "�")


def _headers(headers: Mapping[str, str]) -> dict[str, str]:
    kept: dict[str, str] = {}
    for name, value in headers.items():
        if len(kept) >= _HEADERS_MAX:
            break
        if name.lower() not in _HEADERS_LEFT_OUT:
            kept[_text(name)[:100]] = _text(value)[:_HEADER_LENGTH_MAX]
    return kept


# --- delivering -------------------------------------------------------------------------------------------


class Reporter:
    """Keeps a report on disk first, then delivers it, then forgets it."""

    def __init__(self, *, journal: Journal, spool: Spool, patience: Patience = REPORT_PATIENCE) -> None:
        self._journal = journal
        self._spool = spool
        self._patience = patience

    @property
    def journal_url(self) -> str:
        return self._journal.url

    def keep(self, report: Report) -> Path:
        """Keep a report for a later delivery and return its file; raises `SpoolError`."""
        return self._spool.put(report)

    def deliver(
        self,
        report: Report,
        *,
        patience: Patience | None = None,
        seconds_per_try: float | None = None,
        kept: Path | None = None,
    ) -> Settled:
        """Keep, deliver, forget; return what the journal made of it. `kept` is its file, if it has one.

        Raises `ReceiptMismatch` and `ReceiptReused` (acknowledged: the journal has stored the report),
        any other refusal for good after setting the file aside, and `ReportNotDelivered` with the file
        that keeps the report, or without one if it couldn't be kept.
        """
        file, lost_because = (kept, "") if kept is not None else self._keep_or_say(report)
        try:
            answer = self._journal.ask(
                "POST",
                report.path,
                content=report.content,
                patience=patience or self._patience,
                seconds_per_try=seconds_per_try,
            )
            settled = _settled(answer)
        except _ACKNOWLEDGING:
            self._forget(file)
            raise
        except JournalError as error:
            if isinstance(error, Refusal) and not _another_token_may(error):
                if file is not None:
                    self._set_aside(file, error)
                raise
            where = (
                f"it is kept in {file} and delivered when the next run starts"
                if file is not None
                else f"and it could not be kept either ({lost_because})"
            )
            raise ReportNotDelivered(
                f"the journal has not acknowledged the {report.outcome} of attempt {report.attempt_id}"
                f" of operation {report.operation}: {where}. Start nothing new. ({error})",
                operation=report.operation,
                call_id=report.call_id,
                outcome=report.outcome,
                spooled=file,
            ) from error
        self._forget(file)
        return settled

    def _keep_or_say(self, report: Report) -> tuple[Path | None, str]:
        try:
            return self._spool.put(report), ""
        except SpoolError as error:
            # The report still has one chance: being delivered by this process.
            _log.error("a report can't be kept on disk: %s", error)
            return None, str(error)

    def deliver_waiting(self, *, patience: Patience) -> Delivery:
        """Deliver what waits in the folder, oldest first, and stop when the journal can't be asked."""
        waiting, unreadable = self._spool.waiting()
        delivered: list[Report] = []
        kept: list[Report] = []
        refused: list[tuple[Path, str]] = []
        elsewhere: list[Report] = []
        reachable = True
        for spooled in waiting:
            report = spooled.report
            if report.journal_url != self._journal.url:
                elsewhere.append(report)
                continue
            if not reachable:
                kept.append(report)
                continue
            try:
                self._journal.ask("POST", report.path, content=report.content, patience=patience)
            except _ACKNOWLEDGING as refusal:
                _log.warning("%s", refusal)
                self._forget(spooled.file)
                delivered.append(report)
            except Refusal as refusal:
                if _another_token_may(refusal):
                    kept.append(report)
                else:
                    refused.append((self._set_aside(spooled.file, refusal), str(refusal)))
            except JournalError as error:
                _log.warning("undelivered reports stay in %s: %s", self._spool.folder, error)
                reachable = False
                kept.append(report)
            else:
                self._forget(spooled.file)
                delivered.append(report)
        for found in unreadable:
            _log.error("not a whole report, set aside in %s: %s", found.file, found.reason)
        return Delivery(tuple(delivered), tuple(kept), tuple(refused), tuple(unreadable), tuple(elsewhere))

    def _set_aside(self, file: Path, refusal: Refusal) -> Path:
        try:
            aside = self._spool.set_aside(file, folder=REFUSED, reason=str(refusal))
        except SpoolError as error:
            _log.error("%s", error)
            return file
        _log.error("the journal refuses a report for good; it is set aside in %s: %s", aside, refusal)
        return aside

    def _forget(self, file: Path | None) -> None:
        if file is None:
            return
        try:
            self._spool.remove(file)
        except SpoolError as error:
            _log.warning("an acknowledged report stays on disk; delivering it again is harmless: %s", error)


def _another_token_may(refusal: Refusal) -> bool:
    return refusal.status in {401, 403}


def _settled(answer: Answer) -> Settled:
    body: Mapping[str, Any] = answer.body
    operation: dict[str, Any] = require(body, "operation", dict)
    attempt = body.get("attempt")
    case = body.get("case")
    if case is not None and not isinstance(case, str):
        raise UnreadableAnswer("the journal's answer has no usable 'case'")
    return Settled(
        operation_state=require(operation, "state", str),
        attempt_outcome=str(attempt.get("outcome", "")) if isinstance(attempt, dict) else "",
        may_continue=body.get("next") == "continue",
        case=case,
        recorded_as_evidence=bool(body.get("recorded_as_evidence")),
    )
