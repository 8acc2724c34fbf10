"""Listing what was made at one of Amazon's services, as `listing` does for declared accounts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol

from reconciliation.contracts import ProviderAccount
from reconciliation.providers.aws import AwsAnswer
from reconciliation.providers.base import Unavailable, elapsed_seconds
from reconciliation.providers.listing import (
    LISTING_SECONDS_MAX,
    RECORDS_MAX,
    ListedRecord,
    Listing,
    Permit,
    listed_record,
)
from reconciliation.providers.lookup_tables import WINDOW_BEFORE_MS
from reconciliation.providers.paging import instant
from reconciliation.providers.redaction import Redactor

# Amazon's clock differs from ours by seconds.
MARGIN = timedelta(milliseconds=WINDOW_BEFORE_MS)


@dataclass(frozen=True, kw_only=True, slots=True)
class AwsList:
    """One list: botocore's method, and how its answers are read.

    `made_at` is an item's time in ISO 8601. A list of the newest first isn't read past the time asked about.
    """

    method: str
    parameters: Mapping[str, Any]
    items: Callable[[Mapping[str, Any]], Iterable[Mapping[str, Any]]]
    made_at: Callable[[Mapping[str, Any]], str | None]
    # What a page calls the token of the next one, and how that is asked for.
    token: str
    newest_first: bool


class Ask(Protocol):
    """Puts one question that changes nothing."""

    def __call__(self, method: str, parameters: Mapping[str, Any]) -> AwsAnswer | Unavailable: ...


def list_made(
    one: AwsList,
    *,
    ask: Ask,
    account: ProviderAccount,
    redactor: Redactor,
    since_at: datetime,
    permit: Permit,
) -> Listing:
    """Read the list to its end, or to what is older than `since_at`; raises nothing for what happened."""
    records: dict[str, ListedRecord] = {}
    until = elapsed_seconds() + LISTING_SECONDS_MAX
    further: Mapping[str, Any] = {}

    def ended(why_not: str) -> Listing:
        return Listing(records=tuple(records.values()), why_not=why_not)

    while True:
        if not permit():
            return ended("There was no room in the account's limit to read on.")
        got = ask(one.method, {**one.parameters, **further})
        if isinstance(got, Unavailable):
            return ended(got.summary)
        if got.content is None or got.answer.status != 200:
            return ended(f"The provider answered {got.answer.status} {got.error_code}".rstrip() + ".")
        reached_back = False
        for item in one.items(got.content):
            made_at = instant(one.made_at(item))
            if made_at is not None and made_at < since_at - MARGIN:
                reached_back = one.newest_first
                continue
            record = listed_record(item, contract=account.contract, redactor=redactor)
            if record is None:
                return ended("It listed a record without an id.")
            records[record.reference] = record
        token = got.content.get(one.token)
        if not token or reached_back:
            return Listing(records=tuple(records.values()), leaves_out=account.listing.leaves_out)
        if len(records) >= RECORDS_MAX or elapsed_seconds() > until:
            return ended(f"The list is longer than is read at once ({len(records)} records were read).")
        further = {one.token: token}
