"""E-mail by SMTP: no key, no lookup, and a Message-ID of ours that only people and logs can look for.

The protocol hands a message over in one place: after DATA was answered with 354, with the dot that ends it.
Before the first byte of content left, nothing can have been accepted, whatever went wrong: that is this
adapter's proof of `not_sent`. From that byte on, only the server's own reply to the dot tells, and a lost one
is unknown: servers accept a message and lose the line in which they say so (RFC 1047).
"""

from __future__ import annotations

import json
import math
import re
import ssl
from dataclasses import replace
from functools import lru_cache
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit

import httpx

from reconciliation.contracts import Contract, ProviderAccount
from reconciliation.providers.base import (
    Exchange,
    Finding,
    Inconclusive,
    MatchedBy,
    NotSentSeen,
    OutgoingOperation,
    Phase,
    Question,
    ReceiptSeen,
    RejectedSeen,
    SendOutcome,
    UnknownSeen,
    elapsed_seconds,
)
from reconciliation.providers.deadline import DeadlineBackend, deadline
from reconciliation.providers.declaration import Declared
from reconciliation.providers.matching import Subject, read_record
from reconciliation.providers.reach import PORTS, environment_reach
from reconciliation.providers.redaction import Redactor, redactor_for
from reconciliation.providers.smtp_dialogue import (
    LINE_LENGTH_MAX,
    Dialogue,
    NoEncryption,
    Progress,
    StepRefused,
    expect,
    printable,
)
from reconciliation.providers.smtp_message import Mail, MessageUnusable, compose
from reconciliation.providers.transport import ERROR_LENGTH_MAX, StartWindowPassed, evidence_text

CONNECT_SECONDS_MAX = 10.0
USERNAME, PASSWORD = "username", "password"

# How servers say the id under which their logs know the message: Postfix, Exim, Sendmail, Exchange.
_QUEUE_IDS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"\bqueued as ([A-Za-z0-9.-]{4,64})",
        r"\bid=([A-Za-z0-9.-]{4,64})",
        r"\b([A-Za-z0-9]{8,32}) Message accepted for delivery",
        r"\bInternalId=([0-9]{4,32})",
    )
)
# The content is in seven bits with CRLF line ends; a line's first dot is doubled (RFC 5321, section 4.5.2).
_LEADING_DOT = re.compile(rb"^\.", re.MULTILINE)


