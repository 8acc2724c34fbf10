"""A contract in plain words, the same on the page and in the documentation."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from django.core.management import CommandError, call_command

from console import provider_docs
from console.pages.present.contract_words import (
    absence_in_words,
    duration,
    key_in_words,
    pattern_in_words,
    window_in_words,
)
from console.pages.present.promises import FIELDS, promises_of
from reconciliation.contracts import AnswerPattern, Contract, KeyFormat, LookupKind, WindowKind
from reconciliation.providers import registry
from tests.policy_facts import contract, keyless
from tests.processes import ROOT


def test_every_field_of_the_contract_is_told_once() -> None:
    told = [*FIELDS]
    assert len(told) == len(set(told))
    assert set(told) == {one.name for one in fields(Contract)} | {"console_sends", "listing"}


def test_every_shipped_account_is_told_in_whole_sentences() -> None:
    for account in (*registry.all_accounts(), *registry.catalogue()):
        for group in promises_of(account):
            for line in group.lines:
                assert line.value, (account.slug, line.field)
                assert "None" not in line.value.removeprefix("None"), (account.slug, line.field)
                assert line.meaning.endswith("."), (account.slug, line.field)
                assert "try again" not in line.meaning


@pytest.mark.parametrize(
    ("milliseconds", "said"),
    [
        (0, "0 ms"),
        (250, "250 ms"),
        (1_000, "1 s"),
        (1_500, "1.5 s"),
        (90_000, "90 s"),
        (160_000, "2 min 40 s"),
        (300_000, "5 min"),
        (5_400_000, "90 min"),
        (86_100_000, "23 h 55 min"),
        (86_400_000, "24 h"),
        (604_800_000, "7 d"),
    ],
)
def test_a_duration_is_said_exactly(milliseconds: int, said: str) -> None:
    assert duration(milliseconds) == said


@pytest.mark.parametrize(
    ("promised", "key", "window", "absence"),
    [
        (contract(), "Header Idempotency-Key", "24 h from the first send", "Proves nothing"),
        (keyless(lookup=LookupKind.NONE), "No key is honoured", "No window", "It can’t be asked"),
        (
            contract(key_format=KeyFormat.HEADER_QUOTED, window_kind=WindowKind.MINIMUM),
            "Header Idempotency-Key, in double quotes",
            "At least 24 h from the first send",
            "Proves nothing",
        ),
        (
            contract(
                key_format=KeyFormat.BODY_FIELD,
                key_field="key",
                window_kind=WindowKind.UNPUBLISHED,
                dedup_window_ms=None,
                absence_is_proof=True,
                visibility_lag_ms=3_000,
            ),
            "Body member key",
            "For a time that nobody states",
            "Proves absence, 3 s after every request is quiet",
        ),
    ],
)
def test_a_contract_in_a_few_words(promised: Contract, key: str, window: str, absence: str) -> None:
    assert key_in_words(promised) == key
    assert window_in_words(promised) == window
    assert absence_in_words(promised) == absence


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        (AnswerPattern(statuses=(409, 422)), "409 or 422"),
        (AnswerPattern(statuses=tuple(range(500, 600))), "any 5xx"),
        (
            AnswerPattern(statuses=(409,), path="$.code", values=("a", "b")),
            "409 where $.code is a or b",
        ),
        (AnswerPattern(path="$.code"), "where $.code is there"),
        (AnswerPattern(header="Retry"), "where header Retry is there"),
    ],
)
def test_a_kind_of_answer_in_words(pattern: AnswerPattern, said: str) -> None:
    assert pattern_in_words(pattern) == said


def test_what_is_tightened_stands_beside_what_is_declared() -> None:
    declared = registry.account("sandbox-payments")
    held = replace(declared, contract=replace(declared.contract, dedup_window_ms=3_600_000))
    lines = {line.field: line for group in promises_of(held, declared=declared) for line in group.lines}
    assert lines["dedup_window_ms"].built_in == "24 h from the first send"
    assert [name for name, line in lines.items() if line.built_in] == ["dedup_window_ms"]


def test_the_pages_of_the_providers_are_in_line_with_their_declarations() -> None:
    folder = ROOT / "docs" / "providers"
    for name, text in provider_docs.pages().items():
        assert (folder / name).read_text() == text, f"{name} is behind: run manage.py provider_docs"
    call_command("provider_docs", "--check")


def test_a_page_names_what_its_notices_are_checked_with() -> None:
    made = provider_docs.pages()
    assert (
        "notices go to `/api/v1/providers/stripe-refunds/webhook` and are checked with "
        "`STRIPE_REFUNDS_WEBHOOK_SECRET` ([webhooks.md](webhooks.md))."
    ) in made["stripe-refunds.md"]
    assert (
        "checked with `PAYPAL_WEBHOOK_CERTIFICATE` or `PAYPAL_WEBHOOK_CERTIFICATE_NEXT`, and with "
        "`PAYPAL_WEBHOOK_ID` (["
    ) in made["paypal.md"]
    assert "notices go to" not in made["sandbox-desk.md"]


def test_a_page_that_is_behind_fails_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    made = provider_docs.pages()
    monkeypatch.setattr(provider_docs, "pages", lambda: {**made, "stripe-refunds.md": "other"})
    with pytest.raises(CommandError, match=r"stripe-refunds\.md"):
        call_command("provider_docs", "--check")
    monkeypatch.setattr(
        provider_docs, "pages", lambda: {name: made[name] for name in made if name != "sqs-fifo.md"}
    )
    with pytest.raises(CommandError, match=r"sqs-fifo\.md"):
        call_command("provider_docs", "--check")


def test_nothing_in_a_cell_is_a_mark() -> None:
    assert provider_docs.cell("a|b *c* <d> [e] `f`\n g") == r"a\|b \*c\* \<d> \[e] \`f\` g"
