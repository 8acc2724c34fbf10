"""What every request leaves behind: ids on each log line, one line for each call, and how long it took.

The ids are those in the address (`run`, `operation`, `case`, …) and one of the request's own, so that every
line that anything logs meanwhile says what it was about. No body, no query, no header: they hold payloads,
names and secrets.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import structlog
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from structlog.contextvars import bind_contextvars, clear_contextvars

from console.api.assembly import ROOT
from console.metrics import JOURNAL_SECONDS
from runs.ids import could_be_id, new_id

log = structlog.get_logger(__name__)

# Parts of addresses that are ids, and the name under which a line says them.
NAMES: Final = {
    "run_id": "run",
    "operation_id": "operation",
    "case_id": "case",
    "approval_id": "approval",
    "job_id": "list",
    "evidence_id": "evidence",
    "message_id": "message",
    "account": "account",
    "slug": "account",
}
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})


class Observing:
    """The outermost middleware, so that what the others do is measured and logged too."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        # A thread serves many requests, one after the other.
        clear_contextvars()
        bind_contextvars(request=new_id("req"))
        started = time.perf_counter()
        try:
            response = self.get_response(request)
            self._note(request, response.status_code, time.perf_counter() - started)
        finally:
            clear_contextvars()
        return response

    def process_view(
        self, request: HttpRequest, view: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        ids = {NAMES[name]: value for name, value in kwargs.items() if name in NAMES}
        bind_contextvars(**{name: value for name, value in ids.items() if could_be_id(str(value))})

    def _note(self, request: HttpRequest, status: int, seconds: float) -> None:
        match = request.resolver_match
        route = (match.url_name or "") if match else ""
        is_call = request.path.startswith(ROOT)
        if is_call and route:
            try:
                JOURNAL_SECONDS.labels(route, f"{status // 100}xx").observe(seconds)
            except Exception as error:  # noqa: BLE001 - a full disk must not take back an answer to what was done
                log.warning("latency_not_kept", error=type(error).__name__)
        say = log.info if is_call or request.method not in _SAFE or status >= 500 else log.debug
        say("request", method=request.method, route=route, status=status, ms=round(seconds * 1000, 1))
