"""JSON to look at: laid out in lines without being read into values, so that no digit of it can change."""

from __future__ import annotations

import json
import re
from typing import Any

from console.pages.shapes import JsonView
from reconciliation.providers.redaction import Redactor

# What a page shows of one body. Longer ones are cut, with their whole length and digest beside them.
SHOWN_LENGTH_MAX = 12_000
# A body nested deeper than this is shown as it came: indenting it would only make it longer.
INDENT_DEPTH_MAX = 64
_INDENT = "  "
_OPENING = frozenset("[{")
_CLOSING = frozenset("]}")


# A string, a mark, or a run of anything else; together they cover all of a JSON text but its white space.
_PART = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{},:]|[^\s\[\]{},:"]+')


def laid_out(text: str) -> str:
    """Return compact JSON with line breaks and indents; no character within a token changes.

    Works on the text alone: 1e3, 1.0 and a number of fifty digits stay what they were. What isn't JSON comes
    back unchanged.
    """
    try:
        json.loads(text, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return text
    parts: list[str] = []
    depth = 0
    before = ""
    for part in _PART.findall(text):
        if part in _CLOSING:
            depth -= 1
            parts.append("" if before in _OPENING else _line(depth))
        elif before in _OPENING or before == ",":
            parts.append(_line(depth))
        parts.append(f"{part} " if part == ":" else part)
        depth += part in _OPENING
        if depth > INDENT_DEPTH_MAX:
            return text
        before = part
    return "".join(parts)


def _line(depth: int) -> str:
    return "\n" + _INDENT * depth


def payload_view(title: str, content: bytes, digest: str) -> JsonView:
    """The operation's own bytes, whole: what was stored is what was sent, and the digest is over it."""
    text = content.decode("utf-8", "replace")
    shown = laid_out(text)
    cut = len(shown) > SHOWN_LENGTH_MAX * 8
    return JsonView(
        title=title,
        text=shown[: SHOWN_LENGTH_MAX * 8],
        digest=digest,
        bytes_total=len(content),
        cut=cut,
    )


def body_view(title: str, content: bytes, *, length: int, digest: str, redactor: Redactor) -> JsonView:
    """Somebody else's body as evidence: without secrets, bounded, laid out where it is JSON."""
    text = redactor.text(content.decode("utf-8", "replace"))
    looks_json = text.lstrip()[:1] in ("{", "[")
    shown = laid_out(text) if looks_json else text
    return JsonView(
        title=title,
        text=shown[:SHOWN_LENGTH_MAX],
        digest=digest,
        bytes_total=length,
        cut=len(shown) > SHOWN_LENGTH_MAX or length > len(content),
    )


def value_view(title: str, value: Any) -> JsonView:
    """A value of ours as JSON: a leaf of the audit log, a list of headers."""
    text = json.dumps(value, ensure_ascii=False, indent=2)
    return JsonView(title=title, text=text[:SHOWN_LENGTH_MAX], cut=len(text) > SHOWN_LENGTH_MAX)
