"""What a page tells of a request for approval by its kind: the shape, and what the kinds share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from django.urls import reverse

from console.pages.present.marks import PAUSED_WHY
from console.pages.shapes import Badge, Banner, Consequence, Fact, Link, Phrase
from console.pages.shapes.approval import AmountRow, BudgetBar, Outcome, VersionTable
from reconciliation.approval_models import ApprovalKind
from runs.models import Run

BADGES: Final[dict[str, Badge]] = {
    ApprovalKind.OVERRIDE: Badge(word="Override", icon="shield-check", tone="violet"),
    ApprovalKind.RETRY: Badge(word="Four-eyes retry", icon="shield-check", tone="violet"),
    ApprovalKind.ABANDONMENT: Badge(word="Abandonment", icon="shield-check", tone="violet"),
    ApprovalKind.BUDGET_RAISE: Badge(word="Budget", icon="wallet", tone="violet"),
    ApprovalKind.APPROVAL_RENEWAL: Badge(word="Expired approval", icon="hourglass", tone="violet"),
    ApprovalKind.FLOW_VERSION: Badge(word="Flow version", icon="git-compare", tone="violet"),
    ApprovalKind.HELD_FREED: Badge(word="Held budget", icon="lock-open", tone="violet"),
    ApprovalKind.MAKE_ABSENT: Badge(word="Make absent", icon="undo-2", tone="violet"),
}
APPROVE: Final[dict[str, str]] = {
    ApprovalKind.OVERRIDE: "Approve the override",
    ApprovalKind.RETRY: "Approve the retry",
    ApprovalKind.ABANDONMENT: "Approve the abandonment",
    ApprovalKind.BUDGET_RAISE: "Approve the new limit",
    ApprovalKind.APPROVAL_RENEWAL: "Approve the renewal",
    ApprovalKind.FLOW_VERSION: "Approve it",
    ApprovalKind.HELD_FREED: "Approve freeing it",
    ApprovalKind.MAKE_ABSENT: "Approve making it absent",
}

# Where what could go wrong is an effect too many, none at all, or one that is undone: whoever approves says
# that they know.
ACKNOWLEDGED: Final = frozenset({ApprovalKind.RETRY, ApprovalKind.OVERRIDE, ApprovalKind.MAKE_ABSENT})


@dataclass(frozen=True, kw_only=True)
class Told:
    """Everything about one request that depends on its kind."""

    approve: str
    # What is consented to, field by field.
    content: tuple[Fact, ...]
    if_approved: tuple[Consequence, ...]
    if_refused: tuple[Consequence, ...]
    acknowledgement: str = ""
    danger: bool = False
    warning: Banner | None = None
    amounts: tuple[AmountRow, ...] = ()
    bar: BudgetBar | None = None
    versions: VersionTable | None = None
    plans: tuple[Outcome, ...] = ()


NOTHING: Final = Consequence(icon="circle-slash", text=("Nothing changes and nothing is sent.",))


def short(digest: object) -> str:
    text = str(digest or "")
    return f"{text[:10]}…{text[-6:]}" if len(text) > 20 else text


def released(run: Run, others: list[str]) -> Consequence:
    if others:
        why = "; ".join(PAUSED_WHY.get(one, one) for one in others)
        return Consequence(icon="circle-pause", text=(f"The run stays paused for another reason: {why}.",))
    return Consequence(icon="play", text=("1 run is released: a worker can claim ", *run_link(run), "."))


def run_link(run: Run) -> Phrase:
    return (
        Link(run.external_id, reverse("run", args=[run.pk])),
        f", {run.flow.name} {run.flow_version.version}",
    )
