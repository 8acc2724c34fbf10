"""Notes on a case: what one person leaves for the next. Added, never changed, and nothing follows from them.

A note is no evidence: it moves no version and makes nobody's decision stale. The only writer of `CaseNote`.
"""

from __future__ import annotations

from typing import ClassVar, Final

from django.db import IntegrityError, transaction

from reconciliation.decisions import Forbidden, KeyReused, find_case
from reconciliation.models import Case
from reconciliation.work_models import CaseNote
from reconciliation.working import Worker
from runs import audit
from runs.actors import ActorKind
from runs.canonical import digest
from runs.ids import check_client_id, new_id
from runs.journal.evidence import storable_text
from runs.locking import database_now
from runs.models import NAME_LENGTH
from runs.refusals import Invalid, Refusal

# A page of text; what is longer is a record, and is attached.
NOTE_LENGTH_MAX: Final = 4_000
# A case that needs more is a conversation, and belongs where people talk.
NOTES_MAX: Final = 200


class TooManyNotes(Refusal):
    """The case holds as many notes as it can."""

    word: ClassVar[str] = "too_many_notes"


def add_note(*, case_id: str, team: str | None, worker: Worker, text: str, key: str) -> CaseNote:
    """Add a note to a case, open or resolved. Owns its transaction.

    The same text under the same key is the note that is there already. Refuses in this order, having changed
    nothing: `NotFound`, `Forbidden`, `Invalid`, `KeyReused`, `TooManyNotes`.
    """
    found = find_case(case_id=case_id, team=team)
    if worker.actor.kind is not ActorKind.PERSON:
        raise Forbidden("Only a person writes notes.", actor=str(worker.actor.kind))
    said = storable_text(text).strip()
    if not 1 <= len(said) <= NOTE_LENGTH_MAX:
        raise Invalid(
            f"A note has 1 to {NOTE_LENGTH_MAX:,} characters; this has {len(said):,}.", where="text"
        )
    check_client_id(key, where="key")
    with transaction.atomic():
        # One note at a time, so that the same one twice at once is one.
        case = Case.objects.select_for_update(no_key=True).get(pk=found.pk)
        known = CaseNote.objects.filter(actor=worker.actor.id, key=key).first()
        if known is not None:
            if (known.case_id, known.text) != (case.pk, said):
                raise KeyReused("This form was used for another note.", note=known.pk)
            return known
        if CaseNote.objects.filter(case=case).count() >= NOTES_MAX:
            raise TooManyNotes(f"A case holds {NOTES_MAX} notes, and this one has them.", notes_max=NOTES_MAX)
        note = CaseNote(
            id=new_id("note"),
            case=case,
            text=said,
            actor=worker.actor.id,
            actor_name=storable_text(worker.name)[:NAME_LENGTH],
            key=key,
            made_at=database_now(),
        )
        try:
            with transaction.atomic():
                note.save(force_insert=True)
        except IntegrityError:
            # Only the case is locked: the same key went to another case in this moment.
            other = CaseNote.objects.filter(actor=worker.actor.id, key=key).first()
            if other is None:
                raise
            raise KeyReused("This form was used for another note.", note=other.pk) from None
        audit.append(
            audit.Event(
                action="case.noted",
                actor=worker.actor,
                team=case.team_id,
                run=case.run_id,
                operation=case.operation_id,
                subject=note.pk,
                after={"case": case.pk, "sha256": digest(said.encode()), "length": len(said)},
            )
        )
        return note
