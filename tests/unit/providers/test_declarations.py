"""A declaration is understood wholly or refused with every fault in it, each in a sentence that helps."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from reconciliation.contracts import (
    CompareAs,
    Contract,
    KeyFormat,
    KeyScope,
    LookupKind,
    OnInFlight,
    OnOtherPayload,
    Replays,
    VerifiedWith,
    WindowKind,
)
from reconciliation.providers import registry
from reconciliation.providers.declaration import read_file
from reconciliation.providers.tables import DeclarationInvalid
from reconciliation.providers.templates import Template, TemplateFault, Values, ValueUnusable
from tests.contract.declaring import DECLARATION, declare

URL = "https://api.shop.example/v1"
ROOT = Path(__file__).resolve().parents[3]


def faults(folder: Path, *changes: tuple[str, str], text: str = DECLARATION) -> list[str]:
    with pytest.raises(DeclarationInvalid) as caught:
        declare(folder, URL, *changes, text=text)
    assert caught.value.word == "invalid"
    problems = caught.value.details["problems"]
    assert all(one in str(caught.value) for one in problems)
    return list(problems)


def test_a_right_file_is_read_whole(tmp_path: Path) -> None:
    declared = declare(tmp_path, URL + "/")
    account = declared.account
    assert (account.slug, account.title, account.base_url) == ("shop", "Shop", URL)
    assert account.configured
    assert account.console_can_send
    assert account.endpoint == "/orders"
    assert account.contract.key_format is KeyFormat.HEADER_BARE
    assert account.contract.window_kind is WindowKind.DOCUMENTED
    assert account.contract.lookup is LookupKind.BY_KEY
    assert account.contract.receipt.key == "$.idempotency_key"
    assert account.tested.kind is VerifiedWith.NOTHING
    assert declared.http.lookups[0].rules.more == "$.has_more"


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        # a word that isn't one
        ('"header_bare"', '"header"', ["[contract] key_format", '"header"', "header_bare", "Did you mean"]),
        ('lookup = "by_key"', 'lookup = "bykey"', ["[contract] lookup", "Did you mean by_key?"]),
        # a name that isn't one
        ("rate_limit_per_second", "rate_limit", ["rate_limit: found an unknown name", "Did you mean"]),
        ("console_sends", "console_send", ["console_send: found", "Did you mean console_sends?"]),
        ("[send.answer]", "[send.anwser]", ["[send] anwser", "Did you mean answer?"]),
        ("more =", "mores =", ["[lookup.answer] mores", "Did you mean more?"]),
        # a value of another type
        ("dedup_window_ms = 86_400_000", 'dedup_window_ms = "24h"', ['"24h"', "whole number"]),
        ("start_within_ms = 5_000", "start_within_ms = -1", ["start_within_ms: found -1"]),
        ("absence_is_proof = false", 'absence_is_proof = "no"', ["absence_is_proof", "true or false"]),
        ("rate_limit_per_second = 10", "rate_limit_per_second = 0", ["rate_limit_per_second: found 0"]),
        ('succeeded = ["succeeded"]', 'succeeded = "succeeded"', ["succeeded", "a list of texts"]),
        ("not_found_statuses = [404]", "not_found_statuses = [4040]", ["not_found_statuses", "4040"]),
        # something missing
        ('slug = "shop"', "", ["slug: found nothing"]),
        ('key_format = "header_bare"', "", ["key_format: found nothing", "header_quoted"]),
        ("[contract.success_when]\npath", "[contract.success_when]\npathe", ["pathe", "Did you mean path?"]),
        ('[send.request]\npath = "/orders"', "[send.request]", ["[send.request] path: found nothing"]),
        # paths and templates
        ('items = "$.data"', 'items = "$.data["', ["[lookup.answer] items", "a JSONPath"]),
        ('"{key}"', '"{kee}"', ["[lookup.request.query] idempotency_key", '"{kee}"', "{key}"]),
        ('path = "/orders"\n\n[send', 'path = "orders"\n\n[send', ["[send.request] path", "starts with /"]),
        ('path = "/orders"\n\n[send', 'path = "/a/%2e./b"\n\n[send', ["[send.request] path", "segments"]),
        # things that contradict each other
        ('key_field = "Idempotency-Key"', "", ["key_field: found None", "the header's or body"]),
        ('key_format = "header_bare"', 'key_format = "none"', ["key_field", "key_scope", "replays"]),
        ('window_kind = "documented"', 'window_kind = "unpublished"', ["no window is stated"]),
        ("window_margin_ms = 60_000", "window_margin_ms = 86_400_000", ["window_margin_ms", "less than"]),
        ('lookup = "by_key"', 'lookup = "none"', ["lookup: found a table", "none"]),
        ('lookup = "by_key"', 'lookup = "by_reference"', ["by_reference without receipt.reference"]),
        ('key = "$.idempotency_key"', "", ["by_key without receipt.key", "can never be found"]),
        (
            'absence_is_proof = false\nrate',
            'absence_is_proof = true\nrate',
            ["absence_is_proof: found true"],
        ),
        (
            '"first_answer"\nrejection_replays = false',
            '"latest_status"\nrejection_replays = true',
            ["rejection_replays: found true", "first_answer"],
        ),
        ('refused = ["failed"]', 'refused = ["succeeded"]', ["refused", "aren't in succeeded"]),
        # what a file must not say
        ("[send.request]", '[send.request.headers]\nHost = "x"\n[send.request]', ["Host", "transport's own"]),
        ('key_field = "Idempotency-Key"', 'key_field = "Content-Length"', ["Content-Length"]),
        (
            "[send.answer]",
            '[send.request.headers]\nidempotency-key = "{key}"\n\n[send.answer]',
            ["no second place for the key"],
        ),
    ],
)  # fmt: skip
def test_a_wrong_file_is_told_where_what_and_what_is_allowed(
    old: str, new: str, says: list[str], tmp_path: Path
) -> None:
    changes = [(old, new)]
    if old.startswith("absence_is_proof"):
        changes.append(("visibility_lag_ms = 2_000\n", ""))
    problems = faults(tmp_path, *changes)
    told = " ".join(problems)
    assert all(one.startswith("shop.toml: ") for one in problems)
    for part in says:
        assert part in told, told


def test_every_fault_of_a_file_is_told_at_once(tmp_path: Path) -> None:
    told = faults(
        tmp_path,
        ('"header_bare"', '"header"'),
        ("rate_limit_per_second = 10", "rate_limit_per_second = 0"),
        ("[send.answer]", "[send.anwser]"),
    )
    assert len(told) == 3


@pytest.mark.parametrize(
    "content", [b"slug = ", b"\xff\xfe", b"a = 1\na = 2", b"a = " + b"[" * 5000, b"x" * 300_000]
)
def test_a_file_that_is_no_toml_is_refused_in_a_sentence(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "odd.toml"
    path.write_bytes(content)
    with pytest.raises(DeclarationInvalid, match=r"odd\.toml: not a TOML file that can be read"):
        read_file(path, shown_as="odd.toml")


# --- secrets and environment ---

WITH_SECRET = (
    "[contract]\nkey_field",
    """[credentials]
