"""Whether somebody may still do what they asked for: asked again at each step that runs without them.

Who people are, and what their roles allow, is the project's business: `settings.RECOURSE_STANDING` names the
function that answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, cast

from django.conf import settings
from django.utils.module_loading import import_string

from reconciliation.approval_models import ApprovalDeed
from reconciliation.bulk_models import BulkDeed
from reconciliation.persons import Worker


@dataclass(frozen=True, kw_only=True)
class Standing:
    """The person as they are now; `why_not` says why they may not, "" if they may.

    `principal` is the human being behind the account, "" where the account is gone.
    """

    worker: Worker
    why_not: str = ""
    principal: str = ""


class StandingOf(Protocol):
    """Answers for the actor's id (`person:12`), a deed, and the team whose case it is."""

    def __call__(self, *, actor: str, deed: BulkDeed | ApprovalDeed, team: str) -> Standing: ...


def standing_of(*, actor: str, deed: BulkDeed | ApprovalDeed, team: str) -> Standing:
    """Ask for the person's standing now; two queries."""
    ask = cast("StandingOf", import_string(settings.RECOURSE_STANDING))
    return ask(actor=actor, deed=deed, team=team)
