"""The two ways out: e-mail by the deployment's mail server, and a signed webhook.

Each makes one attempt and says what came of it; it raises nothing for what the network or the other side
does.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import smtplib
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final
from urllib.parse import urlsplit

from django.conf import settings
from django.core.mail import EmailMessage, get_connection

from console.notification_models import Message
from console.notifying import wording
from console.notifying.destinations import Webhook
from reconciliation.providers.redaction import redactor_for
from reconciliation.providers.transport import Call, Transport

# A whole request to a webhook; mail has its own limit for each step (`EMAIL_TIMEOUT`).
WEBHOOK_SECONDS_MAX: Final = 10.0
# Nobody is left alone longer because they said so: the next message would be a day old.
RETRY_AFTER_MAX: Final = timedelta(hours=1)


@dataclass(frozen=True, kw_only=True)
class Taken:
    """The other side took it."""


@dataclass(frozen=True, kw_only=True)
class NotTaken:
    """It wasn't taken, as far as we know: a lost answer counts as this, and the same id comes again.

    `final`: asking again would be answered the same. `everybody`: it isn't about this message, so others by
    the same way needn't be tried now.
    """

    because: str
    final: bool = False
    everybody: bool = False
    retry_after: timedelta | None = None


Outcome = Taken | NotTaken


def message_id(message: Message) -> str:
    """The Message-ID of an e-mail: the same at each attempt, so that its receiver can tell."""
    host = urlsplit(settings.RECOURSE_PUBLIC_URL).hostname or "recourse.invalid"
    return f"<{message.pk}@{host}>"


def send_email(message: Message, *, to: str) -> Outcome:
    """Hand it to the mail server, once."""
    if not settings.RECOURSE_MAIL_CONFIGURED:
        return NotTaken(because="No mail server is set (RECOURSE_MAIL_URL).", everybody=True)
    if not to:
        return NotTaken(because="They have no e-mail address.", final=True)
    mail = EmailMessage(
        subject=message.subject,
        body=wording.text_of(message.content),
        to=[to],
        headers={
            "Message-ID": message_id(message),
            # So that an answering machine doesn't answer (RFC 3834).
            "Auto-Submitted": "auto-generated",
        },
    )
    try:
        with get_connection() as connection:
            connection.send_messages([mail])
    except smtplib.SMTPRecipientsRefused as refused:
        code, said = next(iter(refused.recipients.values()), (0, b""))
        return NotTaken(
            because=_said("The mail server refused the address", code, said), final=500 <= code < 600
        )
    except smtplib.SMTPDataError as refused:
        final = 500 <= refused.smtp_code < 600
        return NotTaken(
            because=_said("The mail server refused the message", refused.smtp_code, refused.smtp_error),
            final=final,
        )
    except smtplib.SMTPResponseException as refused:
        # Of a login or a sender: about us, not about this message.
        because = _said("The mail server refused us", refused.smtp_code, refused.smtp_error)
        return NotTaken(because=because, everybody=True)
    except (smtplib.SMTPException, OSError) as error:
        return NotTaken(because=f"The mail server wasn’t reached ({type(error).__name__}).", everybody=True)
    except ValueError as error:
        return NotTaken(because=f"It can’t be written as a mail ({type(error).__name__}).", final=True)
    return Taken()


def _said(what: str, code: int, said: bytes | str) -> str:
    """The server's code, not its words: they quote whatever they were given."""
    del said
    return f"{what} ({code})."


def send_webhook(message: Message, *, webhook: Webhook) -> Outcome:
    """Post it, once, signed as Standard Webhooks say: id, time and body by HMAC-SHA256."""
    body = json.dumps(payload_of(message), ensure_ascii=False, separators=(",", ":")).encode()
    at = str(int(time.time()))
    call = Call(
        method="POST",
        url=webhook.url,
        headers=(
            ("Content-Type", "application/json"),
            ("Webhook-Id", message.pk),
            ("Webhook-Timestamp", at),
            ("Webhook-Signature", signature(key=webhook.key, message_id=message.pk, at=at, body=body)),
        ),
        content=body,
        within_seconds=WEBHOOK_SECONDS_MAX,
    )
    with Transport(keep_alive=False, reach=webhook.reach) as transport:
        answer = transport.call(call, redactor=redactor_for({"url": webhook.url}))
    if answer.status is None:
        return NotTaken(because=f"The webhook wasn’t reached ({answer.exchange.error_class}).")
    if 200 <= answer.status < 300:
        return Taken()
    if answer.status == 410:
        return NotTaken(because="The webhook answered that it is gone (410).", final=True)
    return NotTaken(
        because=f"The webhook answered {answer.status}.",
        retry_after=_retry_after(answer.headers.get("retry-after", "")),
    )


def payload_of(message: Message) -> dict[str, Any]:
    return {"id": message.pk, **wording.payload_of(message.subject, message.content)}


def signature(*, key: bytes, message_id: str, at: str, body: bytes) -> str:
    """`v1,` and the base64 HMAC-SHA256 over `id.time.body` (standardwebhooks.com)."""
    signed = hmac.new(key, f"{message_id}.{at}.".encode() + body, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(signed).decode()}"


def _retry_after(text: str) -> timedelta | None:
    """A number of seconds; a date is left alone, for our own waits are as good."""
    return (
        min(timedelta(seconds=int(text)), RETRY_AFTER_MAX)
        if text.isascii() and text.isdigit() and len(text) < 9
        else None
    )
