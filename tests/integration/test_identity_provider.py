"""Sign-in by an OpenID provider that others wrote: linked by subject, or by an address that it verified."""

from __future__ import annotations

import json
import os
import re
import shutil
from html import unescape
from typing import Any
from urllib.parse import urljoin, urlsplit

import httpx
import pytest
from allauth.socialaccount.models import SocialAccount
from django.test import Client

from console import access, people
from console.models import Person, Role
from console.people import COMMAND_LINE
from runs.models import AuditLeaf
from tests import factories
from tests.contract.peers.servers import FOLDER, MODULES, require_node
from tests.integration.pages.test_approvals import asked_for
from tests.people import make_person
from tests.processes import PATIENCE_SECONDS, Spawn, until

pytestmark = [pytest.mark.django_db, pytest.mark.peers]

CLIENT = {
    "client_id": "recourse",
    "client_secret": "a secret of two machines",
    "redirect_uris": ["https://testserver/login/elsewhere/sso/back/"],
}
PEOPLE = {
    "subject-rita": {"name": "Rita", "email": "rita@example.org", "email_verified": True},
    "subject-eve": {"name": "Eve", "email": "rita@example.org", "email_verified": False},
    "subject-heir": {"name": "Heir", "email": "rita@example.org", "email_verified": True},
    "subject-new": {"name": "New", "email": "new@example.org", "email_verified": True},
}
REASON = "Agreed with their team lead today."


@pytest.fixture
def issuer(spawn: Spawn, settings: Any) -> str:
    """A running OpenID provider that Recourse is configured for; people are linked by subject alone."""
    require_node()
    if not (MODULES / "oidc-provider").is_dir():
        pytest.fail("oidc-provider isn’t installed: run make peers", pytrace=False)
    node = shutil.which("node")
    assert node is not None
    process = spawn(
        [node, FOLDER / "openid.mjs"],
        env={
            "PATH": os.environ.get("PATH", os.defpath),
            "OPENID_CLIENT": json.dumps(CLIENT),
            "OPENID_PEOPLE": json.dumps(PEOPLE),
            # It warns that its own sign-in form and its keys are for tests.
            "NODE_NO_WARNINGS": "1",
        },
        name="openid",
    )
    for last in until(PATIENCE_SECONDS):
        if found := list(process.json_lines()):
            break
        assert process.running(), process.output()
        assert not last, process.output()
    url = f"http://127.0.0.1:{found[0]['port']}"
    configure(settings, url, by_email=False)
    return url


def configure(settings: Any, issuer: str, *, by_email: bool) -> None:
    app = {
        "provider_id": "sso",
        "name": "Example login",
        "client_id": CLIENT["client_id"],
        "secret": CLIENT["client_secret"],
        "settings": {
            "server_url": issuer,
            "fetch_userinfo": True,
            "email_authentication": by_email,
        },
    }
    settings.RECOURSE_IDENTITY_PROVIDER = app
    settings.SOCIALACCOUNT_PROVIDERS = {"openid_connect": {"OAUTH_PKCE_ENABLED": True, "APPS": [app]}}


@pytest.fixture
def rita() -> Person:
    made: Person = Person.objects.create(
        username="rita", email="rita@example.org", roles=[str(Role.OPERATOR)]
    )
    made.set_unusable_password()
    made.save()
    made.teams.add(factories.make_team())
    return made


def sign_in(subject: str, **fields: str) -> tuple[Client, Any]:
    """Walk the whole way as a browser does: to the provider, through its forms, and back."""
    client = Client()
    begun = client.post("/login/elsewhere/", fields, secure=True)
    with httpx.Client(timeout=PATIENCE_SECONDS) as there:
        return client, through(client, begun, subject, there)[0]


def through(client: Client, begun: Any, subject: str, there: httpx.Client) -> tuple[Any, int]:
    """From the console's redirect to its answer; and how often the provider asked who one is."""
    assert begun.status_code == 302, begun.content
    address, asked = begun["Location"], 0
    answer = there.get(address)
    for _ in range(12):
        if answer.is_redirect:
            address = urljoin(str(answer.url), answer.headers["location"])
            if urlsplit(address).netloc == "testserver":
                back = urlsplit(address)
                return client.get(f"{back.path}?{back.query}", secure=True), asked
            answer = there.get(address)
            continue
        assert answer.status_code == 200, answer.text
        action = re.search(r'action="([^"]+)"', answer.text)
        assert action, answer.text
        typed = dict(re.findall(r'name="(prompt)" value="(\w+)"', answer.text))
        if typed.get("prompt") == "login":
            asked += 1
            typed |= {"login": subject, "password": "whatever"}
        answer = there.post(urljoin(str(answer.url), unescape(action[1])), data=typed)
    raise AssertionError("the provider never sent the browser back")


def test_somebody_linked_by_subject_comes_in_where_they_wanted_to_go(issuer: str, rita: Person) -> None:
    people.link(by=COMMAND_LINE, person_id=rita.pk, subject="subject-rita", reason=REASON)
    client, answer = sign_in("subject-rita", next="/runs/")
    assert answer["Location"] == "/runs/", answer.content
    assert client.get("/runs/", secure=True).status_code == 200
    assert client.get("/account/sessions/", secure=True).context["page"].rows[0].current


def test_nobody_is_let_in_or_made_for_being_known_to_the_provider(issuer: str, rita: Person) -> None:
    for subject in ("subject-new", "subject-rita"):
        client, answer = sign_in(subject)
        assert answer.status_code == 403
        assert "Nobody here is linked to this login" in answer.content.decode()
        assert client.get("/", secure=True).status_code == 302
    assert Person.objects.count() == 1
    assert not SocialAccount.objects.exists()


