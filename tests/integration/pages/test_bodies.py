"""Bodies on a case: shown without what looks secret, folded, downloaded inert; and revealed, on record."""

from __future__ import annotations

import hashlib
import json
from html.parser import HTMLParser
from typing import Any

import pytest
from django.template import Context, Template
from django.test import Client

from console.models import Role
from console.pages.folds import OPEN_LINES_MAX, folds_of
from console.pages.present.jsons import hex_dump, laid_out, repeated_names
from console.pages.present.timeline import event_of
from reconciliation import revealing
from reconciliation.models import Case
from reconciliation.working import Worker
from runs.actors import Actor, ActorKind
from runs.keys import mint_key
from runs.models import AuditLeaf, Evidence
from runs.refusals import Refusal
from tests import cases
from tests.cases import Effect
from tests.cases_world import declare, make_sent, report_refused
from tests.integration.pages.conftest import Login
from tests.integration.pages.forms import page_of

WHY = "The courier asks for the whole number."
CARD = "4242424242424242"
PAID = Effect(args={"payment": "pi_3SxAe70", "card": CARD, "note": "to 5555555555554444"})


@pytest.fixture
def kim(login: Login) -> Client:
    return login(Role.OPERATOR, name="kim")


def path(opened: cases.Opened, part: str = "payload", what: str = "") -> str:
    return f"/cases/{opened.case_id}/bodies/{part}/{what}"


def rendered(text: str) -> str:
    return Template("{% load recourse %}{% folded text %}").render(Context({"text": text}))


def reported(body: bytes) -> tuple[str, Evidence]:
    """A sender's report with this body, and the case that it opened."""
    declare()
    claimed = make_sent()
    report_refused("unknown", claimed, status=502, body=body, error="", phase="")
    evidence = Evidence.objects.get(operation=claimed.operation)
    return Case.objects.get(operation=claimed.operation).pk, evidence


# --- Shown --------------------------------------------------------------------------------------------------


def test_a_card_number_is_hidden_until_it_is_revealed(kim: Client) -> None:
    opened = cases.needs_decision(PAID)
    view = page_of(kim, f"/cases/{opened.case_id}/").payload
    assert view.hidden_count == 2
    assert "2 places are hidden here" in view.notes[0]
    body = kim.get(path(opened))
    assert CARD not in body.content.decode() + kim.get(f"/cases/{opened.case_id}/").content.decode()
    assert body.context["page"].bytes_text == ""
    assert "The bytes hold what is hidden" in body.content.decode()
    shown = kim.post(path(opened, what="hidden/"), {"reason": WHY})
    assert shown.status_code == 200
    assert f'"card": "{CARD}"' in shown.context["page"].view.text
    assert shown.headers["Cache-Control"] == "no-store"
    assert CARD not in kim.get(path(opened)).content.decode()


def test_a_reveal_is_on_record_with_who_what_and_why_and_moves_nothing(kim: Client) -> None:
    opened = cases.needs_decision(PAID)
    before = opened.case.version
    kim.post(path(opened, what="hidden/"), {"reason": WHY})
    event = event_of(AuditLeaf.objects.get(action="case.revealed"))
    payload = bytes(opened.operation.payload)
    assert event["after"] == {
        "case": opened.case_id,
        "hidden": 2,
        "part": "payload",
        "sha256": hashlib.sha256(payload).hexdigest(),
    }
    assert (event["reason"], event["actor"]["kind"]) == (WHY, "person")
    assert opened.case.version == before
    item = next(
        one for one in page_of(kim, f"/cases/{opened.case_id}/").timeline if "Hidden parts" in one.title
    )
    assert item.text == (f"The payload: “{WHY}”",)
    assert item.actor.name == "kim"


def test_each_reveal_needs_a_reason_and_keeps_what_was_typed(kim: Client) -> None:
    opened = cases.needs_decision(PAID)
    answer = kim.post(path(opened, what="hidden/"), {"reason": "why not"})
    assert answer.status_code == 422
    assert answer.context["page"].reason == "why not"
    assert CARD not in answer.content.decode()
    assert not AuditLeaf.objects.filter(action="case.revealed").exists()


