"""Listing what was made at a provider in a span of time, whoever made it.

Asked after a restore, when the journal has forgotten operations and so can't ask about them. What comes back
is the provider's text: bounded, redacted, and never more than something for people to look at.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Protocol, runtime_checkable

from reconciliation.contracts import Contract, ProviderAccount, ReferenceForm
from reconciliation.providers import paging
from reconciliation.providers.answers import Body, matches_any, read_body
from reconciliation.providers.authorizing import TokenRefused, TokenSource
from reconciliation.providers.base import ReceiptState, elapsed_seconds
from reconciliation.providers.declaration import Declared
from reconciliation.providers.listing_table import ListingRules
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
    """What the provider listed. `why_not` is a sentence where it isn't known to be everything, else "".

    `leaves_out` says what a list that was read to its end never shows.
    """

    records: tuple[ListedRecord, ...] = ()
    why_not: str = ""
    leaves_out: str = ""
    # Whether this account can be asked at all.
    offered: bool = True

    @property
    def whole(self) -> bool:
        return self.why_not == ""


@runtime_checkable
class Lists(Protocol):
    """An adapter that can list; whether its account's file says how, the answer says."""

    @property
    def account(self) -> ProviderAccount: ...

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
    rules, account = declared.http.listing, declared.account
    if rules is None:
        return not_offered(account)
    if not account.configured or account.base_url is None:
        return Listing(why_not="This account isn't configured here, so it can't be asked.")
    reader = _Reader(declared, transport=transport, redactor=redactor, tokens=tokens, permit=permit)
    records: dict[str, ListedRecord] = {}
    for values in _parts(declared, rules, since_at=since_at, until_at=until_at):
        for place in reader.places(rules, values):
            for item in reader.items(rules.step, replace(values, place=place)):
                one = _record(account.contract, rules.step, item, redactor)
                if one is None:
                    reader.problem = "It listed a record without an id."
                    break
                records[one.reference] = one
            if reader.problem:
                break
        if reader.problem:
            break
    return Listing(
        records=tuple(records.values()),
        why_not=reader.problem,
        leaves_out="" if reader.problem else account.listing.leaves_out,
    )


def not_offered(account: ProviderAccount) -> Listing:
    """What there is to say of an account that can't be listed."""
    return Listing(offered=False, why_not=account.listing.why_not or "Nobody has said how to list it.")


def _parts(
    declared: Declared, rules: ListingRules, *, since_at: datetime, until_at: datetime
) -> Iterator[Values]:
    """The span in parts that the list takes, each a little wider: providers' clocks differ from ours by
    seconds, in both directions.
    """
    margin = timedelta(milliseconds=rules.step.window_before_ms)
    longest = timedelta(milliseconds=rules.span_ms_max) - 2 * margin
    start = since_at
    while True:
        end = min(start + longest, until_at)
        yield Values(
            key="",
            operation="",
            tool="",
            payload={},
            window_start_at=start - margin,
            window_end_at=end + margin,
            secrets=declared.http.secrets,
            settings=declared.http.settings,
        )
        if end >= until_at:
            return
        start = end


