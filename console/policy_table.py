"""`docs/policy.md`: what the policy answers, for each kind of contract, each finding and each time.

Nothing here decides anything: every cell is the policy's own answer to facts that are written out below.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from console.pages.present.contract_words import duration
from console.pages.present.panel import TITLES
from console.pages.present.trial import concluded_in_words
from console.provider_docs import cell, row
from reconciliation.conclusions import LOOKUPS_BEFORE_ASKING
from reconciliation.contracts import (
    AccountPin,
    AskedAgain,
    Contract,
    KeyAfter,
    KeyFormat,
    KeyScope,
    LateSend,
    LookupKind,
    MakeAbsent,
    OnInFlight,
    OnOtherPayload,
    Replays,
    WindowKind,
)
from reconciliation.facts import AttemptFacts, Facts, Holder, LookupFacts, SeenReceipt
from reconciliation.permissions import ActionStatus
from reconciliation.policy import POLICY, assess
from reconciliation.providers.base import FindingKind
from reconciliation.states import Action, CaseKind, CaseState, Permission
from runs.states import AttemptOutcome, OperationState

MADE: Final = "<!-- Made by `manage.py policy_table` from the policy; changes here are lost. -->"
SENT_AT: Final = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
_PIN: Final = AccountPin(adapter="a/1", endpoint="https://example.com", region="", credential_fingerprint="")

_PERMISSIONS: Final[dict[Permission, str]] = {
    Permission.ALLOWED: "one person",
    Permission.SECOND_PERSON: "two people",
    Permission.LOCKED: "locked",
}


_ACTIONS: Final = (Action.CONFIRM, Action.RETRY, Action.ABANDON)


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind of contract, with the sentence that says what it promises."""

    title: str
    says: str
    contract: Contract
    # Where the provider can make sure that an effect isn't there.
    absence_way: MakeAbsent | None = None

    @property
    def actions(self) -> tuple[Action, ...]:
        return _ACTIONS if self.absence_way is None else (*_ACTIONS, Action.MAKE_ABSENT)


@dataclass(frozen=True, kw_only=True)
class Shown:
    """What the latest lookup, or a worker's report, shows."""

    title: str
    finding: FindingKind | None = None
    proof: bool = False
    failed: bool = False
    receipts: tuple[SeenReceipt, ...] = ()


def _contract(**fields: object) -> Contract:
    usual: dict[str, object] = {
        "key_field": "Idempotency-Key",
        "key_format": KeyFormat.HEADER_BARE,
        "key_scope": KeyScope.ACCOUNT,
        "dedup_window_ms": 24 * 3_600_000,
        "window_kind": WindowKind.DOCUMENTED,
        "window_margin_ms": 300_000,
        "on_other_payload": OnOtherPayload.REFUSED,
        "on_in_flight": OnInFlight.REFUSED,
        "replays": Replays.FIRST_ANSWER,
        "rejection_replays": False,
        "proves_existence": (),
        "lookup": LookupKind.BY_KEY,
        "visibility_lag_ms": 0,
        "lookup_retention_ms": None,
        "absence_is_proof": False,
        "match_fields": (),
        "success_when": None,
        "rate_limit_per_second": 10.0,
        "in_flight_bound_ms": 30_000,
        "start_within_ms": 10_000,
        "request_within_ms": 20_000,
    }
    return Contract(**{**usual, **fields})  # type: ignore[arg-type]


