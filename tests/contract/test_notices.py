"""Notices that a server of somebody else's signed, checked by the rules of the shipped files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from reconciliation.providers.declaration import read_file
from reconciliation.providers.registry import SHIPPED
from reconciliation.providers.webhook_opening import open_notice
from reconciliation.providers.webhook_signing import WebhookForged, WebhookStale, verify
from reconciliation.providers.webhook_table import WebhookRules
from tests.contract import notices
from tests.contract.matrix import contract_row
from tests.contract.notices import Receiver
from tests.contract.peers.servers import Peer, Peers
from tests.contract.subjects.emulated import TwilioBench
from tests.sandbox_client import new_client

SECRET = "whsec_of_the_contract_suite"
AS_ADMIN = {"Authorization": "Bearer test_token_admin"}


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with Receiver() as made:
        assert isinstance(made, Receiver)
        yield made


@pytest.fixture(scope="module")
def telling(peers: Peers, receiver: Receiver) -> Peer:
    return peers.emulate_that_tells(f"{receiver.url}/stripe", secret=SECRET)


def rules_of(slug: str, variable: str) -> WebhookRules:
    (path,) = SHIPPED.rglob(f"{slug}.toml")
    rules = read_file(path, shown_as=path.name, environ={variable: SECRET}).webhook
    assert rules is not None
    return rules


def post(url: str, **how: Any) -> Any:
    with new_client() as http:
        answer = http.post(url, headers=AS_ADMIN, **how)
    assert answer.is_success, answer.text
    return answer.json()


@contract_row(notices.STRIPE)
def test_an_event_of_stripe_is_known_by_its_signature(telling: Peer, receiver: Receiver) -> None:
    rules = rules_of("stripe-payments", "STRIPE_PAYMENTS_WEBHOOK_SECRET")
    made = post(f"{telling.urls['stripe']}/v1/payment_intents", data={"amount": 1200, "currency": "eur"})
    told = receiver.next()
    now = datetime.now(UTC)
    signed_at = verify(rules, headers=told.headers, body=told.body, now=now).signed_at
    assert signed_at is not None
    assert json.loads(told.body)["data"]["object"]["id"] == made["id"]
    with pytest.raises(WebhookForged):
        verify(rules, headers=told.headers, body=told.body.replace(b"1200", b"1"), now=now)
    with pytest.raises(WebhookForged):
        verify(replace(rules, secrets=("another",)), headers=told.headers, body=told.body, now=now)
    with pytest.raises(WebhookStale):
        verify(rules, headers=told.headers, body=told.body, now=now + timedelta(minutes=6))


@contract_row(notices.GITHUB)
def test_a_delivery_of_github_is_known_by_its_signature(
    telling: Peer, receiver: Receiver, unique: str
) -> None:
    rules = rules_of("github-issues", "GITHUB_WEBHOOK_SECRET")
    github = telling.urls["github"]
    post(f"{github}/user/repos", json={"name": unique})
    hook = {"url": f"{receiver.url}/github", "secret": SECRET, "content_type": "json"}
    post(f"{github}/repos/admin/{unique}/hooks", json={"config": hook, "events": ["issues"]})
    made = post(f"{github}/repos/admin/{unique}/issues", json={"title": "Refund 1042"})
    told = receiver.next()
    while told.headers["x-github-event"] != "issues":
        told = receiver.next()
    now = datetime.now(UTC)
    # GitHub signs no time.
    assert verify(rules, headers=told.headers, body=told.body, now=now).signed_at is None
    assert json.loads(told.body)["issue"]["id"] == made["id"]
    with pytest.raises(WebhookForged):
        verify(rules, headers=told.headers, body=told.body + b" ", now=now)
    with pytest.raises(WebhookForged):
        verify(replace(rules, secrets=("another",)), headers=told.headers, body=told.body, now=now)


class TellingTwilio(TwilioBench):
    """The one whose file says where Twilio shall tell what became of a message."""

    def __init__(self, emulate: Peer, told_at: str) -> None:
        self.environ = {**self.environ, "TWILIO_WEBHOOK_URL": told_at}
        super().__init__(emulate)


@contract_row(notices.TWILIO)
def test_what_became_of_a_message_comes_to_the_address_that_it_was_sent_with(
    peers: Peers, receiver: Receiver
) -> None:
    told_at = f"{receiver.url}/twilio"
    with closing(TellingTwilio(peers.emulate(), told_at)) as bench:
        (path,) = SHIPPED.rglob("twilio.toml")
        environ = {**bench.environ, "TWILIO_URL": bench.emulate.urls["twilio"]}
        rules = read_file(path, shown_as=path.name, environ=environ).webhook
        assert rules is not None
        order = bench.order()
        bench.send(order)
        (sid,) = bench.held(order)
        told = receiver.next()
        while "x-twilio-signature" not in told.headers:
            told = receiver.next()

        def opened(**changes: Any) -> dict[str, Any]:
            came = {"headers": told.headers, "body": told.body, "query": told.query, **changes}
            now = datetime.now(UTC)
            (one,) = open_notice(replace(rules, **by), **came, now=now, bytes_max=65_536)
            document: dict[str, Any] = one.document
            return document

        by: dict[str, Any] = {}
        assert opened()["form"]["MessageSid"] == sid
        assert opened()["query"]["operation"].startswith("op_")
        for changes in ({"body": told.body.replace(sid.encode(), b"SM0")}, {"query": "operation=op_0"}):
            with pytest.raises(WebhookForged):
                opened(**changes)
        by = {"secrets": ("another",)}
        with pytest.raises(WebhookForged):
            opened()
