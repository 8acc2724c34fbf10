"""A lookup on trial: put one question to a provider, and say what would be concluded from its answer.

It reads at the provider: no case moves, nothing becomes evidence. It is a request with our credentials all
the same, so it counts in the account's health, limiter and breaker, and the audit log says who made it, about
what, and what came back.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, ClassVar, Final

import structlog
from django.db import transaction
from django.db.models import Q

from reconciliation import effective
from reconciliation.admission import (
    ANOTHER_SLOT_WITHIN,
    Admitted,
    Outcome,
    admit,
    note,
    wait_for_another_slot,
    wait_for_slot,
)
from reconciliation.breaking import Verdict, verdict_of
from reconciliation.claiming import question_of
from reconciliation.contracts import ProviderAccount
from reconciliation.facts import AttemptFacts, Facts, Holder, LookupFacts, SeenReceipt
from reconciliation.gathering import INFORMATIVE, SHOWS_NOTHING, SHOWS_OURS, judge_now
from reconciliation.models import Case
from reconciliation.policy import Assessment, assess
from reconciliation.providers.base import (
    Finding,
    FindingKind,
    Inconclusive,
    NotFound,
    Question,
)
from reconciliation.providers.registry import UnknownProvider
from reconciliation.states import CaseKind, CaseState
from runs import account_access, audit, canonical
from runs.actors import Actor, ActorKind
from runs.ids import ALPHABET, ULID_LENGTH
from runs.keys import KEY_CHARACTERS, KEY_PREFIX
from runs.locking import database_now
from runs.models import Operation
from runs.refusals import Invalid, Refusal
from runs.refusals import NotFound as Invisible
from runs.states import AttemptOutcome, OperationState, RunState

log = structlog.get_logger(__name__)

# What stands for the evidence in an answer that isn't kept.
ON_TRIAL: Final = "on trial"
NAME_LENGTH_MAX: Final = 200
PAYLOAD_BYTES_MAX: Final = 64 * 1024
# Our names inside something longer: a query that was typed may ask for several at once.
_OUR_NAMES: Final = re.compile(
    rf"op_[{ALPHABET}]{{{ULID_LENGTH}}}|{KEY_PREFIX}[a-z2-7]{{{KEY_CHARACTERS}}}", re.IGNORECASE
)
# Longer than a lookup's own time limits: until then nobody else finds out whether the provider answers again.
CLAIM_SECONDS: Final = 90


class CannotBeAsked(Refusal):
    """The account offers no lookup, or isn't configured here; nothing was sent."""

    word: ClassVar[str] = "cannot_be_asked"


@dataclass(frozen=True, kw_only=True)
class About:
    """What to ask about: an operation of the journal by its id or key, or something typed by hand.

    `key` alone with no operation of that key needs `payload`, JSON as text, for the answer to be compared
    with; `reference` stands for the operation's id, which many providers are given as our reference.
    """

    operation: str = ""
    key: str = ""
    tool: str = ""
    payload: str = ""
    reference: str = ""
    first_sent_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Rehearsed:
    """The answer and what would follow. `operation` is None for something that was typed by hand.

    `withheld` says that what the answer shows beside what was typed may be another team's, and isn't in
    `finding`; the conclusion is of the whole answer.
    """

    account: ProviderAccount
    question: Question
    finding: Finding
    assessment: Assessment
    operation: Operation | None
    asked_at: datetime
    withheld: bool = False


def rehearse(*, account: str, about: About, teams: Sequence[str], actor: Actor) -> Rehearsed:
    """Ask the provider once, on behalf of a person, and judge the answer as a lookup's would be.

    Owns its transactions; none is open while the provider is asked. Refuses with `NotFound` (also for another
    team's operation, and for an account of others), `Invalid` with the field in `where`, or `CannotBeAsked`.
    """
    if actor.kind is not ActorKind.PERSON:
        raise Invalid("Only a person tests a lookup.", where="actor")
    account_access.require_open(account, teams=teams)
    try:
        held = effective.account(account)
    except UnknownProvider:
        raise account_access.not_there(account) from None
    if not held.contract.has_lookup:
        raise CannotBeAsked(
            "This account is asked nothing: it offers no lookup, or lookups are switched off."
        )
    if not held.configured:
        missing = ", ".join(held.missing)
        raise CannotBeAsked(f"This account isn't configured here: {missing} isn't set. Nothing was asked.")
    operation = _find(account, about, teams)
    if operation is not None and operation.provider_id != account:
        raise Invalid(f"This operation is one of {operation.provider_id}.", where="operation")
    asked_at = database_now()
    question = (
        typed_question(about, held, asked_at) if operation is None else question_of(operation, asked_at)
    )
    claim = secrets.token_hex(8)
    _wait_for_slot(held, claim)
    _note(account, actor, "provider.lookup_test_asked", question, operation, {})
    finding = _ask(account, claim, question)
    found = {"finding": finding.kind.value, "digest": finding.evidence_digest}
    _note(account, actor, "provider.lookup_test_answered", question, operation, found)
    facts = facts_of(operation, held, question)
    withheld = operation is None and account_access.is_shared(account, teams=teams)
    return Rehearsed(
        account=held,
        question=question,
        finding=only_what_was_asked(finding) if withheld else finding,
        withheld=withheld,
        assessment=assess(with_finding(facts, finding, asked_at), held.contract, database_now()),
        operation=operation,
        asked_at=asked_at,
    )


