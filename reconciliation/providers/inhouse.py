"""Which variables a declaration of the console may name: those of its own account, and no others.

Whoever declares an in-house API chooses its address and where its secret goes. By the name of another
provider's variable that would be that provider's secret, sent to an address of their choosing, or shown as a
setting. So the names are bound to the account: `INHOUSE_`, its slug in capitals with `_` for `-`, `__`, and a
name. Files are written by whoever runs the installation, and aren't held to this.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from typing import Any

from reconciliation.providers.tables import DeclarationInvalid

PREFIX = "INHOUSE_"
# Where a declaration takes something from the environment.
_FROM_OUTSIDE = ("base_url", "settings", "credentials", "webhook")
_REFERENCES = ("env", "file_env")
# No `__` in it: `INHOUSE_SHOP__ORDERS__TOKEN` is of the account shop--orders, and not of shop.
_NAME = re.compile(r"[A-Z0-9]+(?:_[A-Z0-9]+)*\Z")
# What is shown of a wrong name: a secret that was typed instead of one rarely looks like this.
_SHOWABLE = re.compile(r"[A-Z_][A-Z0-9_]{0,127}\Z")


def prefix_of(slug: str) -> str:
    """What the names of this account's variables start with: "INHOUSE_SHOP_ORDERS__"."""
    return f"{PREFIX}{slug.upper().replace('-', '_')}__"


def check_names(text: str, *, slug: str, shown_as: str) -> None:
    """Raise `DeclarationInvalid` unless everything that this declaration takes from outside is its account's.

    `text` has been read already, so it is a TOML file that can be.
    """
    prefix = prefix_of(slug)
    problems, places = [], []
    for place, name in _names(tomllib.loads(text)):
        if name.startswith(prefix) and _NAME.match(name.removeprefix(prefix)):
            continue
        found = f"found {name}; " if _SHOWABLE.match(name) else ""
        problems.append(
            f"{shown_as}: {place}: {found}allowed: a variable of this account alone, {prefix} and a name in"
            f" capitals, such as {prefix}TOKEN. Any other could hold what belongs to another provider."
        )
        places.append(place)
    if problems:
        raise DeclarationInvalid(" ".join(problems), problems=problems, places=places)


def _names(data: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for table in _FROM_OUTSIDE:
        yield from _within(data.get(table), table)


def _within(value: Any, place: str) -> Iterator[tuple[str, str]]:
    match value:
        case dict():
            for name, inner in value.items():
                if name in _REFERENCES and isinstance(inner, str):
                    yield f"{place}.{name}", inner
                else:
                    yield from _within(inner, f"{place}.{name}")
        case list():
            for inner in value:
                yield from _within(inner, place)
        case _:
            return
