"""JSONPath over answers that may be anything: a value, or the fact that it isn't there."""

from __future__ import annotations

import re
from enum import Enum
from functools import lru_cache
from typing import Any, Final

import jsonpath


class Missing(Enum):
    """Stands for "no such value", which is not the same as null."""

    MISSING = "missing"


MISSING: Final = Missing.MISSING


@lru_cache(maxsize=1024)
def compile_path(path: str) -> Any:
    """Return the compiled path; raises `ValueError` with the library's reason for a path it can't read."""
    try:
        return jsonpath.compile(path)
    except jsonpath.JSONPathError as error:
        raise ValueError(str(error).splitlines()[0]) from None


@lru_cache(maxsize=1024)
def _member_of_root(path: str) -> str | None:
    """The name in a path such as `$.id`, which most are: a look into a dictionary says the same, sooner."""
    found = re.fullmatch(r"\$\.([A-Za-z_][A-Za-z0-9_]*)", path)
    return None if found is None else found[1]


def value_at(path: str, document: object) -> Any:
    """Return the one value at `path`, or `MISSING` where there is none or more than one."""
    if path == "$":
        return document
    if isinstance(document, dict) and (name := _member_of_root(path)) is not None:
        return document.get(name, MISSING)
    # The library would read a bare string as JSON text, so only containers are handed to it.
    if not isinstance(document, dict | list):
        return MISSING
    found = compile_path(path).findall(document)
    return found[0] if len(found) == 1 else MISSING


def values_at(path: str, document: object) -> list[Any]:
    """Return every value at `path`, in order; empty where there is none."""
    if not isinstance(document, dict | list):
        return [document] if path == "$" else []
    return list(compile_path(path).findall(document))


def text_at(path: str | None, document: object) -> str | None:
    """Return the text or number at `path` as text; None where there is no path, no value, or another type."""
    if path is None:
        return None
    value = value_at(path, document)
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return None
