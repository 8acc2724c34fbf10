"""The pages of providers: who reads what, a lookup on trial, and tightening, with what refusals keep."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from console.models import Role
from console.sandbox.control import SandboxControl
from reconciliation.accounts import account_of, sync_accounts
from reconciliation.gate_models import AccountGate
from reconciliation.models import Lookup, Tightening
from reconciliation.providers import registry
from runs.locking import database_now
from runs.models import AuditLeaf, Evidence, ProviderAccount
from tests import cases, factories
from tests.cases import Effect
from tests.integration.pages.conftest import Login
from tests.integration.pages.forms import page_of
from tests.processes import Server
from tests.sandbox_client import new_client

pytestmark = pytest.mark.django_db(transaction=True)

PAYMENTS, COURIER, DESK = "sandbox-payments", "sandbox-courier", "sandbox-desk"
PATH = f"/providers/{PAYMENTS}/"
WHY = "The provider's support says that it forgets keys sooner."
HOUR_MS = 3_600_000


@pytest.fixture(autouse=True)
def _synced() -> None:
    sync_accounts()


@pytest.fixture
def control(sandbox: Server) -> Iterator[SandboxControl]:
    sync_accounts()
    with SandboxControl(sandbox.url) as control:
        yield control
    registry.reload()


@pytest.fixture
def configured(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The sandbox's accounts count as configured; nothing listens there."""
    monkeypatch.setenv("SANDBOX_URL", "http://127.0.0.1:9")
    registry.reload()
    yield
    registry.reload()


def leaves(action: str) -> list[dict[str, Any]]:
    rows = AuditLeaf.objects.filter(action=action).order_by("pk")
    return [json.loads(bytes(one.body))["event"] for one in rows]


# --- reading ---------------------------------------------------------------------------------------------


def test_where_no_key_is_honoured_no_line_speaks_of_one_that_protects(login: Login) -> None:
    page = page_of(login(Role.OPERATOR), f"/providers/{COURIER}/")
    meanings = {row.field: row.meaning for section in page.sections for row in section.rows}
    assert meanings["key_format"] == meanings["key_scope"] == "Nothing protects a repeat."
    assert not [one for one in meanings.values() if "The same key" in one or "ends the protection" in one]


def test_declaring_is_offered_to_whoever_may(login: Login) -> None:
    for role, offered in ((Role.OPERATOR, False), (Role.ADMINISTRATOR, True)):
        assert ('href="/providers/new/"' in login(role).get("/providers/").content.decode()) is offered


def test_a_trial_is_said_to_count_in_the_account_s_health(login: Login, configured: None) -> None:
    text = login(Role.OPERATOR).get(f"/providers/{PAYMENTS}/").content.decode()
    assert "it counts in this account’s health, limiter and breaker" in text


@pytest.mark.parametrize("role", Role)
def test_every_role_reads_what_every_provider_promises(login: Login, role: Role) -> None:
    client = login(role)
    listed = page_of(client, "/providers/")
    slugs = [row.slug for row in listed.rows]
    assert {PAYMENTS, COURIER, DESK} <= set(slugs)
    for slug in slugs:
        page = page_of(client, f"/providers/{slug}/")
        assert page.slug == slug
        assert all(row.value and row.meaning for section in page.sections for row in section.rows), slug
    for path in ("/providers/", PATH):
        answer = client.get(path)
        assert answer["Cache-Control"] == "no-store"
        assert 'aria-current="page">Providers' in answer.content.decode()


def test_nobody_reads_it_without_a_role_or_a_login(login: Login) -> None:
    assert Client().get(PATH).status_code == 302
    assert login(name="nobody").get("/providers/").status_code == 403
    assert login(Role.VIEWER).get("/providers/no-such-account/").status_code == 404


def test_what_only_our_own_stub_has_tested_says_so(login: Login) -> None:
    client = login(Role.VIEWER)
    (row,) = (one for one in page_of(client, "/providers/").rows if one.slug == PAYMENTS)
    assert row.tested.word == "Tested by our own stub only"
    text = client.get(PATH).content.decode()
    assert "Tested only by our own stub" in text
    assert "docs/sandbox.md" in text
    assert "read 2026-11-29" in text


def test_open_cases_are_those_of_the_readers_teams(login: Login) -> None:
    cases.needs_decision()
    cases.needs_decision(team="other")

    def counted(client: Client) -> str:
        return next(row.open_cases for row in page_of(client, "/providers/").rows if row.slug == PAYMENTS)

    assert counted(login(Role.VIEWER)) == "1"
    assert counted(login(Role.VIEWER, name="stranger", team="third")) == "0"


