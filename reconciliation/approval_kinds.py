"""What may be asked of a second person, by kind: how each is worded, checked under the lock and carried out.

A kind is a few plain functions. Those that decide a case are in `decision_approvals`, those about a run in
`run_approvals`; this module holds the shape, and knows where each is found.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from importlib import import_module
from typing import Any, Final, cast

from reconciliation.approval_models import DECISION_KINDS, ApprovalDeed, ApprovalKind, ApprovalRequest
from reconciliation.models import Case
from reconciliation.persons import Worker
from runs.canonical import parse
from runs.locking import Locked, LockedOperation, lock_operation, lock_run
from runs.models import Run
from runs.refusals import NotFound

# Each of these modules has `KINDS`, a mapping of kind to `Kind`.
_OF_DECISIONS: Final = "reconciliation.decision_approvals"
_OF_RUNS: Final = "reconciliation.run_approvals"


@dataclass(frozen=True, kw_only=True)
class Held:
    """What the transaction holds: the run, and the operation and the case where it is about them."""

    locked_run: Locked
    operation: LockedOperation | None = None
    case: Case | None = None

    @property
    def run(self) -> Run:
        return self.locked_run.run

    @property
    def now(self) -> datetime:
        """The database's time after the locks were granted."""
        return self.operation.now if self.operation is not None else self.locked_run.now


@dataclass(frozen=True, kw_only=True)
class Consent:
    """What is being carried out, and by whose word: the requester's act, which `approver` consented to.

    `requester` is the person as they are now. A person's name is beside their actor.
    """

    approval: ApprovalRequest
    requester: Worker
    approver: Worker
    comment: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Kind:
    """How requests of one kind are handled. The functions need `Held` and write no leaf of the approval's.

    - `deed`: what whoever asks must be allowed to do, at the asking and when it is carried out.
    - `subject(held)`: what has one open request at a time, at most 120 characters.
    - `title(parameters)`: one sentence for lists and leaves, from the parameters alone: no query.
    - `facts(held, parameters)`: everything else that is consented to, as JSON: versions, amounts, digests. It
      is asked at the request and again at the approval; where the two differ, the request is void. It raises
      a named refusal where what is asked for can't be done; at the approval, its sentence voids the request.
    - `fact_words`: what a fact is called in a sentence, by its name.
    - `carry_out(held, consent)`: do it. A refusal undoes what it did and voids the request.
    - `later`: carrying out only permits what somebody does afterwards (a retry): the request stays approved
      until that is done.
    - `reopen(held, approval, because)`: what follows when a request ends without being carried out.
    """

    kind: ApprovalKind
    deed: ApprovalDeed
    subject: Callable[[Held], str]
    title: Callable[[Mapping[str, Any]], str]
    facts: Callable[[Held, Mapping[str, Any]], dict[str, Any]]
    fact_words: Mapping[str, str]
    carry_out: Callable[[Held, Consent], None]
    later: bool = False
    reopen: Callable[[Held, ApprovalRequest, str], None] | None = None


def kind_of(kind: str) -> Kind:
    """How requests of this kind are handled."""
    wanted = ApprovalKind(kind)
    room = import_module(_OF_DECISIONS if wanted in DECISION_KINDS else _OF_RUNS)
    kinds = cast("Mapping[ApprovalKind, Kind]", room.KINDS)
    return kinds[wanted]


def content_of(approval: ApprovalRequest) -> dict[str, Any]:
    """What is consented to, as JSON: see `ApprovalRequest`."""
    return cast("dict[str, Any]", parse(bytes(approval.content)))


def title_of(approval: ApprovalRequest) -> str:
    """The request in one sentence; no query."""
    return kind_of(approval.kind).title(content_of(approval)["parameters"])


def hold(*, run_id: str = "", operation_id: str = "", case_id: str = "", team: str | None = None) -> Held:
    """Lock a run, then its operation and its case where they are named. Needs a transaction.

    One of the three is enough: a case names its operation, an operation its run. Raises `NotFound`, for
    another team's as well.
    """
    if case_id and not operation_id:
        rows = Case.objects.filter(pk=case_id)
        rows = rows if team is None else rows.filter(team=team)
        operation_id = rows.values_list("operation_id", flat=True).first() or ""
        if not operation_id:
            raise NotFound(f"There is no case {case_id} that you can see.", case=case_id)
    if not operation_id:
        return Held(locked_run=lock_run(run_id=run_id, team=team))
    locked = lock_operation(operation_id=operation_id, team=team)
    case = Case.objects.select_for_update().get(pk=case_id) if case_id else None
    return Held(locked_run=locked.locked_run, operation=locked, case=case)


def hold_of(approval: ApprovalRequest) -> tuple[Held, ApprovalRequest]:
    """Lock what a request is about, and then the request, as it is now."""
    held = hold(
        run_id=approval.run_id, operation_id=approval.operation_id or "", case_id=approval.case_id or ""
    )
    return held, ApprovalRequest.objects.select_for_update().get(pk=approval.pk)
