"""The page on which an administrator declares a provider."""

from __future__ import annotations

from dataclasses import dataclass

from console.pages.shapes.case import FieldError
from console.pages.shapes.parts import Banner, Choice, Fact
from console.pages.shapes.provider import PromiseSection, TrialResult


@dataclass(frozen=True, kw_only=True, slots=True)
class DeclarationField:
    """One field: what was typed, and what is wrong with it."""

    name: str
    label: str
    kind: str
    value: str
    hint: str = ""
    choices: tuple[Choice, ...] = ()
    errors: tuple[str, ...] = ()

    @property
    def described_by(self) -> str:
        parts = ((self.errors, "error"), (self.hint, "hint"))
        return " ".join(f"{self.name}-{part}" for there, part in parts if there)


@dataclass(frozen=True, kw_only=True, slots=True)
class DeclarationSection:
    """Fields about one matter. A narrow page folds it unless it is `opened`: the first, or one to mend."""

    name: str
    title: str
    text: str
    fields: tuple[DeclarationField, ...]
    opened: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class SampleView:
    """What a made-up answer would mean: as the reply to a send, and as a lookup's answer."""

    facts: tuple[Fact, ...]
    lookup: TrialResult | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class DeclaringPage:
    """`provider_new.html`. `closed` says why there is no form; `ready` that what is shown may be saved."""

    title: str
    href: str
    closed: str = ""
    slug: str = ""
    sections: tuple[DeclarationSection, ...] = ()
    text_field: DeclarationField | None = None
    sample_fields: tuple[DeclarationField, ...] = ()
    reason_field: DeclarationField | None = None
    by_text: bool = False
    seen_number: int = 0
    shown_digest: str = ""
    ready: bool = False
    promises: tuple[PromiseSection, ...] = ()
    promised: str = ""
    setup: tuple[Fact, ...] = ()
    sample: SampleView | None = None
    errors: tuple[FieldError, ...] = ()
    banner: Banner | None = None
