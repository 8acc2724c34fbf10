"""Asking for the token that a request needs first, and keeping it as long as it is good (RFC 6749, 4.4).

No effect is asked for here: where the token can't be had, the request itself was never started, and that is
a positive sign that nothing was sent.
"""

from __future__ import annotations

import math
import threading
from dataclasses import replace

from reconciliation.providers.answers import read_body
from reconciliation.providers.base import Exchange, elapsed_seconds
from reconciliation.providers.environment import Authorization
from reconciliation.providers.paths import text_at
from reconciliation.providers.redaction import Redactor
from reconciliation.providers.templates import Values
from reconciliation.providers.transport import Call, Transport

TOKEN_WITHIN_SECONDS = 10.0
# A token is renewed so long before its end, so that no request leaves with one that ends on its way.
RENEW_BEFORE_SECONDS = 60.0
# How long a token is kept whose end isn't stated, and the longest that one is kept at all.
KEPT_SECONDS_UNSTATED = 300.0
KEPT_SECONDS_MAX = 24 * 3600.0


class TokenRefused(Exception):
    """No token was to be had; `exchange` is what was seen of asking, redacted like any other."""

    def __init__(self, sentence: str, exchange: Exchange) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.exchange = exchange


class TokenSource:
    """The current token of one account; threads wait for the one that is fetching it."""

    def __init__(
        self,
        authorization: Authorization,
        *,
        base_url: str,
        values: Values,
        transport: Transport,
        redactor: Redactor,
    ) -> None:
        self._authorization = authorization
        self._url = f"{base_url}{authorization.token_path}"
        self._values = values
        self._transport = transport
        self._redactor = redactor
        self._lock = threading.Lock()
        self._token = ""
        self._good_until = 0.0

    def sign(self, call: Call) -> Call:
        """The call with the account's token; raises `TokenRefused`, or `ValueUnusable`."""
        return replace(call, headers=(*call.headers, ("Authorization", f"Bearer {self._current()}")))

    def forget(self) -> None:
        """Ask for a new one next time: the provider didn't take this one."""
        with self._lock:
            self._good_until = 0.0

    def _current(self) -> str:
        with self._lock:
            if elapsed_seconds() >= self._good_until:
                self._token, kept_seconds = self._fetch()
                self._good_until = elapsed_seconds() + kept_seconds
            return self._token

    def _fetch(self) -> tuple[str, float]:
        answer = self._transport.call(
            Call(
                method="POST",
                url=self._url,
                headers=(
                    ("Authorization", f"Basic {self._authorization.basic(self._values)}"),
                    ("Content-Type", "application/x-www-form-urlencoded"),
                ),
                content=b"grant_type=client_credentials",
                within_seconds=TOKEN_WITHIN_SECONDS,
            ),
            redactor=self._redactor,
        )
        body = read_body(answer)
        token = text_at("$.access_token", body.value) if body.readable else None
        usable = token is not None and token.isascii() and token.isprintable() and " " not in token
        if answer.status is None or not 200 <= answer.status < 300 or not usable or token is None:
            said = answer.status or answer.exchange.error_class
            raise TokenRefused(
                f"No access token was to be had ({said}), so the request itself was never started.",
                answer.exchange,
            )
        stated = text_at("$.expires_in", body.value)
        try:
            seconds = KEPT_SECONDS_UNSTATED if stated is None else float(stated) - RENEW_BEFORE_SECONDS
        except ValueError:
            seconds = KEPT_SECONDS_UNSTATED
        if math.isnan(seconds):
            # No time is later than that: the token would be kept for good.
            seconds = KEPT_SECONDS_UNSTATED
        return token, min(max(seconds, 0.0), KEPT_SECONDS_MAX)
