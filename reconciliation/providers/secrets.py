"""Secrets by reference: a declaration names where one is, and the process reads it from there.

A secret is in an environment variable, or in a file whose path is in one (`NAME_FILE`, as container platforms
mount secrets). It is never in a declaration, the database, evidence, a log or a page: what is kept is the
reference, and a fingerprint that tells two secrets apart.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from reconciliation.contracts import fingerprint
from reconciliation.providers.tables import Table, found_text

# The longest secret in use anywhere is a PEM key of some kilobytes; more is not a secret's file.
SECRET_BYTES_MAX = 64 * 1024
# What is put behind a variable's name for the path of a file that holds its value.
FILE_SUFFIX = "_FILE"
ALLOWED = '{ env = "NAME" } or { file_env = "NAME" }: a secret is never written into the file'

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}\Z")


@dataclass(frozen=True, kw_only=True, slots=True)
class Secret:
    """One reference, looked up. `env` is the variable that was named; `value` is None while there is none."""

    env: str
    value: str | None = field(repr=False)

    @property
    def fingerprint(self) -> str | None:
        return None if self.value is None else fingerprint(self.value)


def read_secret(table: Table, environ: Mapping[str, str]) -> Secret:
    """Read `{ env = "NAME" }` or `{ file_env = "NAME" }`; faults are noted, the caller finishes the table.

    `env`: the value of NAME, or the content of the file that NAME_FILE points at; both at once is a fault,
    because nobody could tell which is in use. `file_env`: the content of the file that NAME points at.
    A variable that isn't set, and a file that can't be read, are no faults: the secret is missing.
    """
    if "file_env" in table:
        name = env_name(table, "file_env")
        return Secret(env=name, value=_content(environ.get(name, "")))
    name = env_name(table, "env")
    value, path = environ.get(name, ""), environ.get(f"{name}{FILE_SUFFIX}", "")
    if name and value and path:
        table.fault("env", found=f"both {name} and {name}{FILE_SUFFIX} set", allowed="one of the two")
    return Secret(env=name, value=value or _content(path))


def env_name(table: Table, name: str, *, allowed: str = ALLOWED) -> str:
    """The name of an environment variable; empty where what stands there can't be one."""
    value = table.text(name, allowed=allowed)
    if value and not _ENV_NAME.match(value):
        table.fault(name, found=found_text(value), allowed="the name of an environment variable")
        return ""
    return value


def _content(path: str) -> str | None:
    """A secret file's text without the line end that editors put behind it; None where there is none."""
    if not path:
        return None
    try:
        with Path(path).open("rb") as file:
            content = file.read(SECRET_BYTES_MAX + 1)
        text = content.decode("utf-8")
    except (OSError, ValueError):
        return None
    if len(content) > SECRET_BYTES_MAX:
        return None
    return text.removesuffix("\n").removesuffix("\r") or None
