"""Requests out of reach, on real sockets: nothing leaves, and that is a positive sign of not sent."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from reconciliation.providers.base import NotSentSeen, ReceiptSeen, SendOutcome, Unavailable
from reconciliation.providers.http_declared import HttpDeclared
from reconciliation.providers.reach import Reach, parse_listing
from reconciliation.providers.tables import DeclarationInvalid
from reconciliation.providers.transport import Transport
from tests.contract.declaring import DECLARATION, declare, operation, question
from tests.contract.fault_server import Conversation, FaultServer, http_answer
from tests.contract.test_transport_taxonomy import answering, certificate

BASE = 'base_url = { env = "SHOP_URL" }\n'


@pytest.fixture(autouse=True)
def _nothing_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a deployment that lists no host but its accounts' own."""
    monkeypatch.setattr(settings, "RECOURSE_ALLOWED_PROVIDER_HOSTS", [])


class Names:
    """A resolver whose answers a test decides, and that counts the questions."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: list[str]) -> None:
        self.asked: list[str] = []
        self._answers = list(answers)
        self._real = socket.getaddrinfo
        monkeypatch.setattr(socket, "getaddrinfo", self._answer)

    def _answer(self, host: str, port: int, *rest: Any, **more: Any) -> Any:
        if host.replace(".", "").isdigit() or ":" in host:
            return self._real(host, port, *rest, **more)
        self.asked.append(host)
        addresses = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        return [found for address in addresses for found in self._real(address, port, *rest, **more)]


def listing(ranges: str) -> tuple[str, str]:
    return BASE, f"{BASE}reach = [{ranges}]\n"


def send(folder: Path, url: str, *changes: tuple[str, str]) -> SendOutcome:
    adapter = HttpDeclared(declare(folder, url, *changes))
    try:
        return adapter.send(operation())
    finally:
        adapter.close()


def refused(outcome: SendOutcome, because: str) -> None:
    assert isinstance(outcome, NotSentSeen)
    assert outcome.exchange.error_class == "OutOfReach"
    assert because in outcome.exchange.error
    assert not outcome.exchange.headers_started


def test_a_loopback_host_is_reached_only_where_the_file_lists_it_so(tmp_path: Path) -> None:
    with FaultServer(answering(b"{}")) as server:
        refused(send(tmp_path, server.url), "which is loopback, and not listed so")
        refused(send(tmp_path, server.url, listing('"private"')), "not listed so")
        assert server.connections == 0
        send(tmp_path, server.url, listing('"loopback"'))
        assert server.requests == 1


def test_the_environment_can_list_a_host_for_every_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = [parse_listing("127.0.0.1=loopback")]
    monkeypatch.setattr(settings, "RECOURSE_ALLOWED_PROVIDER_HOSTS", listed)
    with FaultServer(answering(b"{}")) as server:
        send(tmp_path, server.url)
        assert server.requests == 1


def test_a_question_out_of_reach_is_unavailable_and_reaches_nobody(tmp_path: Path) -> None:
    with FaultServer(answering(b"{}")) as server:
        adapter = HttpDeclared(declare(tmp_path, server.url))
        finding = adapter.look_up(question())
        adapter.close()
        assert server.connections == 0
    assert isinstance(finding, Unavailable)
    assert "OutOfReach" in finding.summary


@pytest.mark.parametrize(
    "address", ["169.254.169.254", "fe80::1", "fd00:ec2::254", "::ffff:169.254.169.254", "0.1.2.3"]
)
def test_a_name_that_leads_to_metadata_is_never_reached(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = Names(monkeypatch, [address])
    outcome = send(tmp_path, "http://shop.test", listing('"private", "loopback"'))
    refused(outcome, "never reached")
    assert names.asked == ["shop.test"]


def test_an_address_that_is_written_into_the_url_is_judged_like_any_other(tmp_path: Path) -> None:
    everything = listing('"private", "loopback"')
    refused(send(tmp_path, "http://169.254.169.254", everything), "never reached")
    refused(send(tmp_path, "http://[fd00:ec2::254]", everything), "never reached")
    refused(send(tmp_path, "http://[::ffff:a9fe:a9fe]", everything), "never reached")
    refused(send(tmp_path, "http://2130706433", everything), "a number in a form")
    refused(send(tmp_path, "http://0x7f.1", everything), "a number in a form")


def test_the_connection_goes_to_the_address_that_was_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heads: list[bytes] = []

    def answers(conversation: Conversation) -> None:
        heads.append(conversation.read_request())
        conversation.send(http_answer())

    # A name that leads elsewhere when it is asked a second time: it isn't.
    names = Names(monkeypatch, ["127.0.0.1"], ["169.254.169.254"])
    with FaultServer(answers) as server:
        host = f"shop.test:{server.port}"
        outcome = send(tmp_path, f"http://{host}", listing('"loopback"'))
        assert server.connections == 1
    assert isinstance(outcome, ReceiptSeen)
    assert names.asked == ["shop.test"]
    assert f"host: {host}".encode() in heads[0].lower()


def test_a_name_is_judged_anew_for_every_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Names(monkeypatch, ["127.0.0.1"], ["169.254.169.254"])
    with FaultServer(answering(b"{}")) as server:
        account = declare(tmp_path, f"http://shop.test:{server.port}", listing('"loopback"'))
        adapter = HttpDeclared(account)
        first, second = adapter.send(operation()), adapter.send(operation())
        adapter.close()
        assert server.connections == 1
    assert first.exchange.headers_started
    refused(second, "never reached")


def test_tls_names_the_host_and_not_the_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = certificate(tmp_path)
    asked_for: list[str | None] = []
    pair.server.sni_callback = lambda _socket, name, _context: asked_for.append(name)
    # The certificate is for the address, so that only the check of its name fails if that is what is asked.
    pair.client.check_hostname = False
    Names(monkeypatch, ["127.0.0.1"])
    with FaultServer(answering(b"{}"), tls=pair.server) as server:
        transport = Transport(
            keep_alive=False, reach=Reach((parse_listing("shop.test=loopback"),)), ssl_context=pair.client
        )
        adapter = HttpDeclared(declare(tmp_path, f"https://shop.test:{server.port}"), sending=transport)
        adapter.send(operation())
        adapter.close()
    assert asked_for == ["shop.test"]


def test_a_certificate_for_the_address_does_not_stand_in_for_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = certificate(tmp_path)
    Names(monkeypatch, ["127.0.0.1"])
    with FaultServer(answering(b"{}"), tls=pair.server) as server:
        transport = Transport(
            keep_alive=False, reach=Reach((parse_listing("shop.test=loopback"),)), ssl_context=pair.client
        )
        adapter = HttpDeclared(declare(tmp_path, f"https://shop.test:{server.port}"), sending=transport)
        outcome = adapter.send(operation())
        adapter.close()
        assert server.requests == 0
    assert isinstance(outcome, NotSentSeen)
    assert pair.client.verify_mode is ssl.CERT_REQUIRED


def test_without_an_account_only_the_environments_hosts_are_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = Names(monkeypatch, ["8.8.8.8"])
    with Transport(keep_alive=False) as transport:
        adapter = HttpDeclared(declare(tmp_path, "http://shop.test"), sending=transport)
        outcome = adapter.send(operation())
        adapter.close()
    refused(outcome, "not a host that requests may go to")
    assert names.asked == [], "an unlisted name isn't even asked for"


def test_a_reach_that_means_nothing_is_a_fault_of_the_file(tmp_path: Path) -> None:
    for wrong in ('"everything"', '"never"', '"public"'):
        with pytest.raises(DeclarationInvalid, match="a list of private and loopback"):
            declare(tmp_path, "http://shop.test", listing(wrong), text=DECLARATION)
