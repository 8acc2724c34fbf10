"""The decision form as a browser would send it, read from the page that shows it."""

from __future__ import annotations

from typing import Any

from django.test import Client

from console.pages.shapes import DecisionForm
from tests.cases import REASON, Opened

WORDS = {"reason_code": "other", "reason": REASON}


def page_of(client: Client, path: str) -> Any:
    """The shape that the page at this address was made of."""
    answer = client.get(path)
    assert answer.status_code == 200, (answer.status_code, path)
    return answer.context["page"]


def fields(client: Client, opened: Opened, action: str, **more: str) -> dict[str, str]:
    """The form of the case's page, filled in."""
    panel = page_of(client, f"/cases/{opened.case_id}/").panel
    assert isinstance(panel, DecisionForm), panel
    return {
        "step": "review",
        "action": action,
        "seen_version": str(panel.version),
        "evidence_digest": panel.evidence_digest,
        **WORDS,
        **more,
    }


def post(client: Client, opened: Opened, data: dict[str, str], **headers: str) -> Any:
    """Send the form to the case's decision."""
    return client.post(f"/cases/{opened.case_id}/decision/", data, headers=headers)


def reviewed(client: Client, opened: Opened, data: dict[str, str]) -> dict[str, str]:
    """Review the form and return the confirming form that the review shows."""
    answer = post(client, opened, data)
    assert answer.status_code == 200, answer.status_code
    page = answer.context["page"]
    return {"step": "record", "reason": page.reason, **{one.name: one.value for one in page.hidden}}


def decide(client: Client, opened: Opened, action: str, **more: str) -> Any:
    """Review and record; returns the answer to the recording."""
    return post(client, opened, reviewed(client, opened, fields(client, opened, action, **more)))
