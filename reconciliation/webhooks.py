"""Notices of the providers: check the signature, keep what was signed once, and let the policy judge it.

What isn't signed, or was signed at another time, is refused, counted, and leaves no byte of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import structlog
from django.db import IntegrityError, transaction
from django.db.models import F, Q

from reconciliation import effective
from reconciliation.accounts import account_of
from reconciliation.providers import registry
from reconciliation.providers.paths import MISSING, text_at, value_at
from reconciliation.providers.tables import DeclarationInvalid
from reconciliation.providers.webhook_opening import Part, open_notice
from reconciliation.providers.webhook_schemes import Acknowledgement
from reconciliation.providers.webhook_signing import WebhookForged, WebhookNotReady, WebhookStale
from reconciliation.providers.webhook_table import EventRule, WebhookRules
from reconciliation.states import WebhookOutcome, WebhookRefusal
from reconciliation.webhook_judging import (
    WEBHOOK_ACTOR,
    SignedNotice,
    act_on,
    judge_record,
)
from reconciliation.webhook_models import EVENT_ID_LENGTH_MAX, WebhookEvent, WebhookRefusals
from reconciliation.webhook_naming import named_operation
from runs import audit
from runs.canonical import TooLarge, digest
from runs.ids import new_id
from runs.journal.evidence import REFERENCE_LENGTH_MAX, SUMMARY_LENGTH_MAX
from runs.locking import database_now, lock_operation
from runs.models import NAME_LENGTH, Operation
from runs.refusals import NotFound

log = structlog.get_logger(__name__)

# What a lookup reads of an answer, too; providers' notices are some kilobytes.
BODY_BYTES_MAX = 1024 * 1024
# Longer than any provider delivers a notice again (Stripe: 3 days), and than most people look back.
KEPT = timedelta(days=90)
# What one arrival may cost beside itself.
FORGOTTEN_AT_ONCE_MAX = 100
CHALLENGE_LENGTH_MAX = 1_000


@dataclass(frozen=True, kw_only=True)
class Notice:
    """What was delivered: `headers` by lower-case name, the body's bytes, and the sender's address.

    `query` is what stood behind the "?" of the address that it came to, as it was written.
    """

    account: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    query: str = field(default="", repr=False)
    sent_from: str = ""


@dataclass(frozen=True, kw_only=True)
class Taken:
    """What became of a notice that was signed. `event` is our id of it, "" where it is only counted.

    `more` is what became of the others that came with it.
    """

    event: str = ""
    outcome: WebhookOutcome | None = None
    replayed: bool = False
    # A word that the provider wants back, to see that somebody listens here.
    challenge: str = ""
    acknowledgement: Acknowledgement = Acknowledgement.JSON
    more: tuple[Taken, ...] = ()

    @property
    def nothing_new(self) -> bool:
        """Whether all of it had been taken before."""
        return self.replayed and all(one.nothing_new for one in self.more)


def refuse_oversized(*, account: str, length: int, sent_from: str) -> None:
    """Count a notice that is too long to be read, and raise `TooLarge`; `NotFound` if there is no address."""
    _rules(account)
    _count(account, WebhookRefusal.OVERSIZED, length=length, sent_from=sent_from)
    raise TooLarge(
        f"A notice of at most {BODY_BYTES_MAX:,} bytes is taken.", bytes_max=BODY_BYTES_MAX, bytes_seen=length
    )


def receive(*, notice: Notice) -> Taken:
    """Take in what was delivered: evidence is committed when this returns. Owns its transactions.

    The same id or the same content again changes nothing. Raises `NotFound` (no such account, or it takes no
    notices), `TooLarge`, `WebhookNotReady`, `WebhookForged` and `WebhookStale`, all of which change nothing
    but a count. Of several notices in one delivery either all are signed, or none is taken.
    """
    rules = _rules(notice.account)
    if len(notice.body) > BODY_BYTES_MAX:
        refuse_oversized(account=notice.account, length=len(notice.body), sent_from=notice.sent_from)
    try:
        parts = open_notice(
            rules,
            headers=notice.headers,
            body=notice.body,
            query=notice.query,
            now=database_now(),
            bytes_max=BODY_BYTES_MAX,
        )
    except (WebhookNotReady, WebhookForged, WebhookStale) as refusal:
        _count_refused(notice, refusal)
        raise
    first, *others = [_receive_one(notice, _read(notice, rules, part)) for part in parts]
    return replace(first, more=tuple(others), acknowledgement=rules.signing.acknowledgement)


def _receive_one(notice: Notice, event: SignedNotice) -> Taken:
    rule = _rule_of(event)
    if rule is None:
        _count_body(notice, WebhookRefusal.OTHER_TYPE)
        if event.rules.signing.covers_body:
            return Taken(challenge=_challenge(event))
    if (known := _known(event)) is not None:
        return _again(known)
    taken = _take(event, rule)
    log.info("webhook_taken", account=event.account, notice=taken.event, outcome=str(taken.outcome))
    return taken


def _rules(account: str) -> WebhookRules:
    try:
        effective.refresh()
        rules = registry.webhook_rules(account)
    except registry.UnknownProvider:
        rules = None
    except DeclarationInvalid as error:
        # Nobody can say now whether there is such an account; the provider keeps its notice.
        raise WebhookNotReady("The provider files can't be used now.") from error
    if rules is None:
        raise NotFound("No provider account that takes notices has this address.")
    return rules


# --- reading -------------------------------------------------------------------------------------------


def _read(notice: Notice, rules: WebhookRules, part: Part) -> SignedNotice:
    """The notice's own id and type, and what may be read of it."""
    signing, document = rules.signing, part.document
    content = digest(part.content)
    given = part.id
    if part.id_elsewhere:
        given = text_at(signing.id_path, document)
        if given is None and signing.id_header is not None:
            given = notice.headers.get(signing.id_header.lower())
    usable = given is not None and 0 < len(given) <= EVENT_ID_LENGTH_MAX and given.isprintable()
    kind = text_at(signing.type_path, document)
    if kind is None and signing.type_header is not None:
        kind = notice.headers.get(signing.type_header.lower())
    return SignedNotice(
        account=notice.account,
        rules=rules,
        signed=part.signed,
        id=given if given is not None and usable else f"sha256:{content}",
        type="".join(one for one in kind or "" if one.isprintable())[:NAME_LENGTH],
        document=document,
        digest=content,
        length=len(part.content),
    )


