"""What an operation intends: the part of it that never changes, which a receipt is held against."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from threading import Lock

from runs.ids import could_be_id
from runs.journal.prepared import fetch_one
from runs.journal.statements import READ_OPERATION
from runs.money import Money
from runs.refusals import NotFound

# Whoever said "go" most often hears the report too, soon after. Two bounds, so that this never holds more
# than 4 MiB: what isn't here is read.
REMEMBERED_MAX = 512
REMEMBERED_PAYLOAD_BYTES_MAX = 8 * 1024


@dataclass(frozen=True, slots=True)
class Intended:
    """The immutable part of an operation; no update may touch these columns (`runs.journal`)."""

    pk: str
    team_id: str
    provider_id: str
    key: str
    payload: bytes
    amount_currency: str
    amount_minor: int | None
    tool: str

    @property
    def amount(self) -> Money | None:
        return None if self.amount_minor is None else Money(self.amount_currency, self.amount_minor)


_remembered: OrderedDict[str, Intended] = OrderedDict()
_lock = Lock()


def remember(intended: Intended) -> None:
    """Keep what was just read for the report that is likely to follow in this process."""
    if len(intended.payload) > REMEMBERED_PAYLOAD_BYTES_MAX:
        return
    with _lock:
        _remembered[intended.pk] = intended
        _remembered.move_to_end(intended.pk)
        while len(_remembered) > REMEMBERED_MAX:
            _remembered.popitem(last=False)


def read_intended(*, operation_id: str, team: str | None) -> Intended:
    """Return what the operation intends; raises `NotFound`, also for another team's."""
    with _lock:
        remembered = _remembered.get(operation_id)
    if remembered is not None and team in (None, remembered.team_id):
        return remembered
    row = None
    if could_be_id(operation_id):
        row = fetch_one(READ_OPERATION, {"operation": operation_id, "team": team})
    if row is None:
        raise NotFound(f"There is no operation {operation_id} that you can see.", operation=operation_id)
    pk, team_id, provider_id, key, payload, currency, minor, tool = row
    return Intended(pk, team_id, provider_id, key, bytes(payload), currency, minor, tool)
