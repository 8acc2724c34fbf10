"""The peers themselves: on the loopback address only, gone with the tests, and missing out loud."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.peers import servers
from tests.contract.peers.servers import Peers, require_node

LISTENING = "0A"
LOOPBACK = "0100007F"


def listening_addresses(pid: int) -> list[str]:
    """The addresses that a process listens on, in the kernel's hexadecimal (proc(5), net/tcp)."""
    sockets = set()
    for one in Path(f"/proc/{pid}/fd").iterdir():
        target = str(one.readlink())
        if target.startswith("socket:["):
            sockets.add(target[len("socket:[") : -1])
    rows = [
        line.split()
        for family in ("tcp", "tcp6")
        for line in Path(f"/proc/{pid}/net/{family}").read_text().splitlines()[1:]
    ]
    return [row[1].partition(":")[0] for row in rows if row[3] == LISTENING and row[9] in sockets]


def test_the_peers_listen_on_the_loopback_address_alone(peers: Peers) -> None:
    peers.stripe_stateful_mock()
    peers.emulate()
    peers.moto()
    for name, peer in peers.running().items():
        found = listening_addresses(peer.process.pid)
        assert found, name
        assert set(found) == {LOOPBACK}, name


def test_each_peer_is_started_once(peers: Peers) -> None:
    assert peers.emulate() is peers.emulate()
    assert peers.stripe_stateful_mock() == peers.stripe_stateful_mock()


def test_without_node_the_tests_skip_and_say_what_was_not_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="NOT TESTED against independent peers: Node"):
        require_node()


def test_without_node_the_tests_fail_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="Node isn't installed"):
        require_node()


def test_peers_that_are_not_installed_are_missing_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(servers, "MODULES", tmp_path)
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="make peers"):
        require_node()
