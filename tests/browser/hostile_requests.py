"""Requests for a second person's consent in the hostile console: every kind, each text in them hostile."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

from django.db import transaction

from console import access
from console.models import Person, Role
from reconciliation import approval_messages, approvals
from reconciliation.approval_models import ApprovalKind, ApprovalRequest
from reconciliation.persons import Worker
from reconciliation.run_approvals import (
    free_parameters,
    keep_parameters,
    move_parameters,
    raise_parameters,
    renewal_parameters,
)
from reconciliation.states import Action
from runs.journal.pausing import add_pause_reason
from runs.locking import database_now, lock_run
from runs.models import Approval, Flow, FlowVersion, Operation, Run
from runs.money import Money
from runs.states import PauseReason
from tests import factories
from tests.browser.seeding import TEAM, aged, decided
from tests.cases import Opened
from tests.corpus.hostile_text import packed

NAMES: Final = packed(90)
TEXTS: Final = packed(440)
# So many cases that wait for a decision `ask_for_all` takes.
CASES: Final = 4


def ask_for_all(opened: Sequence[Opened]) -> tuple[str, ...]:
    """Ask for one of each kind about these cases and runs of its own; returns the ids of the requests."""
    asker, answerer = _person("asker", 0), _person("answerer", 1)
    confirm, retry, abandon, free = opened
    # What each flow says of it doesn't matter here: an abandonment takes two.
    Flow.objects.update(abandonment_people=2)
    made = [
        _decision(asker, confirm, Action.CONFIRM, 0),
        _decision(asker, aged(retry, 24 * 60), Action.RETRY, 1),
        _decision(asker, abandon, Action.ABANDON, 2),
        _budget(asker),
        _version(asker, 4, to=f"version4 {NAMES[4]}"),
        _version(asker, 5),
        _renewal(asker),
        _held(asker, free),
    ]
    for row, approval_id in enumerate(made):
        told: dict[str, Any] = {"approval_id": approval_id, "teams": [TEAM]}
        question, answer = f"question{row} {TEXTS[row % len(TEXTS)]}", f"answer{row} {TEXTS[-row - 1]}"
        approval_messages.ask(**told, worker=_worker(answerer), text=question, key=f"q{row}")
        approval_messages.reply(**told, worker=_worker(asker), text=answer, key=f"r{row}")
    # One that is answered shows the comment where the others have their form.
    approvals.refuse(
        approval_id=made[5],
        teams=[TEAM],
        worker=_worker(answerer),
        comment=f"comment5 {TEXTS[5 % len(TEXTS)]}",
    )
    asked = set(ApprovalRequest.objects.filter(pk__in=made).values_list("kind", flat=True))
    # What can't be asked for in this console has no page: the others are all here.
    assert {str(one) for one in ApprovalKind} - asked <= {str(ApprovalKind.MAKE_ABSENT)}
    return tuple(made)


def _person(username: str, row: int) -> Person:
    name = "".join(one for one in NAMES[row] if one.isprintable())
    person = Person.objects.create(
        username=username, first_name=f"{username}{row} {name}"[:150], roles=[str(role) for role in Role]
    )
    person.teams.add(TEAM)
    return person


def _worker(person: Person) -> Worker:
    return Worker(actor=access.person_actor(person), name=str(person)[:100])


def _reason(row: int) -> str:
    return f"why{row} {TEXTS[row % len(TEXTS)]}"


def _ask(person: Person, kind: ApprovalKind, run: Run, row: int, **words: Any) -> str:
    made = approvals.request(
        kind=kind,
        worker=_worker(person),
        team=TEAM,
        reason=_reason(row),
        key=f"form_{run.pk}",
        run_id=run.pk,
        **words,
    )
    return made.approval.pk


def _decision(person: Person, opened: Opened, action: Action, row: int) -> str:
    chosen = {Action.ABANDON: {"then": "continue"}, Action.RETRY: {"executor": "agent"}}.get(action, {})
    decided(opened, person, action, reason=_reason(row), **chosen)
    return ApprovalRequest.objects.get(case=opened.case_id).pk


def _paused(reason: PauseReason, row: int, **fields: Any) -> Run:
    """A run of the worst agent's that waits for a second person."""
    args = {"sku": f"argument{row} {TEXTS[row]}", "amount_minor": 2_500, "currency": "EUR"}
    call = factories.effect(tool=f"tool{row} {NAMES[row]}", minor=2_500, args=args)
    named = {"flow": f"flow{row} {NAMES[row]}", "external_id": f"external{row} {TEXTS[row]}"[:190]}
    run = factories.make_claimed(call, team=TEAM, **named, **fields).run
    with transaction.atomic():
        add_pause_reason(lock_run(run_id=run.pk, team=TEAM), reason)
    return run


def _budget(person: Person) -> str:
    run = _paused(PauseReason.BUDGET, 3, budget_minor=1_000)
    limit = raise_parameters(limit=Money("EUR", 90_000))
    return _ask(person, ApprovalKind.BUDGET_RAISE, run, 3, parameters=limit)


def _version(person: Person, row: int, *, to: str = "") -> str:
    run = _paused(PauseReason.FLOW_VERSION, row)
    if not to:
        kept = keep_parameters(wait_seconds=3_600)
        return _ask(person, ApprovalKind.FLOW_VERSION, run, row, parameters=kept)
    FlowVersion.objects.create(flow_id=run.flow_id, version=to, digest="b7" * 32)
    moved = move_parameters(version=to, digest="b7" * 32)
    return _ask(person, ApprovalKind.FLOW_VERSION, run, row, parameters=moved)


def _renewal(person: Person) -> str:
    now = database_now()
    ended = Approval.objects.create(
        id="appr_hostile",
        team_id=TEAM,
        subject=f"subject6 {NAMES[6]}"[:100],
        made_by=_worker(person).actor.id,
        made_at=now - timedelta(days=2),
        expires_at=now - timedelta(hours=1),
    )
    run = _paused(PauseReason.APPROVAL, 6, approval_id=ended.pk)
    until = renewal_parameters(expires_at=now + timedelta(hours=4))
    return _ask(person, ApprovalKind.APPROVAL_RENEWAL, run, 6, parameters=until)


def _held(person: Person, opened: Opened) -> str:
    Flow.objects.update(abandonment_people=1)
    decided(opened, person, Action.ABANDON, then="continue", reason=_reason(7))
    operation = Operation.objects.get(pk=opened.operation.pk)
    freed = free_parameters(amount=Money("EUR", operation.settled_minor))
    return _ask(person, ApprovalKind.HELD_FREED, opened.run, 7, parameters=freed, operation_id=operation.pk)
