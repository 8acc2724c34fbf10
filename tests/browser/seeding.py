"""A console's morning: cases of every kind, made through the domain's own doors, for pictures of it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timedelta

from django.db.models import F

from console import access
from console.models import Person, Role
from reconciliation import bulk, bulk_running, reports
from reconciliation.accounts import sync_accounts
from reconciliation.approval_models import ApprovalRequest
from reconciliation.bulk_models import BulkDeed, BulkJob
from reconciliation.decisions import Asked, decide
from reconciliation.gathering import judge_now
from reconciliation.models import Case
from reconciliation.states import Action, ReasonCode
from reconciliation.tightening import tighten
from reconciliation.working import Worker
from runs.journal.sending import begin_send
from runs.journal.turns import CallChosen, save_result, save_turn
from runs.locking import database_now
from runs.models import Attempt, Operation, Run
from runs.money import Money
from tests import cases, factories, notified
from tests.browser.seeding_approvals import seed_requests
from tests.cases import Effect, Opened

PASSWORD = "a password for tests only"
TEAM = "demo"
TICKET = Effect(
    tool="create_ticket", provider="sandbox-desk", args={"title": "Damaged parcel RMA-20931"}, minor=None
)
ORDER = Effect(
    tool="place_order",
    provider=cases.SUPPLIER,
    args={"sku": "FC-20", "quantity": 40},
    minor=48_600,
)
PICKUP = Effect(
    tool="book_pickup",
    provider=cases.COURIER,
    args={"order": "ORD-77020", "address": "Dock 4"},
    minor=None,
)
EMAIL = Effect(
    tool="send_email",
    provider="sandbox-mail",
    args={"to": "customer@example.org", "subject": "Your refund is on its way"},
    minor=None,
)


@dataclass(frozen=True, kw_only=True)
class Seeded:
    """The cases that the pictures are of, and a run with many steps."""

    mismatch: Opened
    not_found: Opened
    no_lookup: Opened
    closed_key: Opened
    several: Opened
    candidate: Opened
    looking: Opened
    retrying: Opened
    abandoned: Opened
    conflict: Opened
    # The provider offers to make its effect absent; another's request for that waits for a second person.
    absentable: Opened
    awaited: Opened
    steps: Run
    # Lists of cases, by what they show.
    lists: dict[str, str]
    # Requests for a second person's consent, by what they are about.
    requests: dict[str, str]


def people(team: str = TEAM) -> dict[Role, Person]:
    """One login for each role, by its name."""
    made = {}
    names = {
        Role.OPERATOR: ("Sam", "Lane"),
        Role.APPROVER: ("Robin", "Vale"),
        Role.AUDITOR: ("Kim", "Ash"),
        Role.ADMINISTRATOR: ("Jo", "Reed"),
        Role.VIEWER: ("Lee", "Fox"),
    }
    for role, (first, last) in names.items():
        person = Person.objects.create_user(
            str(role), password=PASSWORD, first_name=first, last_name=last, roles=[str(role)]
        )
        person.teams.add(factories.make_team(team))
        made[role] = person
    return made


def decided(opened: Opened, person: Person, action: Action, **words: str) -> None:
    """The person decides the case as it stands."""
    case, operation, run = opened.case, opened.operation, opened.run
    judged = judge_now(run=run, operation=operation, case=case, now=database_now())
    decide(
        case_id=case.pk,
        team=case.team_id,
        actor=access.person_actor(person),
        actor_name=str(person),
        asked=Asked(
            action=action,
            seen_version=case.version,
            evidence_digest=judged.evidence_digest,
            reason_code=ReasonCode.OTHER,
            reason=words.pop("reason", cases.REASON),
            idempotency_key=f"seed-{case.pk}",
            **words,
        ),
    )


def aged(opened: Opened, hours: float) -> Opened:
    """Let everything about the case have begun so long ago."""
    span = timedelta(hours=hours)
    operation = opened.operation
    Operation.objects.filter(pk=operation.pk).update(
        first_sent_at=F("first_sent_at") - span,
        last_quiet_at=F("last_quiet_at") - span,
        created_at=F("created_at") - span,
    )
    Attempt.objects.filter(operation=operation).update(
        minted_at=F("minted_at") - span,
        quiet_after_at=F("quiet_after_at") - span,
        ended_at=F("ended_at") - span,
    )
    Case.objects.filter(pk=opened.case_id).update(
        opened_at=F("opened_at") - span,
        needs_decision_since_at=F("needs_decision_since_at") - span,
        decide_by_at=F("decide_by_at") - span,
        worsens_at=F("worsens_at") - span,
        key_ends_at=F("key_ends_at") - span,
    )
    Run.objects.filter(pk=opened.run.pk).update(
        created_at=F("created_at") - span, paused_at=F("paused_at") - span
    )
    return opened


def seed(team: str = TEAM) -> Seeded:
    """Fill an empty database."""
    sync_accounts()
    by_role = people(team)
    operator = by_role[Role.OPERATOR]
    tighten(
        account="sandbox-mail",
        wanted={"rate_limit_per_second": 5, "lookup_retention_ms": 30 * 24 * 3_600_000},
        reason="The mail service's status page asks for fewer requests until its index is rebuilt.",
        seen_number=0,
        actor=access.person_actor(by_role[Role.ADMINISTRATOR]),
        actor_name=str(by_role[Role.ADMINISTRATOR]),
    )
    for number in range(3):
        settled = cases.open_case(ORDER, team=team, flow="restock-agent", external_id=f"PO-22{number}")
        cases.looked_up(settled, cases.found(settled, id=f"ord_{number}"))
    mismatch = cases.open_case(
        team=team, flow="order-exception-agent", external_id="ORD-77041", budget_minor=500_000
    )
    factories.quieten(mismatch.claimed.operation)
    cases.looked_up(mismatch, cases.not_found())
    cases.looked_up(mismatch, cases.not_found())
    cases.looked_up(mismatch, cases.mismatch(mismatch, id="rfd_3SxBq81"))
    aged(mismatch, 3)
    several = cases.open_case(
        Effect(minor=298_000, args={"payment": "pi_9", "order": "ORD-76990"}), team=team, flow="payout-weekly"
    )
    cases.looked_up(several, cases.several(several))
    alike = cases.open_case(ORDER, team=team, flow="restock-agent", external_id="PO-2301")
    cases.looked_up(alike, cases.candidate(alike, id="ord_99"))
    closed = cases.needs_decision(
        Effect(minor=31_250, args={"payment": "pi_7", "order": "ORD-76001"}),
        team=team,
        flow="order-exception-agent",
    )
    aged(closed, 24.7)
    abandoned = cases.needs_decision(TICKET, team=team, flow="order-exception-agent")
    decided(abandoned, operator, Action.ABANDON, then="continue", reason="The customer closed the request.")
    conflict = cases.needs_decision(
        Effect(minor=6_400, args={"payment": "pi_8", "order": "ORD-76100"}), team=team, flow="payout-weekly"
    )
    decided(conflict, operator, Action.ABANDON, then="end", reason="Refunded in the shop, cash.")
    late = late_success(conflict)
    retrying = cases.needs_decision(
        Effect(minor=8_990, args={"payment": "pi_5", "order": "ORD-76200"}), team=team, flow="refund-agent"
    )
    decided(retrying, operator, Action.RETRY, executor="agent", reason="The key is safe for hours.")
    cases.looked_up(retrying, cases.not_found())
    not_found = cases.needs_decision(EMAIL, team=team, flow="order-exception-agent")
    no_lookup = aged(cases.needs_decision(PICKUP, team=team, flow="order-exception-agent"), 1.9)
    absentable = cases.needs_decision(
        Effect(minor=18_500, args={"payment": "pi_12", "order": "ORD-76400"}), team=team, flow="refund-agent"
    )
    awaited = cases.needs_decision(
        Effect(minor=24_900, args={"payment": "pi_13", "order": "ORD-76401"}), team=team, flow="refund-agent"
    )
    reason = "Paid back in the shop; a refund on top of it would be one too many."
    decided(awaited, operator, Action.MAKE_ABSENT, then="continue", reason=reason)
    notified.every_state(case=no_lookup.case, conflict=several.case, person=operator)
    return Seeded(
        mismatch=mismatch,
        not_found=not_found,
        no_lookup=no_lookup,
        closed_key=closed,
        several=several,
        candidate=alike,
        looking=cases.open_case(TICKET, team=team, flow="order-exception-agent"),
        retrying=retrying,
        abandoned=abandoned,
        conflict=late,
        absentable=absentable,
        awaited=awaited,
        steps=_many_steps(team),
        lists={
            "kinds": listed(operator, BulkDeed.DECIDE, mismatch, not_found, no_lookup).pk,
            "alike": listed(operator, BulkDeed.DECIDE, not_found).pk,
            "claim": listed(operator, BulkDeed.CLAIM, not_found, abandoned).pk,
            "done": _seen_to(operator, listed(operator, BulkDeed.CLAIM, abandoned)),
        },
        requests={
            "override": _overridden(operator, team),
            "absence": ApprovalRequest.objects.get(case=awaited.case_id).pk,
            **seed_requests(team=team, operator=operator, approver=by_role[Role.APPROVER]),
        },
    )


def _overridden(person: Person, team: str) -> str:
    """Somebody asked to confirm what no receipt proves."""
    opened = cases.needs_decision(
        Effect(minor=31_250, args={"payment": "pi_11", "order": "ORD-76311"}), team=team, flow="refund-agent"
    )
    reason = "Four clean lookups over a day, and the customer sent a photograph of their statement."
    decided(opened, person, Action.CONFIRM, reason=reason)
    return ApprovalRequest.objects.get(case=opened.case_id).pk


def listed(person: Person, deed: BulkDeed, *opened: Opened) -> BulkJob:
    """The person chose these cases; nothing was done with them yet."""
    worker = Worker(actor=access.person_actor(person), name=str(person))
    teams = access.teams_of(person)
    return bulk.freeze(worker=worker, teams=teams, deed=deed, case_ids=[one.case_id for one in opened])


def _seen_to(person: Person, job: BulkJob) -> str:
    worker = Worker(actor=access.person_actor(person), name=str(person))
    bulk.start(job_id=job.pk, worker=worker, wanted=bulk.Wanted())
    bulk_running.run_chunk(job_id=job.pk, chunk=1)
    return job.pk


def late_success(opened: Opened) -> Opened:
    """The abandoned request's own reply comes after all: a conflict after the fact."""
    operation = opened.operation
    body = cases.record_of(opened, id="rfd_late")
    reports.report_receipt(
        sender=reports.Sender(team=operation.team_id, token=opened.claimed.token),
        operation_id=operation.pk,
        attempt_id="a1",
        reference="rfd_late",
        seen=reports.SeenReply(status=201, body=json.dumps(body).encode()),
    )
    latest = Case.objects.filter(operation=operation).latest("number")
    return Opened(opened.claimed, latest.pk)


