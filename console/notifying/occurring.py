"""Find out what people are to be told of, and put it into the outbox once for each who hears of it.

Behind the journal, from the audit log's entries and from the clock: nothing that sends or settles an effect
writes here, so that the number of people who want to know costs the journal nothing. Rows and progress are
saved together, and each row can be there once, so a pass that dies, or is made twice, loses and doubles
nothing. `docs/decisions/0023-told-behind-the-journal.md` has the why.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from django.conf import settings
from django.db import connection, transaction

from console import following
from console.access import ACTOR_PREFIX, ROLES_BY_DEED, Deed
from console.notification_models import (
    MARK_LENGTH,
    PROGRESS_ID,
    Happening,
    NotificationProgress,
    Occurrence,
)
from reconciliation.admission import BREAKER_OPENED
from reconciliation.approval_models import ApprovalRequest
from reconciliation.models import Case
from reconciliation.states import CaseKind, CaseState, Need
from runs import account_access
from runs.models import AuditLeaf

# Entries of one transaction.
BATCH_LEAVES: Final = 1_000
# Of each kind that the clock brings about, in one pass; beat calls the next.
BATCH_BY_CLOCK: Final = 500
# A time limit that passed longer ago is no news: its case was told of when it came to people.
PASSED_WITHIN: Final = timedelta(days=7)

CASE_OPENED, CASE_MOVED = "case.opened", "case.moved"
APPROVAL_REQUESTED = "approval.requested"
FOLLOWED: Final = (CASE_OPENED, CASE_MOVED, APPROVAL_REQUESTED, BREAKER_OPENED)

_COLUMNS: Final = (
    "happening, subject, mark, team_slug, case_ref, provider_slug, flow_name, actor, ends_at, happened_at"
)
# A case that waits for people and whose key ends within the lead, or whose time limit has passed. In the
# order of the queue's own index, each team's by itself; what has been told of is passed over.
_KEYS_END: Final = f"""
INSERT INTO console_occurrence ({_COLUMNS})
SELECT %(happening)s, found.id, to_char(found.ends_at AT TIME ZONE 'UTC', 'YYYYMMDD"T"HH24MISS'),
       found.team_id, found.id, found.provider_slug, found.flow_name, '', found.ends_at, %(now)s
FROM unnest(%(teams)s::text[]) AS team (slug)
CROSS JOIN LATERAL (
    SELECT waits.*, key_ends_at AS ends_at FROM reconciliation_case AS waits
    WHERE waits.team_id = team.slug AND waits.state = %(state)s
          AND (waits.worsens_at <= %(until)s OR waits.state <> 'needs_decision')
          AND waits.key_ends_at > %(since)s AND waits.key_ends_at <= %(until)s
          AND NOT EXISTS (
              SELECT FROM console_occurrence AS told
              WHERE told.subject = waits.id AND told.happening = %(happening)s
                    AND told.team_slug = waits.team_id
                    AND told.mark = to_char(waits.key_ends_at AT TIME ZONE 'UTC', 'YYYYMMDD"T"HH24MISS')
          )
    ORDER BY waits.worsens_at, waits.at_risk_minor DESC, waits.id
    LIMIT %(most)s
) AS found
ON CONFLICT DO NOTHING
RETURNING id
"""
_LIMITS_PASSED: Final = _KEYS_END.replace("key_ends_at", "decide_by_at")
_APPROVALS_END: Final = f"""
INSERT INTO console_occurrence ({_COLUMNS})
SELECT %(happening)s, waits.id, '', waits.team_id, coalesce(waits.case_id, ''),
       coalesce(operation.provider_id, ''), '', '', waits.expires_at, %(now)s
FROM reconciliation_approvalrequest AS waits
LEFT JOIN runs_operation AS operation ON operation.id = waits.operation_id
WHERE waits.state = 'requested' AND waits.expires_at > %(now)s AND waits.expires_at <= %(until)s
      AND NOT EXISTS (
          SELECT FROM console_occurrence AS told
          WHERE told.subject = waits.id AND told.happening = %(happening)s AND told.team_slug = waits.team_id
      )
LIMIT %(most)s
ON CONFLICT DO NOTHING
RETURNING id
"""
# Whoever made it happen needs no telling.
_TELL: Final = """
INSERT INTO console_notification (occurrence_id, channel_id, team_slug, state, because)
SELECT occurrence.id, channel.id, occurrence.team_slug, 'waiting', ''
FROM console_occurrence AS occurrence
JOIN console_channel AS channel
    ON channel.state = 'on' AND occurrence.happening = ANY(channel.happenings)
