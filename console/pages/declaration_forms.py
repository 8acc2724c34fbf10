"""The form that declares a provider, as it was typed: fields or text, a sample answer, and the reason."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from console.pages.declaration_fields import BY_NAME, FIELDS
from console.pages.declaration_making import make
from console.pages.forms import clean
from console.pages.shapes import FieldError
from reconciliation.declaring import Fault
from reconciliation.providers.declaration import FILE_BYTES_MAX
from reconciliation.providers.redaction import is_secret_shaped
from reconciliation.sampling import ANSWER_BYTES_MAX, Sample
from reconciliation.tightening import REASON_LENGTH_MAX

_BESIDE: Final = (
    "counts",
    "text",
    "seen_number",
    "shown_digest",
    "reason",
    "act",
    "sample_tool",
    "sample_payload",
    "sample_status",
    "sample_body",
)
# Wider than what is accepted, so that what was pasted comes back.
_LENGTHS: Final = {
    "text": FILE_BYTES_MAX * 2,
    "reason": REASON_LENGTH_MAX * 4,
    "sample_payload": ANSWER_BYTES_MAX * 2,
    "sample_body": ANSWER_BYTES_MAX * 2,
    "match_fields": 8_000,
    "lookup_query": 8_000,
}


class Act(StrEnum):
    """What a button of the form asks for."""

    PREVIEW = "preview"
    SAMPLE = "sample"
    SAVE = "save"


@dataclass(frozen=True)
class DeclarationDraft:
    """The form as it was typed. `fresh` is one that nobody has typed in yet: usual values stand in it."""

    typed: Mapping[str, str] = field(default_factory=dict)
    fresh: bool = False

    def __getitem__(self, name: str) -> str:
        usual = BY_NAME[name].default if self.fresh and name in BY_NAME else ""
        return self.typed.get(name, usual)

    @property
    def by_text(self) -> bool:
        """Whether the text counts, and not the fields."""
        return self["counts"] == "text"

    @property
    def act(self) -> Act:
        return Act(self["act"]) if self["act"] in set(Act) else Act.PREVIEW

    @property
    def seen_number(self) -> int:
        number = self["seen_number"] or "0"
        return int(number) if number.isascii() and number.isdecimal() and len(number) < 9 else -1

    def declaration(self) -> tuple[str, tuple[FieldError, ...], Mapping[str, str]]:
        """The declaration's text, what can't be read of the fields, and where places of it came from."""
        if self.by_text:
            return self["text"], (), {}
        made = make(self.__getitem__)
        return made.text, made.errors, made.places

    def sample(self) -> Sample:
        status = self["sample_status"].strip() or "200"
        return Sample(
            payload=self["sample_payload"].strip() or "{}",
            status=int(status) if status.isascii() and status.isdecimal() and len(status) == 3 else 0,
            body=self["sample_body"],
            tool=self["sample_tool"].strip(),
        )

    def placed(self, faults: tuple[Fault, ...], places: Mapping[str, str]) -> tuple[FieldError, ...]:
        """Each fault beside the field that it is about; beside the text where no field says it."""
        return tuple(
            FieldError(field=self._field_of(one.place, places), sentence=one.sentence) for one in faults
        )

    def _field_of(self, place: str, places: Mapping[str, str]) -> str:
        if self.by_text:
            return "text"
        known = {**{at: one.name for one in FIELDS for at in one.places}, **places}
        while place:
            if place in known:
                return known[place]
            if place.partition(" #")[0] in known:
                return known[place.partition(" #")[0]]
            place = place.rpartition(".")[0]
        return "text"

    def without(self, names: set[str], *, text: str) -> DeclarationDraft:
        """The form to show again: without these fields' values and whatever is shaped like a secret."""
        kept = {
            name: value
            for name, value in self.typed.items()
            if name not in names and not is_secret_shaped(value)
        }
        return DeclarationDraft({**kept, "text": text})


def read_declaration(posted: Mapping[str, str]) -> DeclarationDraft:
    """The form of a POST."""
    names = (*BY_NAME, *_BESIDE)
    return DeclarationDraft(
        {name: clean(posted[name])[: _LENGTHS.get(name, 1_000)] for name in names if posted.get(name)}
    )


def digest_of(text: str) -> str:
    """What ties a save to the declaration that was shown."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
