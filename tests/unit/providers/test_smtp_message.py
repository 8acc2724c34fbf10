"""An e-mail made from a payload: what it says, that it is always the same, and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciliation.providers.smtp_message import MessageUnusable, compose
from runs.ids import ALPHABET, RANDOM_BITS, ULID_LENGTH, new_id

KEY = "rk-test"
PAYLOAD: dict[str, Any] = {
    "from": "Shop <shop@example.com>",
    "to": ["Ada Lovelace <ada@example.net>", "bob@example.org"],
    "subject": "Your order",
    "text": "Thank you.\n",
}


def made(payload: Any, *, operation_id: str = "op_test", **changes: Any) -> EmailMessage:
    mail = compose(payload, key=KEY, operation_id=operation_id, domain="mail.example.com", **changes)
    return cast(EmailMessage, message_from_bytes(mail.content, policy=policy.default))


def test_the_message_says_what_the_payload_says() -> None:
    message = made({**PAYLOAD, "cc": "carl@example.com", "reply_to": ["help@example.com"]})
    assert message["From"] == "Shop <shop@example.com>"
    assert message["To"] == "Ada Lovelace <ada@example.net>, bob@example.org"
    assert message["Cc"] == "carl@example.com"
    assert message["Reply-To"] == "help@example.com"
    assert message["Message-ID"] == f"<{KEY}@mail.example.com>"
    assert message.get_content() == "Thank you.\r\n"


def test_every_attempt_has_the_same_bytes() -> None:
    payload = {**PAYLOAD, "html": "<p>Thank you.</p>"}
    operation_id = new_id("op")
    first, again = (
        compose(payload, key=KEY, operation_id=operation_id, domain="mail.example.com") for _ in range(2)
    )
    assert first == again
    assert b"boundary=" in first.content


def test_the_date_is_when_the_operation_was_minted() -> None:
    minted_at = datetime(2026, 11, 29, 12, 30, 5, tzinfo=UTC)
    number = int(minted_at.timestamp() * 1000) << RANDOM_BITS
    ulid = "".join(ALPHABET[number >> 5 * at & 31] for at in reversed(range(ULID_LENGTH)))
    assert made(PAYLOAD, operation_id=f"op_{ulid}")["Date"].datetime == minted_at
    assert made(PAYLOAD, operation_id="of-another-form")["Date"] is None


def test_text_and_html_are_alternatives_of_one_message() -> None:
    message = made({**PAYLOAD, "html": "<p>Grüße</p>"})
    assert message.get_content_type() == "multipart/alternative"
    plain, html = message.iter_parts()
    assert plain.get_content_type() == "text/plain"
    assert html.get_content().strip() == "<p>Grüße</p>"
    only = {name: value for name, value in PAYLOAD.items() if name != "text"}
    assert made({**only, "html": "<p>x</p>"}).get_content_type() == "text/html"


def test_blind_copies_are_in_the_envelope_alone() -> None:
    mail = compose(
        {**PAYLOAD, "bcc": ["auditor@example.com", "ada@example.net"]},
        key=KEY,
        operation_id="op_test",
        domain="mail.example.com",
        envelope_from="bounces@example.com",
    )
    assert mail.recipients == ("ada@example.net", "bob@example.org", "auditor@example.com")
    assert mail.sender == "bounces@example.com"
    assert b"auditor" not in mail.content
    assert b"bounces" not in mail.content


def test_a_message_needs_no_more_than_seven_bits() -> None:
    mail = compose(
        {**PAYLOAD, "subject": "Größe 🚚", "text": "naïve\n" * 3, "html": "ü" * 2000},
        key=KEY,
        operation_id="op_test",
        domain="mail.example.com",
    )
    assert mail.content.isascii()
    assert max(len(line) for line in mail.content.split(b"\r\n")) <= 998
    assert b"\n" not in mail.content.replace(b"\r\n", b"")


UNUSABLE: dict[str, tuple[Any, str]] = {
    "no object": (["x"], "not an object"),
    "no sender": ({**PAYLOAD, "from": None}, "from is not an address"),
    "two senders": ({**PAYLOAD, "from": ["a@example.com", "b@example.com"]}, "from is not an address"),
    "nobody": ({**PAYLOAD, "to": []}, "to is empty"),
    "no subject": ({name: PAYLOAD[name] for name in ("from", "to", "text")}, "subject is not text"),
    "no body": ({name: PAYLOAD[name] for name in ("from", "to", "subject")}, "text is not text"),
    "an attachment": ({**PAYLOAD, "attachments": []}, "'attachments', and only"),
    "a header in a subject": ({**PAYLOAD, "subject": "x\r\nBcc: eve@example.com"}, "can't be written"),
    "a header in an address": (
        {**PAYLOAD, "to": ["a@example.net>\r\nBcc: e@example.com"]},
        "plain address",
    ),
    "a header in a name": ({**PAYLOAD, "to": ["A\r\nBcc: e@example.com <ada@example.net>"]}, ""),
    "a command in an address": ({**PAYLOAD, "to": ["ada@example.net> SIZE=1"]}, "plain address"),
    "a route": ({**PAYLOAD, "to": ["@relay.example:ada@example.net"]}, "plain address"),
    "two in one text": ({**PAYLOAD, "to": ["ada@example.net, eve@example.com"]}, "plain address"),
    "an address beyond ASCII": ({**PAYLOAD, "to": ["ada@exämple.net"]}, "plain address"),
    "a number": ({**PAYLOAD, "to": [5]}, "not an address in text"),
    "a crowd": ({**PAYLOAD, "to": [f"a{at}@example.com" for at in range(101)]}, "more than 100"),
    "a book": ({**PAYLOAD, "subject": "x" * 999}, "longer than 998"),
}


@pytest.mark.parametrize("case", UNUSABLE)
def test_what_is_no_mail_is_refused_with_its_reason(case: str) -> None:
    payload, because = UNUSABLE[case]
    with pytest.raises(MessageUnusable) as refused:
        made(payload)
    assert because in str(refused.value)


@settings(max_examples=150, deadline=None)
@given(
    subject=st.text(max_size=120),
    text=st.text(max_size=300),
    name=st.text(max_size=40),
)
def test_no_text_becomes_a_header_or_another_recipient(subject: str, text: str, name: str) -> None:
    payload = {**PAYLOAD, "to": [f"{name} <ada@example.net>"], "subject": subject, "text": text}
    try:
        mail = compose(payload, key=KEY, operation_id="op_test", domain="mail.example.com")
    except MessageUnusable:
        return
    assert mail.recipients == ("ada@example.net",)
    assert mail.content.isascii()
    head = mail.content.partition(b"\r\n\r\n")[0]
    names = [line.partition(b":")[0] for line in head.split(b"\r\n") if line[:1] not in (b" ", b"\t")]
    assert sorted(names) == [
        *(b"Content-Transfer-Encoding", b"Content-Type", b"From", b"MIME-Version"),
        *(b"Message-ID", b"Subject", b"To"),
    ]
