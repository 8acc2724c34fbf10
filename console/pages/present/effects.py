"""The effect history: who did what, when and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from django.urls import reverse

from console.history_models import Mark
from console.pages import wording
from console.pages.present import naming
from console.pages.present.history_address import HistoryAddress
from console.pages.present.jsons import payload_view
from console.pages.present.marked import PRESETS
from console.pages.present.marks import actor_of, amount_of, plural
from console.pages.present.panel import TITLES
from console.pages.present.timeline import EVENTS, event_of, leaf_digest, short, text_of, title_of
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
from console.queries.administered import ACTIONS
from console.queries.effects import COUNT_MAX, NAMED_MAX, PARTS, SCANNED_MAX, Entries, Group
from reconciliation.models import Decision
from reconciliation.states import REASON_LABELS, Action, ReasonCode
from runs.actors import ActorKind
from runs.models import AuditLeaf

# What is proved of the log, and what isn't: the place of the tree and its checkpoints.
PROOF: Final = (
    "The database lets nobody change or delete an entry, its owner included. That nothing was removed behind"
    " its back isn’t proved yet: entries aren’t sealed into a tree so far."
)
_GROUPS: Final = {
    Group.DECISIONS: "Decisions",
    Group.APPROVALS: "Approvals",
    Group.REQUESTS: "Requests",
    Group.LOOKUPS: "Evidence",
    Group.SETTLED: "Settled",
    Group.CONFLICTS: "Conflicts closed, strays",
    Group.LEASES: "Leases",
    Group.ADMINISTRATION: "Administration",
}
# What the address calls its fields, as a sentence calls them.
_FIELDS: Final = {
    "q": "The name",
    "action": "The event",
    "provider": "The provider",
    "actor": "The actor",
    "from": "From",
    "until": "Until",
    "show": "The exception",
}


def effects_page(
    entries: Entries,
    address: HistoryAddress,
    *,
    runs: Mapping[str, str],
    viewer_name: str,
    may_export: bool = False,
) -> EffectsPage:
    """One page of the history; `runs` are the external ids of the runs that entries are about, by id."""
    asked = address.asked
    return EffectsPage(
        now=entries.now,
        entries=tuple(_entry(entries, one, address, runs) for one in entries.leaves),
        lead="Every intent, request, lookup, decision and receipt, as it was recorded. Append only.",
        proof=PROOF,
        summary=_summary(entries),
        means=PRESETS[asked.mark].means if asked.mark is not None else "",
        notice=_notice(entries, address, may_export=may_export),
        filters=_filters(entries, address),
        chips=_chips(entries, address),
        exceptions=_exceptions(entries),
        printed=_printed(entries, address, viewer_name),
        export_href=reverse("export_list") if may_export else "",
        export_query=address.query,
        next=_next(entries, address),
        newer=_newer(entries, address),
        empty=None if entries.leaves else _empty(entries, address),
    )


def _chips(entries: Entries, address: HistoryAddress) -> tuple[Tab, ...]:
    asked = address.asked
    everything = Tab(label="Everything", href=address.href(show=""), current=asked.mark is None)
    marks = tuple(
        Tab(
            label=preset.label,
            href=address.href(show=str(mark)),
            current=mark is asked.mark,
            count=_counted(entries, mark) if mark is not Mark.PEOPLE else "",
            hot=preset.bad and entries.frame.counts.get(mark, 0) > 0,
        )
        for mark, preset in PRESETS.items()
    )
    return (everything, *marks)


def _counted(entries: Entries, mark: Mark) -> str:
    return "?" if _is_unfiled(entries) else _capped(entries.frame.counts.get(mark, 0))


def _is_unfiled(entries: Entries) -> bool:
    """Whether none of what is on record was looked through: then there being no exception isn't known."""
    return entries.frame.through_at is None and bool(entries.frame.latest_leaf)


def _exceptions(entries: Entries) -> str:
    """How many there are to look at, of how many kinds: what an auditor opens the page for."""
    found = [count for mark, count in entries.frame.counts.items() if mark is not Mark.PEOPLE and count]
    if _is_unfiled(entries):
        return "not looked through yet"
    if not found:
        return "none"
    return f"{_capped(sum(found))} of {plural(len(found), 'kind')}"


