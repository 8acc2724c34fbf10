"""Everything that is on record filed behind the journal, as beat does it in a few seconds."""

from __future__ import annotations

import time

from console import history_filing
from console.history_models import HistoryProgress
from runs.models import AuditLeaf

# Another database's transactions don't hold it up; this one's end with the test that began them.
FILED_WITHIN_SECONDS = 30


def file_history() -> None:
    """File every entry there is: one pass notes how far that is, the next goes there."""
    history_filing.file_history()
    latest = AuditLeaf.objects.order_by("-id").values_list("pk", flat=True).first() or 0
    until = time.monotonic() + FILED_WITHIN_SECONDS
    while True:
        history_filing.file_history()
        if HistoryProgress.objects.filter(through_leaf__gte=latest).exists():
            return
        if time.monotonic() > until:
            raise AssertionError(f"the history isn't filed up to entry {latest}")
        time.sleep(0.02)
