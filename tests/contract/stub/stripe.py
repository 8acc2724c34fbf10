"""Our stub of Stripe, for what no other stand-in has: keyed PaymentIntents, events, search.

Written from docs.stripe.com (api/idempotent_requests, error-low-level, search, api/events), as read on
2026-11-29: keys are kept for 24 hours with the first answer, also a decline or a 500; a request that fails
validation isn't kept; a decline leaves a PaymentIntent with the caller's metadata; search lags, lists don't.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tests.contract.stub.server import Answered, Asked, Stub

WINDOW_SECONDS = 24 * 3600
KEY_LENGTH_MAX = 255
PAGE = 10
PAGE_MAX = 100
DECLINING = {"pm_card_chargeDeclined", "pm_card_visa_chargeDeclined"}
_CREATE = "/v1/payment_intents"
_CLAUSE = re.compile(r"""metadata\[["']([^"']+)["']\]:\s*["']([^"']*)["']\Z""")


class StripeStub(Stub):
    """PaymentIntents of one account."""

    def __init__(self) -> None:
        super().__init__()
        # Search is eventually consistent, normally under a minute (docs.stripe.com/search).
        self.lag_ms = 60_000
        self.intents: list[dict[str, Any]] = []
        self.events: list[dict[str, Any]] = []
        self._failing: list[bool] = []
        # Paths that answer 500 to whoever reads them.
        self.unreadable: set[str] = set()

    def fail_next(self, *, with_effect: bool) -> None:
        """Answer the next creation with a 500, with or without its effect."""
        self._failing.append(with_effect)

    def answer(self, asked: Asked) -> Answered:
        if not asked.headers.get("authorization"):
            return _error(401, type_="invalid_request_error", message="You did not provide an API key.")
        if asked.method == "POST" and asked.path == _CREATE:
            with self._lock:
                self.requests += 1
            return self._create(asked)
        if asked.method == "GET":
            with self._lock:
                self.lookups += 1
                return self._read(asked)
        return _error(404, type_="invalid_request_error", message=f"Unrecognized request URL {asked.path}")

    # -- creating ----------------------------------------------------------------------------------------

    def _create(self, asked: Asked) -> Answered:
        key = asked.headers.get("idempotency-key", "")
        if len(key) > KEY_LENGTH_MAX:
            return _error(400, type_="idempotency_error", message="The key is longer than 255 characters.")
        form = asked.form
        if not form.get("amount", "").isdigit() or "currency" not in form:
            missing = "amount" if not form.get("amount", "").isdigit() else "currency"
            return _error(
                400,
                type_="invalid_request_error",
                code="parameter_missing",
                message=f"Missing required param: {missing}.",
            )
        if not key:
            with self._lock:
                return self._made(form, key)
        return self.once(
            (asked.path, key),
            fingerprint=sorted(form.items()),
            window_seconds=WINDOW_SECONDS,
            make=lambda: self._made(form, key),
            replayed=lambda first: replace(first, headers={"Idempotent-Replayed": "true"}),
            other=lambda: _error(
                400,
                type_="idempotency_error",
                message="Keys for idempotent requests can only be used with the same parameters.",
            ),
            in_flight=lambda: _error(
                409,
                type_="idempotency_error",
                code="idempotency_key_in_use",
                message="There is currently another in-progress request using this key.",
            ),
            keeps=lambda _: True,
        )

    def _made(self, form: Mapping[str, str], key: str) -> Answered:
        failing = self._failing.pop(0) if self._failing else None
        if failing is False:
            return _error(500, type_="api_error", message="An unknown error occurred.")
        declined = form.get("payment_method") in DECLINING
        confirmed = form.get("confirm") == "true" and "payment_method" in form
        status = "succeeded" if confirmed and not declined else "requires_payment_method"
        intent = {
            "id": f"pi_{secrets.token_hex(12)}",
            "object": "payment_intent",
            "amount": int(form["amount"]),
            "amount_received": int(form["amount"]) if status == "succeeded" else 0,
            "currency": form["currency"].lower(),
            "customer": form.get("customer"),
            "description": form.get("description"),
            "created": int(self.now()),
            "livemode": False,
            "metadata": {
                name[len("metadata[") : -1]: value
                for name, value in form.items()
                if name.startswith("metadata[")
            },
            "payment_method": form.get("payment_method") if status == "succeeded" else None,
            "status": status,
        }
        self.intents.append(intent)
        kind = "payment_intent.succeeded" if status == "succeeded" else "payment_intent.payment_failed"
        self.events.append(
            {
                "id": f"evt_{secrets.token_hex(12)}",
                "object": "event",
                "type": kind if confirmed else "payment_intent.created",
                "created": intent["created"],
                "data": {"object": dict(intent)},
                "request": {"id": f"req_{secrets.token_hex(7)}", "idempotency_key": key or None},
            }
        )
        if failing is True:
            return _error(500, type_="api_error", message="An unknown error occurred.")
        if confirmed and declined:
            error = _error(
                402, type_="card_error", code="card_declined", message="Your card was declined."
            ).body["error"]
            return Answered(status=402, body={"error": {**error, "payment_intent": intent}})
        return Answered(body=intent)

    # -- reading -----------------------------------------------------------------------------------------

    def _read(self, asked: Asked) -> Answered:
        if asked.path in self.unreadable:
            return _error(500, type_="api_error", message="An unknown error occurred.")
        match asked.path:
            case "/v1/payment_intents":
                return _page(self._created(self.intents, asked.query), asked, url=_CREATE)
            case "/v1/events":
                types = asked.each("types[]")
                events = [one for one in self.events if not types or one["type"] in types]
                return _page(self._created(events, asked.query), asked, url="/v1/events")
            case "/v1/payment_intents/search":
                return self._search(asked)
        for one in self.intents:
            if asked.path == f"{_CREATE}/{one['id']}":
                return Answered(body=one)
        return _error(404, type_="invalid_request_error", message="No such object", code="resource_missing")

    def _created(self, records: list[dict[str, Any]], query: Mapping[str, str]) -> list[dict[str, Any]]:
        """The newest first, inside the window that was asked for."""
        low = int(query.get("created[gte]", query.get("created[gt]", "-1")))
        high = int(query.get("created[lte]", query.get("created[lt]", "99999999999")))
        customer = query.get("customer")
        return [
            one
            for one in reversed(records)
            if low <= one["created"] <= high and customer in (None, one.get("customer"))
        ]

    def _search(self, asked: Asked) -> Answered:
        clause = _CLAUSE.match(asked.query.get("query", ""))
        if clause is None:
            return _error(400, type_="invalid_request_error", message="The search query can't be read.")
        name, value = clause.groups()
        data = [
            one
            for one in reversed(self.intents)
            if one["metadata"].get(name) == value and self.shown(one["created"])
        ]
        body = {"object": "search_result", "url": asked.path, "has_more": False, "data": data}
        return Answered(body=body)


def _page(records: list[dict[str, Any]], asked: Asked, *, url: str) -> Answered:
    size = min(int(asked.query.get("limit", PAGE)), PAGE_MAX)
    after = asked.query.get("starting_after")
    if after is not None:
        ids = [one["id"] for one in records]
        records = records[ids.index(after) + 1 :]
    body = {"object": "list", "url": url, "has_more": len(records) > size, "data": records[:size]}
    return Answered(body=body)


def _error(status: int, *, type_: str, message: str, code: str | None = None) -> Answered:
    error = {"type": type_, "message": message, **({"code": code} if code else {})}
    return Answered(status=status, body={"error": error})
