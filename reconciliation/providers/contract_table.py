"""The `[contract]` table of a declared provider: every field typed, and no two that contradict each other."""

from __future__ import annotations

import re

from reconciliation.contracts import (
    AmountForm,
    AmountMust,
    AnswerPattern,
    CompareAs,
    Contract,
    KeyFormat,
    KeyScope,
    LookupKind,
    MatchField,
    OnInFlight,
    OnOtherPayload,
    ReceiptPaths,
    ReferenceForm,
    Replays,
    ReplyShows,
    SuccessWhen,
    WindowKind,
)
from reconciliation.providers.tables import Table, found_text

# A day: longer for one of these would hold every retry back for as long.
SPAN_MS_MAX = 24 * 3600 * 1000


def read_contract(table: Table) -> Contract:
    """Read the contract; faults are noted in the table's own list."""
    met_before = len(table.faults.sentences)
    contract = Contract(
        key_field=table.optional_text("key_field"),
        key_format=table.choice("key_format", KeyFormat),
        key_scope=table.choice("key_scope", KeyScope),
        dedup_window_ms=table.optional_whole("dedup_window_ms", low=1),
        window_kind=table.choice("window_kind", WindowKind),
        window_margin_ms=table.whole("window_margin_ms", 0),
        on_other_payload=table.choice("on_other_payload", OnOtherPayload),
        on_in_flight=table.choice("on_in_flight", OnInFlight),
        replays=table.choice("replays", Replays),
        rejection_replays=table.flag("rejection_replays", False),
        proves_existence=read_patterns(table, "proves_existence"),
        lookup=table.choice("lookup", LookupKind),
        visibility_lag_ms=table.optional_whole("visibility_lag_ms"),
        lookup_retention_ms=table.optional_whole("lookup_retention_ms", low=1),
        absence_is_proof=table.flag("absence_is_proof", False),
        match_fields=read_match_fields(table),
        success_when=read_success_when(table),
        rate_limit_per_second=table.rate("rate_limit_per_second"),
        in_flight_bound_ms=table.whole("in_flight_bound_ms", high=SPAN_MS_MAX),
        start_within_ms=table.whole("start_within_ms", low=100, high=SPAN_MS_MAX),
        request_within_ms=table.whole("request_within_ms", low=100, high=SPAN_MS_MAX),
        receipt=read_receipt_paths(table),
    )
    table.finish()
    # Beside a stand-in everything looks contradictory; the one real fault is said alone.
    if len(table.faults.sentences) == met_before:
        _check_key(table, contract)
        _check_lookup(table, contract)
    return contract


def read_patterns(table: Table, name: str) -> tuple[AnswerPattern, ...]:
    """A list of answer patterns: `{ statuses = [409], path = "$.error.code", values = ["duplicate"] }`."""
    return table.tables(name, _pattern)


def _pattern(table: Table) -> AnswerPattern:
    pattern = AnswerPattern(
        statuses=table.statuses("statuses"),
        path=table.path("path"),
        values=table.words("values"),
        header=table.optional_text("header"),
        header_values=table.words("header_values"),
    )
    if not pattern.statuses and pattern.path is None and pattern.header is None:
        table.fault("statuses", found="neither statuses, path nor header", allowed="at least one of them")
    if pattern.header_values and pattern.header is None:
        table.fault("header_values", found="values without a header", allowed="a header to find them in")
    if pattern.values and pattern.path is None:
        table.fault("values", found="values without a path", allowed="a path to find them at")
    return pattern


def read_match_fields(table: Table) -> tuple[MatchField, ...]:
    """The list `match_fields`: `{ payload = "$.amount", answer = "$.total", compare = "text" }`."""
    return table.tables("match_fields", _match_field)


def _match_field(table: Table) -> MatchField:
    payload = table.path("payload")
    answer = table.path("answer")
    if payload is None or answer is None:
        table.fault("payload", found="not both", allowed="payload and answer, each a JSONPath")
    return MatchField(
        payload=payload or "$",
        answer=answer or "$",
        compare=table.choice("compare", CompareAs, CompareAs.EXACT),
    )


def read_success_when(contract: Table) -> SuccessWhen | None:
    """The table `success_when`, None where there is none."""
    table = contract.table("success_when")
    if table is None:
        return None
    path = table.path("path")
    rule = SuccessWhen(path=path or "$", succeeded=table.words("succeeded"), refused=table.words("refused"))
    if path is None:
        table.fault("path", found="nothing", allowed="a JSONPath such as $.status")
    if not rule.succeeded:
        table.fault("succeeded", found="nothing", allowed="the values that mean success")
    if both := sorted(set(rule.succeeded) & set(rule.refused)):
        table.fault("refused", found=found_text(both[0]), allowed="values that aren't in succeeded")
    table.finish()
    return rule


