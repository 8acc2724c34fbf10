"""What was tightened and what may be, in words."""

from __future__ import annotations

from typing import Final

from django.urls import reverse

from console.pages.present.contract_words import duration
from console.pages.present.marks import actor_of
from console.pages.provider_forms import TighteningDraft
from console.pages.shapes import Banner, Choice, FieldError, Since, TightenedView, TightenField, TightenForm
from console.queries.providers import ProviderRead
from reconciliation.models import Tightening
from reconciliation.strictness import BY_FIELD, RULES, Held, Rule, Tighter, Unit
from reconciliation.tightening import REASON_LENGTH_MIN, ContractMoved
from runs.actors import ActorKind

LABELS: Final[dict[str, str]] = {
    "key_window_trusted": "The key’s window",
    "dedup_window_ms": "How long the key is recognised",
    "window_margin_ms": "Taken off the window’s end",
    "rejection_replays": "A refusal of a repeat speaks for the first request",
    "lookups": "Lookups",
    "visibility_lag_ms": "How late an effect may appear",
    "lookup_retention_ms": "How long it can be asked",
    "absence_is_proof": "“Not found” proves absence",
    "rate_limit_per_second": "Lookups a second",
    "in_flight_bound_ms": "A request may still take effect for",
    "console_sends": "The console’s own sender",
}
# What switching it off does, said before anybody does it.
_OFF: Final[dict[str, str]] = {
    "key_window_trusted": "Off: no window is relied on, so every repeat takes two people.",
    "rejection_replays": "Off: a refusal of a repeat settles nothing by itself.",
    "lookups": "Off: nothing is asked here any more, and every open case is left to people.",
    "absence_is_proof": "Off: “not found” proves nothing, and a person decides.",
    "console_sends": "Off: a repeat is carried out by the agent’s worker alone.",
}


def tighten_form(
    read: ProviderRead, *, why_not: str, draft: TighteningDraft, errors: tuple[FieldError, ...]
) -> TightenForm:
    """The form, with a field for everything that can still be tightened."""
    closed = why_not
    if not closed and (read.declared is None or not read.known_to_journal):
        closed = "There is nothing to tighten: this account isn’t used here, or the journal doesn’t know it."
    said = {one.field: one.sentence for one in errors}
    fields = [_field(rule, read, draft, said.get(rule.field, "")) for rule in RULES]
    return TightenForm(
        href=reverse("provider_tighten", args=[read.account.slug]),
        number=read.number,
        fields=tuple(one for one in fields if one is not None),
        reason=draft["reason"],
        reason_length_min=REASON_LENGTH_MIN,
        closed=closed,
        open=bool(draft.fields),
        errors=errors,
    )


def _field(rule: Rule, read: ProviderRead, draft: TighteningDraft, error: str) -> TightenField | None:
    current = rule.read(read.account)
    if not rule.applies(read.account) or (rule.tighter is Tighter.OFF and current is False):
        return None
    if rule.unit is Unit.SWITCH:
        chosen = draft[rule.field] == "off"
        return TightenField(
            name=rule.field,
            label=LABELS[rule.field],
            kind="switch",
            in_force="On",
            hint=_OFF[rule.field],
            choices=(
                Choice(value="", label="Leave it on", selected=not chosen),
                Choice(value="off", label="Switch it off", selected=chosen),
            ),
            error=error,
        )
    way = "Shorter" if rule.tighter is Tighter.SMALLER else "Longer"
    if rule.unit is Unit.PER_SECOND:
        way = "Fewer"
    return TightenField(
        name=rule.field,
        label=LABELS[rule.field],
        kind="number",
        in_force=_said(rule, current),
        hint=f"In force: {_said(rule, current)}. {way} is tighter.",
        value=draft[rule.field],
        error=error,
    )


def _said(rule: Rule, value: Held) -> str:
    match rule.unit:
        case Unit.SWITCH:
            return "on" if value else "off"
        case Unit.PER_SECOND:
            return f"{value:g} a second" if isinstance(value, int | float) else "not stated"
        case Unit.MILLISECONDS:
            return duration(int(value)) if value is not None else "not stated"


def tightened_views(read: ProviderRead) -> tuple[TightenedView, ...]:
    """Every tightening, the newest first, each with what it added."""
    made = read.tightenings
    return tuple(
        _view(one, made[place + 1] if place + 1 < len(made) else None, read) for place, one in enumerate(made)
    )


def _view(made: Tightening, before: Tightening | None, read: ProviderRead) -> TightenedView:
    earlier = before.values if before is not None else {}
    changed = {name: value for name, value in made.values.items() if earlier.get(name) != value}
    return TightenedView(
        number=made.number,
        at=made.made_at,
        by=actor_of(read.names, ActorKind.PERSON, made.actor, known_as=made.actor_name),
        reason=made.reason,
        changes=tuple(_change(name, value) for name, value in changed.items()),
    )


def _change(name: str, value: Held) -> str:
    rule = BY_FIELD.get(name)
    return f"{LABELS[name]}: {_said(rule, value)}" if rule is not None else f"{name}: {value}"


def moved_banner(refusal: ContractMoved, read: ProviderRead) -> Banner:
    """Somebody tightened it first: who, when and why; what was typed is still there."""
    latest = read.tightenings[0] if read.tightenings else None
    return Banner(
        title=("This contract was tightened while you were deciding. Nothing of yours was recorded.",),
        icon="git-compare",
        tone="amber",
        text=(refusal.sentence, " ", Since(latest.made_at), ".") if latest else (refusal.sentence,),
        quote=latest.reason if latest else "",
        kept="What you typed is kept",
        focus=True,
    )


def not_tightened(sentence: str) -> Banner:
    """Any other refusal, in its own words."""
    return Banner(
        title=("The contract was not tightened.",),
        icon="octagon-x",
        tone="red",
        text=(sentence,),
        kept="What you typed is kept",
        focus=True,
    )
