"""What search by a part of a name reads: names in a table of the console's own, filled behind the journal.

`search_terms` is the only writer. Nothing that sends or settles an effect writes here, so that an index which
is dear to keep costs the journal nothing; whoever asks by a whole name never reads here.
"""

from __future__ import annotations

from enum import StrEnum

from django.contrib.postgres.indexes import GinIndex
from django.db import models
from django.db.models import Q

from console.following import Following
from runs.models import ID_LENGTH, NAME_LENGTH, one_of

# The longest name there is: a receipt's reference.
TERM_LENGTH = 300
# One row keeps the progress; there is one index to fill.
PROGRESS_ID = 1
# Writers keep new entries aside up to so many kB, which every search reads from end to end.
PENDING_KB = 1_024


class TermKind(StrEnum):
    """What a name is the name of."""

    # Without its "op_", which all of them have.
    OPERATION = "operation"
    KEY = "key"
    RECEIPT = "receipt"
    # Of a run.
    EXTERNAL_ID = "external_id"


class SearchTerm(models.Model):
    """A name in small letters, and what it names: an operation, or for an external id a run."""

    id = models.BigAutoField(primary_key=True)
    kind = models.CharField(max_length=20)
    # By bytes, so that what begins with something is one stretch of an index.
    term = models.CharField(max_length=TERM_LENGTH, db_collation="C")
    # No references: rows are written in thousands, and each points to something that is never deleted.
    team_slug = models.CharField(max_length=NAME_LENGTH)
    subject = models.CharField(max_length=ID_LENGTH)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["subject", "kind"], name="search_term_once_for_each"),
            models.CheckConstraint(condition=one_of("kind", TermKind), name="search_term_kind_known"),
        ]
        indexes = [
            models.Index(fields=["team_slug", "term", "id"], name="search_term_begins"),
            GinIndex(
                fields=["term"],
                opclasses=["gin_trgm_ops"],
                gin_pending_list_limit=PENDING_KB,
                name="search_term_parts",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} of {self.subject}"


class SearchProgress(Following):
    """How far into the audit log the names have been taken over."""

    id = models.SmallIntegerField(primary_key=True)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(id=PROGRESS_ID), name="search_progress_one_row"),
        ]