class _Reader:
    """Asks page after page of one listing, until `problem` says why it is not known to be everything."""

    def __init__(
        self,
        declared: Declared,
        *,
        transport: Transport,
        redactor: Redactor,
        tokens: TokenSource | None,
        permit: Permit,
    ) -> None:
        self._declared = declared
        self._transport = transport
        self._redactor = redactor
        self._tokens = tokens
        self._permit = permit
        self._until = elapsed_seconds() + LISTING_SECONDS_MAX
        self._pages = self._items = 0
        self._places: list[Mapping[str, str]] | None = None
        self.problem = ""

    def places(self, rules: ListingRules, values: Values) -> list[Mapping[str, str]]:
        """The places to list one by one, asked for once; one without values where it is one list."""
        if rules.places is None:
            return [{}]
        if self._places is None:
            self._places = []
            for item in self.items(rules.places, values):
                if rules.only_if is not None and not paging.says(rules.only_if, item):
                    continue
                place = {name: text_at(path, item) or "" for name, path in rules.place_paths.items()}
                if not all(place.values()):
                    self.problem = "It listed a place without what it is asked for by."
                    break
                self._places.append(place)
        return [] if self.problem else self._places

    def items(self, step: LookupStep, values: Values) -> Iterator[Any]:
        """Each item of one list, over all of its pages."""
        rules = step.rules
        page: Parameters = ()
        seen: set[Parameters] = set()
        for _ in range(rules.pages.pages_max if rules.pages else 1):
            if self._pages and (self._items >= RECORDS_MAX or elapsed_seconds() > self._until):
                break
            answer = self._ask(step, values, page)
            if answer is None:
                return
            body = read_body(answer)
            items = self._items_in(step, answer, body)
            if items is None:
                return
            self._items += len(items)
            yield from items
            following, unreachable = paging.following(rules, answer, body.value, page)
            if unreachable or (following is not None and following in seen):
                self.problem = "Its list goes on where it can't be followed."
                return
            if following is None or paging.reaches_back(rules, body.value, values):
                return
            seen.add(following)
            page = following
        self.problem = f"The list is longer than is read at once ({self._items} entries were read)."

    def _ask(self, step: LookupStep, values: Values, page: Parameters) -> Answer | None:
        if not self._permit():
            self.problem = "There was no room in the account's limit to read on."
            return None
        self._pages += 1
        answer = _put(
            self._declared,
            step,
            values,
            page,
            transport=self._transport,
            redactor=self._redactor,
            tokens=self._tokens,
        )
        if isinstance(answer, str):
            self.problem = answer
            return None
        return answer

    def _items_in(self, step: LookupStep, answer: Answer, body: Body) -> list[Any] | None:
        rules = step.rules
        if answer.status is None:
            self.problem = f"The provider could not be asked ({answer.exchange.error_class})."
            return None
        if matches_any(rules.unavailable, answer.status, body, unreadable=False, headers=answer.headers):
            self.problem = "The provider answered that it can't be asked this, or not now."
            return None
        if not 200 <= answer.status < 300:
            self.problem = f"The provider answered {answer.status} to the question."
            return None
        items = value_at(rules.items, body.value) if body.readable else None
        if isinstance(items, Missing) and rules.missing_is_empty and isinstance(body.value, dict):
            items = []
        if not isinstance(items, list):
            self.problem = "Its answer doesn't have the declared form."
            return None
        if paging.says(rules.incomplete, body.value):
            self.problem = "Its answer says that it isn't the whole list."
            return None
        return items


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


def _record(contract: Contract, step: LookupStep, item: object, redactor: Redactor) -> ListedRecord | None:
    if not isinstance(item, dict):
        return None
    record = item if step.rules.record is None else value_at(step.rules.record, item)
    if not isinstance(record, dict):
        return None
    return listed_record(
        record,
        contract=step.contract_under(contract),
        redactor=redactor,
        key_beside=text_at(step.rules.key, item),
    )


def listed_record(
    record: Mapping[str, Any], *, contract: Contract, redactor: Redactor, key_beside: str | None = None
) -> ListedRecord | None:
    """One record of a list, None where it has no id; `key_beside` stands outside of it."""
    paths = contract.receipt
    key = _plain(text_at(paths.key, record) or key_beside)
    ours = _plain(_our_reference(contract, text_at(paths.reference, record)))
    reading = read_record(
        record,
        contract=contract,
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


def _our_reference(contract: Contract, text: str | None) -> str | None:
    """What stands where our reference would; of a text, the marker in it, whoever's operation it names."""
    if contract.receipt.reference_form is not ReferenceForm.WITHIN or text is None:
        return text
    before, _, rest = (contract.receipt.our_reference or "").partition("{")
    marker = re.escape(before) + r"([A-Za-z0-9_.:-]{1,64})" + re.escape(rest.partition("}")[2])
    found = re.search(marker, text)
    return found[1] if found else None


def _plain(text: str | None) -> str:
    """What may be a key or reference of ours; anything else carries nothing that we could know."""
    return text if text and len(text) <= KEY_LENGTH_MAX and text.isascii() and text.isprintable() else ""
