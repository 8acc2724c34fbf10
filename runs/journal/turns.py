"""Save what the model decided before any of it starts, and what its reads returned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from django.db import transaction
from django.db.models import Q

from runs import account_access, audit
from runs.actors import Actor, ActorKind
from runs.canonical import Canonical, canonicalise
from runs.ids import check_client_id, new_id
from runs.keys import mint_key
from runs.leases import require_token
from runs.locking import Locked, lock_run
from runs.models import NAME_LENGTH, Call, Operation, ProviderAccount, Run, Turn
from runs.money import Money
from runs.refusals import Invalid, NotFound, Refusal
from runs.states import OperationState

# A turn is one model decision: nobody has seen a hundred useful tool calls in one.
CALLS_MAX = 100


class TurnAlreadyDecided(Refusal):
    """This turn is on record with other content. The first decision stands; ask the plan for it."""

    word: ClassVar[str] = "turn_already_decided"


class ResultAlreadySaved(Refusal):
    """This read's result is on record with other content. The first result stands."""

    word: ClassVar[str] = "turn_already_decided"


class PreviousTurnOpen(Refusal):
    """The turn before has calls that aren't settled, reads without results included."""

    word: ClassVar[str] = "previous_turn_open"


@dataclass(frozen=True, kw_only=True)
class CallChosen:
    """One call as the model chose it. `provider` and `amount` belong to effects only."""

    call_id: str
    tool: str
    effect: bool
    args: Any
    provider: str = ""
    amount: Money | None = None

    def as_json(self) -> dict[str, Any]:
        return {
            "call_id": self.call_id,
            "tool": self.tool,
            "effect": self.effect,
            "provider": self.provider or None,
            "args": self.args,
            "amount": self.amount.as_json() if self.amount else None,
        }


@dataclass(frozen=True)
class TurnSaved:
    run_id: str
    index: int
    replayed: bool


def save_turn(
    *,
    team: str,
    run_id: str,
    token: str,
    index: int,
    decision: Any,
    parallel: bool,
    calls: tuple[CallChosen, ...],
) -> TurnSaved:
    """Save the decision of turn `index` (from 1) and mint the operation of each effect, all or nothing.

    The same content again is accepted under any valid token; other content raises `TurnAlreadyDecided`.
    Turn n+1 is refused with `PreviousTurnOpen` until every call of turn n is settled, and an account that the
    team may not use with `AccountNotFound`, as one that there isn't. Owns its transaction.
    """
    content = canonicalise(
        {"decision": decision, "parallel": parallel, "calls": [call.as_json() for call in calls]}
    )
    decided = canonicalise(decision)
    with transaction.atomic():
        locked = lock_run(run_id=run_id, team=team)
        require_token(locked, token)
        run = locked.run
        saved = Turn.objects.filter(run=run, index=index).first()
        if saved is not None:
            if saved.digest != content.digest:
                raise TurnAlreadyDecided(
                    f"Turn {index} of run {run.id} is on record with another decision.",
                    run=run.id,
                    turn=index,
                )
            return TurnSaved(run.id, index, replayed=True)
        _check_next(run, index)
        _check_calls(run, calls)
        _insert_turn(locked, index, decided, content.digest, parallel, calls)
        return TurnSaved(run.id, index, replayed=False)


def _check_next(run: Run, index: int) -> None:
    if run.turn_settled < run.turn_calls:
        raise PreviousTurnOpen(
            f"Turn {run.turn_index} of run {run.id} has {run.turn_calls - run.turn_settled} calls that "
            "aren't settled.",
            run=run.id,
            turn=run.turn_index,
        )
    if index != run.turn_index + 1:
        raise Invalid(f"The next turn of run {run.id} is {run.turn_index + 1}.", where="index")


def _check_calls(run: Run, calls: tuple[CallChosen, ...]) -> None:
    if len(calls) > CALLS_MAX:
        raise Invalid(f"A turn has at most {CALLS_MAX} calls.", where="calls")
    seen: set[str] = set()
    for position, call in enumerate(calls):
        where = f"calls/{position}"
        check_client_id(call.call_id, where=f"{where}/call_id")
        if call.call_id in seen:
            raise Invalid(f"Call id {call.call_id} is used twice in this turn.", where=f"{where}/call_id")
        seen.add(call.call_id)
        if not call.tool.strip() or len(call.tool) > NAME_LENGTH:
            raise Invalid(f"tool must be text of 1 to {NAME_LENGTH} characters.", where=f"{where}/tool")
        if call.effect and not call.provider:
            raise Invalid("An effect names the provider account it is sent to.", where=f"{where}/provider")
        if not call.effect and (call.provider or call.amount):
            raise Invalid("A read has no provider account and no amount.", where=where)
        if call.amount and run.budget_currency and call.amount.currency != run.budget_currency:
            raise Invalid(
                f"The run's budget is in {run.budget_currency}; an amount in {call.amount.currency} "
                "can't be held against it.",
                where=f"{where}/amount/currency",
            )