_KEYLESS: Final[dict[str, object]] = {
    "key_field": None,
    "key_format": KeyFormat.NONE,
    "key_scope": KeyScope.NONE,
    "dedup_window_ms": None,
    "window_kind": WindowKind.NONE,
    "window_margin_ms": 0,
    "replays": Replays.NOTHING,
}
_NO_LOOKUP: Final[dict[str, object]] = {"lookup": LookupKind.NONE, "visibility_lag_ms": None}
KINDS: Final = (
    Kind(
        title="A key and an exact lookup",
        says="The key is recognised for 24 h; a lookup shows an effect at once; “not found” proves nothing.",
        contract=_contract(),
    ),
    Kind(
        title="A key and an exact lookup, and a cancel by key",
        says="The same, and the provider cancels by the key; within an hour of the first send that is proof.",
        contract=_contract(),
        absence_way=MakeAbsent(
            title="Cancel by key",
            request="POST /cancel",
            says="Cancels what was made with the key, and lets nothing be made with it afterwards.",
            late_send=LateSend.REFUSED,
            key_after=KeyAfter.BURNT,
            again=AskedAgain.HARMLESS,
            proves_within_ms=3_600_000,
        ),
    ),
    Kind(
        title="A key, and a lookup that can prove absence",
        says="As the first, and “not found” proves absence once every request is quiet and 3 s have passed.",
        contract=_contract(absence_is_proof=True, visibility_lag_ms=3_000),
    ),
    Kind(
        title="A key for a time that nobody states, and a search",
        says="The key is recognised, nobody says for how long; the search lags and is never relied on.",
        contract=_contract(
            window_kind=WindowKind.UNPUBLISHED,
            dedup_window_ms=None,
            window_margin_ms=0,
            lookup=LookupKind.BY_SEARCH,
            visibility_lag_ms=None,
        ),
    ),
    Kind(
        title="A key and no lookup",
        says="The key is recognised for 24 h; nothing can be asked.",
        contract=_contract(**_NO_LOOKUP),
    ),
    Kind(
        title="No key, and an exact lookup",
        says="A repeat is a second effect; a lookup shows an effect at once, and “not found” proves nothing.",
        contract=_contract(**_KEYLESS),
    ),
    Kind(
        title="Neither key nor lookup",
        says="A repeat is a second effect, and nothing can be asked.",
        contract=_contract(**_KEYLESS, **_NO_LOOKUP),
    ),
)


def _seen(reference: str, *, matches: bool = True) -> SeenReceipt:
    return SeenReceipt(reference=reference, evidence_id="ev_1", matches=matches)


NOTHING: Final = Shown(title="nothing yet")
REPORTED: Final = (
    NOTHING,
    Shown(title="a worker’s late report with a receipt that matches", receipts=(_seen("rcpt-1"),)),
)
FOUND: Final = (
    Shown(title="found, and it matches", finding=FindingKind.FOUND, receipts=(_seen("rcpt-1"),)),
    Shown(title="it exists and isn’t final", finding=FindingKind.PENDING),
    Shown(title="it ended without effect", finding=FindingKind.REFUSED),
    Shown(title="other content under our key", finding=FindingKind.MISMATCH),
    Shown(
        title="more than one effect of ours",
        finding=FindingKind.SEVERAL,
        receipts=(_seen("rcpt-1"), _seen("rcpt-2")),
    ),
    Shown(title="something alike, nothing of ours in it", finding=FindingKind.CANDIDATE),
    Shown(title="not found", finding=FindingKind.NOT_FOUND),
    Shown(title="the lookups keep failing", failed=True),
)


def times_of(contract: Contract) -> Iterator[tuple[str, datetime]]:
    """The times at which a contract's answers differ."""
    quiet_at = contract.quiet_at(SENT_AT)
    yield "while it may still arrive", SENT_AT + timedelta(seconds=5)
    ends_at = contract.key_ends_at(SENT_AT)
    if ends_at is None:
        yield "later", quiet_at + timedelta(minutes=5)
        return
    yield "quiet, inside the key’s window", quiet_at + timedelta(minutes=5)
    yield "after the key’s window", ends_at + timedelta(hours=1)


def facts_of(kind: Kind, shown: Shown, now: datetime) -> Facts:
    """One operation, sent once at `SENT_AT` by a worker that is gone, and looked up often enough."""
    contract = kind.contract
    lookup = None
    if shown.finding is not None:
        provable_at = contract.absence_provable_at(contract.quiet_at(SENT_AT))
        proof = shown.finding is FindingKind.NOT_FOUND and provable_at is not None and now >= provable_at
        lookup = LookupFacts(
            finding=shown.finding, proof=proof, asked_at=now, evidence_id="ev_1", summary="As shown."
        )
    return Facts(
        operation_state=OperationState.SENT_UNKNOWN,
        case_kind=CaseKind.UNKNOWN,
        case_state=CaseState.LOOKING_UP,
        opened_at=SENT_AT,
        turn_index=1,
        call_id="c1",
        attempts=(
            AttemptFacts(
                number=1,
                outcome=AttemptOutcome.UNKNOWN,
                minted_at=SENT_AT,
                quiet_after_at=contract.quiet_at(SENT_AT),
                holder=Holder.OUTDATED,
                worker="worker-1",
            ),
        ),
        first_sent_at=SENT_AT,
        last_quiet_at=contract.quiet_at(SENT_AT),
        pinned=_PIN,
        current=_PIN,
        console_can_send=True,
        receipts=shown.receipts,
        absence_way=kind.absence_way,
        lookup=lookup,
        lookups_count=LOOKUPS_BEFORE_ASKING if lookup is not None else 0,
        lookups_failed_count=8 if shown.failed else 0,
    )


