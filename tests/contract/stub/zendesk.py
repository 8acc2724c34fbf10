"""Our stub of Zendesk's tickets, from its documentation as read on 2026-11-29.

A key is kept for two hours and the answer says `x-idempotency-lookup: hit` or `miss`; the same key for other
content is a 400 `IdempotentRequestError`. Tickets list by `external_id` at once; search lags by minutes; the
incremental export has everything since a time, up to a minute ago.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from tests.contract.stub.server import Answered, Asked, Stub

WINDOW_SECONDS = 2 * 3600
PAGE = 100
_TICKETS = ("/api/v2/tickets", "/api/v2/tickets.json")
_INCREMENTAL = ("/api/v2/incremental/tickets", "/api/v2/incremental/tickets.json")
# What the incremental export leaves out: "within the minute prior to your request".
EXPORT_LAG_SECONDS = 60
_SEARCH = ("/api/v2/search", "/api/v2/search.json")


class ZendeskStub(Stub):
    """The tickets of one account."""

    def __init__(self) -> None:
        super().__init__()
        # Search: "up to a few minutes" (Zendesk's Search API page).
        self.lag_ms = 180_000
        self.tickets: list[dict[str, Any]] = []
        # Zendesk's has up to 1000 to a page of the export.
        self.export_page = 1000

    def answer(self, asked: Asked) -> Answered:
        if not asked.headers.get("authorization"):
            return Answered(status=401, body={"error": "Couldn't authenticate you"})
        if asked.method == "POST" and asked.path in _TICKETS:
            with self._lock:
                self.requests += 1
            return self._create(asked)
        with self._lock:
            self.lookups += 1
            if asked.path in _TICKETS:
                wanted = asked.query.get("external_id")
                tickets = [one for one in self.tickets if wanted in (None, one["external_id"])]
                return Answered(body=_page("tickets", tickets))
            if asked.path in _INCREMENTAL:
                return self._incremental(asked)
            if asked.path in _SEARCH:
                return self._search(asked)
        return Answered(status=404, body={"error": "InvalidEndpoint"})

    def _create(self, asked: Asked) -> Answered:
        ticket = asked.json.get("ticket")
        if not isinstance(ticket, dict) or not (ticket.get("comment") or ticket.get("description")):
            details = {"description": [{"description": "Description: cannot be blank"}]}
            return Answered(status=422, body={"error": "RecordInvalid", "details": details})
        key = asked.headers.get("idempotency-key")
        if key is None:
            with self._lock:
                return self._made(ticket)
        return self.once(
            key,
            fingerprint=asked.body,
            window_seconds=WINDOW_SECONDS,
            make=lambda: replace(self._made(ticket), headers={"x-idempotency-lookup": "miss"}),
            replayed=lambda first: replace(first, headers={"x-idempotency-lookup": "hit"}),
            other=lambda: Answered(
                status=400,
                body={"error": "IdempotentRequestError", "description": "Request parameters don't match"},
            ),
            # What Zendesk answers while the first request runs isn't published.
            in_flight=lambda: Answered(status=409, body={"error": "Conflict"}),
            keeps=lambda answer: answer.status < 300,
        )

    def _made(self, ticket: dict[str, Any]) -> Answered:
        comment = ticket.get("comment") or {}
        made = {
            "id": 1000 + len(self.tickets),
            "external_id": ticket.get("external_id"),
            "subject": ticket.get("subject"),
            "raw_subject": ticket.get("subject"),
            "description": comment.get("body", ticket.get("description")),
            "priority": ticket.get("priority"),
            "type": ticket.get("type"),
            "status": ticket.get("status", "new"),
            "requester_id": ticket.get("requester_id"),
            "group_id": ticket.get("group_id"),
            "tags": ticket.get("tags", []),
            "created_at": datetime.fromtimestamp(self.now(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "made_at": self.now(),
        }
        self.tickets.append(made)
        return Answered(status=201, body={"ticket": _seen(made), "audit": {"ticket_id": made["id"]}})

    def _incremental(self, asked: Asked) -> Answered:
        """The oldest first; a next page is always named, and `end_of_stream` says which is the last."""
        start = int(asked.query["start_time"])
        due = [
            one
            for one in self.tickets
            if int(one["made_at"]) >= start and one["made_at"] <= self.now() - EXPORT_LAG_SECONDS
        ]
        shown = due[: self.export_page]
        end = int(shown[-1]["made_at"]) if shown else start
        return Answered(
            body={
                "tickets": [_seen(one) for one in shown],
                "count": len(shown),
                "end_time": end,
                "next_page": f"https://shop.zendesk.com/api/v2/incremental/tickets.json?start_time={end}",
                "end_of_stream": len(due) <= self.export_page,
            }
        )

    def _search(self, asked: Asked) -> Answered:
        words = dict(word.partition(":")[::2] for word in asked.query.get("query", "").split() if ":" in word)
        wanted = words.get("external_id", "").strip('"')
        results = [one for one in self.tickets if one["external_id"] == wanted and self.shown(one["made_at"])]
        return Answered(body=_page("results", results))


def _seen(ticket: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in ticket.items() if name != "made_at"}


def _page(name: str, tickets: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        name: [_seen(one) for one in tickets[:PAGE]],
        "next_page": "more" if len(tickets) > PAGE else None,
        "previous_page": None,
        "count": len(tickets),
    }
