"""Every call whose answer is lost is repeated with the same bytes, and the end is the same."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from recourse_client import (
    Client,
    JournalUnreachable,
    NotConfigured,
    Refusal,
    SendingFrozen,
    Unauthorized,
    errors,
)
from recourse_client.journal import Patience
from tests.unit.client.agents import ORDER, PRICE, Model, Shop, order_run
from tests.unit.client.stub_journal import StubJournal

EVERY_CALL = ["runs$", "claim$", "turns$", "result$", "send$", "receipt$", "complete$"]


def whole_run(client: Client, shop: Shop) -> None:
    with order_run(client) as run:
        turn = run.turn(1, Model(PRICE, ORDER))
        price = turn.read("price", lambda args: {"minor": 1200})
        receipt = turn.effect("order", shop).receipt
        run.complete({"reference": receipt.reference, "price": price})


@pytest.mark.parametrize("fault", ["drop", "drop_answer", "spoil"])
@pytest.mark.parametrize("call", EVERY_CALL)
def test_a_lost_answer_is_asked_for_again_and_changes_nothing(
    client: Client, stub: StubJournal, call: str, fault: str
) -> None:
    shop = Shop()
    stub.fault(f"POST .*{call}", fault)
    whole_run(client, shop)
    first, second = stub.calls(f"POST .*{call}")[:2]
    assert (first.path, first.content) == (second.path, second.content)
    assert len(shop.asked) == 1
    assert stub.only_run()["state"] == "completed"
    assert stub.only_operation().state == "confirmed"
    assert len(stub.only_operation().attempts) == 1
    assert stub.evidence == []


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504, 521])
def test_a_journal_in_trouble_is_asked_again(client: Client, stub: StubJournal, status: int) -> None:
    shop = Shop()
    stub.fault("POST .*/send$", "status", status=status)
    whole_run(client, shop)
    assert len(stub.calls("/send$")) == 2
    assert len(shop.asked) == 1


def test_retry_after_is_obeyed_up_to_a_cap(make_client: Callable[..., Client], stub: StubJournal) -> None:
    pauses: list[float] = []
    patience = Patience(tries_max=4, total_seconds=60, first_pause_seconds=0.01, pause_seconds_max=2.0)
    client = make_client(pause=pauses.append, patience=patience)
    stub.fault("POST /runs$", "status", status=429, headers={"Retry-After": "1"})
    stub.fault("POST /runs$", "status", status=429, headers={"Retry-After": "3600"})
    client.start(flow="f", flow_version="1", external_id="x", input={})
    assert pauses == [1.0, 2.0]


def test_patience_ends_and_says_how_often_it_asked(client: Client, stub: StubJournal) -> None:
    stub.fault("POST /runs$", "status", status=503, times=99)
    with pytest.raises(JournalUnreachable, match="no usable answer after 4 tries") as caught:
        client.start(flow="f", flow_version="1", external_id="x", input={})
    assert (caught.value.tries, caught.value.status) == (4, 503)
    assert len(stub.calls("POST /runs$")) == 4


@pytest.mark.parametrize("status", [400, 404, 405, 301, 307])
def test_a_refusal_is_not_asked_again_and_a_redirect_not_followed(
    client: Client, stub: StubJournal, status: int
) -> None:
    stub.fault("POST /runs$", "status", status=status, headers={"Location": f"{stub.url}/api/v1/elsewhere"})
    with pytest.raises(Refusal) as caught:
        client.start(flow="f", flow_version="1", external_id="x", input={})
    assert caught.value.status == status
    assert [asked.path for asked in stub.asked] == ["/runs"]


def test_each_word_has_its_own_error() -> None:
    words = [
        *("already_claimed", "run_paused", "run_ended", "flow_version_mismatch", "stale_token"),
        *("external_id_reused", "turn_already_decided", "previous_turn_open", "not_sendable"),
        *("start_window_passed", "attempt_ended", "receipt_mismatch", "receipt_reused", "operations_open"),
        *("decision_stale", "action_locked", "idempotency_key_reused", "unreadable_json", "invalid"),
        *("too_large", "not_found", "forbidden", "rate_limited", "sending_frozen"),
    ]
    kinds = [type(errors.refusal_from(status=409, problem={"word": word})) for word in words]
    assert [kind.word for kind in kinds] == words
    assert len(set(kinds)) == len(words)


def test_an_unknown_word_is_still_a_refusal_with_everything_in_it() -> None:
    refusal = errors.refusal_from(status=409, problem={"word": "news", "detail": "to us", "more": [1]})
    assert type(refusal) is Refusal
    assert (str(refusal), refusal.status, refusal.problem["more"]) == ("news: to us", 409, [1])


def test_what_a_problem_says_is_found_beside_it_or_under_details() -> None:
    for members in ({"holder": "w", "expires_in_ms": 5}, {"details": {"holder": "w", "expires_in_ms": 5}}):
        refusal = errors.refusal_from(status=409, problem={"word": "already_claimed", **members})
        assert isinstance(refusal, errors.AlreadyClaimed)
        assert (refusal.holder, refusal.expires_in_ms) == ("w", 5)


def test_frozen_sending_is_not_asked_again_whatever_its_status() -> None:
    from recourse_client.journal import _final

    assert _final(SendingFrozen("frozen"), status=503)


def test_a_wrong_token_is_named(make_client: Callable[..., Client], stub: StubJournal) -> None:
    client = make_client(token="wrong")
    with pytest.raises(Unauthorized):
        client.start(flow="f", flow_version="1", external_id="x", input={})
    assert len(stub.asked) == 1


@pytest.mark.parametrize(
    ("url", "token"),
    [
        ("", "t"),
        ("http://j", ""),
        ("ftp://j", "t"),
        ("not a url", "t"),
        ("http://j", "a\nb"),
        ("http://", "t"),
        ("http://user:word@j", "t"),
        ("http://j/?a=b", "t"),
    ],
)
def test_a_client_that_cannot_work_is_not_made(monkeypatch: pytest.MonkeyPatch, url: str, token: str) -> None:
    monkeypatch.delenv("RECOURSE_URL", raising=False)
    monkeypatch.delenv("RECOURSE_TOKEN", raising=False)
    with pytest.raises(NotConfigured):
        Client(url=url, token=token)


def test_address_and_token_come_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, stub: StubJournal, spool: object
) -> None:
    monkeypatch.setenv("RECOURSE_URL", f"{stub.url}/api/v1/")
    monkeypatch.setenv("RECOURSE_TOKEN", "stub-bearer-token")
    monkeypatch.setenv("RECOURSE_SPOOL", str(spool))
    with Client() as client:
        whole_run(client, Shop())
    assert stub.asked[0].headers["user-agent"].startswith("recourse-client/")
