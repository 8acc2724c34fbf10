"""Attaching a file or a text to a case: what a person found out, kept whole, beside everything else.

It settles nothing by itself. It is evidence, so whoever is deciding is told that they saw less, and a case
that is put off wakes. What may be attached is told by its content. The only writer of `CaseAttachment`.
"""

from __future__ import annotations

import json
import re
from typing import ClassVar, Final

from django.db import IntegrityError, transaction

from reconciliation import moves
from reconciliation.attachment_models import (
    ATTACHMENT_BYTES_MAX,
    FILE_NAME_LENGTH_MAX,
    CaseAttachment,
    MediaType,
)
from reconciliation.decisions import Forbidden, KeyReused, find_case
from reconciliation.evidence import Attached, says_digest
from reconciliation.models import Case
from reconciliation.states import CaseState
from reconciliation.working import Worker
from runs.actors import ActorKind
from runs.canonical import TooLarge, digest
from runs.ids import check_client_id
from runs.journal.evidence import SUMMARY_LENGTH_MAX, record_evidence, storable_text
from runs.locking import LockedOperation, lock_operation
from runs.models import NAME_LENGTH, Evidence
from runs.refusals import Invalid, Refusal
from runs.states import Claim, EvidenceKind

# A case that needs more has a folder somewhere, and its address is enough.
ATTACHMENTS_MAX: Final = 50

