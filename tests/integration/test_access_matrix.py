"""Every page and every API call, for every role and none, of one's own team and of another.

The addresses come from the URL configuration and the calls from the API's own document, so that one which
`tests.access_table` doesn't know fails here, and says what to add.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, NamedTuple

import pytest
from django.db import transaction
from django.http import HttpResponse
from django.test import Client
from django.urls import URLPattern, URLResolver
from django.utils import timezone

from console import urls
from console.api.assembly import api
from console.api.bearer import remembered
from console.export_models import HistoryExport
from console.models import Person, Role, SavedView, Scope, create_token
from console.notification_models import Channel, Message
from reconciliation import attaching
from reconciliation.models import Decision
from reconciliation.states import Action
from reconciliation.working import Worker
from runs import account_access
from runs.actors import Actor, ActorKind
from runs.models import AuditLeaf
from tests import cases, cases_world, factories
from tests.access_table import CALLS, EVERYBODY, NOBODY, PAGES, PUBLIC, Rule
from tests.integration.pages.test_bulk import freeze

pytestmark = pytest.mark.django_db

OTHER_TEAM = "other"
# What an address names that belongs to a team. Everything else that it may name belongs to nobody.
OF_A_TEAM = frozenset(
    {
        "case_id",
        "run_id",
        "operation_id",
        "job_id",
        "view_id",
        "evidence_id",
        "approval_id",
        "channel_id",
        "message_id",
        "turn",
        "decision_id",
        "export_id",
        "number",
        "call_id",
        "slug",
    }
)
# Where every administrator says whose an account is.
ADMINISTERS_ACCOUNTS = frozenset({"account_access_list", "account_access"})
REFUSALS = frozenset({401, 403, 404, 405})
WEBHOOK = "/api/v1/providers/{account}/webhook"


class Address(NamedTuple):
    """One entry of the URL configuration."""

    name: str
    route: str
    names: frozenset[str]

    @property
    def of_a_team(self) -> bool:
        return not self.names.isdisjoint(OF_A_TEAM)


def addresses(entries: list[Any] | None = None, above: str = "/") -> Iterator[Address]:
    """Every named address of the console but the API's calls, with its names as `{name}`."""
    for one in urls.urlpatterns if entries is None else entries:
        route = above + re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", str(one.pattern))
        if isinstance(one, URLResolver) and one.namespace == "admin":
            # Django's own, asked for one by one in `test_admin_window`.
            continue
        if isinstance(one, URLResolver):
            yield from addresses(one.url_patterns, route)
        elif isinstance(one, URLPattern) and not (_is_call(route) or (one.name or "") == "no_such_address"):
            yield Address(one.name or f"(unnamed) {route}", route, frozenset(one.pattern.converters))


class ApiCall(NamedTuple):
    """One call of the API's document."""

    name: str
    method: str
    path: str
    schema: dict[str, Any]
    scopes: frozenset[str]

    @property
    def of_a_team(self) -> bool:
        return "{" in self.path


DOCUMENT = api.get_openapi_schema()
API_CALLS = [
    ApiCall(
        call["operationId"],
        method,
        path,
        call.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {}),
        frozenset(call["x-scopes"]),
    )
    for path, methods in DOCUMENT["paths"].items()
    for method, call in methods.items()
]


def _is_call(route: str) -> bool:
    return route in {path for path in DOCUMENT["paths"] if path != WEBHOOK}


ADDRESSES = [one for one in addresses() if one.name not in PUBLIC]


@pytest.fixture
def ids(db: None) -> dict[str, str]:
    return ids_of(factories.TEAM)


