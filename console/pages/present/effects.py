"""The effect history: who did what, when and why."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlencode

from django.urls import reverse

from console.pages import wording
from console.pages.present import naming
from console.pages.present.jsons import payload_view
from console.pages.present.marks import actor_of, amount_of
from console.pages.present.panel import TITLES
from console.pages.present.timeline import event_of, leaf_digest, short, text_of, title_of
from console.pages.shapes import (
    Badge,
    Choice,
    Code,
    EffectEntry,
    EffectsPage,
    EmptyState,
    Fact,
    Filter,
    Link,
    NextPage,
    Part,
    Since,
    Strong,
    Tab,
    Until,
)
from console.queries.effects import SCANNED_MAX, Asked, Entries, Kind
from reconciliation.models import Decision
from reconciliation.states import REASON_LABELS, Action, ReasonCode
from runs.models import AuditLeaf

_KINDS: Final = {
    Kind.EVERYTHING: "Everything",
    Kind.PEOPLE: "What people did",
    Kind.DECISIONS: "Decisions",
    Kind.REQUESTS: "Requests",
    Kind.LOOKUPS: "Evidence",
    Kind.SETTLED: "Settled",
    Kind.CONFLICTS: "Conflicts",
    Kind.LEASES: "Leases",
}


def effects_page(entries: Entries, asked: Asked, *, query: dict[str, str], viewer_name: str) -> EffectsPage:
    """One page of the history; `query` are the address's own words, so that links keep the filters."""
    path = reverse("effects")
    kept = {name: value for name, value in query.items() if name in ("q", "actor") and value}
    chips = tuple(
        Tab(
            label=label,
            href=f"{path}?{urlencode({**kept, 'kind': str(kind)})}",
            current=kind is asked.kind,
        )
        for kind, label in _KINDS.items()
    )
    narrowed = bool(asked.text or asked.actor or asked.after or asked.kind is not Kind.EVERYTHING)
    return EffectsPage(
        now=entries.now,
        entries=tuple(_entry(entries, one, asked, query) for one in entries.leaves),
        lead="Every intent, request, lookup, decision and receipt, as it was recorded. Append only.",
        summary=_summary(entries),
        filters=_filters(entries, asked),
        chips=chips,
        printed=f"Printed {wording.full(entries.now)} by {viewer_name}.",
        next=_next(entries, query),
        empty=None if entries.leaves else _empty(entries, narrowed),
    )


def _summary(entries: Entries) -> str:
    if not entries.leaves:
        return ""
    newest, oldest = entries.leaves[0].at, entries.leaves[-1].at
    span = f"{wording.clock(oldest, now=entries.now)} to {wording.clock(newest, now=entries.now)}"
    return f"Newest first, {len(entries.leaves)} shown, {span}"


def _next(entries: Entries, query: dict[str, str]) -> NextPage | None:
    if not entries.after:
        return None
    following = {name: value for name, value in query.items() if name != "entry"}
    label = "Load older entries" if entries.scanned_to is None else "Search further back"
    return NextPage(href=f"?{urlencode({**following, 'after': entries.after})}", label=label)


def _empty(entries: Entries, narrowed: bool) -> EmptyState:
    if entries.scanned_to is not None:
        return EmptyState(
            title=f"None in these {SCANNED_MAX:,} entries",
            text=f"Searched back to {wording.full(entries.scanned_to)}. Older ones may match.",
            icon="history",
        )
    if narrowed:
        return EmptyState(
            title="No entry matches",
            text="Nothing that you can see has all of this.",
            icon="list-filter",
            action=Link("Show everything", reverse("effects")),
        )
    return EmptyState(title="No history yet", text="The first entry is made when a worker starts a run.")


def _filters(entries: Entries, asked: Asked) -> tuple[Filter, ...]:
    people = [Choice(value="", label="Anyone")]
    people += [Choice(value=pk, label=name, selected=pk == asked.actor) for pk, name in entries.people]
    return (
        Filter(name="kind", label="Kind", value=str(asked.kind), input_type="hidden"),
        Filter(
            name="q",
            label="Operation, run, case, key, external id or receipt",
            value=asked.text,
            placeholder="op_…, run_…, key or receipt",
            grows=True,
        ),
        Filter(name="actor", label="By", choices=tuple(people)),
    )


