"""Lookups: claim a due case, ask its provider outside any transaction, record the answer, ask the policy.

A lookup never changes the provider, and its answer is never thrown away: when the case moved while it ran, or
it took longer than its claim, it becomes evidence and overwrites nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import structlog
from django.db import OperationalError, transaction
from structlog.contextvars import bound_contextvars

from reconciliation import admission, breaking, cases, claiming, effective, moves, retries
from reconciliation.accounts import account_of
from reconciliation.admission import RETRY_AFTER_MAX
from reconciliation.claiming import CLAIM_SECONDS, Asked, Lost, NotDue, Taken, claim_due
from reconciliation.gate_models import AccountGate
from reconciliation.gathering import INFORMATIVE
from reconciliation.models import Case, Lookup
from reconciliation.providers import registry
from reconciliation.providers.base import (
    Finding,
    Inconclusive,
    NotFound,
    Question,
    Several,
    elapsed_seconds,
)
from reconciliation.states import CaseState, Need
from reconciliation.waking import wake, wake_after_commit
from runs.actors import Actor, ActorKind
from runs.journal.evidence import record_evidence, storable_text
from runs.locking import LockedOperation, lock_operation
from runs.models import AuditLeaf, Evidence
from runs.states import Claim, EvidenceKind, OperationState

__all__ = [
    "CLAIM_SECONDS",
    "RETRY_AFTER_MAX",
    "Asked",
    "ask_again",
    "claim_due",
    "look_up",
    "record_finding",
    "why_not_looked_up",
]

log = structlog.get_logger(__name__)

LOOKUP_ACTOR = Actor(ActorKind.SYSTEM, "lookup")
# How long a worker goes on with one account before it lets others come first: long enough that the way
# through the broker doesn't count, short enough that nothing else in the queue waits long.
WORK_SECONDS = 0.5


@dataclass(frozen=True, kw_only=True)
class Came:
    """What an answer did to its case."""

    settled: bool = False
    handed_over: bool = False


def look_up(*, case_id: str, asked_by: str = "policy") -> str:
    """Look one due case up and act on the answer; returns the finding, or "" if it isn't to be looked up now.

    Two workers never look up the same case at once, and no more go out to an account than its limits let.
    What is held back stays due. Owns its transactions; none is open while the provider is asked.
    """
    begun = claiming.begin(case_id=case_id)
    match begun:
        case Asked():
            return _carry_out(begun, asked_by)
        case Lost():
            claiming.park_lost(case_id=begun.case_id)
            return ""
        case NotDue():
            return ""
        case Taken():
            log.debug("lookup_taken", case=case_id, number=begun.number)
            return ""
        case _:
            log.info("lookup_held", case=case_id, why=begun.sentence)
            return ""


def look_up_in_turn(*, case_id: str) -> str:
    """Answer a wake-up call for one case: look up whichever case of its account has waited longest.

    A call is a sign that the account has something due; in a backlog whoever comes last isn't asked about
    first. Returns the finding, or "".
    """
    slug = Case.objects.filter(pk=case_id).values_list("provider_slug", flat=True).first()
    return _look_up_oldest(slug) or "" if slug is not None else ""


def look_up_due(*, slug: str, wave: int) -> int:
    """Look up what is due at one account, longest due first, for a little while; returns how many.

    Called for by the sweeper, a few workers for each account in need (a wave). When its time is up a worker
    gets into the queue again, behind whatever else waits there, unless the sweeper has called a newer wave.
    A call of an older wave still looks one case up: where the queue is longer than the time between two
    passes, every call comes late, and if late ones did nothing, nobody would ever be asked.
    """
    until = elapsed_seconds() + WORK_SECONDS
    looked_up = 0
    while True:
        finding = _look_up_oldest(slug)
        if finding is None:
            return looked_up
        looked_up += finding != ""
        if not AccountGate.objects.filter(pk=slug, wave=wave).exists():
            return looked_up
        if elapsed_seconds() >= until:
            break
    wake("look_up_due", slug, wave)
    return looked_up


def _look_up_oldest(slug: str) -> str | None:
    """The finding; "" if this case came to nothing but the next might; None if nobody is to be asked now."""
    begun = claiming.begin_oldest(slug=slug)
    match begun:
        case Asked():
            return _carry_out(begun, "policy")
        case Lost():
            claiming.park_lost(case_id=begun.case_id)
            return ""
        case Taken():
            return ""
        case NotDue():
            return None
        case _:
            log.debug("lookups_held", account=slug, why=begun.sentence)
            return None


def _carry_out(asked: Asked, asked_by: str) -> str:
    """Ask, and act on the answer; whatever is logged meanwhile says what it is about."""
    with bound_contextvars(
        run=asked.run_id, operation=asked.question.operation_id, case=asked.case_id, account=asked.provider
    ):
        told = _ask_and_record(asked, asked_by)
        log.info("lookup_made", finding=told)
        return told


def _ask_and_record(asked: Asked, asked_by: str) -> str:
    if not _wait_for_slot(asked):
        claiming.give_back(asked)
        _note(asked, None, Came())
        return ""
    finding = _ask(asked)
    came = Came()
    try:
        came = record_finding(asked=asked, finding=finding, asked_by=asked_by)
    finally:
        _note(asked, finding, came)
    return finding.kind.value


def _wait_for_slot(asked: Asked) -> bool:
    if asked.admitted is None:
        return True
    contract = account_of(asked.provider).contract
    return admission.wait_for_slot(asked.admitted, slug=asked.provider, contract=contract)


def _note(asked: Asked, finding: Finding | None, came: Came) -> None:
    """Tell the account's gate what came of it; a claim that was given back only frees its probe."""
    if asked.admitted is None or (finding is None and not asked.admitted.probe):
        return
    verdict = breaking.Verdict.NOT_ASKED if finding is None else breaking.verdict_of(finding)
    wait_ms: int | None = getattr(finding, "retry_after_ms", None)
    admission.note(
        slug=asked.provider,
        claim=asked.claim,
        outcome=admission.Outcome(
            verdict=verdict,
            because=finding.summary if finding is not None else "",
            retry_after=None if wait_ms is None else timedelta(milliseconds=wait_ms),
            duration_ms=finding.exchange.duration_ms if finding is not None and finding.exchange else 0,
            settled=came.settled,
            handed_over=came.handed_over,
        ),
    )