def _insert_turn(
    locked: Locked, index: int, decided: Canonical, digest: str, parallel: bool, calls: tuple[CallChosen, ...]
) -> None:
    run = locked.run
    order = "parallel" if parallel else "ordered"
    accounts = _accounts(run, calls)
    turn = Turn.objects.create(run=run, index=index, decision=decided.bytes, digest=digest, parallel=order)
    contents = [canonicalise(call.args) for call in calls]
    rows = Call.objects.bulk_create(
        Call(
            turn=turn,
            run=run,
            call_id=call.call_id,
            position=position,
            tool=call.tool,
            kind="effect" if call.effect else "read",
            args=content.bytes,
            args_digest=content.digest,
        )
        for position, (call, content) in enumerate(zip(calls, contents, strict=True))
    )
    operations = Operation.objects.bulk_create(
        _operation(run, index, call, row, content, accounts[call.provider])
        for call, row, content in zip(calls, rows, contents, strict=True)
        if call.effect
    )
    run.turn_index, run.turn_parallel = index, order
    run.turn_calls, run.turn_settled, run.turn_settled_through = len(calls), 0, 0
    run.save(
        update_fields=["turn_index", "turn_parallel", "turn_calls", "turn_settled", "turn_settled_through"]
    )
    audit.append(
        audit.Event(
            action="turn.saved",
            actor=Actor(ActorKind.WORKER, run.lease_holder),
            team=run.team_id,
            run=run.id,
            after={
                "turn": index,
                "content": digest,
                "calls": len(calls),
                "operations": [
                    {"id": one.id, "key": one.key, "payload": one.payload_digest} for one in operations
                ],
            },
        )
    )


def _accounts(run: Run, calls: tuple[CallChosen, ...]) -> Mapping[str, ProviderAccount]:
    """The accounts that the calls name, held: closing one to the team waits, or was before this turn."""
    named = {call.provider for call in calls if call.effect}
    accounts = account_access.hold_usable(named, team=run.team_id)
    for position, call in enumerate(calls):
        if call.effect and call.provider not in accounts:
            raise account_access.not_there(call.provider, where=f"calls/{position}/provider")
    return accounts


def _operation(
    run: Run, index: int, call: CallChosen, row: Call, content: Canonical, account: ProviderAccount
) -> Operation:
    key = mint_key(
        team=run.team_id,
        provider=account.slug,
        flow=run.flow.name,
        external_id=run.external_id,
        turn_index=index,
        call_id=call.call_id,
    )
    return Operation(
        id=new_id("op"),
        run=run,
        team_id=run.team_id,
        call=row,
        turn_index=index,
        position=row.position,
        tool=call.tool,
        provider=account,
        key=key,
        payload=content.bytes,
        payload_digest=content.digest,
        amount_currency=call.amount.currency if call.amount else "",
        amount_minor=call.amount.minor if call.amount else None,
    )


def unsettled_before(run: Run, *, position: int) -> Call | None:
    """Return the first call of an ordered current turn that must be settled before `position` may start."""
    if run.turn_parallel != "ordered":
        return None
    return (
        Call.objects.filter(run=run, turn__index=run.turn_index, position__lt=position)
        .filter(
            Q(kind="read", result_at__isnull=True)
            | Q(kind="effect", operation__state__in=[OperationState.READY, OperationState.SENT_UNKNOWN])
        )
        .order_by("position")
        .first()
    )


def count_settled(run: Run, *, position: int) -> None:
    """Count one more settled call of the current turn on its row, which the caller has locked and saves."""
    run.turn_settled += 1
    if position == run.turn_settled_through:
        run.turn_settled_through += 1


@dataclass(frozen=True)
class ResultSaved:
    call_id: str
    digest: str
    replayed: bool


def save_result(*, team: str, run_id: str, token: str, index: int, call_id: str, result: Any) -> ResultSaved:
    """Save what a read returned. The same result again is accepted; another raises `ResultAlreadySaved`.

    In an ordered turn a read waits for the calls before it. Owns its transaction.
    """
    content = canonicalise(result)
    with transaction.atomic():
        locked = lock_run(run_id=run_id, team=team)
        require_token(locked, token)
        run = locked.run
        call = Call.objects.select_for_update().filter(run=run, turn__index=index, call_id=call_id).first()
        if call is None:
            raise NotFound(f"Run {run.id} has no call {call_id} in turn {index}.", call=call_id)
        if call.kind != "read":
            raise Invalid(
                "An effect is settled by its operation's receipt, not by a result.", where="call_id"
            )
        if call.result_at is not None:
            if call.result_digest != content.digest:
                raise ResultAlreadySaved(f"Call {call_id} already has another result.", call=call_id)
            return ResultSaved(call_id, content.digest, replayed=True)
        waiting_for = unsettled_before(run, position=call.position)
        if waiting_for is not None:
            raise PreviousTurnOpen(
                f"Call {call_id} comes after call {waiting_for.call_id}, which isn't settled.",
                turn=index,
                blocked_by=waiting_for.call_id,
            )
        Call.objects.filter(pk=call.pk, result_at__isnull=True).update(
            result=content.bytes, result_digest=content.digest, result_at=locked.now
        )
        count_settled(run, position=call.position)
        run.save(update_fields=["turn_settled", "turn_settled_through"])
        audit.append(
            audit.Event(
                action="read.saved",
                actor=Actor(ActorKind.WORKER, run.lease_holder),
                team=run.team_id,
                run=run.id,
                after={"turn": index, "call": call_id, "result": content.digest},
            )
        )
        return ResultSaved(call_id, content.digest, replayed=False)
