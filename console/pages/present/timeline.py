"""What happened to an operation, from its leaves in the audit log: who, when, and why."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

from django.urls import reverse

from console.pages import wording
from console.pages.present.marks import FINDINGS, NEEDS, PAUSED_WHY, actor_of, plural
from console.pages.present.panel import TITLES
from console.pages.shapes import Actor, Code, Link, Part, Phrase, TimelineItem, Tone
from console.queries.cases import CaseRead
from console.queries.people import Names
from reconciliation.revealing import PAYLOAD
from reconciliation.states import REASON_LABELS, Action, CaseState, ReasonCode
from runs.models import AuditLeaf
from runs.states import Claim, EvidenceKind

# Action of a leaf → what it is called, its icon, its tone.
EVENTS: Final[dict[str, tuple[str, str, Tone | None]]] = {
    "run.started": ("Run started", "play", None),
    "run.claimed": ("Run claimed", "user-check", None),
    "run.paused": ("Run paused", "circle-pause", "violet"),
    "run.pause_reason_ended": ("A reason to pause ended", "play", None),
    "run.completed": ("Run completed", "circle-check", "green"),
    "run.abandoned": ("Run given up", "circle-slash", "grey"),
    "lease.ended": ("Lease ended", "unplug", None),
    "write.refused": ("Write refused by fencing", "octagon-x", "red"),
    "turn.saved": ("Intent recorded", "file-check", None),
    "read.saved": ("Result of a read saved", "eye", None),
    "operation.sent": ("Request sent", "send", None),
    "operation.sent_again": ("Request sent again, same key", "rotate-ccw", "blue"),
    "operation.perhaps_sent": ("Perhaps sent in a time that was forgotten", "triangle-alert", "amber"),
    "operation.sent_by_unknown": ("Sent by somebody unknown", "triangle-alert", "red"),
    "operation.not_sent": ("Proved not to have happened", "undo-2", "blue"),
    "operation.confirmed": ("Confirmed", "circle-check", "green"),
    "operation.rejected": ("Rejected", "circle-x", "red"),
    "operation.abandoned": ("Given up", "circle-slash", "grey"),
    "evidence.recorded": ("Evidence recorded", "paperclip", None),
    "grant.made": ("One more request permitted", "key-round", "blue"),
    "grant.ended": ("The permission ended", "lock", None),
    "case.opened": ("Case opened", "flag", "amber"),
    "case.moved": ("Case moved", "arrow-right", None),
    "case.resolved": ("Case resolved", "circle-check", "green"),
    "case.decided.confirm": ("Decided: confirm", "gavel", "blue"),
    "case.decided.retry": ("Decided: retry with the same key", "gavel", "blue"),
    "case.decided.abandon": ("Decided: abandon", "gavel", "blue"),
    "case.decided.make_absent": ("Decided: make sure that it’s absent", "gavel", "blue"),
    "absence.sent": ("Request to make it absent leaves", "send", "blue"),
    "absence.answered": ("Request to make it absent answered", "undo-2", "blue"),
    "absence.unanswered": ("Request to make it absent never answered", "unplug", "amber"),
    "case.decided.accept": ("Decided: let the extra effect stand", "gavel", "blue"),
    "case.decided.compensate": ("Decided: the extra effect was undone", "gavel", "blue"),
    "approval.requested": ("A second person is asked", "users", "violet"),
    "approval.asked": ("A question about the request", "message-square", "violet"),
    "approval.replied": ("A reply about the request", "message-square", "violet"),
    "approval.approved": ("Approved by a second person", "shield-check", "green"),
    "approval.carried_out": ("Carried out as approved", "shield-check", "green"),
    "approval.refused": ("Refused by a second person", "circle-x", "red"),
    "approval.withdrawn": ("Request withdrawn", "undo-2", None),
    "approval.expired": ("Request ended unanswered", "clock", "amber"),
    "approval.voided": ("Request void: something changed", "circle-slash", "amber"),
    "approval.own_attempt_refused": ("Refused: one’s own request", "octagon-x", "red"),
    "case.claimed": ("Claimed to work on", "user-check", None),
    "case.claim_released": ("Given back", "user", None),
    "case.claim_taken_over": ("Taken over from a colleague", "users", "amber"),
    "case.assigned": ("Assigned", "users", None),
    "case.lookup_asked": ("A lookup asked for", "scan-search", None),
    "bulk.started": ("Started over a list of cases", "gavel", "blue"),
    "bulk.stopped": ("The rest of a list stopped", "circle-pause", "amber"),
    "bulk.ended": ("A list of cases was seen to", "circle-check", None),
    "case.snoozed": ("Put off", "clock", None),
    "case.unsnoozed": ("Woken", "clock", None),
    "case.revealed": ("Hidden parts shown to somebody", "eye", "amber"),
    "case.noted": ("Note", "message-square", "violet"),
    "history.export_asked": ("History: an export asked for", "download", None),
    "history.exported": ("History exported", "download", "amber"),
    "history.export_fetched": ("History: an export fetched as a file", "download", "amber"),
    "conflict.accepted": ("Extra effect booked", "wallet", None),
    "conflict.compensated": ("Extra effect noted as undone", "undo-2", None),
    "provider.lookup_test_asked": ("Lookup tested: the provider was asked", "scan-search", None),
    "provider.lookup_test_answered": ("Lookup tested: what came of it", "scan-search", None),
    "provider.tightened": ("Contract tightened", "lock", None),
    "provider.declared": ("Provider declared in the console", "file-check", "blue"),
    "account.teams_named": ("Who may use an account was changed", "users", "amber"),
    "team.made": ("Team made", "users", None),
    "flow.policy_changed": ("A flow’s rules changed", "gavel", "amber"),
    "token.made": ("Token made", "key-round", "amber"),
    "token.revoked": ("Token revoked", "key-round", None),
    "person.made": ("Account of a person made", "user", "amber"),
    "person.access_changed": ("Roles or teams of a person changed", "user-check", "amber"),
    "person.closed": ("Account of a person closed", "lock", None),
    "person.opened": ("Account of a person opened again", "user", "amber"),
    "notification.channel_set": ("Who is told of what was changed", "mail", None),
    "notification.retried": ("A message sent anew by a person", "mail", None),
    "account.breaker_opened": ("Lookups stopped: no usable answers", "circle-pause", "amber"),
    "webhook.kept": ("A provider’s notice kept", "paperclip", None),
    "webhook.refused": ("A provider’s notice refused", "circle-x", None),
}
# How an entry says that a case waits for two, before the action's word; and that the policy looks once more.
_ASKS_TWO: Final = "a second person is asked"
_LOOKS_AGAIN: Final = "policy: look again"
# From a first of these nobody knows the outcome, until one of the others says it.
_OPENS_GAP: Final = frozenset(
    {"operation.sent", "operation.sent_again", "operation.perhaps_sent", "operation.sent_by_unknown"}
)
_CLOSES_GAP: Final = frozenset(
    {"operation.confirmed", "operation.rejected", "operation.abandoned", "operation.not_sent"}
)
_EVIDENCE_KINDS: Final = {
    "report": "The sender’s report",
    "late_report": "A late report",
    "stray_report": "A report of an attempt that was never given",
    "webhook": "A notice from the provider",
    "attachment": "A record given by a person",
}


def event_of(leaf: AuditLeaf) -> dict[str, Any]:
    """The event inside a leaf's canonical body; {} if it can't be read."""
    try:
        body = json.loads(bytes(leaf.body))
    except (ValueError, RecursionError):
        return {}
    event = body.get("event") if isinstance(body, dict) else None
    return event if isinstance(event, dict) else {}


def leaf_digest(leaf: AuditLeaf) -> str:
    """SHA-256 over the leaf's canonical body, as an auditor would compute it."""
    return hashlib.sha256(bytes(leaf.body)).hexdigest()


