"""Ids that the client mints, so that a call whose answer was lost can be repeated identically."""

from __future__ import annotations

import secrets
import time

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # Crockford's base 32: no I, L, O, U


def new_id(prefix: str) -> str:
    """Return `prefix_` and a ULID: 48 bits of milliseconds, 80 random bits, sortable by time."""
    number = (time.time_ns() // 1_000_000 << 80) | secrets.randbits(80)
    digits = [_ALPHABET[(number >> shift) & 31] for shift in range(125, -1, -5)]
    return f"{prefix}_{''.join(digits)}"
