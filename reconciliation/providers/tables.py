"""Reading TOML tables strictly: every fault of a file is found in one pass and said in a sentence.

A reader asks for each field by name and type. What is missing, of another type or not allowed is noted with
the file, the table, the field, what was found and what is allowed; a name that nobody asked for is a fault
too, with the nearest allowed name. The caller gets a harmless stand-in meanwhile, and raises at the end.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from enum import StrEnum
from typing import Any, ClassVar, TypeVar

from reconciliation.providers.paths import compile_path
from reconciliation.providers.templates import PLAIN_NAMES, Template, TemplateFault
from runs.refusals import Invalid

_Choice = TypeVar("_Choice", bound=StrEnum)
_Made = TypeVar("_Made")

FOUND_LENGTH_MAX = 60


class DeclarationInvalid(Invalid):
    """One or more provider files can't be used; `problems` in the details has one sentence for each fault.

    Of a single declaration `places` says, in the same order, which field each is about.
    """

    word: ClassVar[str] = "invalid"


@dataclass
class Faults:
    """The faults of one file, in the order in which they were met; `places` names each one's field."""

    file: str
    sentences: list[str] = field(default_factory=list)
    places: list[str] = field(default_factory=list)

    def note(self, table: str, name: str, *, found: str, allowed: str, hint: str = "") -> None:
        where = f"[{table}] {name}" if table else name
        sentence = f"{self.file}: {where}: found {found}; allowed: {allowed}."
        self.sentences.append(f"{sentence} {hint}".strip())
        self.places.append(f"{table}.{name}" if table else name)


