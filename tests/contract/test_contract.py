"""One suite for every adapter: what it says of an outcome, held against what its peer did.

Which peers there are, and what each is known to do otherwise than its provider, is in `subjects/`. The rows
of the matrix are these tests.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.contract.bench import Bench
from tests.contract.matrix import Case, Subject, contract_row, row_of
from tests.contract.peers.servers import Peers
from tests.contract.subjects import SUBJECTS
from tests.contract.suite import DEFAULTS

CELLS = [
    pytest.param(
        subject,
        case,
        id=f"{subject.adapter} at {subject.peer}: {case}",
        marks=contract_row(row_of(subject, case)),
    )
    for subject in SUBJECTS
    for case in Case
    if case in subject.cases
]


@pytest.fixture
def bench(subject: Subject, peers: Peers) -> Iterator[Bench]:
    made = subject.bench(peers)
    yield made
    made.close()


@pytest.mark.parametrize(("subject", "case"), CELLS)
def test_the_adapter_says_what_its_peer_did(subject: Subject, case: Case, bench: Bench) -> None:
    run = subject.cases[case].run or DEFAULTS[case]
    run(bench)