def _capped(count: int) -> str:
    return f"{COUNT_MAX}+" if count > COUNT_MAX else str(count)


def _notice(entries: Entries, address: HistoryAddress, *, may_export: bool) -> str:
    if address.unread:
        fields = " and ".join(_FIELDS[name] for name in address.unread)
        times = " A time is written as 2026-11-29 or 2026-11-29 18:40, in UTC."
        return f"{fields} can’t be read.{times if {'from', 'until'} & {*address.unread} else ''}"
    if entries.cut:
        return f"More runs have this name: these are the entries of the newest {NAMED_MAX:,}."
    through = entries.frame.through_at
    if entries.behind or (address.asked.mark is not None and entries.frame.latest_leaf):
        until = f"Filed up to {wording.full(through)}" if through else "Nothing is filed yet"
        return f"{until}: what was recorded since will appear here without anybody’s doing."
    if may_export and set(address.asked.actions) & set(ACTIONS):
        return "What was administered for every team is shown here, and isn’t in an export."
    return ""


def _summary(entries: Entries) -> str:
    if not entries.leaves:
        return ""
    newest, oldest = entries.leaves[0].at, entries.leaves[-1].at
    span = f"{wording.clock(oldest, now=entries.now)} to {wording.clock(newest, now=entries.now)}"
    return f"Newest first, {len(entries.leaves)} shown, {span}"


def _printed(entries: Entries, address: HistoryAddress, viewer_name: str) -> str:
    words = "; ".join(f"{name} {value}" for name, value in address.words.items())
    return f"Printed {wording.full(entries.now)} by {viewer_name}. Filter: {words or 'none'}."


def _next(entries: Entries, address: HistoryAddress) -> NextPage | None:
    if not entries.after:
        return None
    searched = entries.scanned_to is not None and not address.asked.before
    label = "Search further back" if searched else "Load older entries"
    return NextPage(href=address.href(after=entries.after), label=label)


def _newer(entries: Entries, address: HistoryAddress) -> Link | None:
    if not entries.before:
        return None
    searched = entries.scanned_to is not None and address.asked.before
    text = "Search among newer entries" if searched else "Newer entries"
    return Link(text, address.href(before=entries.before))


def _empty(entries: Entries, address: HistoryAddress) -> EmptyState:
    asked = address.asked
    if entries.scanned_to is not None:
        return EmptyState(
            title=f"None in these {SCANNED_MAX:,} entries",
            text=f"Searched up to {wording.full(entries.scanned_to)}. Newer ones may match."
            if asked.before
            else f"Searched back to {wording.full(entries.scanned_to)}. Older ones may match.",
            icon="history",
        )
    everything = Link("Show everything", reverse("effects"))
    if address.unread:
        return EmptyState(
            title="Not searched",
            text="The filter can’t be read as it is.",
            icon="list-filter",
            action=everything,
        )
    if asked.before:
        return EmptyState(
            title="Nothing newer",
            text="These were the newest entries that match.",
            icon="history",
            action=Link("Show the newest", address.href()),
        )
    if asked.mark is not None:
        narrowed = len(address.words) > 1
        through = entries.frame.through_at
        if _is_unfiled(entries):
            return EmptyState(
                title=f"{PRESETS[asked.mark].label}: not looked through yet",
                text="Entries are looked through soon after they are recorded, and so far none has been:"
                " whether there is one isn’t known.",
                icon="clock",
                action=everything,
            )
        filed = f" up to {wording.clock(through, now=entries.now)}" if through else ""
        return EmptyState(
            title=f"{PRESETS[asked.mark].label}: none" + (" under these filters" if narrowed else filed),
            text="None of these matches the other filters." if narrowed else PRESETS[asked.mark].none,
            icon="circle-check",
            action=Link("Without the other filters", f"{reverse('effects')}?show={asked.mark}")
            if narrowed
            else everything,
        )
    if asked.is_narrowed:
        return EmptyState(
            title="No entry matches",
            text="Nothing that you can see has all of this.",
            icon="list-filter",
            action=everything,
        )
    return EmptyState(title="No history yet", text="The first entry is made when a worker starts a run.")