def _ask(asked: Asked) -> Finding:
    try:
        return effective.adapter(asked.provider).look_up(_with_permit(asked))
    except registry.UnknownProvider:
        return Inconclusive(
            reason="undeclared", summary="Its provider account is no longer declared: it can't be asked."
        )
    except Exception as error:
        # An answer that our own code fails on must not keep its case from a person for ever.
        log.exception("lookup_failed", case=asked.case_id, provider=asked.provider)
        return Inconclusive(
            reason="failed", summary=f"The lookup failed inside Recourse ({type(error).__name__})."
        )


def _with_permit(asked: Asked) -> Question:
    """The question, which takes a slot of the account's limit for every request after the first."""

    def permit() -> bool:
        contract = account_of(asked.provider).contract
        within = admission.ANOTHER_SLOT_WITHIN
        return admission.wait_for_another_slot(slug=asked.provider, contract=contract, within=within)

    return replace(asked.question, permit=permit)


def record_finding(*, asked: Asked, finding: Finding, asked_by: str) -> Came:
    """Keep the answer as evidence and let the policy judge it, unless the case moved or the claim ended."""
    with transaction.atomic():
        locked = lock_operation(operation_id=asked.question.operation_id, team=None)
        case = Case.objects.select_for_update().get(pk=asked.case_id)
        until_at = case.lookup_claimed_until_at
        ours = case.lookup_claim == asked.claim and until_at is not None and until_at > locked.now
        open_question = case.state != CaseState.RESOLVED
        known = Evidence.objects.filter(operation=locked.operation, digest=finding.evidence_digest).exists()
        lookup = _insert(locked, case, asked, finding, asked_by, judged=ours and open_question)
        if ours:
            case.lookup_claim, case.lookup_claimed_until_at = "", None
        if open_question and not known:
            moves.note_new_evidence(locked, case, looked_up=True)
        if not (ours and open_question):
            case.save(update_fields=["lookup_claim", "lookup_claimed_until_at"])
            return Came()
        before = CaseState(case.state)
        _count(case, finding)
        if case.next_lookup_at is not None and case.next_lookup_at <= asked.question.asked_at:
            # This was the lookup that was due; what follows says when the next is, if there is to be one.
            case.next_lookup_at = None
            case.save(update_fields=["next_lookup_at"])
        if locked.operation.state == OperationState.SENT_UNKNOWN:
            _act_on(locked, case, finding, lookup, known=known)
        after = Case.objects.values_list("state", flat=True).get(pk=case.pk)
        return Came(
            settled=after == CaseState.RESOLVED,
            handed_over=after == CaseState.NEEDS_DECISION != before,
        )


def _act_on(locked: LockedOperation, case: Case, finding: Finding, lookup: Lookup, *, known: bool) -> None:
    try:
        # A savepoint: the answer is kept whatever comes of acting on it.
        with transaction.atomic():
            cases.judge(locked, case)
            # Settling and conflicts may have moved the row by another hand than this one.
            case.refresh_from_db()
            if case.state != CaseState.RESOLVED:
                _obey_retry_after(locked, case, finding)
                retries.after_lookup(locked, case, lookup, known=known)
    except OperationalError:
        # A deadlock, or a connection that is gone: nothing is wrong with the case, and it is due again.
        raise
    except Exception:
        log.exception("lookup_not_acted_on", case=case.pk, finding=finding.kind.value)
        locked = lock_operation(operation_id=locked.operation.pk, team=None)
        moves.hand_to_person(
            locked, Case.objects.get(pk=case.pk), Need.PARKED, why="acting on the lookup failed"
        )


