"""Teams, the accounts that they may use, and what they decided about their flows, as administrators change
them, on record."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, Final

from django.db import IntegrityError, transaction

from console.people import By, NameTaken, NothingChanged, checked_reason, require_still
from runs import account_access, audit
from runs.journal.evidence import storable_text
from runs.models import NAME_LENGTH, Flow, Team
from runs.refusals import Invalid, NotFound

_SLUG: Final = re.compile(r"[a-z0-9][a-z0-9_-]*")
# A case that may wait longer than a month for a decision needs no time limit at all.
DECIDE_WITHIN_MINUTES_MAX: Final = 31 * 24 * 60


def make_team(*, by: By, slug: str, name: str, reason: str) -> Team:
    """Make a team. Owns its transaction. Raises `Invalid`, `NameTaken`."""
    said, name = checked_reason(reason), " ".join(storable_text(name).split())
    if len(slug) > NAME_LENGTH or not _SLUG.fullmatch(slug):
        raise Invalid("A team’s id is made of small letters, digits, - and _", where="slug")
    if not 1 <= len(name) <= NAME_LENGTH or not name.isprintable():
        raise Invalid(f"A team needs a name of 1 to {NAME_LENGTH} characters.", where="name")
    with transaction.atomic():
        try:
            with transaction.atomic():
                team = Team.objects.create(slug=slug, name=name)
        except IntegrityError:
            raise NameTaken(f"There is a team “{slug}” already.", where="slug") from None
        audit.append(
            audit.Event(
                action="team.made", actor=by.actor, team=slug, subject=slug, after={"name": name}, reason=said
            )
        )
    return team


def name_account_teams(
    *, by: By, account: str, teams: Collection[str], seen: str, reason: str
) -> tuple[str, ...]:
    """Say that exactly these teams may use a provider account, none of them for every team; returns them.

    Owns its transaction. Refuses as `account_access.name_teams`, and where `by` administers nothing any more.
    """
    said = checked_reason(reason)
    with transaction.atomic():
        named = account_access.name_teams(
            account=account, teams=teams, seen=seen, actor=by.actor, reason=said
        )
        # After its lock, and with what it did undone: whoever was closed while they waited changes nothing.
        require_still(by)
    return named


def set_flow_policy(
    *,
    by: By,
    flow_id: str,
    automatic_repeat: str,
    abandonment_people: int,
    decide_within_minutes: int,
    reason: str,
) -> Flow:
    """Say what a flow's team decided about it; it counts for cases from now on. Owns its transaction.

    `automatic_repeat` is "off" or "safe". Raises `Invalid`, `NotAnAdministrator`,
    `NotFound`, `NothingChanged`.
    """
    said = checked_reason(reason)
    wanted: dict[str, Any] = {
        "automatic_repeat": automatic_repeat,
        "abandonment_people": abandonment_people,
        "decide_within_minutes": decide_within_minutes,
    }
    if automatic_repeat not in {"off", "safe"}:
        raise Invalid("Automatic repeats are off, or on where they are safe.", where="automatic_repeat")
    if abandonment_people not in {1, 2}:
        raise Invalid("An abandonment takes one person or two.", where="abandonment_people")
    if not 1 <= decide_within_minutes <= DECIDE_WITHIN_MINUTES_MAX:
        raise Invalid(
            f"A decision is due within 1 to {DECIDE_WITHIN_MINUTES_MAX:,} minutes.",
            where="decide_within_minutes",
        )
    with transaction.atomic():
        flow = Flow.objects.select_for_update(no_key=True).filter(pk=flow_id).first()
        require_still(by)
        if flow is None:
            raise NotFound("There is no such flow.")
        before = {name: getattr(flow, name) for name in wanted}
        if before == wanted:
            raise NothingChanged("The flow has this policy already.")
        for name, value in wanted.items():
            setattr(flow, name, value)
        flow.save(update_fields=list(wanted))
        changed = [name for name in wanted if before[name] != wanted[name]]
        audit.append(
            audit.Event(
                action="flow.policy_changed",
                actor=by.actor,
                team=flow.team_id,
                subject=flow.pk,
                before={name: before[name] for name in changed},
                after={name: wanted[name] for name in changed},
                reason=said,
            )
        )
    return flow
