"""The names behind the ids of actors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from django.db import connection

from runs.actors import ActorKind

_PERSON = "person:"
_TOKEN = "tok_"  # noqa: S105 - what ids of tokens start with
# Parts of Recourse, as a page names them.
_PARTS = {
    "journal": "Journal",
    "sweeper": "Sweeper",
    "console-sender": "Console’s sender",
    "lookup": "Lookup worker",
    "retry": "Retry",
    "webhook": "Webhook",
    "unknown-sender": "Unknown sender",
}
# A person as `Person` names itself.
_NAMES: Final = """
SELECT 'person:' || id, coalesce(nullif(trim(first_name || ' ' || last_name), ''), username)
FROM console_person WHERE id = ANY(%(people)s)
UNION ALL
SELECT id, name FROM console_apitoken WHERE id = ANY(%(tokens)s)
"""


class Names:
    """The names of these actors, asked for in at most one query."""

    def __init__(self, actors: Iterable[str]) -> None:
        wanted = set(actors)
        people = {
            int(one.removeprefix(_PERSON))
            for one in wanted
            if one.startswith(_PERSON) and one.removeprefix(_PERSON).isdecimal() and len(one) < 20
        }
        tokens = {one for one in wanted if one.startswith(_TOKEN)}
        self._names: dict[str, str] = {}
        if people or tokens:
            with connection.cursor() as cursor:
                cursor.execute(_NAMES, {"people": sorted(people), "tokens": sorted(tokens)})
                self._names = dict(cursor.fetchall())

    def of(self, kind: str, actor: str, *, known_as: str = "") -> str:
        """What a page calls this actor; `known_as` is a name that is on record with what they did."""
        if kind == ActorKind.POLICY:
            return f"Policy {actor}"
        return known_as or self._names.get(actor) or _PARTS.get(actor, actor)
