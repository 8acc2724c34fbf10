"""What may be said of a mail for everything that a server can do, step by step.

Before the first byte of content `not_sent` is proved, whatever went wrong; from it on only the server's own
answer to the end of the message says more than `unknown`. aiosmtpd is somebody else's server; what it never
does is scripted here, byte by byte.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from reconciliation.providers.base import (
    MatchedBy,
    NotSentSeen,
    Phase,
    ReceiptSeen,
    RejectedSeen,
    SendKind,
    UnknownSeen,
    elapsed_seconds,
)
from tests.contract.certificates import Pair, certificate
from tests.contract.declaring import operation
from tests.contract.fault_server import Conversation, FaultServer
from tests.contract.peers.mail import MailServer
from tests.contract.subjects.smtp import DOT, smtp_at
from tests.fault_proxy import Fault, FaultProxy, How, Where

MAIL: dict[str, Any] = {
    "from": "Shop <shop@example.com>",
    "to": ["ada@example.net"],
    "subject": "Your order – größer",
    "text": "Thank you.\n.\n..two dots\n",
}
TWO = {**MAIL, "to": ["ada@example.net"], "bcc": ["auditor@example.com"]}
MESSAGE_ID = "<rk-test@mail.example.com>"


@pytest.fixture
def server() -> Iterator[MailServer]:
    with MailServer() as running:
        yield running


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return certificate(tmp_path_factory.mktemp("certificates"))


def mail(**changes: Any) -> Any:
    return operation(payload=MAIL, tool="mail", within_ms=10_000, **changes)


# --- accepted ------------------------------------------------------------------------------------------


def test_an_accepted_mail_is_a_receipt_by_reply_only(server: MailServer) -> None:
    outcome = smtp_at(server.url, starttls="never").send(mail())
    assert isinstance(outcome, ReceiptSeen), outcome.summary
    assert outcome.receipt.reference == MESSAGE_ID
    assert outcome.receipt.matched_by is MatchedBy.REPLY_ONLY, "the server doesn't say whose message it took"
    assert outcome.receipt.body["queue_id"] == "Q00001"
    assert outcome.receipt.body["reply"]["code"] == 250
    assert outcome.exchange.status is None, "a code of SMTP would be read as one of HTTP"
    assert "Accepted is not delivered" in outcome.summary


def test_the_mail_arrives_as_it_was_meant(server: MailServer) -> None:
    sent = replace(mail(), payload=TWO)
    assert isinstance(smtp_at(server.url, starttls="never").send(sent), ReceiptSeen)
    (kept,) = server.kept
    assert kept.sender == "shop@example.com"
    assert kept.recipients == ("ada@example.net", "auditor@example.com")
    assert "auditor" not in kept.content.decode(), "a blind copy is in the envelope alone"
    assert kept.message["Subject"] == MAIL["subject"]
    assert kept.message_id == MESSAGE_ID
    assert kept.message.get_content().replace("\r\n", "\n") == MAIL["text"]


def test_the_dialogue_is_kept_as_evidence(server: MailServer) -> None:
    outcome = smtp_at(server.url, starttls="never").send(mail())
    for line in ("> mail FROM:<shop@example.com>", "< 354", "> QUIT"):
        assert line in outcome.exchange.body
    assert "Thank you" not in outcome.exchange.body, "of the content only length and digest are kept"
    assert outcome.exchange.request_length > 100


# --- refused before the content ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "answer", "kind"),
    [
        ("MAIL", "550 5.7.1 Sender not allowed", SendKind.REJECTED),
        ("MAIL", "451 4.3.0 Try later", SendKind.NOT_SENT),
        ("RCPT", "550 5.1.1 No such user", SendKind.REJECTED),
        ("RCPT", "450 4.2.0 Greylisted", SendKind.NOT_SENT),
    ],
)
def test_a_refused_step_before_the_content_says_that_nothing_was_sent(
    server: MailServer, step: str, answer: str, kind: SendKind
) -> None:
    server.answers["MAIL"] = answer if step == "MAIL" else "250 OK"
    if step == "RCPT":
        del server.answers["MAIL"]
        server.refused_recipients["auditor@example.com"] = answer
    outcome = smtp_at(server.url, starttls="never").send(replace(mail(), payload=TWO))
    assert outcome.kind is kind, outcome.summary
    assert not outcome.exchange.headers_started
    assert server.kept == [], "one refused recipient refuses the mail for all of them"
    if isinstance(outcome, RejectedSeen):
        assert outcome.speaks_for_first


def test_a_refusal_of_a_repeat_says_nothing_about_the_first(server: MailServer) -> None:
    server.refused_recipients["ada@example.net"] = "550 5.1.1 No such user"
    outcome = smtp_at(server.url, starttls="never").send(mail(attempt_number=2))
    assert isinstance(outcome, RejectedSeen)
    assert not outcome.speaks_for_first


def says(conversation: Conversation, *replies: str, then: Callable[[Conversation], None]) -> None:
    """Greet, answer each line with the next reply, then go on as the test says."""
    conversation.send(b"220 peer.test ESMTP\r\n")
    for reply in replies:
        line(conversation)
        conversation.send(reply.encode() + b"\r\n")
    then(conversation)


def line(conversation: Conversation) -> bytes:
    data = b""
    while not data.endswith(b"\r\n"):
        data += conversation.read_some(1)
    return data


def content(conversation: Conversation) -> None:
    data = b""
    while not data.endswith(DOT):
        data += conversation.read_some()


def leave(conversation: Conversation) -> None:
    conversation.sock.close()


def hold(conversation: Conversation) -> None:
    conversation.hold()


HELLO = ("250 peer.test", "250 OK", "250 OK")
BEFORE_CONTENT = {
    "a greeting of 554": lambda one: one.send(b"554 no service\r\n"),
    "no greeting at all": hold,
    "not SMTP": lambda one: one.send(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
    "closed at once": leave,
    "reset at once": lambda one: one.reset(),
    "closed after EHLO": lambda one: says(one, then=leave),
    "closed after MAIL": lambda one: says(one, *HELLO[:2], then=leave),
    "silent after RCPT": lambda one: says(one, *HELLO, then=hold),
    "closed instead of 354": lambda one: says(one, *HELLO, then=lambda two: (line(two), leave(two))),
    "451 instead of 354": lambda one: says(one, *HELLO, "451 busy", then=line),
    "an endless greeting": lambda one: drip(one, b"220-still\r\n"),
}


def drip(conversation: Conversation, piece: bytes) -> None:
    """A line now and then, so that no single wait is long."""
    while not conversation.server.over.wait(0.05):
        conversation.send(piece)


@pytest.mark.parametrize("how", BEFORE_CONTENT)
def test_what_fails_before_the_content_is_proved_not_sent(how: str) -> None:
    with FaultServer(BEFORE_CONTENT[how]) as server:  # type: ignore[arg-type]
        started_at = time.monotonic()
        sent = replace(mail(), request_within_ms=700)
        outcome = smtp_at(smtp_url(server), starttls="never").send(sent)
        assert time.monotonic() - started_at < 20
    assert isinstance(outcome, NotSentSeen), outcome.summary
    assert not outcome.exchange.headers_started
    assert outcome.exchange.phase is Phase.CONNECT


def test_an_answer_without_end_is_not_read_to_its_end() -> None:
    def flood(conversation: Conversation) -> None:
        conversation.send(b"220-" + b"x" * 500 + b"\r\n")
        for _ in range(16):
            conversation.send((b"220-" + b"x" * 500 + b"\r\n") * 128)
        conversation.send(b"220 peer.test\r\n")
        line(conversation)

    with FaultServer(flood) as server:
        outcome = smtp_at(smtp_url(server), starttls="never").send(mail())
    assert isinstance(outcome, NotSentSeen), outcome.summary
    assert "said more than" in outcome.exchange.error


def test_554_instead_of_354_is_a_refusal() -> None:
    with FaultServer(lambda one: says(one, *HELLO, "554 no valid recipients", then=line)) as server:
        outcome = smtp_at(smtp_url(server), starttls="never").send(mail())
    assert isinstance(outcome, RejectedSeen), outcome.summary


def test_a_closed_port_is_not_sent() -> None:
    with MailServer() as server:
        url = server.url
    outcome = smtp_at(url, starttls="never").send(mail())
    assert isinstance(outcome, NotSentSeen)
    assert "ConnectError" in outcome.summary


def test_a_host_that_is_not_listed_is_never_connected_to(server: MailServer, settings: Any) -> None:
    settings.RECOURSE_ALLOWED_PROVIDER_HOSTS = []
    outcome = smtp_at(server.url, starttls="never").send(mail())
    assert isinstance(outcome, NotSentSeen)
    assert outcome.exchange.error_class == "OutOfReach"
    assert server.kept == []


# --- from the first byte of content on -----------------------------------------------------------------

AFTER_CONTENT = {
    "closed before the dot is read": lambda one: says(
        one, *HELLO, "354 go on", then=lambda two: (two.read_some(), leave(two))
    ),
    "reset in mid content": lambda one: says(
        one, *HELLO, "354 go on", then=lambda two: (two.read_some(1), two.reset())
    ),
    "silent after the dot": lambda one: says(
        one, *HELLO, "354 go on", then=lambda two: (content(two), hold(two))
    ),
    "closed after the dot": lambda one: says(
        one, *HELLO, "354 go on", then=lambda two: (content(two), leave(two))
    ),
    "half an answer": lambda one: says(
        one, *HELLO, "354 go on", then=lambda two: (content(two), two.send(b"250-2.0.0 Ok: queu"), leave(two))
    ),
    "an answer without a code": lambda one: says(
        one, *HELLO, "354 go on", then=lambda two: (content(two), two.send(b"Ok: queued\r\n"), hold(two))
    ),
    "an endless answer": lambda one: says(
        one, *HELLO, "354 go on", then=lambda two: (content(two), drip(two, b"250-still\r\n"))
    ),
    "451 after the dot": lambda one: says(
        one, *HELLO, "354 go on", then=lambda two: (content(two), two.send(b"451 4.3.0 busy\r\n"), line(two))
    ),
    "421 after the dot": lambda one: says(
        one, *HELLO, "354 go on", then=lambda two: (content(two), two.send(b"421 4.3.0 bye\r\n"), leave(two))
    ),
}


@pytest.mark.parametrize("how", AFTER_CONTENT)
def test_what_fails_once_content_has_left_is_unknown(how: str) -> None:
    with FaultServer(AFTER_CONTENT[how]) as server:  # type: ignore[arg-type]
        sent = replace(mail(), request_within_ms=1_500)
        outcome = smtp_at(smtp_url(server), starttls="never").send(sent)
        assert server.connections == 1, "one attempt is one connection"
    assert isinstance(outcome, UnknownSeen), outcome.summary
    assert outcome.exchange.headers_started


def test_a_message_that_the_server_kept_and_called_temporarily_refused_is_unknown(server: MailServer) -> None:
    server.answers.update(DATA="451 4.3.0 Lost my own reply", keeps="yes")
    outcome = smtp_at(server.url, starttls="never").send(mail())
    assert len(server.kept) == 1
    assert isinstance(outcome, UnknownSeen), outcome.summary


def test_what_a_server_says_is_kept_as_text_that_does_nothing() -> None:
    def odd(conversation: Conversation) -> None:
        content(conversation)
        conversation.send(b"250-Ok \x00\x1b[2J \xe2\x80\xae\r\n250 queued as \xff\xfe\r\n")
        line(conversation)

    with FaultServer(lambda one: says(one, *HELLO, "354 go on", then=odd)) as server:
        outcome = smtp_at(smtp_url(server), starttls="never").send(mail())
    assert isinstance(outcome, ReceiptSeen), outcome.summary
    kept = repr(outcome.receipt.as_json()) + outcome.exchange.body
    assert kept.isprintable(), kept
    assert "\\u0000" not in kept


def test_a_definite_refusal_of_the_message_is_one(server: MailServer) -> None:
    server.answers["DATA"] = "554 5.7.1 Spam"
    outcome = smtp_at(server.url, starttls="never").send(mail())
    assert isinstance(outcome, RejectedSeen), outcome.summary
    assert outcome.exchange.headers_started
    assert server.kept == []


def test_an_accepted_mail_stays_accepted_when_the_goodbye_fails(server: MailServer) -> None:
    with FaultProxy(server.url) as proxy:
        proxy.fault(Fault(where=Where.REPLY, how=How.CLOSE, once_sent=b"QUIT\r\n"))
        outcome = smtp_at(proxy.url, starttls="never").send(mail())
        assert proxy.struck.is_set()
    assert isinstance(outcome, ReceiptSeen), outcome.summary


# --- the clock -----------------------------------------------------------------------------------------


def test_past_the_start_window_nobody_is_connected_to(server: MailServer) -> None:
    with FaultProxy(server.url) as proxy:
        outcome = smtp_at(proxy.url, starttls="never").send(mail(start_in_seconds=-0.1))
        assert proxy.connections == 0
    assert isinstance(outcome, NotSentSeen)
    assert outcome.exchange.phase is Phase.NOT_STARTED


def test_no_content_leaves_once_the_start_window_has_passed_in_the_dialogue() -> None:
    read_after: list[bytes] = []
    start_by = elapsed_seconds() + 0.5

    def script(conversation: Conversation) -> None:
        says(conversation, *HELLO, then=late)

    def late(conversation: Conversation) -> None:
        line(conversation)
        while elapsed_seconds() <= start_by:
            conversation.server.over.wait(0.05)
        conversation.send(b"354 go on\r\n")
        read_after.append(conversation.sock.recv(100))

    with FaultServer(script) as server:
        outcome = smtp_at(smtp_url(server), starttls="never").send(replace(mail(), start_by=start_by))
    assert isinstance(outcome, NotSentSeen), outcome.summary
    assert outcome.exchange.error_class == "StartWindowPassed"
    assert read_after in ([b""], []), "not a byte, also no goodbye that would be taken for content"


# --- encryption and passwords ----------------------------------------------------------------------------


def test_a_password_goes_only_over_an_encrypted_connection(certificates: Pair) -> None:
    login = ("user-of-shop", "the-password-of-shop")
    with MailServer(tls=certificates.server, login=login) as server:
        outcome = smtp_at(server.url, login=login, ssl_context=certificates.client).send(mail())
        assert isinstance(outcome, ReceiptSeen), outcome.summary + outcome.exchange.body
        (kept,) = server.kept
    assert kept.encrypted
    assert kept.user == login[0]
    assert_secret_nowhere(outcome.exchange.as_json(), login)


def test_a_connection_can_be_encrypted_from_the_start(certificates: Pair) -> None:
    with MailServer(tls=certificates.server, implicit_tls=True) as server:
        outcome = smtp_at(server.url, ssl_context=certificates.client).send(mail())
        assert isinstance(outcome, ReceiptSeen), outcome.summary + outcome.exchange.body
        assert server.kept[0].encrypted


def test_a_server_without_starttls_is_told_nothing() -> None:
    login = ("user-of-shop", "the-password-of-shop")
    with MailServer() as server:
        outcome = smtp_at(server.url, login=login).send(mail())
        assert server.kept == []
    assert isinstance(outcome, NotSentSeen)
    assert "STARTTLS" in outcome.summary
    assert "AUTH" not in outcome.exchange.body


def test_an_unknown_certificate_ends_it_before_anything_is_said(certificates: Pair) -> None:
    for implicit in (False, True):
        with MailServer(tls=certificates.server, implicit_tls=implicit) as server:
            outcome = smtp_at(server.url).send(mail())
            assert server.kept == []
        assert isinstance(outcome, NotSentSeen), outcome.summary
        assert not outcome.exchange.headers_started


def test_a_wrong_password_is_no_refusal_of_the_mail(certificates: Pair) -> None:
    wrong = ("user-of-shop", "a-wrong-password")
    with MailServer(tls=certificates.server, login=("user-of-shop", "right")) as server:
        outcome = smtp_at(server.url, login=wrong, ssl_context=certificates.client).send(mail())
        assert server.kept == []
    assert isinstance(outcome, NotSentSeen), outcome.summary
    assert "AUTH was answered with 535" in outcome.summary
    assert_secret_nowhere(outcome.exchange.as_json(), wrong)


def test_what_was_said_in_the_clear_is_forgotten_once_encrypted(certificates: Pair) -> None:
    """Replies put in front of the encryption by somebody in between must not be taken for the server's."""

    def script(conversation: Conversation) -> None:
        conversation.send(b"220 peer.test ESMTP\r\n")
        line(conversation)
        conversation.send(b"250-peer.test\r\n250 STARTTLS\r\n")
        line(conversation)
        injected = b"".join(reply.encode() + b"\r\n" for reply in (*HELLO, "354 go on", "250 injected"))
        conversation.send(b"220 go ahead\r\n" + injected)
        with certificates.server.wrap_socket(conversation.sock, server_side=True) as encrypted:
            conversation.sock = encrypted
            for _ in range(3):
                line(conversation)
                conversation.send(b"554 the real server\r\n")

    with FaultServer(script) as server:
        outcome = smtp_at(smtp_url(server), ssl_context=certificates.client).send(mail())
    assert isinstance(outcome, NotSentSeen), outcome.summary
    assert "injected" not in outcome.exchange.body


def assert_secret_nowhere(kept: object, login: tuple[str, str]) -> None:
    import base64

    text = repr(kept)
    user, password = login
    for secret in (
        password,
        base64.b64encode(password.encode()).decode(),
        base64.b64encode(f"\0{user}\0{password}".encode()).decode(),
    ):
        assert secret not in text


def smtp_url(server: FaultServer) -> str:
    return f"smtp://127.0.0.1:{server.port}"


def test_the_client_context_knows_no_certificate_of_ours_by_itself() -> None:
    """The tests above would prove nothing if the trusted certificates were whatever the system has."""
    from reconciliation.providers.smtp import _trusted_certificates

    assert _trusted_certificates().verify_mode is ssl.CERT_REQUIRED
    assert _trusted_certificates().check_hostname
