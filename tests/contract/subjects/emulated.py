"""Resend, which honours keys, and GitHub, Slack and Twilio, which have none, at a stand-in of Vercel's."""

from __future__ import annotations

import secrets
from typing import Any

from runs.ids import new_id
from tests.contract.bench import Bench, DeclaredBench, Order, basic
from tests.contract.matrix import Case, Check, Subject
from tests.contract.peers.servers import Peer, Peers
from tests.contract.stub.trimming import TrimmedResend
from tests.contract.suite import closes_the_window
from tests.fault_proxy import FaultProxy

PEER = "emulate 0.11.2"
TOKEN = "test_token_admin"
AS_ADMIN = {"Authorization": f"Bearer {TOKEN}"}


class EmulatedBench(DeclaredBench):
    """One of the services of the one process."""

    service: str

    def __init__(self, emulate: Peer) -> None:
        self.emulate = emulate
        super().__init__(emulate.urls[self.service])

    def ask(self, method: str, path: str, **how: Any) -> Any:
        return self.peer(method, path, headers=AS_ADMIN, **how)


class ResendBench(EmulatedBench):
    """Each order is a mail with a subject of its own."""

    slug = "resend"
    service = "resend"
    url_name = "RESEND_URL"
    environ = {"RESEND_API_KEY": TOKEN}

    def close(self) -> None:
        self.emulate.reset_clock()
        super().close()

    def order(self) -> Order:
        place = new_id("mail")
        payload = {
            "from": "desk@shop.example",
            "to": ["ada@customer.example"],
            "subject": place,
            "text": "Your refund is on its way.",
        }
        return Order(
            tool="mail",
            payload=payload,
            other={**payload, "text": "Your refund is late."},
            refused={**payload, "to": ""},
            place=place,
        )

    def held(self, order: Order) -> list[str]:
        mails = self.ask("GET", "/emails")["data"]
        return [one["id"] for one in mails if one["subject"] == order.place]


class TrimmedResendBench(ResendBench):
    """The same, with a list that shows no more of a mail than the documented one."""

    shows_our_mark = False

    def __init__(self, emulate: Peer) -> None:
        self.trimmed = TrimmedResend(emulate.urls["resend"])
        super().__init__(emulate)
        self.proxy.close()
        self.proxy = FaultProxy(self.trimmed.url)
        self.move(self.proxy.url)

    def close(self) -> None:
        super().close()
        self.trimmed.close()


def forgets_after_a_day(bench: Bench) -> None:
    assert isinstance(bench, ResendBench)
    closes_the_window(bench, bench.emulate.advance_clock)


class GithubBench(EmulatedBench):
    """Each order is an issue in a repository of its own."""

    slug = "github-issues"
    service = "github"
    url_name = "GITHUB_API_URL"
    environ = {"GITHUB_TOKEN": TOKEN}
    effects_of_a_repeat = 2

    def order(self) -> Order:
        place = new_id("repo").replace("_", "-").lower()
        self.ask("POST", "/user/repos", json={"name": place})
        payload = {"owner": "admin", "repo": place, "title": "Refund 1042", "body": "It never came."}
        return Order(
            tool="issue",
            payload=payload,
            other={**payload, "title": "Refund 1043"},
            refused={**payload, "title": ""},
            place=place,
        )

    def held(self, order: Order) -> list[str]:
        issues = self.ask("GET", f"/repos/admin/{order.place}/issues", params={"state": "all"})
        return [str(one["id"]) for one in issues]

    def send_duplicate(self, order: Order) -> Any:
        return self.send(order, attempt=2)


class SlackBench(EmulatedBench):
    """Each order is a message in a channel of its own."""

    slug = "slack"
    service = "slack"
    url_name = "SLACK_API_URL"
    url_path = "/api"
    environ = {"SLACK_BOT_TOKEN": TOKEN}
    effects_of_a_repeat = 2

    def order(self) -> Order:
        name = new_id("room").replace("_", "-").lower()
        made = self.ask("POST", "/api/conversations.create", json={"name": name})
        assert made["ok"], made
        place = made["channel"]["id"]
        payload = {"channel": place, "text": "The refund for order 1042 was sent."}
        return Order(
            tool="message",
            payload=payload,
            other={**payload, "text": "The refund for order 1043 was sent."},
            refused={**payload, "channel": "C0NOWHERE"},
            place=place,
        )

    def held(self, order: Order) -> list[str]:
        page = self.ask("POST", "/api/conversations.history", data={"channel": order.place, "limit": "200"})
        assert page["ok"], page
        return [one["ts"] for one in page["messages"] if "subtype" not in one]

    def send_duplicate(self, order: Order) -> Any:
        return self.send(order, attempt=2)


