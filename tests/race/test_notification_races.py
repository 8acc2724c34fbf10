"""Passes of the outbox that meet: what happened is told once, however many of them see it."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest
from django.core import mail

from console import following
from console.notification_models import Message, Notification, Occurrence
from console.notifying import delivering, occurring, packing
from runs.locking import database_now
from tests import cases, notified
from tests.concurrency import at_once

pytestmark = pytest.mark.usefixtures("transactional_db")
PASSES = 4


def test_passes_at_once_tell_each_case_in_one_mail_and_no_mail_twice(
    monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    monkeypatch.setattr(following, "SETTLE_SECONDS", 0)
    monkeypatch.setattr(packing, "GATHER", timedelta())
    settings.RECOURSE_MAIL_CONFIGURED = True
    notified.mailbox("one@example.com"), notified.mailbox("two@example.com")
    occurring.note(now=database_now())
    opened = {cases.needs_decision().case_id for _ in range(3)}
    until = time.monotonic() + 60
    while Message.objects.filter(state="sent").count() < 2 or Occurrence.objects.count() < len(opened):
        at_once([delivering.make_pass] * PASSES)
        assert time.monotonic() < until, list(Message.objects.values())
    at_once([delivering.make_pass] * PASSES)
    assert set(Occurrence.objects.values_list("subject", flat=True)) == opened
    assert Notification.objects.filter(state="packed").count() == 2 * len(opened)
    ids = [one.extra_headers["Message-ID"] for one in mail.outbox]
    assert len(ids) == len(set(ids)) == Message.objects.count()
    assert set(Message.objects.values_list("state", "attempts_count")) == {("sent", 1)}
    for address in ("one@example.com", "two@example.com"):
        bodies = "".join(one.body for one in mail.outbox if one.to == [address])
        assert [bodies.count(case_id) for case_id in sorted(opened)] == [1, 1, 1]