# --- One entry ------------------------------------------------------------------------------------------


def _entry(entries: Entries, leaf: AuditLeaf, asked: Asked, query: dict[str, str]) -> EffectEntry:
    event = event_of(leaf)
    title, icon, tone = title_of(leaf.action, event)
    about = entries.about.get(leaf.operation_ref)
    opened = str(leaf.pk) == asked.entry
    toggled = {name: value for name, value in query.items() if name != "entry"}
    if not opened:
        toggled["entry"] = str(leaf.pk)
    subject, subject_id, href = "", leaf.run_ref, reverse("run", args=[leaf.run_ref]) if leaf.run_ref else ""
    if about is not None:
        subject = naming.title_of(about.tool, amount_of(about.currency, about.minor))
        subject_id = leaf.operation_ref
        if about.case_id:
            href = reverse("case", args=[about.case_id])
    elif leaf.run_ref:
        subject = "Run"
    return EffectEntry(
        entry_id=f"entry-{leaf.pk}",
        href=f"?{urlencode(toggled)}#entry-{leaf.pk}",
        at=leaf.at,
        event=Badge(word=title, icon=icon, tone=tone or "grey"),
        actor=actor_of(entries.names, leaf.actor_kind, leaf.actor),
        note=_note(leaf, event),
        subject=subject,
        subject_id=subject_id,
        subject_href=href,
        digest=short(leaf_digest(leaf)),
        open=opened,
        facts=_facts(entries, leaf, event) if opened else (),
        body=payload_view("Entry, as it is stored", bytes(leaf.body), leaf_digest(leaf)) if opened else None,
    )


def _note(leaf: AuditLeaf, event: dict[str, Any]) -> str:
    """The entry's own words in one line: a decision's reason is what the history is read for."""
    return "".join(_plain(part) for part in text_of(leaf.action, event))


def _plain(part: Part) -> str:
    match part:
        case str():
            return part
        case Strong() | Code() | Link():
            return part.text
        case Since() | Until():
            return wording.full(part.at)
        case _:
            return str(part)


def _facts(entries: Entries, leaf: AuditLeaf, event: dict[str, Any]) -> tuple[Fact, ...]:
    facts = [
        Fact(label="When", value=(wording.full(leaf.at),), note=("by the database’s clock",)),
        Fact(label="Who", value=(entries.names.of(leaf.actor_kind, leaf.actor),), note=(_role(event),)),
    ]
    after = event.get("after")
    decision = entries.decisions.get(str(after.get("decision"))) if isinstance(after, dict) else None
    if decision is not None:
        facts += _decided(decision)
    elif event.get("reason"):
        facts.append(Fact(label="Why", value=(str(event["reason"]),)))
    if event.get("evidence"):
        facts.append(Fact(label="Evidence digest", value=(Code(str(event["evidence"])),)))
    if leaf.run_ref:
        facts.append(Fact(label="Run", value=(Link(leaf.run_ref, reverse("run", args=[leaf.run_ref])),)))
    return tuple(facts)


def _role(event: dict[str, Any]) -> str:
    actor = event.get("actor")
    if not isinstance(actor, dict):
        return ""
    role = f" as {actor['role']}" if actor.get("role") else ""
    return f"{actor.get('kind', '')}{role}"


def _decided(decision: Decision) -> list[Fact]:
    code = decision.reason_code
    label = REASON_LABELS[ReasonCode(code)] if code in set(ReasonCode) else code
    receipt: tuple[Part, ...] = (", receipt ", Code(decision.reference)) if decision.reference else ()
    return [
        Fact(label="Decision", value=(Strong(TITLES[Action(decision.action)]), *receipt)),
        Fact(label="Reason code", value=(label,)),
        Fact(label="Why", value=(decision.reason,)),
        Fact(label="Case version", value=(f"{decision.seen_version}",)),
        Fact(label="Policy", value=(Code(decision.policy),)),
    ]