def test_an_address_links_only_where_that_is_on_and_the_provider_verified_it(
    issuer: str, rita: Person, settings: Any
) -> None:
    configure(settings, issuer, by_email=True)
    assert sign_in("subject-eve")[1].status_code == 403, "anybody can claim an address"
    client, answer = sign_in("subject-rita")
    assert answer.status_code == 302, answer.content
    assert client.get("/", secure=True).status_code == 200
    assert SocialAccount.objects.get(user=rita).uid == "subject-rita"
    leaf = bytes(AuditLeaf.objects.get(action="person.linked").body).decode()
    assert '"after":{"subject":"subject-rita"}' in leaf
    assert sign_in("subject-heir")[1].status_code == 403, "the address is somebody else's now"
    configure(settings, issuer, by_email=False)
    assert sign_in("subject-rita")[1].status_code == 302, "linked by subject from then on"


def test_a_closed_login_stays_out_whatever_the_provider_says(issuer: str, rita: Person) -> None:
    people.link(by=COMMAND_LINE, person_id=rita.pk, subject="subject-rita", reason=REASON)
    people.close(by=COMMAND_LINE, person_id=rita.pk, reason=REASON)
    client, answer = sign_in("subject-rita")
    assert answer["Location"] == "/login/closed/"
    assert "This login is closed" in client.get("/login/closed/", secure=True).content.decode()
    assert client.get("/", secure=True).status_code == 302


def test_an_address_that_leads_to_a_closed_login_changes_nothing_of_it(
    issuer: str, rita: Person, settings: Any
) -> None:
    rita.set_password("a long enough password")
    rita.save()
    people.close(by=COMMAND_LINE, person_id=rita.pk, reason=REASON)
    configure(settings, issuer, by_email=True)
    assert sign_in("subject-rita")[1]["Location"] == "/login/closed/"
    assert factories.fresh(rita).has_usable_password()
    assert not SocialAccount.objects.exists()


def test_an_answer_that_nobody_asked_for_signs_nobody_in(issuer: str, rita: Person) -> None:
    people.link(by=COMMAND_LINE, person_id=rita.pk, subject="subject-rita", reason=REASON)
    client = Client()
    answer = client.get("/login/elsewhere/sso/back/?code=made-up&state=made-up", secure=True)
    assert answer.status_code == 403
    assert "couldn’t be used" in answer.content.decode()
    assert client.get("/", secure=True).status_code == 302


# --- Showing again that it is you -------------------------------------------------------------------------


def test_an_approver_without_a_password_answers_after_the_provider_has_asked_them_again(
    issuer: str, rita: Person
) -> None:
    Person.objects.filter(pk=rita.pk).update(roles=[str(Role.APPROVER)])
    people.link(by=COMMAND_LINE, person_id=rita.pk, subject="subject-rita", reason=REASON)
    make_person("jonas", Role.OPERATOR)
    made = asked_for("jonas")
    answer = {"act": "approve", "comment": "Agreed.", "content_digest": made.content_digest, "key": "form_1"}
    path = f"/approvals/{made.pk}/answer/"
    client = Client()
    with httpx.Client(timeout=PATIENCE_SECONDS) as there:
        begun = client.post("/login/elsewhere/", secure=True)
        assert through(client, begun, "subject-rita", there)[1] == 1
        # Whoever comes to this screen is waved through there: that shows nobody.
        begun = client.post("/login/elsewhere/", secure=True)
        assert through(client, begun, "subject-rita", there)[1] == 0
        asked = client.post(path, answer, secure=True)
        assert (asked.status_code, made.__class__.objects.get().state) == (403, "requested")
        assert b"Sign in with Example login again" in asked.content
        draft = asked.context["draft"]
        again = {"way": "elsewhere", "draft": draft, "next": f"/approvals/{made.pk}/"}
        begun = client.post("/reauthentication/", again, secure=True)
        back, times = through(client, begun, "subject-rita", there)
    assert times == 1, "it asks although its session is open"
    # What was typed is there again, and is sent by the person.
    assert back["Location"] == path
    assert b">Agreed.</textarea>" in client.get(path, secure=True).content
    assert client.post(path, answer, secure=True).status_code == 302
    assert made.__class__.objects.get().state == "carried_out"


def test_another_login_of_the_provider_shows_nothing_about_this_person(issuer: str, rita: Person) -> None:
    people.link(by=COMMAND_LINE, person_id=rita.pk, subject="subject-rita", reason=REASON)
    client, _ = sign_in("subject-rita")
    with httpx.Client(timeout=PATIENCE_SECONDS) as there:
        begun = client.post("/reauthentication/", {"way": "elsewhere", "next": "/runs/"}, secure=True)
        back, _ = through(client, begun, "subject-new", there)
    assert (back.status_code, b"answered for somebody else" in back.content) == (403, True)
    assert access.REAUTHENTICATED_KEY not in client.session
    assert client.get("/runs/", secure=True).status_code == 200, "and signs nobody out"


def test_whoever_has_the_provider_alone_may_add_a_passkey_after_it_asked(issuer: str, rita: Person) -> None:
    people.link(by=COMMAND_LINE, person_id=rita.pk, subject="subject-rita", reason=REASON)
    client, _ = sign_in("subject-rita")
    first = client.get("/account/passkeys/new/", secure=True)
    assert first["Location"].startswith("/reauthentication/")
    with httpx.Client(timeout=PATIENCE_SECONDS) as there:
        asked = {"way": "elsewhere", "next": "/account/passkeys/new/"}
        begun = client.post("/reauthentication/", asked, secure=True)
        back, _ = through(client, begun, "subject-rita", there)
    assert back["Location"] == "/account/passkeys/new/"
    assert client.get(back["Location"], secure=True).status_code == 200