def test_the_list_costs_the_same_however_many_cases_are_open(login: Login) -> None:
    client = login(Role.VIEWER)
    cases.needs_decision()
    client.get("/providers/")
    with CaptureQueriesContext(connection) as one:
        client.get("/providers/")
    cases.needs_decision()
    cases.needs_decision(Effect(provider="sandbox-supplier"))
    with CaptureQueriesContext(connection) as many:
        client.get("/providers/")
    assert len(many) == len(one)


@pytest.mark.usefixtures("configured")
def test_an_open_breaker_and_a_pause_show_in_the_list_and_on_the_page(login: Login) -> None:
    now = database_now()
    AccountGate.objects.create(
        account_id=PAYMENTS,
        breaker_state="open",
        breaker_failures_count=5,
        breaker_since_at=now,
        breaker_probe_at=now + timedelta(minutes=1),
        failed_because="The provider answered 503 to the question.",
        failed_at=now,
    )
    AccountGate.objects.create(account_id=DESK, paused_until_at=now + timedelta(minutes=1))
    AccountGate.objects.create(account_id="sandbox-mail", paused_until_at=now - timedelta(minutes=1))
    client = login(Role.OPERATOR)
    words = {row.slug: row.standing.word for row in page_of(client, "/providers/").rows}
    assert (words[PAYMENTS], words[DESK], words["sandbox-mail"]) == (
        "Breaker open",
        "Left alone",
        "Configured",
    )
    page = page_of(client, PATH)
    assert page.health_badge.word == "Breaker open"
    assert "next probe at" in page.health_note
    # And whoever tries a lookup now is told so instead of adding to it.
    opened = cases.open_case()
    answer = ask(client, operation=opened.operation.pk)
    assert answer.status_code == 409
    assert "Breaker open" in str(answer.context["page"].banner.text)
    assert leaves("provider.lookup_test_asked") == []


def test_an_account_that_is_no_longer_declared_is_still_listed_and_promises_nothing(login: Login) -> None:
    known = ProviderAccount.objects.get(pk=PAYMENTS)
    ProviderAccount.objects.create(
        slug="old-shop",
        title="Old shop",
        adapter_version=known.adapter_version,
        endpoint="",
        start_within_ms=1,
        request_within_ms=1,
        in_flight_ms=1,
    )
    client = login(Role.OPERATOR)
    (row,) = (one for one in page_of(client, "/providers/").rows if one.slug == "old-shop")
    assert row.standing.word == "No longer declared"
    page = page_of(client, "/providers/old-shop/")
    assert "no longer declared" in page.trial.closed
    assert page.health == ()


def test_what_is_shipped_and_not_used_here_can_be_read(login: Login) -> None:
    client = login(Role.OPERATOR)
    offered = page_of(client, "/providers/").offered
    assert "stripe" in " ".join(row.slug for row in offered)
    for row in offered:
        page = page_of(client, row.href)
        assert "used here" in page.trial.closed
        assert page.banners[0].title == ("This account isn’t used here.",)
        assert all(line.value for section in page.sections for line in section.rows), row.slug


def test_faults_of_the_files_are_listed_and_the_accounts_that_were_read_stay(
    login: Login, settings: Any, tmp_path: Path
) -> None:
    client = login(Role.VIEWER)
    assert page_of(client, "/providers/").problems == ()
    (tmp_path / "shop.toml").write_text('slug = "shop"\ntitle = "<b>Shop</b>"\nbase_url = "ftp://x"\n')
    settings.RECOURSE_PROVIDERS_DIR = [str(tmp_path)]
    page = page_of(client, "/providers/")
    assert any("shop.toml: base_url" in one for one in page.problems)
    assert PAYMENTS in [row.slug for row in page.rows]
    # And where nothing could be read before, there is the list of faults and no error page.
    registry.reload()
    try:
        page = page_of(client, "/providers/")
        assert page.problems
        assert page.rows == ()
    finally:
        settings.RECOURSE_PROVIDERS_DIR = []
        registry.reload()


# --- a lookup on trial -----------------------------------------------------------------------------------


def ask(client: Client, path: str = PATH, **fields: str) -> Any:
    return client.post(f"{path}lookup-test/", fields)