token = { env = "SHOP_TOKEN" }

[headers]
Authorization = "Bearer {secret.token}"

[contract]
key_field""",
)


def test_a_secret_comes_from_the_environment_and_leaves_only_a_fingerprint(tmp_path: Path) -> None:
    declared = declare(tmp_path, URL, WITH_SECRET, environ={"SHOP_TOKEN": "very-secret-token"})
    assert declared.account.credentials[0].env == "SHOP_TOKEN"
    assert len(declared.account.credentials[0].fingerprint or "") == 16
    assert "very-secret-token" not in repr(declared)


def test_an_account_whose_environment_is_not_set_is_listed_as_not_configured(tmp_path: Path) -> None:
    declared = declare(tmp_path, "", WITH_SECRET)
    assert declared.account.missing == ("SHOP_URL", "SHOP_TOKEN")
    assert not declared.account.configured
    assert not declared.account.console_can_send
    assert declared.account.base_url is None


def test_a_secret_written_into_the_file_is_refused_and_not_repeated(tmp_path: Path) -> None:
    told = faults(
        tmp_path, ("[contract]\nkey_field", '[credentials]\ntoken = "hunter2"\n\n[contract]\nkey_field')
    )
    assert "[credentials] token" in told[0]
    assert "hunter2" not in " ".join(told)


def test_a_secret_that_no_credential_declares_is_refused(tmp_path: Path) -> None:
    headers = '[headers]\nAuthorization = "Bearer {secret.tokn}"\n\n[contract]\nkey_field'
    told = faults(tmp_path, ("[contract]\nkey_field", headers))
    assert "{secret.tokn}" in told[0]


@pytest.mark.parametrize(
    "place", ['path = "/orders/{secret.token}"', 'path = "/orders"\nquery = { t = "{secret.token}" }']
)
def test_a_secret_in_a_url_is_refused(place: str, tmp_path: Path) -> None:
    told = faults(tmp_path, WITH_SECRET, ('[send.request]\npath = "/orders"', f"[send.request]\n{place}"))
    assert "secrets in headers only" in told[0]


@pytest.mark.parametrize(
    "url",
    [
        "ftp://x",
        "https://",
        "api.shop.example",
        "https://me:hunter2@x",
        "https://x/?a=1",
        "https://x/#a",
        "https://x y",
    ],
)
def test_a_base_url_that_can_not_be_used_is_refused_and_not_repeated(url: str, tmp_path: Path) -> None:
    with pytest.raises(DeclarationInvalid, match="SHOP_URL") as caught:
        declare(tmp_path, url)
    assert "hunter2" not in str(caught.value)
    with pytest.raises(DeclarationInvalid, match="base_url"):
        declare(tmp_path, "", ('base_url = { env = "SHOP_URL" }', f'base_url = "{url}"'))


def test_what_is_said_about_sending_is_part_of_the_pin_and_the_title_is_not(tmp_path: Path) -> None:
    first = declare(tmp_path, URL).account.pin
    assert declare(tmp_path, URL, ('title = "Shop"', 'title = "The shop"')).account.pin == first
    assert declare(tmp_path, URL, ("Idempotency-Key", "X-Key")).account.pin != first
    moved = ('[send.request]\npath = "/orders"', '[send.request]\npath = "/v2/orders"')
    assert declare(tmp_path, URL, moved).account.pin != first
    assert declare(tmp_path, URL + "/eu").account.pin != first


def test_facts_name_a_field_a_source_and_a_day(tmp_path: Path) -> None:
    fact = '\n[[facts]]\nfield = "dedup_window_ms"\nsource = "https://docs.example"\nread_on = 2026-11-29\n'
    declared = declare(tmp_path, URL, text=DECLARATION + fact)
    assert declared.account.facts[0].read_on.isoformat() == "2026-11-29"
    wrong = fact.replace("dedup_window_ms", "dedup_window").replace("2026-11-29", '"2026-11-29"')
    told = " ".join(faults(tmp_path, text=DECLARATION + wrong))
    assert "[facts #1] field" in told
    assert "without quotes" in told


# --- templates ---

VALUES = Values(
    key="rk-1",
    operation="op_1",
    tool="order",
    payload={
        "n": 7,
        "flag": True,
        "deep": {"name": "a/b?c#d&e=f"},
        "list": [1],
        "dots": "..",
        "dot": ".",
        "crlf": "a\r\nX: 1",
    },
)


@pytest.mark.parametrize(
    "source", ["{nope}", "{payload}", "{payload.}", "{payload.a b}", "{", "}", "{{key}}", "{}"]
)
def test_a_template_with_an_unknown_placeholder_or_a_lone_brace_is_no_template(source: str) -> None:
    with pytest.raises(TemplateFault):
        Template(source)


def test_a_value_in_a_path_stays_one_segment() -> None:
    assert Template("/orders/{payload.deep.name}/x").path(VALUES) == "/orders/a%2Fb%3Fc%23d%26e%3Df/x"
    with pytest.raises(ValueUnusable):
        Template("/orders/{payload.dots}").path(VALUES)


@pytest.mark.parametrize(
    "source",
    ["/o/{payload.dot}{payload.dot}", "/o/.{payload.dot}", "/o/../{payload.n}", "/o/{payload.n}/./x"],
)
def test_no_path_has_a_segment_that_a_client_would_resolve(source: str) -> None:
    with pytest.raises(ValueUnusable):
        Template(source).path(VALUES)
    assert Template("/o/..{payload.n}/.{payload.n}").path(VALUES) == "/o/..7/.7"


def test_a_value_that_would_end_a_header_is_unusable() -> None:
    with pytest.raises(ValueUnusable):
        Template("{payload.crlf}").header(VALUES)


def test_a_value_alone_keeps_its_type_in_json() -> None:
    assert Template("{payload.n}").json(VALUES) == 7
    assert Template("{payload.flag}").json(VALUES) is True
    assert Template("{payload.list}").json(VALUES) == [1]
    assert Template("n{payload.n}").json(VALUES) == "n7"
    with pytest.raises(ValueUnusable):
        Template("{payload.nope}").json(VALUES)


# --- the registry ---


@pytest.fixture
def fresh_registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("SANDBOX_URL", "http://127.0.0.1:9")
    registry.reload()
    yield
    monkeypatch.undo()
    registry.reload()


@pytest.mark.usefixtures("fresh_registry")
def test_the_shipped_accounts_are_all_readable_and_configured_by_one_variable() -> None:
    slugs = [one.slug for one in registry.all_accounts()]
    assert slugs == [
        "sandbox-courier",
        "sandbox-desk",
        "sandbox-legacy",
        "sandbox-mail",
        "sandbox-payments",
        "sandbox-supplier",
    ]
    assert all(one.configured for one in registry.all_accounts())
    assert registry.problems() == ()
    assert not registry.account("sandbox-courier").contract.honours_key
    assert registry.account("sandbox-desk").contract.absence_is_proof


@pytest.mark.usefixtures("fresh_registry")
def test_without_its_environment_an_account_is_listed_and_does_not_send(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SANDBOX_URL")
    registry.reload()
    assert registry.account("sandbox-mail").missing == ("SANDBOX_URL",)


@pytest.mark.usefixtures("fresh_registry")
def test_an_unknown_account_is_refused_with_those_there_are() -> None:
    with pytest.raises(registry.UnknownProvider, match="sandbox-supplier") as caught:
        registry.account("sandbox")
    assert caught.value.word == "invalid"


@pytest.mark.usefixtures("fresh_registry")
def test_folders_of_the_administrator_are_read_too(
    tmp_path: Path, settings: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(tmp_path, URL)
    settings.RECOURSE_PROVIDERS_DIR = [str(tmp_path)]  # type: ignore[attr-defined]
    monkeypatch.setenv("SHOP_URL", URL)
    registry.reload()
    assert registry.account("shop").base_url == URL
    assert registry.adapter("shop") is registry.adapter("shop")


@pytest.mark.usefixtures("fresh_registry")
def test_one_wrong_file_stops_the_reading_and_a_second_account_of_a_name_is_one(
    tmp_path: Path, settings: object
) -> None:
    declare(tmp_path, URL, ('slug = "shop"', 'slug = "sandbox-mail"'))
    settings.RECOURSE_PROVIDERS_DIR = [str(tmp_path), str(tmp_path / "nowhere")]  # type: ignore[attr-defined]
    registry.reload()
    with pytest.raises(DeclarationInvalid, match=r"sandbox-mail\.toml already"):
        registry.all_accounts()
    assert any("no folder is there" in one for one in registry.problems())


FORKING = """
import os
import django
django.setup()
from reconciliation.providers import registry
parents = registry.adapter("sandbox-mail")
child = os.fork()
if child == 0:
    os._exit(0 if registry.adapter("sandbox-mail") is not parents else 1)