def short(digest: str) -> str:
    """The ends of a digest: enough to tell two apart by eye."""
    return f"{digest[:4]}…{digest[-2:]}"


def timeline_of(read: CaseRead) -> tuple[TimelineItem, ...]:
    """Oldest first, repeated answers folded, and what is still to come at the end."""
    items: list[TimelineItem] = [] if read.leaves_more else [_intent(read)]
    shown: list[tuple[str, str]] = []
    gap = False
    repeats = 0
    for leaf in read.leaves:
        event = event_of(leaf)
        gap = leaf.action not in _CLOSES_GAP and (gap or leaf.action in _OPENS_GAP)
        sameness = (leaf.action, str(event.get("evidence", "")))
        if leaf.action == "evidence.recorded" and sameness in shown[-2:]:
            repeats += 1
            continue
        if repeats:
            items.append(_again(repeats))
            repeats = 0
        shown.append(sameness)
        item = item_of(leaf, event, read.names, gap=gap)
        note = read.notes.get(str(event.get("subject", ""))) if leaf.action == "case.noted" else None
        items.append(replace(item, quote=note.text) if note is not None else item)
    if repeats:
        items.append(_again(repeats))
    return (*with_elapsed(items), *_next(read))


def _intent(read: CaseRead) -> TimelineItem:
    """The operation's own beginning; its leaf is the turn's, which names all of the turn's operations."""
    return TimelineItem(
        title="Intent recorded",
        icon="file-check",
        at=read.operation.created_at,
        text=("Payload and key are on record before anything is sent.",),
        actor=Actor(name=f"Agent, turn {read.operation.turn_index}"),
    )


