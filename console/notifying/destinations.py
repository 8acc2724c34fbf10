"""Where notifications may go: the webhooks that the environment names, and whether there is a mail server.

A webhook's address is a secret of its own with many services (whoever knows it can post), so it is never in
the database: `NOTIFY_OPS__URL` and `NOTIFY_OPS__SECRET` make a webhook that a team picks by the name `ops`.
Either may be in a file whose path is in the variable with `_FILE` behind it.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from reconciliation.providers.reach import LISTABLE, AddressRange, Reach, own_host

_NAME: Final = re.compile(r"NOTIFY_([A-Z0-9]+(?:_[A-Z0-9]+)*)__URL(_FILE)?\Z")
# Of the Standard Webhooks form: what comes after is base64 of the bytes that sign.
_SECRET_MARK: Final = "whsec_"  # noqa: S105 - a mark, not a secret
# A shorter one could be found by trying.
SECRET_BYTES_MIN: Final = 24
FILE_BYTES_MAX: Final = 64 * 1024


@dataclass(frozen=True, kw_only=True)
class Webhook:
    """A webhook of the environment. `key` signs; `ranges` are what its host may lead to beside public."""

    name: str
    url: str = field(repr=False)
    key: bytes = field(repr=False)
    ranges: frozenset[AddressRange] = frozenset()

    @property
    def host(self) -> str:
        """What may be shown of the address."""
        return urlsplit(self.url).hostname or ""

    @property
    def reach(self) -> Reach:
        return Reach(own_host(self.url, self.ranges))


def read_webhooks(environ: Mapping[str, str]) -> dict[str, Webhook]:
    """The webhooks that the environment names, by name. Raises `ValueError` with a sentence for a fault."""
    names = sorted({found[1] for variable in environ if (found := _NAME.match(variable))})
    webhooks = [_read(name, environ) for name in names]
    return {one.name: one for one in webhooks}


def _read(name: str, environ: Mapping[str, str]) -> Webhook:
    prefix = f"NOTIFY_{name}__"
    url = secret_of(f"{prefix}URL", environ)
    parts = urlsplit(url)
    if parts.scheme not in ("https", "http") or not parts.hostname:
        raise ValueError(f"{prefix}URL must be an address that starts with https:// (or http://)")
    words = [word for word in environ.get(f"{prefix}REACH", "").split("+") if word]
    if any(word not in LISTABLE for word in words):
        raise ValueError(f"{prefix}REACH must be private, loopback or private+loopback")
    return Webhook(
        name=name.lower().replace("_", "-"),
        url=url,
        key=_key(f"{prefix}SECRET", secret_of(f"{prefix}SECRET", environ)),
        ranges=frozenset(AddressRange(word) for word in words),
    )


def _key(variable: str, secret: str) -> bytes:
    key = secret.encode()
    if secret.startswith(_SECRET_MARK):
        try:
            key = base64.b64decode(secret.removeprefix(_SECRET_MARK), validate=True)
        except binascii.Error:
            raise ValueError(f"{variable} starts with whsec_ and isn't base64 after it") from None
    if len(key) < SECRET_BYTES_MIN:
        raise ValueError(
            f"{variable} must be at least {SECRET_BYTES_MIN} bytes: receivers check by it who sent"
        )
    return key


def secret_of(variable: str, environ: Mapping[str, str]) -> str:
    """The value of a variable, or the content of the file that `<variable>_FILE` points at; "" for neither.

    Raises `ValueError` where both are set, or the file can't be read.
    """
    value, path = environ.get(variable, ""), environ.get(f"{variable}_FILE", "")
    if value and path:
        raise ValueError(f"{variable} and {variable}_FILE are both set; which one counts can't be told")
    if not path:
        return value.strip()
    try:
        with Path(path).open("rb") as file:
            return file.read(FILE_BYTES_MAX).decode("utf-8").strip()
    except (OSError, ValueError):
        raise ValueError(f"the file that {variable}_FILE names can't be read as text") from None
