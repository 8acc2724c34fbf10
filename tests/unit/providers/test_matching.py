"""A receipt confirms only if it names the operation, equals its payload and has succeeded."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from reconciliation.contracts import (
    AmountForm,
    AmountMust,
    CompareAs,
    Contract,
    KeyFormat,
    KeyScope,
    LookupKind,
    MatchField,
    OnInFlight,
    OnOtherPayload,
    ReceiptPaths,
    Replays,
    SuccessWhen,
    WindowKind,
)
from reconciliation.providers.base import MatchedBy, ReceiptMatch, ReceiptState
from reconciliation.providers.matching import match_receipt
from runs.canonical import INTEGER_MAX
from runs.money import Money

KEY = "rk-one"
EUR = Money("EUR", 124000)
PAYLOAD = {"order": "A-1", "amount_minor": 124000, "currency": "EUR"}
RECEIPT = {"id": "ord_1", "status": "succeeded", "idempotency_key": KEY, **PAYLOAD}
CONTRACT = Contract(
    key_field="Idempotency-Key",
    key_format=KeyFormat.HEADER_BARE,
    key_scope=KeyScope.ACCOUNT,
    dedup_window_ms=86_400_000,
    window_kind=WindowKind.DOCUMENTED,
    window_margin_ms=0,
    on_other_payload=OnOtherPayload.REFUSED,
    on_in_flight=OnInFlight.REFUSED,
    replays=Replays.FIRST_ANSWER,
    rejection_replays=False,
    proves_existence=(),
    lookup=LookupKind.BY_KEY,
    visibility_lag_ms=0,
    lookup_retention_ms=None,
    absence_is_proof=False,
    match_fields=(MatchField(payload="$.*", answer="$.*"),),
    success_when=SuccessWhen(path="$.status", succeeded=("succeeded",), refused=("failed",)),
    rate_limit_per_second=10,
    in_flight_bound_ms=0,
    start_within_ms=1000,
    request_within_ms=1000,
    receipt=ReceiptPaths(key="$.idempotency_key", amount="$.amount_minor", currency="$.currency"),
)
NO_ECHO = replace(CONTRACT, receipt=ReceiptPaths())


def match(
    body: object = RECEIPT,
    *,
    contract: Contract = CONTRACT,
    payload: Any = PAYLOAD,
    amount: Money | None = EUR,
    reference: str | None = None,
    named_by_reply: bool = False,
) -> ReceiptMatch:
    shown, judged = (
        match_receipt(
            contract=contract,
            operation_id="op_1",
            payload=payload,
            key=KEY,
            amount=amount,
            reference=reference,
            body=body,
            named_by_reply=named_by_reply,
            shown=shown,
        )
        for shown in (True, False)
    )
    # What is only judged, on the way of every effect, is judged alike, in every test of this page.
    assert (judged.matches, judged.matched_by) == (shown.matches, shown.matched_by)
    assert (judged.receipt.reference, judged.receipt.amount, judged.receipt.state) == (
        shown.receipt.reference,
        shown.receipt.amount,
        shown.receipt.state,
    )
    assert len(judged.problems) == len(shown.problems)
    return shown


def test_what_is_only_judged_holds_no_text_of_the_receipt_but_its_reference() -> None:
    judged = match_receipt(
        contract=CONTRACT,
        operation_id="op_1",
        payload=PAYLOAD,
        key=KEY,
        amount=EUR,
        reference=None,
        body={**RECEIPT, "status": "odd-word", "sku": "other-word"},
        named_by_reply=False,
        shown=False,
    )
    assert not judged.matches
    assert "odd-word" not in repr(judged)
    assert "other-word" not in repr(judged)


def test_a_receipt_with_our_key_and_an_equal_payload_matches() -> None:
    matched = match(reference="ord_1")
    assert matched.matches, matched.problems
    assert matched.matched_by is MatchedBy.KEY
    assert matched.receipt.reference == "ord_1"
    assert matched.receipt.amount == EUR
    assert matched.receipt.state is ReceiptState.SUCCEEDED


@pytest.mark.parametrize("form", [dict, json.dumps, lambda body: json.dumps(body).encode()])
def test_a_body_may_come_parsed_or_as_text_or_as_bytes(form: Any) -> None:
    assert match(form(RECEIPT)).matches


@pytest.mark.parametrize("named_by_reply", [True, False])
def test_a_receipt_with_another_key_never_matches(named_by_reply: bool) -> None:
    matched = match({**RECEIPT, "idempotency_key": "rk-two"}, named_by_reply=named_by_reply)
    assert not matched.matches
    assert matched.matched_by is None
    assert "another key" in matched.problems[0]


@pytest.mark.parametrize("named_by_reply", [True, False])
def test_where_the_provider_echoes_the_key_a_receipt_without_it_never_matches(named_by_reply: bool) -> None:
    body = {name: value for name, value in RECEIPT.items() if name != "idempotency_key"}
    matched = match(body, named_by_reply=named_by_reply)
    assert not matched.matches
    assert matched.matched_by is None


def test_where_the_provider_echoes_nothing_only_a_direct_reply_names_the_operation() -> None:
    assert match(contract=NO_ECHO, named_by_reply=True).matched_by is MatchedBy.REPLY_ONLY
    assert match(contract=NO_ECHO, named_by_reply=True).matches
    assert not match(contract=NO_ECHO).matches


def test_our_reference_in_the_receipt_names_the_operation() -> None:
    paths = ReceiptPaths(reference="$.external_id", our_reference="case-{operation}")
    contract = replace(CONTRACT, receipt=paths)
    assert match({**RECEIPT, "external_id": "case-op_1"}, contract=contract).matched_by is MatchedBy.REFERENCE
    other = match({**RECEIPT, "external_id": "case-op_2"}, contract=contract, named_by_reply=True)
    assert not other.matches


def test_another_key_outweighs_our_reference() -> None:
    paths = ReceiptPaths(key="$.idempotency_key", reference="$.order", our_reference="{payload.order}")
    body = {**RECEIPT, "idempotency_key": "rk-two"}
    assert not match(body, contract=replace(CONTRACT, receipt=paths)).matches


def test_a_reference_that_differs_from_the_bodys_does_not_match() -> None:
    assert "not the id in the receipt" in match(reference="ord_2").problems[0]


@pytest.mark.parametrize(
    "body",
    [
        "not json",
        b"\xff",
        "[1]",
        "null",
        "{}",
        {"id": None},
        {"id": True},
        {"id": ["ord_1"]},
        {"id": ""},
        {"id": "a" * 256},
        {"id": "a\nb"},
        '{"id":"ord_1","id":"ord_2"}',
        {"id": "ord_1", "n": 2**60},
        object(),
        None.__class__,
    ],
)
def test_whatever_the_body_is_it_is_judged_and_never_raises(body: object) -> None:
    matched = match(body, named_by_reply=True)
    assert not matched.matches
    assert matched.problems


@pytest.mark.parametrize("state", ["pending", "", None, 7, True, ["succeeded"], "SUCCEEDED"])
def test_found_is_not_yet_succeeded(state: object) -> None:
    matched = match({**RECEIPT, "status": state})
    assert not matched.matches
    assert matched.receipt.state is ReceiptState.PENDING
    assert matched.receipt.named
    assert matched.receipt.same


def test_a_record_that_ended_without_effect_is_refused() -> None:
    assert match({**RECEIPT, "status": "failed"}).receipt.state is ReceiptState.REFUSED


# --- the payload ---


@settings(deadline=None)
@given(
    name=st.sampled_from(sorted(PAYLOAD)),
    other=st.none() | st.booleans() | st.integers(-5, 5) | st.text("ab", max_size=5) | st.just([1]),
)
def test_any_member_that_differs_is_a_mismatch_that_names_it(name: str, other: object) -> None:
    assume(other != PAYLOAD[name])
    matched = match({**RECEIPT, name: other})
    assert not matched.matches
    assert f"$.{name}" in [one.path for one in matched.receipt.differences]


@settings(deadline=None)
@given(name=st.sampled_from(sorted(PAYLOAD)))
def test_a_member_that_the_receipt_lacks_is_a_mismatch(name: str) -> None:
    matched = match({key: value for key, value in RECEIPT.items() if key != name})
    assert [one.seen for one in matched.receipt.differences if one.path == f"$.{name}"] == [None]


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-INTEGER_MAX, INTEGER_MAX) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=10,
)
OWN_MEMBERS = {"id", "status", "idempotency_key"}


@settings(deadline=None)
@given(payload=st.dictionaries(TEXT, JSON, max_size=6))
def test_any_payload_that_is_echoed_whole_matches(payload: dict[str, Any]) -> None:
    payload = {name: value for name, value in payload.items() if name not in OWN_MEMBERS}
    contract = replace(CONTRACT, receipt=ReceiptPaths(key="$.idempotency_key"))
    body = {"id": "ord_1", "status": "succeeded", "idempotency_key": KEY, **payload}
    matched = match(body, contract=contract, payload=payload)
    assert matched.matches, matched.problems


@settings(deadline=None)
@given(
    payload=st.dictionaries(st.text("ab\"'\\[]$.*", max_size=6), st.integers(0, 9), min_size=1, max_size=4)
)
def test_names_that_look_like_paths_are_only_names(payload: dict[str, Any]) -> None:
    contract = replace(CONTRACT, receipt=ReceiptPaths(key="$.idempotency_key"))
    body = {"id": "ord_1", "status": "succeeded", "idempotency_key": KEY, **payload}
    assert match(body, contract=contract, payload=payload).matches
    name = next(iter(payload))
    assert not match({**body, name: 10}, contract=contract, payload=payload).matches


@pytest.mark.parametrize(
    ("compare", "intended", "seen", "same"),
    [
        (CompareAs.EXACT, 1, 1, True),
        (CompareAs.EXACT, 1, 1.0, True),
        (CompareAs.EXACT, 1, True, False),
        (CompareAs.EXACT, 0, False, False),
        (CompareAs.EXACT, 1, "1", False),
        (CompareAs.EXACT, "a", "A", False),
        (CompareAs.EXACT, None, None, True),
        (CompareAs.EXACT, {"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
        (CompareAs.EXACT, [1, 2], [2, 1], False),
        (CompareAs.TEXT, 1, "1", True),
        (CompareAs.TEXT, 1.5, "1.5", True),
        (CompareAs.TEXT, True, "true", True),
        (CompareAs.TEXT, "a", "A", False),
        (CompareAs.TEXT, None, "None", False),
        (CompareAs.TEXT, [1], "[1]", False),
        (CompareAs.TEXT_CASELESS, "EUR", "eur", True),
        (CompareAs.TEXT_CASELESS, "EUR", "usd", False),
        (CompareAs.DECIMAL_MINOR, 124000, "1240.00", True),
        (CompareAs.DECIMAL_MINOR, 124000, "1240", True),
        (CompareAs.DECIMAL_MINOR, 124000, "1240.001", False),
        (CompareAs.DECIMAL_MINOR, 124000, "124000", False),
        (CompareAs.DECIMAL_MINOR, 124000, "1.24e3", False),
        (CompareAs.DECIMAL_MINOR, 124000, "NaN", False),
        (CompareAs.DECIMAL_MINOR, 1, True, False),
        (CompareAs.DECIMAL_MINOR, True, "0.01", False),
    ],
)
def test_each_way_to_compare(compare: CompareAs, intended: object, seen: object, same: bool) -> None:
    contract = replace(
        CONTRACT, match_fields=(MatchField(payload="$.x", answer="$.order.y", compare=compare),)
    )
    matched = match({**RECEIPT, "order": {"y": seen}}, contract=contract, payload={"x": intended})
    assert matched.receipt.comparisons[0].same is same


@pytest.mark.parametrize("payload", [None, True, 7, "text", [1, {"order": "A-1"}]])
def test_a_payload_without_members_is_judged_and_equals_no_record(payload: object) -> None:
    matched = match(payload=payload, amount=None)
    assert not matched.matches
    assert matched.receipt.differences[0].path == "$"
    by_path = replace(CONTRACT, match_fields=(MatchField(payload="$.order", answer="$.order"),))
    assert match(payload=payload, contract=by_path).matches


def test_what_the_payload_did_not_ask_for_is_not_compared() -> None:
    contract = replace(CONTRACT, match_fields=(MatchField(payload="$.priority", answer="$.priority"),))
    assert match({**RECEIPT, "priority": "normal"}, contract=contract).matches


def test_a_path_that_finds_two_values_matches_neither() -> None:
    contract = replace(CONTRACT, match_fields=(MatchField(payload="$.order", answer="$.lines[*].order"),))
    one, two = [{"order": "A-1"}], [{"order": "A-1"}, {"order": "A-1"}]
    assert match({**RECEIPT, "lines": one}, contract=contract).matches
    assert not match({**RECEIPT, "lines": two}, contract=contract).matches


# --- amounts ---


@pytest.mark.parametrize(
    ("rule", "minor", "currency", "holds"),
    [
        (AmountMust.EQUAL, 124000, "EUR", True),
        (AmountMust.EQUAL, 123999, "EUR", False),
        (AmountMust.EQUAL, 124000, "USD", False),
        (AmountMust.NOT_EXCEED, 123999, "EUR", True),
        (AmountMust.NOT_EXCEED, 124001, "EUR", False),
        (AmountMust.NOT_EXCEED, 1, "USD", False),
        (AmountMust.SAME_CURRENCY, 999999, "EUR", True),
        (AmountMust.SAME_CURRENCY, 124000, "USD", False),
    ],
)
def test_the_receipts_amount_is_held_to_the_declared_rule(
    rule: AmountMust, minor: int, currency: str, holds: bool
) -> None:
    contract = replace(CONTRACT, match_fields=(), receipt=replace(CONTRACT.receipt, amount_must=rule))
    matched = match({**RECEIPT, "amount_minor": minor, "currency": currency}, contract=contract)
    assert matched.matches is holds
    assert matched.receipt.amount == Money(currency, minor)


@pytest.mark.parametrize("minor", ["124000", 124000.5, -1, True, None, [124000], "1e9"])
def test_an_amount_that_is_none_is_a_mismatch(minor: object) -> None:
    contract = replace(CONTRACT, match_fields=())
    matched = match({**RECEIPT, "amount_minor": minor}, contract=contract)
    assert not matched.matches
    assert matched.receipt.amount is None


@pytest.mark.parametrize("currency", ["XXX", "", None, 7, "Euro"])
def test_a_currency_that_is_none_is_a_mismatch(currency: object) -> None:
    contract = replace(CONTRACT, match_fields=())
    assert not match({**RECEIPT, "currency": currency}, contract=contract).matches


def test_an_amount_that_the_receipt_does_not_state_is_not_compared() -> None:
    contract = replace(CONTRACT, match_fields=())
    body = {name: value for name, value in RECEIPT.items() if name != "amount_minor"}
    assert match(body, contract=contract).matches
    assert match(contract=contract, amount=None).receipt.amount == EUR


@pytest.mark.parametrize(
    ("currency", "text", "minor"), [("EUR", "1240.00", 124000), ("JPY", "1240", 1240), ("KWD", "1.24", 1240)]
)
def test_a_decimal_amount_is_read_by_its_currency(currency: str, text: str, minor: int) -> None:
    paths = replace(CONTRACT.receipt, amount_form=AmountForm.DECIMAL)
    contract = replace(CONTRACT, match_fields=(), receipt=paths)
    matched = match(
        {**RECEIPT, "amount_minor": text, "currency": currency.lower()},
        contract=contract,
        amount=Money(currency, minor),
    )
    assert matched.matches, matched.problems


# --- what is kept ---


def test_what_is_kept_of_a_receipt_holds_no_secret() -> None:
    body = {**RECEIPT, "card": {"number": "4111 1111 1111 1111"}, "client_secret": "pi_1_secret_abc"}
    kept = json.dumps(match(body).receipt.as_json())
    assert "4111" not in kept
    assert "pi_1_secret_abc" not in kept
    assert KEY in kept


def test_a_long_value_is_shown_short_and_stays_distinct() -> None:
    payload = {"note": "x" * 1000}
    seen = [match({**RECEIPT, "note": "x" * 999 + end}, payload=payload).receipt for end in "ab"]
    texts = [one.comparisons[0].seen or "" for one in seen]
    assert all(len(text) < 300 for text in texts)
    assert texts[0] != texts[1]


@settings(deadline=None)
@given(JSON)
def test_any_json_at_all_is_judged_without_raising(body: object) -> None:
    assert not match(body, named_by_reply=True).matches
