"""Tightening: an administrator holds a provider to less than it promises, at once and alone.

Never to more, and never back: trusting more takes an approval, because a wrong promise is a second effect
later. Which way is tighter is data (`strictness.RULES`). The only writer of `Tightening`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import ClassVar, Final

from django.db import models, transaction
from django.db.models import Case as If
from django.db.models import F, OuterRef, Q, Subquery, Value, When
from django.db.models.functions import Least

from reconciliation import effective
from reconciliation.contracts import ProviderAccount
from reconciliation.models import Case, Tightening
from reconciliation.providers import registry
from reconciliation.states import CaseState
from reconciliation.strictness import BY_FIELD, RULES, Held, Rule, Unit, held_to
from runs import account_access, audit
from runs.actors import Actor, ActorKind
from runs.journal.evidence import storable_text
from runs.locking import database_now
from runs.models import Operation
from runs.models import ProviderAccount as JournalAccount
from runs.refusals import Invalid, NotFound, Refusal

# As for a decision: a reason that an auditor can use has a few words in it.
REASON_LENGTH_MIN: Final = 10
REASON_LENGTH_MAX: Final = 4000


class LooseningNeedsApproval(Refusal):
    """Trusting a provider more than now takes an approval, and approvals of this kind don't exist yet."""

    word: ClassVar[str] = "loosening_needs_approval"


class ContractMoved(Refusal):
    """Somebody else tightened the account since the person looked; details say who, when and what."""

    word: ClassVar[str] = "contract_moved"


class NothingTightened(Refusal):
    """Every value given is the one in force already."""

    word: ClassVar[str] = "nothing_tightened"


def newest_of(account: str) -> Tightening | None:
    """The tightening in force, or None where only the built-in facts count."""
    return Tightening.objects.filter(account=account).order_by("-number").first()


def tighten(
    *,
    account: str,
    wanted: Mapping[str, Held],
    reason: str,
    seen_number: int,
    actor: Actor,
    actor_name: str = "",
    teams: Sequence[str] | None = None,
) -> Tightening:
    """Hold the account to these values from now on, beside what was tightened before. Owns its transaction.

    `wanted` names fields of `strictness.RULES`; durations are whole milliseconds. `seen_number` is that of
    the tightening that the person saw in force, 0 for none. To somebody of these `teams` an account of others
    isn't there; None asks for no team. Refuses in this order, having changed nothing:
    `NotFound`, `Invalid`, `ContractMoved`, `LooseningNeedsApproval`, `NothingTightened`. Attempts that were
    made before keep the quiet time that was fixed with them.
    """
    if teams is not None:
        account_access.require_open(account, teams=teams)
    if not could_be_declared(account):
        raise NotFound(f"No provider account “{account[:64]}” is declared.", account=account[:64])
    _check(wanted, reason, actor)
    with transaction.atomic():
        # One change of an account at a time, and none that an operation being saved would wait for.
        row = JournalAccount.objects.select_for_update(no_key=True).filter(pk=account).first()
        if row is None:
            raise NotFound(
                f"The journal doesn't know “{account}” yet: run manage.py sync_providers.",
                account=account,
            )
        declared = registry.account(account)
        newest = newest_of(account)
        _refuse_moved(newest, seen_number)
        held = dict(newest.values) if newest is not None else {}
        before = held_to(declared, held)
        changed = _changed(before, wanted)
        after = held_to(declared, {**held, **changed})
        _refuse_senseless(after, changed)
        made = Tightening.objects.create(
            account=account,
            number=seen_number + 1,
            values={**held, **changed},
            reason=storable_text(reason.strip()),
            actor=actor.id,
            actor_name=actor_name[:100],
            made_at=database_now(),
        )
        row.in_flight_ms = after.contract.in_flight_bound_ms
        row.save(update_fields=["in_flight_ms"])
        sort_queue_anew(account, after)
        audit.append(
            audit.Event(
                action="provider.tightened",
                actor=actor,
                subject=account,
                before={name: BY_FIELD[name].read(before) for name in changed},
                after={"number": made.number, **changed},
                reason=made.reason,
            )
        )
        transaction.on_commit(effective.forget)
    return made


def could_be_declared(account: str) -> bool:
    """Whether an account of this slug is declared now."""
    return any(one.slug == account for one in effective.all_accounts())


