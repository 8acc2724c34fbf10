"""The forms of a provider's page, kept through every refusal: a lookup on trial, and a tightening."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

from console.pages.forms import clean
from console.pages.shapes import FieldError
from reconciliation.rehearsal import PAYLOAD_BYTES_MAX, About
from reconciliation.strictness import RULES, Held, Rule, Unit

_TRIAL: Final = ("operation", "key", "tool", "payload", "reference", "first_sent_at")
_UNITS_MS: Final = {"ms": 1, "s": 1_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)\s*(ms|s|min|h|d)\Z")
_RATE: Final = re.compile(r"[0-9]{1,6}(?:\.[0-9]{1,4})?\Z")


@dataclass(frozen=True)
class TrialDraft:
    """What somebody asks a provider about, as it was typed."""

    fields: Mapping[str, str] = field(default_factory=dict)

    def __getitem__(self, name: str) -> str:
        return self.fields.get(name, "")

    @property
    def by_hand(self) -> bool:
        """Whether anything of the part for something that the journal doesn't hold is filled in."""
        return any(self[name].strip() for name in _TRIAL if name != "operation")

    def about(self) -> About | FieldError:
        """The question to ask the domain for, or the field that can't be read."""
        first_sent_at = None
        if self["first_sent_at"].strip():
            first_sent_at = instant_in(self["first_sent_at"].strip())
            if first_sent_at is None:
                sentence = "Write it as 2026-11-30 14:05, in UTC"
                return FieldError(field="first_sent_at", sentence=sentence)
        return About(
            operation=self["operation"].strip(),
            key=self["key"].strip(),
            tool=self["tool"].strip(),
            payload=self["payload"].strip(),
            reference=self["reference"].strip(),
            first_sent_at=first_sent_at,
        )


def read_trial(posted: Mapping[str, str]) -> TrialDraft:
    """The form of a POST; wider than what is accepted, so that what was pasted comes back."""
    limits = {"payload": PAYLOAD_BYTES_MAX * 2}
    return TrialDraft(
        {name: clean(posted[name])[: limits.get(name, 1_000)] for name in _TRIAL if posted.get(name)}
    )


@dataclass(frozen=True)
class TighteningDraft:
    """What an administrator wants to tighten, as it was typed; an empty field is left as it is."""

    fields: Mapping[str, str] = field(default_factory=dict)

    def __getitem__(self, name: str) -> str:
        return self.fields.get(name, "")

    @property
    def seen_number(self) -> int:
        number = self["seen_number"]
        return int(number) if number.isdecimal() and len(number) < 9 else -1

    def wanted(self) -> tuple[dict[str, Held], tuple[FieldError, ...]]:
        """The values by field, and what can't be read."""
        values: dict[str, Held] = {}
        errors = []
        for rule in RULES:
            text = self[rule.field].strip()
            if not text:
                continue
            value = _value(rule, text)
            if isinstance(value, str):
                errors.append(FieldError(field=rule.field, sentence=value))
            else:
                values[rule.field] = value
        if not values and not errors:
            errors.append(FieldError(field=RULES[0].field, sentence="Tighten at least one thing"))
        return values, tuple(errors)


def read_tightening(posted: Mapping[str, str]) -> TighteningDraft:
    """The form of a POST."""
    names = (*(rule.field for rule in RULES), "reason", "seen_number")
    limits = {"reason": 16_000}
    return TighteningDraft(
        {name: clean(posted[name])[: limits.get(name, 100)] for name in names if posted.get(name)}
    )


def _value(rule: Rule, text: str) -> Held | str:
    """The value, or the sentence that says why it can't be read."""
    match rule.unit:
        case Unit.SWITCH:
            return False if text == "off" else "Leave it as it is, or switch it off"
        case Unit.PER_SECOND:
            return float(text) if _RATE.match(text) else "Write a number, such as 0.5"
        case Unit.MILLISECONDS:
            found = _DURATION.match(text)
            milliseconds = Decimal(found[1]) * _UNITS_MS[found[2]] if found else None
            if milliseconds is None or milliseconds != int(milliseconds):
                return "Write a duration with its unit: 250 ms, 30 s, 5 min, 12 h or 7 d"
            return int(milliseconds)


def instant_in(text: str) -> datetime | None:
    """A time as people write it, in UTC unless it says otherwise; None if it can't be read."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    try:
        return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
