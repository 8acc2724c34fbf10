"""What an adapter says of a send that failed on its way to a real peer, and what the peer had really done."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.contract.bench import Bench
from tests.contract.faults import FAILURES, Failure, fails
from tests.contract.matrix import Subject, contract_row, fault_row
from tests.contract.peers.servers import Peers
from tests.contract.subjects import FAULTED

CELLS = [
    pytest.param(
        subject,
        FAILURES[name],
        id=f"{subject.adapter} at {subject.peer}: {name}",
        marks=contract_row(fault_row(subject, name)),
    )
    for subject in FAULTED
    for name in FAILURES
    if FAILURES[name].can_happen_at(subject)
]


@pytest.fixture
def bench(subject: Subject, peers: Peers) -> Iterator[Bench]:
    made = subject.bench(peers)
    yield made
    made.close()


@pytest.mark.parametrize(("subject", "failure"), CELLS)
def test_a_failed_send_is_called_what_can_be_known_of_it(
    subject: Subject, failure: Failure, bench: Bench
) -> None:
    fails(bench, failure)
