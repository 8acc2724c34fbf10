"""Conditions for CHECK constraints on rows that every effect writes, in the form that costs least to check.

PostgreSQL reads each CHECK of a table from its stored text, plans it and sets it up anew for every statement
that writes the table. `col IN ('a', 'b')` is stored with a node for every word; `= ANY('{a,b}')` is one
constant, and one CHECK of five conditions is cheaper than five. On a run's row that is half of an update.
What concerns one column alone is that column's domain (migration 0009), which the server keeps ready and
checks only where the column is written.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.db.models import F
from django.db.models.expressions import Func
from django.db.models.fields import BooleanField
from django.db.models.lookups import Exact, IsNull


class _Condition(Func):
    """A condition with a constant array of plain words (letters and underscores: nothing to quote)."""

    output_field = BooleanField()
    arity = 1

    def __init__(self, expression: Any, words: Iterable[str]) -> None:
        self.words = [str(word) for word in words]
        if not all(word.replace("_", "").isalpha() for word in self.words):
            raise ValueError(f"only plain words can stand in a constant array: {self.words}")
        super().__init__(expression)

    def as_sql(self, compiler: Any, connection: Any, **extra: Any) -> tuple[str, Any]:  # type: ignore[override]
        return super().as_sql(compiler, connection, words=",".join(self.words), **extra)


class OneOf(_Condition):
    """A text column holds one of these words."""

    template = "%(expressions)s = ANY('{%(words)s}'::text[])"


class AllOf(_Condition):
    """An array column of varchar(20) holds none but these words."""

    template = "%(expressions)s <@ '{%(words)s}'::varchar(20)[]"


class NotEmpty(Func):
    """An array column holds something."""

    template = "cardinality(%(expressions)s) > 0"
    output_field = BooleanField()
    arity = 1


def both_or_neither(one: Any, other: Any) -> Exact:
    """Two conditions hold together or not at all. Neither side may be NULL, which no IS NULL ever is."""
    return Exact(one, other)


def is_null(column: str) -> IsNull:
    return IsNull(F(column), True)


def is_set(column: str) -> IsNull:
    return IsNull(F(column), False)
