"""The form that declares a provider: fields and text, faults in place, and an API that works through it."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from console.models import Role
from console.pages.declaration_fields import FIELDS
from console.pages.declaration_making import make, written
from reconciliation import effective, lookups, retries
from reconciliation.accounts import account_of
from reconciliation.models import Declaration
from reconciliation.providers import registry
from reconciliation.providers.base import OutgoingOperation, UnknownSeen, elapsed_seconds
from reconciliation.providers.reach import parse_listing
from runs.models import Receipt
from runs.states import Executor
from tests.cases_world import case_of, due_now, report
from tests.factories import effect, grant, make_claimed, quieten, send
from tests.integration.pages.conftest import Login
from tests.integration.pages.forms import page_of
from tests.processes import Process, Spawn

pytestmark = pytest.mark.django_db(transaction=True)

PATH = "/providers/new/"
WHY = "The orders team runs this API and told us what it promises."
FIELDS_TYPED: dict[str, str] = {
    "slug": "orders",
    "title": "Orders",
    "base_url": "https://orders.example/v1",
    "auth": "bearer",
    "variable": "INHOUSE_ORDERS__TOKEN",
    "dedup_window": "7 d",
    "key_source": "https://wiki.example/orders",
    "key_read_on": "2026-11-30",
    "send_path": "/orders",
    "reference_at": "ref",
    "console_sends": "yes",
    "receipt_id": "$.number",
    "receipt_reference": "$.ref",
    "status_at": "$.state",
    "succeeded": "placed",
    "refused": "cancelled",
    "match_fields": "$.sku = $.sku\n$.quantity = $.quantity",
    "lookup_path": "/orders",
    "lookup_query": "ref = {operation}",
    "items": "$.orders",
    "visibility_lag": "0 s",
}


@pytest.fixture(autouse=True)
def _listed(settings: Any) -> Iterator[None]:
    settings.RECOURSE_ALLOWED_PROVIDER_HOSTS = (
        parse_listing("orders.example"),
        parse_listing("127.0.0.1=loopback"),
    )
    yield
    registry.reload()
    registry.hold(())


@pytest.fixture
def administrator(login: Login) -> Client:
    return login(Role.ADMINISTRATOR)


def typed(**changes: str) -> dict[str, str]:
    usual = {one.name: one.default for one in FIELDS if one.default}
    return {"counts": "fields", "seen_number": "0", **usual, **FIELDS_TYPED, **changes}


def post(client: Client, form: Mapping[str, str], act: str = "preview") -> Any:
    return client.post(PATH, {**form, "act": act})


def saved(client: Client, form: Mapping[str, str]) -> Any:
    """Look first, as the page makes one do, and save what was shown."""
    page = post(client, form).context["page"]
    assert page.ready, page.errors
    return post(client, {**form, "shown_digest": page.shown_digest, "reason": WHY}, "save")


@pytest.mark.parametrize("role", [one for one in Role if one is not Role.ADMINISTRATOR])
def test_everybody_but_administrators_is_told_why_not(login: Login, role: Role) -> None:
    client = login(role)
    assert "administrators" in page_of(client, PATH).closed
    answer = saved_by_force(client)
    assert answer.status_code == 403
    assert not Declaration.objects.exists()


def saved_by_force(client: Client) -> Any:
    return client.post(PATH, {**typed(), "reason": WHY, "act": "save"})


def test_a_fresh_form_holds_the_usual_values(administrator: Client) -> None:
    page = page_of(administrator, PATH)
    values = {item.name: item.value for section in page.sections for item in section.fields}
    assert (values["key_field"], values["receipt_id"], values["rate"]) == ("Idempotency-Key", "$.id", "5")
    assert not page.ready


def test_the_fields_make_a_declaration_that_is_shown_before_it_is_saved(administrator: Client) -> None:
    answer = post(administrator, typed())
    page = answer.context["page"]
    assert page.ready
    data = tomllib.loads(page.text_field.value)
    assert data["send"]["request"]["add"] == {"ref": "{operation}"}
    assert data["credentials"] == {"secret": {"env": "INHOUSE_ORDERS__TOKEN"}}
    assert data["contract"]["dedup_window_ms"] == 7 * 24 * 3_600_000
    assert str(data["facts"][0]["read_on"]) == "2026-11-30"
    assert {row.field for section in page.promises for row in section.rows} >= {"dedup_window_ms", "lookup"}
    assert "read 2026-11-30" in answer.content.decode()
    assert not Declaration.objects.exists()
    assert saved(administrator, typed()).status_code == 302
    assert Declaration.objects.get().text == page.text_field.value


def test_what_was_not_shown_is_not_saved(administrator: Client) -> None:
    shown = post(administrator, typed()).context["page"].shown_digest
    changed = typed(title="Other", shown_digest=shown, reason=WHY)
    answer = post(administrator, changed, "save")
    assert answer.status_code == 409
    assert not Declaration.objects.exists()
    assert 'title = "Other"' in answer.context["page"].text_field.value


def test_a_fault_about_our_id_is_said_once_in_the_labels_of_the_form(administrator: Client) -> None:
    answer = post(administrator, typed(receipt_reference=""))
    page = answer.context["page"]
    (error,) = page.errors
    assert (error.field, error.sentence.partition(":")[0]) == ("lookup", "How it is found")
    assert "Found “by our id, exactly” without “Our id”; allowed: one with it, under" in error.sentence
    text = answer.content.decode()
    assert "1 thing to fix" in text
    assert "receipt.reference" not in text.partition('id="declaration"')[0]
    # A text is judged in the words of a file, and of each.
    by_text = post(administrator, {"counts": "text", "text": page.text_field.value, "seen_number": "0"})
    assert len(by_text.context["page"].errors) == 2
    assert "by_reference without receipt.reference" in by_text.context["page"].errors[1].sentence


def test_what_it_says_gets_the_focus_where_nothing_is_wrong(administrator: Client) -> None:
    focused = '<h2 id="says" tabindex="-1" data-focus>'
    text = post(administrator, typed()).content.decode()
    assert focused in text
    assert text.count("data-focus") == 1
    # Without scripts the address leads there.
    assert f'value="preview" formaction="{PATH}#says"' in text
    assert focused not in post(administrator, typed(slug="")).content.decode()
    sampled = post(administrator, typed(sample_body='{"number": "1"}'), "sample").content.decode()
    assert focused not in sampled
    assert sampled.count("data-focus") == 1


def test_each_fault_stands_beside_its_field_and_nothing_typed_is_lost(administrator: Client) -> None:
    wrong = typed(dedup_window="a week", base_url="https://elsewhere.example", receipt_key="$.[", slug="No!")
    page = post(administrator, wrong).context["page"]
    fields = {item.name: item for section in page.sections for item in section.fields}
    (unread,) = fields["dedup_window"].errors
    assert "duration with its unit" in unread
    assert "a JSONPath" in fields["receipt_key"].errors[0]
    assert fields["slug"].errors[0] == 'Found "No!"; allowed: 1 to 64 of a-z, 0-9 and hyphens.'
    assert "Slug: " + fields["slug"].errors[0] in [one.sentence for one in page.errors]
    assert all(fields[name].value == value for name, value in wrong.items() if name in fields)
    page = post(administrator, typed(base_url="https://elsewhere.example")).context["page"]
    (error,) = page.errors
    assert (error.field, "RECOURSE_ALLOWED_PROVIDER_HOSTS" in error.sentence) == ("base_url", True)


@pytest.mark.parametrize(
    ("field", "secret"),
    [
        ("variable", "s3cr3t-hunter2"),
        ("variable", "sk_live_4eC39HqLyjWDarjtT1"),
        ("base_url", "https://me:hunter2hunter2@orders.example"),
        ("text", 'slug = "x"\n[headers]\nX-Api-Key = "hunter2hunter2"\n'),
    ],
)
def test_a_secret_is_refused_and_is_nowhere_on_the_page(
    administrator: Client, field: str, secret: str
) -> None:
    form = typed(**{field: secret}, **({"counts": "text"} if field == "text" else {}))
    answer = post(administrator, form)
    assert answer.status_code == 422
    text = answer.content.decode()
    assert "hunter2" not in text
    assert "sk_live" not in text
    assert answer.context["page"].errors[0].field == field


def test_the_text_says_what_the_fields_cant(administrator: Client) -> None:
    text = post(administrator, typed()).context["page"].text_field.value
    form = {"counts": "text", "seen_number": "0", "text": text + "\n[send.answer.more]\n"}
    page = post(administrator, form).context["page"]
    assert page.errors[0].field == "text"
    form["text"] = text.replace("[lookup.request]", 'redact = ["sku"]\n[lookup.request]', 1)
    assert "redact" in str(post(administrator, form).context["page"].errors)
    form["text"] = 'redact = ["sku"]\n' + text
    assert saved(administrator, form).status_code == 302
    again = f"{PATH}?account=orders"
    assert f'href="{again}"' in administrator.get("/providers/orders/").content.decode()
    page = page_of(administrator, again)
    assert (page.by_text, page.seen_number, page.text_field.value) == (True, 1, form["text"])
    assert post(administrator, {**form, "text": text}).context["page"].ready
    stale = saved(administrator, {**form, "text": text})
    assert stale.status_code == 409
    assert "declared this account since you looked" in stale.content.decode()


def test_a_sample_answer_is_judged_on_the_page(administrator: Client) -> None:
    body = (
        '{"orders": [{"number": "N-1", "ref": "{operation}", "state": "placed", "sku": "A", "quantity": 2}]}'
    )
    form = typed(sample_payload='{"sku": "A", "quantity": 2}', sample_status="200", sample_body=body)
    page = post(administrator, form, "sample").context["page"]
    assert page.sample.lookup.finding.word == "Found, and it matches"
    assert "Unknown" in str(page.sample.facts)
    page = post(administrator, typed(sample_payload="["), "sample").context["page"]
    assert page.errors[0].field == "sample_payload"


@pytest.mark.parametrize("text", ['quote " and \\ and \n and \x7f', "日本 💶", "{operation}", "'''"])
def test_what_is_written_reads_as_it_was(text: str) -> None:
    data = {
        "a": text,
        "b c": [1, 2.5, True, text],
        "t": {"x": {text or "k": text}, "l": [{"p": text}, {"q": 1}]},
    }
    assert tomllib.loads(written(data)) == data


def test_the_fields_places_are_all_known_to_the_reader() -> None:
    named = {at for one in FIELDS for at in one.places}
    assert "contract.key_format" in named
    assert len(named) == sum(len(one.places) for one in FIELDS), "no place has two fields"
    assert make(lambda name: typed().get(name, "")).errors == ()


# --- end to end ------------------------------------------------------------------------------------------


@pytest.fixture
def orders_api(spawn: Spawn, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Process, str]]:
    script = Path(__file__).resolve().parents[2] / "inhouse_api.py"
    process = spawn.python(script, env=dict(os.environ))
    port = process.wait_for(r"listening on (\d+)")[1]
    monkeypatch.setenv("INHOUSE_ORDERS__TOKEN", "in-house-secret")
    yield process, f"http://127.0.0.1:{port}"
    registry.reload()


def test_an_api_that_was_declared_by_the_form_is_sent_to_looked_up_and_asked_again(
    administrator: Client, orders_api: tuple[Process, str]
) -> None:
    process, url = orders_api
    assert saved(administrator, typed(base_url=url)).status_code == 302
    assert account_of("orders").console_can_send
    order = {"sku": "A", "quantity": 2}
    claimed = make_claimed(effect(provider="orders", args={**order, "lose_reply": True}))
    lost = claimed.operation
    # The reply is lost on its way: the order is placed, and nobody here knows.
    send(claimed)
    seen = effective.adapter("orders").send(outgoing(lost))
    assert isinstance(seen, UnknownSeen)
    report("unknown", claimed)
    quieten(lost)
    case = case_of(claimed)
    due_now(case)
    assert lookups.look_up(case_id=case.pk) == "found"
    assert Receipt.objects.get(operation=lost).reference == "N-1"
    lost.refresh_from_db()
    assert lost.state == "confirmed"
    # Another never arrived, and the console sends it again with its key.
    claimed = make_claimed(effect(provider="orders", args=order))
    other = claimed.operation
    send(claimed)
    report("unknown", claimed)
    quieten(other)
    retries.send_granted(grant_id=grant(other, executor=Executor.CONSOLE).pk)
    other.refresh_from_db()
    assert other.state == "confirmed"
    told = [one for one in process.json_lines() if "method" in one]
    posted = [one["about"] for one in told if one["method"] == "POST"]
    assert posted == [lost.key, other.key]
    assert not any(one["again"] for one in told)


def outgoing(operation: Any) -> OutgoingOperation:

    content = bytes(operation.payload)
    return OutgoingOperation(
        operation_id=operation.pk,
        idempotency_key=operation.key,
        tool=operation.tool,
        payload_bytes=content,
        payload=json.loads(content),
        amount=None,
        attempt_id="a1",
        attempt_number=1,
        start_by=elapsed_seconds() + 30,
        request_within_ms=20_000,
    )
