"""Read the facts that the policy concludes from. Under the run's lock they can't move."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.db.models import Q, QuerySet

from reconciliation.accounts import account_of
from reconciliation.contracts import AccountPin, Contract, KeyScope, ProviderAccount
from reconciliation.facts import (
    ANOTHER_TEAMS,
    AbsenceFacts,
    AttemptFacts,
    Facts,
    Holder,
    LookupFacts,
    RejectionFacts,
    SeenReceipt,
)
from reconciliation.making_absent_models import AbsenceRequest, AbsenceState
from reconciliation.models import Case, Decision, Lookup
from reconciliation.policy import Assessment, assess
from reconciliation.providers.base import AbsenceKind, FindingKind, ReceiptState
from reconciliation.states import CaseKind, CaseState
from runs.canonical import canonicalise
from runs.journal.freezing import FORGOTTEN_SENDER
from runs.models import Attempt, Evidence, Grant, Operation, Receipt, Run
from runs.states import (
    AttemptOutcome,
    Claim,
    EvidenceKind,
    Executor,
    GrantState,
    OperationState,
    PauseReason,
    RunState,
)

_PENDING, _REFUSED = ReceiptState.PENDING.value, ReceiptState.REFUSED.value
# Findings that say something about the effect; the others only say that we couldn't ask.
INFORMATIVE = tuple(
    str(kind) for kind in FindingKind if kind not in (FindingKind.UNAVAILABLE, FindingKind.INCONCLUSIVE)
)
# Findings that show something of ours at the provider, and those that show nothing of it.
SHOWS_OURS = (FindingKind.FOUND, FindingKind.PENDING, FindingKind.MISMATCH, FindingKind.SEVERAL)
SHOWS_NOTHING = (FindingKind.NOT_FOUND, FindingKind.CANDIDATE)
# What a rule can follow from; it is read before what only says that nobody knows.
TELLING = [Claim.RECEIPT, Claim.REJECTION, Claim.NOT_SENT, Claim.FINDING]
# One operation rarely has ten pieces of evidence; a worker that reports in a loop must not make us read all.
EVIDENCE_READ_MAX = 500


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A case as the policy sees it now, and the digest that a decision about it must name."""

    facts: Facts
    contract: Contract
    account: ProviderAccount
    assessment: Assessment
    evidence_digest: str


@dataclass(frozen=True, kw_only=True)
class Rows:
    """What is on record about one operation beside its evidence, read by the queries below."""

    # In order.
    attempts: tuple[Attempt, ...]
    # The latest.
    grant: Grant | None
    # The latest that told something, and the evidence of the latest that showed something of ours, if any.
    lookup: Lookup | None
    ours_shown: str
    # Whether anybody, or a policy, has decided about the operation; asked where a policy may repeat alone.
    decided: bool
    # The requests to make the effect absent, in order.
    absences: tuple[AbsenceRequest, ...] = ()


def attempts_of(operation: Operation) -> QuerySet[Attempt]:
    """The operation's attempts, in order."""
    return Attempt.objects.filter(operation=operation).order_by("number")


def grants_of(operation: Operation) -> QuerySet[Grant]:
    """The operation's latest grant."""
    return Grant.objects.filter(operation=operation).order_by("-made_at", "-id")[:1]


def lookups_of(operation: Operation) -> QuerySet[Lookup]:
    """The operation's latest lookup that told something."""
    return Lookup.objects.filter(operation=operation, finding__in=INFORMATIVE).order_by("-id")[:1]


def ours_shown_of(operation: Operation) -> QuerySet[Lookup]:
    """The operation's latest lookup that showed something of ours."""
    shows = [str(kind) for kind in SHOWS_OURS]
    return Lookup.objects.filter(operation=operation, finding__in=shows).order_by("-id")[:1]


def decisions_about(operation: Operation) -> QuerySet[Decision]:
    """One decision about the operation, if there is any."""
    return Decision.objects.filter(operation=operation)[:1]


def absences_of(operation: Operation) -> QuerySet[AbsenceRequest]:
    """The operation's requests to make its effect absent, in order."""
    return AbsenceRequest.objects.filter(operation=operation).order_by("number")


def key_reaches_console(operation: Operation, contract: Contract) -> bool:
    """Whether what the console sends would meet the key that was first used: not, perhaps, where keys are
    kept apart within the account. The agent's own credential and way in are known to nobody here (DESIGN
    law 5). Where no key is honoured there is none to miss: whoever repeats, it may be a second effect.
    """
    anywhere = contract.key_scope in (KeyScope.ACCOUNT, KeyScope.NONE)
    return operation.sent_by != Executor.AGENT or anywhere


def may_repeat_alone(run: Run) -> bool:
    """Whether the run's flow lets the policy repeat without a person, where nobody has decided yet."""
    return run.flow.automatic_repeat == "safe"


