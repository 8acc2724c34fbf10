"""Our stub of Square's payments, from its documentation as read on 2026-11-29.

The key is a field of the body, at most 45 characters, kept for a time that nobody publishes; the first
success comes again, other content is `IDEMPOTENCY_KEY_REUSED`. Payments list by time, one location at a time,
and show after seconds.
Cancelling by key succeeds also where there is nothing to cancel.
"""

from __future__ import annotations

import json
import secrets
from datetime import UTC, datetime
from typing import Any

from tests.contract.stub.server import Answered, Asked, Stub

KEY_LENGTH_MAX = 45
# Not published. Long enough that no test meets its end by accident.
WINDOW_SECONDS = 24 * 3600
DECLINED_SOURCE = "cnon:card-nonce-declined"
PAGE = 100
# The first is the default, whose payments are listed where no location is named.
LOCATIONS = ("L1", "L2")


class SquareStub(Stub):
    """The payments of one seller."""

    def __init__(self) -> None:
        super().__init__()
        # "several seconds" (ListPayments is eventually consistent).
        self.lag_ms = 5_000
        self.payments: list[dict[str, Any]] = []

    def answer(self, asked: Asked) -> Answered:
        if not asked.headers.get("authorization"):
            return _errors(401, "UNAUTHORIZED", category="AUTHENTICATION_ERROR")
        if asked.method == "POST" and asked.path == "/v2/payments/cancel":
            return self._cancel(asked.json)
        if asked.method == "POST" and asked.path == "/v2/payments":
            with self._lock:
                self.requests += 1
            return self._create(asked.json)
        with self._lock:
            self.lookups += 1
            if asked.path == "/v2/payments":
                return self._list(asked)
            if asked.path == "/v2/locations":
                return Answered(body={"locations": [{"id": one, "status": "ACTIVE"} for one in LOCATIONS]})
            for one in self.payments:
                if asked.path == f"/v2/payments/{one['id']}":
                    return Answered(body={"payment": _seen(one)})
        return _errors(404, "NOT_FOUND")

    def _create(self, body: dict[str, Any]) -> Answered:
        key = body.get("idempotency_key")
        if not isinstance(key, str) or not 1 <= len(key) <= KEY_LENGTH_MAX:
            return _errors(400, "VALUE_TOO_LONG" if key else "MISSING_REQUIRED_PARAMETER")
        if not isinstance(body.get("amount_money"), dict) or not body.get("source_id"):
            return _errors(400, "MISSING_REQUIRED_PARAMETER")
        return self.once(
            key,
            fingerprint=json.dumps(body, sort_keys=True),
            window_seconds=WINDOW_SECONDS,
            make=lambda: self._made(body),
            replayed=lambda first: first,
            other=lambda: _errors(400, "IDEMPOTENCY_KEY_REUSED"),
            in_flight=lambda: _errors(409, "CONFLICT"),
            keeps=lambda answer: answer.status < 300,
        )

    def _made(self, body: dict[str, Any]) -> Answered:
        if body["source_id"] == DECLINED_SOURCE:
            return _errors(402, "CARD_DECLINED", category="PAYMENT_METHOD_ERROR")
        made = {
            "id": secrets.token_urlsafe(16),
            "status": "COMPLETED",
            "amount_money": body["amount_money"],
            "total_money": body["amount_money"],
            "reference_id": body.get("reference_id"),
            "note": body.get("note"),
            "location_id": body.get("location_id", "L1"),
            "order_id": secrets.token_urlsafe(12),
            "receipt_number": secrets.token_urlsafe(3),
            "created_at": _instant(self.now()),
            "made_at": self.now(),
            "key": body["idempotency_key"],
        }
        self.payments.append(made)
        return Answered(body={"payment": _seen(made)})

    def _list(self, asked: Asked) -> Answered:
        """Newest first, as it is unless asked otherwise, inside the times that were asked for."""
        low, high = asked.query.get("begin_time", ""), asked.query.get("end_time", "9999")
        shown = [
            _seen(one)
            for one in reversed(self.payments)
            if one["location_id"] == asked.query.get("location_id", LOCATIONS[0])
            and self.shown(one["made_at"])
            and low[:19] <= one["created_at"][:19] <= high[:19]
        ]
        if not shown:
            # Square is said to leave out what is empty; not verified.
            return Answered(body={})
        more = {"cursor": "more"} if len(shown) > PAGE else {}
        return Answered(body={"payments": shown[:PAGE], **more})

    def _cancel(self, body: dict[str, Any]) -> Answered:
        with self._lock:
            for one in self.payments:
                if one["key"] == body.get("idempotency_key"):
                    one["status"] = "CANCELED"
        return Answered(body={})


def _seen(payment: dict[str, Any]) -> dict[str, Any]:
    hidden = {"made_at", "key"}
    return {name: value for name, value in payment.items() if name not in hidden and value is not None}


def _instant(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _errors(status: int, code: str, *, category: str = "INVALID_REQUEST_ERROR") -> Answered:
    return Answered(status=status, body={"errors": [{"category": category, "code": code, "detail": code}]})
