"""What every answer to somebody known is sent with, whatever made it."""

from __future__ import annotations

from collections.abc import Callable

from django.conf import settings
from django.http import HttpRequest
from django.http.response import HttpResponseBase


class NothingKept:
    """Lets no browser and no proxy keep an answer to somebody who signed in or showed a token.

    A view that says otherwise for itself is left alone. Whether the session is a real one isn't asked: that
    would be a query, and an answer to an ended one needs keeping as little.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self.get_response(request)
        if settings.SESSION_COOKIE_NAME in request.COOKIES or "Authorization" in request.headers:
            response.headers.setdefault("Cache-Control", "no-store")
        return response