# How each kind begins and ends (PNG: W3C PNG §5.2 and the IEND chunk; JPEG: ITU-T T.81, SOI and EOI; PDF:
# ISO 32000 §7.5). Writers of PDF add a little behind its end, and cameras fill up behind a picture's.
_PNG = (b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", b"IEND\xaeB\x60\x82")
_JPEG = (b"\xff\xd8\xff", b"\xff\xd9")
_PDF = (re.compile(rb"%PDF-[12]\.[0-9]"), b"%%EOF")
_PDF_END_WITHIN: Final = 1_024
# What no text holds: controls other than tab, line ends and form feed.
_NOT_TEXT = re.compile("[\x00-\x08\x0b\x0e-\x1f\x7f]")


class TypeNotTaken(Refusal):
    """The content isn't of a kind that is taken; `taken` names those that are."""

    word: ClassVar[str] = "type_not_taken"


class TooManyAttachments(Refusal):
    """The case holds as many attachments as it can."""

    word: ClassVar[str] = "too_many_attachments"


def media_type_of(content: bytes) -> MediaType | None:
    """What the content is, by itself; None if it is nothing that is taken. A name is never asked."""
    if content.startswith(_PNG[0]) and content.endswith(_PNG[1]):
        return MediaType.PNG
    if content.startswith(_JPEG[0]) and content.rstrip(b"\x00").endswith(_JPEG[1]):
        return MediaType.JPEG
    if _PDF[0].match(content) and _PDF[1] in content[-_PDF_END_WITHIN:]:
        return MediaType.PDF
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        return None
    if _NOT_TEXT.search(text):
        return None
    if text.lstrip()[:1] in ("{", "["):
        try:
            json.loads(text, parse_int=str, parse_float=str)
        except (ValueError, RecursionError):
            return MediaType.TEXT
        return MediaType.JSON
    return MediaType.TEXT


def attach_file(
    *, case_id: str, team: str | None, worker: Worker, summary: str, content: bytes, name: str, key: str
) -> Attached:
    """Attach bytes to a case, open or resolved, and say what they are. Owns its transaction.

    The same under the same key, or the same content and words by the same person, is what is there already,
    `replayed`. Refuses in this order, having changed nothing: `NotFound`, `Forbidden`, `Invalid`, `TooLarge`,
    `TypeNotTaken`, `KeyReused`, `TooManyAttachments`.
    """
    found = find_case(case_id=case_id, team=team)
    if worker.actor.kind is not ActorKind.PERSON:
        raise Forbidden("Only a person attaches files.", actor=str(worker.actor.kind))
    said = storable_text(summary).strip()
    media_type = _checked(said, content)
    check_client_id(key, where="key")
    says = says_digest(actor=worker.actor, summary=said, reference="", body=content)
    with transaction.atomic():
        locked = lock_operation(operation_id=found.operation_id, team=team)
        case = Case.objects.select_for_update().get(pk=found.pk)
        known = _known(case, worker, key, says)
        if known is not None:
            return Attached(known, case, replayed=True)
        if CaseAttachment.objects.filter(case=case).count() >= ATTACHMENTS_MAX:
            raise TooManyAttachments(
                f"A case holds {ATTACHMENTS_MAX} attachments, and this one has them.",
                attachments_max=ATTACHMENTS_MAX,
            )
        kept = _keep(locked, case, worker, said, content, media_type, name, key, says)
        if case.state != CaseState.RESOLVED:
            moves.note_new_evidence(locked, case)
        return Attached(kept.pk, case, replayed=False)


def _checked(said: str, content: bytes) -> MediaType:
    if not 1 <= len(said) <= SUMMARY_LENGTH_MAX:
        raise Invalid(
            f"Say what it is and what it shows, in 1 to {SUMMARY_LENGTH_MAX} characters.", where="summary"
        )
    if not content:
        raise Invalid("Choose a file that isn’t empty, or write the text.", where="content")
    if len(content) > ATTACHMENT_BYTES_MAX:
        raise TooLarge(
            f"An attachment is kept whole, so at most {ATTACHMENT_BYTES_MAX // 1024 // 1024} MiB are taken.",
            bytes_max=ATTACHMENT_BYTES_MAX,
            bytes_seen=len(content),
        )
    media_type = media_type_of(content)
    if media_type is None:
        raise TypeNotTaken(
            "Its content is neither text in UTF-8, nor JSON, PNG, JPEG or PDF; its name doesn’t count.",
            taken=[str(one) for one in MediaType],
        )
    return media_type


def _known(case: Case, worker: Worker, key: str, says: str) -> str | None:
    """The evidence that this form, or the same words and bytes by the same person, became before."""
    used = CaseAttachment.objects.filter(actor=worker.actor.id, key=key).select_related("evidence")
    by_key = used.defer("content", "evidence__body").first()
    if by_key is not None:
        if (by_key.case_id, by_key.evidence.digest) != (case.pk, says):
            raise KeyReused("This form was used for another attachment.", evidence=by_key.evidence_id)
        return by_key.evidence_id
    same = Evidence.objects.filter(operation=case.operation_id, digest=says)
    return same.values_list("pk", flat=True).first()


def _keep(
    locked: LockedOperation,
    case: Case,
    worker: Worker,
    said: str,
    content: bytes,
    media_type: MediaType,
    name: str,
    key: str,
    says: str,
) -> Evidence:
    called = storable_text(name).strip()[:FILE_NAME_LENGTH_MAX]
    sha256 = digest(content)
    is_text = media_type in (MediaType.TEXT, MediaType.JSON)
    evidence = record_evidence(
        locked,
        kind=EvidenceKind.ATTACHMENT,
        claim=Claim.UNKNOWN,
        summary=said,
        actor=worker.actor,
        seen={
            "attachment": {
                "name": called,
                "type": str(media_type),
                "length": len(content),
                "sha256": sha256,
            }
        },
        # A page shows the beginning of a text, and of a picture nothing.
        body=content if is_text else b"",
        says_digest=says,
    )
    kept = CaseAttachment(
        evidence=evidence,
        case=case,
        name=called,
        media_type=media_type,
        content=content,
        length=len(content),
        sha256=sha256,
        actor=worker.actor.id,
        actor_name=storable_text(worker.name)[:NAME_LENGTH],
        key=key,
        made_at=locked.now,
    )
    try:
        with transaction.atomic():
            kept.save(force_insert=True)
    except IntegrityError:
        # Only this case is locked: the same form went to another case in this moment.
        other = CaseAttachment.objects.filter(actor=worker.actor.id, key=key).first()
        if other is None:
            raise
        raise KeyReused("This form was used for another attachment.", evidence=other.evidence_id) from None
    return evidence
