"""What a second person may be asked about a run: its limit, its approval, its flow version, what it holds.

Each kind says what rests on what: `facts` is asked at the request and again when it is approved. The checks
of the journal (`runs.journal.consenting`) are part of it: what can't be done can't be asked for.
What is done is the approver's act, on the requester's reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, ClassVar, Final

from reconciliation.approval_kinds import Consent, Held, Kind
from reconciliation.approval_models import ApprovalDeed, ApprovalKind
from reconciliation.models import Case
from reconciliation.states import CaseState
from runs.canonical import canonicalise
from runs.journal import consenting
from runs.locking import LockedOperation
from runs.models import Evidence, Operation, Run
from runs.money import Money, format_money, parse_money
from runs.refusals import Invalid, Refusal
from runs.states import OperationState, Reservation

# Operations that a fact names one by one; a turn has no more calls than a few of these.
WAITING_MAX: Final = 50
KEEP, MOVE = "keep", "move"


class HeldInQuestion(Refusal):
    """A case about the operation is open: whether its amount is spent is the question there."""

    word: ClassVar[str] = "held_in_question"


# --- Budget ---------------------------------------------------------------------------------------------


def raise_parameters(*, limit: Money) -> dict[str, Any]:
    """The parameters of a budget raise: the new limit."""
    return {"limit": limit.as_json()}


def waiting_operations(run: Run) -> list[tuple[str, int]]:
    """The operations that wait to be sent and would take from the budget: id and minor units, in order."""
    waiting = Operation.objects.filter(
        run=run, state=OperationState.READY, reservation=Reservation.NONE, amount_minor__isnull=False
    ).order_by("turn_index", "position")
    return [(pk, minor or 0) for pk, minor in waiting.values_list("pk", "amount_minor")[:WAITING_MAX]]


def _raise_facts(held: Held, parameters: Mapping[str, Any]) -> dict[str, Any]:
    run, limit = held.run, parse_money(parameters.get("limit"), where="limit")
    consenting.check_raise(run, limit_minor=limit.minor, currency=limit.currency)
    return {
        "currency": run.budget_currency,
        "limit_minor": run.budget_limit_minor,
        "spent_minor": run.budget_spent_minor,
        "reserved_minor": run.budget_reserved_minor,
        "held_minor": run.budget_held_minor,
        "waiting": [list(one) for one in waiting_operations(run)],
    }


def _raise_title(parameters: Mapping[str, Any]) -> str:
    return f"Raise the budget limit to {format_money(parse_money(parameters['limit']))}"


def _raise(held: Held, consent: Consent) -> None:
    limit = parse_money(consent.parameters["limit"])
    consenting.raise_limit(
        held.locked_run,
        limit_minor=limit.minor,
        currency=limit.currency,
        actor=consent.approver.actor,
        reason=_why(consent),
    )


# --- Approval -------------------------------------------------------------------------------------------


def renewal_parameters(*, expires_at: datetime) -> dict[str, Any]:
    """The parameters of a renewal: until when the new approval is to hold."""
    return {"expires_at": expires_at.isoformat()}


def _until(parameters: Mapping[str, Any]) -> datetime:
    try:
        at = datetime.fromisoformat(str(parameters.get("expires_at")))
    except ValueError as error:
        raise Invalid("expires_at must be an instant.", where="expires_at") from error
    if at.tzinfo is None:
        raise Invalid("expires_at must say its offset from UTC.", where="expires_at")
    return at


def _renewal_facts(held: Held, parameters: Mapping[str, Any]) -> dict[str, Any]:
    run = held.run
    consenting.check_renewal(run, expires_at=_until(parameters), now=held.now)
    return {
        "approval": run.approval_id,
        "until": run.approval_until_at.isoformat() if run.approval_until_at is not None else "",
    }


def _renewal_title(parameters: Mapping[str, Any]) -> str:
    return f"Renew the run’s approval until {_until(parameters):%Y-%m-%d %H:%M} UTC"


def _renew(held: Held, consent: Consent) -> None:
    consenting.renew_approval(
        held.locked_run,
        expires_at=_until(consent.parameters),
        subject=consent.approval.reason,
        actor=consent.approver.actor,
        reason=_why(consent),
    )


# --- Flow version ---------------------------------------------------------------------------------------


def keep_parameters(*, wait_seconds: int) -> dict[str, Any]:
    """The parameters of keeping the pin: how long its worker is awaited before anybody is asked again."""
    return {"do": KEEP, "wait_seconds": wait_seconds}


def move_parameters(*, version: str, digest: str) -> dict[str, Any]:
    """The parameters of moving the run: the version, and the digest that it is on record with."""
    return {"do": MOVE, "version": version, "digest": digest}


def _wait_seconds(parameters: Mapping[str, Any]) -> int:
    seconds = parameters.get("wait_seconds")
    whole = isinstance(seconds, int) and not isinstance(seconds, bool)
    if whole and consenting.WAIT_SECONDS_MIN <= int(seconds or 0) <= consenting.WAIT_SECONDS_MAX:
        return int(seconds or 0)
    raise Invalid("A kept version is waited for from a minute to a week.", where="wait_seconds")


def _version_facts(held: Held, parameters: Mapping[str, Any]) -> dict[str, Any]:
    run = held.run
    pinned = run.flow_version
    facts: dict[str, Any] = {
        "version": pinned.version,
        "digest": pinned.digest,
        "turn": run.turn_index,
        "settled": run.turn_settled,
    }
    match parameters.get("do"):
        case "keep":
            _wait_seconds(parameters)
            consenting.check_awaited(run)
        case "move":
            consenting.check_move(run)
            to = consenting.version_to_move_to(
                run, version=str(parameters.get("version", "")), digest=str(parameters.get("digest", ""))
            )
            facts |= {"to": to.version, "to_digest": to.digest}
        case _:
            raise Invalid("Say whether the version is kept or the run is moved.", where="do")
    return facts


def _version_title(parameters: Mapping[str, Any]) -> str:
    if parameters.get("do") == MOVE:
        return f"Move the run to version {parameters['version']}"
    return f"Keep the run's flow version, and wait {_span(_wait_seconds(parameters))} for its worker"


def _span(seconds: int) -> str:
    for size, word in ((86_400, "day"), (3_600, "hour"), (60, "minute")):
        if seconds % size == 0:
            count = seconds // size
            return f"{count} {word}{'' if count == 1 else 's'}"
    return f"{seconds} seconds"


def _settle_version(held: Held, consent: Consent) -> None:
    parameters = consent.parameters
    if parameters["do"] == MOVE:
        consenting.move_to_version(
            held.locked_run,
            version=parameters["version"],
            digest=parameters["digest"],
            actor=consent.approver.actor,
            reason=_why(consent),
        )
    else:
        consenting.keep_version(
            held.locked_run,
            wait_seconds=_wait_seconds(parameters),
            actor=consent.approver.actor,
            reason=_why(consent),
        )


# --- What is held ---------------------------------------------------------------------------------------


def free_parameters(*, amount: Money) -> dict[str, Any]:
    """The parameters of freeing what an abandoned operation holds: the amount, as it was seen."""
    return {"amount": amount.as_json()}


def _operation(held: Held) -> LockedOperation:
    if held.operation is None:
        raise Invalid("Name the operation whose amount is held.", where="operation")
    return held.operation


def _free_facts(held: Held, parameters: Mapping[str, Any]) -> dict[str, Any]:
    operation = _operation(held).operation
    seen = parse_money(parameters.get("amount"), where="amount")
    if operation.reservation != Reservation.HELD:
        raise consenting.NothingHeld(f"Operation {operation.pk} holds no amount.", operation=operation.pk)
    holds = (operation.amount_currency, operation.settled_minor)
    if (seen.currency, seen.minor) != holds:
        raise consenting.NothingHeld(
            f"Operation {operation.pk} holds another amount than this.", operation=operation.pk
        )
    open_case = Case.objects.filter(operation=operation).exclude(state=CaseState.RESOLVED).first()
    if open_case is not None:
        raise HeldInQuestion(
            f"Case {open_case.pk} about this operation is open: its decision says what is booked.",
            operation=operation.pk,
            case=open_case.pk,
        )
    told = Evidence.objects.filter(operation=operation).order_by("digest").values_list("digest", flat=True)
    return {
        "held_minor": operation.settled_minor,
        "currency": operation.amount_currency,
        "known_effect": operation.known_effect,
        "evidence": canonicalise(list(told.distinct())).digest,
    }


def _free_title(parameters: Mapping[str, Any]) -> str:
    return f"Free the {format_money(parse_money(parameters['amount']))} that an abandoned operation holds"


def _free(held: Held, consent: Consent) -> None:
    consenting.free_held(_operation(held), actor=consent.approver.actor, reason=_why(consent))


# --- All of them ----------------------------------------------------------------------------------------


def _why(consent: Consent) -> str:
    """Both people's words, for the leaf of what was done."""
    asked_by = consent.requester.name or consent.requester.actor.id
    approved_by = consent.approver.name or consent.approver.actor.id
    return f"{asked_by} asked: {consent.approval.reason}\n{approved_by} approved: {consent.comment}"