def _filters(entries: Entries, address: HistoryAddress) -> tuple[Filter, ...]:
    asked, frame = address.asked, entries.frame
    groups = [(str(group), label) for group, label in _GROUPS.items()]
    actions = sorted(((name, title) for name, (title, *_) in EVENTS.items()), key=lambda one: one[1])
    parts = [(part, entries.names.of(ActorKind.SYSTEM, part)) for part in PARTS]
    return (
        Filter(name="show", label="Exception", value=str(asked.mark or ""), input_type="hidden"),
        Filter(
            name="q",
            label="Operation, run, case, key, external id or receipt",
            value=asked.text,
            placeholder="op_…, run_…, key or receipt",
            grows=True,
        ),
        *(
            # Not the browser's own field for a time: it writes a day in the order of its country.
            Filter(
                name=name,
                label=f"{label} (UTC)",
                value=address.words.get(name, ""),
                placeholder="YYYY-MM-DD HH:MM",
                input_type="text",
            )
            for name, label in (("from", "From"), ("until", "Until"))
        ),
        Filter(
            name="action", label="Event", choices=_choices("All events", [*groups, *actions], asked.action)
        ),
        Filter(
            name="provider",
            label="Provider",
            choices=_choices("All", [(one, one) for one in frame.providers], asked.provider),
        ),
        Filter(name="actor", label="By", choices=_choices("Anyone", [*frame.people, *parts], asked.actor)),
    )


def _choices(every: str, offered: list[tuple[str, str]], chosen: str) -> tuple[Choice, ...]:
    """What is offered, and what the address names besides, such as one worker."""
    known = {value for value, _ in offered}
    more = [(chosen, chosen)] if chosen and chosen not in known else []
    listed = [("", every), *more, *offered]
    return tuple(Choice(value=value, label=label, selected=value == chosen) for value, label in listed)


# --- One entry ------------------------------------------------------------------------------------------


def _entry(
    entries: Entries, leaf: AuditLeaf, address: HistoryAddress, runs: Mapping[str, str]
) -> EffectEntry:
    event = event_of(leaf)
    title, icon, tone = title_of(leaf.action, event)
    about = entries.about.get(leaf.operation_ref)
    asked = address.asked
    opened = str(leaf.pk) == asked.entry
    toggled = {"after": asked.after, "before": asked.before, "entry": "" if opened else str(leaf.pk)}
    subject, subject_id, href = "", leaf.run_ref, reverse("run", args=[leaf.run_ref]) if leaf.run_ref else ""
    if about is not None:
        subject = naming.title_of(about.tool, amount_of(about.currency, about.minor))
        subject_id = leaf.operation_ref
        href = f"{reverse('effect', args=[leaf.operation_ref])}?entry={leaf.pk}#entry-{leaf.pk}"
    elif leaf.run_ref:
        subject = f"Run {runs.get(leaf.run_ref, '')}".rstrip()
    return EffectEntry(
        entry_id=f"entry-{leaf.pk}",
        href=f"{address.href(**toggled)}#entry-{leaf.pk}",
        at=leaf.at,
        event=Badge(word=title, icon=icon, tone=tone or "grey"),
        actor=actor_of(entries.names, leaf.actor_kind, leaf.actor),
        actor_href=address.href(actor=leaf.actor),
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
        # A case moves for a word of the rules, which is told in a sentence.
        said = _note(leaf, event) if leaf.action == "case.moved" else str(event["reason"])
        facts.append(Fact(label="Why", value=(said,)))
    if event.get("evidence"):
        facts.append(Fact(label="Evidence digest", value=(Code(str(event["evidence"])),)))
    if decision is not None:
        known = reverse("effect_known", args=[leaf.operation_ref, decision.pk])
        facts.append(Fact(label="Known then", value=(Link("As known when it was decided", known),)))
    facts.append(
        Fact(
            label="Entry",
            value=(Link(str(leaf.pk), reverse("effect_entry", args=[leaf.pk])),),
            note=("an address that stays",),
        )
    )
    about = entries.about.get(leaf.operation_ref)
    if about is not None and about.case_id:
        link = Link(about.case_id, reverse("case", args=[about.case_id]))
        facts.append(Fact(label="Case", value=(link,)))
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