class TwilioBench(EmulatedBench):
    """Each order is a text to a number of its own; nothing of ours travels with it."""

    slug = "twilio"
    service = "twilio"
    url_name = "TWILIO_URL"
    account = f"AC{'0' * 32}"
    environ = {"TWILIO_ACCOUNT_SID": account, "TWILIO_AUTH_TOKEN": "twilio_test_auth_token"}
    effects_of_a_repeat = 2

    def order(self) -> Order:
        place = f"+1555{secrets.randbelow(10**7):07}"
        payload = {"To": place, "From": "+15551234567", "Body": f"Code {new_id('code')}"}
        return Order(
            tool="sms",
            payload=payload,
            other={**payload, "Body": "Another text"},
            refused={**payload, "From": "+15550000000"},
            place=place,
        )

    def held(self, order: Order) -> list[str]:
        page = self.peer(
            "GET",
            f"/2010-04-01/Accounts/{self.account}/Messages.json",
            params={"To": order.place, "PageSize": "100"},
            auth=basic(self.account, self.environ["TWILIO_AUTH_TOKEN"]),
        )
        return [one["sid"] for one in page["messages"]]

    def send_duplicate(self, order: Order) -> Any:
        return self.send(order, attempt=2)


def _subject(bench: type[EmulatedBench], **changes: Any) -> Subject:
    def make(peers: Peers) -> Bench:
        return bench(peers.emulate())

    return Subject(adapter=bench.slug, peer=PEER, independent=True, bench=make, **changes)


_ALL_BUT_LAG_AND_WINDOW = {case: Check() for case in Case if case not in (Case.LAG, Case.CLOSED_WINDOW)}
_NO_LAG = "the peer shows everything at once"
_NO_KEY = "the provider has no keys, so there is no window"

_SHOWS_TAGS = Check(
    departure="shows tags in its list of mails, so a mail is found by our mark",
    source="https://resend.com/changelog/list-sent-emails-endpoint",
)

RESEND = _subject(
    ResendBench,
    cases={
        **_ALL_BUT_LAG_AND_WINDOW,
        Case.SEND: _SHOWS_TAGS,
        Case.LOST_REPLY: _SHOWS_TAGS,
        Case.SEVERAL: _SHOWS_TAGS,
        Case.LISTED: _SHOWS_TAGS,
        Case.CLOSED_WINDOW: Check(run=forgets_after_a_day),
    },
    not_run={Case.LAG: _NO_LAG},
)
_TRIMMED = (Case.SEND, Case.LOST_REPLY, Case.ABSENCE, Case.SEVERAL, Case.LISTED)
RESEND_AS_DOCUMENTED = Subject(
    adapter="resend",
    peer="emulate 0.11.2, its list trimmed by us",
    independent=False,
    bench=lambda peers: TrimmedResendBench(peers.emulate()),
    cases={case: Check() for case in _TRIMMED},
    not_run={case: "only its list differs from the untrimmed" for case in Case if case not in _TRIMMED},
)
GITHUB = _subject(
    GithubBench,
    cases=_ALL_BUT_LAG_AND_WINDOW,
    not_run={Case.LAG: _NO_LAG, Case.CLOSED_WINDOW: _NO_KEY},
)
SLACK = _subject(
    SlackBench,
    cases={
        **_ALL_BUT_LAG_AND_WINDOW,
        Case.LISTED: Check(
            departure="ignores `oldest` and `latest`, so each channel's whole history is read",
            source="https://docs.slack.dev/reference/methods/conversations.history",
        ),
    },
    not_run={Case.LAG: _NO_LAG, Case.CLOSED_WINDOW: _NO_KEY},
)
TWILIO = _subject(
    TwilioBench,
    cases=_ALL_BUT_LAG_AND_WINDOW,
    not_run={Case.LAG: _NO_LAG, Case.CLOSED_WINDOW: _NO_KEY},
)

SUBJECTS = (RESEND, RESEND_AS_DOCUMENTED, GITHUB, SLACK, TWILIO)
