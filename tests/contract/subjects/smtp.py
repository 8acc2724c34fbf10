"""SMTP at aiosmtpd: no key, no lookup, and a second message for every repeat."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

from reconciliation.providers.base import Adapter, Inconclusive, SendOutcome, UnknownSeen
from reconciliation.providers.declaration import read_file
from reconciliation.providers.registry import SHIPPED
from reconciliation.providers.smtp import Smtp
from reconciliation.providers.transport import Transport
from runs.ids import new_id
from tests.contract.bench import Bench, Order
from tests.contract.matrix import Case, Check, Subject
from tests.contract.peers.mail import MailServer
from tests.contract.suite import NOBODY_LISTS
from tests.fault_proxy import Fault, How, Where

# The end of a message: the server answers it with its acceptance.
DOT = b"\r\n.\r\n"


class SmtpBench(Bench):
    """A mail server without a password, in the clear: what happens on the way is the proxy's to choose."""

    effects_of_a_repeat = 2

    def __init__(self) -> None:
        self.server = MailServer()
        super().__init__(self.server.url)

    def close(self) -> None:
        super().close()
        self.server.close()

    def adapter_at(self, url: str, *, sending: Transport | None = None) -> Adapter:
        assert sending is None, "SMTP takes no transport of HTTP"
        return smtp_at(url, starttls="never")

    def order(self) -> Order:
        place = new_id("mail")
        payload = {
            "from": "Shop <shop@example.com>",
            "to": [f"{place.lower()}@example.net"],
            "subject": "Your order",
            "text": "Thank you.\n.\nA line that starts with a dot.\n",
        }
        return Order(
            tool="mail",
            payload=payload,
            other={**payload, "text": "Something else.\n"},
            refused={**payload, "to": ["nobody@example.net"]},
            place=payload["to"][0],
        )

    def held(self, order: Order) -> list[str]:
        return [one.message_id for one in self.server.kept if one.recipients == (order.place,)]

    def send_refused(self, order: Order) -> SendOutcome:
        self.server.refused_recipients["nobody@example.net"] = "550 5.1.1 No such user"
        return super().send_refused(order)

    def send_duplicate(self, order: Order) -> SendOutcome:
        return self.send(order, attempt=2)


def smtp_file(*, starttls: str = "required", password: bool) -> str:
    """The shipped file, as it would be copied for a server with or without a password."""
    (path,) = SHIPPED.rglob("smtp.toml")
    text = path.read_text().replace("[smtp]\n", f'[smtp]\nstarttls = "{starttls}"\n')
    return text if password else re.sub(r"\[credentials\]\n(?:.+\n)+", "", text)


def smtp_at(
    url: str, *, starttls: str = "required", login: tuple[str, str] | None = None, **how: Any
) -> Smtp:
    """The shipped account, with or without a password, at this address."""
    text = smtp_file(starttls=starttls, password=login is not None)
    environ = {"SMTP_URL": url, "SMTP_MESSAGE_ID_DOMAIN": "mail.example.com"}
    if login is not None:
        environ |= {"SMTP_USERNAME": login[0], "SMTP_PASSWORD": login[1]}
    with tempfile.TemporaryDirectory() as folder:
        changed = Path(folder) / "smtp.toml"
        changed.write_text(text)
        declared = read_file(changed, shown_as="smtp.toml", environ=environ)
    assert declared.account.configured, declared.account.missing
    return Smtp(declared, **how)


def loses_the_answer_to_the_dot(bench: Bench) -> None:
    """Once the dot has left, an answer lost in whatever way is unknown; nothing can be looked up."""
    for how in (How.CLOSE, How.RESET):
        order = bench.order()
        bench.proxy.fault(Fault(where=Where.REPLY, how=how, once_sent=DOT))
        outcome = bench.send(order)
        assert isinstance(outcome, UnknownSeen), outcome.summary
        assert bench.proxy.struck.is_set()
        assert len(bench.held(order)) == 1
        assert isinstance(bench.look_up(order), Inconclusive)


def repeats(bench: Bench) -> None:
    """The same Message-ID twice is two messages, and each is accepted."""
    order = bench.order()
    first, again = bench.receipt(bench.send(order)), bench.receipt(bench.send(order, attempt=2))
    assert first.reference == again.reference
    assert bench.held(order) == [first.reference, first.reference]


def changes_the_content(bench: Bench) -> None:
    """Other content under the same Message-ID is simply another message."""
    order = bench.order()
    bench.receipt(bench.send(order))
    bench.receipt(bench.send(order.changed(), attempt=2))
    assert len(bench.held(order)) == 2


SUBJECTS = (
    Subject(
        adapter="smtp",
        peer="aiosmtpd 1.4.6",
        independent=True,
        bench=lambda peers: SmtpBench(),
        cases={
            Case.SEND: Check(),
            Case.SAME_KEY: Check(run=repeats),
            Case.OTHER_PAYLOAD: Check(run=changes_the_content),
            Case.CONCURRENT: Check(),
            Case.LOST_REPLY: Check(run=loses_the_answer_to_the_dot),
            Case.REFUSAL: Check(),
            Case.SEVERAL: Check(),
        },
        not_run={
            Case.ABSENCE: "a mail server can't be asked",
            Case.LISTED: NOBODY_LISTS,
            Case.LAG: "a mail server can't be asked",
            Case.CLOSED_WINDOW: "there is no key",
        },
    ),
)