def ids_of(team: str) -> dict[str, str]:
    """Something real for each name that an address or call may hold; all of it belongs to this team."""
    opened = cases.needs_decision(team=team)
    owner = person(Role.OPERATOR, team=team)
    worker = Worker(actor=Actor(ActorKind.PERSON, f"person:{owner.pk}", "operator"), name="Owner")
    attached = attaching.attach_file(
        case_id=opened.case_id,
        team=team,
        worker=worker,
        summary="A letter",
        content=b"%PDF-1.4\n\xff\n%%EOF\n",
        name="l.pdf",
        key="a1",
    )
    view = SavedView.objects.create(
        id="view_matrix", owner=owner, team_id=team, name="Shared", query="view=soon", reach="shared"
    )
    waiting = cases.needs_decision(team=team)
    requested = cases_world.decide(waiting.case, Action.CONFIRM, actor=worker.actor, team=team, receipt=None)
    channel = Channel.objects.create(
        id="chan_matrix", team_id=team, medium="email", address="m@example.com", made_by="person:1"
    )
    return {
        "approval_id": requested.approval,
        "channel_id": channel.pk,
        "message_id": Message.objects.create(
            id="msg_matrix",
            channel=channel,
            team_id=team,
            subject=f"About {opened.case_id}",
            content={"heading": "", "lines": [], "more": 0},
            count=1,
            made_at=timezone.now(),
            tried_from_at=timezone.now(),
            next_attempt_at=timezone.now(),
        ).pk,
        "case_id": opened.case_id,
        "run_id": opened.run.pk,
        "operation_id": opened.operation.pk,
        "job_id": freeze(browser(owner), "claim", opened).split("/")[2],
        "view_id": view.pk,
        "evidence_id": attached.evidence_id,
        "turn": "1",
        "index": "1",
        "call_id": "c1",
        "decision_id": Decision.objects.create(
            id="dec_matrix",
            case=opened.case,
            operation=opened.operation,
            action="retry",
            actor_kind="policy",
            actor="policy-1",
            policy="policy-1",
            seen_version=1,
            evidence_digest="0" * 64,
            idempotency_key="matrix",
            content_digest="0" * 64,
        ).pk,
        "number": str(AuditLeaf.objects.filter(operation_ref=opened.operation.pk).latest("id").pk),
        "export_id": HistoryExport.objects.create(
            id="exp_matrix",
            form="csv",
            state="done",
            teams=[team],
            actor=f"person:{person(Role.AUDITOR, team=team).pk}",
            asked_at=timezone.now(),
            through_leaf=0,
            whole="yes",
            sha256="0" * 64,
            ended_at=timezone.now(),
        ).pk,
        # An account that is there for this team alone.
        "slug": _account_of(team),
        # These belong to no team.
        # What is administered is no team's: every administrator sees it.
        "account": cases.PAYMENTS,
        "person_id": str(owner.pk),
        "act": "sessions",
        "flow_id": opened.run.flow_id,
        "session_id": "1",
        "pk": "1",
        "name": "payload",
    }


def _account_of(team: str) -> str:
    account_access.name_first(account=cases.PAYMENTS, teams=[team], actor=factories.PERSON)
    return cases.PAYMENTS


def person(*roles: Role, team: str) -> Person:
    """The person of these roles in this team; the operator is whoever made what is of one person."""
    made, _ = Person.objects.get_or_create(
        username=f"{'-'.join(roles) or 'nobody'}-of-{team}", defaults={"roles": [str(role) for role in roles]}
    )
    made.teams.add(factories.make_team(team))
    return made


def browser(signed_in: Person | None) -> Client:
    client = Client()
    if signed_in is not None:
        client.force_login(signed_in)
    return client


def asked(client: Client, method: str, path: str, **more: Any) -> HttpResponse:
    """The answer to one request, of which nothing stays."""
    with transaction.atomic():
        answer: HttpResponse = getattr(client, method)(path, **more)
        transaction.set_rollback(True)
    assert answer.status_code < 500, f"{method.upper()} {path} failed: {answer.content[:500]!r}"
    return answer


def filled(text: str, ids: dict[str, str], where: str) -> str:
    try:
        return text.format(**ids)
    except KeyError as missing:
        pytest.fail(f"{where} names {missing}: add something real under it to ids_of in {__name__}.")


# --- Nothing is left out ------------------------------------------------------------------------------------


def test_every_address_and_every_call_has_its_line_in_the_table() -> None:
    found = {one.name for one in addresses()}
    known = PAGES.keys() | PUBLIC.keys()
    assert not found - known, (
        f"Who may open {sorted(found - known)}? Add a line for each to PAGES in tests/access_table.py."
    )
    assert not known - found, f"tests/access_table.py has addresses that don’t exist: {sorted(known - found)}"
    called = {one.name for one in API_CALLS}
    assert not called - CALLS.keys(), (
        f"Who may call {sorted(called - CALLS.keys())}? Add a line each to CALLS in tests/access_table.py."
    )
    assert not CALLS.keys() - called, (
        f"tests/access_table.py has calls that don’t exist: {CALLS.keys() - called}"
    )
    assert len(ADDRESSES) > 40
    assert len(API_CALLS) > 25


