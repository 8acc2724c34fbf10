"""An account that takes notices, and a provider that signs them, for tests."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from reconciliation import webhooks
from reconciliation.accounts import sync_accounts
from reconciliation.providers import registry
from reconciliation.providers.webhook_signing import sign
from reconciliation.providers.webhook_table import WebhookRules
from reconciliation.webhooks import Notice, Taken
from runs.locking import database_now
from runs.models import Operation
from tests.cases_world import record

HOOKED = "hooked"
SECRET = "whsec_of-the-test-provider"
NEXT_SECRET = "whsec_that-comes-after-it"
EVENTS = """
[[webhook.events]]
types = ["refund.created", "refund.updated"]
record = "$.data.object"

[[webhook.events]]
types = ["request.done"]
record = "$.data.object"
named_by = ["$.request.idempotency_key", "$.note"]
receipt = { id = "$.id" }
state = "succeeded"

[[webhook.events]]
types = ["request.noted"]
record = "$.data.object"
named_by = ["$.request.idempotency_key"]
"""


@contextmanager
def hooked(
    folder: Path,
    patch: pytest.MonkeyPatch,
    *changes: tuple[str, str],
    scheme: str = "stripe",
    secret: str = SECRET,
) -> Iterator[None]:
    """Declare the account `hooked`: the sandbox's payments, with notices."""
    text = (registry.SHIPPED / "sandbox-payments.toml").read_text()
    text = text.replace('slug = "sandbox-payments"', f'slug = "{HOOKED}"', 1)
    text += (
        f'\n[webhook]\nscheme = "{scheme}"\nsecrets = [{{ env = "HOOK_A" }}, {{ env = "HOOK_B" }}]\n{EVENTS}'
    )
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    (folder / "hooked.toml").write_text(text)
    patch.setenv("SANDBOX_URL", settings.SANDBOX_URL or "http://127.0.0.1:9")
    patch.setenv("HOOK_A", secret)
    patch.setattr(settings, "RECOURSE_PROVIDERS_DIR", [str(folder)])
    registry.reload()
    sync_accounts()
    yield
    patch.undo()
    registry.reload()


def rules() -> WebhookRules:
    found = registry.webhook_rules(HOOKED)
    assert found is not None
    return found


def event(
    operation: Operation, *, event_id: str = "evt_1", kind: str = "refund.created", **changes: Any
) -> dict[str, Any]:
    """What the provider tells of the operation's effect; `changes` are to its record."""
    return {"id": event_id, "type": kind, "data": {"object": record(operation, **changes)}}


def body_of(told: Any) -> bytes:
    return json.dumps(told).encode()


def signed(body: bytes, *, seconds_ago: float = 0, id_given: str = "") -> dict[str, str]:
    """The provider's headers for this body, by lower-case name."""
    at = database_now() - timedelta(seconds=seconds_ago)
    headers = sign(rules(), body=body, at=at, id_given=id_given)
    return {name.lower(): value for name, value in headers.items()}


def deliver(told: Any, *, id_given: str = "", **changes: Any) -> Taken:
    """Deliver a notice as the provider would, signed now."""
    body = told if isinstance(told, bytes) else body_of(told)
    headers = signed(body, id_given=id_given, **changes)
    return webhooks.receive(notice=Notice(account=HOOKED, headers=headers, body=body, sent_from="192.0.2.7"))
