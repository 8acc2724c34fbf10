"""The intended effect beside what the provider shows: differences first, then what is the same."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, Final

from console.pages.present.marks import plural
from console.pages.present.verdict import records_of
from console.pages.shapes import DiffRow, DiffView, Link, Phrase, Piece, Strong
from console.queries.cases import CaseRead
from reconciliation.asked import GivenReceipt, match_given
from reconciliation.choosing import why_not_chosen
from reconciliation.revealing import redactor_of
from reconciliation.states import Action, CaseState, Permission
from runs.canonical import parse
from runs.money import Money, format_money
from runs.refusals import Refusal
from runs.states import Claim

RECORDS_MAX = 5
NOT_COMPARED_MAX = 8
_ABSENT: Final = "Not shown"


def diffs_of(read: CaseRead) -> tuple[DiffView, ...]:
    """One comparison for each record that is on record: of the latest telling look, else of reports."""
    records = [(one, evidence) for one, evidence in records_shown(read) if one.get("comparisons")]
    shown = tuple(_diff(read, one, f"{one.get('reference', '')} · {source}") for one, source in records)
    if len(shown) < 2:
        return shown
    return tuple(
        replace(
            diff, title=f"Intended effect and record {number} of {len(shown)}, {one.get('reference', '')}"
        )
        for number, (diff, (one, _)) in enumerate(zip(shown, records, strict=True), start=1)
    )[:RECORDS_MAX]


def diff_of_given(read: CaseRead, given: GivenReceipt) -> tuple[DiffView | None, str]:
    """The comparison with a record that a person gave with their request; else why there is none."""
    match = match_given(read.operation, read.judged, given, redactor=redactor_of(read.operation))
    record = match.receipt.as_json()
    if not record["comparisons"]:
        return None, " ".join(match.problems)
    shown = _diff(read, record, "given with the request")
    # Whether it may be chosen is what is asked here.
    title = "Intended effect and the record that was given"
    return replace(shown, title=title, standing=(), standing_icon=""), ""


def records_shown(read: CaseRead) -> list[tuple[dict[str, Any], str]]:
    """The records that are compared, each with the evidence that holds it."""
    if read.lookup is not None:
        shown = [(one, read.lookup.evidence_id) for one in records_of(read.lookup)]
        if shown:
            return shown
    reported = []
    for evidence in read.evidence:
        match = evidence.seen.get("match") if isinstance(evidence.seen, dict) else None
        if evidence.claim == Claim.RECEIPT and isinstance(match, dict):
            receipt = match.get("receipt")
            if isinstance(receipt, dict):
                reported.append((receipt, evidence.pk))
    return reported


def _diff(read: CaseRead, record: dict[str, Any], source: str) -> DiffView:
    rows = [_row(one) for one in _compared(record)]
    if not record.get("named"):
        rows.insert(
            0,
            DiffRow(
                field="Our key or reference",
                intended=(Piece(read.operation.key),),
                provider=None,
                outcome="differs",
                result="Not ours?",
            ),
        )
    if record.get("state") in ("pending", "refused"):
        status = str(record.get("status") or record["state"])
        word = "Not final" if record["state"] == "pending" else "Ended without effect"
        rows.insert(
            0,
            DiffRow(
                field="State",
                intended=(Piece("succeeded"),),
                provider=(Piece(status, differs=True),),
                outcome="differs",
                result=word,
            ),
        )
    standing_icon, standing = _standing(read, record)
    differing = tuple(one for one in rows if one.outcome != "same")
    matching = tuple(one for one in rows if one.outcome == "same")
    return DiffView(
        summary=f"{len(differing)} of {plural(len(rows), 'field')} differ{'s' * (len(differing) == 1)}",
        intended_source=f"sha256 {read.operation.payload_digest[:12]}…",
        provider_source=source,
        differing=differing,
        matching=matching,
        matching_text=f"{plural(len(matching), 'field')} {'matches' if len(matching) == 1 else 'match'}"
        if differing and matching
        else "",
        not_compared=_not_compared(read, record),
        standing=standing,
        standing_icon=standing_icon,
    )


def _compared(record: dict[str, Any]) -> list[dict[str, Any]]:
    """What is compared, each once: a member that holds nothing but the amount is said by the amount."""
    compared = [one for one in record["comparisons"] if isinstance(one, dict)]
    amounts = [one for one in compared if one.get("path") == "amount"]
    for whole in amounts:
        ours, theirs = (_money(str(whole.get(side))) for side in ("intended", "seen"))
        if ours is not None and theirs is not None:
            bare = (str(ours.minor), str(theirs.minor), whole.get("same"))
            compared = [
                one
                for one in compared
                if one is whole
                or one.get("answer_path") != whole.get("answer_path")
                or (one.get("intended"), one.get("seen"), one.get("same")) != bare
            ]
    return compared


def _standing(read: CaseRead, record: dict[str, Any]) -> tuple[str, Phrase]:
    """Whether this record can be chosen as the receipt, by whom, and what stands against it."""
    confirm = read.judged.assessment.action(Action.CONFIRM)
    reference = str(record.get("reference", ""))
    known = [one for one in read.judged.facts.receipts if one.reference == reference]
    if confirm is None or not known or read.case.state == CaseState.RESOLVED:
        return "", ()
    receipt = next((one for one in known if one.matches), known[0])
    why = why_not_chosen(receipt, record)
    match confirm.permission:
        case Permission.LOCKED:
            return "lock", (Strong("It can’t be chosen now. "), why or confirm.sentence)
        case Permission.ALLOWED if not why:
            return "receipt-text", (
                "It can be chosen as the receipt under ",
                Link("Confirm it happened", "#action-confirm"),
                ".",
            )
        case Permission.ALLOWED:
            return "lock", (Strong("It can’t be chosen. "), why)
        case Permission.SECOND_PERSON if receipt.confirmed_other:
            # One receipt confirms one operation, whoever consents.
            return "lock", (Strong("It can’t be chosen. "), why)
        case Permission.SECOND_PERSON:
            # The rules' own sentence says that it does.
            two = (Strong("Choosing it takes a second person. "), why)
            return "users", two if why else (confirm.sentence,)


def _row(compared: dict[str, Any]) -> DiffRow:
    field = _name(str(compared.get("path", "")))
    intended, seen = compared.get("intended"), compared.get("seen")
    same = bool(compared.get("same"))
    if field == "amount" and isinstance(intended, str) and _money(intended) is not None:
        return _amount_row(intended, seen if isinstance(seen, str) else None, same)
    left, right = _plain(intended, seen)
    if same:
        return DiffRow(
            field=field, intended=_whole(left), provider=_whole(right), outcome="same", result="Same"
        )
    if right is None:
        return DiffRow(field=field, intended=_whole(left), provider=None, outcome="unknown", result=_ABSENT)
    ours, theirs = _pieces(left or "", right)
    return DiffRow(field=field, intended=ours, provider=theirs, outcome="differs", result="Differs")


def _name(path: str) -> str:
    """ "$.lines[0].sku" as "lines[0].sku"; a member whose name isn't a word stays as it is written."""
    return path.removeprefix("$.") or path


