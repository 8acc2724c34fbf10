"""What narrows the queue: an address as fields, as chips that take a filter away, as links that keep it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal, InvalidOperation
from typing import Final
from urllib.parse import urlencode

from django.urls import reverse

from console.pages.present import naming
from console.pages.present.marks import FINDINGS, NEEDS
from console.pages.shapes import Chip, Choice, Filter
from console.queries.finding import clean
from console.queries.queue import ME, NOBODY, Asked, Listed, View

AGES: Final = {
    "15min": timedelta(minutes=15),
    "1h": timedelta(hours=1),
    "4h": timedelta(hours=4),
    "24h": timedelta(hours=24),
}
_AGE_LABELS: Final = {"15min": "Over 15 min", "1h": "Over 1 h", "4h": "Over 4 h", "24h": "Over 24 h"}
# The names that the address has for what a list is narrowed to, in the order of the fields.
NARROWING: Final = ("q", "provider", "flow", "tool", "finding", "reason", "age", "min", "assignee")
AMOUNT_LENGTH_MAX = 16
# What the journal calls a person, by their number.
_PERSON: Final = re.compile(r"person:[0-9]{1,18}")


@dataclass(frozen=True, kw_only=True)
class Address:
    """What a queue's address says: what is asked, and its own words, so that links keep the filters.

    `words` holds only what was understood, never the place in the list.
    """

    asked: Asked
    words: dict[str, str]

    @property
    def age(self) -> str:
        return self.words.get("age", "")

    @property
    def minimum(self) -> str:
        return self.words.get("min", "")

    def href(self, **changes: str) -> str:
        """The queue under these filters, with some of them changed; "" takes one away."""
        words = {name: value for name, value in {**self.words, **changes}.items() if value}
        return f"{reverse('queue')}?{urlencode(words)}" if words else reverse("queue")

    @property
    def query(self) -> str:
        """The filters and the view as one text, always in the same order: what a saved view keeps."""
        return urlencode(self.words)


def read_address(given: Mapping[str, str], *, me: str) -> Address:
    """Read what an address asks for; what can't be read is dropped. `me`: the actor who asks."""
    view = given.get("view", "")
    amount = _amount(given.get("min", ""))
    age = given.get("age", "")
    asked = Asked(
        view=View(view) if view in set(View) else View.NEEDS_DECISION,
        text=clean(given.get("q", "")),
        provider=clean(given.get("provider", "")),
        flow=clean(given.get("flow", "")),
        tool=clean(given.get("tool", "")),
        finding=clean(given.get("finding", "")),
        reason=clean(given.get("reason", "")),
        amount_min=amount,
        waiting_min=AGES.get(age),
        assignee=_assignee(given.get("assignee", "")),
        me=me,
        after=given.get("after", ""),
    )
    words = {
        "view": "" if asked.view is View.NEEDS_DECISION else str(asked.view),
        "q": asked.text,
        "provider": asked.provider,
        "flow": asked.flow,
        "tool": asked.tool,
        "finding": asked.finding,
        "reason": asked.reason,
        "age": age if age in AGES else "",
        "min": "" if amount is None else f"{amount:f}",
        "assignee": asked.assignee,
    }
    return Address(asked=asked, words={name: value for name, value in words.items() if value})


def _assignee(text: str) -> str:
    """One of the two words, or a person's actor."""
    return text if text in (ME, NOBODY) or _PERSON.fullmatch(text) else ""


def _amount(text: str) -> Decimal | None:
    """ "1,240.00" or "€ 1240" as a number of major units."""
    plain = "".join(one for one in text[:AMOUNT_LENGTH_MAX] if one in "0123456789.")
    try:
        return Decimal(plain) if plain else None
    except InvalidOperation:
        return None


def filters_of(listed: Listed, address: Address) -> tuple[Filter, ...]:
    """The fields of the form, with what is chosen now; what nobody offers any more stays chosen."""
    asked = address.asked
    return (
        Filter(name="view", label="View", value=str(asked.view), input_type="hidden"),
        Filter(
            name="q",
            label="Id, key, run or receipt, or a part",
            value=asked.text,
            placeholder="op_…, key or run_…",
            grows=True,
        ),
        Filter(
            name="provider",
            label="Provider",
            choices=_choices("Any provider", _as_named(listed.choices.providers), asked.provider),
        ),
        Filter(
            name="flow",
            label="Flow",
            choices=_choices("Any flow", _as_named(listed.choices.flows), asked.flow),
        ),
        Filter(
            name="tool",
            label="Tool",
            choices=_choices("Any tool", ((one, _tool(one)) for one in listed.choices.tools), asked.tool),
        ),
        Filter(
            name="finding",
            label="Last finding",
            choices=_choices("Any finding", _finding_labels(), asked.finding),
        ),
        Filter(
            name="reason", label="Asked because", choices=_choices("Any reason", _reasons(), asked.reason)
        ),
        Filter(name="age", label="Waiting", choices=_choices("Any time", _AGE_LABELS.items(), address.age)),
        Filter(
            name="min",
            label="At risk, at least",
            value=address.minimum,
            placeholder="0.00",
            input_type="text",
        ),
        Filter(
            name="assignee",
            label="Worked on by",
            choices=_choices("Anyone", _assignees(listed, asked), asked.assignee),
        ),
    )


def _as_named(names: Iterable[str]) -> Iterable[tuple[str, str]]:
    return ((one, one) for one in names)


def _assignees(listed: Listed, asked: Asked) -> list[tuple[str, str]]:
    others = [(actor, name) for actor, name in listed.choices.people if actor != asked.me]
    return [(ME, "Me"), (NOBODY, "Nobody"), *others]


def chips_of(address: Address, listed: Listed) -> tuple[Chip, ...]:
    """Every filter that narrows the list now, each with the address that takes it away."""
    people = dict(_assignees(listed, address.asked))
    said = {**address.words, "assignee": people.get(address.asked.assignee, address.asked.assignee)}
    return tuple(
        Chip(
            name=_CHIP_PARTS if name == "q" and listed.by_part else _CHIP_NAMES[name],
            value=_said(name, said[name]),
            href=address.href(**{name: ""}),
        )
        for name in NARROWING
        if name in address.words
    )


_CHIP_NAMES: Final = {
    "q": "Named",
    "provider": "Provider",
    "flow": "Flow",
    "tool": "Tool",
    "finding": "Last finding",
    "reason": "Asked because",
    "age": "Waiting",
    "min": "At risk, at least",
    "assignee": "Worked on by",
}
# Nothing is called exactly this.
_CHIP_PARTS: Final = "Contains"


def _said(name: str, value: str) -> str:
    match name:
        case "tool":
            return _tool(value)
        case "finding":
            return dict(_finding_labels()).get(value, value)
        case "reason":
            return dict(_reasons()).get(value, value)
        case "age":
            return _AGE_LABELS[value].lower()
        case _:
            return value


def _tool(name: str) -> str:
    return " ".join(naming.words_of(name)).capitalize() or name


def _finding_labels() -> list[tuple[str, str]]:
    return [(finding, badge.word) for finding, badge in FINDINGS.items()]


def _reasons() -> list[tuple[str, str]]:
    return [(str(need), label) for need, label in NEEDS.items()]


def _choices(any_label: str, offered: Iterable[tuple[str, str]], chosen: str) -> tuple[Choice, ...]:
    listed = [Choice(value="", label=any_label)]
    listed += [Choice(value=value, label=label, selected=value == chosen) for value, label in offered]
    if chosen and not any(one.selected for one in listed):
        listed.append(Choice(value=chosen, label=chosen, selected=True))
    return tuple(listed)
