"""How a request says who we are: bearer, basic, and a token that has to be asked for first."""

from __future__ import annotations

import base64
import json
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from reconciliation.providers import authorizing
from reconciliation.providers.base import (
    Found,
    NotSentSeen,
    ReceiptSeen,
    RejectedSeen,
    SendOutcome,
    Unavailable,
)
from reconciliation.providers.http_declared import HttpDeclared
from tests.contract.declaring import KEY, PAYLOAD, declare, operation, question
from tests.contract.fault_server import Conversation, FaultServer
from tests.contract.scripted import Scripted, answer

RECEIPT = {"id": "ord_1", "status": "succeeded", "idempotency_key": KEY, **PAYLOAD}
ENVIRON = {"SHOP_USER": "ac-1", "SHOP_PASSWORD": "open sesame €", "SHOP_TOKEN": "tok-secret-1"}
NAMED = """
[settings]
user = { env = "SHOP_USER" }
[credentials]
password = { env = "SHOP_PASSWORD" }
token = { env = "SHOP_TOKEN" }
"""
BEARER = NAMED + '[authorization]\nscheme = "bearer"\ntoken = "{secret.token}"\n[contract]\nkey_field'
BASIC = (
    NAMED
    + '[authorization]\nscheme = "basic"\nuser = "{setting.user}/t"\npassword = "{secret.password}"\n'
    + "[contract]\nkey_field"
)
CLIENT = (
    NAMED
    + '[authorization]\nscheme = "client_credentials"\nclient_id = "{setting.user}"\n'
    + 'client_secret = "{secret.password}"\ntoken_path = "/oauth/token"\n[contract]\nkey_field'
)
TOKEN = answer({"access_token": "at-1", "expires_in": 3600})


def account(folder: Path, url: str, how: str) -> HttpDeclared:
    return HttpDeclared(declare(folder, url, ("[contract]\nkey_field", how), environ=ENVIRON))


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def sent(folder: Path, how: str, *answers: bytes) -> tuple[SendOutcome, Scripted]:
    peer = Scripted(*answers)
    with FaultServer(peer) as server:
        adapter = account(folder, server.url, how)
        outcome = adapter.send(operation())
        adapter.close()
    return outcome, peer


def test_a_bearer_token_goes_with_every_request_and_into_no_evidence(tmp_path: Path) -> None:
    peer = Scripted(answer(RECEIPT), answer({"data": [{**RECEIPT, "note": "by tok-secret-1"}]}))
    with FaultServer(peer) as server:
        adapter = account(tmp_path, server.url, BEARER)
        outcome, finding = adapter.send(operation()), adapter.look_up(question())
        adapter.close()
    assert isinstance(outcome, ReceiptSeen)
    assert isinstance(finding, Found)
    assert [one.headers["authorization"] for one in peer.asked] == ["Bearer tok-secret-1"] * 2
    assert finding.exchange is not None
    kept = json.dumps([outcome.exchange.as_json(), finding.exchange.as_json()])
    assert "tok-secret-1" not in kept


def test_basic_authorization_is_user_and_password_in_utf_8(tmp_path: Path) -> None:
    expected = basic("ac-1/t", "open sesame €")
    echo = {**RECEIPT, "seen": expected.removeprefix("Basic ")}
    outcome, peer = sent(tmp_path, BASIC, answer(echo))
    assert isinstance(outcome, ReceiptSeen)
    assert peer.asked[0].headers["authorization"] == expected
    # Taken apart it is the password, so it is no more kept than the password itself.
    assert expected.removeprefix("Basic ") not in json.dumps(outcome.exchange.as_json())


def test_a_token_is_asked_for_once_and_used_for_sends_and_questions(tmp_path: Path) -> None:
    peer = Scripted(TOKEN, answer(RECEIPT), answer({"data": [RECEIPT]}))
    with FaultServer(peer) as server:
        adapter = account(tmp_path, server.url, CLIENT)
        assert isinstance(adapter.send(operation()), ReceiptSeen)
        assert isinstance(adapter.look_up(question()), Found)
        adapter.close()
    assert peer.paths == ["/oauth/token", "/orders", "/orders"]
    assert peer.asked[0].headers["authorization"] == basic("ac-1", "open sesame €")
    assert peer.asked[0].form == {"grant_type": "client_credentials"}
    assert [one.headers["authorization"] for one in peer.asked[1:]] == ["Bearer at-1"] * 2