# --- Pages --------------------------------------------------------------------------------------------------


def requests_of(address: Address, ids: dict[str, str]) -> tuple[Rule, str, dict[str, str]]:
    rule = PAGES[address.name]
    where = f"The address {address.name}"
    path = filled(address.route, ids, where) + (f"?{rule.query}" if rule.query else "")
    return rule, path, {name: filled(text, ids, where) for name, text in rule.data.items()}


def leads_to_sign_in(answer: HttpResponse) -> bool:
    return answer.status_code == 302 and answer["Location"].startswith("/login/")


def passed(answer: HttpResponse) -> bool:
    """Whether the person was let in; what came of what they sent is another question."""
    return answer.status_code not in REFUSALS and not leads_to_sign_in(answer)


@pytest.mark.parametrize("session", ["none", "disabled"])
def test_without_a_session_every_page_asks_to_sign_in(ids: dict[str, str], session: str) -> None:
    client = browser(None)
    if session == "disabled":
        closed = person(*Role, team=factories.TEAM)
        client = browser(closed)
        Person.objects.filter(pk=closed.pk).update(is_active=False)
    for address in ADDRESSES:
        rule, path, data = requests_of(address, ids)
        opened, sent = asked(client, "get", path), asked(client, "post", path, data=data)
        if rule.sees is None:
            assert opened.status_code == 405, (address.name, opened.status_code)
        else:
            assert leads_to_sign_in(opened), (address.name, opened.status_code)
        assert sent.status_code == (403 if rule.sends is not None else 405), (address.name, sent.status_code)
        for answer in (opened, sent):
            assert ids["operation_id"] not in answer.content.decode(), address.name


def test_somebody_without_a_role_is_refused_everywhere(ids: dict[str, str]) -> None:
    client = browser(person(team=factories.TEAM))
    for address in ADDRESSES:
        rule, path, data = requests_of(address, ids)
        if rule.roleless:
            assert asked(client, "get", path).status_code in ({200, 302, 404} if rule.sees else {405})
            continue
        assert asked(client, "get", path).status_code == 403, address.name
        sent = asked(client, "post", path, data=data).status_code
        assert sent == (403 if rule.sends is not None else 405), (address.name, sent)


@pytest.mark.parametrize("role", list(Role))
def test_a_role_is_shown_and_may_send_what_the_table_says_in_its_own_team(
    ids: dict[str, str], role: Role
) -> None:
    client = browser(person(role, team=factories.TEAM))
    for address in ADDRESSES:
        rule, path, data = requests_of(address, ids)
        opened = asked(client, "get", path)
        if rule.leads_above:
            assert opened.status_code == 302, (address.name, opened.status_code)
        elif rule.roleless:
            # What is asked for may not be there: a person without codes has none to turn off.
            assert opened.status_code in ({200, 302, 404} if rule.sees else {405}), address.name
        elif role in (rule.sees or NOBODY):
            assert passed(opened), (address.name, opened.status_code)
        else:
            refused = 404 if rule.private else 403
            assert opened.status_code == refused, (address.name, opened.status_code)
        sent = asked(client, "post", path, data=data)
        if rule.sends is None:
            assert sent.status_code == 405, (address.name, sent.status_code)
        elif role in rule.sends:
            missing = rule.roleless and sent.status_code == 404
            assert passed(sent) or missing, f"{address.name}: {sent.status_code} {said(sent)}"
        else:
            refused = 404 if rule.private else rule.refused
            assert sent.status_code == refused, f"{address.name}: {sent.status_code} {said(sent)}"
        if role is Role.OPERATOR:
            assert asked(client, "delete", path).status_code == 405, address.name


