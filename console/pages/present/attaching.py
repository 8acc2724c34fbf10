"""The form that attaches a file or a text to a case, and what its kinds are called."""

from __future__ import annotations

from typing import Final

from django.urls import reverse

from console.pages.shapes import AttachForm
from reconciliation.attachment_models import ATTACHMENT_BYTES_MAX, MediaType
from reconciliation.models import Case
from runs.ids import new_id

MEDIA_TYPES: Final[dict[str, str]] = {
    MediaType.TEXT: "Text",
    MediaType.JSON: "JSON",
    MediaType.PNG: "PNG picture",
    MediaType.JPEG: "JPEG picture",
    MediaType.PDF: "PDF",
}
# For the browser's file chooser only; what counts is the content.
_ACCEPT: Final = ".txt,.json,.csv,.log,.eml,.png,.jpg,.jpeg,.pdf"


def attach_form(
    case: Case,
    *,
    key: str = "",
    summary: str = "",
    text: str = "",
    file_again: bool = False,
) -> AttachForm:
    """The form, with what was typed; each has a key of its own, so that sent twice it is one attachment."""
    return AttachForm(
        href=reverse("case_attach", args=[case.pk]),
        key=key or new_id("form"),
        accept=_ACCEPT,
        taken=f"Text, JSON, PNG, JPEG or PDF, up to {ATTACHMENT_BYTES_MAX // 1024 // 1024} MiB",
        summary=summary,
        text=text,
        file_again=file_again,
    )
