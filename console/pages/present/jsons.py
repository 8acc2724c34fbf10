"""JSON to look at: laid out in lines without being read into values, so that no digit of it can change."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from django.urls import reverse

from console.pages.present.marks import plural
from console.pages.shapes import JsonView
from reconciliation.providers.redaction import Redactor
from reconciliation.revealing import Part, Stored

# What a page shows of one body. Longer ones are cut, with their whole length and digest beside them.
SHOWN_LENGTH_MAX = 12_000
# What a body's own page shows of it: all that evidence and payloads hold, laid out.
WHOLE_LENGTH_MAX = 1_000_000
# More names than this say no more.
REPEATED_SHOWN_MAX = 5
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


def part_view(part: Part, *, case_id: str, whole: bool = False, revealed: bool = False) -> JsonView:
    """A body that a case is about. `whole`: on its own page, so not cut; `revealed`: with nothing hidden."""
    text = part.text if revealed else part.redacted
    shown = laid_out(text) if text.lstrip()[:1] in ("{", "[") else text
    length_max = WHOLE_LENGTH_MAX if whole else SHOWN_LENGTH_MAX
    return JsonView(
        title=part.title,
        text=shown[:length_max],
        # On its own page the digest stands among the facts, to be copied.
        digest="" if whole else part.digest,
        bytes_total=part.length,
        cut=len(shown) > length_max or not part.is_whole,
        notes=tuple(_notes(part, revealed=revealed)),
        hidden_count=0 if revealed else part.hidden_count,
        href="" if whole else reverse("case_body", args=[case_id, part.name]),
    )


def _notes(part: Part, *, revealed: bool) -> Iterable[str]:
    """What a reader would otherwise take for part of the text, or miss in it."""
    hidden = part.hidden_count
    if hidden and not revealed:
        are = "is" if hidden == 1 else "are"
        yield f"{plural(hidden, 'place')} {are} hidden here, because it looks like a secret or a card number."
    if part.removed_count:
        one = part.removed_count == 1
        removed = f"{plural(part.removed_count, 'secret')} {'was' if one else 'were'} removed"
        yield f"{removed} before this was stored. Nobody can show {'it' if one else 'them'}."
    elif part.stored is Stored.WITHOUT_SECRETS:
        yield "Secrets would have been removed before this was stored; there were none."
    if part.is_beginning:
        yield "The beginning; its own page has all of it."
    elif not part.is_whole:
        kept = len(part.content)
        yield f"Only the first {kept:,} of {part.length:,} bytes were kept; the digest is over all of them."
    names = repeated_names(part.redacted)
    if names:
        more = ", …" if len(names) > REPEATED_SHOWN_MAX else ""
        listed = ", ".join(names[:REPEATED_SHOWN_MAX])
        yield f"One object names the same member twice ({listed}{more}): programs differ in which one counts."


def repeated_names(text: str) -> tuple[str, ...]:
    """The member names that one object of this JSON has more than once; () for what isn't JSON."""
    repeated: dict[str, None] = {}

    def look(pairs: list[tuple[str, Any]]) -> None:
        seen = set()
        for name, _ in pairs:
            if name in seen:
                repeated.setdefault(name)
            seen.add(name)

    try:
        json.loads(text, object_pairs_hook=look, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return ()
    return tuple(repeated)


def hex_dump(content: bytes) -> str:
    """The bytes sixteen to a line: offset, hexadecimal, and what of them is printable ASCII."""
    lines = []
    for offset in range(0, len(content), 16):
        row = content[offset : offset + 16]
        printable = "".join(chr(one) if 32 <= one < 127 else "." for one in row)
        lines.append(f"{offset:08x}  {row.hex(' '):<47}  {printable}")
    return "\n".join(lines)
