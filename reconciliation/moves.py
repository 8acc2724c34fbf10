"""How a case moves from one state to another, and how it is closed: the only way in which its state changes.

Everything here needs a transaction that holds the run and the operation. What moves a case is judged
elsewhere: by the policy in `cases`, by people in `decisions`, by what a retry comes to in `retries`.
"""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

from django.conf import settings

from reconciliation import approval_ending
from reconciliation.accounts import account_of
from reconciliation.contracts import Contract
from reconciliation.models import Case
from reconciliation.policy import POLICY
from reconciliation.states import CaseState, Need, Resolution
from reconciliation.waking import wake_after_commit
from runs import audit
from runs.actors import Actor, ActorKind
from runs.journal import settling
from runs.journal.pausing import refresh_outcome_pause
from runs.locking import LockedOperation
from runs.states import GrantState, OperationState

BY_POLICY = Actor(ActorKind.POLICY, POLICY)

# The backoff between lookups starts fast enough that a lost reply settles before anybody looks, and slows
# down to this.
LOOKUP_CAP_SECONDS = 300.0
# In needs_decision we still look now and then, so that what a provider shows late settles by itself; after
# so many looks only a person asks again.
LOOKUPS_BY_ITSELF_MAX = 40
# The column's length; the evidence has the rest.
BECAUSE_LENGTH_MAX = 300


def open_case_of(locked: LockedOperation) -> Case | None:
    """The operation's open case, locked, or None."""
    return (
        Case.objects.select_for_update()
        .filter(operation=locked.operation)
        .exclude(state=CaseState.RESOLVED)
        .first()
    )


def move(
    locked: LockedOperation,
    case: Case,
    state: CaseState,
    *,
    need: str,
    why: str,
    actor: Actor = BY_POLICY,
) -> None:
    """To this state, with what is asked of people; a change of either is a new version and a leaf."""
    before, need_before = case.state, case.need
    case.state, case.need = state, need
    if before == CaseState.RETRYING and state != CaseState.RETRYING:
        # What was granted was granted for what was known then.
        settling.end_grants(locked.operation, GrantState.VOID, locked, why)
        refresh_outcome_pause(locked.locked_run)
    # Into retrying, from an approval, only what was approved leads.
    if state not in (before, CaseState.RETRYING):
        _void_approval(locked, case, before, why, actor)
    if state == CaseState.NEEDS_DECISION:
        case.needs_decision_since_at = case.needs_decision_since_at or locked.now
    case.parked_because = why[:BECAUSE_LENGTH_MAX] if need == Need.PARKED else ""
    changed = (before, need_before) != (state, need)
    if changed:
        case.version += 1
        case.snoozed_until_at = None
    case.save()
    if changed:
        after: dict[str, Any] = {"from": before, "state": str(state), "need": str(need)}
        append_leaf(case, "case.moved", actor, after, why)


def look_now_and_then(locked: LockedOperation, case: Case, contract: Contract) -> None:
    """Say when a case that waits for a person is looked up next, if at all."""
    may_look = contract.has_lookup and case.lookups_count < LOOKUPS_BY_ITSELF_MAX
    settled = locked.operation.state != OperationState.SENT_UNKNOWN
    if settled or not may_look:
        case.next_lookup_at = None
    elif case.next_lookup_at is None or case.next_lookup_at > locked.now:
        case.next_lookup_at = locked.now + backoff(case)
    # One that is due and waits for its turn keeps its place.


def backoff(case: Case) -> timedelta:
    """Exponential backoff with full jitter over the lookups made so far, at least a tenth of its ceiling."""
    base: float = settings.RECOURSE_LOOKUP_BASE_SECONDS
    ceiling = min(LOOKUP_CAP_SECONDS, base * 2 ** min(case.lookups_count, 16))
    return timedelta(seconds=ceiling * random.uniform(0.1, 1.0))  # noqa: S311 - jitter, not a secret


def look_again_now(locked: LockedOperation, case: Case) -> None:
    """Let the next lookup be due at once: a person asked."""
    case.next_lookup_at = locked.now
    case.save(update_fields=["next_lookup_at"])
    wake_after_commit("look_up_now", case.pk)


def back_to_looking_up(locked: LockedOperation, case: Case, *, why: str, has_lookup: bool) -> None:
    """retrying → looking_up: the repeat was sent, or its outcome is unknown again.

    The question is a new one: what was looked up before the repeat says nothing about it, so the counting and
    the backoff begin anew.
    """
    case.next_lookup_at = locked.now if has_lookup else None
    case.lookups_count = case.lookups_failed_count = 0
    move(locked, case, CaseState.LOOKING_UP, need="", why=why)
    wake_after_commit("look_up", case.pk)


def start_retrying(locked: LockedOperation, case: Case, *, actor: Actor, has_lookup: bool) -> None:
    """needs_decision or looking_up → retrying, by a decision. A fresh lookup comes first, if any.

    Fresh means asked after the decision: one that is running now will be evidence and no more.
    """
    case.next_lookup_at = locked.now if has_lookup else None
    case.lookup_claim, case.lookup_claimed_until_at = "", None
    case.lookups_failed_count = 0
    move(locked, case, CaseState.RETRYING, need="", why="retry with the same key", actor=actor)
    wake_after_commit("look_up_now", case.pk)


