"""Tags and filters of the console's templates: icons, states, sentences, instants, amounts.

Everything here escapes what it is given. Text from outside goes through `wording.inert` as well, so that
it is seen as it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final, assert_never

from django import template
from django.templatetags.static import static
from django.utils import timezone
from django.utils.html import conditional_escape, format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from console.pages import wording
from console.pages.folds import folds_of
from console.pages.shapes import (
    Actor,
    Answer,
    Badge,
    Code,
    Link,
    Part,
    Since,
    Strong,
    Tone,
    Until,
    WaitBucket,
)
from runs.money import Money, format_money

register = template.Library()

# State → how it is shown. Dashed where nobody knows, solid where it is settled.
_STATES: Final[dict[tuple[str, str], Badge]] = {
    ("operation", "ready"): Badge(word="Ready", icon="circle-dot", tone="blue"),
    ("operation", "sent_unknown"): Badge(
        word="Sent, outcome unknown", icon="unknown", tone="amber", open=True
    ),
    ("operation", "confirmed"): Badge(word="Confirmed", icon="circle-check", tone="green"),
    ("operation", "rejected"): Badge(word="Rejected", icon="circle-x", tone="red"),
    ("operation", "abandoned"): Badge(word="Abandoned", icon="circle-slash", tone="grey"),
    ("case", "looking_up"): Badge(word="Looking up", icon="scan-search", tone="blue", open=True),
    ("case", "needs_decision"): Badge(word="Needs a decision", icon="unknown", tone="amber", open=True),
    ("case", "awaiting_approval"): Badge(word="Waiting for approval", icon="shield-check", tone="violet"),
    ("case", "retrying"): Badge(word="Retry under way", icon="rotate-ccw", tone="blue", open=True),
    ("case", "resolved"): Badge(word="Resolved", icon="circle-check", tone="green"),
    ("run", "open"): Badge(word="Open", icon="circle-dot", tone="blue"),
    ("run", "paused"): Badge(word="Paused", icon="circle-pause", tone="violet"),
    ("run", "completed"): Badge(word="Completed", icon="circle-check", tone="green"),
    ("run", "abandoned"): Badge(word="Abandoned", icon="circle-slash", tone="grey"),
}
_NEXT_STEPS: Final[dict[str, Badge]] = {
    "skip": Badge(word="Skip", icon="skip-forward", tone="green"),
    "read": Badge(word="Read", icon="eye", tone="blue"),
    "send": Badge(word="Send", icon="send", tone="grey"),
    "wait": Badge(word="Wait", icon="circle-pause", tone="violet"),
    "repeat": Badge(word="Repeat", icon="rotate-ccw", tone="amber"),
}
_ANSWERS: Final[dict[str, tuple[str, str, Tone]]] = {
    "yes": ("Yes", "check", "green"),
    "no": ("No", "x", "red"),
    "unknown": ("Unknown", "unknown", "amber"),
    "settled": ("Settled", "check", "grey"),
}


# --- Icons and states ---------------------------------------------------------------------------------


@register.simple_tag
def icon(name: str) -> SafeString:
    """Show an icon of the sprite; it says nothing by itself, so it is hidden from assistive technology."""
    return format_html(
        '<svg class="i" aria-hidden="true"><use href="{}#i-{}"/></svg>', static("recourse/icons.svg"), name
    )


def state_of(kind: str, value: str) -> Badge:
    """The badge of a state; `kind` is operation, case or run. An unknown one is shown as its own word."""
    found = _STATES.get((kind, str(value)))
    return found or Badge(word=str(value).replace("_", " ").capitalize(), icon="info")


@register.simple_tag
def badge(shown: Badge, form: str = "") -> SafeString:
    """Show a badge; `form` "bare" leaves out its box."""
    return format_html(
        '<span class="badge tone-{}{}{}">{}{}</span>',
        shown.tone,
        " badge--open" if shown.open else "",
        " badge--bare" if form == "bare" else "",
        icon(shown.icon),
        wording.inert(shown.word),
    )


@register.simple_tag
def state(kind: str, value: str, form: str = "") -> SafeString:
    """Show the state of an operation, a case or a run."""
    return badge(state_of(kind, value), form)


@register.simple_tag
def next_step(value: str) -> SafeString:
    """Show what a worker that resumed now would be told: skip, read, send, wait or repeat."""
    shown = _NEXT_STEPS[value]
    return format_html('<span class="next tone-{}">{}{}</span>', shown.tone, icon(shown.icon), shown.word)


@register.simple_tag
def answer(value: Answer) -> SafeString:
    """Show the answer to one of the five questions."""
    word, picture, tone = _ANSWERS[value]
    return format_html('<span class="ans ans--{} tone-{}">{}{}</span>', value, tone, icon(picture), word)


@register.simple_tag
def pips(answers: Iterable[Answer]) -> SafeString:
    """Show the five answers in a row of five small squares, with the same in words."""
    listed = list(answers)
    words = ", ".join(f"{number} {value}" for number, value in enumerate(listed, start=1))
    squares = format_html_join(
        "",
        '<span class="pip pip--{} tone-{}">{}</span>',
        ((value, _ANSWERS[value][2], icon(_ANSWERS[value][1])) for value in listed),
    )
    return format_html(
        '<span class="pips" role="img" aria-label="Recovery questions: {}">{}</span>', words, squares
    )


@register.simple_tag
def avatar(actor: Actor) -> SafeString:
    """Show somebody's initials: round for a person, square for a part of a system."""
    return format_html(
        '<span class="av{} tone-{}" aria-hidden="true">{}</span>',
        "" if actor.is_person else " av--system",
        actor.tone,
        actor.initials,
    )