@pytest.mark.parametrize("role", [Role.AUDITOR, Role.ADMINISTRATOR, Role.VIEWER])
def test_other_roles_are_shown_nothing_hidden(login: Login, role: Role) -> None:
    opened = cases.needs_decision(PAID)
    client = login(role)
    page = client.get(path(opened)).context["page"]
    assert page.reveal_href == ""
    assert "is shown to operators and approvers" in page.reveal_note
    answer = client.post(path(opened, what="hidden/"), {"reason": WHY})
    assert answer.status_code == 403
    assert CARD not in answer.content.decode()
    assert not AuditLeaf.objects.filter(action="case.revealed").exists()


def test_what_is_hidden_has_no_address(kim: Client, login: Login) -> None:
    opened = cases.needs_decision(PAID)
    asked = kim.get(path(opened, what="hidden/"))
    assert (asked.status_code, asked.headers["Location"]) == (302, path(opened))
    assert kim.get(path(opened) + "?reveal=1&reason=because+I+can").context["page"].revealed is False
    outsider = login(Role.OPERATOR, name="out", team="other")
    assert outsider.post(path(opened, what="hidden/"), {"reason": WHY}).status_code == 404
    for part in ("nothing", "ev_01", "payload.seen", "ev_01.seen"):
        assert kim.get(path(opened, part)).status_code == 404
    other = cases.needs_decision()
    theirs = Evidence.objects.filter(operation=other.operation).first()
    assert theirs is not None
    assert kim.get(path(opened, theirs.pk)).status_code == 404


def test_a_machine_is_shown_nothing_hidden(db: None) -> None:
    opened = cases.needs_decision(PAID)
    token = Worker(actor=Actor(ActorKind.TOKEN, "tok_1"))
    with pytest.raises(Refusal) as refused:
        revealing.reveal(case_id=opened.case_id, team=None, worker=token, name="payload", reason=WHY)
    assert refused.value.word == "forbidden"


def test_where_nothing_is_hidden_there_is_nothing_to_reveal(kim: Client) -> None:
    opened = cases.needs_decision()
    page = kim.get(path(opened)).context["page"]
    assert (page.reveal_href, page.reveal_note) == ("", "Nothing of it is hidden.")
    answer = kim.post(path(opened, what="hidden/"), {"reason": WHY})
    assert answer.status_code == 409
    assert not AuditLeaf.objects.filter(action="case.revealed").exists()


def test_what_was_removed_before_it_was_stored_is_offered_to_nobody(kim: Client) -> None:
    opened = cases.open_case()
    cases.looked_up(opened, cases.found(opened, client_secret="[redacted]"))
    lookup = Evidence.objects.get(operation=opened.operation, kind="lookup")
    page = kim.get(path(opened, lookup.pk)).context["page"]
    assert page.reveal_href == ""
    assert (
        page.reveal_note == "There is nothing to reveal: what is missing was removed before this was stored."
    )
    assert page.view.notes == ("1 secret was removed before this was stored. Nobody can show it.",)
    answer = kim.post(path(opened, lookup.pk, "hidden/"), {"reason": WHY})
    assert answer.status_code == 409
    assert "removed before it was stored" in answer.content.decode()


# --- As it came ---------------------------------------------------------------------------------------------


def test_what_a_key_is_minted_from_mints_it_again(kim: Client) -> None:
    opened = cases.open_case()
    record = {fact.label: fact for fact in page_of(kim, f"/cases/{opened.case_id}/").record}
    words = json.loads(record["Key minted from"].value[0].text)
    names = ("team", "provider", "flow", "external_id", "turn_index", "call_id")
    assert mint_key(**dict(zip(names, words, strict=True))) == opened.operation.key


def test_a_body_is_shown_digit_for_digit_in_its_own_order_with_what_it_says_twice(kim: Client) -> None:
    sent = b'{"z":18446744073709551615,"a":0.10000000000000000555,"n":1e400,"a":2}'
    case_id, evidence = reported(sent)
    answer = kim.get(f"/cases/{case_id}/bodies/{evidence.pk}/")
    page = answer.context["page"]
    assert page.view.text == (
        '{\n  "z": 18446744073709551615,\n  "a": 0.10000000000000000555,\n  "n": 1e400,\n  "a": 2\n}'
    )
    assert "One object names the same member twice (a)" in page.view.notes[-1]
    assert page.facts[-1].copy == hashlib.sha256(sent).hexdigest()
    assert page.bytes_text.startswith("00000000  7b 22 7a 22 3a 31 38 34")
    held = page_of(kim, f"/cases/{case_id}/").evidence[0].bodies[-1]
    assert held.text == page.view.text


