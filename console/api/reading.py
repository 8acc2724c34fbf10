"""Reading a request strictly: what it is before how long it is, how long before what it says.

Bodies go through `runs.canonical.parse`, so that nothing reaches a call that two readers could understand
differently. A body that says it is too long is refused before it is read.
"""

from __future__ import annotations

from typing import Any, ClassVar, cast

from django.http import HttpRequest
from ninja.parser import Parser

from runs.canonical import BYTES_MAX, TooLarge, parse
from runs.refusals import Invalid, Refusal


class UnsupportedMediaType(Refusal):
    """The body isn't declared as plain JSON."""

    word: ClassVar[str] = "unsupported_media_type"


class StrictParser(Parser):
    """Ninja's way in for bodies; its refusals come out as the cause of an HttpError (see `problems`)."""

    def parse_body(self, request: HttpRequest) -> dict[str, Any]:
        return cast("dict[str, Any]", parse(request.body))


def check_body(request: HttpRequest) -> None:
    """Refuse a body by its head alone, and take in one that comes in chunks. Raises a `Refusal`."""
    declared = request.content_type or ""
    if declared != "application/json":
        raise UnsupportedMediaType(
            f"The body must be application/json, not {declared[:100] or 'undeclared'}."
        )
    charset = (request.content_params or {}).get("charset", "utf-8")
    if charset.lower() not in {"utf-8", "utf8"}:
        raise UnsupportedMediaType(f"JSON is UTF-8, not {charset[:40]}.")
    encoding = request.headers.get("Content-Encoding", "identity")
    if encoding.lower() != "identity":
        raise UnsupportedMediaType(f"The body must come as it is, not in {encoding[:40]}.")
    check_length(request, bytes_max=BYTES_MAX)


def check_length(request: HttpRequest, *, bytes_max: int) -> None:
    """Refuse a body that says it is too long before it is read. Raises `TooLarge`, `Invalid`."""
    length = request.META.get("CONTENT_LENGTH") or ""
    if length.isdecimal() and len(length) < 20:
        if int(length) > bytes_max:
            raise _too_large(bytes_max, bytes_seen=int(length))
    elif length:
        raise Invalid("Content-Length is no number.", where="header: Content-Length")
    elif "HTTP_TRANSFER_ENCODING" in request.META:
        _read_chunks(request, bytes_max)


def _read_chunks(request: HttpRequest, bytes_max: int) -> None:
    """Without a declared length Django reads nothing: read here, one byte more than we take at most."""
    content = request.META["wsgi.input"].read(bytes_max + 1)
    if len(content) > bytes_max:
        raise _too_large(bytes_max)
    request._body = content


def _too_large(bytes_max: int, **seen: int) -> TooLarge:
    return TooLarge(f"At most {bytes_max:,} bytes are taken.", bytes_max=bytes_max, **seen)


def check_query(request: HttpRequest, known: set[str]) -> None:
    """Refuse query parameters that the call doesn't have, or has twice: a typo must not widen a question."""
    for name, values in request.GET.lists():
        if name not in known:
            raise Invalid(
                f"There is no query parameter {name[:64]!r}; there are {', '.join(sorted(known))}.",
                where=f"query: {name[:64]}",
            )
        if len(values) > 1:
            raise Invalid(f"The query parameter {name} is given twice.", where=f"query: {name}")