def _insert(
    locked: LockedOperation, case: Case, asked: Asked, finding: Finding, asked_by: str, *, judged: bool
) -> Lookup:
    receipts = [receipt.as_json() for receipt in finding.receipts]
    exchange: dict[str, Any] | None = finding.exchange.as_json() if finding.exchange else None
    earlier = [one.as_json() for one in finding.earlier]
    evidence = record_evidence(
        locked,
        kind=EvidenceKind.LOOKUP,
        claim=Claim.FINDING,
        summary=finding.summary,
        actor=LOOKUP_ACTOR,
        finding=finding.kind.value,
        reference=finding.receipts[0].reference if len(finding.receipts) == 1 else "",
        # Further pages and ways to look, where there were any: without their bodies.
        seen={"receipts": receipts, "exchange": exchange, **({"earlier": earlier} if earlier else {})},
        body=finding.exchange.body.encode(errors="replace") if finding.exchange else b"",
        says_digest=finding.evidence_digest,
    )
    number = Lookup.objects.filter(case=case).count() + 1
    return Lookup.objects.create(
        case=case,
        operation=locked.operation,
        number=number,
        evidence=evidence,
        asked_by=asked_by,
        asked_at=asked.question.asked_at,
        duration_ms=finding.exchange.duration_ms if finding.exchange else 0,
        finding=finding.kind.value,
        proof="absence" if isinstance(finding, NotFound) and finding.proof else "none",
        # As evidence holds them: without what the database's text and JSON can't.
        summary=evidence.summary,
        exchange=evidence.seen["exchange"],
        receipts=evidence.seen["receipts"],
        digest=finding.evidence_digest,
        used="judged" if judged else "evidence_only",
    )


def _count(case: Case, finding: Finding) -> None:
    case.lookups_count += 1
    case.lookups_lost_count = 0
    informative = finding.kind.value in INFORMATIVE
    case.lookups_failed_count = 0 if informative else case.lookups_failed_count + 1
    case.finding, case.finding_summary = finding.kind.value, storable_text(finding.summary)[:500]
    if informative:
        named = sum(1 for receipt in finding.receipts if receipt.named)
        case.effects_seen = max(named, 2) if isinstance(finding, Several) else named
    case.save()


def _obey_retry_after(locked: LockedOperation, case: Case, finding: Finding) -> None:
    wait_ms: int | None = getattr(finding, "retry_after_ms", None)
    if wait_ms is None or case.next_lookup_at is None:
        return
    until = locked.now + min(timedelta(milliseconds=wait_ms), RETRY_AFTER_MAX)
    if until > case.next_lookup_at:
        case.next_lookup_at = until
        case.save(update_fields=["next_lookup_at"])


def ask_again(*, case_id: str, team: str | None, actor: Actor, list_id: str = "") -> Case:
    """Let a case be looked up now because a person asked; moves no version, and its leaf says who asked.

    Nothing at all where asking would come to nothing (`why_not_looked_up`); asked again by the same person
    before anybody has looked, only the worker is woken again. `list_id` is the list of cases that it is done
    for, if any. Owns its transaction. Raises `NotFound`.
    """
    from reconciliation.decisions import find_case

    found = find_case(case_id=case_id, team=team)
    with transaction.atomic():
        locked = lock_operation(operation_id=found.operation_id, team=team)
        case = Case.objects.select_for_update().get(pk=case_id)
        if why_not_looked_up(case):
            return case
        if _asked_already(case, actor, now=locked.now):
            wake_after_commit("look_up_now", case.pk)
        else:
            moves.look_again_now(locked, case)
            after = {"list": list_id} if list_id else {}
            moves.append_event(case, actor, "case.lookup_asked", after=after)
        log.info("lookup_asked", case=case_id, by=actor.id)
        return case


def _asked_already(case: Case, actor: Actor, *, now: datetime) -> bool:
    """Whether this person asked and that lookup is still to come: the answer to the first was lost."""
    due_at = case.next_lookup_at
    if due_at is None or due_at > now:
        return False
    # A lookup, once begun, moves the instant at which the next is due.
    leaves = AuditLeaf.objects.filter(operation_ref=case.operation_id, action="case.lookup_asked")
    return leaves.filter(actor=actor.id, at__gte=due_at).exists()


def why_not_looked_up(case: Case) -> str:
    """Why asking for a lookup of this case would come to nothing; "" if it wouldn't."""
    if case.state == CaseState.RESOLVED:
        return "This case is resolved: there is nothing left to look up."
    account = account_of(case.provider_slug)
    return "" if account.contract.has_lookup else f"{account.title} offers no lookup."
