"""Identifiers: a prefix that says what it names, and a ULID, so that newer ids sort after older ones."""

from __future__ import annotations

import re
import secrets
import time

from runs.refusals import Invalid

# Crockford's base 32: no I, L, O or U, so that an id read aloud or typed by hand keeps its meaning.
ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
RANDOM_BITS = 80
# The ULID layout: 48 bits of milliseconds and 80 random bits make 26 characters of 5 bits.
ULID_LENGTH = 26

CLIENT_ID_LENGTH_MAX = 64
_CLIENT_ID = re.compile(r"[A-Za-z0-9_.:-]{1,64}\Z")


def new_id(prefix: str) -> str:
    """Mint an id such as `op_01KB7Q3M9T…`: prefix, underscore, 26 characters of ULID.

    The clock in it is for ordering only and decides nothing; uniqueness rests on the 80 random bits.
    """
    number = (time.time_ns() // 1_000_000) << RANDOM_BITS | secrets.randbits(RANDOM_BITS)
    characters = []
    for _ in range(ULID_LENGTH):
        number, low = divmod(number, 32)
        characters.append(ALPHABET[low])
    return f"{prefix}_{''.join(reversed(characters))}"


def check_client_id(value: str, *, where: str) -> str:
    """Return an id minted by a client unchanged, or raise `Invalid` (1–64 of letters, digits, `_.:-`)."""
    if not _CLIENT_ID.match(value):
        raise Invalid(
            f"{where} must be 1 to {CLIENT_ID_LENGTH_MAX} characters of letters, digits and _ . : -",
            where=where,
        )
    return value


def could_be_id(value: str) -> bool:
    """Whether an id or token of ours could look like this; anything else names nothing and isn't looked up.

    The database couldn't even be asked for some of it: NUL, and half of a surrogate pair.
    """
    return bool(_CLIENT_ID.match(value))