def _rule_of(event: SignedNotice) -> EventRule | None:
    """The rule for this kind of notice; the first for a body that can't be read: it may be of any kind."""
    if event.document is MISSING:
        return event.rules.events[0]
    return next((rule for rule in event.rules.events if _fits(rule, event)), None)


def _fits(rule: EventRule, event: SignedNotice) -> bool:
    if rule.types and event.type not in rule.types:
        return False
    if rule.path is None:
        return True
    value = value_at(rule.path, event.document)
    text = "true" if value is True else "false" if value is False else text_at(rule.path, event.document)
    return text in rule.values


def _challenge(event: SignedNotice) -> str:
    asked = text_at(event.rules.signing.challenge_path, event.document) or ""
    return asked if len(asked) <= CHALLENGE_LENGTH_MAX else ""


# --- keeping -------------------------------------------------------------------------------------------


def _known(event: SignedNotice) -> WebhookEvent | None:
    same = Q(event_id=event.id) | Q(body_digest=event.digest)
    return WebhookEvent.objects.filter(same, provider_slug=event.account).first()


def _again(known: WebhookEvent) -> Taken:
    WebhookEvent.objects.filter(pk=known.pk).update(
        deliveries_count=F("deliveries_count") + 1, last_delivered_at=database_now()
    )
    return Taken(event=known.pk, outcome=WebhookOutcome(known.outcome), replayed=True)


def _take(event: SignedNotice, rule: EventRule | None) -> Taken:
    try:
        with transaction.atomic():
            return _take_new(event, rule)
    except IntegrityError:
        # The same one came in at the same time; whoever was first has it.
        known = _known(event)
        if known is None:
            raise
        return _again(known)


