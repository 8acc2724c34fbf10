"""Does this receipt prove this operation? Names it, equals its payload, and says that it has succeeded.

The same comparison serves a direct reply, a lookup, and a receipt that a worker or a person submits. Values
are compared as they came; what is kept and shown of them is redacted and bounded.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, assert_never

from reconciliation.contracts import (
    AmountForm,
    AmountMust,
    CompareAs,
    Contract,
    MatchField,
    ReferenceForm,
    ReplyShows,
)
from reconciliation.providers.base import (
    FieldComparison,
    MatchedBy,
    Receipt,
    ReceiptMatch,
    ReceiptState,
)
from reconciliation.providers.comparing import minor_of_decimal, same, scalar
from reconciliation.providers.paths import MISSING, Missing, text_at, value_at
from reconciliation.providers.redaction import Redactor
from reconciliation.providers.templates import Template, Values, ValueUnusable
from runs.canonical import canonical_bytes, parse
from runs.money import Money
from runs.refusals import Refusal

# What is shown of one compared value; a longer one ends in the start of its digest, so it stays distinct.
VALUE_LENGTH_MAX = 200
# Longer ids than this are refused as references: the database keeps each as a key.
REFERENCE_LENGTH_MAX = 255
_EVERY_MEMBER: Final = "$.*"


@dataclass(frozen=True, kw_only=True, slots=True)
class Subject:
    """The operation that a receipt is held against; its payload is any JSON value, most often an object."""

    operation_id: str
    key: str
    tool: str
    payload: Any
    amount: Money | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """A record as read. `foreign`: it carries a key or reference, and it isn't ours."""

    receipt: Receipt
    foreign: bool

    @property
    def carries_nothing(self) -> bool:
        """Whether nothing ties it to any operation: at best it looks alike."""
        return not self.foreign and not self.receipt.named


def match_receipt(
    *,
    contract: Contract,
    operation_id: str,
    payload: Any,
    key: str,
    amount: Money | None,
    reference: str | None,
    body: object,
    named_by_reply: bool,
    tool: str = "",
    redactor: Redactor | None = None,
    shown: bool = True,
) -> ReceiptMatch:
    """Hold a submitted receipt against the operation; `ReceiptMatch.problems` says why it doesn't confirm.

    `body` is a JSON object, or its text or bytes, which are read strictly. `reference` is what the submitter
    says the receipt's id is; None takes the body's word. `named_by_reply` is True only for the reply to the
    operation's own attempt: it names the operation where the provider echoes neither key nor reference.
    Without `shown` it only judges: nothing of the receipt is prepared to be kept or read by anybody, which
    is most of the work, and its problems name no values. Raises nothing for what the receipt holds.
    """
    subject = Subject(operation_id=operation_id, key=key, tool=tool, payload=payload, amount=amount)
    record = _as_object(body)
    if record is None:
        return _unreadable(reference, "The receipt's body is not a JSON object that can be read safely.")
    inside = value_at(contract.receipt.answer_at, dict(record))
    record = inside if isinstance(inside, dict) else record
    reading = read_record(
        record,
        contract=contract,
        subject=subject,
        named_by_reply=named_by_reply,
        redactor=redactor or Redactor() if shown else None,
    )
    if reading is None:
        return _unreadable(reference, f"The receipt has no id at {contract.receipt.id}.")
    problems = list(_problems(reading, contract=contract, named_by_reply=named_by_reply))
    if reference is not None and reference != reading.receipt.reference:
        problems.insert(0, "The reference that was given is not the id in the receipt.")
    return ReceiptMatch(receipt=reading.receipt, problems=tuple(problems))


def read_record(
    record: Mapping[str, Any],
    *,
    contract: Contract,
    subject: Subject,
    named_by_reply: bool,
    redactor: Redactor | None,
    key_beside: str | None = None,
) -> Reading | None:
    """Read one record of the provider's against the operation; None if it has no usable id.

    Without a redactor it only judges: nothing of the record's text is in what it returns but the reference.

    `key_beside` is the key of the request that the record stands beside, in an event: if it is ours, so is
    the record; if not, that says nothing, for others may have changed it since.
    """
    paths = contract.receipt
    reference = text_at(paths.id, record)
    if not reference or len(reference) > REFERENCE_LENGTH_MAX or not reference.isprintable():
        return None
    if redactor is not None:
        redactor = redactor.keeping(subject.key, reference)
    matched_by, foreign = _named_by(record, contract, subject, named_by_reply=named_by_reply)
    if key_beside is not None and key_beside == subject.key:
        matched_by, foreign = MatchedBy.KEY, False
    partial = named_by_reply and contract.receipt.reply is ReplyShows.PART
    amount, amount_comparison = _amount(record, contract, subject)
    comparisons = [
        _compare(one, intended, seen, amount=subject.amount, redactor=redactor)
        for one, intended, seen in _pairs(contract.match_fields, subject.payload, record)
        if not (partial and isinstance(seen, Missing))
    ]
    state, status = _state(record, contract, partial=partial)
    return Reading(
        receipt=Receipt(
            reference=reference,
            body={} if redactor is None else redactor.value(dict(record)),
            amount=amount,
            state=state,
            status="" if redactor is None else _bounded(redactor.scalar_text(status)),
            matched_by=matched_by,
            comparisons=(*comparisons, *amount_comparison),
        ),
        foreign=foreign,
    )


