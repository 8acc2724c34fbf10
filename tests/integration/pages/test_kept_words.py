"""What a person typed survives whatever happens to it: at every address of the console that takes a form.

The addresses come from the URL configuration: one that is added is tested with the rest.
"""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest
from django.test import Client
from django.urls import URLPattern, reverse

from console import access
from console.models import Person, Role, SavedView, ViewReach
from console.pages import guards
from console.pages.drafts import TYPIST_COOKIE
from console.pages.urls import urlpatterns
from reconciliation import approvals, bulk
from reconciliation.accounts import sync_accounts
from reconciliation.approval_models import ApprovalKind
from reconciliation.bulk_models import BulkDeed
from reconciliation.models import Decision
from reconciliation.run_approvals import raise_parameters
from reconciliation.working import Worker
from runs.ids import new_id
from runs.models import AuditLeaf
from runs.money import Money
from tests import cases
from tests.cases import Opened
from tests.integration.pages.conftest import Login
from tests.integration.pages.forms import fields, post, reviewed
from tests.integration.test_journal_consenting import stopped_by_budget

PASSWORD = "a password for tests only"
MARK = "Typed by hand & worth keeping <b>"
# Whatever a form calls its fields, something of these is one of them.
TYPED = {
    name: f"{MARK} in {name}"
    for name in (
        "reason",
        "text",
        "name",
        "note",
        "operation",
        "given_body",
        "payload",
        "slug",
        "label",
        "comment",
        "email",
    )
}
# A button and nothing beside it: there are no words to keep.
BUTTONS = {
    "queue_next",
    "view_remove",
    "case_wake",
    "case_claim",
    "case_release",
    "case_leaving",
    "case_lookup",
    "environment_open",
    "bulk_freeze",
    "bulk_narrow",
    "bulk_stop",
    "notification_own",
    "notification_channel",
    "notification_retry",
    "export_list",
}
# A page with a button of its own: after a sign-in it is opened as it is, and the button is pressed anew.
WITH_A_BUTTON = {"export_list"}


# What anybody may say of themselves: no role is refused it, and boxes to tick are no words.
OWN = {"notification_own"}


def forms() -> list[str]:
    """The names of all addresses that take a POST from a signed-in person."""
    return [
        str(one.name)
        for one in urlpatterns
        if isinstance(one, URLPattern) and "POST" in getattr(one.callback, "page_methods", ())
    ]


@pytest.fixture
def opened(db: None) -> Opened:
    sync_accounts()
    return cases.needs_decision()


@pytest.fixture
def addresses(opened: Opened, login: Login) -> dict[str, str]:
    """Name → a real address of each form."""
    login(Role.VIEWER, name="owner")
    view = SavedView.objects.create(
        id="view_1",
        owner=Person.objects.get(username="owner"),
        reach=ViewReach.PRIVATE,
        name="Old",
        query="q=1",
    )
    ids = {
        "case_id": opened.case_id,
        "run_id": opened.run.pk,
        "slug": opened.operation.provider_id,
        "view_id": view.pk,
        "name": "payload",
        "job_id": _list_of_sam(opened, login),
        "approval_id": _request_of_jonas(login),
        "person_id": str(view.owner_id),
        "act": "closing",
        "flow_id": opened.run.flow_id,
        "account": opened.operation.provider_id,
    }
    found = {}
    for one in urlpatterns:
        if one.name in forms():
            names = one.pattern.converters
            found[str(one.name)] = reverse(str(one.name), kwargs={name: ids.get(name, "x") for name in names})
    return found


def _list_of_sam(opened: Opened, login: Login) -> str:
    """A list of cases that only its own person can open."""
    login(Role.OPERATOR, Role.ADMINISTRATOR, name="sam")
    sam = Person.objects.get(username="sam")
    worker = Worker(actor=access.person_actor(sam), name="sam")
    job = bulk.freeze(
        worker=worker, teams=[opened.case.team_id], deed=BulkDeed.DECIDE, case_ids=[opened.case_id]
    )
    return job.pk


def _request_of_jonas(login: Login) -> str:
    """Something that a second person is asked about."""
    login(Role.OPERATOR, name="jonas")
    worker = Worker(actor=access.person_actor(Person.objects.get(username="jonas")), name="jonas")
    run = stopped_by_budget().run
    made = approvals.request(
        kind=ApprovalKind.BUDGET_RAISE,
        worker=worker,
        team=run.team_id,
        parameters=raise_parameters(limit=Money("EUR", 3_000)),
        reason="The supplier's offer ends today.",
        key="form_jonas",
        run_id=run.pk,
    )
    return made.approval.pk


def shown(answer: Any) -> str:
    """The page as a person reads it: hidden fields are no words given back."""
    text = re.sub(r'<input type="hidden"[^>]*>', "", answer.content.decode())
    assert MARK not in text, "what was typed is in the page as markup"
    return unescape(text)


def written() -> tuple[int, int]:
    return AuditLeaf.objects.count(), Decision.objects.count()


def test_every_form_is_found(addresses: dict[str, str]) -> None:
    assert len(addresses) >= 15
    assert set(BUTTONS) - {"case_leaving"} <= set(addresses)