def _wait_for_slot(account: ProviderAccount, claim: str) -> None:
    """Take a slot of the account's limit as every lookup does, and wait for it; no transaction is open."""
    with transaction.atomic():
        admission = admit(
            slug=account.slug,
            contract=account.contract,
            case_id="",
            claim=claim,
            claim_within=timedelta(seconds=CLAIM_SECONDS),
        )
    if not isinstance(admission, Admitted):
        raise CannotBeAsked(f"Not now. {admission.sentence} Nothing was asked.")
    if wait_for_slot(admission, slug=account.slug, contract=account.contract):
        return
    # It may have been the one probe of an open breaker: the others need not wait for it.
    note(slug=account.slug, claim=claim, outcome=Outcome(verdict=Verdict.NOT_ASKED))
    raise CannotBeAsked("Every slot of the provider's limit was missed just now. Nothing was asked.")


def _permit(account: str) -> Callable[[], bool]:
    """What takes a slot of the account's limit for every request of a lookup after its first."""

    def permit() -> bool:
        contract = effective.account(account).contract
        return wait_for_another_slot(slug=account, contract=contract, within=ANOTHER_SLOT_WITHIN)

    return permit


def _ask(account: str, claim: str, question: Question) -> Finding:
    """Ask, and let the limiter and the breaker know what came of it, as of every lookup."""
    finding: Finding
    verdict = Verdict.NOT_ASKED
    try:
        finding = effective.adapter(account).look_up(replace(question, permit=_permit(account)))
        verdict = verdict_of(finding)
    except Exception as error:
        # What our own code fails on is an answer too: whoever tests wants to see it.
        log.exception("lookup_test_failed", provider=account)
        finding = Inconclusive(
            reason="failed", summary=f"The lookup failed inside Recourse ({type(error).__name__})."
        )
    rest_ms: int | None = getattr(finding, "retry_after_ms", None)
    note(
        slug=account,
        claim=claim,
        outcome=Outcome(
            verdict=verdict,
            because=finding.summary,
            retry_after=None if rest_ms is None else timedelta(milliseconds=rest_ms),
            duration_ms=finding.exchange.duration_ms if finding.exchange else 0,
        ),
    )
    return finding


def only_what_was_asked(finding: Finding) -> Finding:
    """The finding without what may be another team's: records that carry nothing typed, and the raw answer.

    A provider that is asked for a list answers with everybody's records of it.
    """
    receipts = tuple(one for one in finding.receipts if one.named)
    if finding.exchange is None:
        return replace(finding, receipts=receipts)
    exchange = replace(finding.exchange, body="", response_headers=())
    return replace(finding, receipts=receipts, exchange=exchange)


def _note(
    account: str,
    actor: Actor,
    action: str,
    question: Question,
    operation: Operation | None,
    after: dict[str, Any],
) -> None:
    """One leaf. The key of something that isn't ours may be anybody's, so only its digest is kept."""
    about = (
        {} if operation is not None else {"key_digest": canonical.digest(question.idempotency_key.encode())}
    )
    audit.append(
        audit.Event(
            action=action,
            actor=actor,
            team=operation.team_id if operation is not None else "",
            run=operation.run_id if operation is not None else "",
            operation=operation.pk if operation is not None else "",
            subject=account,
            after={**about, **after},
        )
    )
    log.info(action, provider=account, by=actor.id, **after)


# --- the question ----------------------------------------------------------------------------------------


def _find(account: str, about: About, teams: Sequence[str]) -> Operation | None:
    """The operation that is named, by id or key; None for something that the journal doesn't hold.

    Another team's is refused whatever was typed beside or around it: its record at the provider is theirs.
    """
    names = {one for one in (about.operation, about.key, about.reference) if one}
    for name in names:
        if len(name) > NAME_LENGTH_MAX or not name.isprintable():
            raise Invalid(f"At most {NAME_LENGTH_MAX} printable characters.", where="operation")
    if not names:
        raise Invalid("Name an operation, or type a key and a payload.", where="operation")
    loaded = Operation.objects.select_related("run__flow", "run__flow_version", "call")
    rows = [*loaded.filter(pk__in=names), *loaded.filter(provider=account, key__in=names)]
    if any(one.team_id not in teams for one in rows) or _mentions_others(about, teams):
        raise Invisible("There is no such operation that you can see.")
    if about.operation and not rows:
        raise Invisible("There is no such operation that you can see.")
    return rows[0] if rows else None