def read_receipt_paths(contract: Table) -> ReceiptPaths:
    """The table `receipt`: where a record says what it is."""
    table = contract.table("receipt")
    if table is None:
        return ReceiptPaths()
    ours = table.optional_text("our_reference")
    if ours is not None:
        table.as_template("our_reference", ours, known=())
    paths = ReceiptPaths(
        id=table.path("id", "$.id") or "$.id",
        key=table.path("key"),
        reference=table.path("reference"),
        our_reference=ours,
        amount=table.path("amount"),
        currency=table.path("currency"),
        amount_form=table.choice("amount_form", AmountForm, AmountForm.MINOR),
        amount_must=table.choice("amount_must", AmountMust, AmountMust.EQUAL),
        reference_form=table.choice("reference_form", ReferenceForm, ReferenceForm.WHOLE),
        reply=table.choice("reply", ReplyShows, ReplyShows.RECORD),
    )
    if paths.reference_form is ReferenceForm.WITHIN and not _is_marker(ours or ""):
        table.fault(
            "our_reference",
            found=found_text(ours),
            allowed="for reference_form within: {operation} or {key} with text before and after it,"
            ' such as "<!-- recourse {operation} -->"',
        )
    if (paths.reference is None) != (paths.our_reference is None):
        table.fault(
            "reference", found="not both", allowed="reference (where it is) and our_reference (what it is)"
        )
    table.finish()
    return paths


def _is_marker(template: str) -> bool:
    """Whether it can be told apart inside a longer text: our id, with text of its own on both sides."""
    found = re.fullmatch(r"([^{}]*)\{(?:operation|key)\}([^{}]*)", template)
    return found is not None and bool(found[1].strip()) and bool(found[2].strip())


def _check_key(table: Table, contract: Contract) -> None:
    none = contract.key_format is KeyFormat.NONE
    if none != (contract.key_field is None):
        table.fault(
            "key_field",
            found=found_text(contract.key_field),
            allowed="nothing" if none else "the header's or body member's name",
        )
    for name, value, empty in (
        ("key_scope", contract.key_scope, KeyScope.NONE),
        ("window_kind", contract.window_kind, WindowKind.NONE),
        ("replays", contract.replays, Replays.NOTHING),
    ):
        if (value == empty) != none:
            allowed = empty.value if none else f"anything but {empty.value}"
            table.fault(name, found=f"{value} beside key_format {contract.key_format}", allowed=allowed)
    stated = contract.window_kind in (WindowKind.DOCUMENTED, WindowKind.MINIMUM)
    if stated != (contract.dedup_window_ms is not None):
        table.fault(
            "dedup_window_ms",
            found=found_text(contract.dedup_window_ms),
            allowed="the window in milliseconds" if stated else "nothing, since no window is stated",
        )
    if contract.dedup_window_ms is not None and contract.window_margin_ms >= contract.dedup_window_ms:
        table.fault(
            "window_margin_ms", found=found_text(contract.window_margin_ms), allowed="less than the window"
        )
    if contract.rejection_replays and contract.replays is not Replays.FIRST_ANSWER:
        table.fault(
            "rejection_replays",
            found="true",
            allowed="false, unless replays is first_answer: only then is a refusal the first request's",
        )


def _check_lookup(table: Table, contract: Contract) -> None:
    paths = contract.receipt
    if contract.absence_is_proof and not contract.has_reliable_lookup:
        table.fault(
            "absence_is_proof",
            found="true",
            allowed="false, unless the lookup is by_key, by_reference or by_listing with visibility_lag_ms",
        )
    named = paths.key is not None or paths.reference is not None
    if contract.lookup is LookupKind.BY_RESEMBLANCE:
        if named:
            table.fault(
                "lookup",
                found="by_resemblance beside receipt.key or receipt.reference",
                allowed="by_listing or by_search: records that carry something of ours can be found by it",
            )
    elif contract.has_lookup and not named:
        table.fault(
            "lookup",
            found=f"{contract.lookup} without receipt.key and receipt.reference",
            allowed="one of them, or by_resemblance: a record that carries nothing of ours can never be found"
            " by them, only shown as alike",
        )
    if contract.lookup is LookupKind.BY_REFERENCE and paths.reference is None:
        table.fault("lookup", found="by_reference without receipt.reference", allowed="receipt.reference")