def _again(repeats: int) -> TimelineItem:
    return TimelineItem(
        title=f"{plural(repeats, 'more lookup')}, the same answer",
        icon="history",
        at=None,
        when_text="then",
        gap=True,
    )


def with_elapsed(items: Iterable[TimelineItem]) -> Iterable[TimelineItem]:
    """Say of each entry but the first how long after the one before it came."""
    before = None
    for item in items:
        if item.at is not None and before is not None and item.at - before >= timedelta(seconds=1):
            yield replace(item, elapsed=f"{wording.span(item.at - before)} later")
        elif item.at is not None and before is not None:
            yield replace(item, elapsed="< 1 s later")
        else:
            yield item
        before = item.at or before


def item_of(
    leaf: AuditLeaf, event: dict[str, Any], names: Names, *, gap: bool = False, links: bool = True
) -> TimelineItem:
    """One leaf as an entry of a timeline; `links`: the page shows the evidence that it names."""
    title, icon, tone = title_of(leaf.action, event)
    return TimelineItem(
        title=title,
        icon=icon,
        at=leaf.at,
        text=text_of(leaf.action, event, links=links),
        actor=actor_of(names, leaf.actor_kind, leaf.actor),
        tone=tone,
        gap=gap,
        digest=short(leaf_digest(leaf)),
    )


def title_of(action: str, event: dict[str, Any]) -> tuple[str, str, Tone | None]:
    """What a leaf is called; an action that isn't known yet is shown as its own words."""
    after = _part(event, "after")
    if action == "evidence.recorded":
        finding = str(after.get("finding", ""))
        if finding:
            shown = FINDINGS.get(finding)
            word = shown.word.lower() if shown else finding
            return f"Lookup: {word}", "scan-search", shown.tone if shown else None
        kind = str(after.get("kind"))
        if kind == EvidenceKind.ATTACHMENT and after.get("claim") == Claim.UNKNOWN:
            return "Evidence attached by a person", "paperclip", "violet"
        return _EVIDENCE_KINDS.get(kind, "Evidence recorded"), "paperclip", None
    if action == "case.moved":
        return _moved(after)
    known = EVENTS.get(action)
    return known or (action.replace(".", " ").replace("_", " ").capitalize(), "info", None)


def _moved(after: dict[str, Any]) -> tuple[str, str, Tone | None]:
    match after.get("state"):
        case CaseState.NEEDS_DECISION:
            return "A person is asked", "gavel", "amber"
        case CaseState.RETRYING:
            return "Retry under way", "rotate-ccw", "blue"
        case CaseState.LOOKING_UP:
            return "Looked up again", "scan-search", None
        case CaseState.AWAITING_APPROVAL:
            return "Waits for approval", "shield-check", "violet"
        case other:
            return f"Case is {str(other).replace('_', ' ')}", "arrow-right", None


