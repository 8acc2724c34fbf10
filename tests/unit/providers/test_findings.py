"""The digest of a finding is over what was found, never over when or how often."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciliation.providers.base import (
    Exchange,
    FieldComparison,
    Finding,
    FindingKind,
    Found,
    Inconclusive,
    MatchedBy,
    Mismatch,
    NotFound,
    Phase,
    Receipt,
    ReceiptState,
    Several,
    Unavailable,
)
from runs.money import Money

RECEIPT = Receipt(
    reference="ord_1",
    body={"id": "ord_1", "seen_at": "12:00"},
    amount=Money("EUR", 1),
    state=ReceiptState.SUCCEEDED,
    status="succeeded",
    matched_by=MatchedBy.KEY,
    comparisons=(FieldComparison(path="$.a", answer_path="$.a", intended="1", seen="1", same=True),),
)
EXCHANGE = Exchange(method="GET", url="http://x/1", status=200, duration_ms=5, phase=Phase.DONE)


@settings(deadline=None)
@given(duration_ms=st.integers(0, 10**6), body=st.text(max_size=20), clock=st.text(max_size=5))
def test_time_and_wording_do_not_move_the_digest(duration_ms: int, body: str, clock: str) -> None:
    first = Found(summary="one", exchange=EXCHANGE, receipts=(RECEIPT,))
    again = Found(
        summary="two",
        exchange=replace(EXCHANGE, duration_ms=duration_ms, body=body),
        receipts=(replace(RECEIPT, body={"id": "ord_1", "seen_at": clock}),),
    )
    assert first.evidence_digest == again.evidence_digest


@pytest.mark.parametrize(
    "other",
    [
        replace(RECEIPT, reference="ord_2"),
        replace(RECEIPT, amount=Money("EUR", 2)),
        replace(RECEIPT, amount=Money("USD", 1)),
        replace(RECEIPT, amount=None),
        replace(RECEIPT, status="settled"),
        replace(RECEIPT, state=ReceiptState.PENDING),
        replace(RECEIPT, matched_by=MatchedBy.REFERENCE),
        replace(RECEIPT, comparisons=()),
        replace(RECEIPT, comparisons=(replace(RECEIPT.comparisons[0], seen="2", same=False),)),
    ],
)
def test_every_fact_moves_the_digest(other: Receipt) -> None:
    first = Found(summary="s", receipts=(RECEIPT,))
    assert first.evidence_digest != Found(summary="s", receipts=(other,)).evidence_digest


def test_the_order_in_which_records_are_shown_does_not_move_the_digest() -> None:
    two = replace(RECEIPT, reference="ord_2")
    first, second = (
        Several(summary="s", receipts=(RECEIPT, two)),
        Several(summary="s", receipts=(two, RECEIPT)),
    )
    assert first.evidence_digest == second.evidence_digest


def test_findings_of_different_kinds_have_different_digests() -> None:
    findings: list[Finding] = [
        Found(summary="s", receipts=(RECEIPT,)),
        Mismatch(summary="s", receipts=(RECEIPT,)),
        NotFound(summary="s"),
        NotFound(summary="s", proof=True),
        Inconclusive(summary="s", reason="unreadable"),
        Inconclusive(summary="s", reason="incomplete"),
        Unavailable(summary="s", reason="unreachable"),
    ]
    assert len({one.evidence_digest for one in findings}) == len(findings)


def test_how_long_a_provider_asks_us_to_wait_does_not_move_the_digest() -> None:
    digests = {Unavailable(summary="s", retry_after_ms=wait).evidence_digest for wait in (None, 1, 2)}
    assert len(digests) == 1


def test_every_kind_of_finding_has_its_word() -> None:
    assert {one.kind for one in Finding.__args__} == set(FindingKind)  # type: ignore[attr-defined]


def test_what_was_seen_is_plain_json() -> None:
    json.dumps([EXCHANGE.as_json(), RECEIPT.as_json()])