@register.simple_tag
def who(actor: Actor) -> SafeString:
    """Show somebody with their initials."""
    return format_html(
        '<span class="who">{}{}</span>', avatar(actor), wording.inert(actor.name, length_max=120)
    )


@register.simple_tag
def copy(value: str, label: str) -> SafeString:
    """Show the button that copies `value`. Copying needs a script, so the script unhides it."""
    return format_html(
        '<button type="button" class="iconbtn iconbtn--copy" data-copy="{}" aria-label="Copy {}" hidden>'
        "{}</button>",
        value,
        label,
        icon("copy"),
    )


# The statuses under which a page of ours says why something was refused.
_REFUSALS: Final = (400, 403, 404, 409, 413, 415, 422, 423)


@register.simple_tag
def sends(href: str, target: str = "main") -> SafeString:
    """The attributes of a form that a script sends without leaving the page: its answers land in `target`.

    A refusal is a whole page, of which the middle is shown; without a script the browser shows all of it.
    """
    onto_page = "target:#main select:#main swap:outerHTML"
    select = SafeString(' hx-select="#main"') if target == "main" else ""
    return format_html(
        'hx-post="{}" hx-target="#{}"{} hx-swap="{}"{}',
        href,
        target,
        select,
        "outerHTML" if target == "main" else "innerHTML",
        format_html_join("", ' hx-status:{}="{}"', ((status, onto_page) for status in _REFUSALS)),
    )


@register.filter
def times(count: int) -> range:
    """A range to repeat a glyph; more than six glyphs are no picture any more."""
    return range(min(count, 6))


# --- Instants and amounts --------------------------------------------------------------------------------


def _now(context: template.Context) -> datetime:
    """The instant that the page was made for: its shape's, or else now."""
    page = context.get("page")
    return getattr(page, "now", None) or timezone.now()


def _time(at: datetime, text: str, relation: str = "") -> SafeString:
    # `relation` tells the script which way to count: since, age, until or left; "" leaves the text alone.
    return format_html(
        '<time datetime="{}" title="{}" data-relative="{}">{}</time>',
        wording.machine(at),
        wording.full(at),
        relation,
        text,
    )


@register.simple_tag(takes_context=True)
def instant(context: template.Context, at: datetime) -> SafeString:
    """Show an instant by the UTC clock; the whole date is in the tooltip, where a script adds local time."""
    return _time(at, wording.clock(at, now=_now(context)))


@register.simple_tag(takes_context=True)
def since(context: template.Context, at: datetime, form: str = "") -> SafeString:
    """Show how long ago something was: "2 min ago", or with form "bare" only "2 min"."""
    text = wording.span(_now(context) - at)
    return _time(at, text, "age") if form == "bare" else _time(at, f"{text} ago", "since")