@pytest.mark.parametrize("role", list(Role))
def test_no_role_sees_or_changes_anything_of_another_team(ids: dict[str, str], role: Role) -> None:
    client = browser(person(role, team=OTHER_TEAM))
    for address in ADDRESSES:
        rule, path, data = requests_of(address, ids)
        opened, sent = asked(client, "get", path), asked(client, "post", path, data=data)
        if address.of_a_team:
            assert opened.status_code == (302 if rule.leads_above else 404), (
                address.name,
                opened.status_code,
            )
            wanted = (
                {405} if rule.sends is None else {404} if role in rule.sends else {403, 404, rule.refused}
            )
            assert sent.status_code in wanted, f"{address.name}: {sent.status_code} {said(sent)}"
        for answer in (opened, sent):
            text = b"".join(answer) if answer.streaming else answer.content  # type: ignore[call-overload]
            for one in ("case_id", "run_id", "operation_id", "job_id", "slug"):
                if one == "slug" and address.name in ADMINISTERS_ACCOUNTS:
                    continue
                # What somebody sent may be said back to them.
                if ids[one] not in path and ids[one] not in data.values():
                    assert ids[one] not in text.decode(), (address.name, one)


@pytest.mark.parametrize("role", [Role.OPERATOR, Role.ADMINISTRATOR])
def test_another_teams_account_is_answered_like_one_that_was_made_up(ids: dict[str, str], role: Role) -> None:
    client, compared = browser(person(role, team=OTHER_TEAM)), 0
    for address in ADDRESSES:
        if "slug" not in address.names:
            continue
        theirs, made_up = (
            requests_of(address, {**ids, "slug": slug}) for slug in (ids["slug"], "made-up-slug-of-it")
        )
        for method in ("get", "post"):
            answers = []
            for _, path, data in (theirs, made_up):
                more = {"data": data} if method == "post" else {}
                answer = asked(client, method, path, **more)
                answers.append((answer.status_code, said(answer)))
            assert answers[0][0] == answers[1][0], (address.name, method, answers)
            words = [text.replace(ids["slug"], "…").replace("made-up-slug-of-it", "…") for _, text in answers]
            assert words[0] == words[1], (address.name, method)
            compared += answers[0][0] == 404
    assert compared >= (3 if role is Role.ADMINISTRATOR else 2)


def test_a_turn_that_names_another_teams_account_is_refused_like_one_with_a_made_up_name(
    ids: dict[str, str],
) -> None:
    run = factories.make_run(team=OTHER_TEAM)
    token = factories.claim(run)
    secret = secret_of(TOKENS[0], team=OTHER_TEAM)
    said_of = []
    for account in (ids["slug"], "made-up-slug-of-it"):
        calls = [{"call_id": "c1", "tool": "pay", "effect": True, "provider": account, "args": {}}]
        body = {"token": token, "index": 1, "decision": {}, "parallel": False, "calls": calls}
        answer = Client(headers={"authorization": f"Bearer {secret}"}).post(
            f"/api/v1/runs/{run.pk}/turns", data=json.dumps(body), content_type="application/json"
        )
        problem = json.loads(answer.content)
        assert (answer.status_code, problem["word"]) == (404, "account_not_found"), problem
        assert problem["where"] == "/calls/0/provider"
        said_of.append(answer.content.decode().replace(account, "…"))
    assert said_of[0] == said_of[1]


def said(answer: HttpResponse) -> str:
    """The middle of a page, for a failure to show."""
    main = answer.content.decode().partition("<main")[2].partition("</main>")[0]
    return re.sub(r"<[^>]+>|\s+", " ", main)[:800]


# --- The API ------------------------------------------------------------------------------------------------


class Token(NamedTuple):
    """A caller: the scopes of its token, and the role of the person behind one that decides."""

    name: str
    scopes: tuple[Scope, ...]
    role: Role | None = None


TOKENS = (
    Token("journal", (Scope.JOURNAL,)),
    Token("read", (Scope.READ,)),
    *(Token(f"decide for {role}", (Scope.DECIDE,), role) for role in Role),
    Token("decide for nobody", (Scope.DECIDE,)),
)


def secret_of(token: Token, *, team: str) -> str:
    roles = () if token.role is None else (token.role,)
    return create_token(
        team=factories.make_team(team),
        name=token.name,
        scopes=token.scopes,
        expires_at=timezone.now() + timedelta(hours=1),
        person=person(*roles, team=team) if Scope.DECIDE in token.scopes else None,
    ).secret


