"""The API as its tests call it: a caller per kind of token, a run as far as a test needs it, row counts."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.apps import apps
from django.conf import settings
from django.db import transaction
from django.test import Client
from django.utils import timezone

from console.api.problems import WORDS
from console.models import ApiToken, Person, Role, Scope, create_token
from runs.leases import add_pause_reason
from runs.locking import lock_run
from runs.models import Operation, Run
from runs.states import PauseReason
from tests import factories

ROOT = "/api/v1"
SUPPLIER = "sandbox-supplier"
PAYLOAD = {"sku": "FC-20", "quantity": 40}
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Reply:
    """An answer, already held to what every answer must be."""

    status: int
    body: dict[str, Any]
    headers: dict[str, str]

    @property
    def word(self) -> str:
        return str(self.body.get("word", ""))

    def __str__(self) -> str:
        return f"{self.status} {json.dumps(self.body)[:1500]}"


def read_reply(status: int, content: bytes, headers: dict[str, str]) -> Reply:
    """Hold an answer to the shapes that all answers share."""
    found = {name.lower(): value for name, value in headers.items()}
    assert found["cache-control"] == "no-store", found
    body = json.loads(content)
    assert isinstance(body, dict)
    reply = Reply(status, body, found)
    if status < 400:
        assert found["content-type"] == "application/json", reply
        return reply
    assert found["content-type"] == "application/problem+json", reply
    assert body["type"] == f"/problems/{body['word']}", reply
    assert body["status"] == status == WORDS[body["word"]].status, reply
    assert body["title"] == WORDS[body["word"]].title
    assert body["detail"].strip()
    return reply


@dataclass
class Caller:
    """Calls the API in this process with one token; "" is nobody."""

    secret: str
    client: Client = field(default_factory=lambda: Client(raise_request_exception=False))

    def ask(
        self, method: str, path: str, content: bytes = b"", *, content_type: str = "", **headers: str
    ) -> Reply:
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.secret and "authorization" not in given:
            given["authorization"] = f"Bearer {self.secret}"
        # Django's client leaves these out for an empty body; a real one sends them.
        head = {"CONTENT_TYPE": content_type, "CONTENT_LENGTH": str(len(content))}
        answer = self.client.generic(method, ROOT + path, content, headers=given, **head)
        return read_reply(answer.status_code, answer.content, dict(answer.headers))

    def post_bytes(self, path: str, content: bytes, **headers: str) -> Reply:
        return self.ask("POST", path, content, content_type="application/json", **headers)

    def post(self, path: str, body: Any, **headers: str) -> Reply:
        return self.post_bytes(path, json.dumps(body).encode(), **headers)

    def get(self, path: str, **headers: str) -> Reply:
        return self.ask("GET", path, **headers)

    def decide(self, path: str, body: Any, *, key: str | None = None) -> Reply:
        return self.post(path, body, idempotency_key=key or f"key-{next(_numbers)}")


def person(username: str, *roles: Role, team: str = factories.TEAM) -> Person:
    made = Person.objects.create(
        username=username, first_name=username.title(), last_name="Test", roles=[str(role) for role in roles]
    )
    made.teams.add(factories.make_team(team))
    return made


def token(*scopes: Scope, team: str = factories.TEAM, owner: Person | None = None, days: float = 1) -> str:
    return create_token(
        team=factories.make_team(team),
        name=f"token {next(_numbers)}",
        scopes=scopes,
        expires_at=timezone.now() + timedelta(days=days),
        person=owner,
    ).secret


@dataclass
class World:
    """Two teams with a token of each kind."""

    worker: Caller
    reader: Caller
    operator: Caller
    maya: Person
    stranger: Caller
    strange_operator: Caller

    @property
    def everybody(self) -> list[Caller]:
        return [self.worker, self.reader, self.operator, self.stranger, self.strange_operator]


def make_world() -> World:
    maya = person("maya", Role.OPERATOR)
    zoe = person("zoe", Role.OPERATOR, team="other")
    return World(
        worker=Caller(token(Scope.JOURNAL, Scope.READ)),
        reader=Caller(token(Scope.READ)),
        operator=Caller(token(Scope.DECIDE, owner=maya)),
        maya=maya,
        stranger=Caller(token(Scope.JOURNAL, Scope.READ, team="other")),
        strange_operator=Caller(token(Scope.DECIDE, team="other", owner=zoe)),
    )


# --- a run, as far as a test needs it -------------------------------------------------------------------


def run_body(**fields: Any) -> dict[str, Any]:
    return {
        "flow": factories.FLOW,
        "flow_version": factories.VERSION,
        "external_id": f"ORD-{next(_numbers)}",
        "input": {"order": 1},
        **fields,
    }


def effect(call_id: str = "c1", **fields: Any) -> dict[str, Any]:
    return {
        "call_id": call_id,
        "tool": "place_order",
        "effect": True,
        "provider": SUPPLIER,
        "args": PAYLOAD,
        **fields,
    }


def read(call_id: str = "r1", **fields: Any) -> dict[str, Any]:
    return {"call_id": call_id, "tool": "read_stock", "effect": False, "args": {"sku": "FC-20"}, **fields}


def claim_body(**fields: Any) -> dict[str, Any]:
    return {
        "claim_id": f"claim-{next(_numbers)}",
        "worker": "worker-1",
        "flow_version": factories.VERSION,
        "lease_seconds": 600,
        **fields,
    }


@dataclass
class Working:
    """A run under a lease, driven through the API."""

    caller: Caller
    run: str
    token: str
    turn: dict[str, Any] = field(default_factory=dict)

    @property
    def operation(self) -> str:
        return self.operations[0]

    @property
    def operations(self) -> list[str]:
        return [call["operation"]["id"] for call in self.turn["calls"] if call["effect"]]

    @property
    def key(self) -> str:
        return str(self.turn["calls"][0]["operation"]["idempotency_key"])

    def send(self, attempt_id: str = "a1", *, operation: str | None = None) -> Reply:
        body = {"token": self.token, "attempt_id": attempt_id}
        return self.caller.post(f"/operations/{operation or self.operation}/send", body)

    def receipt(self, reference: str | None = None, **fields: Any) -> dict[str, Any]:
        """A report of the receipt that the supplier would give for the first operation."""
        reference = reference or f"ord_{self.operation}"
        record = {"id": reference, "status": "succeeded", "idempotency_key": self.key, **PAYLOAD}
        return {
            "token": self.token,
            "attempt_id": "a1",
            "reference": reference,
            "body": {**record, **fields.pop("record", {})},
            **fields,
        }

    def report(self, what: str, body: dict[str, Any], *, operation: str | None = None) -> Reply:
        return self.caller.post(f"/operations/{operation or self.operation}/{what}", body)

    def seen(self, attempt_id: str = "a1", **fields: Any) -> dict[str, Any]:
        return {"token": self.token, "attempt_id": attempt_id, **fields}


def started(caller: Caller, **fields: Any) -> str:
    reply = caller.post("/runs", run_body(**fields))
    assert reply.status in (200, 201), reply
    return str(reply.body["run"]["id"])


def working(caller: Caller, *calls: dict[str, Any], parallel: bool = False, **fields: Any) -> Working:
    """A run claimed, with its first turn saved; by default one keyed order."""
    run = started(caller, **fields)
    claimed = caller.post(f"/runs/{run}/claim", claim_body())
    assert claimed.status == 200, claimed
    made = Working(caller, run, claimed.body["token"])
    turn = caller.post(
        f"/runs/{run}/turns",
        {
            "token": made.token,
            "index": 1,
            "decision": {"say": "order it"},
            "parallel": parallel,
            "calls": list(calls) or [effect()],
        },
    )
    assert turn.status in (200, 201), turn
    made.turn = turn.body["turn"]
    return made


def sent(caller: Caller, **fields: Any) -> Working:
    """A run whose first operation is sent and unreported."""
    made = working(caller, **fields)
    go = made.send()
    assert go.status == 200, go
    return made


def in_doubt(caller: Caller, **fields: Any) -> tuple[Working, str]:
    """A run whose operation has an unknown outcome, and its open case, with the quiet time over."""
    made = sent(caller, **fields)
    reply = made.report("unknown", made.seen(error="ReadTimeout"))
    assert reply.status == 200, reply
    factories.quieten(Operation.objects.get(pk=made.operation))
    return made, str(reply.body["case"])


def in_doubt_where_it_can_be_undone(caller: Caller) -> str:
    """The open case of an operation at an account that makes an effect absent, its quiet time over."""
    made = working(caller, effect(provider="sandbox-payments"))
    made.send()
    case = str(made.report("unknown", made.seen(error="ReadTimeout")).body["case"])
    factories.quieten(Operation.objects.get(pk=made.operation))
    return case


def decision(caller: Caller, case: str, **fields: Any) -> dict[str, Any]:
    """A decision's body that names what the case shows now."""
    shown = caller.get(f"/cases/{case}").body["case"]
    return {
        "seen_version": shown["version"],
        "evidence_digest": shown["evidence_digest"],
        "reason_code": "not_at_provider",
        "reason": "I asked the supplier by telephone.",
        **fields,
    }


def expire_lease(run: str) -> None:
    factories.end_lease_in(Run.objects.get(pk=run), -1)


def pause(run: str, reason: PauseReason) -> None:
    with transaction.atomic():
        add_pause_reason(lock_run(run_id=run, team=None), reason)


# --- what was written -----------------------------------------------------------------------------------


def rows() -> dict[str, int]:
    """How many rows each of our tables holds."""
    models = [
        model
        for label in ("runs", "reconciliation", "console")
        for model in apps.get_app_config(label).get_models()
    ]
    counts: dict[str, int] = {model._meta.db_table: model._default_manager.count() for model in models}
    return counts


def leaves() -> int:
    return rows()[settings.APPEND_ONLY_TABLES[0]]


def revoke(secret: str) -> None:
    ApiToken.objects.with_secret(secret).update(revoked_at=timezone.now())
