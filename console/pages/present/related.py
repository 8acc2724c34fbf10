"""Related cases: what each is, how it stands, and what ties it to the one that is shown."""

from __future__ import annotations

from typing import Final

from django.urls import reverse

from console.pages.present.marks import RESOLUTIONS, amount_of
from console.pages.present.naming import title_of
from console.pages.shapes import RelatedCase
from console.queries.related import Related, Why
from console.templatetags.recourse import state_of
from reconciliation.states import CaseKind, CaseState, Resolution

_WORDS: Final[dict[Why, str]] = {
    Why.OPERATION: "Same operation",
    Why.PAYLOAD: "Same payload (another operation asks for exactly the same)",
    Why.RUN: "Same run",
    Why.PROVIDER: "Same provider within an hour",
}


def related_view(related: Related) -> RelatedCase:
    """One row of the list."""
    amount = amount_of(related.currency, related.minor if related.currency else None)
    resolved = related.state == CaseState.RESOLVED
    # Of one operation the payload is the same by nature.
    whole = related.why[0] is Why.OPERATION
    ties = [one for one in related.why if not whole or one is Why.OPERATION]
    return RelatedCase(
        href=reverse("case", args=[related.case_id]),
        case_id=related.case_id,
        title=title_of(related.tool, amount, None),
        badge=RESOLUTIONS[Resolution(related.resolution)] if resolved else state_of("case", related.state),
        at=related.opened_at,
        ties=_joined([_WORDS[one] for one in ties]),
        is_conflict=related.kind == CaseKind.CONFLICT,
        is_twin=Why.PAYLOAD in related.why and not whole,
    )


def _joined(words: list[str]) -> str:
    """One sentence of what ties them, as in "Same run, same provider within an hour"."""
    first, *more = words
    return ", ".join([first, *(one[:1].lower() + one[1:] for one in more)])
