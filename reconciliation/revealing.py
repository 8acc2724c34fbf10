"""Bodies that a case is about, whole or without what looks secret; and showing the rest, on record.

What people read is redacted. What was removed before it was stored is gone for everybody; what is merely
hidden can be shown to somebody who says why, for one view, and the audit log says who saw what.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import Any, ClassVar, Final

from django.db import transaction

from reconciliation.attachment_models import CaseAttachment
from reconciliation.decisions import Forbidden, find_case
from reconciliation.models import Case
from reconciliation.moves import append_event
from reconciliation.providers import registry
from reconciliation.providers.redaction import REDACTED, REDACTED_CARD, Redactor
from reconciliation.working import REASON_LENGTH_MAX, REASON_LENGTH_MIN, Worker
from runs.actors import ActorKind
from runs.canonical import digest
from runs.ids import could_be_id
from runs.journal.evidence import storable_text
from runs.models import Evidence, Operation
from runs.refusals import Invalid, NotFound, Refusal
from runs.states import EvidenceKind

# The operation's own payload; every other part is named by its evidence.
PAYLOAD: Final = "payload"
# What was seen beside the body of this evidence: status, error, phase.
SEEN_SUFFIX: Final = ".seen"
# Adapters take secrets out of what a provider says before anything is stored.
_REMOVED_BEFORE: Final = (EvidenceKind.LOOKUP, EvidenceKind.WEBHOOK, EvidenceKind.MAKE_ABSENT)


class NothingHidden(Refusal):
    """Nothing of this is hidden, or what is missing was removed before it was stored."""

    word: ClassVar[str] = "nothing_hidden"


class Stored(StrEnum):
    """How a body came into the database."""

    # Byte for byte as it came, perhaps cut at its end.
    AS_IT_CAME = "as_it_came"
    # Without secrets: they were never stored.
    WITHOUT_SECRETS = "without_secrets"
    # A record of ours, in which headers came without secrets.
    OUR_RECORD = "our_record"


@dataclass(frozen=True, kw_only=True)
class Part:
    """One body: `content` as it is stored, `length` and `digest` of the whole that it came from."""

    name: str
    title: str
    content: bytes = field(repr=False)
    length: int
    digest: str
    stored: Stored
    # Only the beginning of it is here; its own page has all of it.
    is_beginning: bool = False
    redactor: Redactor = field(repr=False)

    @property
    def is_whole(self) -> bool:
        """Whether nothing was cut off when it was stored."""
        return self.length == len(self.content)

    @cached_property
    def text(self) -> str:
        """As text, with nothing hidden; bytes that aren't UTF-8 are replaced."""
        return self.content.decode("utf-8", "replace")

    @cached_property
    def redacted(self) -> str:
        """As text, without what looks secret."""
        return self.redactor.text(self.text)

    @property
    def hidden_count(self) -> int:
        """How many stretches `redacted` hides that the database holds."""
        more = _marks(self.redacted) - _marks(self.text)
        return max(more, 0 if self.redacted == self.text else 1)

    @property
    def removed_count(self) -> int:
        """How many stretches were removed before this was stored; nobody can show them."""
        return 0 if self.stored is Stored.AS_IT_CAME else _marks(self.text)


def _marks(text: str) -> int:
    return text.count(REDACTED) + text.count(REDACTED_CARD)


def redactor_of(operation: Operation) -> Redactor:
    """What to hide in bodies about this operation: the built-in rules and those of its account."""
    redactor = Redactor()
    with suppress(registry.UnknownProvider):
        redactor = registry.redactor(operation.provider_id)
    return redactor.keeping(operation.key, operation.pk)


def payload_part(operation: Operation, redactor: Redactor) -> Part:
    """The payload: what was stored is what was sent, and the digest is over it."""
    content = bytes(operation.payload)
    return Part(
        name=PAYLOAD,
        title="Payload, byte for byte as sent",
        content=content,
        length=len(content),
        digest=operation.payload_digest,
        stored=Stored.AS_IT_CAME,
        redactor=redactor,
    )