def place(control: SandboxControl, opened: cases.Opened) -> None:
    """The effect as the dead worker made it."""
    operation = opened.operation
    with new_client(control.account_url("payments")) as client:
        client.post(
            "/refunds",
            json=json.loads(bytes(operation.payload)),
            headers={"Idempotency-Key": operation.key},
        )


def test_a_lookup_on_trial_shows_the_answer_and_what_would_follow_and_changes_nothing(
    login: Login, control: SandboxControl
) -> None:
    opened = cases.open_case()
    place(control, opened)
    before = (opened.case, Lookup.objects.count(), Evidence.objects.count(), opened.operation.state)
    client = login(Role.OPERATOR)
    answer = ask(client, operation=opened.operation.pk)
    assert answer.status_code == 200
    result = answer.context["page"].result
    assert result.finding.word == "Found, and it matches"
    assert result.concluded.startswith("It would be confirmed by itself, with receipt ")
    assert {one.title: one.badge.word for one in result.actions} == {
        "Confirm it happened": "Allowed",
        "Retry with the same key": "Locked",
        "Abandon": "Locked",
        # Offered at this account, and never while one person can settle it.
        "Make sure it’s absent": "Locked",
    }
    texts = {one.title: one.text for one in result.bodies}
    assert opened.operation.key in texts["Request, without its secrets"]
    assert texts["Answer’s head"].startswith("Status 200")
    after = (opened.case, Lookup.objects.count(), Evidence.objects.count(), opened.operation.state)
    assert after == before
    assert (after[0].version, after[0].lookups_count) == (before[0].version, before[0].lookups_count)
    asked, answered = leaves("provider.lookup_test_asked"), leaves("provider.lookup_test_answered")
    assert [one["operation"] for one in asked] == [opened.operation.pk]
    assert asked[0]["actor"]["kind"] == "person"
    assert answered[0]["after"]["finding"] == "found"
    # It counts against the account's limit like every other lookup.
    facts = {one.label: one.value for one in page_of(client, PATH).health}
    assert facts["Lookups"] == ("1 in the last hour: 1 answered, 0 failed",)
    assert control.stats("payments", key=opened.operation.key).effects == 1


def test_the_key_names_an_operation_too_and_absence_is_said_for_what_it_is(
    login: Login, control: SandboxControl
) -> None:
    opened = cases.open_case()
    result = ask(login(Role.OPERATOR), operation=opened.operation.key).context["page"].result
    assert result.finding.word == "Not found, no proof"
    assert result.concluded == "It would be looked up again."


def test_something_that_the_journal_does_not_hold_can_be_asked_about(
    login: Login, control: SandboxControl
) -> None:
    payload = {"payment": "pi_1", "amount_minor": 100, "currency": "EUR"}
    with new_client(control.account_url("payments")) as client:
        client.post("/refunds", json=payload, headers={"Idempotency-Key": "by-hand-1"})
    person = login(Role.OPERATOR)
    result = ask(person, key="by-hand-1", payload=json.dumps(payload)).context["page"].result
    assert result.concluded.startswith("It would be confirmed by itself")
    differs = ask(person, key="by-hand-1", payload='{"payment": "pi_2"}').context["page"].result
    assert differs.finding.word == "Other content under our key"
    assert differs.concluded == "A person would be asked."
    # The key may be anybody's: only its digest is on record.
    (leaf, _) = leaves("provider.lookup_test_asked")
    assert "by-hand-1" not in json.dumps(leaf)
    assert len(leaf["after"]["key_digest"]) == 64


@pytest.mark.usefixtures("configured")
@pytest.mark.parametrize("how", ["operation", "key", "reference"])
def test_another_teams_operation_is_not_asked_about_by_any_name(login: Login, how: str) -> None:
    opened = cases.open_case(team="other")
    client = login(Role.OPERATOR)
    name = opened.operation.key if how == "key" else opened.operation.pk
    fields = {how: name} if how != "reference" else {"key": "k1", "payload": "{}", "reference": name}
    answer = ask(client, **fields)
    assert answer.status_code == 404
    assert answer.context["page"].result is None
    assert leaves("provider.lookup_test_asked") == []
    assert opened.case_id not in answer.content.decode()