def text_of(action: str, event: dict[str, Any], *, links: bool = False) -> Phrase:
    """What a leaf says besides its name: why, with which receipt, until when."""
    after, before = _part(event, "after"), _part(event, "before")
    reason = str(event.get("reason", ""))
    parts: list[Part] = []
    if action.startswith("case.decided.") or action in {"case.revealed", "approval.requested"}:
        parts = [f"{_about(action, after)}: “{reason}”"]
    elif action == "case.moved":
        # While a second person is asked, why people are is kept for when it comes back.
        waits = after.get("state") == CaseState.AWAITING_APPROVAL
        need = "" if waits else str(after.get("need", ""))
        parts = [f"{NEEDS[need]}."] if need in NEEDS else [_why_moved(reason)]  # type: ignore[index]
    elif action in {"operation.sent", "operation.sent_again"}:
        parts = [f"Attempt {after.get('attempt', '?')}, ", Code(str(after.get("attempt_id", "")))]
    elif action == "lease.ended":
        parts = [f"{before.get('holder', '')}, token {before.get('lease', '')}: {after.get('ended_by', '')}."]
    elif action == "grant.made":
        parts = [f"For the {after.get('executor', '')}, after request {after.get('follows_attempt', '')}."]
    elif action == "evidence.recorded":
        evidence = str(event.get("subject", ""))
        parts = [Link(evidence, f"#{evidence}") if links else Code(evidence)]
    elif action == "operation.confirmed" and after.get("matched_by"):
        parts = [f"Receipt matched by {str(after['matched_by']).replace('_', ' ')}."]
    elif action == "case.resolved":
        parts = [f"As {str(after.get('resolution', '')).replace('_', ' ')}."]
    elif action in _TEXTS:
        parts = _TEXTS[action](after)
    elif action == "turn.saved":
        calls = after.get("calls")
        number = plural(calls, "call") if isinstance(calls, int) else "its calls"
        parts = [f"Turn {after.get('turn', '?')}, {number}, before any of them starts."]
    elif reason:
        parts = [reason]
    return tuple(parts)


def _why_moved(reason: str) -> str:
    """Why a case moved, where the entry has a word of the rules instead of a sentence."""
    by, _, word = reason.partition(": ")
    if by == _ASKS_TWO and word in set(Action):
        return f"A second person is asked about “{TITLES[Action(word)]}”."
    return "The policy has it looked up again." if reason == _LOOKS_AGAIN else reason


def _about(action: str, after: dict[str, Any]) -> str:
    """What a person's reason is a reason for."""
    if action == "approval.requested":
        return str(after.get("title", ""))
    if action == "case.revealed":
        part = str(after.get("part", ""))
        return "The payload" if part == PAYLOAD else f"In {part}"
    code = str(after.get("reason_code", ""))
    return REASON_LABELS[ReasonCode(code)] if code in set(ReasonCode) else code


def _why_paused(after: dict[str, Any]) -> list[Part]:
    reasons = after.get("reasons")
    words = (
        "; ".join(PAUSED_WHY.get(str(one), str(one)) for one in reasons) if isinstance(reasons, list) else ""
    )
    return [f"{words[:1].upper()}{words[1:]}."] if words else []


def _test_answered(after: dict[str, Any]) -> list[Part]:
    finding = FINDINGS.get(str(after.get("finding", "")))
    return [f"{finding.word}. Nothing was changed by it."] if finding else []


_WRITES: Final = {
    "turn": "A turn",
    "result": "The result of a read",
    "send": "A request to send",
    "completion": "The end of the run",
}


def _refused_write(after: dict[str, Any]) -> list[Part]:
    write = _WRITES.get(str(after.get("write", "")), "A write")
    return [f"{write} under lease {after.get('lease', '?')}, which was over. Nothing of it was carried out."]


_TEXTS: Final[dict[str, Callable[[dict[str, Any]], list[Part]]]] = {
    "write.refused": _refused_write,
    "run.paused": _why_paused,
    "provider.lookup_test_answered": _test_answered,
}


def _part(event: dict[str, Any], name: str) -> dict[str, Any]:
    part = event.get(name)
    return part if isinstance(part, dict) else {}


def _next(read: CaseRead) -> tuple[TimelineItem, ...]:
    """What is still to come."""
    match CaseState(read.case.state):
        case CaseState.NEEDS_DECISION:
            text: Phrase = ("Waiting for a person. Until then nothing of this operation is sent.",)
            return (_to_come("Decision", "gavel", text),)
        case CaseState.LOOKING_UP:
            text = ("A person is asked when lookups can’t settle it.",)
            return (_to_come("Lookups go on", "scan-search", text),)
        case CaseState.RETRYING:
            return (
                _to_come("The retry’s outcome", "rotate-ccw", ("Then the receipt, or the question again.",)),
            )
        case _:
            return ()


def _to_come(title: str, icon: str, text: Phrase) -> TimelineItem:
    return TimelineItem(title=title, icon=icon, at=None, when_text="Next", next=True, text=text)


def note_of(read: CaseRead) -> str:
    """What stands beside the heading."""
    if read.leaves_more:
        return f"The latest {len(read.leaves)} entries; the effect history has all"
    return "Every entry is in the audit log"


def history_href(operation_id: str) -> str:
    """The effect history of one operation."""
    return f"{reverse('effects')}?q={operation_id}"
