"""What follows from a contract by the clock: when a key ends, when silence counts."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciliation.contracts import (
    AccountPin,
    Contract,
    CredentialReference,
    KeyFormat,
    KeyScope,
    LookupKind,
    OnInFlight,
    OnOtherPayload,
    ProviderAccount,
    Replays,
    Verification,
    VerifiedWith,
    WindowKind,
    fingerprint,
    key_still_protects,
)

SENT_AT = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
KEYED = Contract(
    key_field="Idempotency-Key",
    key_format=KeyFormat.HEADER_BARE,
    key_scope=KeyScope.ACCOUNT,
    dedup_window_ms=86_400_000,
    window_kind=WindowKind.DOCUMENTED,
    window_margin_ms=60_000,
    on_other_payload=OnOtherPayload.REFUSED,
    on_in_flight=OnInFlight.REFUSED,
    replays=Replays.FIRST_ANSWER,
    rejection_replays=False,
    proves_existence=(),
    lookup=LookupKind.BY_KEY,
    visibility_lag_ms=2_000,
    lookup_retention_ms=3_600_000,
    absence_is_proof=True,
    match_fields=(),
    success_when=None,
    rate_limit_per_second=10,
    in_flight_bound_ms=1_000,
    start_within_ms=5_000,
    request_within_ms=4_000,
)
KEYLESS = replace(
    KEYED,
    key_field=None,
    key_format=KeyFormat.NONE,
    key_scope=KeyScope.NONE,
    dedup_window_ms=None,
    window_kind=WindowKind.NONE,
    replays=Replays.NOTHING,
)
PIN = AccountPin(adapter="a/1", endpoint="https://x/orders", region="eu", credential_fingerprint="f")


def after(milliseconds: int) -> datetime:
    return SENT_AT + timedelta(milliseconds=milliseconds)


def test_a_key_ends_a_margin_before_its_window_counted_from_the_first_send() -> None:
    assert KEYED.key_ends_at(SENT_AT) == after(86_400_000 - 60_000)


def test_a_repeat_must_start_early_enough_for_the_slowest_request_to_arrive_in_the_window() -> None:
    assert KEYED.repeat_starts_by(SENT_AT) == after(86_400_000 - 60_000 - 5_000 - 4_000)


@pytest.mark.parametrize(
    "contract",
    [
        KEYLESS,
        replace(KEYED, window_kind=WindowKind.UNPUBLISHED, dedup_window_ms=None),
        replace(KEYED, window_kind=WindowKind.NONE),
    ],
)
def test_without_a_stated_window_no_instant_protects(contract: Contract) -> None:
    assert contract.key_ends_at(SENT_AT) is None
    assert contract.repeat_starts_by(SENT_AT) is None


def test_a_window_that_nobody_publishes_is_still_a_key() -> None:
    assert replace(KEYED, window_kind=WindowKind.UNPUBLISHED, dedup_window_ms=None).honours_key
    assert not KEYLESS.honours_key


def test_an_attempt_is_quiet_after_start_window_longest_request_and_in_flight_bound() -> None:
    assert KEYED.quiet_at(SENT_AT) == after(5_000 + 4_000 + 1_000)


@pytest.mark.parametrize(
    ("lookup", "lag_ms", "reliable"),
    [
        (LookupKind.BY_KEY, 0, True),
        (LookupKind.BY_REFERENCE, 2_000, True),
        (LookupKind.BY_LISTING, 2_000, True),
        (LookupKind.BY_KEY, None, False),
        (LookupKind.BY_SEARCH, 0, False),
        (LookupKind.NONE, 0, False),
    ],
)
def test_only_an_exact_lookup_with_a_stated_lag_is_reliable(
    lookup: LookupKind, lag_ms: int | None, reliable: bool
) -> None:
    contract = replace(KEYED, lookup=lookup, visibility_lag_ms=lag_ms)
    assert contract.has_reliable_lookup is reliable


@pytest.mark.parametrize(
    ("asked_after_ms", "proved"),
    [
        (12_000 - 1, False),  # the effect may not show yet
        (12_000, True),
        (3_600_000 - 1, True),
        (3_600_000, False),  # the provider may have forgotten it
    ],
)
def test_absence_is_proved_between_the_lag_after_quiet_time_and_retention(
    asked_after_ms: int, proved: bool
) -> None:
    quiet_at = KEYED.quiet_at(SENT_AT)
    assert KEYED.absence_provable_at(quiet_at) == after(12_000)
    assert (
        KEYED.absence_is_proved(first_sent_at=SENT_AT, last_quiet_at=quiet_at, asked_at=after(asked_after_ms))
        is proved
    )


@settings(deadline=None)
@given(asked_after_ms=st.integers(0, 10**12))
def test_a_contract_that_does_not_let_absence_be_proved_never_does(asked_after_ms: int) -> None:
    for contract in (
        replace(KEYED, absence_is_proof=False),
        replace(KEYED, visibility_lag_ms=None),
    ):
        quiet_at = contract.quiet_at(SENT_AT)
        assert contract.absence_provable_at(quiet_at) is None
        assert not contract.absence_is_proved(
            first_sent_at=SENT_AT, last_quiet_at=quiet_at, asked_at=after(asked_after_ms)
        )


def test_without_a_stated_retention_a_lookup_speaks_for_ever() -> None:
    assert replace(KEYED, lookup_retention_ms=None).lookup_speaks_until(SENT_AT) is None


def test_a_key_protects_while_nothing_that_the_first_send_fixed_has_changed() -> None:
    assert key_still_protects(KEYED, pinned=PIN, current=PIN)
    assert not key_still_protects(KEYLESS, pinned=PIN, current=PIN)


@pytest.mark.parametrize("part", [one.name for one in fields(AccountPin)])
def test_any_part_of_the_pin_that_changes_ends_the_protection(part: str) -> None:
    assert not key_still_protects(KEYED, pinned=PIN, current=replace(PIN, **{part: "other"}))


def account(*secrets: tuple[str, str], missing: tuple[str, ...] = ()) -> ProviderAccount:
    return ProviderAccount(
        slug="shop",
        title="Shop",
        adapter="http_declared",
        adapter_version="1",
        base_url="https://shop.example",
        endpoint="/orders",
        region="",
        credentials=tuple(
            CredentialReference(name=name, env=name.upper(), fingerprint=fingerprint(secret))
            for name, secret in secrets
        ),
        missing=missing,
        console_sends=True,
        contract=KEYED,
        tested=Verification(kind=VerifiedWith.NOTHING),
        facts=(),
    )


def test_a_rotated_credential_changes_the_pin_and_never_shows_the_secret() -> None:
    first, second = account(("token", "hunter2-old")), account(("token", "hunter2-new"))
    assert first.pin != second.pin
    assert "hunter2" not in repr(first)
    assert account(("a", "1"), ("b", "2")).pin == account(("b", "2"), ("a", "1")).pin
    assert account().credential_fingerprint == ""


def test_an_account_that_misses_its_environment_can_not_send() -> None:
    assert account().console_can_send
    assert not account(missing=("SHOP_TOKEN",)).configured
    assert not account(missing=("SHOP_TOKEN",)).console_can_send