def our_reference(contract: Contract, subject: Subject) -> str | None:
    """The reference that travelled in the request, None where there is none for this operation."""
    if contract.receipt.our_reference is None:
        return None
    values = Values(
        key=subject.key, operation=subject.operation_id, tool=subject.tool, payload=subject.payload
    )
    try:
        return Template(contract.receipt.our_reference).text(values) or None
    except ValueUnusable:
        return None


def _named_by(
    record: Mapping[str, Any], contract: Contract, subject: Subject, *, named_by_reply: bool
) -> tuple[MatchedBy | None, bool]:
    """What ties the record to the operation, and whether it carries somebody else's name instead.

    A key that isn't ours outweighs a reference that is: references can repeat, keys are ours alone.
    """
    paths = contract.receipt
    seen_key = text_at(paths.key, record)
    if seen_key is not None:
        return (MatchedBy.KEY, False) if seen_key == subject.key else (None, True)
    ours = our_reference(contract, subject)
    seen_reference = text_at(paths.reference, record)
    if seen_reference is not None and ours is not None:
        told = _told_by_reference(seen_reference, ours, contract)
        if told is not None:
            return told
    offers_more = paths.key is not None or (paths.reference is not None and ours is not None)
    if paths.reply is ReplyShows.PART:
        offers_more = False
    if named_by_reply and not offers_more:
        return MatchedBy.REPLY_ONLY, False
    return None, False


def _told_by_reference(seen: str, ours: str, contract: Contract) -> tuple[MatchedBy | None, bool] | None:
    """Whose the reference is that was seen; None where a text carries no marker at all."""
    match contract.receipt.reference_form:
        case ReferenceForm.WHOLE:
            return (MatchedBy.REFERENCE, False) if seen == ours else (None, True)
        case ReferenceForm.WITHIN:
            if ours in seen:
                return MatchedBy.REFERENCE, False
            before, _, rest = (contract.receipt.our_reference or "").partition("{")
            after = rest.partition("}")[2]
            others = re.escape(before) + r"[A-Za-z0-9_.:-]{1,64}" + re.escape(after)
            return (None, True) if re.search(others, seen) else None
        case _:
            assert_never(contract.receipt.reference_form)


def _problems(reading: Reading, *, contract: Contract, named_by_reply: bool) -> Iterator[str]:
    receipt = reading.receipt
    if reading.foreign:
        yield "The receipt carries another key or reference than this operation's."
    elif not receipt.named:
        offered = contract.receipt.key is not None or contract.receipt.reference is not None
        yield (
            "The receipt carries neither this operation's key nor its reference."
            if offered or not named_by_reply
            else "Nothing ties the receipt to this operation."
        )
    for one in receipt.differences:
        yield f"{one.path} was sent as {one.intended}, and the receipt says {one.seen or 'nothing'}."
    match receipt.state:
        case ReceiptState.SUCCEEDED:
            return
        case ReceiptState.PENDING:
            yield (
                f"The receipt says “{receipt.status}”, which is not success yet."
                if receipt.status
                else "The receipt doesn't say that it succeeded."
            )
        case ReceiptState.REFUSED:
            yield f"The receipt says “{receipt.status}”: it ended without effect."
        case _:
            assert_never(receipt.state)


def _state(
    record: Mapping[str, Any], contract: Contract, *, partial: bool = False
) -> tuple[ReceiptState, str]:
    rule = contract.success_when
    if rule is None:
        return ReceiptState.SUCCEEDED, ""
    value = value_at(rule.path, record)
    if partial and isinstance(value, Missing):
        # The reply says that it was taken and no more, and the contract knows that it never does.
        return ReceiptState.SUCCEEDED, ""
    status = "true" if value is True else "false" if value is False else text_at(rule.path, record) or ""
    if status in rule.succeeded:
        return ReceiptState.SUCCEEDED, status
    return (ReceiptState.REFUSED if status in rule.refused else ReceiptState.PENDING), status


# --- comparing -------------------------------------------------------------------------------------------


def _pairs(
    fields: tuple[MatchField, ...], payload: Any, record: Mapping[str, Any]
) -> Iterator[tuple[MatchField, Any, Any]]:
    """Each comparison to make, with what was sent and what is seen (or `MISSING`).

    `$.*` on both sides stands for every member of the payload, each held against the member of its name; a
    payload that has no members is held whole against nothing, since a record can't show it.
    A field that the payload doesn't have is left out: what wasn't asked for is the provider's to choose.
    """
    for one in fields:
        if one.payload == _EVERY_MEMBER and one.answer == _EVERY_MEMBER:
            if not isinstance(payload, Mapping):
                yield MatchField(payload="$", answer="$"), payload, MISSING
                continue
            for name, intended in payload.items():
                yield _member(name, one.compare), intended, record.get(name, MISSING)
        else:
            intended = value_at(one.payload, payload)
            if not isinstance(intended, Missing):
                yield one, intended, value_at(one.answer, dict(record))


