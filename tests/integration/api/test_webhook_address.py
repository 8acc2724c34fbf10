"""POST /providers/<account>/webhook: no token, no session; a signature, a bound, an answer after commit."""

from __future__ import annotations

import http.client
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.db import OperationalError
from django.test import Client

from reconciliation import webhooks
from reconciliation.models import Case
from reconciliation.providers import registry
from reconciliation.webhook_models import WebhookEvent, WebhookRefusals
from tests.cases_world import in_doubt, state_of
from tests.factories import Claimed
from tests.hooked import HOOKED, body_of, event, hooked, signed
from tests.integration.api.world import Reply, read_reply
from tests.processes import Server, Spawn, start_web_server

pytestmark = pytest.mark.django_db(transaction=True)

ADDRESS = f"/api/v1/providers/{HOOKED}/webhook"


@pytest.fixture(autouse=True)
def _account(transactional_db: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with hooked(tmp_path, monkeypatch):
        yield


@pytest.fixture
def doubted() -> tuple[Claimed, Case]:
    return in_doubt(HOOKED)


def post(body: bytes, headers: dict[str, str], *, address: str = ADDRESS, **more: Any) -> Reply:
    # With Django's own checks on: a browser's request without a CSRF token would be refused.
    client = Client(enforce_csrf_checks=True)
    response = client.post(
        address, data=body, content_type=more.pop("content_type", "application/json"), headers=headers, **more
    )
    assert "set-cookie" not in {name.lower() for name in response.headers}
    assert not response.cookies
    return read_reply(response.status_code, response.content, dict(response.headers))


def test_a_signed_notice_needs_no_token_and_is_committed_before_the_answer(
    doubted: tuple[Claimed, Case],
) -> None:
    body = body_of(event(doubted[0].operation))
    reply = post(body, signed(body))
    assert (reply.status, reply.body) == (200, {"received": True, "replayed": False})
    assert state_of(doubted[0]) == "confirmed"
    again = post(body, signed(body))
    assert (again.status, again.body) == (200, {"received": True, "replayed": True})


def test_the_media_type_is_the_providers_own_affair(doubted: tuple[Claimed, Case]) -> None:
    body = body_of(event(doubted[0].operation))
    assert post(body, signed(body), content_type="text/plain").status == 200
    assert state_of(doubted[0]) == "confirmed"


@pytest.mark.parametrize(
    ("headers", "word", "status"),
    [
        ({}, "webhook_forged", 403),
        ({"stripe-signature": "t=1,v1=" + "0" * 64}, "webhook_forged", 403),
        ({"authorization": "Bearer rct_something"}, "webhook_forged", 403),
    ],
)
def test_a_token_is_no_signature(
    headers: dict[str, str], word: str, status: int, doubted: tuple[Claimed, Case]
) -> None:
    reply = post(body_of(event(doubted[0].operation)), headers)
    assert (reply.status, reply.word) == (status, word)
    assert state_of(doubted[0]) == "sent_unknown"
    assert WebhookEvent.objects.count() == 0


def test_a_stale_notice_is_refused(doubted: tuple[Claimed, Case]) -> None:
    body = body_of(event(doubted[0].operation))
    reply = post(body, signed(body, seconds_ago=600))
    assert (reply.status, reply.word) == (403, "webhook_stale")
    assert state_of(doubted[0]) == "sent_unknown"


def test_an_oversized_notice_is_refused_by_its_head_and_counted() -> None:
    body = b"x" * (webhooks.BODY_BYTES_MAX + 1)
    reply = post(body, {})
    assert (reply.status, reply.word, reply.body["bytes_max"]) == (413, "too_large", webhooks.BODY_BYTES_MAX)
    assert WebhookRefusals.objects.get().reason == "oversized"


@pytest.mark.parametrize("account", ["nobody", "sandbox-payments", "a%00b"])
def test_an_account_that_takes_no_notices_is_not_found(account: str) -> None:
    reply = post(b"{}", {}, address=f"/api/v1/providers/{account}/webhook")
    assert (reply.status, reply.word) == (404, "not_found")
    assert WebhookRefusals.objects.count() == 0


def test_another_method_is_told_which_one_it_takes() -> None:
    response = Client().get(ADDRESS)
    reply = read_reply(response.status_code, response.content, dict(response.headers))
    assert (reply.status, reply.headers["allow"]) == (405, "POST")


def test_an_encoded_body_is_refused() -> None:
    assert post(b"\x1f\x8b", {"content-encoding": "gzip"}).status == 415


def test_which_variable_is_missing_is_told_to_nobody_outside(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("HOOK_A")
    registry.reload()
    reply = post(b"{}", {})
    assert (reply.status, reply.word) == (503, "webhook_not_ready")
    assert "HOOK" not in json.dumps(reply.body)
    assert int(reply.headers["retry-after"]) > 0


def test_faults_of_the_provider_files_are_told_to_nobody_outside(tmp_path: Path) -> None:
    (tmp_path / "broken.toml").write_text("slug = 'secret-project'")
    registry.reload()
    reply = post(b"{}", {})
    assert (reply.status, reply.word) == (503, "webhook_not_ready")
    assert "secret-project" not in json.dumps(reply.body)
    assert "broken" not in json.dumps(reply.body)


def test_without_the_database_the_provider_is_told_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def away() -> None:
        raise OperationalError("the connection is gone")

    monkeypatch.setattr(webhooks, "database_now", away)
    reply = post(b"{}", {})
    assert (reply.status, reply.word) == (503, "unavailable")


def test_a_defect_of_ours_shows_nothing_of_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**_: Any) -> None:
        raise RuntimeError("with a secret in its words")

    monkeypatch.setattr(webhooks, "receive", fail)
    reply = post(b"{}", {})
    assert (reply.status, reply.word) == (500, "internal_error")
    assert "secret" not in json.dumps(reply.body)


def test_a_service_that_asks_who_listens_gets_its_word_back_only_if_it_signed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with hooked(tmp_path, monkeypatch, scheme="slack"):
        body = body_of({"type": "url_verification", "challenge": "3eZbrw1aB"})
        assert post(body, signed(body)).body["challenge"] == "3eZbrw1aB"
        forged = post(body, {**signed(body), "x-slack-signature": "v0=" + "0" * 64})
        assert (forged.status, forged.word) == (403, "webhook_forged")
        assert "challenge" not in forged.body


@pytest.mark.parametrize("scheme", ["github", "slack", "svix", "standard", "zendesk"])
def test_every_scheme_goes_the_whole_way(
    scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "whsec_QW5vdGhlciBzZWNyZXQ="
    with hooked(tmp_path, monkeypatch, scheme=scheme, secret=secret):
        claimed, _ = in_doubt(HOOKED)
        told = event(claimed.operation)
        told["event"] = {"type": "refund.created"}
        told["event_id"] = "evt_1"
        body = body_of(told)
        headers = {**signed(body, id_given="msg_1"), "x-github-event": "refund.created"}
        assert post(body, headers).status == 200
        assert state_of(claimed) == "confirmed"
        # The same content under another id: not every scheme signs the id.
        again = {**headers, "x-github-delivery": "msg_2"}
        assert post(body, again).body["replayed"] is True


def test_over_a_real_socket_chunks_are_read_and_bounded(
    doubted: tuple[Claimed, Case], spawn: Spawn, app_env: dict[str, str], tmp_path: Path
) -> None:
    server: Server = start_web_server(
        spawn,
        env={
            **app_env,
            "RECOURSE_PROVIDERS_DIR": str(tmp_path),
            "SANDBOX_URL": os.environ["SANDBOX_URL"],
            "HOOK_A": os.environ["HOOK_A"],
        },
    )
    address = urlsplit(server.url)
    body = body_of(event(doubted[0].operation))

    def send(content: bytes, headers: dict[str, str]) -> tuple[int, dict[str, Any]]:
        connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=30)
        try:
            pieces = (content[at : at + 4096] for at in range(0, len(content), 4096))
            connection.request("POST", ADDRESS, body=pieces, headers=headers, encode_chunked=True)
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    chunked = {"Transfer-Encoding": "chunked", "Content-Type": "application/json"}
    status, answer = send(b"x" * (webhooks.BODY_BYTES_MAX + 1), chunked)
    assert (status, answer["word"]) == (413, "too_large")
    status, answer = send(body, {**chunked, **signed(body)})
    assert (status, answer) == (200, {"received": True, "replayed": False})
    assert state_of(doubted[0]) == "confirmed"
