"""What of ours travels with a payload, and what the answers of real providers mean; over a real socket."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reconciliation.providers.base import (
    MatchedBy,
    NotSentSeen,
    ReceiptSeen,
    RejectedSeen,
    SendOutcome,
    UnknownSeen,
)
from reconciliation.providers.http_declared import HttpDeclared
from runs.money import Money
from tests.contract.declaring import KEY, PAYLOAD, declare, operation
from tests.contract.fault_server import FaultServer
from tests.contract.scripted import Scripted, answer

RECEIPT: dict[str, Any] = {"id": "ord_1", "status": "succeeded", "idempotency_key": KEY, **PAYLOAD}
REQUEST = '[send.request]\npath = "/orders"\n'
RULES = "[lookup.request]"


def adding(what: str) -> tuple[str, str]:
    return REQUEST, f"{REQUEST}{what}\n"


def rule(table: str) -> tuple[str, str]:
    return RULES, f"{table}\n{RULES}"


def send(folder: Path, said: bytes, *changes: tuple[str, str], **how: Any) -> tuple[SendOutcome, Scripted]:
    peer = Scripted(said)
    with FaultServer(peer) as server:
        adapter = HttpDeclared(declare(folder, server.url, *changes))
        outcome = adapter.send(operation(**how))
        adapter.close()
    return outcome, peer


def body(peer: Scripted) -> Any:
    return json.loads(peer.asked[0].body)


# --- what travels ---


def test_what_is_added_joins_the_payload_and_its_own_tables(tmp_path: Path) -> None:
    payload = {**PAYLOAD, "metadata": {"team": "blue"}}
    _, peer = send(
        tmp_path, answer(RECEIPT), adding('add = { metadata = { op = "{operation}" } }'), payload=payload
    )
    assert body(peer) == {**PAYLOAD, "metadata": {"team": "blue", "op": "op_test"}}


def test_what_is_added_makes_a_list_longer(tmp_path: Path) -> None:
    added = adding('add = { tags = [{ name = "op", value = "{operation}" }] }')
    _, peer = send(tmp_path, answer(RECEIPT), added, payload={**PAYLOAD, "tags": [{"name": "a"}]})
    assert body(peer)["tags"] == [{"name": "a"}, {"name": "op", "value": "op_test"}]
    _, peer = send(tmp_path, answer(RECEIPT), added)
    assert body(peer)["tags"] == [{"name": "op", "value": "op_test"}]


@pytest.mark.parametrize("present", ["mine", 7, None, {"a": 1}])
def test_what_the_payload_says_is_never_replaced_without_a_word(present: object, tmp_path: Path) -> None:
    outcome, peer = send(
        tmp_path, answer(RECEIPT), adding('add = { ref = "{operation}" }'), payload={"ref": present}
    )
    assert isinstance(outcome, NotSentSeen)
    assert "payload.ref already" in outcome.summary
    assert peer.asked == []


def test_a_member_that_takes_up_the_payloads_own_may_replace_it(tmp_path: Path) -> None:
    marked = adding('add = { note = "{payload.note?} <!-- {operation} -->" }')
    _, peer = send(tmp_path, answer(RECEIPT), marked, payload={**PAYLOAD, "note": "Hello"})
    assert body(peer)["note"] == "Hello <!-- op_test -->"
    _, peer = send(tmp_path, answer(RECEIPT), marked)
    assert body(peer)["note"] == " <!-- op_test -->"


def test_a_member_without_a_value_is_left_out_only_where_it_may_be(tmp_path: Path) -> None:
    whole = adding(
        'body = { sku = "{payload.sku}", labels = "{payload.labels?}", deep = { x = "{payload.x?}" } }'
    )
    _, peer = send(tmp_path, answer(RECEIPT), whole)
    assert body(peer) == {"sku": "A-1", "deep": {}}
    needed = adding('body = { labels = "{payload.labels}" }')
    outcome, peer = send(tmp_path, answer(RECEIPT), needed)
    assert isinstance(outcome, NotSentSeen)
    assert peer.asked == []


@pytest.mark.parametrize(
    "payload",
    [
        {"sku": "A-1", "metadata[op]": "op_of_another"},
        {"sku": "A-1", "metadata[op": "op_of_another"},
        {"sku": "A-1", "metadata": {"op][": "op_of_another"}},
    ],
)
def test_no_member_of_the_payload_takes_the_place_of_our_mark_in_a_form(
    payload: dict[str, Any], tmp_path: Path
) -> None:
    form = adding('encoding = "form"\nadd = { metadata = { op = "{operation}" } }')
    outcome, peer = send(tmp_path, answer(RECEIPT), form, payload=payload)
    assert isinstance(outcome, NotSentSeen)
    assert peer.asked == []


def test_a_form_holds_nested_members_lists_and_what_is_added(tmp_path: Path) -> None:
    form = adding('encoding = "form"\nadd = { metadata = { op = "{operation}" } }')
    payload = {**PAYLOAD, "metadata": {"a b": "ü&="}, "items": [{"id": "x"}], "confirm": True}
    _, peer = send(tmp_path, answer(RECEIPT), form, payload=payload)
    assert peer.asked[0].headers["content-type"] == "application/x-www-form-urlencoded"
    assert peer.asked[0].form == {
        "sku": "A-1",
        "quantity": "2",
        "metadata[a b]": "ü&=",
        "metadata[op]": "op_test",
        "items[0][id]": "x",
        "confirm": "true",
    }


@pytest.mark.parametrize(
    ("amount", "value", "code"),
    [
        (Money("EUR", 1000), "10.00", "EUR"),
        (Money("EUR", 5), "0.05", "EUR"),
        (Money("JPY", 1240), "1240", "JPY"),
        (Money("KWD", 1240), "1.240", "KWD"),
    ],
)
def test_money_is_written_as_the_provider_wants_it(
    amount: Money, value: str, code: str, tmp_path: Path
) -> None:
    money = adding('body = { v = "{amount.decimal}", c = "{amount.currency}", m = "{amount.minor}" }')
    _, peer = send(tmp_path, answer(RECEIPT), money, amount=amount)
    assert body(peer) == {"v": value, "c": code, "m": amount.minor}


def test_an_operation_without_an_amount_cant_be_sent_where_one_is_needed(tmp_path: Path) -> None:
    outcome, _ = send(tmp_path, answer(RECEIPT), adding('body = { v = "{amount.decimal}" }'))
    assert isinstance(outcome, NotSentSeen)


def test_the_same_operation_gives_the_same_bytes_with_what_is_added(tmp_path: Path) -> None:
    added = adding('add = { z = "{operation}", a = "{key}" }')
    first = send(tmp_path, answer(RECEIPT), added)[1].asked[0].body
    second = send(tmp_path, answer(RECEIPT), added, attempt_number=2)[1].asked[0].body
    assert first == second


# --- what answers mean ---

OK_FALSE = rule('[[send.answer.rejected]]\nstatuses = [200]\npath = "$.ok"\nvalues = ["false"]\n')
THEIR_TROUBLE = rule('[[send.answer.unknown]]\npath = "$.error"\nvalues = ["internal_error"]\n')


def test_http_200_may_carry_a_refusal_and_may_carry_trouble(tmp_path: Path) -> None:
    refusal = answer({"ok": False, "error": "channel_not_found"})
    outcome, _ = send(tmp_path, refusal, THEIR_TROUBLE, OK_FALSE)
    assert isinstance(outcome, RejectedSeen)
    trouble = answer({"ok": False, "error": "internal_error"})
    outcome, _ = send(tmp_path, trouble, THEIR_TROUBLE, OK_FALSE)
    assert isinstance(outcome, UnknownSeen)


LIMITED = rule(
    '[[send.answer.unknown]]\nstatuses = [403]\nheader = "X-RateLimit-Remaining"\nheader_values = ["0"]\n'
)


@pytest.mark.parametrize(
    ("extra", "kind"),
    [
        ("x-ratelimit-remaining: 0\r\n", UnknownSeen),
        ("x-ratelimit-remaining: 7\r\n", RejectedSeen),
        ("", RejectedSeen),
    ],
)
def test_a_header_may_tell_a_limit_from_a_refusal(extra: str, kind: type, tmp_path: Path) -> None:
    outcome, _ = send(tmp_path, answer({}, status="403 No", extra=extra), LIMITED)
    assert isinstance(outcome, kind)


EXISTS = (
    "[[contract.match_fields]]",
    (
        '[[contract.proves_existence]]\nstatuses = [422]\npath = "$.details[*].issue"\n'
        'values = ["DUPLICATE"]\n\n[[contract.match_fields]]'
    ),
)


def test_one_of_several_errors_may_prove_that_the_effect_exists(tmp_path: Path) -> None:
    errors = {"details": [{"issue": "SOMETHING"}, {"issue": "DUPLICATE"}]}
    outcome, _ = send(tmp_path, answer(errors, status="422 No"), EXISTS)
    assert isinstance(outcome, UnknownSeen)
    assert outcome.effect_exists
    outcome, _ = send(tmp_path, answer({"details": [{"issue": "SOMETHING"}]}, status="422 No"), EXISTS)
    assert isinstance(outcome, RejectedSeen)


REPLAYS = ("rejection_replays = false", "rejection_replays = true")
LOOKUP_HEADER = (
    'replay_header = "Idempotent-Replayed"',
    'replay_header = "X-Lookup"\nreplay_values = ["hit"]',
)


@pytest.mark.parametrize(("value", "speaks"), [("hit", True), ("HIT", True), ("miss", False), ("", False)])
def test_a_replay_header_may_have_to_hold_a_word(value: str, speaks: bool, tmp_path: Path) -> None:
    refusal = answer({}, status="422 No", extra=f"X-Lookup: {value}\r\n" if value else "")
    outcome, _ = send(tmp_path, refusal, REPLAYS, LOOKUP_HEADER, attempt_number=2)
    assert isinstance(outcome, RejectedSeen)
    assert outcome.speaks_for_first is speaks


@pytest.mark.parametrize("status", ["500 Oh", "502 Bad", "503 Later"])
def test_a_replayed_5xx_proves_as_little_as_the_first(status: str, tmp_path: Path) -> None:
    said = answer({}, status=status, extra="Idempotent-Replayed: true\r\n")
    outcome, _ = send(tmp_path, said, REPLAYS, attempt_number=2)
    assert isinstance(outcome, UnknownSeen)
    assert "played back" in outcome.summary


PART = ('key = "$.idempotency_key"\n', 'key = "$.idempotency_key"\nreply = "part"\n')


def test_a_reply_that_shows_only_an_id_confirms_by_the_attempt_that_it_answers(tmp_path: Path) -> None:
    outcome, _ = send(tmp_path, answer({"id": "ord_1"}), PART)
    assert isinstance(outcome, ReceiptSeen)
    assert outcome.receipt.matched_by is MatchedBy.REPLY_ONLY
    outcome, _ = send(tmp_path, answer({"id": "ord_1"}))
    assert isinstance(outcome, UnknownSeen)


@pytest.mark.parametrize(
    "said",
    [
        {"id": "ord_1", "idempotency_key": "rk-two"},  # somebody else's
        {"id": "ord_1", "quantity": 3},  # what it does show differs
        {"id": "ord_1", "status": "running"},  # and isn't final
        {"idempotency_key": KEY},  # no receipt at all
    ],
)
def test_what_a_partial_reply_does_show_still_counts(said: dict[str, Any], tmp_path: Path) -> None:
    outcome, _ = send(tmp_path, answer(said), PART)
    assert isinstance(outcome, UnknownSeen)