# Payloads of one tool have the same members, and there are few tools. Names are a sender's, so it is bounded.
@lru_cache(maxsize=1024)
def _member(name: str, compare: CompareAs) -> MatchField:
    """The comparison of one member of the payload with the member of the answer that has its name."""
    path = f"$.{name}" if name.isidentifier() else f"$[{json.dumps(name, ensure_ascii=False)}]"
    return MatchField(payload=path, answer=path, compare=compare)


def _compare(
    one: MatchField, intended: Any, seen: Any, *, amount: Money | None, redactor: Redactor | None
) -> FieldComparison:
    return FieldComparison(
        path=_bounded(one.payload),
        answer_path=_bounded(one.answer),
        intended=None if redactor is None else _shown(one.payload, intended, redactor),
        seen=None if redactor is None else _shown(one.answer, seen, redactor),
        same=not isinstance(seen, Missing) and same(one.compare, intended, seen, amount),
    )


def _shown(path: str, value: Any, redactor: Redactor) -> str | None:
    if isinstance(value, Missing):
        return None
    name = path.rsplit(".", 1)[-1].strip("\"'[]$")
    clean = redactor.value({name: value})
    return _bounded(json.dumps(next(iter(clean.values())), ensure_ascii=False, sort_keys=True))


def _bounded(text: str) -> str:
    if len(text) <= VALUE_LENGTH_MAX:
        return text
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{text[:VALUE_LENGTH_MAX]}… (sha256 {digest})"


# --- amounts ---------------------------------------------------------------------------------------------


def _amount(
    record: Mapping[str, Any], contract: Contract, subject: Subject
) -> tuple[Money | None, tuple[FieldComparison, ...]]:
    """The receipt's amount, and how it stands to the operation's where both are known."""
    paths = contract.receipt
    written = MISSING if paths.amount is None else value_at(paths.amount, dict(record))
    if isinstance(written, Missing) or paths.amount is None:
        return None, ()
    seen = _money(written, _currency(record, contract, subject), paths.amount_form)
    if subject.amount is None:
        return seen, ()
    comparison = FieldComparison(
        path="amount",
        answer_path=paths.amount,
        intended=_money_text(subject.amount),
        seen=None if seen is None else _money_text(seen),
        same=seen is not None and _amount_holds(paths.amount_must, intended=subject.amount, seen=seen),
    )
    return seen, (comparison,)


def _amount_holds(rule: AmountMust, *, intended: Money, seen: Money) -> bool:
    if intended.currency != seen.currency:
        return False
    match rule:
        case AmountMust.EQUAL:
            return intended.minor == seen.minor
        case AmountMust.NOT_EXCEED:
            return seen.minor <= intended.minor
        case AmountMust.SAME_CURRENCY:
            return True
        case _:
            assert_never(rule)


def _currency(record: Mapping[str, Any], contract: Contract, subject: Subject) -> str | None:
    if contract.receipt.currency is None:
        return None if subject.amount is None else subject.amount.currency
    seen = text_at(contract.receipt.currency, record)
    return None if seen is None else seen.upper()


def _money(written: Any, currency: str | None, form: AmountForm) -> Money | None:
    if currency is None:
        return None
    try:
        match form:
            case AmountForm.MINOR:
                return Money(currency, written)
            case AmountForm.DECIMAL | AmountForm.DECIMAL_NEGATIVE:
                minor = minor_of_decimal(_unsigned(written, form), currency)
                return None if minor is None else Money(currency, minor)
            case _:
                assert_never(form)
    except Refusal:
        return None


def _unsigned(written: Any, form: AmountForm) -> Any:
    """What leaves is written with a minus by some; without one it isn't what the contract describes."""
    if form is AmountForm.DECIMAL:
        return written
    text = scalar(written)
    return text[1:] if text is not None and text.startswith("-") else None


def _money_text(money: Money) -> str:
    return f"{money.currency} {money.minor}"


def _as_object(body: object) -> Mapping[str, Any] | None:
    if isinstance(body, str):
        body = body.encode("utf-8", "surrogatepass")
    elif isinstance(body, Mapping):
        body = dict(body)
    try:
        # A value that was parsed elsewhere is held to the same limits as one that is read here.
        value: object = parse(body) if isinstance(body, bytes) else parse(canonical_bytes(body))
    except Refusal:
        return None
    return value if isinstance(value, dict) else None


def _unreadable(reference: str | None, problem: str) -> ReceiptMatch:
    receipt = Receipt(
        reference=(reference or "")[:REFERENCE_LENGTH_MAX],
        body={},
        amount=None,
        state=ReceiptState.PENDING,
        status="",
        matched_by=None,
    )
    return ReceiptMatch(receipt=receipt, problems=(problem,))
