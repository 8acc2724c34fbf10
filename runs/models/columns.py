"""What the columns of several tables share: lengths, and closed sets as the database keeps them."""

from __future__ import annotations

from enum import StrEnum

from django.db.models import Q

ID_LENGTH = 40
NAME_LENGTH = 100
DIGEST_LENGTH = 64
TURN_ORDERS = ["ordered", "parallel"]


def words(states: type[StrEnum]) -> list[str]:
    """The words of a closed set, as a migration keeps them: it must not change when the set does."""
    return [str(state) for state in states]


def one_of(column: str, states: type) -> Q:
    """A CHECK that a text column holds a member of the enum, so that a stray state can't be stored."""
    return Q(**{f"{column}__in": [str(member) for member in states]})  # type: ignore[attr-defined]