LEFT JOIN console_person AS person ON person.id = channel.person_id
WHERE occurrence.id = ANY(%(occurrences)s)
      AND (
          channel.team_id = occurrence.team_slug
          OR person.is_active AND person.roles && %(roles)s::varchar[]
          AND occurrence.actor <> %(prefix)s || person.id
          AND EXISTS (
              SELECT FROM console_person_teams AS member
              WHERE member.person_id = person.id AND member.team_id = occurrence.team_slug
          )
      )
ON CONFLICT DO NOTHING
"""


@dataclass(frozen=True, kw_only=True)
class Noted:
    """What one pass found: occurrences that are new, and whether entries are left that could be read."""

    occurrences: int = 0
    more: bool = False


@dataclass(frozen=True, kw_only=True)
class _Leaf:
    at: datetime
    action: str
    team: str
    subject: str
    actor: str
    after: dict[str, Any]


def note(*, now: datetime) -> Noted:
    """Make one pass: a batch of entries, and what the clock has brought about. Owns its transactions."""
    with transaction.atomic():
        progress = _progress()
        if progress is None:
            return Noted(more=True)  # another pass is at work
        following.settle(progress)
        made, more = _from_log(progress)
        progress.save()
    # By itself: the log's progress doesn't hang on it, and it can be there once whoever else is at work.
    with transaction.atomic():
        made += _by_clock(now)
    return Noted(occurrences=made, more=more)


def _progress() -> NotificationProgress | None:
    """The progress, held; None while another holds it. It begins at the end of the log.

    What happened before there were notifications isn't told: that would be years of it at once.
    """
    if not NotificationProgress.objects.filter(pk=PROGRESS_ID).exists():
        latest = AuditLeaf.objects.order_by("-id").values_list("pk", flat=True).first() or 0
        row = NotificationProgress(
            id=PROGRESS_ID, through_leaf=latest, settled_leaf=latest, noted_leaf=latest
        )
        NotificationProgress.objects.bulk_create([row], ignore_conflicts=True)
    return NotificationProgress.objects.select_for_update(skip_locked=True).filter(pk=PROGRESS_ID).first()


def _from_log(progress: NotificationProgress) -> tuple[int, bool]:
    rows = following.unread(progress).filter(action__in=FOLLOWED)[:BATCH_LEAVES]
    leaves = list(rows.values_list("pk", "at", "action", "team_slug", "actor", "body"))
    more = len(leaves) == BATCH_LEAVES
    if more:
        progress.through_leaf, progress.through_at = leaves[-1][0], leaves[-1][1]
    else:
        progress.through_leaf, progress.through_at = progress.settled_leaf, progress.settled_at
    read = [_read(*leaf[1:]) for leaf in leaves]
    found = [*_of_cases(read), *_of_approvals(read), *_of_breakers(read)]
    return _keep(found), more


def _read(at: datetime, action: str, team: str, actor: str, body: bytes | memoryview[int]) -> _Leaf:
    event = json.loads(bytes(body))["event"]
    after = event.get("after")
    return _Leaf(
        at=at,
        action=action,
        team=team,
        subject=str(event.get("subject", "")),
        actor=actor,
        after=after if isinstance(after, dict) else {},
    )


def _of_cases(leaves: Iterable[_Leaf]) -> list[Occurrence]:
    told = [(leaf, happening) for leaf in leaves if (happening := _happening_of(leaf)) is not None]
    cases = Case.objects.in_bulk({leaf.subject for leaf, _ in told})
    return [
        Occurrence(
            happening=happening,
            subject=case.pk,
            # A case becomes a conflict once; it may come to people again with new evidence.
            mark="" if happening is Happening.CONFLICT else str(leaf.after.get("version", ""))[:MARK_LENGTH],
            team_slug=case.team_id,
            case_ref=case.pk,
            provider_slug=case.provider_slug,
            flow_name=case.flow_name,
            actor=leaf.actor,
            ends_at=case.worsens_at,
            happened_at=leaf.at,
        )
        for leaf, happening in told
        if (case := cases.get(leaf.subject)) is not None
    ]


def _happening_of(leaf: _Leaf) -> Happening | None:
    """What an entry about a case means for people; None for nothing new."""
    after = leaf.after
    if leaf.action == CASE_OPENED:
        return Happening.CONFLICT if after.get("kind") == CaseKind.CONFLICT else None
    if leaf.action != CASE_MOVED:
        return None
    if after.get("need") in (Need.CONFLICT, Need.SEVERAL):
        return Happening.CONFLICT
    came = after.get("state") == CaseState.NEEDS_DECISION != after.get("from")
    return Happening.NEEDS_DECISION if came else None


def _of_approvals(leaves: Iterable[_Leaf]) -> list[Occurrence]:
    told = [leaf for leaf in leaves if leaf.action == APPROVAL_REQUESTED]
    asked = ApprovalRequest.objects.select_related("operation").in_bulk([leaf.subject for leaf in told])
    return [
        Occurrence(
            happening=Happening.APPROVAL_REQUESTED,
            subject=one.pk,
            team_slug=one.team_id,
            case_ref=one.case_id or "",
            provider_slug=one.operation.provider_id if one.operation is not None else "",
            actor=one.requester,
            ends_at=one.expires_at,
            happened_at=leaf.at,
        )
        for leaf in told
        if (one := asked.get(leaf.subject)) is not None
    ]


def _of_breakers(leaves: Iterable[_Leaf]) -> list[Occurrence]:
    """One for each team with a case there that may use the account."""
    found = []
    for leaf in leaves:
        if leaf.action != BREAKER_OPENED:
            continue
        open_there = Case.objects.filter(provider_slug=leaf.subject).exclude(state=CaseState.RESOLVED)
        if named := account_access.named_teams(leaf.subject):
            open_there = open_there.filter(team__in=named)
        found += [
            Occurrence(
                happening=Happening.BREAKER_OPEN,
                subject=leaf.subject,
                mark=leaf.at.strftime("%Y%m%dT%H%M%S.%f"),
                team_slug=team,
                provider_slug=leaf.subject,
                happened_at=leaf.at,
            )
            for team in open_there.order_by().values_list("team_id", flat=True).distinct()
        ]
    return found


def _keep(found: Sequence[Occurrence]) -> int:
    """Put what is new into the outbox, for everybody who hears of it; how much that was."""
    if not found:
        return 0
    unique = {(one.subject, one.happening, one.mark, one.team_slug): one for one in found}
    before = Occurrence.objects.order_by("-id").values_list("pk", flat=True).first() or 0
    Occurrence.objects.bulk_create(unique.values(), ignore_conflicts=True)
    subjects = {one.subject for one in unique.values()}
    # The progress is held, so what is newer and of these subjects is what was just made.
    made = Occurrence.objects.filter(pk__gt=before, subject__in=subjects)
    return _tell(list(made.values_list("pk", flat=True)))


def _tell(occurrences: list[int]) -> int:
    if not occurrences:
        return 0
    with connection.cursor() as cursor:
        roles = [str(role) for role in ROLES_BY_DEED[Deed.VIEW]]
        cursor.execute(_TELL, {"occurrences": occurrences, "roles": roles, "prefix": ACTOR_PREFIX})
    return len(occurrences)


def _by_clock(now: datetime) -> int:
    """What nobody wrote down, because nothing but time passed."""
    lead = timedelta(minutes=settings.RECOURSE_NOTIFY_BEFORE_MINUTES)
    asked: dict[str, Any] = {"now": now, "most": BATCH_BY_CLOCK}
    made: list[int] = []
    with connection.cursor() as cursor:
        cursor.execute("SELECT slug FROM runs_team ORDER BY slug")
        asked["teams"] = [slug for (slug,) in cursor.fetchall()]
        for state in ("needs_decision", "awaiting_approval"):
            for happening, statement, since, until in (
                (Happening.KEY_ENDS_SOON, _KEYS_END, now, now + lead),
                (Happening.TIME_LIMIT_PASSED, _LIMITS_PASSED, now - PASSED_WITHIN, now),
            ):
                within = {"since": since, "until": until, "state": state, "happening": happening}
                cursor.execute(statement, {**asked, **within})
                made += [number for (number,) in cursor.fetchall()]
        cursor.execute(
            _APPROVALS_END, {**asked, "until": now + lead, "happening": Happening.APPROVAL_ENDS_SOON}
        )
        made += [number for (number,) in cursor.fetchall()]
    return _tell(made)
