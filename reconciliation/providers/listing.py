"""Listing what was made at a provider in a span of time, whoever made it.

Asked after a restore, when the journal has forgotten operations and so can't ask about them. What comes back
is the provider's text: bounded, redacted, and never more than something for people to look at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol, runtime_checkable

from reconciliation.contracts import Contract
from reconciliation.providers import paging
from reconciliation.providers.answers import read_body
from reconciliation.providers.authorizing import TokenRefused, TokenSource
from reconciliation.providers.base import ReceiptState, elapsed_seconds
from reconciliation.providers.declaration import Declared
from reconciliation.providers.lookup_tables import LookupStep
from reconciliation.providers.matching import Subject, read_record
from reconciliation.providers.paging import Parameters
from reconciliation.providers.paths import Missing, text_at, value_at
from reconciliation.providers.redaction import Redactor
from reconciliation.providers.request_building import build_question
from reconciliation.providers.request_tables import EVERY_TOOL
from reconciliation.providers.templates import Values, ValueUnusable
from reconciliation.providers.transport import Answer, Transport
from runs.refusals import Refusal

# More records than this are not read in one listing; it is then told as cut short.
RECORDS_MAX = 5_000
# No page is asked for later than this after the first: a task that holds nothing may take minutes.
LISTING_SECONDS_MAX = 120.0
KEY_LENGTH_MAX = 255


# Waits for the account's limit to have room for one more request; False if it had none in time.
Permit = Callable[[], bool]


@dataclass(frozen=True, kw_only=True, slots=True)
class ListedRecord:
    """One record: what it carries of ours ("" is nothing), and itself, redacted."""

    reference: str
    key: str
    our_reference: str
    state: ReceiptState
    amount_currency: str
    amount_minor: int | None
    body: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Listing:
    """What the provider listed. `why_not` is a sentence where it isn't known to be everything, else ""."""

    records: tuple[ListedRecord, ...] = ()
    why_not: str = ""
    # Whether this account can be asked at all.
    offered: bool = True

    @property
    def whole(self) -> bool:
        return self.why_not == ""


@runtime_checkable
class Lists(Protocol):
    """An adapter that can list; whether its account's file says how, the answer says."""

    @property
    def contract(self) -> Contract: ...

    def list_made(self, *, since_at: datetime, until_at: datetime, permit: Permit) -> Listing: ...


def list_made(
    declared: Declared,
    *,
    transport: Transport,
    redactor: Redactor,
    tokens: TokenSource | None,
    since_at: datetime,
    until_at: datetime,
    permit: Permit,
) -> Listing:
    """Read the declared list page by page; changes nothing at the provider, and raises nothing for it."""
    step = declared.http.listing
    if step is None:
        return Listing(
            offered=False, why_not="Its file doesn't say how to list what was made in a span of time."
        )
    if not declared.account.configured or declared.account.base_url is None:
        return Listing(why_not="This account isn't configured here, so it can't be asked.")
    values = Values(
        key="",
        operation="",
        tool="",
        payload={},
        # Providers' clocks differ from ours by seconds, in both directions.
        window_start_at=since_at - timedelta(milliseconds=step.window_before_ms),
        window_end_at=until_at + timedelta(milliseconds=step.window_before_ms),
        secrets=declared.http.secrets,
        settings=declared.http.settings,
    )
    records: dict[str, ListedRecord] = {}
    page: Parameters = ()
    seen: set[Parameters] = set()
    until = elapsed_seconds() + LISTING_SECONDS_MAX
    for _ in range(step.rules.pages.pages_max if step.rules.pages else 1):
        if not permit():
            return Listing(
                records=tuple(records.values()),
                why_not="There was no room in the account's limit to read on.",
            )
        answer = _put(declared, step, values, page, transport=transport, redactor=redactor, tokens=tokens)
        if isinstance(answer, str):
            return Listing(records=tuple(records.values()), why_not=answer)
        body = read_body(answer)
        items = value_at(step.rules.items, body.value) if body.readable else None
        if answer.status is None or not 200 <= answer.status < 300 or not isinstance(items, list):
            return Listing(records=tuple(records.values()), why_not=_unusable(answer))
        for item in items:
            one = _record(declared.account.contract, step, item, redactor)
            if one is None:
                return Listing(records=tuple(records.values()), why_not="It listed a record without an id.")
            records[one.reference] = one
        following, unreachable = paging.following(step.rules, answer, body.value, page)
        if unreachable or (following is not None and following in seen):
            return Listing(
                records=tuple(records.values()), why_not="Its list goes on where it can't be followed."
            )
        if following is None or paging.reaches_back(step.rules, body.value, values):
            return Listing(records=tuple(records.values()))
        if len(records) >= RECORDS_MAX or elapsed_seconds() > until:
            break
        seen.add(following)
        page = following
    return Listing(
        records=tuple(records.values()),
        why_not=f"The list is longer than is read at once ({len(records)} records were read).",
    )


def _put(
    declared: Declared,
    step: LookupStep,
    values: Values,
    page: Parameters,
    *,
    transport: Transport,
    redactor: Redactor,
    tokens: TokenSource | None,
) -> Answer | str:
    try:
        call = build_question(
            declared, step.requests[EVERY_TOOL], values, within_ms=step.rules.within_ms, page=page
        )
        if tokens is not None:
            call = tokens.sign(call)
    except TokenRefused as error:
        return error.sentence
    except (ValueUnusable, Refusal) as error:
        return f"The question can't be put ({error})."
    return transport.call(call, redactor=redactor)


def _unusable(answer: Answer) -> str:
    if answer.status is None:
        return f"The provider could not be asked ({answer.exchange.error_class})."
    if not 200 <= answer.status < 300:
        return f"The provider answered {answer.status} to the question."
    return "Its answer doesn't have the declared form."


def _record(contract: Contract, step: LookupStep, item: object, redactor: Redactor) -> ListedRecord | None:
    record = (
        item if step.rules.record is None or not isinstance(item, dict) else value_at(step.rules.record, item)
    )
    if isinstance(record, Missing) or not isinstance(record, dict) or not isinstance(item, dict):
        return None
    read_by = step.contract_under(contract)
    paths = read_by.receipt
    key = _plain(text_at(paths.key, record) or text_at(step.rules.key, item))
    ours = _plain(text_at(paths.reference, record))
    reading = read_record(
        record,
        contract=read_by,
        # There is no operation to hold it against: only what the record says of itself is used.
        subject=Subject(operation_id="", key=key, tool="", payload={}, amount=None),
        named_by_reply=False,
        redactor=redactor.keeping(key, ours),
    )
    if reading is None:
        return None
    amount = reading.receipt.amount
    return ListedRecord(
        reference=reading.receipt.reference,
        key=key,
        our_reference=ours,
        state=reading.receipt.state,
        amount_currency=amount.currency if amount else "",
        amount_minor=amount.minor if amount else None,
        body=reading.receipt.body,
    )


def _plain(text: str | None) -> str:
    """What may be a key or reference of ours; anything else carries nothing that we could know."""
    return text if text and len(text) <= KEY_LENGTH_MAX and text.isascii() and text.isprintable() else ""