def _many_steps(team: str) -> Run:
    """A run of several turns that is paused over its fourth step, with a budget."""
    run = factories.make_run(
        team=team,
        flow="order-exception-agent",
        external_id="ORD-77055",
        budget_limit=Money("EUR", 500_000),
        goal="Make good the damaged order",
    )
    token = factories.claim(run, worker="worker-7c2f")

    def turn(index: int, *calls: CallChosen) -> list[Operation]:
        save_turn(
            team=team,
            run_id=run.pk,
            token=token,
            index=index,
            decision={"thought": f"turn {index}"},
            parallel=False,
            calls=calls,
        )
        return list(Operation.objects.filter(run=run, turn_index=index).order_by("position"))

    turn(1, factories.read("r1"))
    save_result(team=team, run_id=run.pk, token=token, index=1, call_id="r1", result={"stock": 4})
    (order,) = turn(
        2,
        factories.effect(
            "c1",
            tool="place_order",
            args={"sku": "LB-2", "quantity": 1, "amount_minor": 231_040, "currency": "EUR"},
            minor=231_040,
        ),
    )
    begin_send(team=team, operation_id=order.pk, token=token, attempt_id="o1")
    factories.reply(
        factories.Claimed(run, token, [order]),
        "ord_88213",
        attempt_id="o1",
        minor=231_040,
        body=b'{"id":"x"}',
    )
    calls = (
        factories.effect(
            "c2",
            tool="create_refund",
            provider=cases.PAYMENTS,
            args={"payment": "pi_3", "amount_minor": 124_000, "currency": "EUR"},
            minor=124_000,
        ),
        factories.effect("c3", tool="create_ticket", provider="sandbox-desk", args={"title": "Damaged"}),
        factories.effect("c4", tool="send_email", provider="sandbox-mail", args={"subject": "Sorry"}),
    )
    refund, *_ = turn(3, *calls)
    begin_send(team=team, operation_id=refund.pk, token=token, attempt_id="p1")
    reports.report_unknown(
        sender=reports.Sender(team=team, token=token),
        operation_id=refund.pk,
        attempt_id="p1",
        seen=reports.SeenReply(error="ConnectionReset", phase="reading"),
    )
    opened = Opened(factories.Claimed(run, token, [refund]), Case.objects.get(operation=refund).pk)
    # As if an hour had passed, for what counts quiet time; the request itself stays where it was.
    factories.quieten(refund)
    Attempt.objects.filter(operation=refund).update(minted_at=F("minted_at") + timedelta(hours=1))
    for _ in range(3):
        cases.looked_up(opened, cases.not_found())
    return factories.fresh(run)