@pytest.mark.usefixtures("configured")
@pytest.mark.parametrize("how", ["id in a longer reference", "key in capitals", "id in the payload"])
def test_another_teams_operation_is_not_asked_about_inside_something_longer(login: Login, how: str) -> None:
    opened = cases.open_case(team="other")
    operation = opened.operation
    escaped = "".join(f"\\u{ord(one):04x}" for one in operation.pk)
    fields = {
        "id in a longer reference": {"key": "k1", "payload": "{}", "reference": f'x" OR "{operation.pk}'},
        "key in capitals": {"key": operation.key.upper(), "payload": "{}"},
        "id in the payload": {"key": "k1", "payload": f'{{"note": "{escaped}"}}'},
    }[how]
    answer = ask(login(Role.OPERATOR), **fields)
    assert answer.status_code == 404
    assert leaves("provider.lookup_test_asked") == []


@pytest.mark.usefixtures("configured")
@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({}, "operation"),
        ({"operation": "op_nothing"}, "operation"),
        ({"key": "k1", "payload": "{"}, "payload"),
        ({"key": "k1", "payload": "[]"}, "payload"),
        ({"key": "k1", "payload": '{"a": 1, "a": 2}'}, "payload"),
        ({"payload": "{}", "reference": "r1"}, "key"),
        ({"key": "k1", "payload": "{}", "first_sent_at": "yesterday"}, "first_sent_at"),
        ({"key": "k1", "payload": "{}", "first_sent_at": "2999-01-01 00:00"}, "first_sent_at"),
        ({"operation": "\u202eop"}, "operation"),
    ],
)
def test_a_question_that_cannot_be_put_is_refused_by_its_field_and_kept(
    login: Login, fields: dict[str, str], field: str
) -> None:
    answer = ask(login(Role.OPERATOR), **fields)
    assert answer.status_code in (404, 422)
    form = answer.context["page"].trial
    assert [one.field for one in form.errors] == [field]
    for name, value in fields.items():
        assert getattr(form, name) == value
    assert leaves("provider.lookup_test_asked") == []


@pytest.mark.usefixtures("configured")
def test_an_operation_of_another_account_is_not_asked_about_here(login: Login) -> None:
    opened = cases.open_case()
    answer = ask(login(Role.OPERATOR), f"/providers/{DESK}/", operation=opened.operation.pk)
    assert answer.status_code == 422
    assert PAYMENTS in answer.context["page"].trial.errors[0].sentence


@pytest.mark.parametrize("role", [Role.VIEWER, Role.AUDITOR, Role.APPROVER, Role.ADMINISTRATOR])
def test_only_operators_test_a_lookup(login: Login, role: Role) -> None:
    client = login(role)
    assert "tested by operators" in page_of(client, PATH).trial.closed
    answer = ask(client, operation="op_1")
    assert answer.status_code == 403
    assert leaves("provider.lookup_test_asked") == []


def test_a_provider_without_a_lookup_is_not_asked(login: Login) -> None:
    opened = cases.open_case(Effect(tool="book_pickup", provider=COURIER, minor=None))
    client = login(Role.OPERATOR)
    assert "offers no lookup" in page_of(client, f"/providers/{COURIER}/").trial.closed
    answer = ask(client, f"/providers/{COURIER}/", operation=opened.operation.pk)
    assert answer.status_code == 409
    assert answer.context["page"].banner is not None


