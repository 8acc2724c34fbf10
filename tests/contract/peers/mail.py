"""aiosmtpd as a peer: somebody else's mail server, in a thread with an event loop of its own.

It keeps what it accepted, and answers a step otherwise where a test says so.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from types import TracebackType
from typing import Any, cast

from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

WAIT_SECONDS = 20.0


@dataclass(frozen=True, kw_only=True)
class Kept:
    """One message as the server accepted it."""

    sender: str
    recipients: tuple[str, ...]
    content: bytes
    encrypted: bool
    user: str

    @property
    def message(self) -> EmailMessage:
        return cast(EmailMessage, message_from_bytes(self.content, policy=policy.default))

    @property
    def message_id(self) -> str:
        return str(self.message["Message-ID"])


@dataclass(kw_only=True)
class _Handler:
    """What the server does with each step; `answers` are by step, `holds` wait for `let_go`."""

    kept: list[Kept] = field(default_factory=list)
    answers: dict[str, str] = field(default_factory=dict)
    refused_recipients: dict[str, str] = field(default_factory=dict)

    async def handle_EHLO(  # noqa: N802 - the library's names
        self, server: SMTP, session: Session, envelope: Envelope, hostname: str, responses: list[str]
    ) -> list[str]:
        session.host_name = hostname
        return [self.answers["EHLO"]] if "EHLO" in self.answers else responses

    async def handle_MAIL(  # noqa: N802
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if "MAIL" in self.answers:
            return self.answers["MAIL"]
        envelope.mail_from = address
        envelope.mail_options.extend(options)
        return "250 OK"

    async def handle_RCPT(  # noqa: N802
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if address in self.refused_recipients:
            return self.refused_recipients[address]
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        answer = self.answers.get("DATA", f"250 2.0.0 Ok: queued as Q{len(self.kept) + 1:05X}")
        if answer.startswith("2") or self.answers.get("keeps"):
            content = envelope.original_content
            assert content is not None
            user = getattr(session.auth_data, "login", b"")
            self.kept.append(
                Kept(
                    sender=envelope.mail_from or "",
                    recipients=tuple(envelope.rcpt_tos),
                    content=content,
                    encrypted=server.transport.get_extra_info("ssl_object") is not None,
                    user=user.decode(),
                )
            )
        return answer


class MailServer:
    """Listens on 127.0.0.1; `answers` and `refused_recipients` change what it says."""

    def __init__(
        self,
        *,
        tls: ssl.SSLContext | None = None,
        implicit_tls: bool = False,
        login: tuple[str, str] | None = None,
        port: int = 0,
    ) -> None:
        self._handler = _Handler()
        self._tls = tls
        self._implicit_tls = implicit_tls
        self._login = login
        self._wanted_port = port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="mail server", daemon=True)
        self._connections: list[SMTP] = []
        self._thread.start()
        listening = asyncio.run_coroutine_threadsafe(self._listen(), self._loop)
        self._server = listening.result(WAIT_SECONDS)
        self.port: int = self._server.sockets[0].getsockname()[1]

    @property
    def url(self) -> str:
        return f"{'smtps' if self._implicit_tls else 'smtp'}://127.0.0.1:{self.port}"

    @property
    def kept(self) -> list[Kept]:
        return self._handler.kept

    @property
    def answers(self) -> dict[str, str]:
        return self._handler.answers

    @property
    def refused_recipients(self) -> dict[str, str]:
        return self._handler.refused_recipients

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(WAIT_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WAIT_SECONDS)
        self._loop.close()

    def __enter__(self) -> MailServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()

    async def _listen(self) -> asyncio.Server:
        return await self._loop.create_server(
            self._protocol, "127.0.0.1", self._wanted_port, ssl=self._tls if self._implicit_tls else None
        )

    def _protocol(self) -> SMTP:
        starttls = None if self._implicit_tls else self._tls
        how: dict[str, Any] = {}
        if self._login is not None:
            how = {"authenticator": self._authenticate, "auth_required": True}
        made = SMTP(
            self._handler,
            hostname="peer.test",
            loop=self._loop,
            tls_context=starttls,
            require_starttls=starttls is not None,
            **how,
        )
        self._connections.append(made)
        return made

    def _authenticate(
        self, server: SMTP, session: Session, envelope: Envelope, mechanism: str, auth_data: object
    ) -> AuthResult:
        assert isinstance(auth_data, LoginPassword)
        assert self._login is not None
        right = (auth_data.login.decode(), auth_data.password.decode()) == self._login
        return AuthResult(success=right, handled=False, auth_data=auth_data)

    async def _end(self) -> None:
        self._server.close()
        for one in self._connections:
            if one.transport is not None:
                one.transport.close()
        await self._server.wait_closed()
        for task in asyncio.all_tasks():
            if task is not asyncio.current_task():
                task.cancel()
        await asyncio.sleep(0)
        await self._loop.shutdown_asyncgens()
