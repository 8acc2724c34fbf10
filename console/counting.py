"""Count the audit log's entries by kind, behind the journal: what `/metrics` tells of lookups and decisions.

Counting them when they are asked for would cost more with every entry; counting them where they are written
would make every effect wait for the same row. A pass that dies has counted nothing of its last batch.
"""

from __future__ import annotations

import time
from typing import Final

from django.db import connection, transaction

from console import following
from console.operating_models import PROGRESS_ID, CountingProgress
from runs.models import AuditLeaf

# Entries of one statement: some ten milliseconds.
BATCH_LEAVES: Final = 5_000
# One pass lasts at most about so long; beat calls the next.
PASS_SECONDS: Final = 4.0

_COUNT: Final = """
INSERT INTO console_logcount (action, actor_kind, finding, count)
SELECT action, actor_kind, finding, count(*) FROM (
    SELECT action, actor_kind,
           CASE WHEN action = 'evidence.recorded'
                THEN left(coalesce(convert_from(body, 'UTF8')::json #>> '{event,after,finding}', ''), 20)
                ELSE '' END AS finding
    FROM runs_auditleaf WHERE id > %s AND id <= %s
) AS entry
GROUP BY action, actor_kind, finding
ON CONFLICT (action, actor_kind, finding) DO UPDATE SET count = console_logcount.count + excluded.count
"""


def count_entries(*, seconds: float = PASS_SECONDS) -> bool:
    """Count what is new, for at most about so long; whether more is left. Owns its transactions."""
    ends = time.monotonic() + seconds
    while True:
        with transaction.atomic():
            CountingProgress.objects.bulk_create([CountingProgress(id=PROGRESS_ID)], ignore_conflicts=True)
            held = CountingProgress.objects.select_for_update(skip_locked=True)
            progress = held.filter(pk=PROGRESS_ID).first()
            if progress is None:
                return True  # another pass is at work
            following.settle(progress)
            more = _count(progress)
            progress.save()
        if not more or time.monotonic() >= ends:
            return more


def _count(progress: CountingProgress) -> bool:
    until = following.unread(progress).values_list("pk", "at")[BATCH_LEAVES - 1 : BATCH_LEAVES].first()
    leaf, at = until or (progress.settled_leaf, progress.settled_at)
    if leaf > progress.through_leaf:
        with connection.cursor() as cursor:
            cursor.execute(_COUNT, [progress.through_leaf, leaf])
    progress.through_leaf, progress.through_at = leaf, at
    return until is not None and AuditLeaf.objects.filter(pk__gt=leaf, pk__lte=progress.settled_leaf).exists()