@pytest.mark.parametrize("role", [Role.VIEWER, Role.AUDITOR])
def test_a_role_that_may_not_gets_its_words_back(addresses: dict[str, str], login: Login, role: Role) -> None:
    client = login(role)
    before = written()
    for name, address in addresses.items():
        if name in OWN:
            continue
        answer = client.post(address, TYPED)
        if name in BUTTONS:
            continue
        assert answer.status_code in {403, 404, 409, 422, 423}, (name, answer.status_code)
        assert MARK in shown(answer), name
    assert written() == before


def test_a_form_of_another_session_gives_every_word_back(addresses: dict[str, str], login: Login) -> None:
    person = login(Role.OPERATOR)
    client = Client(enforce_csrf_checks=True)
    client.cookies = person.cookies
    for name, address in addresses.items():
        answer = client.post(address, TYPED)
        assert answer.status_code == 403, name
        assert "This form is from another session" in shown(answer), name
        assert MARK in shown(answer), name


def test_a_defect_says_what_is_known_and_gives_every_word_back(
    addresses: dict[str, str], login: Login, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = login(Role.OPERATOR)
    client.raise_request_exception = False

    def broken(_person: Person) -> tuple[str, ...]:
        raise RuntimeError("a defect")

    monkeypatch.setattr(guards.access, "teams_of", broken)
    for name, address in addresses.items():
        answer = client.post(address, TYPED)
        assert answer.status_code == 500, name
        text = shown(answer)
        assert "It is not known whether this was recorded." in text, name
        assert MARK in text, name
        assert "try again" not in text.lower()
        assert 'class="btn btn--primary">Send the same form once more' not in text, name


# --- A session that ended -------------------------------------------------------------------------------


@pytest.fixture
def sam(settings: Any, login: Login) -> Client:
    """Somebody who signed in with their name and may do anything, with the browser that they did it in."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    for name in ("sam", "robin"):
        login(Role.OPERATOR, Role.ADMINISTRATOR, name=name)
        person = Person.objects.get(username=name)
        person.set_password(PASSWORD)
        person.save()
    client = Client()
    signs_in(client, "sam")
    return client


def signs_in(client: Client, name: str, **more: str) -> Any:
    return client.post("/login/", {"username": name, "password": PASSWORD, **more})


def session_ends(client: Client, settings: Any) -> None:
    del client.cookies[settings.SESSION_COOKIE_NAME]


def sent_too_late(client: Client, address: str, data: dict[str, str]) -> dict[str, str]:
    """Send a form without a session; gives what the sign-in form carries."""
    answer = client.post(address, data)
    text = answer.content.decode()
    assert answer.status_code == 403, address
    assert "Your session has ended. Nothing was recorded." in text
    assert MARK not in unescape(re.sub(r'value="[^"]*"', "", text)), "shown before anybody signed in"
    carried = dict(re.findall(r'name="(next|draft)" value="([^"]*)"', text))
    assert carried["next"] == address, "nothing typed is in an address"
    return carried


def test_after_a_sign_in_every_form_comes_back_as_it_was_and_nothing_is_carried_out(
    addresses: dict[str, str], sam: Client, settings: Any
) -> None:
    before = written()
    for name, address in addresses.items():
        session_ends(sam, settings)
        answer = signs_in(sam, "sam", **sent_too_late(sam, address, TYPED))
        assert answer["Location"] == address, name
        if name in WITH_A_BUTTON:
            continue
        page = sam.get(address, follow=True)
        assert page.status_code == 200, name
        assert "Nothing was recorded" in shown(page), name
        assert MARK in shown(page), name
        again = sam.get(address, follow=True)
        assert again.status_code == 200, name
        assert MARK not in shown(again), f"{name} is given back twice"
    assert written() == before


def test_the_decision_comes_back_into_its_own_form(opened: Opened, sam: Client, settings: Any) -> None:
    data = {**fields(sam, opened, "abandon", then="end"), "reason": MARK, "step": "record"}
    session_ends(sam, settings)
    address = f"/cases/{opened.case_id}/decision/"
    signs_in(sam, "sam", **sent_too_late(sam, address, data))
    panel = sam.get(address).context["page"].panel
    assert (panel.draft.action, panel.draft.reason_code, panel.draft.reason) == ("abandon", "other", MARK)
    assert not Decision.objects.exists()


def test_the_words_are_their_writers_alone(opened: Opened, sam: Client, settings: Any) -> None:
    session_ends(sam, settings)
    address = f"/cases/{opened.case_id}/note/"
    carried = sent_too_late(sam, address, {"text": MARK})
    answer = signs_in(sam, "robin", **carried)
    page = sam.get(answer["Location"], follow=True)
    assert "Somebody else had typed in that form." in shown(page)
    assert MARK not in shown(page)
    assert "draft" not in sam.session


def test_a_browser_that_cannot_say_whose_words_they_are_shows_them_at_once_and_keeps_none(
    opened: Opened, sam: Client, settings: Any
) -> None:
    session_ends(sam, settings)
    del sam.cookies[TYPIST_COOKIE]
    answer = sam.post(f"/cases/{opened.case_id}/note/", {"text": MARK})
    assert 'name="draft"' not in answer.content.decode()
    assert MARK in shown(answer)


def test_a_forged_typist_is_nobody(opened: Opened, sam: Client, settings: Any) -> None:
    session_ends(sam, settings)
    sam.cookies[TYPIST_COOKIE] = f"{Person.objects.get(username='robin').pk}:forged"
    answer = sam.post(f"/cases/{opened.case_id}/note/", {"text": MARK})
    assert 'name="draft"' not in answer.content.decode()


def test_what_is_too_long_or_a_secret_is_left_out_whole(opened: Opened, sam: Client, settings: Any) -> None:
    session_ends(sam, settings)
    address = f"/cases/{opened.case_id}/decision/"
    data = {"reason": MARK, "given_body": "x" * 70_000, "given_reference": "sk_live_" + "a1B2c3D4" * 4}
    signs_in(sam, "sam", **sent_too_late(sam, address, data))
    assert [name for name, _ in sam.session["draft"]["fields"]] == ["reason"]


def test_a_piece_of_a_page_without_a_session_is_no_sign_in_page(opened: Opened) -> None:
    for address in (
        f"/cases/{opened.case_id}/live/",
        "/queue/news/?since=2026-01-01T00:00:00Z",
        "/search/?q=a",
    ):
        answer = Client().get(address, headers={"HX-Request": "true"})
        assert answer.status_code == 401, address
        assert b"<form" not in answer.content
    assert Client().head("/live/").status_code == 401


# --- An answer that never came --------------------------------------------------------------------------


def test_after_a_defect_the_same_decision_is_sent_once_more_and_counts_once(
    opened: Opened, login: Login, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = login(Role.OPERATOR)
    confirming = reviewed(client, opened, fields(client, opened, "abandon", then="continue"))
    assert post(client, opened, confirming).status_code == 302
    with monkeypatch.context() as patched:
        patched.setattr(guards.access, "teams_of", lambda _person: 1 / 0)
        client.raise_request_exception = False
        failed = post(client, opened, confirming)
    text = failed.content.decode()
    assert failed.status_code == 500
    assert "counts once, however often it arrives" in unescape(text)
    form = text[text.index("<form") : text.index("Send the same form once more")]
    again = {
        name: unescape(value)
        for name, value in re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', form)
    }
    assert {**again, "csrfmiddlewaretoken": ""} == {**confirming, "csrfmiddlewaretoken": ""}
    assert post(client, opened, again).status_code == 302
    assert Decision.objects.count() == 1


def test_a_review_that_failed_recorded_nothing_and_says_so(
    opened: Opened, login: Login, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = login(Role.OPERATOR)
    data = fields(client, opened, "abandon", then="continue", reason=MARK)
    monkeypatch.setattr(guards.access, "teams_of", lambda _person: 1 / 0)
    client.raise_request_exception = False
    text = shown(post(client, opened, data))
    assert "Nothing was recorded and nothing was sent" in text
    assert MARK in text
    assert "It is not known" not in text


def test_a_note_that_is_sent_twice_is_one_note(opened: Opened, login: Login) -> None:
    client = login(Role.OPERATOR)
    data = {"text": MARK, "key": new_id("form")}
    for _ in range(2):
        assert client.post(f"/cases/{opened.case_id}/note/", data).status_code == 302
    assert opened.case.notes.count() == 1


# --- Where an address for a form leads --------------------------------------------------------------------


def test_an_address_that_only_takes_a_form_leads_to_the_page_of_that_form(
    addresses: dict[str, str], login: Login
) -> None:
    client = login(Role.OPERATOR, Role.ADMINISTRATOR)
    for name, address in addresses.items():
        answer = client.get(address)
        with_a_page = {"case_decide", "provider_new", "person_new", "flow", "account_access"}
        if name in {*with_a_page, *WITH_A_BUTTON} or name.startswith("bulk_"):
            # A list's page is its own person's alone.
            continue
        assert answer.status_code == 302, name
        assert client.get(answer["Location"]).status_code == 200, name
    opened_at = {name: client.get(addresses[name])["Location"] for name in ("case_note", "view_save")}
    assert opened_at["case_note"] == addresses["case_note"].removesuffix("note/")
    assert opened_at["view_save"] == "/"


def test_a_script_is_told_where_to_go_and_not_sent_there(opened: Opened, login: Login) -> None:
    client = login(Role.OPERATOR)
    data = {"text": MARK, "key": new_id("form")}
    answer = client.post(f"/cases/{opened.case_id}/note/", data, headers={"HX-Request": "true"})
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer["HX-Redirect"] == f"/cases/{opened.case_id}/#timeline-title"


def test_a_form_that_is_too_large_is_said_to_be(opened: Opened, login: Login, settings: Any) -> None:
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 1024
    answer = login(Role.OPERATOR).post(f"/cases/{opened.case_id}/note/", {"text": "x" * 2048})
    assert answer.status_code == 413
    assert "This is more than a form may hold" in answer.content.decode()
