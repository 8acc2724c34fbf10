"""E-mail by SMTP: no key, no lookup, and a Message-ID of ours that only people and logs can look for.

The protocol hands a message over in one place: after DATA was answered with 354, with the dot that ends it.
Before the first byte of content left, nothing can have been accepted, whatever went wrong: that is this
adapter's proof of `not_sent`. From that byte on, only the server's own reply to the dot tells, and a lost one
is unknown: servers accept a message and lose the line in which they say so (RFC 1047).
"""

from __future__ import annotations

import io
import json
import math
import re
import smtplib
import ssl
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit

import httpcore
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
from reconciliation.providers.smtp_message import Mail, MessageUnusable, compose
from reconciliation.providers.transport import ERROR_LENGTH_MAX, StartWindowPassed, evidence_text

CONNECT_SECONDS_MAX = 10.0
# Lines of the dialogue that are kept; a mail to the most recipients has some 220.
LINES_MAX = 300
LINE_LENGTH_MAX = 500

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


def _printable(text: str) -> str:
    """Text that can't act where it is shown and that PostgreSQL can hold; lines become one."""
    one_line = text.replace("\n", " / ")
    return "".join(one if one.isprintable() else "\ufffd" for one in one_line)


class _Refused(Exception):
    """The server answered a step before the content with something else than yes."""

    def __init__(self, step: str, code: int, *, about_us: bool) -> None:
        super().__init__(f"{step} was answered with {code}")
        self.step = step
        self.code = code
        # The refusal is of this client or its account, not of this message.
        self.about_us = about_us

    @property
    def definite(self) -> bool:
        return not self.about_us and 500 <= self.code < 600


class _NoTls(Exception):
    """The server offers no encryption, and the account's file asks for it."""