def _take_new(event: SignedNotice, rule: EventRule | None) -> Taken:
    if rule is None:
        # Another body would fit its signature, one of a kind that is used: it is kept, and so used up.
        return _keep_alone(event, WebhookOutcome.UNMATCHED, "It is of a type that isn’t used here.")
    record = value_at(rule.record, event.document)
    if not isinstance(record, dict):
        return _keep_alone(event, WebhookOutcome.UNREADABLE, "Its body doesn't have the declared form.")
    contract = rule.contract(account_of(event.account).contract)
    named = named_operation(event, rule, contract, record)
    reference = (text_at(contract.receipt.id, record) or "")[:REFERENCE_LENGTH_MAX]
    if named is None:
        summary = "It names no operation that was asked for here."
        return _keep_alone(event, WebhookOutcome.UNMATCHED, summary, reference=reference)
    operation_id, named_by = named
    # The run first, as everybody does: a row that refers to the operation would lock it before.
    locked = lock_operation(operation_id=operation_id, team=None)
    seen = judge_record(event, rule, contract, record, locked.operation, named_by)
    if seen is None:
        return _keep_alone(
            event, WebhookOutcome.UNREADABLE, f"Its record has no id at {contract.receipt.id}."
        )
    row = _insert(
        event, WebhookOutcome.EVIDENCE, seen.summary, operation=locked.operation, reference=reference
    )
    row.evidence = act_on(locked, event, seen)
    row.save(update_fields=["evidence"])
    return Taken(event=row.pk, outcome=WebhookOutcome.EVIDENCE)


def _keep_alone(event: SignedNotice, outcome: WebhookOutcome, summary: str, *, reference: str = "") -> Taken:
    row = _insert(event, outcome, summary, operation=None, reference=reference)
    return Taken(event=row.pk, outcome=outcome)


def _insert(
    event: SignedNotice, outcome: WebhookOutcome, summary: str, *, operation: Operation | None, reference: str
) -> WebhookEvent:
    """Insert the notice's row; a second one of the same id or content is an `IntegrityError`."""
    now = database_now()
    row = WebhookEvent.objects.create(
        id=new_id("whk"),
        provider_slug=event.account,
        event_id=event.id,
        event_type=event.type,
        outcome=outcome,
        summary=summary[:SUMMARY_LENGTH_MAX],
        reference="".join(one for one in reference if one.isprintable()),
        body_digest=event.digest,
        body_length=event.length,
        signed_at=event.signed.signed_at,
        received_at=now,
        last_delivered_at=now,
        operation=operation,
    )
    if operation is None:
        # Evidence has a leaf of its own.
        after = {"provider": event.account, "outcome": str(outcome), "body": event.digest}
        audit.append(audit.Event(action="webhook.kept", actor=WEBHOOK_ACTOR, subject=row.pk, after=after))
    _forget_old(now)
    return row


def _forget_old(now: datetime) -> None:
    """Forget notices that became no evidence and that nobody will deliver again."""
    old = WebhookEvent.objects.filter(operation__isnull=True, received_at__lt=now - KEPT)
    ids = list(old.order_by("received_at").values_list("pk", flat=True)[:FORGOTTEN_AT_ONCE_MAX])
    if ids:
        WebhookEvent.objects.filter(pk__in=ids).delete()


# --- counting ------------------------------------------------------------------------------------------


def _count_refused(notice: Notice, refusal: WebhookNotReady | WebhookForged | WebhookStale) -> None:
    match refusal:
        case WebhookNotReady():
            reason = WebhookRefusal.NOT_READY
        case WebhookForged():
            reason = WebhookRefusal.FORGED
        case WebhookStale():
            reason = WebhookRefusal.STALE
    _count_body(notice, reason)


def _count_body(notice: Notice, reason: WebhookRefusal) -> None:
    _count(
        notice.account,
        reason,
        length=len(notice.body),
        sent_from=notice.sent_from,
        content=digest(notice.body),
    )


def _count(account: str, reason: WebhookRefusal, *, length: int, sent_from: str, content: str = "") -> None:
    """One more of these in this hour: a row and a leaf for the first, a number for the others."""
    now = database_now()
    latest = {"last_at": now, "last_digest": content, "last_length": length, "last_from": sent_from[:45]}
    of = {
        "provider_slug": account,
        "reason": str(reason),
        "hour_at": now.replace(minute=0, second=0, microsecond=0),
    }
    with transaction.atomic():
        if WebhookRefusals.objects.filter(**of).update(count=F("count") + 1, **latest):
            return
        _, first = WebhookRefusals.objects.get_or_create(**of, defaults={"first_at": now, **latest})
        if not first:
            WebhookRefusals.objects.filter(**of).update(count=F("count") + 1, **latest)
            return
        after = {"provider": account, "reason": str(reason)}
        audit.append(audit.Event(action="webhook.refused", actor=WEBHOOK_ACTOR, after=after))
        WebhookRefusals.objects.filter(hour_at__lt=now - KEPT).delete()