class Smtp:
    """One account at one mail server. Every attempt takes a connection of its own."""

    def __init__(self, declared: Declared, *, ssl_context: ssl.SSLContext | None = None) -> None:
        self._account = declared.account
        self._settings = declared.http.settings
        self._secrets = declared.http.secrets
        self._redactor = redactor_for(declared.http.secrets, declared.http.redact_names)
        self._ssl_context = ssl_context
        self._reach = environment_reach(declared.own_hosts)

    @property
    def account(self) -> ProviderAccount:
        return self._account

    @property
    def contract(self) -> Contract:
        return self._account.contract

    def close(self) -> None:
        """Nothing is kept open between attempts."""

    def look_up(self, question: Question) -> Finding:
        return Inconclusive(
            reason="no_lookup",
            summary="A mail server can't be asked what became of a message."
            " Its log, or the recipient, can be searched for the Message-ID.",
        )

    # -- sending ----------------------------------------------------------------------------------------

    def send(self, operation: OutgoingOperation) -> SendOutcome:
        """Send one attempt; the outcome says what may be concluded from how far it came."""
        if not self._account.configured or self._account.base_url is None:
            return _not_started("This account isn't configured here, so nothing was sent.", "NotConfigured")
        try:
            mail = compose(
                operation.payload,
                key=operation.idempotency_key,
                operation_id=operation.operation_id,
                domain=self._settings["message_id_domain"],
                envelope_from=self._settings.get("envelope_from", ""),
            )
        except MessageUnusable as error:
            return _not_started(f"The mail can't be made ({error}), so nothing was sent.", "Unusable")
        started_at = elapsed_seconds()
        progress = Progress()
        error_seen: Exception | None = None
        deadline.at = started_at + operation.request_within_ms / 1000
        try:
            self._carry(mail, operation, progress)
        except Exception as seen:  # noqa: BLE001 - whatever happened is a fact to be recorded, not a crash
            error_seen = seen
        finally:
            deadline.at = math.inf
        exchange = self._exchange(operation, mail, progress, error_seen, started_at)
        return self._judge(operation, mail, progress, error_seen, exchange)

    def _carry(self, mail: Mail, operation: OutgoingOperation, progress: Progress) -> None:
        """Talk to the server until it has answered the dot; raises where it doesn't come so far."""
        if elapsed_seconds() > operation.start_by:
            progress.phase = Phase.NOT_STARTED
            raise StartWindowPassed("the time to start had run out")
        address = urlsplit(self._account.base_url or "")
        host = address.hostname or ""
        port = address.port or PORTS[address.scheme]
        stream = DeadlineBackend(self._reach).connect_tcp(host, port, timeout=CONNECT_SECONDS_MAX)
        dialogue = Dialogue(stream, local_hostname=self._settings["helo"], progress=progress)
        try:
            self._introduce(dialogue, host, implicit_tls=address.scheme == "smtps")
            self._address(dialogue, mail)
            progress.data_open = True
            if elapsed_seconds() > operation.start_by:
                raise StartWindowPassed("the time to start ran out before the first byte of content")
            progress.content_started = True
            progress.phase = Phase.SENDING
            dialogue.send(_LEADING_DOT.sub(b"..", mail.content))
            dialogue.send(b".\r\n" if mail.content.endswith(b"\r\n") else b"\r\n.\r\n")
            progress.note(f"({len(mail.content)} bytes of content and the dot that ends it)")
            progress.phase = Phase.WAITING
            code, text = dialogue.getreply()
            progress.reply = (code, printable(text.decode("utf-8", "replace")))
            progress.data_open = False
            progress.phase = Phase.DONE
        finally:
            dialogue.leave(politely=not progress.data_open)

    def _introduce(self, dialogue: Dialogue, host: str, *, implicit_tls: bool) -> None:
        context = self._ssl_context or _trusted_certificates()
        if implicit_tls:
            dialogue.encrypt(context, host)
        expect("the greeting", dialogue.getreply(), 220, about_us=True)
        dialogue.hello()
        if not implicit_tls and self._settings["starttls"] == "required":
            if not dialogue.has_extn("starttls"):
                raise NoEncryption("the server offers no STARTTLS")
            expect("STARTTLS", dialogue.docmd("STARTTLS"), 220, about_us=True)
            dialogue.encrypt(context, host)
            dialogue.hello()
        if USERNAME in self._secrets:
            dialogue.sign_in(self._secrets[USERNAME], self._secrets[PASSWORD])

    def _address(self, dialogue: Dialogue, mail: Mail) -> None:
        """Name sender and recipients and ask to begin. One refused recipient refuses the mail for all."""
        options = [f"size={len(mail.content)}"] if dialogue.has_extn("size") else []
        expect("MAIL FROM", dialogue.mail(mail.sender, options), 250)
        for recipient in mail.recipients:
            expect("RCPT TO", dialogue.rcpt(recipient), 250, 251)
        expect("DATA", dialogue.docmd("DATA"), 354)

    # -- judging ----------------------------------------------------------------------------------------

    def _judge(
        self,
        operation: OutgoingOperation,
        mail: Mail,
        progress: Progress,
        error: Exception | None,
        exchange: Exchange,
    ) -> SendOutcome:
        if not progress.content_started:
            return _before_content(operation, error, exchange)
        if progress.reply is None:
            return UnknownSeen(
                exchange=exchange,
                summary="The message left and its end was not acknowledged:"
                " the server may have accepted it, or not.",
            )
        code, text = progress.reply
        if 200 <= code < 300:
            return self._accepted(operation, mail, code, text, exchange)
        if 500 <= code < 600:
            return _rejected(operation, exchange, f"The server refused the message with {code}.")
        return UnknownSeen(
            exchange=exchange,
            summary=f"The server answered the message with {code}. A temporary refusal there may come from a"
            " relay that lost its own reply, so it doesn't say that nobody accepted it.",
        )

    def _accepted(
        self, operation: OutgoingOperation, mail: Mail, code: int, text: str, exchange: Exchange
    ) -> SendOutcome:
        reading = read_record(
            _record(mail, code, text),
            contract=self.contract,
            subject=Subject(
                operation_id=operation.operation_id,
                key=operation.idempotency_key,
                tool=operation.tool,
                payload=operation.payload,
                amount=operation.amount,
            ),
            named_by_reply=True,
            redactor=self._redactor,
        )
        if reading is None:
            return UnknownSeen(exchange=exchange, summary=f"The server answered {code}, without a usable id.")
        # The Message-ID in the record is from us: what ties the reply to the operation is the attempt alone.
        receipt = replace(reading.receipt, matched_by=MatchedBy.REPLY_ONLY)
        queued = f" as {queue_id}" if (queue_id := _queue_id(text)) else ""
        return ReceiptSeen(
            exchange=exchange,
            receipt=receipt,
            summary=f"The server accepted the message{queued}. Accepted is not delivered.",
        )

    def _exchange(
        self,
        operation: OutgoingOperation,
        mail: Mail,
        progress: Progress,
        error: Exception | None,
        started_at: float,
    ) -> Exchange:
        redactor = self._redactor.keeping(operation.idempotency_key, operation.operation_id, mail.message_id)
        code, text = progress.reply or (0, "")
        seen = {**_record(mail, code, text), "dialogue": progress.lines}
        body = json.dumps(redactor.value(seen), ensure_ascii=False).encode("utf-8", "replace")
        kept, cut = evidence_text(body, redactor=redactor)
        return Exchange(
            method="SMTP",
            url=redactor.url(self._account.base_url or ""),
            request_length=len(mail.content),
            request_sha256=sha256(mail.content).hexdigest(),
            # No status: a reply code of SMTP is none of HTTP, and 5xx means the opposite there.
            status=None,
            body=kept,
            body_cut=cut,
            body_whole=progress.reply is not None,
            body_length=len(body),
            body_sha256=sha256(body).hexdigest(),
            duration_ms=int((elapsed_seconds() - started_at) * 1000),
            error_class="" if error is None else type(error).__name__.lstrip("_"),
            error="" if error is None else _error_text(error, redactor),
            headers_started=progress.content_started,
            phase=progress.phase,
        )