@pytest.mark.parametrize(
    "refusal",
    [
        answer({"error": "invalid_client"}, status="401 No"),
        answer({"token": "x"}),
        answer({"access_token": "two words"}),
        answer({"access_token": 7.5}, status="500 Oh"),
    ],
)
def test_without_a_token_nothing_is_sent_and_nothing_is_asked(refusal: bytes, tmp_path: Path) -> None:
    outcome, peer = sent(tmp_path, CLIENT, refusal)
    assert isinstance(outcome, NotSentSeen)
    assert outcome.exchange.error_class == "NoToken"
    assert peer.paths == ["/oauth/token"]
    peer = Scripted(refusal)
    with FaultServer(peer) as server:
        adapter = account(tmp_path, server.url, CLIENT)
        finding = adapter.look_up(question())
        adapter.close()
    assert isinstance(finding, Unavailable)
    assert finding.reason == "refused_us"


def test_a_lost_answer_about_the_token_sends_nothing_either(tmp_path: Path) -> None:
    def close_after_reading(conversation: Conversation) -> None:
        conversation.read_request()

    with FaultServer(close_after_reading) as server:
        adapter = account(tmp_path, server.url, CLIENT)
        outcome = adapter.send(operation())
        adapter.close()
        assert server.requests == 1
    assert isinstance(outcome, NotSentSeen)


@pytest.mark.parametrize("lasts", [30, 0, "soon", "-inf"])
def test_a_token_that_ends_within_the_minute_is_not_used_for_a_second_request(
    lasts: object, tmp_path: Path
) -> None:
    short = answer({"access_token": "at-1", "expires_in": lasts})
    kept = lasts == "soon"  # an end that can't be read is taken for a few minutes
    second = [] if kept else [answer({"access_token": "at-2", "expires_in": 3600})]
    peer = Scripted(short, answer(RECEIPT), *second, answer(RECEIPT))
    with FaultServer(peer) as server:
        adapter = account(tmp_path, server.url, CLIENT)
        assert isinstance(adapter.send(operation()), ReceiptSeen)
        assert isinstance(adapter.send(operation()), ReceiptSeen)
        adapter.close()
    assert peer.paths.count("/oauth/token") == (1 if kept else 2)


def test_a_token_whose_end_is_no_number_is_not_kept_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    endless = answer({"access_token": "at-1", "expires_in": "nan"})
    peer = Scripted(endless, answer(RECEIPT), TOKEN, answer(RECEIPT))
    with FaultServer(peer) as server:
        adapter = account(tmp_path, server.url, CLIENT)
        assert isinstance(adapter.send(operation()), ReceiptSeen)
        later = authorizing.elapsed_seconds() + authorizing.KEPT_SECONDS_MAX
        monkeypatch.setattr(authorizing, "elapsed_seconds", lambda: later)
        assert isinstance(adapter.send(replace(operation(), start_by=later + 60)), ReceiptSeen)
        adapter.close()
    assert peer.paths.count("/oauth/token") == 2


def test_a_token_that_was_not_taken_is_forgotten(tmp_path: Path) -> None:
    again = answer({"access_token": "at-2", "expires_in": 3600})
    peer = Scripted(TOKEN, answer({}, status="401 No"), again, answer(RECEIPT))
    with FaultServer(peer) as server:
        adapter = account(tmp_path, server.url, CLIENT)
        assert isinstance(adapter.send(operation()), RejectedSeen)
        assert isinstance(adapter.send(operation()), ReceiptSeen)
        adapter.close()
    assert peer.asked[-1].headers["authorization"] == "Bearer at-2"


def test_threads_that_need_a_token_at_once_ask_for_it_once(tmp_path: Path) -> None:
    peer = Scripted(TOKEN, *[answer(RECEIPT)] * 4)
    outcomes: list[SendOutcome] = []
    with FaultServer(peer) as server:
        adapter = account(tmp_path, server.url, CLIENT)
        threads = [
            threading.Thread(target=lambda: outcomes.append(adapter.send(operation()))) for _ in "1234"
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        adapter.close()
    assert [type(one) for one in outcomes] == [ReceiptSeen] * 4
    assert peer.paths.count("/oauth/token") == 1
