"""Minted keys: the same words always give the same key, and no two effects share one."""

from __future__ import annotations

import itertools
import re

import pytest
from pytest_django import Settings

from runs.journal.turns import CallChosen
from runs.keys import mint_key
from runs.models import KEY_LENGTH_MAX, Operation
from tests.factories import effect, make_account, make_claimed, make_team

WORDS = {
    "team": "ops",
    "provider": "sandbox-supplier",
    "flow": "order-agent",
    "external_id": "ORD-7",
    "turn_index": 1,
    "call_id": "c1",
}


def mint(**words: object) -> str:
    return mint_key(**{**WORDS, **words})  # type: ignore[arg-type]


def test_the_same_words_give_the_same_key() -> None:
    assert mint() == mint()


def test_a_key_is_what_a_restored_journal_would_mint_again(settings: Settings) -> None:
    settings.RECOURSE_KEY_SECRET = "a secret of a test"
    # A fixed value on purpose: another one after an upgrade would send every open effect twice.
    assert mint() == "rk-b2r6xi44myrhyfyqawx6gy5ke32hhozbuqrs4rnc"


def test_a_key_fits_every_provider_we_know() -> None:
    assert re.fullmatch(r"rk-[a-z2-7]{40}", mint(external_id="é" * 200, call_id="c" * 64))
    assert len(mint()) <= KEY_LENGTH_MAX


def test_every_word_makes_another_key() -> None:
    keys = {
        mint(),
        mint(team="other"),
        mint(provider="sandbox-mail"),
        mint(flow="mail-agent"),
        mint(external_id="ORD-8"),
        mint(turn_index=2),
        mint(call_id="c2"),
    }
    assert len(keys) == 7


def test_no_two_lists_of_words_run_together() -> None:
    halves = ("a", "ab", 'a"', 'a", "b', "a,b", "", "b")
    keys = {mint(flow=flow, external_id=external) for flow, external in itertools.product(halves, repeat=2)}
    assert len(keys) == len(halves) ** 2


def test_another_deployment_s_secret_makes_another_key(settings: Settings) -> None:
    before = mint()
    settings.RECOURSE_KEY_SECRET = "another secret"
    assert mint() != before


def operation(call: CallChosen | None = None, **fields: object) -> Operation:
    return make_claimed(call or effect(), **fields).operation  # type: ignore[arg-type]


@pytest.mark.django_db(transaction=True)
def test_the_same_names_in_two_teams_and_flows_have_keys_of_their_own() -> None:
    make_team("other")
    make_account("sandbox-mail")
    keys = {
        operation(external_id="ORD-7").key,
        operation(external_id="ORD-7", flow="mail-agent").key,
        operation(external_id="ORD-7", flow="third-agent", call=effect(provider="sandbox-mail")).key,
    }
    assert len(keys) == 3
    assert Operation.objects.count() == 3
