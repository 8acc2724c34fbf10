"""Too many requests: an answer that says how long, and that nothing was done."""

from __future__ import annotations

from typing import Final

from django.http import HttpResponse

# Limits of sign-in are counted in minutes, and nobody is told which of them was met.
WAIT_SECONDS: Final = 60


def too_many(response: HttpResponse, *, seconds: int = WAIT_SECONDS) -> HttpResponse:
    """Make this page a 429 that says when it is worth coming back."""
    response.status_code = 429
    response["Retry-After"] = str(seconds)
    response["Cache-Control"] = "no-store"
    return response
