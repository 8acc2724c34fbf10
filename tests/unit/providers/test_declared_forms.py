"""The forms that real providers need in a declaration: read whole, or refused in a sentence that helps."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from reconciliation.contracts import (
    AmountForm,
    AskedAgain,
    KeyAfter,
    LateSend,
    LookupKind,
    ReferenceForm,
    ReplyShows,
)
from reconciliation.providers import registry
from reconciliation.providers.declaration import Declared
from reconciliation.providers.environment import AuthScheme
from reconciliation.providers.lookup_tables import LookupRules, LookupStep, NextBy, Pages
from reconciliation.providers.tables import DeclarationInvalid
from tests.contract.declaring import DECLARATION, declare

URL = "https://api.shop.example/v1"
_ONE_WAY = DECLARATION[DECLARATION.index("[lookup.request]") :]
BEFORE = DECLARATION.removesuffix(_ONE_WAY).replace('lookup = "by_key"', 'lookup = "by_listing"')
ONE = (
    '[[lookups]]\nname = "list"\nkind = "by_listing"\n[lookups.request]\npath = "/orders"\n[lookups.answer]\n'
)
TWO = ONE.replace('"list"', '"search"').replace("by_listing", "by_search")
HINT = TWO.replace('kind = "by_search"', 'kind = "by_search"\nhint = true')


def read(folder: Path, *changes: tuple[str, str], text: str = DECLARATION, **environ: str) -> Declared:
    return declare(folder, URL, *changes, text=text, environ=environ)


def faults(folder: Path, *changes: tuple[str, str], text: str = DECLARATION, **environ: str) -> str:
    with pytest.raises(DeclarationInvalid) as caught:
        read(folder, *changes, text=text, **environ)
    return " ".join(caught.value.details["problems"])


def before_contract(table: str) -> tuple[str, str]:
    return "[contract]\nkey_field", f"{table}\n[contract]\nkey_field"


# --- what comes from the environment ---


def test_a_base_url_may_have_a_default_that_its_variable_replaces(tmp_path: Path) -> None:
    default = ('{ env = "SHOP_URL" }', '{ env = "OTHER_URL", default = "https://api.other.example/" }')
    assert read(tmp_path, default).account.base_url == "https://api.other.example"
    assert read(tmp_path, default).account.configured
    peer = read(tmp_path, default, OTHER_URL="http://127.0.0.1:9")
    assert peer.account.base_url == "http://127.0.0.1:9"
    wrong = ('{ env = "SHOP_URL" }', '{ env = "OTHER_URL", default = "api.other.example" }')
    assert "base_url.default" in faults(tmp_path, wrong)


SETTING = before_contract('[settings]\nworkspace = { env = "SHOP_WORKSPACE" }')
IN_PATH = ('[send.request]\npath = "/orders"', '[send.request]\npath = "/w/{setting.workspace}/orders"')


def test_a_setting_goes_into_the_path_and_into_what_a_first_send_fixes(tmp_path: Path) -> None:
    one = read(tmp_path, SETTING, IN_PATH, SHOP_WORKSPACE="w-1").account
    two = read(tmp_path, SETTING, IN_PATH, SHOP_WORKSPACE="w-2").account
    assert one.endpoint == "/w/w-1/orders"
    assert one.pin != two.pin
    absent = read(tmp_path, SETTING, IN_PATH).account
    assert absent.missing == ("SHOP_WORKSPACE",)
    assert not absent.configured


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ([before_contract('[settings]\nw = "w-1"')], ["[settings] w", "env", "default"]),
        ([before_contract('[settings]\n"a b" = { env = "X" }')], ["[settings] a b", "letters"]),
        ([IN_PATH], ["{setting.workspace}", "Name it under [settings] first"]),
        (
            [SETTING, (IN_PATH[0], IN_PATH[1].replace("workspace", "workspaces"))],
            ["Did you mean {setting.workspace}?"],
        ),
    ],
)
def test_a_wrong_setting_is_told(changes: list[tuple[str, str]], says: list[str], tmp_path: Path) -> None:
    told = faults(tmp_path, *changes)
    assert all(part in told for part in says), told


def test_a_settings_value_that_cant_stand_in_a_url_is_a_fault_that_doesnt_repeat_it(tmp_path: Path) -> None:
    told = faults(tmp_path, SETTING, IN_PATH, SHOP_WORKSPACE="w 1\r\n")
    assert "the value of SHOP_WORKSPACE" in told
    assert "w 1" not in told


CREDENTIAL = '[credentials]\ntoken = { env = "SHOP_TOKEN" }\n'


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ('[authorization]\nscheme = "digest"', ["[authorization] scheme", "bearer", "client_credentials"]),
        ('[authorization]\nscheme = "bearer"', ["[authorization] token: found nothing"]),
        ('[authorization]\nscheme = "bearer"\ntoken = "{key}"', ["secrets and settings only"]),
        (
            '[authorization]\nscheme = "bearer"\ntoken = "{secret.tokens}"',
            ["Did you mean {secret.token}?"],
        ),
        (
            '[authorization]\nscheme = "basic"\nuser = "u"\npassword = "{secret.token}"\nx = 1',
            ["[authorization] x", "an unknown name"],
        ),
        (
            (
                '[authorization]\nscheme = "client_credentials"\nclient_id = "u"\n'
                'client_secret = "{secret.token}"\ntoken_path = "https://other.example/token"'
            ),
            ["token_path", "a path below base_url"],
        ),
    ],
)
def test_a_wrong_authorization_is_told(table: str, says: list[str], tmp_path: Path) -> None:
    told = faults(tmp_path, before_contract(CREDENTIAL + table))
    assert all(part in told for part in says), told


def test_a_secret_that_is_written_into_the_authorization_is_refused_and_not_repeated(tmp_path: Path) -> None:
    told = faults(tmp_path, before_contract('[authorization]\nscheme = "bearer"\ntoken = "s3cr3t-value"'))
    assert "a secret by reference" in told
    assert "s3cr3t-value" not in told


def test_who_we_are_is_said_in_one_place(tmp_path: Path) -> None:
    twice = '[headers]\nauthorization = "Bearer {secret.token}"\n'
    twice += '[authorization]\nscheme = "bearer"\ntoken = "{secret.token}"'
    assert "nothing beside [authorization]" in faults(tmp_path, before_contract(CREDENTIAL + twice))


def test_another_way_to_sign_in_is_another_sender(tmp_path: Path) -> None:
    bearer = '[authorization]\nscheme = "bearer"\ntoken = "{secret.token}"'
    with_user = '[authorization]\nscheme = "basic"\nuser = "u"\npassword = "{secret.token}"'
    one = read(tmp_path, before_contract(CREDENTIAL + bearer), SHOP_TOKEN="t-1").account
    two = read(tmp_path, before_contract(CREDENTIAL + with_user), SHOP_TOKEN="t-1").account
    assert one.pin != two.pin


# --- requests ---


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (
            '[send.request]\npath = "/orders"',
            '[send.request]\npath = "/orders"\nadd = { ref = "{operation}" }\nbody = { a = "{key}" }',
            ["[send.request] add", "one of them"],
        ),
        (
            '[send.request]\npath = "/orders"',
            '[send.request]\npath = "/orders"\nadd = { ref = "{operatoin}" }',
            ["[send.request.add] ref", '"{operatoin}"'],
        ),
        ('query = { idempotency_key = "{key}" }', "query = { n = [1] }", ["[lookup.request.query] n"]),
        (
            'query = { idempotency_key = "{key}" }',
            'method = "POST"\nbody = { key = "{key}" }',
            ["only_reads", "changes nothing"],
        ),
        (
            'query = { idempotency_key = "{key}" }',
            "only_reads = true",
            ["only_reads: found true beside method GET"],
        ),
        (
            'query = { idempotency_key = "{key}" }',
            'method = "POST"\nonly_reads = true',
            ["[lookup.request] body: found nothing", "the payload is never sent"],
        ),
        (
            'query = { idempotency_key = "{key}" }',
            'method = "DELETE"\nonly_reads = true',
            ['found "DELETE"', "GET, POST"],
        ),
        (
            'replay_header = "Idempotent-Replayed"',
            'replay_values = ["hit"]',
            ["replay_values", "the header they are in"],
        ),
    ],
)
def test_a_wrong_request_is_told(old: str, new: str, says: list[str], tmp_path: Path) -> None:
    told = faults(tmp_path, (old, new))
    assert all(part in told for part in says), told


def test_the_key_has_no_second_place_among_what_is_added(tmp_path: Path) -> None:
    changes = [
        ('key_field = "Idempotency-Key"', 'key_field = "dedupe"'),
        ('key_format = "header_bare"', 'key_format = "body_field"'),
        ('[send.request]\npath = "/orders"', '[send.request]\npath = "/orders"\nadd = { dedupe = "{key}" }'),
    ]
    assert "no second place for the key" in faults(tmp_path, *changes)


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        ("values = []", ["neither statuses, path nor header"]),
        ('statuses = [403]\nheader_values = ["0"]', ["header_values", "a header to find them in"]),
    ],
)
def test_a_pattern_says_what_it_looks_at(pattern: str, says: list[str], tmp_path: Path) -> None:
    told = faults(tmp_path, ("[lookup.request]", f"[[send.answer.unknown]]\n{pattern}\n\n[lookup.request]"))
    assert all(part in told for part in says), told


# --- ways to ask ---


def test_several_ways_are_read_in_their_order_with_what_they_are(tmp_path: Path) -> None:
    declared = read(tmp_path, text=BEFORE + ONE + HINT)
    assert [(one.name, one.kind, one.hint) for one in declared.account.lookups] == [
        ("list", LookupKind.BY_LISTING, False),
        ("search", LookupKind.BY_SEARCH, True),
    ]


def test_the_one_way_of_a_short_file_is_of_the_contracts_kind(tmp_path: Path) -> None:
    (way,) = read(tmp_path).account.lookups
    assert (way.name, way.kind, way.hint) == ("lookup", LookupKind.BY_KEY, False)


def test_pages_are_read_with_their_bounds(tmp_path: Path) -> None:
    paged = ONE + 'pages = { next = "cursor", parameter = "cursor", at = "$.next", pages_max = 7 }\n'
    pages = read(tmp_path, text=BEFORE + paged).http.lookups[0].rules.pages
    assert pages is not None
    assert (pages.by, pages.parameter, pages.at, pages.pages_max) == (NextBy.CURSOR, "cursor", "$.next", 7)


@pytest.mark.parametrize(
    ("ways", "says"),
    [
        (HINT + ONE, ["a hint in front"]),
        (TWO + ONE, ["by_search in front", "by_listing as in [contract]"]),
        (ONE + ONE, ["two of one name"]),
        (ONE * 7, ["at most 6"]),
        (ONE + _ONE_WAY, ["lookups beside lookup"]),
        (ONE.replace('name = "list"\n', ""), ["[lookups #1] name: found nothing"]),
        (ONE.replace("by_listing", "none"), ["[lookups #1] kind", "by_key, by_reference"]),
        (ONE.replace("[lookups.request]", "[lookups.requests]"), ["path"]),
        (ONE + "window_before_ms = -1\n", ["window_before_ms"]),
        (ONE + 'pages = { next = "page" }\n', ["[lookups #1.answer.pages] next", "last_record, cursor"]),
        (
            ONE + 'pages = { next = "last_record", parameter = "after", at = "$.id" }\n',
            ["more: found nothing"],
        ),
        (ONE + 'pages = { next = "cursor", parameter = "c" }\n', ["at: found nothing"]),
        (ONE + 'pages = { next = "cursor", at = "$.next" }\n', ["parameter: found None"]),
        (ONE + 'pages = { next = "link", parameter = "page" }\n', ["a link has its own"]),
        (ONE + 'pages = { next = "number", parameter = "page" }\n', ["how many records a full page has"]),
        (ONE + 'pages = { next = "number", parameter = "p", at = "$.a", size = 5 }\n', ["pages are counted"]),
        (
            ONE + 'pages = { next = "cursor", parameter = "c", at = "$.n", pages_max = 51 }\n',
            ["from 1 to 50"],
        ),
        (ONE + "[lookups.receipt]\nid = '$.id'\n", ["nothing that carries our key or reference"]),
    ],
)
def test_wrong_ways_to_ask_are_told(ways: str, says: list[str], tmp_path: Path) -> None:
    if "window_before_ms" in ways:
        ways = ONE.replace('name = "list"', 'name = "list"\nwindow_before_ms = -1')
    told = faults(tmp_path, text=BEFORE + ways)
    assert all(part in told for part in says), told


def test_records_that_carry_nothing_of_ours_are_asked_for_by_resemblance_only(tmp_path: Path) -> None:
    bare = BEFORE.replace('key = "$.idempotency_key"\n', "").replace("by_listing", "by_resemblance")
    alike = ONE.replace("by_listing", "by_resemblance")
    account = read(tmp_path, text=bare + alike).account
    assert account.contract.has_lookup
    assert not account.contract.has_reliable_lookup
    told = faults(tmp_path, text=BEFORE.replace("by_listing", "by_resemblance") + alike)
    assert "by_resemblance beside receipt.key" in told
    told = faults(tmp_path, text=bare.replace("absence_is_proof = false", "absence_is_proof = true") + alike)
    assert "absence_is_proof: found true" in told


# --- receipts, facts, and what is shown ---


def test_the_forms_of_a_receipt_are_read(tmp_path: Path) -> None:
    receipt = (
        'key = "$.idempotency_key"\n',
        (
            'reference = "$.text"\nreference_form = "within"\nour_reference = "<!-- op {operation} -->"\n'
            'reply = "part"\namount_form = "decimal_negative"\n'
        ),
    )
    by_reference = ('lookup = "by_key"', 'lookup = "by_reference"')
    found = read(tmp_path, receipt, by_reference).account.contract.receipt
    assert found.reference_form is ReferenceForm.WITHIN
    assert found.reply is ReplyShows.PART
    assert found.amount_form is AmountForm.DECIMAL_NEGATIVE


@pytest.mark.parametrize(
    "marker", ["{operation}", "<!-- {operation}", "{payload.id} -->", "<!-- x -->", " {key} "]
)
def test_a_marker_that_could_be_part_of_another_is_refused(marker: str, tmp_path: Path) -> None:
    receipt = (
        'key = "$.idempotency_key"\n',
        f'reference = "$.text"\nreference_form = "within"\nour_reference = "{marker}"\n',
    )
    told = faults(tmp_path, receipt, ('lookup = "by_key"', 'lookup = "by_reference"'))
    assert "with text before and after it" in told


def test_where_the_record_is_in_an_answer_belongs_to_the_contract_too(tmp_path: Path) -> None:
    inside = ("[send.answer]\n", '[send.answer]\nreceipt_at = "$.order"\n')
    assert read(tmp_path, inside).account.contract.receipt.answer_at == "$.order"


FACT = '\n[[facts]]\n{names}\nsource = "https://docs.shop.example"\nread_on = 2026-11-29\nnote = "n"\n'


def test_one_source_may_be_where_several_promises_come_from(tmp_path: Path) -> None:
    text = DECLARATION + FACT.format(names='fields = ["key_field", "key_format"]')
    text += FACT.format(names='field = "lookup"')
    assert [one.field for one in read(tmp_path, text=text).account.facts] == [
        "key_field",
        "key_format",
        "lookup",
    ]
    told = faults(tmp_path, text=DECLARATION + FACT.format(names='fields = ["key_field", "key"]'))
    assert 'found "key"' in told
    told = faults(tmp_path, text=DECLARATION + FACT.format(names=""))
    assert "fields = [several]" in told


MAKE_ABSENT = """[make_absent]
title = "Cancel it"
says = "It cancels."
late_send = "may_land"
key_after = "unknown"
again = "harmless"
[make_absent.request]
path = "/cancel"
body = { key = "{key}" }
[make_absent.answer]
absent = [{ statuses = [200] }]
"""


def test_a_way_to_make_an_effect_absent_is_described_and_is_no_way_to_look(tmp_path: Path) -> None:
    declared = read(tmp_path, before_contract(MAKE_ABSENT))
    way = declared.account.make_absent
    assert way is not None
    assert (way.request, way.late_send, way.key_after, way.again, way.proves_within_ms) == (
        *("POST /cancel", LateSend.MAY_LAND, KeyAfter.UNKNOWN, AskedAgain.HARMLESS, None),
    )
    assert declared.http.absence is not None
    assert declared.http.absence.request_for("any") is not None
    assert all(one.name != "Cancel it" for one in declared.account.lookups)
    # It is no part of what is sent: a key first used before it was declared is still the same key.
    assert declared.account.adapter_version == read(tmp_path).account.adapter_version


@pytest.mark.parametrize(
    ("table", "says"),
    [
        (
            '[make_absent]\ntitle = "Cancel it"',
            ["says: found nothing", "late_send", "request: found nothing"],
        ),
        (MAKE_ABSENT.replace("{key}", "key"), ["nothing of ours", "{key}, {operation} or {reference}"]),
        (MAKE_ABSENT.replace("body = ", "add = "), ["the payload is never sent with it"]),
        (MAKE_ABSENT.replace('path = "/cancel"', 'path = "/cancel"\nmethod = "GET"'), ["POST, PUT, PATCH"]),
        (MAKE_ABSENT.replace("absent = [{", "refused = [{"), ["which answers say that it is absent"]),
        (MAKE_ABSENT.replace("harmless", "fine"), ['again: found "fine"', "harmless, unknown"]),
        (MAKE_ABSENT.replace('says = "', 'proves_within_ms = 0\nsays = "'), ["proves_within_ms"]),
    ],
)
def test_a_request_that_makes_absent_is_wholly_said_or_refused(
    table: str, says: list[str], tmp_path: Path
) -> None:
    told = faults(tmp_path, before_contract(table))
    assert all(part in told for part in says), told


# --- the page that explains all this ---

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "providers" / "declared.md").read_text()


@pytest.mark.parametrize(
    "words",
    [
        [one.value for kind in (AuthScheme, NextBy, AmountForm, ReferenceForm) for one in kind],
        [one.name for kind in (LookupStep, LookupRules, Pages) for one in fields(kind) if one.name != "by"],
        ["reply", "worker_sends", "make_absent", "file_env", "settings", "only_reads", "replay_values"],
        [path.stem for path in registry.CATALOGUE.glob("*.toml")],
    ],
    ids=["words", "tables", "others", "catalogue"],
)
def test_the_page_names_everything_that_a_file_may_say(words: list[str]) -> None:
    # By itself, as a value, as a member with a value, or as a table's name; "rules" are the table answer.
    missing = [
        one
        for one in words
        if one != "rules" and not re.search(rf'`{one}`|"{one}"|\b{one} =|[.\[]{one}[\].]', PAGE)
    ]
    assert missing == []


def test_the_pages_example_of_several_ways_is_one_that_is_read(tmp_path: Path) -> None:
    blocks = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    several = next(block for block in blocks if "[[lookups]]" in block)
    ways = read(tmp_path, text=BEFORE + several).account.lookups
    assert [(one.name, one.hint) for one in ways] == [("list", False), ("events", False), ("search", True)]
    pages = next(block for block in blocks if "[lookup.answer.pages]" in block)
    paged = DECLARATION + pages
    assert read(tmp_path, text=paged).http.lookups[0].rules.pages is not None
    refusals = next(block for block in blocks if "[[send.answer.rejected]]" in block)
    told = read(tmp_path, ("[lookup.request]", f"{refusals}\n[lookup.request]")).http.answers
    assert (len(told.unknown), len(told.rejected)) == (1, 1)