def _check(wanted: Mapping[str, Held], reason: str, actor: Actor) -> None:
    if actor.kind is not ActorKind.PERSON:
        raise Invalid("Only a person tightens a contract.", where="actor")
    if not REASON_LENGTH_MIN <= len(reason.strip()) <= REASON_LENGTH_MAX:
        raise Invalid(
            f"Give a reason of {REASON_LENGTH_MIN} to {REASON_LENGTH_MAX} characters.", where="reason"
        )
    for name, value in wanted.items():
        rule = BY_FIELD.get(name)
        if rule is None:
            known = ", ".join(one.field for one in RULES)
            raise Invalid(f"“{name[:60]}” can't be tightened. What can: {known}.", where=name[:60])
        _check_value(rule, value)


def _check_value(rule: Rule, value: Held) -> None:
    if rule.unit is Unit.SWITCH:
        if not isinstance(value, bool):
            raise Invalid("This is a yes or a no.", where=rule.field)
        return
    whole = isinstance(value, int) and not isinstance(value, bool)
    if rule.unit is Unit.MILLISECONDS and not whole:
        raise Invalid("This is a whole number of milliseconds.", where=rule.field)
    number = whole or (isinstance(value, float) and math.isfinite(value))
    if not number or value is None or not rule.low <= value <= rule.high:
        raise Invalid(f"This must be between {rule.low:g} and {rule.high:g}.", where=rule.field)


def _refuse_moved(newest: Tightening | None, seen_number: int) -> None:
    number = newest.number if newest is not None else 0
    if number == seen_number:
        return
    if newest is None:
        raise ContractMoved("Nothing is tightened here; the page showed something else.", number=0)
    raise ContractMoved(
        f"{newest.actor_name or newest.actor} tightened this account while you were deciding.",
        number=number,
        by=newest.actor_name or newest.actor,
        at=newest.made_at.isoformat(),
        their_reason=newest.reason,
    )


def _changed(before: ProviderAccount, wanted: Mapping[str, Held]) -> dict[str, Held]:
    """What is really tighter; refuses what is looser, and a change of nothing."""
    changed: dict[str, Held] = {}
    looser: list[str] = []
    for name, value in wanted.items():
        rule = BY_FIELD[name]
        current = rule.read(before)
        if value == current:
            continue
        if not rule.applies(before):
            raise Invalid("This account promises nothing here that could be tightened.", where=name)
        if rule.is_tighter(current, value):
            changed[name] = value
        else:
            looser.append(name)
    if looser:
        raise LooseningNeedsApproval(
            "That would trust the provider more than now. It needs an approval, and approvals of this kind "
            "don't exist yet. Nothing was changed.",
            fields=looser,
        )
    if not changed:
        raise NothingTightened("Nothing here is tighter than what is in force already.")
    return changed


def _refuse_senseless(after: ProviderAccount, changed: Mapping[str, Held]) -> None:
    contract = after.contract
    if contract.dedup_window_ms is not None and contract.window_margin_ms >= contract.dedup_window_ms:
        where = "dedup_window_ms" if "dedup_window_ms" in changed else "window_margin_ms"
        raise Invalid(
            "The margin would be as long as the window. To rely on no window at all, stop trusting it.",
            where=where,
        )


def sort_queue_anew(slug: str, account: ProviderAccount) -> None:
    """A shorter window makes open cases worse sooner; the queue is sorted by what a case's row says."""
    contract = account.contract
    first_sent = Subquery(Operation.objects.filter(pk=OuterRef("operation_id")).values("first_sent_at")[:1])
    open_cases = Case.objects.filter(provider_slug=slug).exclude(state=CaseState.RESOLVED)
    # Who put a case off did so by the longer window.
    open_cases.filter(snoozed_until_at__isnull=False).update(snoozed_until_at=None)
    if contract.dedup_window_ms is None:
        open_cases.exclude(key_ends_at=None).update(key_ends_at=None, worsens_at=F("decide_by_at"))
        return
    window = timedelta(milliseconds=contract.dedup_window_ms - contract.window_margin_ms)
    open_cases.exclude(key_ends_at=None).update(
        key_ends_at=models.ExpressionWrapper(
            first_sent + Value(window), output_field=models.DateTimeField(null=True)
        )
    )
    future = Q(key_ends_at__gt=F("opened_at"))
    open_cases.exclude(key_ends_at=None).update(
        worsens_at=If(When(future, then=Least("decide_by_at", "key_ends_at")), default=F("decide_by_at"))
    )