def _read(run: Run, operation: Operation) -> Rows:
    shown = ours_shown_of(operation).values_list("evidence_id", flat=True)
    return Rows(
        attempts=tuple(attempts_of(operation)),
        grant=next(iter(grants_of(operation)), None),
        lookup=next(iter(lookups_of(operation)), None),
        ours_shown=next(iter(shown), ""),
        decided=may_repeat_alone(run) and decisions_about(operation).exists(),
        absences=tuple(absences_of(operation)),
    )


def judge_now(
    *,
    run: Run,
    operation: Operation,
    case: Case | None,
    now: datetime,
    rows: Rows | None = None,
    undecided: bool = False,
) -> Judged:
    """Gather the facts of an operation and its case (None: as if one were opened now) and assess them.

    `rows`: what the caller has read already. Whoever judges under a lock lets them be read here.
    `undecided`: as if the decision that the case waits for, or carries out, were still to be made.
    """
    account = account_of(operation.provider_id)
    evidence = list(
        Evidence.objects.filter(operation=operation)
        .select_related("attempt")
        # Up to 64 KiB each, and no rule looks into it.
        .defer("body")
        .annotate(tells=Q(claim__in=TELLING))
        .order_by("-tells", "-recorded_at", "-id")[:EVIDENCE_READ_MAX]
    )
    facts = gather_facts(
        run=run,
        operation=operation,
        case=case,
        account=account,
        evidence=evidence,
        rows=rows or _read(run, operation),
        now=now,
    )
    if undecided:
        facts = replace(facts, case_state=CaseState.NEEDS_DECISION, grant_open="", grant_ends_at=None)
    assessment = assess(facts, account.contract, now)
    return Judged(
        facts=facts,
        contract=account.contract,
        account=account,
        assessment=assessment,
        evidence_digest=says_digest(evidence, assessment),
    )


def says_digest(evidence: Sequence[Evidence], assessment: Assessment) -> str:
    """What a decision names: distinct evidence, answers and permissions, not how often or when we looked."""
    return canonicalise(
        {"evidence": sorted({one.digest for one in evidence}), **assessment.digested()}
    ).digest


def gather_facts(
    *,
    run: Run,
    operation: Operation,
    case: Case | None,
    account: ProviderAccount,
    evidence: Sequence[Evidence],
    rows: Rows,
    now: datetime,
) -> Facts:
    """Turn rows into plain facts; no rule is applied here."""
    not_sent = {one.attempt_id for one in evidence if one.claim == Claim.NOT_SENT and one.attempt_id}
    # Later words that it never left don't undo an answer that its sender has reported.
    not_sent -= {one.attempt_id for one in evidence if _was_answered(one)}
    grant = rows.grant
    lookup = _lookup_facts(rows.lookup) if rows.lookup is not None else None
    granted = grant is not None and grant.state == GrantState.OPEN
    return Facts(
        operation_state=OperationState(operation.state),
        case_kind=CaseKind(case.kind) if case else CaseKind.UNKNOWN,
        case_state=CaseState(case.state) if case else CaseState.LOOKING_UP,
        opened_at=case.opened_at if case else now,
        turn_index=operation.turn_index,
        call_id=operation.call.call_id,
        attempts=tuple(attempt_facts(one, run, one.pk in not_sent, now) for one in rows.attempts),
        first_sent_at=operation.first_sent_at,
        last_quiet_at=operation.last_quiet_at,
        pinned=pinned_of(operation),
        current=account.pin if operation.sent_by else None,
        console_can_send=account.console_can_send,
        can_be_asked_here=account.configured,
        receipts=_receipts(operation, evidence),
        rejections=tuple(
            RejectionFacts(attempt_number=one.attempt.number, evidence_id=one.pk)
            for one in evidence
            if one.claim == Claim.REJECTION and one.attempt is not None
        ),
        mismatch_reported=next(
            (one.pk for one in evidence if one.claim == Claim.RECEIPT and _is_wrong(one)), ""
        ),
        sent_by_unknown=next((one.pk for one in evidence if one.kind == EvidenceKind.STRAY_REPORT), ""),
        shown_before=_shown_before(evidence, lookup, rows.ours_shown),
        lookup=lookup,
        lookups_count=case.lookups_count if case else 0,
        lookups_failed_count=case.lookups_failed_count if case else 0,
        grant_open=grant.pk if grant and granted else "",
        grant_ends_at=grant.not_after_at if grant and granted else None,
        grant_ended_unused=grant.pk if grant and grant.state == GrantState.EXPIRED else "",
        run_state=RunState(run.state),
        paused_for_version=run.flow_version.version if PauseReason.FLOW_VERSION in run.paused_reasons else "",
        approval_until_at=run.approval_until_at,
        abandonment_people=run.flow.abandonment_people,
        may_repeat_alone=may_repeat_alone(run) and not rows.decided,
        absence_way=account.make_absent,
        absences=_absences(rows.absences),
        perhaps_made_absent=account.make_absent is not None
        and any(one.worker == FORGOTTEN_SENDER for one in rows.attempts),
        key_reaches_console=key_reaches_console(operation, account.contract),
    )


