"""Exports that one person asks for at once: never more under way than one may have."""

from __future__ import annotations

import pytest

from console import exporting
from console.export_models import HistoryExport
from console.exporting import RUNNING_MAX, TooManyExports
from runs.models import AuditLeaf
from tests.concurrency import at_once
from tests.factories import TEAM
from tests.people import operator

pytestmark = pytest.mark.django_db(transaction=True)


def test_of_more_exports_at_once_than_one_may_have_the_rest_are_refused() -> None:
    who = operator()
    outcomes = at_once(
        [
            lambda word=word: exporting.ask_export(  # type: ignore[misc]
                worker=who, teams=[TEAM], query=f"provider={word}", form="csv"
            )
            for word in ("one", "two", "three", "four", "five", "six")
        ]
    )
    refused = [one.refusal for one in outcomes if one.refusal is not None]
    assert all(isinstance(one, TooManyExports) for one in refused)
    assert (HistoryExport.objects.count(), len(refused)) == (RUNNING_MAX, 6 - RUNNING_MAX)
    assert AuditLeaf.objects.filter(action="history.export_asked").count() == RUNNING_MAX