def _before_content(operation: OutgoingOperation, error: Exception | None, exchange: Exchange) -> SendOutcome:
    """What may be said where no byte of content left. A definite refusal of this message is one; all else,
    also silence, is a connection on which nothing was handed over.
    """
    if isinstance(error, StepRefused) and error.definite:
        return _rejected(operation, exchange, f"The server refused {error.step} with {error.code}.")
    why = str(error) if isinstance(error, StepRefused | NoEncryption) else exchange.error_class
    return NotSentSeen(
        exchange=exchange, summary=f"No byte of the message left ({why}), so nothing was sent."
    )


def _rejected(operation: OutgoingOperation, exchange: Exchange, sentence: str) -> RejectedSeen:
    first = operation.attempt_number == 1
    more = "" if first else " That says nothing about earlier attempts."
    return RejectedSeen(exchange=exchange, speaks_for_first=first, summary=f"{sentence}{more}")


def _record(mail: Mail, code: int, text: str) -> dict[str, Any]:
    """What is known of the server's acceptance, as the JSON object that receipts are."""
    record: dict[str, Any] = {"message_id": mail.message_id, "recipients": list(mail.recipients)}
    if code:
        record["reply"] = {"code": code, "text": text[:LINE_LENGTH_MAX]}
    if queue_id := _queue_id(text):
        record["queue_id"] = queue_id
    return record


def _queue_id(text: str) -> str:
    for pattern in _QUEUE_IDS:
        if found := pattern.search(text):
            return found[1]
    return ""


def _error_text(error: Exception, redactor: Redactor) -> str:
    return evidence_text(str(error).encode("utf-8", "replace"), redactor=redactor)[0][:ERROR_LENGTH_MAX]


def _not_started(summary: str, error_class: str) -> NotSentSeen:
    return NotSentSeen(
        exchange=Exchange(method="SMTP", url="", error_class=error_class, phase=Phase.NOT_STARTED),
        summary=summary,
    )


@lru_cache(maxsize=1)
def _trusted_certificates() -> ssl.SSLContext:
    return httpx.create_ssl_context(trust_env=False)