def test_a_file_is_inert_and_without_what_is_hidden_unless_that_is_asked_for(kim: Client) -> None:
    script = b'<script>alert(1)</script> {"password": "hunter2hunter2"}'
    case_id, evidence = reported(script)
    plain = kim.get(f"/cases/{case_id}/bodies/{evidence.pk}/file/")
    assert plain.content == b'<script>alert(1)</script> {"password": "[redacted]"}'
    assert plain.headers["Content-Disposition"] == f'attachment; filename="{evidence.pk}-redacted.txt"'
    url = f"/cases/{case_id}/bodies/{evidence.pk}/hidden/"
    whole = kim.post(url, {"reason": WHY, "as": "file"})
    assert whole.content == script
    assert AuditLeaf.objects.filter(action="case.revealed").count() == 1
    for answer in (plain, whole):
        assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Content-Security-Policy"].startswith("sandbox; default-src 'none'")
        assert answer.headers["Cache-Control"] == "no-store"


def test_bytes_that_arent_text_are_downloaded_as_they_came(kim: Client) -> None:
    case_id, evidence = reported(bytes(range(256)))
    assert kim.get(f"/cases/{case_id}/bodies/{evidence.pk}/file/").content == bytes(range(256))


def test_markup_in_a_body_stays_text_wherever_it_is_shown(kim: Client) -> None:
    vectors = ["<script>x</script>", "</details></div><img src=x onerror=y>", "\u202e", "{{ 7|add:7 }}"]
    case_id, evidence = reported(json.dumps({"a": dict.fromkeys(vectors, vectors)}).encode())
    for url in (f"/cases/{case_id}/", f"/cases/{case_id}/bodies/{evidence.pk}/"):
        shown = kim.get(url).content.decode()
        assert "<script>x" not in shown
        assert "<img src=x" not in shown
        assert "&lt;script&gt;x&lt;/script&gt;" in shown
        assert "\u202e" not in shown


# --- Folded -------------------------------------------------------------------------------------------------


def _text_of(html: str) -> str:
    class Reader(HTMLParser):
        def __init__(self) -> None:
            super().__init__()
            self.text = ""

        def handle_data(self, data: str) -> None:
            self.text += data

    reader = Reader()
    reader.feed(html)
    return reader.text


@pytest.mark.parametrize(
    "value",
    [
        {"a": {"b": {"c": {"d": [1, 2, 3, 4], "e": "</details>"}}}, "z": [[{"x": "\n{"}] * 80]},
        {"long": list(range(OPEN_LINES_MAX + 1)), "short": [1, 2, 3]},
        [],
        {"empty": [{}, []]},
    ],
)
def test_folding_changes_no_character_of_the_text(value: Any) -> None:
    text = laid_out(json.dumps(value))
    html = rendered(text)
    assert _text_of(html) == text
    assert html.count("<details") == html.count("</details>") == html.count("<summary")


def test_what_is_deep_or_long_starts_folded_and_the_rest_open() -> None:
    lines = laid_out(json.dumps({"a": {"b": {"c": [1, 2, 3]}}, "l": [0] * 61, "s": [1, 2, 3]})).split("\n")
    shown = {lines[number].strip(): fold.open for number, fold in folds_of(lines).items()}
    assert shown == {'"a": {': True, '"b": {': True, '"c": [': False, '"l": [': False, '"s": [': True}


@pytest.mark.parametrize("text", ["", "{", "{\n  [", "[error] {\n}\n]", "plain\n{\n1\n2\n3\n}"])
def test_what_isnt_laid_out_json_is_not_folded(text: str) -> None:
    assert rendered(text) == text


def test_a_text_cut_within_a_fold_is_shown_as_far_as_it_goes() -> None:
    text = laid_out(json.dumps({"a": {"b": [1, 2, 3], "c": [1, 2, 3]}}))[:60]
    html = rendered(text)
    assert _text_of(html) == text
    assert html.count("<details") == html.count("</details>") == 1


def test_names_that_repeat_in_one_object_are_told_from_those_of_two() -> None:
    assert repeated_names('{"a":{"b":1},"c":{"b":2}}') == ()
    assert repeated_names('[{"b":1,"b":1},{"a":1,"c":{"a":1}}]') == ("b",)
    assert repeated_names("[" * 100_000) == ()


def test_a_dump_shows_offsets_bytes_and_what_is_printable() -> None:
    assert hex_dump(b'{"a":"\xff\x00"}') == (
        '00000000  7b 22 61 22 3a 22 ff 00 22 7d                    {"a":".."}'
    )
