"""What came of each case of a list as a file, in which a spreadsheet calculates nothing."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from django.urls import reverse

from reconciliation.bulk_models import BulkItem, BulkJob, BulkState

_COLUMNS: Final = (
    "position",
    "case",
    "operation",
    "provider",
    "tool",
    "currency",
    "amount_minor",
    "result",
    "word",
    "sentence",
    "decision",
    "at_utc",
    "link",
)
# What spreadsheets take for the start of a formula, also after blanks and in their full-width forms.
_FORMULA_STARTS: Final = tuple("=+-@\t\r\n|＝＋－＠")


def csv_of(job: BulkJob, items: Iterable[BulkItem], *, base: str) -> Iterator[str]:
    """The outcomes as CSV (RFC 4180), line by line; a spreadsheet calculates nothing in it."""
    yield _line(_COLUMNS)
    for item in items:
        case, outcome = item.case, getattr(item, "outcome", None)
        open_result = "waiting" if job.state in (BulkState.RUNNING, BulkState.FROZEN) else "left"
        yield _line(
            (
                str(item.position),
                case.pk,
                case.operation_id,
                case.provider_slug,
                case.tool,
                case.at_risk_currency,
                str(case.at_risk_minor) if case.at_risk_currency else "",
                outcome.result if outcome else open_result,
                outcome.word if outcome else "",
                outcome.sentence if outcome else "",
                (outcome.decision_id or "") if outcome else "",
                outcome.made_at.isoformat() if outcome else "",
                f"{base}{reverse('case', args=[case.pk])}",
            )
        )


def inert_cell(text: str) -> str:
    """A cell that a spreadsheet shows as it is: before what could start a formula comes an apostrophe."""
    return f"'{text}" if text.lstrip(" \u00a0\u3000").startswith(_FORMULA_STARTS) else text


def _line(cells: Sequence[str]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, quoting=csv.QUOTE_ALL, lineterminator="\r\n").writerow(map(inert_cell, cells))
    return buffer.getvalue()