class Table:
    """One TOML table being read. Every accessor marks its field as known; `finish` notes the rest."""

    def __init__(self, data: Mapping[str, Any], *, name: str, faults: Faults) -> None:
        self.name = name
        self.faults = faults
        self._data = data
        self._known: list[str] = []

    def __contains__(self, name: str) -> bool:
        if name not in self._known:
            self._known.append(name)
        return name in self._data

    def finish(self) -> None:
        """Note every member that nothing asked for."""
        for name in self._data:
            if name not in self._known:
                near = difflib.get_close_matches(name, self._known, n=1)
                self.fault(
                    name,
                    found="an unknown name",
                    allowed=", ".join(sorted(self._known)) or "nothing",
                    hint=f"Did you mean {near[0]}?" if near else "",
                )

    def fault(self, name: str, *, found: str, allowed: str, hint: str = "") -> None:
        self.faults.note(self.name, name, found=found, allowed=allowed, hint=hint)

    # -- plain values

    def text(
        self, name: str, default: str | None = None, *, allowed: str = "text", empty: bool = False
    ) -> str:
        """A string; without a `default` it must be there, and unless `empty` it must say something."""
        value = self._take(name, allowed, required=default is None)
        if value is None:
            return default or ""
        if not isinstance(value, str) or (not value.strip() and not empty):
            self.fault(name, found=found_text(value), allowed=allowed)
            return default or ""
        return value

    def text_if_written(self, name: str) -> str | None:
        """The member if it is text; None, and no fault, where it is something else or isn't there."""
        value = self._take(name, "text", required=False)
        return value if isinstance(value, str) else None

    def optional_text(self, name: str, *, allowed: str = "text") -> str | None:
        return self.text(name, "", allowed=allowed) or None

    def whole(self, name: str, default: int | None = None, *, low: int = 0, high: int = 10**15) -> int:
        """A whole number inside its bounds; a number of milliseconds unless the name says otherwise."""
        allowed = f"a whole number from {low} to {high}"
        value = self._take(name, allowed, required=default is None)
        if value is None:
            return low if default is None else default
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            self.fault(name, found=found_text(value), allowed=allowed)
            return low
        return value

    def optional_whole(self, name: str, *, low: int = 0) -> int | None:
        return None if self._take(name, "", required=False) is None else self.whole(name, low=low)

    def rate(self, name: str) -> float:
        allowed = "a number above 0, at most 1000"
        value = self._take(name, allowed, required=True)
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= 1000:
            return float(value)
        if value is not None:
            self.fault(name, found=found_text(value), allowed=allowed)
        return 1.0

    def flag(self, name: str, default: bool | None = None) -> bool:
        value = self._take(name, "true or false", required=default is None)
        if isinstance(value, bool):
            return value
        if value is not None:
            self.fault(name, found=found_text(value), allowed="true or false")
        return bool(default)

    def day(self, name: str, default: date | None = None) -> date | None:
        value = self._take(name, "a date such as 2026-11-29", required=False)
        if value is None:
            return default
        # A TOML date-time is a datetime, which Python calls a date as well.
        if type(value) is not date:
            self.fault(name, found=found_text(value), allowed="a date such as 2026-11-29, without quotes")
            return default
        return value

    def choice(self, name: str, options: type[_Choice], default: _Choice | None = None) -> _Choice:
        words = [option.value for option in options]
        stand_in = default or next(iter(options))
        value = self._take(name, ", ".join(words), required=default is None)
        if value is None:
            return stand_in
        if value not in words:
            near = difflib.get_close_matches(str(value), words, n=1)
            hint = f"Did you mean {near[0]}?" if near else ""
            self.fault(name, found=found_text(value), allowed=", ".join(words), hint=hint)
            return stand_in
        return options(value)

    def words(self, name: str) -> tuple[str, ...]:
        """A list of strings; empty where the member isn't there."""
        value = self._take(name, "a list of texts", required=False)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(one, str) and one for one in value):
            self.fault(name, found=found_text(value), allowed="a list of texts")
            return ()
        return tuple(value)

    def statuses(self, name: str, default: Iterable[int] = ()) -> tuple[int, ...]:
        """HTTP status codes: numbers from 100 to 599, or classes such as "4xx"."""
        allowed = 'a list of status codes, such as [404, "5xx"]'
        value = self._take(name, allowed, required=False)
        if value is None:
            return tuple(default)
        codes: list[int] = []
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, str) and one in ("1xx", "2xx", "3xx", "4xx", "5xx"):
                codes.extend(range(int(one[0]) * 100, int(one[0]) * 100 + 100))
            elif isinstance(one, int) and not isinstance(one, bool) and 100 <= one <= 599:
                codes.append(one)
            else:
                self.fault(name, found=found_text(one), allowed=allowed)
        return tuple(codes)

    # -- values with a form of their own

    def path(self, name: str, default: str | None = None) -> str | None:
        """A JSONPath; None where it isn't there and has no default."""
        value = self.text(name, default or "", allowed="a JSONPath such as $.id")
        if not value:
            return None
        try:
            compile_path(value)
        except ValueError as error:
            self.fault(name, found=found_text(value), allowed="a JSONPath such as $.id", hint=f"({error})")
            return default
        return value

    def paths(self, name: str) -> tuple[str, ...]:
        """A list of JSONPaths; empty where the member isn't there."""
        found = self.words(name)
        for one in found:
            try:
                compile_path(one)
            except ValueError as error:
                allowed = "JSONPaths such as $.id"
                self.fault(name, found=found_text(one), allowed=allowed, hint=f"({error})")
                return ()
        return found

    def template(self, name: str, default: str | None = None, *, known: Iterable[str]) -> Template:
        """Text with placeholders, each of them one that exists."""
        return self.as_template(name, self.text(name, default), known=known)

    def as_template(self, name: str, source: str, *, known: Iterable[str]) -> Template:
        """`known`: the file's own placeholders, such as "secret.token" and "setting.account"."""
        known = list(known)
        allowed = ", ".join(f"{{{one}}}" for one in (*PLAIN_NAMES, "payload.NAME", *known))
        try:
            template = Template(source)
        except TemplateFault as error:
            self.fault(name, found=found_text(source), allowed=allowed, hint=f"({error})")
            return Template("")
        for used in template.names:
            if used.startswith(("secret.", "setting.", "place.")) and used not in known:
                near = difflib.get_close_matches(used, known, n=1)
                tables = {"secret": "credentials", "setting": "settings", "place": "listing.places.values"}
                table = tables[used.partition(".")[0]]
                hint = f"Did you mean {{{near[0]}}}?" if near else f"Name it under [{table}] first."
                self.fault(name, found=f"{{{used}}}", allowed=allowed, hint=hint)
        return template

    # -- tables inside

    def table(self, name: str, *, required: bool = False) -> Table | None:
        value = self._take(name, "a table", required=required)
        if value is None:
            return None
        if not isinstance(value, dict):
            self.fault(name, found=found_text(value), allowed=f"a table [{self._inner(name)}]")
            return None
        return Table(value, name=self._inner(name), faults=self.faults)

    def tables(self, name: str, make: Callable[[Table], _Made], *, secret: bool = False) -> tuple[_Made, ...]:
        """Each table of a list of tables, read by `make` and then checked for unknown names.

        `secret`: what stands there instead may be one, so a fault doesn't repeat it.
        """
        value = self._take(name, "a list of tables", required=False)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
            found = "something else" if secret else found_text(value)
            self.fault(name, found=found, allowed=f"tables [[{self._inner(name)}]]")
            return ()
        made = []
        for number, one in enumerate(value, start=1):
            inner = Table(one, name=f"{self._inner(name)} #{number}", faults=self.faults)
            made.append(make(inner))
            inner.finish()
        return tuple(made)

    def members(self) -> Mapping[str, Any]:
        """Every member as it stands, all of them now known: for tables whose names are free."""
        self._known.extend(self._data)
        return self._data

    def inner(self, name: str, value: Mapping[str, Any]) -> Table:
        """A table that was reached by a free name."""
        return Table(value, name=self._inner(name), faults=self.faults)

    def _inner(self, name: str) -> str:
        return f"{self.name}.{name}" if self.name else name

    def _take(self, name: str, allowed: str, *, required: bool) -> Any:
        if name not in self._known:
            self._known.append(name)
        if name not in self._data and required:
            self.fault(name, found="nothing", allowed=allowed)
        return self._data.get(name)


def found_text(value: object) -> str:
    """What was found, short enough for a sentence."""
    shown = f'"{value}"' if isinstance(value, str) else repr(value)
    return shown if len(shown) <= FOUND_LENGTH_MAX else f"{shown[:FOUND_LENGTH_MAX]}…"
