"""The Python client, the API and a person, through what pauses a run: found, given up, repeated.

Web server, sandbox provider, Celery worker and beat are real processes; the person decides over the API.
One effect from start to end, and every refusal, are in test_client_journal.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from console.models import Role, Scope
from console.sandbox.control import SandboxControl
from reconciliation.accounts import sync_accounts
from reconciliation.models import Case
from reconciliation.providers import registry
from recourse_client import (
    Client,
    Confirmed,
    Decided,
    Effect,
    GivenUp,
    Go,
    HttpSender,
    OutcomeUnknown,
    Receipt,
    RunPaused,
)
from runs.models import Attempt
from tests.integration.api.world import person, token
from tests.processes import Process, Server, until

# Between two lookups of a case that nothing is found for lies a backoff of up to a minute by then.
WAIT_SECONDS = 150


class Person:
    """Somebody who reads a case over the API and decides about what they read."""

    def __init__(self, url: str, secret: str) -> None:
        self.http = httpx.Client(
            base_url=f"{url}/api/v1", headers={"Authorization": f"Bearer {secret}"}, timeout=30
        )

    def case(self, case: str) -> dict[str, Any]:
        shown: dict[str, Any] = self.http.get(f"/cases/{case}").json()["case"]
        return shown

    def wait_until(self, case: str, action: str) -> dict[str, Any]:
        """Wait until a decision is asked for and this one is allowed to one person."""
        for last in until(WAIT_SECONDS):
            shown = self.case(case)
            allowed = {one["action"]: one["permission"] == "allowed" for one in shown["actions"]}
            if shown["state"] == "needs_decision" and allowed.get(action):
                return shown
            assert not last, shown
        raise AssertionError("never reached")

    def decide(self, case: str, what: str, action: str, **fields: Any) -> None:
        shown = self.wait_until(case, action)
        answer = self.http.post(
            f"/cases/{case}/{what}",
            headers={"Idempotency-Key": f"{what}-{case}"},
            json={
                "seen_version": shown["version"],
                "evidence_digest": shown["evidence_digest"],
                "reason_code": "not_at_provider",
                "reason": "The supplier says that it has no such order.",
                **fields,
            },
        )
        assert answer.status_code == 200, answer.text


@pytest.fixture
def client(
    sandbox: Server, web_server: Server, celery_worker: Process, celery_beat: Process, tmp_path: Path
) -> Iterator[Client]:
    registry.reload()
    sync_accounts()
    secret = token(Scope.JOURNAL, Scope.READ)
    with Client(web_server.url, secret, spool=tmp_path / "spool", seconds_per_try=20) as made:
        yield made


@pytest.fixture
def operator(client: Client, web_server: Server) -> Iterator[Person]:
    made = Person(web_server.url, token(Scope.DECIDE, owner=person("maya", Role.OPERATOR)))
    yield made
    made.http.close()


def order(provider: str) -> Effect:
    return Effect("order", tool="place_order", provider=provider, args={"sku": "FC-20", "quantity": 2})


def sender(sandbox: Server, account: str, fault: str = "") -> HttpSender:
    return HttpSender(
        f"{sandbox.url}/acct/{account}/orders",
        receipt=lambda answer: Receipt(answer.json()["id"], answer.content),
        headers={"Sandbox-Fault": fault} if fault else {},
    )


def begin(client: Client, unique: str, provider: str, send: HttpSender) -> str:
    """Send once into the fault; return the case that is open about it."""
    with (
        pytest.raises(OutcomeUnknown) as unknown,
        client.run(flow="agent", flow_version="1", external_id=unique, input={}, lease_seconds=60) as run,
    ):
        run.turn(1, lambda: Decided("order it", [order(provider)])).effect("order", send)
    assert unknown.value.case
    return unknown.value.case


def resume(client: Client, unique: str, send: Any) -> Any:
    """Wait until the run may go on, and come to the end of its order."""
    with client.run(
        flow="agent",
        flow_version="1",
        external_id=unique,
        input={},
        lease_seconds=60,
        wait_seconds=WAIT_SECONDS,
    ) as run:
        turn = run.turn(1, lambda: pytest.fail("the model was asked again"))
        assert turn.resumed
        ended = turn.effect("order", send)
        run.complete({"ended": type(ended).__name__})
        return ended


def never(_: Go) -> Receipt:
    raise AssertionError("a settled effect was sent")


def test_a_lost_reply_is_found_and_the_run_goes_on_without_sending(
    client: Client, sandbox: Server, unique: str
) -> None:
    case = begin(client, unique, "sandbox-supplier", sender(sandbox, "supplier", "drop_reply"))
    ended = resume(client, unique, never)
    assert isinstance(ended, Confirmed)
    assert ended.saved
    assert Case.objects.get(pk=case).resolution == "confirmed"
    with SandboxControl(sandbox.url) as control:
        counts = control.stats("supplier")
    assert (counts.requests, counts.effects) == (1, 1)


def test_a_person_gives_an_effect_up_and_the_run_goes_on_without_it(
    client: Client, operator: Person, sandbox: Server, unique: str
) -> None:
    case = begin(client, unique, "sandbox-courier", sender(sandbox, "courier", "reset"))
    with (
        pytest.raises(RunPaused) as paused,
        client.run(flow="agent", flow_version="1", external_id=unique, input={}),
    ):
        pass
    assert paused.value.reasons == ("outcome",)
    assert paused.value.retry_after_seconds == 30
    assert paused.value.plan is not None
    assert paused.value.plan["turns"][0]["calls"][0]["case"] == case
    operator.decide(case, "abandonment", "abandon", then="continue")
    assert isinstance(resume(client, unique, never), GivenUp)
    with SandboxControl(sandbox.url) as control:
        counts = control.stats("courier")
    assert (counts.requests, counts.effects) == (1, 0)


@pytest.mark.timeout(300)
def test_a_granted_repeat_is_sent_by_the_agent_with_the_same_key_and_bytes(
    client: Client, operator: Person, sandbox: Server, unique: str
) -> None:
    case = begin(client, unique, "sandbox-supplier", sender(sandbox, "supplier", "reset"))
    operator.decide(case, "retry", "retry", executor="agent")
    sent: list[Go] = []
    really = sender(sandbox, "supplier")

    def repeat(go: Go) -> Receipt:
        sent.append(go)
        return really(go)

    ended = resume(client, unique, repeat)
    assert isinstance(ended, Confirmed)
    assert [go.attempt for go in sent] == [2]
    first, second = Attempt.objects.order_by("number")
    assert (first.outcome, second.outcome) == ("unknown", "receipt")
    with SandboxControl(sandbox.url) as control:
        counts = control.stats("supplier", key=sent[0].key)
    assert (counts.requests, counts.effects) == (2, 1)
