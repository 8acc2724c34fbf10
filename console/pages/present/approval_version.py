"""Another flow version, or the same one for longer, in words: what is on record, and the plan under each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final

from console.pages import wording
from console.pages.present.approval_told import NOTHING, Told, released, run_link, short
from console.pages.present.marks import plural
from console.pages.shapes import Code, Consequence, Fact, Phrase, Since, Strong
from console.pages.shapes.approval import Outcome, VersionRow, VersionTable
from console.queries.approvals import EFFECTS_LOOKED_MAX, RUNS_LOOKED_MAX, ApprovalRead, VersionRead
from reconciliation.run_approvals import MOVE
from runs.states import OPERATION_SETTLED, OperationState, PauseReason, RunState


def told_version(read: ApprovalRead) -> Told:
    run, facts, parameters = read.run, read.facts, read.parameters
    move = parameters.get("do") == MOVE
    others = [one for one in run.paused_reasons if one != PauseReason.FLOW_VERSION]
    pinned = str(facts.get("version", ""))
    to = str(facts.get("to", ""))
    wait = timedelta(seconds=int(parameters.get("wait_seconds") or 0))
    content = [Fact(label="Run", value=run_link(run))]
    if move:
        content.append(Fact(label="Moves", value=(f"from version {pinned} to ", Strong(f"version {to}"))))
    else:
        content.append(Fact(label="Keeps", value=(Strong(f"version {pinned}"),)))
        content.append(Fact(label="Waits for its worker", value=(wording.span(wait),)))
    content.append(Fact(label="Operations in flight", value=_in_flight(read)))
    first = (
        Consequence(icon="git-compare", text=("The run is pinned to ", Strong(f"version {to}"), "."))
        if move
        else Consequence(
            icon="hourglass",
            text=(f"Nobody is asked again for {wording.span(wait)}, or until its worker comes.",),
        )
    )
    return Told(
        approve=f"Approve version {to}" if move else f"Approve keeping version {pinned}",
        content=tuple(content),
        if_approved=(first, released(run, others)),
        if_refused=(
            NOTHING,
            Consequence(icon="circle-pause", text=(f"The run stays paused, pinned to version {pinned}.",)),
        ),
        versions=_versions(read, pinned, to),
        plans=(
            _plan(read, f"Under version {pinned}", moved=False),
            _plan(read, _other(read, to), moved=True),
        ),
    )


def _other(read: ApprovalRead, to: str) -> str:
    return f"Under version {to}" if to else "Under another version"


def _in_flight(read: ApprovalRead) -> Phrase:
    sent = [one for one in read.operations if one.state == OperationState.SENT_UNKNOWN]
    if not sent:
        return ("none",)
    parts: list[Any] = [plural(len(sent), "operation"), " with an unknown outcome: "]
    for one in sent[:5]:
        parts += [Code(one.pk), " "]
    return tuple(parts)


def _versions(read: ApprovalRead, pinned: str, to: str) -> VersionTable:
    """What is on record about both versions. Programs aren't: what they do otherwise is nowhere here."""
    by_name = {one.name: one for one in read.versions}
    one, two = by_name.get(pinned), by_name.get(to) if to else None
    rows = tuple(
        VersionRow(
            label=label,
            pinned=tell(one) if one is not None else ("not on record",),
            other=(tell(two) if two is not None else ("not on record",)) if to else (),
        )
        for label, tell in _ROWS
    )
    verdict, note = _verdict(one, two, to=to)
    return VersionTable(pinned=pinned, other=to, rows=rows, verdict=verdict, note=note)


_NOWHERE: Final[Phrase] = (
    "Recourse keeps digests and no programs, so which lines differ isn’t on record here: ",
    "compare the two versions where they are built, before you answer.",
)


def _verdict(one: VersionRead | None, two: VersionRead | None, *, to: str) -> tuple[Phrase, Phrase]:
    """Whether the programs differ, and what can't be known of how."""
    if not to:
        said = "Nothing changes in the program: the run goes on under the version that it is pinned to."
        return (said,), ()
    if one is None or two is None or not one.digest or not two.digest:
        return ("Whether the programs differ isn’t known: a digest is missing.",), _NOWHERE
    if one.digest == two.digest:
        return ("The two have one digest: the same program under two names.",), ()
    return ("The programs differ: their digests do.",), _NOWHERE


def _digest(version: VersionRead) -> Phrase:
    return ("sha256 ", Code(short(version.digest))) if version.digest else ("not on record",)


def _seen(version: VersionRead) -> Phrase:
    return (Since(version.last_worker_at),) if version.last_worker_at is not None else ("never",)


def _runs(version: VersionRead) -> Phrase:
    return _counted(version.runs, RUNS_LOOKED_MAX, _RUN_WORDS)


def _effects(version: VersionRead) -> Phrase:
    return _counted(version.effects, EFFECTS_LOOKED_MAX, _EFFECT_WORDS)


def _counted(states: tuple[str, ...], looked_max: int, words: Mapping[str, str]) -> Phrase:
    """How many are in each state: exact up to the bound, and of so many beyond it."""
    if not states:
        return ("none",)
    looked = states[:looked_max]
    told = [f"{looked.count(state)} {word}" for state, word in words.items() if state in looked]
    bound = f", of {looked_max:,} looked at" if len(states) > looked_max else ""
    return (", ".join(told) + bound,)


_RUN_WORDS: Final = {
    str(RunState.COMPLETED): "completed",
    str(RunState.ABANDONED): "abandoned",
    str(RunState.OPEN): "open",
    str(RunState.PAUSED): "paused",
}
_EFFECT_WORDS: Final = {
    str(OperationState.CONFIRMED): "confirmed",
    str(OperationState.REJECTED): "rejected",
    str(OperationState.ABANDONED): "given up",
    str(OperationState.SENT_UNKNOWN): "with an unknown outcome",
    str(OperationState.READY): "not sent yet",
}
_ROWS: Final[tuple[tuple[str, Callable[[VersionRead], Phrase]], ...]] = (
    ("Digest of the program", _digest),
    ("On record since", lambda version: (version.first_seen_at,)),
    ("Worker last seen", _seen),
    ("Runs under it", _runs),
    ("Effects of those runs", _effects),
)


def _plan(read: ApprovalRead, title: str, *, moved: bool) -> Outcome:
    by_call = {one.call_id: one for one in read.operations}
    settled = send = reads = waits = 0
    for call in read.calls:
        operation = by_call.get(call.pk)
        if operation is None:
            settled, reads = (settled + 1, reads) if call.result_at is not None else (settled, reads + 1)
        elif operation.state in OPERATION_SETTLED:
            settled += 1
        elif operation.state == OperationState.READY:
            send += 1
        else:
            waits += 1
    said = [
        Consequence(
            icon="skip-forward", text=(f"{plural(settled, 'step')} on record to be skipped, never repeated",)
        )
    ]
    if reads:
        said.append(Consequence(icon="eye", text=(f"{plural(reads, 'read')} to be made",)))
    if send:
        said.append(
            Consequence(
                icon="send",
                text=(f"{plural(send, 'effect')} decided already, to be sent with the stored key",),
            )
        )
    if waits:
        said.append(
            Consequence(
                icon="hourglass", bad=moved, text=(f"{plural(waits, 'outcome')} to be looked up first",)
            )
        )
    said.append(
        Consequence(
            icon="cpu",
            text=(
                "Then the other version’s program decides the next turn"
                if moved
                else "Then the pinned version’s program decides the next turn",
            ),
        )
    )
    return Outcome(title=title, consequences=tuple(said))