def _absences(rows: Sequence[AbsenceRequest]) -> tuple[AbsenceFacts, ...]:
    """Those that left, or may have: one that is proved not to have left did nothing."""
    return tuple(
        AbsenceFacts(
            number=one.number,
            sent_at=one.sent_at,
            quiet_after_at=one.quiet_after_at,
            open=one.state == AbsenceState.SENT,
        )
        for one in rows
        if one.outcome != AbsenceKind.NOT_SENT
    )


def attempt_facts(attempt: Attempt, run: Run, reported_not_sent: bool, now: datetime) -> AttemptFacts:
    if attempt.executor == Executor.CONSOLE:
        holder = Holder.CONSOLE
    elif (
        attempt.lease_token == run.lease_token
        and run.lease_expires_at is not None
        and run.lease_expires_at > now
    ):
        holder = Holder.LIVE
    else:
        holder = Holder.OUTDATED
    return AttemptFacts(
        number=attempt.number,
        outcome=AttemptOutcome(attempt.outcome),
        minted_at=attempt.minted_at,
        quiet_after_at=attempt.quiet_after_at,
        holder=holder,
        worker=attempt.worker,
        lease_ends_at=run.lease_expires_at if holder is Holder.LIVE else None,
        proved_not_sent=attempt.outcome == AttemptOutcome.NOT_SENT or reported_not_sent,
    )


def pinned_of(operation: Operation) -> AccountPin | None:
    if not operation.sent_by:
        return None
    return AccountPin(
        adapter=operation.sent_adapter_version,
        endpoint=operation.sent_endpoint,
        region=operation.sent_region,
        credential_fingerprint=operation.sent_credential_fingerprint,
    )


def _match(evidence: Evidence) -> dict[str, Any]:
    match: Any = evidence.seen.get("match") if isinstance(evidence.seen, dict) else None
    return match if isinstance(match, dict) else {}


def _matches(evidence: Evidence) -> bool:
    return bool(_match(evidence).get("matches"))


def _is_wrong(evidence: Evidence) -> bool:
    """Whether a receipt that was reported is another's or differs; ours and not yet final is neither."""
    receipt: Any = _match(evidence).get("receipt") or {}
    ours = bool(receipt.get("named") and receipt.get("same"))
    return not _matches(evidence) and not (ours and receipt.get("state") in (_PENDING, _REFUSED))


def _was_answered(evidence: Evidence) -> bool:
    if evidence.attempt_id is None or not isinstance(evidence.seen, dict):
        return False
    return evidence.claim == Claim.RECEIPT or evidence.seen.get("status") is not None


def _shown_before(evidence: Sequence[Evidence], lookup: LookupFacts | None, ours_shown: str) -> str:
    """Evidence of an effect of ours that the latest lookup, if any, doesn't show; "" if there is none.

    `ours_shown` is the evidence of an earlier lookup that showed one.
    """
    if lookup is not None and lookup.finding not in SHOWS_NOTHING:
        return ""
    for one in evidence:
        receipt: Any = _match(one).get("receipt") or {}
        pending = one.claim == Claim.RECEIPT and receipt.get("state") == _PENDING and not _is_wrong(one)
        if pending or one.seen.get("effect_exists"):
            return one.pk
    return ours_shown


def _receipts(operation: Operation, evidence: Sequence[Evidence]) -> tuple[SeenReceipt, ...]:
    """Receipts that were reported, and those of the latest lookup that told something."""
    seen = [
        SeenReceipt(reference=one.reference, evidence_id=one.pk, matches=_matches(one))
        for one in evidence
        if one.claim == Claim.RECEIPT and one.reference
    ]
    latest = next((one for one in evidence if one.finding in INFORMATIVE), None)
    if latest is not None:
        for receipt in latest.seen.get("receipts", []):
            matches = latest.finding in (FindingKind.FOUND, FindingKind.SEVERAL) and bool(
                receipt.get("named") and receipt.get("same") and receipt.get("state") == "succeeded"
            )
            seen.append(
                SeenReceipt(
                    reference=str(receipt.get("reference", "")), evidence_id=latest.pk, matches=matches
                )
            )
    taken = Receipt.objects.filter(
        provider_id=operation.provider_id, reference__in={one.reference for one in seen if one.matches}
    ).exclude(operation=operation)
    others = {
        reference: pk if team == operation.team_id else ANOTHER_TEAMS
        for reference, pk, team in taken.values_list("reference", "operation_id", "operation__team_id")
    }
    return tuple(replace(one, confirmed_other=others.get(one.reference, "")) for one in seen)


def _lookup_facts(row: Lookup) -> LookupFacts:
    return LookupFacts(
        finding=FindingKind(row.finding),
        proof=row.proof == "absence",
        asked_at=row.asked_at,
        evidence_id=row.evidence_id,
        summary=row.summary,
    )
