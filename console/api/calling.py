"""How a call is declared: who may make it, what it answers, and with which words it refuses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import BaseModel, StringConstraints

from console.access import Deed
from console.api.bearer import Bearer
from console.models import Scope

# What any call may answer; each call adds its own.
COMMON_WORDS: Final = (
    "unauthorized",
    "forbidden",
    "rate_limited",
    "method_not_allowed",
    "unavailable",
    "internal_error",
)
BODY_WORDS: Final = ("unreadable_json", "invalid", "too_large", "unsupported_media_type")

# Queries are compared with stored text, which holds no U+0000.
QueryText = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")]

JOURNAL: Final = (Scope.JOURNAL,)
READ: Final = (Scope.READ, Scope.JOURNAL, Scope.DECIDE)
DECIDE: Final = (Scope.DECIDE,)


def call(
    *,
    scopes: tuple[Scope, ...],
    deed: Deed = Deed.VIEW,
    answers: Mapping[int, type[BaseModel]],
    words: tuple[str, ...] = (),
    body: bool = True,
) -> dict[str, Any]:
    """Return the keyword arguments of a route; `words` are those that only this call refuses with.

    `deed` is what the person of a token with scope `decide` must be allowed to do.
    """
    every = sorted({*words, *COMMON_WORDS, *(BODY_WORDS if body else ())})
    return {
        "auth": Bearer(*scopes, deed=deed),
        "response": dict(answers),
        "openapi_extra": {"x-words": every, "x-scopes": sorted(str(scope) for scope in scopes)},
    }
