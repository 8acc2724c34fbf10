"""Which way each promise is tighter, and that no value of any field makes an account looser."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciliation.contracts import (
    Contract,
    LookupKind,
    ProviderAccount,
    Verification,
    VerifiedWith,
    WindowKind,
)
from reconciliation.strictness import BY_FIELD, RULES, held_to, values_of
from tests.policy_facts import QUIET_AT, SENT_AT, contract, keyless

HOUR_MS = 3_600_000


def account(promised: Contract | None = None, *, console_sends: bool = True) -> ProviderAccount:
    return ProviderAccount(
        slug="shop",
        title="Shop",
        adapter="http_declared",
        adapter_version="1",
        base_url="https://shop.example",
        endpoint="/orders",
        region="",
        credentials=(),
        missing=(),
        console_sends=console_sends,
        contract=promised or contract(),
        tested=Verification(kind=VerifiedWith.NOTHING),
        facts=(),
    )


@pytest.mark.parametrize(
    ("field", "now", "wanted", "tighter"),
    [
        ("dedup_window_ms", 24 * HOUR_MS, HOUR_MS, True),
        ("dedup_window_ms", 24 * HOUR_MS, 24 * HOUR_MS, False),
        ("dedup_window_ms", 24 * HOUR_MS, 24 * HOUR_MS + 1, False),
        ("window_margin_ms", 300_000, 300_001, True),
        ("window_margin_ms", 300_000, 299_999, False),
        ("visibility_lag_ms", 0, 1, True),
        ("visibility_lag_ms", 1, 0, False),
        # No lag is stated: no lookup is relied on, and a number would be a promise.
        ("visibility_lag_ms", None, 60_000, False),
        ("lookup_retention_ms", None, HOUR_MS, True),
        ("lookup_retention_ms", HOUR_MS, None, False),
        ("in_flight_bound_ms", 1_000, 2_000, True),
        ("in_flight_bound_ms", 1_000, 500, False),
        ("rate_limit_per_second", 10.0, 0.5, True),
        ("rate_limit_per_second", 10.0, 11.0, False),
        ("absence_is_proof", True, False, True),
        ("absence_is_proof", False, True, False),
        ("rejection_replays", True, False, True),
        ("lookups", True, False, True),
        ("lookups", False, True, False),
        ("key_window_trusted", True, False, True),
        ("console_sends", True, False, True),
        ("console_sends", False, True, False),
    ],
)
def test_each_field_has_one_tighter_way(field: str, now: Any, wanted: Any, tighter: bool) -> None:
    assert BY_FIELD[field].is_tighter(now, wanted) is tighter


def test_a_shorter_window_ends_the_key_sooner_and_a_longer_one_is_left_out() -> None:
    held = held_to(account(), {"dedup_window_ms": HOUR_MS})
    assert held.contract.dedup_window_ms == HOUR_MS
    assert held_to(account(), {"dedup_window_ms": 48 * HOUR_MS}) == account()


def test_the_stricter_of_the_file_and_the_tightening_counts() -> None:
    stricter_file = account(contract(dedup_window_ms=HOUR_MS))
    assert held_to(stricter_file, {"dedup_window_ms": 2 * HOUR_MS}).contract.dedup_window_ms == HOUR_MS


def test_a_window_that_is_not_trusted_gives_no_instant_to_rely_on() -> None:
    held = held_to(account(), {"key_window_trusted": False}).contract
    assert held.window_kind is WindowKind.UNPUBLISHED
    assert held.key_ends_at(SENT_AT) is None
    # The key is still sent.
    assert held.honours_key


def test_what_a_file_no_longer_promises_is_not_promised_by_an_old_tightening() -> None:
    unpublished = account(contract(window_kind=WindowKind.UNPUBLISHED, dedup_window_ms=None))
    assert held_to(unpublished, {"dedup_window_ms": HOUR_MS}).contract.key_ends_at(SENT_AT) is None
    assert held_to(account(keyless()), {"dedup_window_ms": HOUR_MS}) == account(keyless())


def test_lookups_that_are_off_prove_nothing() -> None:
    promised = contract(absence_is_proof=True)
    held = held_to(account(promised), {"lookups": False}).contract
    assert held.lookup is LookupKind.NONE
    assert held.absence_provable_at(QUIET_AT) is None


def test_what_another_version_tightened_is_left_out() -> None:
    assert held_to(account(), {"something_new": False}) == account()


def test_the_console_sends_only_where_both_say_so() -> None:
    assert not held_to(account(), {"console_sends": False}).console_sends
    assert not held_to(account(console_sends=False), {"console_sends": True}).console_sends


values = st.one_of(st.none(), st.booleans(), st.integers(0, 10**12), st.floats(0.01, 1e6))


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from([contract(), contract(absence_is_proof=True, rejection_replays=True), keyless()]),
    st.fixed_dictionaries({rule.field: values for rule in RULES}),
)
def test_no_value_of_any_field_makes_an_account_looser(promised: Contract, tightened: dict[str, Any]) -> None:
    """Also values that no form would let through: the row may have been written by another version."""
    declared = account(promised)
    held = held_to(declared, tightened)
    for rule in RULES:
        before, after = rule.read(declared), rule.read(held)
        if rule.field == "dedup_window_ms" and held.contract.window_kind is WindowKind.UNPUBLISHED:
            # No window at all, which the instants below tell.
            continue
        assert not rule.is_tighter(after, before), (rule.field, before, after)
    assert held.contract.absence_is_proof <= promised.absence_is_proof
    assert held.contract.has_reliable_lookup <= promised.has_reliable_lookup
    ends_before, ends_after = promised.key_ends_at(SENT_AT), held.contract.key_ends_at(SENT_AT)
    assert ends_after is None or (ends_before is not None and ends_after <= ends_before)
    assert held.contract.quiet_at(SENT_AT) >= promised.quiet_at(SENT_AT)
    # Applied again it changes nothing more.
    assert held_to(held, tightened) == held
    assert set(values_of(held)) == set(BY_FIELD)
