"""The page of one body that a case is about: whole, redacted unless it is revealed, with its bytes."""

from __future__ import annotations

from typing import Final

from django.urls import reverse

from console.pages.present.jsons import hex_dump, part_view
from console.pages.present.naming import question_of
from console.pages.shapes import Banner, BodyPage, Code, Fact
from reconciliation.models import Case
from reconciliation.revealing import Part, Stored
from reconciliation.working import REASON_LENGTH_MIN
from runs.locking import database_now

# What a page shows of bytes; the rest is in the file.
BYTES_SHOWN_MAX: Final = 16 * 1024
_STORED: Final = {
    Stored.AS_IT_CAME: "As it came",
    Stored.WITHOUT_SECRETS: "Without secrets: they were removed before",
    Stored.OUR_RECORD: "A record of ours; secret headers were removed before",
}


def body_page(
    case: Case,
    part: Part,
    *,
    reveal_why_not: str = "",
    revealed: bool = False,
    reason: str = "",
    error: str = "",
    banner: Banner | None = None,
) -> BodyPage:
    """Everything that the page shows; `reveal_why_not` is "" for who may be shown what is hidden."""
    hidden = bool(part.hidden_count) and not revealed
    return BodyPage(
        now=database_now(),
        case_id=case.pk,
        case_href=reverse("case", args=[case.pk]),
        question=question_of(case.operation.tool, case.operation.amount, None),
        view=part_view(part, case_id=case.pk, whole=True, revealed=revealed),
        facts=_facts(part),
        file_href="" if revealed else reverse("case_body_file", args=[case.pk, part.name]),
        file_label="Download without what is hidden" if hidden else "Download the bytes",
        revealed=revealed,
        reveal_href=reverse("case_body_reveal", args=[case.pk, part.name])
        if hidden and not reveal_why_not
        else "",
        reveal_note=reveal_why_not if hidden else _nothing_more(part),
        reason=reason,
        reason_length_min=REASON_LENGTH_MIN,
        error=error,
        banner=banner,
        bytes_text="" if hidden else hex_dump(part.content[:BYTES_SHOWN_MAX]),
        bytes_note=_bytes_note(part, hidden=hidden),
    )


def _nothing_more(part: Part) -> str:
    if part.hidden_count:
        return ""
    if part.removed_count:
        return "There is nothing to reveal: what is missing was removed before this was stored."
    return "Nothing of it is hidden."


def _bytes_note(part: Part, *, hidden: bool) -> str:
    if hidden:
        return "The bytes hold what is hidden: they are shown with it."
    if len(part.content) > BYTES_SHOWN_MAX:
        return f"The first {BYTES_SHOWN_MAX:,} of {len(part.content):,} bytes; the file has them all."
    return ""


def _facts(part: Part) -> tuple[Fact, ...]:
    facts = [
        Fact(label="Length", value=(f"{part.length:,} bytes",)),
        Fact(label="Stored", value=(_STORED[part.stored],)),
    ]
    if part.digest:
        facts.append(Fact(label="SHA-256", value=(Code(part.digest),), copy=part.digest))
    return tuple(facts)