def _of_run(kind: ApprovalKind) -> Any:
    return lambda held: f"run:{held.run.pk}:{kind}"


def _of_operation(kind: ApprovalKind) -> Any:
    return lambda held: f"operation:{_operation(held).operation.pk}:{kind}"


_BUDGET_WORDS: Final = {
    "limit_minor": "the limit in minor units",
    "spent_minor": "what was spent in minor units",
    "reserved_minor": "what is reserved in minor units",
    "held_minor": "what is held in minor units",
    "waiting": "what waits to be sent",
}
_VERSION_WORDS: Final = {
    "version": "the pinned version",
    "digest": "the pinned version's digest",
    "turn": "the run's turn",
    "settled": "how many calls of the turn are settled",
    "to_digest": "the other version's digest",
}

KINDS: Final[Mapping[ApprovalKind, Kind]] = {
    ApprovalKind.BUDGET_RAISE: Kind(
        kind=ApprovalKind.BUDGET_RAISE,
        deed=ApprovalDeed.REQUEST,
        subject=_of_run(ApprovalKind.BUDGET_RAISE),
        title=_raise_title,
        facts=_raise_facts,
        fact_words=_BUDGET_WORDS,
        carry_out=_raise,
    ),
    ApprovalKind.APPROVAL_RENEWAL: Kind(
        kind=ApprovalKind.APPROVAL_RENEWAL,
        deed=ApprovalDeed.REQUEST,
        subject=_of_run(ApprovalKind.APPROVAL_RENEWAL),
        title=_renewal_title,
        facts=_renewal_facts,
        fact_words={"approval": "the run's approval", "until": "until when the run's approval holds"},
        carry_out=_renew,
    ),
    ApprovalKind.FLOW_VERSION: Kind(
        kind=ApprovalKind.FLOW_VERSION,
        deed=ApprovalDeed.REQUEST,
        subject=_of_run(ApprovalKind.FLOW_VERSION),
        title=_version_title,
        facts=_version_facts,
        fact_words=_VERSION_WORDS,
        carry_out=_settle_version,
    ),
    ApprovalKind.HELD_FREED: Kind(
        kind=ApprovalKind.HELD_FREED,
        deed=ApprovalDeed.REQUEST,
        subject=_of_operation(ApprovalKind.HELD_FREED),
        title=_free_title,
        facts=_free_facts,
        fact_words={
            "held_minor": "what is held in minor units",
            "known_effect": "what is known of the effect",
            "evidence": "what is known about it",
        },
        carry_out=_free,
    ),
}
