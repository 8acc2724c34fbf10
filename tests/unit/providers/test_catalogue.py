"""The shipped catalogue: true in form, sourced field by field, and an account only where it is named."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from reconciliation.contracts import KEY_LENGTH_MAX, Contract, KeyFormat, LookupKind, WindowKind
from reconciliation.providers import registry
from reconciliation.providers.declaration import Declared, read_file
from reconciliation.providers.tables import DeclarationInvalid

ROOT = Path(__file__).resolve().parents[3]
FILES = sorted(registry.CATALOGUE.glob("*.toml"))
DECLARED = [
    "adyen",
    "github-issues",
    "paypal",
    "resend",
    "slack",
    "square",
    "stripe-charges",
    "stripe-payments",
    "stripe-refunds",
    "twilio",
    "zendesk",
]


def read(slug: str) -> Declared:
    return read_file(registry.CATALOGUE / f"{slug}.toml", shown_as=f"{slug}.toml", environ={})


def test_the_catalogue_has_the_providers_that_it_is_known_for() -> None:
    assert set(DECLARED) <= {path.stem for path in FILES}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_shipped_file_is_read_whole_and_needs_what_it_names(path: Path) -> None:
    account = read_file(path, shown_as=path.name, environ={}).account
    assert account.slug == path.stem
    # Nothing of a shipped provider works without somebody's credentials, and saying so is no fault.
    assert account.missing
    assert not account.configured


@pytest.mark.parametrize("slug", DECLARED)
def test_every_promise_of_a_shipped_file_has_a_source_and_a_day(slug: str) -> None:
    facts = read(slug).account.facts
    assert {*(one.name for one in fields(Contract)), "listing"} - {one.field for one in facts} == set()
    for one in facts:
        assert one.read_on.year == 2026
        own = (ROOT / one.source).is_file()
        assert own or urlsplit(one.source).scheme == "https", one.source
        # Our own choices say that they are, and so does every other source that isn't the provider's word.
        assert not own or "Our own choice" in one.note


@pytest.mark.parametrize("slug", DECLARED)
def test_a_worker_is_told_what_it_has_to_send(slug: str) -> None:
    account = read(slug).account
    assert "payload" in account.worker_sends
    keyed = account.contract.key_format is not KeyFormat.NONE
    assert ("key as" in account.worker_sends) == keyed


@pytest.mark.parametrize("slug", DECLARED)
def test_nothing_is_concluded_from_absence_at_any_shipped_provider(slug: str) -> None:
    contract = read(slug).account.contract
    assert not contract.absence_is_proof
    assert not contract.rejection_replays


def test_a_window_that_nobody_publishes_is_none_to_count_on() -> None:
    square = read("square").account
    assert square.contract.window_kind is WindowKind.UNPUBLISHED
    assert square.contract.dedup_window_ms is None
    assert square.make_absent is not None
    assert "cancel" in square.make_absent.request
    assert all("cancel" not in step.requests[""].path.source for step in read("square").http.lookups)


def test_search_is_a_hint_wherever_it_is_asked() -> None:
    steps = [(slug, step) for slug in DECLARED for step in read(slug).http.lookups]
    searches = [(slug, step) for slug, step in steps if step.kind is LookupKind.BY_SEARCH]
    assert {slug for slug, _ in searches} == {"stripe-charges", "stripe-payments", "github-issues", "zendesk"}
    assert all(step.hint for _, step in searches)


def test_our_keys_fit_the_shortest_limit_of_all() -> None:
    assert KEY_LENGTH_MAX == 45  # Square's; the next are Adyen's 64 and PayPal's 108


# --- which of them are accounts here ---


@pytest.fixture
def fresh_registry(settings: object) -> Iterator[object]:
    registry.reload()
    yield settings
    registry.reload()


def test_none_is_an_account_until_it_is_named(
    fresh_registry: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A variable of that name may be set for anything.
    monkeypatch.setenv("STRIPE_API_KEY", "sk_test_x")
    registry.reload()
    assert all(one.slug.startswith("sandbox-") for one in registry.all_accounts())
    with pytest.raises(registry.UnknownProvider):
        registry.account("stripe-refunds")
    assert "stripe-refunds" in {one.slug for one in registry.catalogue()}


def test_a_named_one_is_listed_and_not_configured_until_its_variables_are_set(
    fresh_registry: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STRIPE_API_KEY", raising=False)
    fresh_registry.RECOURSE_PROVIDERS = ["stripe-refunds", "slack", "stripe-refunds"]  # type: ignore[attr-defined]
    registry.reload()
    assert registry.problems() == ()
    account = registry.account("stripe-refunds")
    assert account.missing == ("STRIPE_API_KEY",)
    assert account.base_url == "https://api.stripe.com"
    assert account.declared_in == "stripe-refunds.toml"
    monkeypatch.setenv("STRIPE_API_KEY", "sk_test_x")
    monkeypatch.setenv("STRIPE_URL", "http://127.0.0.1:9")
    registry.reload()
    assert registry.account("stripe-refunds").configured
    assert registry.account("stripe-refunds").base_url == "http://127.0.0.1:9"
    assert registry.refused_answers("slack") != ()


def test_a_name_that_isnt_in_the_catalogue_stops_the_start_and_is_told_what_is(
    fresh_registry: object,
) -> None:
    fresh_registry.RECOURSE_PROVIDERS = ["stripe-refund", "../sandbox-mail"]  # type: ignore[attr-defined]
    registry.reload()
    told = registry.problems()
    assert len(told) == 2
    assert "Did you mean stripe-refunds?" in told[0]
    assert "slack" in told[1]
    with pytest.raises(DeclarationInvalid, match="RECOURSE_PROVIDERS"):
        registry.all_accounts()


def test_an_administrators_file_of_the_same_account_is_a_second_one(
    fresh_registry: object, tmp_path: Path
) -> None:
    (tmp_path / "ours.toml").write_text((registry.CATALOGUE / "slack.toml").read_text())
    fresh_registry.RECOURSE_PROVIDERS = ["slack"]  # type: ignore[attr-defined]
    fresh_registry.RECOURSE_PROVIDERS_DIR = [str(tmp_path)]  # type: ignore[attr-defined]
    registry.reload()
    assert any('found "slack"' in one for one in registry.problems())


def test_the_page_about_notices_has_each_accounts_variables_and_types() -> None:
    page = (ROOT / "docs" / "providers" / "webhooks.md").read_text()
    table = page.partition("## Those of the shipped accounts")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| `([a-z-]+)` \| (.*) \|$", table, re.MULTILINE))
    declared = {path.stem: tomllib.loads(path.read_text()) for path in FILES}
    assert set(rows) == {slug for slug, file in declared.items() if "webhook" in file}
    for slug, row in rows.items():
        webhook = declared[slug]["webhook"]
        named = [*webhook.get("secrets", []), *webhook.get("certificates", [])]
        named += [webhook[member] for member in ("url", "webhook_id") if member in webhook]
        variables, _, types = row.partition(" | ")
        assert re.findall(r"`([A-Z_]+)`", variables) == [one["env"] for one in named], slug
        taken = [kind for event in webhook["events"] for kind in event["types"]]
        if types != "every status":
            spelled = re.findall(r"`([^`]+)`", types)
            prefix = spelled.pop(0) if spelled[0].endswith(".") else ""
            assert [prefix + one for one in spelled] == taken, slug