@register.simple_tag(takes_context=True)
def until(context: template.Context, at: datetime, form: str = "") -> SafeString:
    """Show how long until something: "in 13 min", or with form "bare" only "13 min"."""
    now = _now(context)
    text = wording.span(at - now, fine=True)
    if at <= now:
        return _time(at, f"{wording.span(at - now)} ago", "since")
    return _time(at, text, "left") if form == "bare" else _time(at, f"in {text}", "until")


@register.filter
def ends(identifier: str) -> str:
    """Show an id by its ends, as "op_01M8…KVH0JHQ4", where a row has no room for all of it."""
    return identifier if len(identifier) <= 20 else f"{identifier[:7]}…{identifier[-8:]}"


@register.filter
def money(amount: Money | None) -> str:
    """Show an amount exactly; a dash where there is none."""
    return "–" if amount is None else format_money(amount)


@register.filter
def inert(text: object) -> str:
    """Show somebody else's text as it is: invisible characters made visible, and cut at a length."""
    return wording.inert(str(text))


@register.filter
def inert_text(text: str) -> str:
    """The same for a whole body, which is bounded where its view was made: only the bound is wider."""
    return wording.inert(text, length_max=wording.BODY_LENGTH_MAX)


@register.simple_tag
def folded(text: str) -> SafeString:
    """Show a whole body as it is; where it is laid-out JSON, what is deep or long can be folded.

    The text of the element is the body's, character for character, so that finding and copying need no more.
    """
    lines = text.split("\n")
    folds = folds_of(lines)
    ends = {fold.end for fold in folds.values()}
    parts: list[str] = []
    for number, line in enumerate(lines):
        shown = conditional_escape(wording.inert(line, length_max=len(line)))
        ended = "\n" if number < len(lines) - 1 else ""
        fold = folds.get(number)
        if number in ends:
            parts.append("</details>")
        if fold is None:
            parts.append(f"{shown}{ended}")
            continue
        count = f"{fold.lines_count:,} lines"
        parts.append(
            f'<details class="fold"{" open" if fold.open else ""}>'
            # The line's end is part of the text, and what stands behind the bracket stays on its line.
            f'<summary data-lines="{count}">{shown}<span class="fold__end">{ended}</span></summary>'
        )
    return mark_safe("".join(parts))  # noqa: S308 - each line is escaped above


@register.filter
def full_time(at: datetime) -> str:
    """An instant in full, for paper."""
    return wording.full(at)


# --- Sentences ---------------------------------------------------------------------------------------------


def _part(context: template.Context, part: Part) -> SafeString | str:
    match part:
        case str():
            return wording.inert(part)
        case Strong():
            return format_html("<b>{}</b>", wording.inert(part.text))
        case Code():
            return format_html('<span class="id">{}</span>', wording.inert(part.text))
        case Link():
            return format_html('<a href="{}">{}</a>', part.href, wording.inert(part.text))
        case Since():
            return since(context, part.at)
        case Until():
            return until(context, part.at)
        case datetime():
            return instant(context, part)
        case Money():
            return format_money(part)
    assert_never(part)


@register.simple_tag(takes_context=True)
def say(context: template.Context, phrase: Iterable[Part] | str) -> SafeString:
    """Show a sentence; each part is escaped and set as what it is."""
    parts: Iterable[Part] = (phrase,) if isinstance(phrase, str) else phrase
    return format_html_join("", "{}", ((_part(context, part),) for part in parts))


# --- Small charts -------------------------------------------------------------------------------------------

_HISTOGRAM_HEIGHT = 36
_HISTOGRAM_STEP = 80


@register.inclusion_tag("partials/histogram.html")
def histogram(buckets: Iterable[WaitBucket]) -> dict[str, Any]:
    """Show how long cases have waited, as bars with their counts; six buckets fill the width."""
    listed = list(buckets)
    most = max((bucket.count for bucket in listed), default=0) or 1
    bars = []
    for index, bucket in enumerate(listed):
        height = round(bucket.count * _HISTOGRAM_HEIGHT / most) if bucket.count else 0
        x = index * _HISTOGRAM_STEP
        top = 50 - height
        bars.append(
            {"bucket": bucket, "x": x + 6, "middle": x + 40, "y": top, "height": height, "above": top - 5}
        )
    words = ", ".join(f"{bucket.label}: {bucket.count}" for bucket in listed)
    return {"bars": bars, "width": max(len(listed), 1) * _HISTOGRAM_STEP, "words": words}