def _plain(intended: Any, seen: Any) -> tuple[str | None, str | None]:
    """JSON text as a person reads it: quotes are left out where both sides are text."""
    left = intended if isinstance(intended, str) else None
    right = seen if isinstance(seen, str) else None
    texts = [_text(one) for one in (left, right)]
    if all(one is not None for one in texts) or (right is None and texts[0] is not None):
        return texts[0], texts[1] if right is not None else None
    return left, right


def _text(value: str | None) -> str | None:
    if value is None or not value.startswith('"'):
        return None
    try:
        read = json.loads(value)
    except ValueError:
        return None
    return read if isinstance(read, str) else None


def _money(text: str) -> Money | None:
    currency, _, minor = text.partition(" ")
    try:
        return Money(currency, int(minor)) if minor.isdecimal() and len(minor) < 17 else None
    except Refusal:
        return None


def _amount_row(intended: str, seen: str | None, same: bool) -> DiffRow:
    ours, theirs = _money(intended), _money(seen) if seen else None
    if ours is None or theirs is None:
        return DiffRow(
            field="Amount",
            intended=_whole(intended),
            provider=_whole(seen),
            outcome="unknown",
            result=_ABSENT,
        )
    left, right = format_money(ours), format_money(theirs)
    if same:
        word = "Same" if ours == theirs else "Allowed"
        return DiffRow(
            field="Amount", intended=_whole(left), provider=_whole(right), outcome="same", result=word
        )
    mine, other = _pieces(left, right)
    result = "Other currency"
    if ours.currency == theirs.currency:
        gap = format_money(Money(ours.currency, abs(ours.minor - theirs.minor)))
        result = f"{gap} {'less' if theirs.minor < ours.minor else 'more'}"
    return DiffRow(field="Amount", intended=mine, provider=other, outcome="differs", result=result)


def _whole(text: str | None) -> tuple[Piece, ...] | None:
    return None if text is None else (Piece(text),)


def _pieces(left: str, right: str) -> tuple[tuple[Piece, ...], tuple[Piece, ...]]:
    """Both texts, each with the stretch marked in which they differ: "1,2|40|.00" beside "1,2|04|.00"."""
    start = 0
    while start < min(len(left), len(right)) and left[start] == right[start]:
        start += 1
    end = 0
    while end < min(len(left), len(right)) - start and left[-1 - end] == right[-1 - end]:
        end += 1
    return _marked(left, start, end), _marked(right, start, end)


def _marked(text: str, start: int, end: int) -> tuple[Piece, ...]:
    """The text with what lies between its common beginning and end marked."""
    parts = (text[:start], text[start : len(text) - end], text[len(text) - end :])
    return tuple(Piece(part, differs=place == 1) for place, part in enumerate(parts) if part)


def _not_compared(read: CaseRead, record: dict[str, Any]) -> str:
    """Members of the payload that the contract compares with nothing."""
    try:
        payload = parse(bytes(read.operation.payload))
    except Refusal:
        return ""
    if not isinstance(payload, dict):
        return ""
    paths = [str(one.get("path", "")) for one in record["comparisons"] if isinstance(one, dict)]
    left_out = [
        name for name in payload if not any(path == f"$.{name}" or _under(path, name) for path in paths)
    ]
    if not left_out:
        return ""
    more = f" and {len(left_out) - NOT_COMPARED_MAX} more" if len(left_out) > NOT_COMPARED_MAX else ""
    names = ", ".join(left_out[:NOT_COMPARED_MAX])
    return f"Not compared: {names}{more}. The provider’s contract names no field of its answer for them."


def _under(path: str, name: str) -> bool:
    quoted = json.dumps(name, ensure_ascii=False)
    return path.startswith((f"$.{name}.", f"$.{name}[", f"$[{quoted}]"))
