"""Our stub of PayPal, from its published specifications as read on 2026-11-29.

`PayPal-Request-Id` is kept for six hours for orders and 45 days for payments, and a repeat gets the latest
status of what the first made; while that runs, the second "might fail". An executed transaction shows in the
transaction search up to three hours later, and never before it is executed.
"""

from __future__ import annotations

import json
import secrets
from datetime import UTC, datetime
from typing import Any

from tests.contract.stub.server import Answered, Asked, Stub

ORDERS_WINDOW_SECONDS = 6 * 3600
PAYMENTS_WINDOW_SECONDS = 45 * 24 * 3600
KEY_LENGTH_MAX = 108
_REFUND_CODE = "T1107"


class PaypalStub(Stub):
    """Orders, and refunds of captures, of one merchant."""

    def __init__(self) -> None:
        super().__init__()
        self.lag_ms = 3 * 3600 * 1000
        self.orders: list[dict[str, Any]] = []
        self.refunds: list[dict[str, Any]] = []
        self.tokens = 0

    def answer(self, asked: Asked) -> Answered:
        if asked.path == "/v1/oauth2/token":
            return self._token(asked)
        if not asked.headers.get("authorization", "").startswith("Bearer "):
            return Answered(status=401, body={"error": "invalid_token"})
        parts = asked.path.strip("/").split("/")
        if asked.method == "POST":
            with self._lock:
                self.requests += 1
            if asked.path == "/v2/checkout/orders":
                return self._once(asked, self._order, window_seconds=ORDERS_WINDOW_SECONDS)
            if parts[:3] == ["v2", "payments", "captures"] and parts[-1] == "refund":
                return self._once(
                    asked,
                    lambda body: self._refund(parts[3], body),
                    window_seconds=PAYMENTS_WINDOW_SECONDS,
                )
        with self._lock:
            self.lookups += 1
            if asked.path == "/v1/reporting/transactions":
                return self._transactions(asked)
            for one in (*self.orders, *self.refunds):
                if parts[-1] == one["id"]:
                    return Answered(body=_seen(one))
        return _error(404, "RESOURCE_NOT_FOUND")

    def _token(self, asked: Asked) -> Answered:
        if not asked.headers.get("authorization", "").startswith("Basic "):
            return Answered(status=401, body={"error": "invalid_client"})
        with self._lock:
            self.tokens += 1
        body = {"access_token": f"A21{secrets.token_hex(12)}", "token_type": "Bearer", "expires_in": 32_400}
        return Answered(body=body)

    def _once(self, asked: Asked, make: Any, *, window_seconds: float) -> Answered:
        key = asked.headers.get("paypal-request-id")
        if key is not None and not 1 <= len(key) <= KEY_LENGTH_MAX:
            return _error(400, "INVALID_REQUEST")
        body = asked.json if asked.body else {}
        if key is None:
            with self._lock:
                return make(body)  # type: ignore[no-any-return]
        return self.once(
            (asked.path, key),
            # The specifications describe no comparison of bodies.
            fingerprint=None,
            window_seconds=window_seconds,
            make=lambda: make(body),
            replayed=self._latest,
            in_flight=lambda: _error(409, "RESOURCE_CONFLICT", issue="PREVIOUS_REQUEST_IN_PROGRESS"),
            keeps=lambda answer: answer.status < 300,
        )

    def _latest(self, first: Answered) -> Answered:
        for one in (*self.orders, *self.refunds):
            if one["id"] == first.body["id"]:
                return Answered(status=200, body=_seen(one))
        return first

    def _order(self, body: dict[str, Any]) -> Answered:
        if not body.get("intent") or not body.get("purchase_units"):
            return _error(400, "INVALID_REQUEST", issue="MISSING_REQUIRED_PARAMETER")
        made = {
            "id": secrets.token_hex(9).upper()[:17],
            "status": "CREATED",
            "intent": body["intent"],
            "purchase_units": json.loads(json.dumps(body["purchase_units"])),
            "create_time": _instant(self.now()),
        }
        self.orders.append(made)
        return Answered(status=201, body=_seen(made))

    def _refund(self, capture: str, body: dict[str, Any]) -> Answered:
        invoice = body.get("invoice_id")
        if capture.startswith("MISSING"):
            return _error(404, "RESOURCE_NOT_FOUND", issue="INVALID_RESOURCE_ID")
        if invoice is not None and any(one["invoice_id"] == invoice for one in self.refunds):
            return _error(422, "UNPROCESSABLE_ENTITY", issue="DUPLICATE_INVOICE_ID")
        made = {
            "id": secrets.token_hex(9).upper()[:17],
            "status": "COMPLETED",
            "amount": body.get("amount"),
            "invoice_id": invoice,
            "custom_id": body.get("custom_id"),
            "note_to_payer": body.get("note_to_payer"),
            "create_time": _instant(self.now()),
            "made_at": self.now(),
            "capture": capture,
        }
        self.refunds.append(made)
        return Answered(status=201, body=_seen(made))

    def _transactions(self, asked: Asked) -> Answered:
        low, high = asked.query.get("start_date", ""), asked.query.get("end_date", "9999")
        wanted = asked.query.get("transaction_id")
        details = [
            {
                "transaction_info": {
                    "transaction_id": one["id"],
                    "paypal_reference_id": one["capture"],
                    "transaction_event_code": _REFUND_CODE,
                    "transaction_amount": {**one["amount"], "value": f"-{one['amount']['value']}"},
                    "transaction_status": "S",
                    "invoice_id": one["invoice_id"],
                    "custom_field": one["custom_id"],
                    "transaction_initiation_date": one["create_time"],
                }
            }
            for one in self.refunds
            if self.shown(one["made_at"])
            and low[:19] <= one["create_time"][:19] <= high[:19]
            and wanted in (None, one["id"])
        ]
        body = {"transaction_details": details, "page": 1, "total_items": len(details), "total_pages": 1}
        return Answered(body=body)


def _seen(record: dict[str, Any]) -> dict[str, Any]:
    hidden = {"made_at", "capture"}
    return {name: value for name, value in record.items() if name not in hidden and value is not None}


def _instant(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _error(status: int, name: str, *, issue: str | None = None) -> Answered:
    details = [{"issue": issue, "description": issue}] if issue else []
    return Answered(status=status, body={"name": name, "message": name, "details": details})
