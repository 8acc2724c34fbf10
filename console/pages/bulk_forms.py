"""The form over a frozen list: what is to be decided, for whom, and why. Kept through every refusal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from console.access import standing_of
from console.pages.forms import clean
from reconciliation.bulk import Wanted
from reconciliation.bulk_models import BulkDeed
from reconciliation.decisions import REASON_LENGTH_MAX
from reconciliation.states import Action, Then
from runs.states import Executor

# What a choice stands for: the action, who sends it, what the run does then.
CHOICES: Final[dict[str, tuple[Action, str, str]]] = {
    "confirm": (Action.CONFIRM, "", ""),
    "retry-agent": (Action.RETRY, Executor.AGENT, ""),
    "retry-console": (Action.RETRY, Executor.CONSOLE, ""),
    "abandon-continue": (Action.ABANDON, "", Then.CONTINUE),
    "abandon-end": (Action.ABANDON, "", Then.END),
}


@dataclass(frozen=True, kw_only=True)
class BulkDraft:
    """The fields as they came, bounded. `seen` is the choice whose preview was on the page."""

    choice: str = ""
    seen: str = ""
    assignee: str = ""
    reason_code: str = ""
    reason: str = ""

    def wanted(self, deed: BulkDeed) -> Wanted:
        """What is asked for; a choice or a person that can't be read is none."""
        action, executor, then = CHOICES.get(self.choice, (None, "", ""))
        assignee = None
        if deed is BulkDeed.ASSIGN and self.assignee:
            standing = standing_of(actor=self.assignee, deed=deed, team="")
            assignee = None if standing.why_not else standing.worker
        return Wanted(
            action=action,
            executor=str(executor),
            then=str(then),
            reason_code=self.reason_code,
            reason=self.reason,
            assignee=assignee,
        )


def read_draft(posted: Mapping[str, str]) -> BulkDraft:
    """The form of a POST; what is too long is given back as it was, and refused."""

    def field(name: str, length_max: int = 60) -> str:
        return clean(posted.get(name, ""))[:length_max]

    return BulkDraft(
        choice=field("choice"),
        seen=field("seen"),
        assignee=field("assignee"),
        reason_code=field("reason_code"),
        reason=field("reason", REASON_LENGTH_MAX * 4),
    )


def choice_of(action: str, executor: str, then: str) -> str:
    """The choice that a started job stands for."""
    found = (Action(action), executor, then) if action else None
    return next((name for name, stands in CHOICES.items() if stands == found), "")
