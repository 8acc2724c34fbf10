"""Listing at the providers what was made since the backup, and keeping what the journal has forgotten."""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta
from functools import partial

from django.db import transaction

from reconciliation import admission, effective, place
from reconciliation.contracts import ProviderAccount
from reconciliation.marking import RESTORER
from reconciliation.providers import registry
from reconciliation.providers.listing import ListedRecord, Listing, Lists, not_offered
from runs import audit
from runs.canonical import digest
from runs.ids import ULID_LENGTH, new_id
from runs.journal.evidence import storable_text
from runs.keys import KEY_PREFIX
from runs.locking import database_now
from runs.models import KEY_LENGTH_MAX, AccountReturn, Operation, Orphan, Receipt
from runs.states import FreezeAnswer, ListingState

# Longer than a listing may take; whoever comes after that takes it over.
CLAIM_SECONDS = 300
# How long a page waits for its slot: lookups of the same account go out beside it, to the same limit.
SLOT_WITHIN = timedelta(seconds=20)
# A listing that failed is asked for again after so long, twice as long each time, up to the last.
REST_SECONDS, REST_SECONDS_MAX = 10, 900
# An orphan's record is for people to recognise it by; more than this of it isn't kept.
BODY_BYTES_MAX = 16_384
NOTE_LENGTH_MAX = 500
_OPERATION_ID = re.compile(rf"op_[0-9A-HJKMNP-TV-Z]{{{ULID_LENGTH}}}")


def due() -> list[int]:
    """The accounts whose time since the backup is to be listed now."""
    freeze = place.open_freeze()
    if freeze is None or freeze.answer != FreezeAnswer.PRODUCTION:
        return []
    waiting = AccountReturn.objects.filter(
        freeze=freeze, listing=ListingState.DUE, listing_not_before_at__lte=database_now()
    )
    return list(waiting.order_by("listing_not_before_at").values_list("pk", flat=True))


def list_gap(*, return_id: int) -> str:
    """List one account's gap, once; how that went in a word, "" if it isn't due. No transaction while asking.

    Not before everything that was under way at the freeze has ended and shows in the list: until then it is
    put off. Doubled or repeated it keeps the same orphans again.
    """
    with transaction.atomic():
        one = (
            AccountReturn.objects.select_for_update(of=("self",))
            .select_related("freeze")
            .filter(pk=return_id, listing=ListingState.DUE, listing_not_before_at__lte=database_now())
            .first()
        )
        if one is None or one.freeze.backup_taken_at is None or one.freeze.ended_at is not None:
            return ""
        now = database_now()
        one.listing_not_before_at = now + timedelta(seconds=CLAIM_SECONDS)
        one.save(update_fields=["listing_not_before_at"])
    try:
        adapter = effective.adapter(one.account_id)
    except registry.UnknownProvider:
        listing = Listing(offered=False, why_not="No account of this name is declared any more.")
    else:
        shows_at = one.freeze.found_at + _settles_within(adapter.account)
        if adapter.account.listing.offered and now < shows_at:
            return _put_off(one, shows_at)
        listing = (
            adapter.list_made(
                since_at=one.freeze.backup_taken_at,
                until_at=now,
                permit=partial(
                    admission.wait_for_another_slot,
                    slug=one.account_id,
                    contract=adapter.contract,
                    within=SLOT_WITHIN,
                ),
            )
            if isinstance(adapter, Lists)
            else not_offered(adapter.account)
        )
    return _keep(one, listing)


def _settles_within(account: ProviderAccount) -> timedelta:
    """How long after the freeze something that a "go" of the lost time allowed may still come to be listed.

    The freeze is found after the loss, so this is at least as long as the request could still take.
    """
    contract = account.contract
    under_way_ms = contract.start_within_ms + contract.request_within_ms + contract.in_flight_bound_ms
    return timedelta(milliseconds=under_way_ms + account.listing.lag_ms)


def _put_off(one: AccountReturn, until: datetime) -> str:
    """Ask later, and say why; `one` was claimed for a while, which ends here."""
    note = (
        f"It is asked from {until:%H:%M:%S} UTC on, when what was under way has ended and shows in its list."
    )
    AccountReturn.objects.filter(pk=one.pk, listing=ListingState.DUE).update(
        listing_not_before_at=until, listing_note=note
    )
    return "put_off"


def _keep(one: AccountReturn, listing: Listing) -> str:
    with transaction.atomic():
        held = AccountReturn.objects.select_for_update().get(pk=one.pk)
        known, forgotten, others = _told_apart(one.account_id, listing.records)
        Orphan.objects.bulk_create([_orphan(one, record) for record in forgotten], ignore_conflicts=True)
        held.known_count, held.others_count = known, others
        held.orphans_count = Orphan.objects.filter(freeze=one.freeze, account=one.account_id).count()
        now = database_now()
        held.listing_note = storable_text(listing.why_not or listing.leaves_out)[:NOTE_LENGTH_MAX]
        if listing.whole:
            held.listing, held.listed_at = ListingState.DONE, now
        elif not listing.offered:
            held.listing = ListingState.NOT_OFFERED
        else:
            held.listing_failures_count += 1
            rest = min(REST_SECONDS * 2 ** min(held.listing_failures_count - 1, 10), REST_SECONDS_MAX)
            held.listing_not_before_at = now + timedelta(seconds=rest)
        held.save()
        audit.append(
            audit.Event(
                action="gap.listed",
                actor=RESTORER,
                subject=one.account_id,
                after={
                    "freeze": one.freeze_id,
                    "listing": str(held.listing),
                    "known": known,
                    "orphans": held.orphans_count,
                    "others": others,
                },
                reason=held.listing_note,
            )
        )
        return str(held.listing)


def _told_apart(account: str, records: tuple[ListedRecord, ...]) -> tuple[int, list[ListedRecord], int]:
    """How many the journal knows; those that carry something of ours and it doesn't; how many others."""
    keys = set(
        Operation.objects.filter(
            provider=account, key__in=[one.key for one in records if one.key]
        ).values_list("key", flat=True)
    )
    references = set(
        Receipt.objects.filter(
            provider=account, reference__in=[one.reference for one in records]
        ).values_list("reference", flat=True)
    )
    named = {one.reference: _operation_id(one.our_reference) for one in records}
    operations = set(
        Operation.objects.filter(
            provider=account, pk__in=[name for name in named.values() if name]
        ).values_list("pk", flat=True)
    )
    known = others = 0
    forgotten = []
    for one in records:
        if one.key in keys or one.reference in references or named[one.reference] in operations:
            known += 1
        elif one.key.startswith(KEY_PREFIX) or named[one.reference]:
            forgotten.append(one)
        else:
            others += 1
    return known, forgotten, others


def _operation_id(reference: str) -> str:
    found = _OPERATION_ID.search(reference)
    return found[0] if found else ""


def _orphan(one: AccountReturn, record: ListedRecord) -> Orphan:
    text = storable_text(json.dumps(dict(record.body), ensure_ascii=False, sort_keys=True))
    kept = len(text) <= BODY_BYTES_MAX
    return Orphan(
        id=new_id("orphan"),
        account_id=one.account_id,
        freeze=one.freeze,
        reference=record.reference,
        key=record.key if len(record.key) <= KEY_LENGTH_MAX else "",
        our_reference=record.our_reference,
        state_there=record.state.value,
        amount_currency=record.amount_currency,
        amount_minor=record.amount_minor,
        body=json.loads(text) if kept else {"left_out": f"{len(text)} characters"},
        body_digest=digest(text.encode()),
        found_at=database_now(),
    )