def hand_to_person(
    locked: LockedOperation, case: Case, need: Need, *, why: str, actor: Actor = BY_POLICY
) -> None:
    """Ask a person, whatever the policy would still try: what was begun can't be gone on with.

    What a provider shows late still settles by itself: it is looked at now and then, as in every decision
    that is awaited.
    """
    look_now_and_then(locked, case, account_of(locked.operation.provider_id).contract)
    move(locked, case, CaseState.NEEDS_DECISION, need=need, why=why, actor=actor)


def await_approval(locked: LockedOperation, case: Case, *, why: str, actor: Actor) -> None:
    """needs_decision or looking_up → awaiting_approval: a second person is asked. It keeps why people are."""
    look_now_and_then(locked, case, account_of(locked.operation.provider_id).contract)
    move(locked, case, CaseState.AWAITING_APPROVAL, need=case.need, why=why, actor=actor)


def await_absence(locked: LockedOperation, case: Case, *, why: str, actor: Actor) -> None:
    """awaiting_approval → looking_up: a request to make the effect absent leaves, and its answer is awaited.

    Until then nothing is looked up: what would be seen may be of before it or after.
    """
    case.next_lookup_at = None
    case.lookup_claim, case.lookup_claimed_until_at = "", None
    move(locked, case, CaseState.LOOKING_UP, need="", why=why, actor=actor)


def back_from_approval(locked: LockedOperation, case: Case, *, why: str, actor: Actor = BY_POLICY) -> None:
    """awaiting_approval → needs_decision: the request ended without being carried out, or was overtaken."""
    need = Need(case.need) if case.need else Need.APPROVAL_ENDED
    hand_to_person(locked, case, need, why=why, actor=actor)


def ask_on(locked: LockedOperation, case: Case, *, why: str, actor: Actor) -> None:
    """needs_decision or awaiting_approval → needs_decision: what was decided leaves a question open.

    It is another question, so another version, also where the case is in that state already.
    """
    if case.state == CaseState.NEEDS_DECISION:
        case.version += 1
    hand_to_person(locked, case, Need(case.need) if case.need else Need.CONFLICT, why=why, actor=actor)


def resolve(locked: LockedOperation, case: Case, resolution: Resolution, *, actor: Actor) -> None:
    """Close the case. Its operation has been settled, or stays as it was (conflicts after the fact)."""
    before = case.state
    _void_approval(locked, case, before, f"The case was resolved as {resolution}.", actor)
    case.state, case.resolution, case.resolved_at = CaseState.RESOLVED, resolution, locked.now
    case.need, case.parked_because, case.next_lookup_at = "", "", None
    case.snoozed_until_at = None
    case.version += 1
    case.save(
        update_fields=[
            *("state", "resolution", "resolved_at", "need", "parked_because"),
            *("next_lookup_at", "version", "kind", "snoozed_until_at"),
        ]
    )
    after = {"from": before, "resolution": str(resolution), "policy": POLICY}
    append_leaf(case, "case.resolved", actor, after, "")


def note_new_evidence(locked: LockedOperation, case: Case, *, looked_up: bool = False) -> None:
    """A new distinct piece of evidence came: whoever is deciding saw less, and who put it off as well.

    What a second person was asked about, or has approved and nobody has sent, is void by it: it was asked on
    other evidence. `looked_up`: a lookup told it, as one does before a retry; what follows from it for a
    retry that is approved is what the policy concludes (`retries.after_lookup`).
    """
    case.version += 1
    case.snoozed_until_at = None
    case.save(update_fields=["version", "snoozed_until_at"])
    why = "New evidence came that wasn’t there when the second person was asked."
    if case.state == CaseState.AWAITING_APPROVAL:
        back_from_approval(locked, case, why=why)
    elif case.state == CaseState.RETRYING and not looked_up and approval_ending.open_of_case(case.pk):
        hand_to_person(locked, case, Need.GRANT_ENDED, why=why)


def append_leaf(case: Case, action: str, actor: Actor, after: dict[str, Any], why: str) -> None:
    """Append the leaf of what happened to the case itself: with the version that it has now."""
    append_event(case, actor, action, after={"version": case.version, **after}, reason=why)


def append_event(
    case: Case,
    actor: Actor,
    action: str,
    *,
    after: dict[str, Any],
    before: dict[str, Any] | None = None,
    reason: str = "",
) -> None:
    """Append the leaf of an event of a case, in the transaction of what it tells."""
    audit.append(
        audit.Event(
            action=action,
            actor=actor,
            team=case.team_id,
            run=case.run_id,
            operation=case.operation_id,
            subject=case.pk,
            before=before or {},
            after=after,
            reason=reason,
        )
    )


def _void_approval(locked: LockedOperation, case: Case, before: str, why: str, actor: Actor) -> None:
    """What a case has moved away from, nobody approves any more, and what was approved isn't sent."""
    if before in (CaseState.AWAITING_APPROVAL, CaseState.RETRYING):
        approval_ending.void_for_case(case_id=case.pk, because=why, actor=actor, now=locked.now)
