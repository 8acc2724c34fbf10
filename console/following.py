"""Follow the audit log behind the journal: how far a table of the console's own has taken its entries over.

Whoever follows keeps one row of progress. A pass holds it, takes over a bounded batch and moves it on, all in
one transaction: any number of passes at once, of which one works, and one that dies has taken over nothing.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from django.db import connection, models
from django.db.models import QuerySet

from runs.models import AuditLeaf

# An entry's number is given out just before its transaction has one of its own; nobody takes so long between.
SETTLE_SECONDS: Final = 5

# When this transaction began, its number, and the oldest other one of this database that is under way (null:
# none). Not a snapshot's upper end, which is behind numbers already given to transactions that aren't over.
# Other databases of the server are left out: theirs can't write here and may last for days. Whose a number
# is, only its lock says; one that has just ended counts as ours.
_SNAPSHOT: Final = """
SELECT
    now(),
    pg_current_xact_id()::text::bigint,
    (
        SELECT min(under_way::text::bigint) FROM pg_snapshot_xip(pg_current_snapshot()) AS under_way
        WHERE NOT EXISTS (
            SELECT FROM pg_locks AS held JOIN pg_stat_activity AS holder ON holder.pid = held.pid
            WHERE held.locktype = 'transactionid' AND held.mode = 'ExclusiveLock' AND held.granted
                AND held.transactionid = under_way::xid
                AND holder.datid <> (SELECT oid FROM pg_database WHERE datname = current_database())
        )
    )
"""


class Following(models.Model):
    """How far into the audit log something has been taken over: up to an entry, and up to a time."""

    through_leaf = models.BigIntegerField(default=0)
    # Null before the first.
    through_at = models.DateTimeField(null=True)
    # Up to which no other entry can still appear.
    settled_leaf = models.BigIntegerField(default=0)
    settled_at = models.DateTimeField(null=True)
    # The same for these, once all transactions older than `noted_xid` are over.
    noted_leaf = models.BigIntegerField(default=0)
    noted_at = models.DateTimeField(null=True)
    noted_xid = models.BigIntegerField(default=0)

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return f"through {self.through_leaf}"


def unread(progress: Following) -> QuerySet[AuditLeaf]:
    """The entries that can be taken over next, in order."""
    return AuditLeaf.objects.filter(pk__gt=progress.through_leaf, pk__lte=progress.settled_leaf).order_by(
        "id"
    )


def settle(progress: Following) -> None:
    """Move on the entry up to which no other can still appear, and note a later one for the next time.

    Entries are numbered when they are written and seen when their transaction commits, so one may appear
    behind others. What was under way when an entry was noted must be over before anything up to it counts.
    """
    with connection.cursor() as cursor:
        cursor.execute(_SNAPSHOT)
        began_at, own, oldest = cursor.fetchone()
    if oldest is None or progress.noted_xid <= oldest:
        progress.settled_leaf, progress.settled_at = progress.noted_leaf, progress.noted_at
    elif progress.noted_xid <= own:
        return
    # Else it is another server's number: those of transactions begin anew after a restore into a new one.
    progress.noted_at = began_at - timedelta(seconds=SETTLE_SECONDS)
    rows = AuditLeaf.objects.filter(pk__gt=progress.settled_leaf, at__lte=progress.noted_at).order_by("-id")
    progress.noted_leaf = rows.values_list("pk", flat=True).first() or progress.settled_leaf
    progress.noted_xid = own
