"""Another flow version, or the same one for longer, in words: what is on record, and the plan under each."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from console.pages import wording
from console.pages.present.approval_told import NOTHING, Told, released, run_link, short
from console.pages.present.marks import plural
from console.pages.shapes import Code, Consequence, Fact, Phrase, Strong
from console.pages.shapes.approval import Outcome
from console.queries.approvals import ApprovalRead
from reconciliation.run_approvals import MOVE
from runs.models import FlowVersion
from runs.states import OPERATION_SETTLED, OperationState, PauseReason


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


def _versions(read: ApprovalRead, pinned: str, to: str) -> tuple[Fact, ...]:
    by_name: dict[str, FlowVersion] = {one.version: one for one in read.versions}
    shown = []
    for name, label in ((pinned, "pinned"), (to, "asked for")):
        version = by_name.get(name)
        if version is None:
            continue
        digest: Phrase = (
            ("sha256 ", Code(short(version.digest))) if version.digest else ("no digest on record",)
        )
        seen: Phrase = (
            ("a worker was last seen ", version.last_worker_at)
            if version.last_worker_at is not None
            else ("no worker of it was ever seen",)
        )
        shown.append(Fact(label=f"Version {name}, {label}", value=digest, note=seen))
    if to:
        same = by_name.get(pinned), by_name.get(to)
        told = all(one is not None and one.digest for one in same)
        differ = told and same[0] is not None and same[1] is not None and same[0].digest != same[1].digest
        shown.append(
            Fact(
                label="What differs",
                value=(
                    "the program: its digests differ"
                    if differ
                    else "not known here: Recourse holds digests, not programs, and one of them is missing",
                ),
                note=("What it does otherwise is in your own repository, under these versions.",),
            )
        )
    return tuple(shown)


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
            icon="skip-forward", text=(f"{plural(settled, 'step')} on record skipped, never repeated",)
        )
    ]
    if reads:
        said.append(Consequence(icon="eye", text=(f"{plural(reads, 'read')} made",)))
    if send:
        said.append(
            Consequence(
                icon="send", text=(f"{plural(send, 'effect')} decided already, sent with the stored key",)
            )
        )
    if waits:
        said.append(
            Consequence(icon="hourglass", bad=moved, text=(f"{plural(waits, 'outcome')} looked up first",))
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