_, status = os.waitpid(child, 0)
raise SystemExit(os.waitstatus_to_exitcode(status))
"""


def test_a_forked_process_takes_connections_of_its_own() -> None:
    environ = {
        **os.environ,
        "SANDBOX_URL": "http://127.0.0.1:9",
        "DJANGO_SETTINGS_MODULE": "console.settings",
    }
    done = subprocess.run([sys.executable, "-c", FORKING], cwd=ROOT, env=environ, check=False, timeout=60)
    assert done.returncode == 0


# --- the documentation ---


def test_the_example_in_the_documentation_is_a_right_file(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "providers" / "declared.md").read_text()
    path = tmp_path / "example.toml"
    path.write_text(page.split("```toml\n", 1)[1].split("```", 1)[0])
    environ = {"ACME_URL": "https://api.acme.example/v1", "ACME_TOKEN": "a-token"}
    declared = read_file(path, shown_as="example.toml", environ=environ)
    assert declared.account.configured
    assert set(declared.http.sends) == {"", "billing.refund"}


def test_the_documentation_names_every_field_of_the_contract_and_every_word_of_it() -> None:
    page = (ROOT / "docs" / "providers" / "declared.md").read_text()
    names = [one.name for one in fields(Contract) if one.name != "receipt"]
    words = [
        word.value
        for kind in (
            KeyFormat,
            KeyScope,
            WindowKind,
            OnOtherPayload,
            OnInFlight,
            Replays,
            LookupKind,
            CompareAs,
        )
        for word in kind
    ]
    assert [one for one in [*names, *words] if f"`{one}`" not in page] == []
