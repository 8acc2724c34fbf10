"""The dialogue with a mail server: smtplib over a connection of ours, and how far it came."""

from __future__ import annotations

import io
import smtplib
import ssl
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import httpcore

from reconciliation.providers.base import Phase

# Lines of the dialogue that are kept; a mail to the most recipients has some 220.
LINES_MAX = 300
LINE_LENGTH_MAX = 500
# What is read of a server before and after encryption, each; a dialogue has some kilobytes, and the library
# keeps every line of an answer until its last.
READ_BYTES_MAX = 256 * 1024


def printable(text: str) -> str:
    """Text that can't act where it is shown and that PostgreSQL can hold; lines become one."""
    one_line = text.replace("\n", " / ")
    return "".join(one if one.isprintable() else "\ufffd" for one in one_line)


class StepRefused(Exception):
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


class NoEncryption(Exception):
    """The server offers no encryption, and the account's file asks for it."""


@dataclass(kw_only=True)
class Progress:
    """How far one attempt came. `content_started` is set before the first byte of content is handed over."""

    phase: Phase = Phase.CONNECT
    # The server takes whatever comes next for content: nothing but content may be said to it.
    data_open: bool = False
    content_started: bool = False
    reply: tuple[int, str] | None = None
    lines: list[str] = field(default_factory=list)

    def note(self, line: str) -> None:
        if len(self.lines) < LINES_MAX:
            self.lines.append(printable(line)[:LINE_LENGTH_MAX])


def expect(step: str, reply: tuple[int, bytes], *codes: int, about_us: bool = False) -> None:
    """Raise `StepRefused` unless the reply is one of these."""
    if reply[0] not in codes:
        raise StepRefused(step, reply[0], about_us=about_us)


class Dialogue(smtplib.SMTP):
    """smtplib over a connection of ours, which holds the deadline; writes down what was said."""

    def __init__(self, stream: httpcore.NetworkStream, *, local_hostname: str, progress: Progress) -> None:
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
            expect("EHLO", self.helo(), 250, about_us=True)

    def sign_in(self, user: str, password: str) -> None:
        self._secret = True
        try:
            self.login(user, password)
        except smtplib.SMTPAuthenticationError as error:
            raise StepRefused("AUTH", error.smtp_code, about_us=True) from None
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
        shown = "(not kept)" if self._secret else printable(text.decode("utf-8", "replace"))
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
        self._read_bytes = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            piece = self._stream.read(len(buffer))
        except httpcore.TimeoutException as error:
            raise TimeoutError(str(error)) from error
        except httpcore.NetworkError as error:
            raise ConnectionError(str(error)) from error
        self._read_bytes += len(piece)
        if self._read_bytes > READ_BYTES_MAX:
            raise ConnectionError(f"the server said more than {READ_BYTES_MAX} bytes")
        buffer[: len(piece)] = piece
        return len(piece)
