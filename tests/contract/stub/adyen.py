"""Our stub of Adyen's Checkout payments, from its documentation as read on 2026-11-29.

A key is kept for at least seven days and the first answer comes again, refusals too; a duplicate racing the
original gets a transient 422 with errorCode 704. A payment can't be looked up by the merchant's reference.
"""

from __future__ import annotations

import json
import secrets
from typing import Any

from tests.contract.stub.server import Answered, Asked, Stub

WINDOW_SECONDS = 7 * 24 * 3600
KEY_LENGTH_MAX = 64
# The holder's name that makes a test payment be refused.
REFUSED_HOLDER = "DECLINED"


class AdyenStub(Stub):
    """Payments of one company account, at one endpoint."""

    def __init__(self) -> None:
        super().__init__()
        self.payments: list[dict[str, Any]] = []

    def answer(self, asked: Asked) -> Answered:
        if not asked.headers.get("x-api-key"):
            return _error(401, "000", "HTTP Status Response - Unauthorized")
        if asked.method != "POST" or not asked.path.endswith("/payments"):
            with self._lock:
                self.lookups += 1
            return _error(404, "000", "Not Found")
        with self._lock:
            self.requests += 1
        key = asked.headers.get("idempotency-key")
        if key is not None and len(key) > KEY_LENGTH_MAX:
            return _error(422, "702", "The idempotency key is too long")
        payment = asked.json
        if not isinstance(payment.get("amount"), dict) or "value" not in payment["amount"]:
            return _error(422, "100", "No amount specified")
        if key is None:
            with self._lock:
                return self._made(payment)
        echoed = {"idempotency-key": key}
        return self.once(
            key,
            # The page states no comparison of bodies.
            fingerprint=None,
            window_seconds=WINDOW_SECONDS,
            make=lambda: self._made(payment, echoed),
            replayed=lambda first: first,
            in_flight=lambda: _error(
                422, "704", "request already processed or in progress", {"transient-error": "true"}
            ),
            keeps=lambda _: True,
        )

    def _made(self, payment: dict[str, Any], headers: dict[str, str] | None = None) -> Answered:
        refused = payment.get("paymentMethod", {}).get("holderName") == REFUSED_HOLDER
        made = {
            "pspReference": secrets.token_hex(8).upper(),
            "resultCode": "Refused" if refused else "Authorised",
            "amount": payment["amount"],
            "merchantReference": payment.get("reference"),
            **({"refusalReason": "Refused", "refusalReasonCode": "2"} if refused else {}),
        }
        self.payments.append({**made, "merchantAccount": payment.get("merchantAccount")})
        # Whatever a caller sees comes out of JSON, so nobody shares the record.
        return Answered(body=json.loads(json.dumps(made)), headers=headers or {})


def _error(status: int, code: str, message: str, headers: dict[str, str] | None = None) -> Answered:
    body = {"status": status, "errorCode": code, "message": message, "errorType": "validation"}
    return Answered(status=status, body=body, headers=headers or {})