def call(one: ApiCall, secret: str, ids: dict[str, str]) -> tuple[int, str]:
    """Make the call with the least body that its schema allows; returns status and word."""
    path = filled(re.sub(r"\{\w+:(\w+)\}", r"{\1}", one.path), ids, f"The call {one.name}")
    headers = {"authorization": f"Bearer {secret}"} if secret else {}
    more: dict[str, Any] = {}
    if one.method == "post":
        body = least(one.schema) if one.schema else {}
        more = {
            "data": json.dumps({**body, **CALLS[one.name].body}),
            "content_type": "application/json",
        }
        headers["idempotency-key"] = "matrix-1"
    # What earlier calls changed stays: "go" is given in no transaction but its own.
    answer = getattr(Client(headers=headers), one.method)(path, **more)
    assert answer.status_code < 500, f"{one.method.upper()} {path} failed: {answer.content[:500]!r}"
    found = json.loads(answer.content)
    return answer.status_code, f"{found.get('word', '')} {found.get('detail', '')}"


def least(schema: dict[str, Any]) -> Any:
    """The smallest value that a JSON schema of ours takes."""
    if "$ref" in schema:
        return least(DOCUMENT["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]])
    if "anyOf" in schema:
        return least(schema["anyOf"][0])
    if "enum" in schema or "const" in schema:
        return schema["const"] if "const" in schema else schema["enum"][0]
    match schema.get("type"):
        case "object":
            fields = schema.get("properties", {})
            return {name: least(fields[name]) for name in schema.get("required", ())}
        case "array":
            return [least(schema["items"])] * schema.get("minItems", 0)
        case "integer":
            return schema.get("minimum", 1)
        case "boolean":
            return False
        case "string":
            return "x" * max(schema.get("minLength", 1), 1)
    return {}


@pytest.mark.parametrize("secret", ["", "rec_unknown"])
def test_a_call_without_a_token_is_refused(ids: dict[str, str], secret: str) -> None:
    for one in API_CALLS:
        assert call(one, secret, ids)[0] == 401, one.name


@pytest.mark.parametrize("token", TOKENS, ids=lambda token: token.name)
def test_a_token_may_call_what_the_table_says_and_nothing_of_another_team(
    ids: dict[str, str], token: Token
) -> None:
    remembered.forget()
    own, others = secret_of(token, team=factories.TEAM), secret_of(token, team=OTHER_TEAM)
    for one in API_CALLS:
        rule = CALLS[one.name]
        assert one.scopes == {str(scope) for scope in rule.scopes}, f"{one.name} takes other scopes"
        may = not rule.scopes.isdisjoint(token.scopes)
        if Scope.DECIDE in token.scopes:
            may = may and token.role in rule.by and token.role in EVERYBODY
        status, why = call(one, own, ids)
        if may and (not rule.own or token.role is Role.OPERATOR):
            assert status not in REFUSALS, (one.name, status, why)
        else:
            assert status == 403, (one.name, status, why)
        status, why = call(one, others, ids)
        if not may:
            assert status == 403, (one.name, status, why)
        elif one.of_a_team:
            assert status == 404, (
                f"{one.name} answers {status} to another team: {why} Give a body that it takes in CALLS."
            )


def test_a_token_whose_person_is_closed_or_left_the_team_calls_nothing(ids: dict[str, str]) -> None:
    token = Token("decide for operator", (Scope.DECIDE,), Role.OPERATOR)
    secret = secret_of(token, team=factories.TEAM)
    behind = Person.objects.get(username=f"operator-of-{factories.TEAM}")
    [reading] = [one for one in API_CALLS if one.name == "list_cases"]
    assert call(reading, secret, ids)[0] == 200
    Person.objects.filter(pk=behind.pk).update(is_active=False)
    for one in API_CALLS:
        assert call(one, secret, ids)[0] == 401, one.name
    Person.objects.filter(pk=behind.pk).update(is_active=True)
    assert call(reading, secret, ids)[0] == 200
    behind.teams.clear()
    for one in API_CALLS:
        assert call(one, secret, ids)[0] == 401, one.name