def body_part(evidence: Evidence, redactor: Redactor) -> Part | None:
    """The body of this evidence; None if it has none."""
    if not evidence.body:
        return None
    kept_out = EvidenceKind(evidence.kind) in _REMOVED_BEFORE
    return Part(
        name=evidence.pk,
        title="Attached text" if attachment_of(evidence) else "Body",
        content=bytes(evidence.body),
        length=evidence.body_length,
        digest=evidence.body_digest,
        stored=Stored.WITHOUT_SECRETS if kept_out else Stored.AS_IT_CAME,
        is_beginning=bool(attachment_of(evidence)) and evidence.body_length > len(evidence.body),
        redactor=redactor.keeping(evidence.reference),
    )


def attachment_of(evidence: Evidence) -> dict[str, Any]:
    """What is on record of the file that this evidence is: name, type, length, sha256; {} if it is none."""
    attached: Any = evidence.seen.get("attachment") if isinstance(evidence.seen, dict) else None
    return attached if isinstance(attached, dict) else {}


def seen_part(evidence: Evidence, redactor: Redactor) -> Part | None:
    """What was seen beside the body, as JSON of ours; None if nothing was, or a page shows it in words."""
    seen: Any = evidence.seen
    if not isinstance(seen, dict) or isinstance(seen.get("exchange"), dict):
        return None
    shown = {name: value for name, value in seen.items() if name not in ("match", "attachment")}
    if not shown:
        return None
    content = json.dumps(shown, ensure_ascii=False).encode("utf-8", "replace")
    return Part(
        name=evidence.pk + SEEN_SUFFIX,
        title="What was seen",
        content=content,
        length=len(content),
        digest="",
        stored=Stored.OUR_RECORD,
        redactor=redactor.keeping(evidence.reference),
    )


def find_part(*, case: Case, name: str) -> Part:
    """The part of this name of the case's operation. Raises `NotFound`."""
    part = _find(case.operation, name) if could_be_id(name) else None
    if part is None:
        raise NotFound(f"This case has no body {name!r} to show.", case=case.pk, part=name[:64])
    return part


def _find(operation: Operation, name: str) -> Part | None:
    redactor = redactor_of(operation)
    if name == PAYLOAD:
        return payload_part(operation, redactor)
    evidence = Evidence.objects.filter(operation=operation, pk=name.removesuffix(SEEN_SUFFIX)).first()
    if evidence is None:
        return None
    if name.endswith(SEEN_SUFFIX):
        return seen_part(evidence, redactor)
    part = body_part(evidence, redactor)
    if part is not None and part.is_beginning:
        whole = CaseAttachment.objects.get(evidence=evidence)
        part = replace(part, content=bytes(whole.content), is_beginning=False)
    return part


def reveal(*, case_id: str, team: str | None, worker: Worker, name: str, reason: str) -> Part:
    """Put on record that the person is shown a part with nothing hidden, and return it.

    Moves nothing of the case: seeing is no decision. Each call is a view of its own, with a leaf of its own.
    Owns its transaction. Refuses in this order, having written nothing: `NotFound`, `Forbidden`, `Invalid`,
    `NothingHidden`.
    """
    case = find_case(case_id=case_id, team=team)
    part = find_part(case=case, name=name)
    if worker.actor.kind is not ActorKind.PERSON:
        raise Forbidden("Only a person is shown what is hidden.", actor=str(worker.actor.kind))
    said = storable_text(reason).strip()
    if not REASON_LENGTH_MIN <= len(said) <= REASON_LENGTH_MAX:
        raise Invalid(
            f"Give a reason of {REASON_LENGTH_MIN} to {REASON_LENGTH_MAX:,} characters.", where="reason"
        )
    if not part.hidden_count:
        raise NothingHidden(
            "Nothing of this is hidden: what is missing from it was removed before it was stored."
            if part.removed_count
            else "Nothing of this is hidden.",
            part=name,
        )
    after = {
        "case": case.pk,
        "part": part.name,
        "sha256": digest(part.content),
        "hidden": part.hidden_count,
    }
    with transaction.atomic():
        append_event(case, worker.actor, "case.revealed", after=after, reason=said)
    return part