@pytest.mark.usefixtures("configured")
def test_the_question_is_put_outside_of_any_transaction(
    login: Login, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = cases.open_case()
    seen = []

    def look_up(self: object, question: object) -> Any:
        seen.append(connection.in_atomic_block)
        return cases.unavailable()

    monkeypatch.setattr(type(registry.adapter(PAYMENTS)), "look_up", look_up)
    assert ask(login(Role.OPERATOR), operation=opened.operation.pk).status_code == 200
    assert seen == [False]


@pytest.mark.usefixtures("configured")
def test_what_a_provider_says_stays_text(login: Login, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = cases.open_case()
    hostile = cases.record_of(opened, id='"><script>alert(1)</script>', note="\u202eevil")
    monkeypatch.setattr(
        type(registry.adapter(PAYMENTS)),
        "look_up",
        lambda self, question: cases.found(opened, id=hostile["id"]),
    )
    text = ask(login(Role.OPERATOR), operation=opened.operation.pk).content.decode()
    assert "<script>alert(1)" not in text
    assert "&lt;script&gt;" in text


# --- tightening ------------------------------------------------------------------------------------------


def tighten(client: Client, path: str = PATH, *, number: int = 0, **fields: str) -> Any:
    return client.post(f"{path}tightening/", {"seen_number": str(number), "reason": WHY, **fields})


def test_an_administrator_tightens_and_the_page_shows_both(login: Login) -> None:
    client = login(Role.ADMINISTRATOR)
    answer = tighten(client, dedup_window_ms="90 min", absence_is_proof="", console_sends="off")
    assert (answer.status_code, answer["Location"]) == (302, f"{PATH}#tightened")
    assert account_of(PAYMENTS).contract.dedup_window_ms == 90 * 60_000
    page = page_of(client, PATH)
    rows = {row.field: row for section in page.sections for row in section.rows}
    assert rows["dedup_window_ms"].value == "90 min from the first send"
    assert rows["dedup_window_ms"].built_in == "24 h from the first send"
    assert rows["on_in_flight"].built_in == ""
    (made,) = page.tightened
    assert made.reason == WHY
    assert set(made.changes) == {
        "How long the key is recognised: 90 min",
        "The console’s own sender: off",
    }
    (row,) = (one for one in page_of(client, "/providers/").rows if one.slug == PAYMENTS)
    assert row.tightened


@pytest.mark.parametrize(
    ("fields", "status", "field"),
    [
        ({"dedup_window_ms": "a day"}, 422, "dedup_window_ms"),
        ({"dedup_window_ms": "0.5 ms"}, 422, "dedup_window_ms"),
        ({"rate_limit_per_second": "-1"}, 422, "rate_limit_per_second"),
        ({"lookups": "on"}, 422, "lookups"),
        ({}, 422, "key_window_trusted"),
        ({"dedup_window_ms": "48 h"}, 423, "dedup_window_ms"),
        ({"in_flight_bound_ms": "1 ms"}, 423, "in_flight_bound_ms"),
        ({"dedup_window_ms": "1 h", "reason": "short"}, 422, "reason"),
    ],
)
def test_what_cannot_be_tightened_is_said_at_its_field_and_nothing_typed_is_lost(
    login: Login, fields: dict[str, str], status: int, field: str
) -> None:
    answer = tighten(login(Role.ADMINISTRATOR), **fields)
    assert answer.status_code == status
    form = answer.context["page"].tighten
    assert [one.field for one in form.errors] == [field]
    assert form.open
    kept = {one.name: one.value for one in form.fields if one.kind == "number"}
    assert all(kept[name] == value for name, value in fields.items() if name in kept)
    assert form.reason == fields.get("reason", WHY)
    assert not Tightening.objects.exists()


def test_whoever_is_second_is_told_who_was_first_and_keeps_what_they_typed(login: Login) -> None:
    assert tighten(login(Role.ADMINISTRATOR, name="jo"), dedup_window_ms="1 h").status_code == 302
    answer = tighten(login(Role.ADMINISTRATOR, name="kim"), visibility_lag_ms="1 min")
    assert answer.status_code == 409
    page = answer.context["page"]
    assert page.banner.quote == WHY
    assert "jo" in str(page.banner.text)
    assert next(one for one in page.tighten.fields if one.name == "visibility_lag_ms").value == "1 min"
    assert page.tighten.number == 1
    assert Tightening.objects.count() == 1


@pytest.mark.parametrize("role", [Role.VIEWER, Role.AUDITOR, Role.APPROVER, Role.OPERATOR])
def test_only_administrators_tighten(login: Login, role: Role) -> None:
    client = login(role)
    assert "tightened by administrators" in page_of(client, PATH).tighten.closed
    assert tighten(client, dedup_window_ms="1 h").status_code == 403
    assert not Tightening.objects.exists()


def test_the_form_offers_nothing_that_cannot_be_tightened(login: Login) -> None:
    client = login(Role.ADMINISTRATOR)
    offered = {one.name for one in page_of(client, f"/providers/{COURIER}/").tighten.fields}
    assert offered == {"in_flight_bound_ms", "rate_limit_per_second", "console_sends"}
    tighten(client, f"/providers/{COURIER}/", console_sends="off")
    offered = {one.name for one in page_of(client, f"/providers/{COURIER}/").tighten.fields}
    assert "console_sends" not in offered


def test_the_forms_refuse_other_methods_and_another_sessions_token(login: Login) -> None:
    client = login(Role.ADMINISTRATOR)
    for path in (f"{PATH}lookup-test/", f"{PATH}tightening/"):
        assert client.get(path).status_code == 302
        assert client.delete(path).status_code == 405
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(factories.fresh(_person(client)))
    assert tighten(strict, dedup_window_ms="1 h").status_code == 403
    assert not Tightening.objects.exists()


def _person(client: Client) -> Any:
    from console.models import Person

    return Person.objects.get(pk=client.session["_auth_user_id"])
