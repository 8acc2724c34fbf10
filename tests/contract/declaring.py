"""Declared accounts and operations for tests: the least that works, changed where a test says."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from reconciliation.providers.base import OutgoingOperation, Question, elapsed_seconds
from reconciliation.providers.declaration import Declared, read_file
from runs.canonical import canonical_bytes
from runs.money import Money

KEY = "rk-test"
PAYLOAD: dict[str, Any] = {"sku": "A-1", "quantity": 2}
SENT_AT = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)

DECLARATION = """
slug = "shop"
title = "Shop"
base_url = { env = "SHOP_URL" }
console_sends = true

[contract]
key_field = "Idempotency-Key"
key_format = "header_bare"
key_scope = "account"
dedup_window_ms = 86_400_000
window_kind = "documented"
window_margin_ms = 60_000
on_other_payload = "refused"
on_in_flight = "refused"
replays = "first_answer"
rejection_replays = false
lookup = "by_key"
visibility_lag_ms = 2_000
absence_is_proof = false
rate_limit_per_second = 10
in_flight_bound_ms = 1_000
start_within_ms = 5_000
request_within_ms = 5_000

[[contract.match_fields]]
payload = "$.*"
answer = "$.*"

[contract.success_when]
path = "$.status"
succeeded = ["succeeded"]
refused = ["failed"]

[contract.receipt]
id = "$.id"
key = "$.idempotency_key"
amount = "$.amount_minor"
currency = "$.currency"

[send.request]
path = "/orders"

[send.answer]
replay_header = "Idempotent-Replayed"

[lookup.request]
path = "/orders"
query = { idempotency_key = "{key}" }

[lookup.answer]
items = "$.data"
more = "$.has_more"
not_found_statuses = [404]
within_ms = 3_000
"""


def declare(
    folder: Path,
    url: str,
    *changes: tuple[str, str],
    text: str = DECLARATION,
    environ: Mapping[str, str] | None = None,
) -> Declared:
    """The account of `text` with each change (this text, by that) made; a change that finds nothing fails."""
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    path = folder / "shop.toml"
    path.write_text(text)
    return read_file(path, shown_as="shop.toml", environ={"SHOP_URL": url, **(environ or {})})


def operation(
    *,
    payload: Any = PAYLOAD,
    payload_bytes: bytes | None = None,
    amount: Money | None = None,
    tool: str = "order",
    attempt_number: int = 1,
    start_in_seconds: float = 5.0,
    within_ms: int = 5_000,
    key: str = KEY,
) -> OutgoingOperation:
    return OutgoingOperation(
        operation_id="op_test",
        idempotency_key=key,
        tool=tool,
        payload_bytes=canonical_bytes(payload) if payload_bytes is None else payload_bytes,
        payload=payload,
        amount=amount,
        attempt_id="attempt-1",
        attempt_number=attempt_number,
        start_by=elapsed_seconds() + start_in_seconds,
        request_within_ms=within_ms,
    )


def question(
    *,
    payload: Any = PAYLOAD,
    amount: Money | None = None,
    tool: str = "order",
    key: str = KEY,
    quiet_after_ms: int | None = 11_000,
    asked_after_ms: int = 60_000,
) -> Question:
    return Question(
        operation_id="op_test",
        idempotency_key=key,
        tool=tool,
        payload=payload,
        amount=amount,
        first_sent_at=SENT_AT,
        last_quiet_at=None if quiet_after_ms is None else SENT_AT + timedelta(milliseconds=quiet_after_ms),
        asked_at=SENT_AT + timedelta(milliseconds=asked_after_ms),
    )