def page() -> str:
    """The whole page."""
    reasons = _Reasons()
    tables = [line for kind in KINDS for line in _section(kind, reasons)]
    return "\n".join([*_introduction(), *tables, *reasons.listed(), ""])


class _Reasons:
    """Each sentence once, by the number that the cells name."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, sentence: str) -> int:
        return self._numbers.setdefault(sentence, len(self._numbers) + 1)

    def listed(self) -> list[str]:
        return ["## Reasons", "", *(f"{number}. {cell(text)}" for text, number in self._numbers.items())]


def _introduction() -> list[str]:
    usual = KINDS[0].contract
    quiet_at = usual.quiet_at(SENT_AT)
    situation = (
        f"What policy `{POLICY}` answers. An operation was sent once, on 1 January at 12:00:00Z, by a worker "
        "that is gone, and nothing else is known than what the row says. It may start within "
        f"{duration(usual.start_within_ms)}, take {duration(usual.request_within_ms)} and have its effect "
        f"{duration(usual.in_flight_bound_ms)} later, so it is quiet from {quiet_at:%H:%M:%S}Z. Numbers lead "
        "to the reasons at the end."
    )
    reading = (
        "“By itself” is what is done without a person. One person may act, or it takes two, or it is locked "
        "for everybody, until what is said. The same function answers pages, API, decisions and automatic "
        "settling."
    )
    alone = (
        "Where a flow has opted in (`manage.py flow_policy`), the policy repeats once by itself instead of "
        "asking a person, if nothing was found or nothing can be asked, one person may repeat, and the "
        "contract says that the same key makes no second effect, afterwards and meanwhile. The tables are "
        "for a flow that hasn’t."
    )
    return ["# The policy, as a table", "", MADE, "", situation, "", reading, "", alone, ""]


def _section(kind: Kind, reasons: _Reasons) -> Iterator[str]:
    yield f"## {kind.title}"
    yield ""
    yield cell(kind.says)
    yield ""
    yield row(("what is known", "when", "by itself", *(TITLES[one].lower() for one in kind.actions)))
    yield row(["---"] * (3 + len(kind.actions)))
    for shown in (*REPORTED, *(FOUND if kind.contract.has_lookup else ())):
        answers = [(when, _answers(kind, shown, now, reasons)) for when, now in times_of(kind.contract)]
        if all(cells == answers[0][1] for _, cells in answers):
            answers = [("at any time", answers[0][1])]
        for when, cells in answers:
            yield row((cell(shown.title), cell(when), *cells))
    yield ""


def _answers(kind: Kind, shown: Shown, now: datetime, reasons: _Reasons) -> list[str]:
    judged = assess(facts_of(kind, shown, now), kind.contract, now)
    concluded, why = concluded_in_words(judged.conclusion, now)
    cells = [f"{cell(concluded)} [{reasons.number(why)}]"]
    for action in kind.actions:
        status = judged.action(action)
        cells.append(_permission(status, reasons) if status is not None else "–")
    return cells


def _permission(status: ActionStatus, reasons: _Reasons) -> str:
    said = _PERMISSIONS[status.permission]
    if status.permission is Permission.LOCKED and status.unlocks_at is not None:
        said += f" until {_clock(status.unlocks_at)}"
    if status.permission is not Permission.LOCKED and status.closes_at is not None:
        said += f", until {_clock(status.closes_at)}"
    return f"{said} [{reasons.number(status.sentence)}]"


def _clock(at: datetime) -> str:
    return f"{at.day} Jan {at:%H:%M:%S}Z"
