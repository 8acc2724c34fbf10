"""Small reads of one page in one statement, each giving what the ORM would have given by itself.

A page of one thing asks a dozen questions whose answers are a few rows each. They stay questions of their
own, each on its index; only the way to the database and back is gone once instead of a dozen times.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, Generic, TypeVar

from django.contrib.postgres.fields import ArrayField
from django.core.exceptions import EmptyResultSet
from django.db import connection
from django.db.models import (
    BigIntegerField,
    BooleanField,
    CharField,
    DateTimeField,
    Field,
    ForeignKey,
    IntegerField,
    JSONField,
    Model,
    QuerySet,
    Subquery,
    TextField,
)
from django.db.models.query import ModelIterable, ValuesIterable

R = TypeVar("R")

# A part's place in the statement, the row's in the part, and the row.
_PART: Final = "SELECT {at}, row_number() OVER (), to_jsonb(part) FROM ({sql}) AS part"


class CountOf(Subquery):
    """How many rows a query has; slice it to stop counting."""

    template = "(SELECT count(*) FROM (%(subquery)s) AS counted)"
    output_field = IntegerField()


class Part(Generic[R]):
    """The rows of one of the queries, in its order; there once they were read."""

    def __init__(self, rows: QuerySet[Any, R]) -> None:
        self._asked = rows
        self._rows: tuple[R, ...] | None = None
        self._row = _reader(rows)

    @property
    def rows(self) -> tuple[R, ...]:
        if self._rows is None:
            raise RuntimeError("These rows weren’t read yet.")
        return self._rows

    @property
    def first(self) -> R | None:
        return self.rows[0] if self.rows else None

    def sql(self) -> tuple[str, tuple[Any, ...]] | None:
        """The statement and its parameters; None where it can find nothing."""
        try:
            sql, asked = self._asked.query.get_compiler(connection=connection).as_sql()
        except EmptyResultSet:
            return None
        return sql, tuple(asked)

    def fill(self, rows: list[dict[str, Any]]) -> None:
        self._rows = tuple(self._row(one) for one in rows)


class Together:
    """Queries that are sent together: `add` each, `read` once, then ask each part for its rows."""

    def __init__(self) -> None:
        self._parts: list[Part[Any]] = []

    def add(self, rows: QuerySet[Any, R]) -> Part[R]:
        """One more query: of whole rows of one table, or of `values()`.

        Raises `TypeError` for what wouldn't come back as it is: bytes, another table's rows along with it
        (`select_related`), a type that isn't known here.
        """
        part = Part(rows)
        self._parts.append(part)
        return part

    def read(self) -> None:
        """Send them, as one statement; none where no part can find anything."""
        statements: list[str] = []
        parameters: list[Any] = []
        for at, part in enumerate(self._parts):
            if (asked := part.sql()) is not None:
                statements.append(_PART.format(at=at, sql=asked[0]))
                parameters += asked[1]
        found: list[tuple[int, int, str]] = []
        if statements:
            with connection.cursor() as cursor:
                cursor.execute(" UNION ALL ".join(statements), parameters)
                found = sorted(cursor.fetchall(), key=lambda one: one[:2])
        rows: list[list[dict[str, Any]]] = [[] for _ in self._parts]
        for at, _, row in found:
            rows[at].append(json.loads(row))
        for part, of_part in zip(self._parts, rows, strict=True):
            part.fill(of_part)


def _reader(rows: QuerySet[Any, Any]) -> Callable[[dict[str, Any]], Any]:
    """How a row of this query is made of what came back."""
    query, model, shape = rows.query, rows.model, getattr(rows, "_iterable_class", None)
    if (
        query.select_related
        or query.combinator
        or query.extra
        or shape not in (ModelIterable, ValuesIterable)
    ):
        raise TypeError("Only rows of one table, or values(), can be read together.")
    added = {name: _reads(one.output_field) for name, one in query.annotation_select.items()}
    if shape is ValuesIterable:
        fields = {name: _reads(_named(model, name)) for name in query.values_select} | added
        return lambda row: {name: reads(row[name]) for name, reads in fields.items()}
    named, are_deferred = query.deferred_loading
    if not are_deferred:
        raise TypeError("Use values() for some of the fields.")
    reads_of = [(one, _reads(one)) for one in model._meta.concrete_fields if one.name not in named]

    def made(row: dict[str, Any]) -> Model:
        values = [reads(row[one.column]) for one, reads in reads_of]
        instance: Model = model.from_db(rows.db, [one.attname for one, _ in reads_of], values)
        for name, reads in added.items():
            setattr(instance, name, reads(row[name]))
        return instance

    return made


def _named(model: type[Model], name: str) -> Field[Any, Any]:
    """The field of a name as `values()` takes it, over other tables too."""
    *over, last = name.split("__")
    for step in over:
        model = model._meta.get_field(step).related_model  # type: ignore[assignment]
    field = model._meta.pk if last == "pk" else _field(model, last)
    if field is None:
        raise TypeError(f"{name} is no field.")
    return field


def _field(model: type[Model], name: str) -> Field[Any, Any] | None:
    return next((one for one in model._meta.concrete_fields if name in (one.name, one.attname)), None)


def _reads(field: Any) -> Callable[[Any], Any]:
    """How a value of this field is made of its JSON. Raises `TypeError` where it wouldn't be the same."""
    if isinstance(field, ForeignKey):
        return _reads(field.target_field)
    if isinstance(field, ArrayField):
        reads = _reads(field.base_field)
        return lambda value: None if value is None else [reads(one) for one in value]
    if isinstance(field, DateTimeField):
        return _instant
    if isinstance(field, JSONField) and field.decoder is None:
        return _same
    # Their integers are exact in JSON; Python reads them as they are written.
    if isinstance(field, CharField | TextField | BooleanField | IntegerField | BigIntegerField):
        return _same
    raise TypeError(f"{field!r} can’t be read together with others.")


def _same(value: Any) -> Any:
    return value


def _instant(value: str | None) -> datetime | None:
    return None if value is None else datetime.fromisoformat(value).astimezone(UTC)