def _mentions_others(about: About, teams: Sequence[str]) -> bool:
    """Whether an id or key of another team's operation stands anywhere in what was typed."""
    typed = [about.operation, about.key, about.reference, about.payload]
    with suppress(Refusal):
        # As the provider would see it: JSON can write any character in another way.
        typed.append(
            canonical.canonical_bytes(canonical.parse(about.payload.encode("utf-8", "replace"))).decode()
        )
    found = {name for text in typed for name in _OUR_NAMES.findall(text)}
    ids = {f"op_{name[3:].upper()}" for name in found}
    mentioned = Operation.objects.filter(Q(pk__in=ids) | Q(key__in={name.lower() for name in found}))
    return bool(found) and mentioned.exclude(team_id__in=teams).exists()


def typed_question(about: About, account: ProviderAccount, asked_at: datetime) -> Question:
    if not about.key:
        raise Invalid("Type the key that it was sent with.", where="key")
    try:
        payload = canonical.parse(about.payload.encode("utf-8", "replace"), bytes_max=PAYLOAD_BYTES_MAX)
    except Refusal as refusal:
        raise Invalid(f"The payload isn't JSON: {refusal.sentence}", where="payload") from None
    if not isinstance(payload, dict):
        raise Invalid("The payload is a JSON object.", where="payload")
    first_sent_at = about.first_sent_at or asked_at
    if first_sent_at > asked_at:
        raise Invalid("The first send lies in the future.", where="first_sent_at")
    return Question(
        operation_id=about.reference or about.key,
        idempotency_key=about.key,
        tool=about.tool,
        payload=payload,
        amount=None,
        first_sent_at=first_sent_at,
        last_quiet_at=account.contract.quiet_at(first_sent_at),
        asked_at=asked_at,
    )


# --- what would follow -----------------------------------------------------------------------------------


def facts_of(operation: Operation | None, account: ProviderAccount, question: Question) -> Facts:
    if operation is not None:
        case = Case.objects.filter(operation=operation).order_by("-number").first()
        judged = judge_now(run=operation.run, operation=operation, case=case, now=question.asked_at)
        return judged.facts
    # As if it had been sent once, by a worker that is gone, and never looked up.
    return Facts(
        operation_state=OperationState.SENT_UNKNOWN,
        case_kind=CaseKind.UNKNOWN,
        case_state=CaseState.LOOKING_UP,
        opened_at=question.asked_at,
        turn_index=1,
        call_id="typed",
        attempts=(
            AttemptFacts(
                number=1,
                outcome=AttemptOutcome.UNKNOWN,
                minted_at=question.first_sent_at,
                quiet_after_at=account.contract.quiet_at(question.first_sent_at),
                holder=Holder.OUTDATED,
            ),
        ),
        first_sent_at=question.first_sent_at,
        last_quiet_at=account.contract.quiet_at(question.first_sent_at),
        pinned=account.pin,
        current=account.pin,
        console_can_send=account.console_can_send,
        run_state=RunState.OPEN,
    )


def with_finding(facts: Facts, finding: Finding, asked_at: datetime) -> Facts:
    """The facts as they would be with this answer on record as the latest lookup's."""
    counted = replace(facts, lookups_count=facts.lookups_count + 1)
    if finding.kind.value not in INFORMATIVE:
        return replace(counted, lookups_failed_count=facts.lookups_failed_count + 1)
    earlier = facts.lookup
    seen = [one for one in facts.receipts if earlier is None or one.evidence_id != earlier.evidence_id]
    counts = finding.kind in (FindingKind.FOUND, FindingKind.SEVERAL)
    seen += [
        SeenReceipt(
            reference=one.reference,
            evidence_id=ON_TRIAL,
            matches=counts and one.named and one.same and one.state.value == "succeeded",
        )
        for one in finding.receipts
    ]
    shown_before = facts.shown_before
    if finding.kind not in SHOWS_NOTHING:
        shown_before = ""
    elif earlier is not None and earlier.finding in SHOWS_OURS:
        shown_before = earlier.evidence_id
    return replace(
        counted,
        lookups_failed_count=0,
        receipts=tuple(seen),
        shown_before=shown_before,
        lookup=LookupFacts(
            finding=finding.kind,
            proof=isinstance(finding, NotFound) and finding.proof,
            asked_at=asked_at,
            evidence_id=ON_TRIAL,
            summary=finding.summary,
        ),
    )