@dataclass(kw_only=True)
class _Progress:
    """How far one attempt came. `content_started` is set before the first byte of content is handed over."""

    phase: Phase = Phase.CONNECT
    # The server takes whatever comes next for content: nothing but content may be said to it.
    data_open: bool = False
    content_started: bool = False
    reply: tuple[int, str] | None = None
    lines: list[str] = field(default_factory=list)

    def note(self, line: str) -> None:
        if len(self.lines) < LINES_MAX:
            self.lines.append(_printable(line)[:LINE_LENGTH_MAX])


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
        progress = _Progress()
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

    def _carry(self, mail: Mail, operation: OutgoingOperation, progress: _Progress) -> None:
        """Talk to the server until it has answered the dot; raises where it doesn't come so far."""
        if elapsed_seconds() > operation.start_by:
            progress.phase = Phase.NOT_STARTED
            raise StartWindowPassed("the time to start had run out")
        address = urlsplit(self._account.base_url or "")
        host = address.hostname or ""
        port = address.port or PORTS[address.scheme]
        stream = DeadlineBackend(self._reach).connect_tcp(host, port, timeout=CONNECT_SECONDS_MAX)
        dialogue = _Dialogue(stream, local_hostname=self._settings["helo"], progress=progress)
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
            progress.reply = (code, _printable(text.decode("utf-8", "replace")))
            progress.data_open = False
            progress.phase = Phase.DONE
        finally:
            dialogue.leave(politely=not progress.data_open)

    def _introduce(self, dialogue: _Dialogue, host: str, *, implicit_tls: bool) -> None:
        context = self._ssl_context or _trusted_certificates()
        if implicit_tls:
            dialogue.encrypt(context, host)
        _expect("the greeting", dialogue.getreply(), 220, about_us=True)
        dialogue.hello()
        if not implicit_tls and self._settings["starttls"] == "required":
            if not dialogue.has_extn("starttls"):
                raise _NoTls("the server offers no STARTTLS")
            _expect("STARTTLS", dialogue.docmd("STARTTLS"), 220, about_us=True)
            dialogue.encrypt(context, host)
            dialogue.hello()
        if USERNAME in self._secrets:
            dialogue.sign_in(self._secrets[USERNAME], self._secrets[PASSWORD])

    def _address(self, dialogue: _Dialogue, mail: Mail) -> None:
        """Name sender and recipients and ask to begin. One refused recipient refuses the mail for all."""
        options = [f"size={len(mail.content)}"] if dialogue.has_extn("size") else []
        _expect("MAIL FROM", dialogue.mail(mail.sender, options), 250)
        for recipient in mail.recipients:
            _expect("RCPT TO", dialogue.rcpt(recipient), 250, 251)
        _expect("DATA", dialogue.docmd("DATA"), 354)

    # -- judging ----------------------------------------------------------------------------------------

    def _judge(
        self,
        operation: OutgoingOperation,
        mail: Mail,
        progress: _Progress,
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
        progress: _Progress,
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
    if isinstance(error, _Refused) and error.definite:
        return _rejected(operation, exchange, f"The server refused {error.step} with {error.code}.")
    why = str(error) if isinstance(error, _Refused | _NoTls) else exchange.error_class
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


def _expect(step: str, reply: tuple[int, bytes], *codes: int, about_us: bool = False) -> None:
    if reply[0] not in codes:
        raise _Refused(step, reply[0], about_us=about_us)


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


# --- the dialogue ----------------------------------------------------------------------------------------


class _Dialogue(smtplib.SMTP):
    """smtplib over a connection of ours, which holds the deadline; writes down what was said."""

    def __init__(self, stream: httpcore.NetworkStream, *, local_hostname: str, progress: _Progress) -> None:
        # Without a host nothing is connected; without a name of our own the library would ask the resolver.
        super().__init__(local_hostname=local_hostname)
        self._stream = stream
        self._progress = progress
        self._secret = False
        self.sock = _Socket(stream)  # type: ignore[assignment]
        self.file = None

    def encrypt(self, context: ssl.SSLContext, host: str) -> None:
        """Go on encrypted. What was read ahead in the clear is dropped: it may be an attacker's."""
        self._stream = self._stream.start_tls(context, server_hostname=host)
        self.sock = _Socket(self._stream)  # type: ignore[assignment]
        self.file = None
        self.helo_resp = None
        self.ehlo_resp = None
        self.esmtp_features = {}
        self.does_esmtp = False
        self._progress.note("(encrypted from here)")

    def hello(self) -> None:
        code, _ = self.ehlo()
        if not 200 <= code < 300:
            _expect("EHLO", self.helo(), 250, about_us=True)

    def sign_in(self, user: str, password: str) -> None:
        self._secret = True
        try:
            self.login(user, password)
        except smtplib.SMTPAuthenticationError as error:
            raise _Refused("AUTH", error.smtp_code, about_us=True) from None
        finally:
            self._secret = False

    def leave(self, *, politely: bool) -> None:
        """End the connection; what the server says to that changes nothing."""
        if politely:
            with suppress(Exception):
                self.docmd("QUIT")
        with suppress(Exception):
            self.close()
        with suppress(Exception):
            self._stream.close()

    def putcmd(self, cmd: str, args: str = "") -> None:
        line = f"{cmd} {args}".strip()
        self._progress.note("> AUTH (not kept)" if self._secret else f"> {line}")
        super().putcmd(cmd, args)

    def getreply(self) -> tuple[int, bytes]:
        code, text = super().getreply()
        shown = "(not kept)" if self._secret else _printable(text.decode("utf-8", "replace"))
        self._progress.note(f"< {code} {shown}")
        return code, text


class _Socket:
    """As much of a socket as smtplib asks for, over a stream of ours; its errors are those of sockets."""

    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream = stream

    def sendall(self, content: bytes) -> None:
        try:
            self._stream.write(bytes(content))
        except httpcore.TimeoutException as error:
            raise TimeoutError(str(error)) from error
        except httpcore.NetworkError as error:
            raise ConnectionError(str(error)) from error

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Reader(self._stream))

    def close(self) -> None:
        self._stream.close()


class _Reader(io.RawIOBase):
    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            piece = self._stream.read(len(buffer))
        except httpcore.TimeoutException as error:
            raise TimeoutError(str(error)) from error
        except httpcore.NetworkError as error:
            raise ConnectionError(str(error)) from error
        buffer[: len(piece)] = piece
        return len(piece)
