"""An administrator declares a provider in the console: judged like a file, numbered, never looser in use."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from reconciliation import effective, sampling
from reconciliation.accounts import account_of, is_declared
from reconciliation.contracts import LookupKind
from reconciliation.declaring import (
    DeclarationMoved,
    NoTeam,
    NothingDeclared,
    OpenOperationsHold,
    SlugTaken,
    declare,
    faults_of,
    judge,
    without_secrets,
)
from reconciliation.models import Declaration
from reconciliation.providers import registry
from reconciliation.providers.base import FindingKind, ReceiptSeen, UnknownSeen
from reconciliation.providers.reach import parse_listing
from reconciliation.providers.tables import DeclarationInvalid
from reconciliation.sampling import SAMPLE_KEY, Sample
from reconciliation.tightening import tighten
from runs import account_access
from runs.actors import Actor, ActorKind
from runs.models import AuditLeaf, ProviderAccount
from runs.refusals import Invalid
from tests import factories
from tests.cases_world import in_doubt
from tests.concurrency import Connect, Holder, at_once, start
from tests.contract.declaring import DECLARATION

pytestmark = pytest.mark.django_db(transaction=True)

ADMINISTRATOR = Actor(ActorKind.PERSON, "person:7", "administrator")
WHY = "The billing team runs this API and told us what it promises."
HOST = "shop.example"
TEXT = DECLARATION.replace('{ env = "SHOP_URL" }', f'"https://{HOST}/v1"')


@pytest.fixture(autouse=True)
def _listed(settings: Any) -> Iterator[None]:
    settings.RECOURSE_ALLOWED_PROVIDER_HOSTS = (parse_listing(HOST), parse_listing("127.0.0.1=loopback"))
    yield
    registry.hold(())


def put(
    seen_number: int = 0, *changes: tuple[str, str], text: str = TEXT, teams: list[str] | None = None
) -> Declaration:
    return declare(
        teams=teams,
        text=changed(*changes, text=text),
        reason=WHY,
        seen_number=seen_number,
        actor=ADMINISTRATOR,
        actor_name="Jo Reed",
    )


def changed(*changes: tuple[str, str], text: str = TEXT) -> str:
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return text


def refused(*changes: tuple[str, str], text: str = TEXT) -> dict[str, str]:
    """The sentences of a refused declaration by place; nothing of it was stored."""
    with pytest.raises(DeclarationInvalid) as caught:
        put(0, *changes, text=text)
    assert not Declaration.objects.exists()
    return {one.place: one.sentence for one in faults_of(caught.value)}


def test_what_is_declared_is_an_account_at_once_and_on_record() -> None:
    made = put()
    account = account_of("shop")
    assert (account.title, account.base_url, made.number) == ("Shop", f"https://{HOST}/v1", 1)
    assert account.declared_in == "shop, declaration 1 of the console"
    row = ProviderAccount.objects.get(pk="shop")
    assert (row.adapter_version, row.endpoint) == (account.pin.adapter, f"https://{HOST}/v1/orders")
    (leaf,) = AuditLeaf.objects.filter(action="provider.declared")
    event = json.loads(bytes(leaf.body))["event"]
    assert (event["actor"]["id"], event["subject"], event["reason"]) == ("person:7", "shop", WHY)
    assert event["after"]["digest"] == account.declaration_digest


def test_a_declaration_that_waits_for_a_tightening_keeps_what_was_tightened(connect: Connect) -> None:
    put()
    other = Holder(connect(), connect())
    other.execute("BEGIN", [])
    other.execute("SELECT 1 FROM runs_provideraccount WHERE slug = 'shop' FOR NO KEY UPDATE", [])
    declaring = start(lambda: put(1, ('title = "Shop"', 'title = "The shop"')))
    other.wait_for_waiters(1)
    other.execute(
        "INSERT INTO reconciliation_tightening"
        ' (account, number, "values", reason, actor, actor_name, made_at)'
        " VALUES ('shop', 1, '{\"in_flight_bound_ms\": 90000}', 'Slow.', 'person:7', '', clock_timestamp())",
        [],
    )
    other.execute("UPDATE runs_provideraccount SET in_flight_ms = 90000 WHERE slug = 'shop'", [])
    other.release()
    assert declaring.result().answer.number == 2
    assert ProviderAccount.objects.get(pk="shop").in_flight_ms == 90_000


def test_a_process_that_has_just_looked_finds_what_another_declares() -> None:
    assert not is_declared(account_of("shop"))
    # As another process would: the row appears, and nobody here is told to look again.
    Declaration.objects.create(account="shop", number=1, text=TEXT, reason=WHY, actor="person:7")
    effective._last = effective._Read(values={}, at=time.monotonic() - 0.3)
    assert is_declared(account_of("shop"))


@pytest.mark.parametrize("deep", ["a." * 3_000 + "b = 1", "a = " + "[" * 30 + "]" * 30, "a = " + "[" * 3_000])
def test_a_text_of_too_many_levels_is_refused_as_one_that_cannot_be_read(deep: str) -> None:
    assert "more than 20 levels" in refused(text=f"{deep}\n{TEXT}")[""]


def test_a_wrong_declaration_is_refused_in_the_words_of_a_file() -> None:
    said = refused(('"header_bare"', '"header"'), ("more =", "mores ="))
    assert "Did you mean header_bare?" in said["contract.key_format"]
    assert "Did you mean more?" in said["lookup.answer.mores"]
    assert "not a TOML file" in refused(("[contract]", "[contract"))[""]


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ("[contract]", '[headers]\nX-Api-Key = "hunter2hunter2"\n[contract]', "headers.X-Api-Key"),
        (
            "[contract]",
            '[headers]\nX-Tenant = "c0ffee11223344556677889900aabb"\n[contract]',
            "headers.X-Tenant",
        ),
        ("[contract]", '[headers]\nX-A = "sk_live_4eC39HqLyjWDarjtT1"\n[contract]', "headers.X-A"),
        ("[contract]", "# sk_live_4eC39HqLyjWDarjtT1\n[contract]", ""),
        (
            "[contract]",
            '[credentials]\ntoken = { env = "a94a8fe5ccb19ba61c4c0873d391e987982fbbd3" }\n[contract]',
            "credentials.token.env",
        ),
        (
            "[contract]",
            '[credentials]\ntoken = { env = "RECOURSE_KEY_SECRET" }\n[contract]',
            "credentials.token.env",
        ),
        (
            "[contract]",
            '[credentials]\ntoken = { file_env = "DATABASE_URL" }\n[contract]',
            "credentials.token.file_env",
        ),
        # A setting and the base URL are shown to everyone, whatever the variable holds.
        (
            "[contract]",
            '[settings]\ntenant = { env = "INHOUSE_SHOP__ACCESS_TOKEN" }\n[contract]',
            "settings.tenant.env",
        ),
        (f'"https://{HOST}/v1"', '{ env = "INHOUSE_SHOP__ACCESS_TOKEN" }', "base_url.env"),
        ("console_sends", 'reach = ["loopback"]\nconsole_sends', "reach"),
        (HOST, "elsewhere.example", "base_url"),
        ("console_sends", 'adapter = "smtp"\nconsole_sends', None),
    ],
)
def test_what_only_a_file_may_say_is_refused_and_no_secret_is_repeated(
    old: str, new: str, place: str | None
) -> None:
    said = refused((old, new))
    if place is not None:
        assert list(said) == [place]
    for secret in ("hunter2", "c0ffee", "sk_live", "a94a8fe5"):
        assert secret not in str(said)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "hostile", [" " * 20_000 + "x", "key" + " " * 20_000 + "x", "a" * 100_000, "://" + ":" * 100_000]
)
def test_a_long_hostile_text_is_read_through_once(hostile: str) -> None:
    text = changed(("[contract]", f'[headers]\nX-A = "{hostile}"\n[contract]'))
    # What it says is judged as ever; this would once have taken minutes to hours.
    without_secrets(text)


NOT_ITS_OWN = {
    "another provider's": "STRIPE_API_KEY",
    "Recourse's own": "RECOURSE_KEY_SECRET",
    "another account's": "INHOUSE_ORDERS__TOKEN",
    "that of an account whose slug goes on": "INHOUSE_SHOP_TWO__TOKEN",
    "that of an account whose slug goes on after two hyphens": "INHOUSE_SHOP__TWO__TOKEN",
    "the prefix alone": "INHOUSE_SHOP__",
    "without the second line": "INHOUSE_SHOP_TOKEN",
}
NOTICES = '[webhook]\nscheme = "github"\nsecrets = [{ env = "NAME" }]\n[[webhook.events]]\ntypes = ["a"]'
TAKEN_IN = {
    "credentials.token.env": ("[contract]", '[credentials]\ntoken = { env = "NAME" }\n[contract]'),
    "credentials.token.file_env": ("[contract]", '[credentials]\ntoken = { file_env = "NAME" }\n[contract]'),
    "settings.tenant.env": ("[contract]", '[settings]\ntenant = { env = "NAME" }\n[contract]'),
    "base_url.env": (f'"https://{HOST}/v1"', '{ env = "NAME", default = "https://shop.example" }'),
    "webhook.secrets.env": (
        "[contract]",
        f"{NOTICES}\n[contract]",
    ),
}


@pytest.mark.parametrize("place", TAKEN_IN)
def test_a_declaration_names_variables_of_its_own_account_and_no_others(place: str) -> None:
    old, new = TAKEN_IN[place]
    for what, name in NOT_ITS_OWN.items():
        said = refused((old, new.replace("NAME", name)))
        assert list(said) == [place], what
        assert "INHOUSE_SHOP__TOKEN" in said[place], what
    judge(changed((old, new.replace("NAME", "INHOUSE_SHOP__X9"))))


def test_a_declaration_that_came_past_the_form_reads_nobody_elses_secret(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("STRIPE_API_KEY", "sk_live_of_somebody_else")
    text = changed(("[contract]", '[credentials]\ntoken = { env = "STRIPE_API_KEY" }\n[contract]'))
    Declaration.objects.create(account="shop", number=1, text=text, reason=WHY, actor="person:7")
    effective.forget()
    effective.refresh()
    (told,) = registry.set_aside()
    assert "INHOUSE_SHOP__" in told
    with pytest.raises(registry.UnknownProvider):
        registry.adapter("shop")


def test_a_slug_exists_once() -> None:
    for taken in ("sandbox-mail", "slack"):
        with pytest.raises(SlugTaken):
            put(0, ('slug = "shop"', f'slug = "{taken}"'))
    factories.make_account("shop")
    with pytest.raises(SlugTaken, match="no longer declared"):
        put()


def test_of_two_who_declare_at_once_one_is_told_of_the_other() -> None:
    def attempt() -> str:
        try:
            return f"number {put().number}"
        except DeclarationMoved as refusal:
            return f"told of {refusal.details['number']} by {refusal.details['by']}"

    outcomes = at_once([attempt, attempt])
    assert sorted(str(one.value) for one in outcomes) == ["number 1", "told of 1 by Jo Reed"]
    with pytest.raises(NothingDeclared):
        put(1)
    assert Declaration.objects.count() == 1


def test_only_a_person_declares_and_says_why() -> None:
    usual: dict[str, Any] = {"text": TEXT, "reason": WHY, "seen_number": 0, "actor": ADMINISTRATOR}
    for name, value in (("actor", Actor(ActorKind.WORKER, "w1")), ("reason", "short")):
        with pytest.raises(Invalid):
            declare(**{**usual, name: value})
    assert not Declaration.objects.exists()


def test_nobody_changes_or_deletes_a_declaration(owner_url: str) -> None:
    made = put()
    with psycopg.connect(owner_url, autocommit=True) as owner:
        for statement in (
            "UPDATE reconciliation_declaration SET text = ''",
            "DELETE FROM reconciliation_declaration",
            "TRUNCATE reconciliation_declaration",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                owner.execute(statement)
    assert factories.fresh(made).text == TEXT


# --- in use ----------------------------------------------------------------------------------------------


def test_another_way_to_send_ends_the_protection_of_what_was_sent_before() -> None:
    put()
    claimed, _ = in_doubt("shop")
    before = factories.fresh(claimed.operation).sent_adapter_version
    put(1, ('[send.request]\npath = "/orders"', '[send.request]\npath = "/v2/orders"'))
    operation = factories.fresh(claimed.operation)
    assert operation.sent_adapter_version == before
    assert account_of("shop").pin.adapter != before
    assert ProviderAccount.objects.get(pk="shop").adapter_version == account_of("shop").pin.adapter


@pytest.mark.parametrize(
    ("old", "new", "held"),
    [
        ("dedup_window_ms = 86_400_000", "dedup_window_ms = 90_000_000", "contract.dedup_window_ms"),
        ("absence_is_proof = false", "absence_is_proof = true", "contract.absence_is_proof"),
        ('succeeded = ["succeeded"]', 'succeeded = ["succeeded", "new"]', "contract.success_when"),
        ('path = "/orders"\nquery', 'path = "/other"\nquery', "lookup"),
        (f"https://{HOST}/v1", f"https://{HOST}/v2", "base_url"),
    ],
)
def test_nothing_looser_is_declared_while_operations_are_open(old: str, new: str, held: str) -> None:
    put()
    in_doubt("shop")
    with pytest.raises(OpenOperationsHold, match="approval") as caught:
        put(1, (old, new))
    assert caught.value.details["fields"] == [held]
    assert Declaration.objects.count() == 1


def test_what_is_tighter_is_declared_while_operations_are_open_and_the_queue_follows() -> None:
    put()
    _, case = in_doubt("shop")
    ends_at = factories.fresh(case).key_ends_at
    put(1, ("dedup_window_ms = 86_400_000", "dedup_window_ms = 3_600_000"), ("console_sends = true", ""))
    sooner = factories.fresh(case).key_ends_at
    assert ends_at is not None
    assert sooner is not None
    assert sooner < ends_at
    assert not account_of("shop").console_sends


def test_what_was_tightened_outlives_a_new_declaration() -> None:
    put()
    tighten(
        account="shop",
        wanted={"lookups": False},
        reason=WHY,
        seen_number=0,
        actor=ADMINISTRATOR,
        actor_name="",
    )
    put(1, ('title = "Shop"', 'title = "The shop"'))
    assert account_of("shop").title == "The shop"
    assert account_of("shop").contract.lookup is LookupKind.NONE


def test_one_that_can_no_longer_be_read_is_set_aside_and_the_others_go_on() -> None:
    put()
    Declaration.objects.create(account="shop", number=2, text="slug = ", reason=WHY, actor="person:7")
    effective.forget()
    assert not is_declared(account_of("shop"))
    assert is_declared(account_of("sandbox-mail"))
    assert "shop, declaration 2 of the console" in registry.set_aside()[0]


# --- sample answers --------------------------------------------------------------------------------------


def test_a_sample_answer_shows_what_would_be_concluded_and_nothing_leaves() -> None:
    record = '{"id": "ord_1", "status": "succeeded", "idempotency_key": "{key}", "sku": "A-1"}'
    done = sampling.sample(text=TEXT, sample=Sample(payload='{"sku": "A-1"}', status=201, body=record))
    assert isinstance(done.reply, ReceiptSeen)
    assert done.sent is not None
    assert ("Idempotency-Key", SAMPLE_KEY) in done.sent.headers
    listed = Sample(payload='{"sku": "A-1"}', status=200, body=f'{{"data": [{record}], "has_more": false}}')
    done = sampling.sample(text=TEXT, sample=listed)
    assert isinstance(done.reply, UnknownSeen)
    assert done.lookup is not None
    assert done.lookup.finding.kind is FindingKind.FOUND
    assert not ProviderAccount.objects.filter(pk="shop").exists()


KEYED = '[credentials]\ntoken = { env = "INHOUSE_SHOP__TOKEN" }\n[headers]\nX-Key = "{secret.token}"'


def test_a_sample_needs_no_variable_that_the_declaration_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INHOUSE_SHOP__TOKEN", "the-real-secret")
    text = changed(
        (
            "[contract]",
            f"{KEYED}\n[contract]",
        ),
        (f'"https://{HOST}/v1"', '{ env = "INHOUSE_SHOP__URL" }'),
    )
    done = sampling.sample(text=text, sample=Sample(payload="{}", status=500, body="no"))
    assert isinstance(done.reply, UnknownSeen)
    assert done.sent is not None
    assert "the-real-secret" not in str(done.sent)
    with pytest.raises(Invalid):
        sampling.sample(text=text, sample=Sample(payload="[", status=500, body=""))


def test_an_account_that_is_declared_is_there_for_the_teams_of_whoever_declared_it() -> None:
    factories.make_team(), factories.make_team("other")
    put(teams=[factories.TEAM])
    assert account_access.named_teams("shop") == (factories.TEAM,)
    assert account_access.closed_to(["other"]) == {"shop"}
    (leaf,) = AuditLeaf.objects.filter(action="provider.declared")
    assert json.loads(bytes(leaf.body))["event"]["after"]["teams"] == [factories.TEAM]
    # To others its name is taken, and nothing is said of who took it, or when.
    with pytest.raises(SlugTaken) as taken:
        put(teams=["other"])
    assert taken.value.sentence == "“shop” is taken. Choose another slug."
    # Declaring it anew changes nothing of whose it is.
    put(1, ("Shop", "Shop and more"), teams=[factories.TEAM, "other"])
    assert account_access.named_teams("shop") == (factories.TEAM,)


def test_whoever_is_in_no_team_declares_no_new_account() -> None:
    with pytest.raises(NoTeam):
        put(teams=[])
    assert not ProviderAccount.objects.exists()
