"""A console in which everything that an agent or a provider can name is hostile, for `test_hostile_text`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from django.test import Client

from console import saved_views
from console.models import Person, ViewReach
from console.pages.declaration_forms import DeclarationDraft
from reconciliation import reports
from reconciliation.accounts import sync_accounts
from reconciliation.attaching import attach_file
from reconciliation.declaring import declare
from reconciliation.models import Case
from reconciliation.notes import add_note
from reconciliation.providers.base import Candidate, Exchange, Finding, Mismatch, NotFound, Phase
from reconciliation.work_models import CasePresence
from reconciliation.working import Worker, claim_case
from runs import leases
from runs.actors import Actor, ActorKind
from runs.ids import new_id
from runs.journal.evidence import record_evidence
from runs.journal.sending import begin_send
from runs.journal.turns import CallChosen, save_result, save_turn
from runs.locking import database_now
from runs.models import AccountReturn, Freeze, Operation, Orphan, ProviderAccount
from runs.money import Money
from runs.states import Claim, EvidenceKind
from tests import cases, factories
from tests.browser.hostile_requests import CASES, ask_for_all
from tests.browser.seeding import TEAM
from tests.cases import Opened
from tests.corpus.hostile_text import VECTORS, packed
from tests.integration.pages.test_declaring import FIELDS_TYPED

# One row for each text that fits into a name of 100 characters: so every vector is in every name.
NAMES = packed(90)
LINES = packed(185)
TEXTS = packed(440)
BODIES = packed(1_800)
# `console.saved_views` keeps no more for one person.
VIEWS_MAX = 20
# Where every vector is one member of its own.
MEMBERS = {f"{number} {vector}": vector for number, vector in enumerate(VECTORS)}


@dataclass(frozen=True, kw_only=True)
class HostileWorld:
    """What was made, and the words by which each field is recognised on a page."""

    opened: tuple[Opened, ...]
    declared: str
    bulk: str
    requests: tuple[str, ...]

    @property
    def fields(self) -> tuple[str, ...]:
        """The words by which each field that a page shows is recognised there."""
        return (
            *("flow", "external", "goal", "input", "tool", "argument", "error", "reply", "header"),
            *("summary", "record", "reference", "note", "claimant", "present", "webhook", "view"),
            *("title", "orphan", "file"),
            *("why", "asker", "question", "answer", "comment", "version"),
        )


def at(texts: list[str], row: int, field: str) -> str:
    """A row's text for a field, marked so that a page can be seen to show it."""
    return f"{field}{row} {texts[row % len(texts)]}"


def build() -> HostileWorld:
    """Fill an empty database, by the doors that agents, providers and people use."""
    sync_accounts()
    factories.make_team(TEAM)
    declared = _declared()
    opened = tuple(_run(row) for row in range(len(NAMES)))
    for row in range(8):
        _look_up(opened[row], row)
        _work(opened[row], row)
    # Those that a second person is asked about: nothing that was found may decide them.
    for one in opened[8 : 8 + CASES]:
        for _ in range(3):
            cases.looked_up(one, cases.not_found())
    _frame(opened[0])
    asked = ask_for_all(opened[8 : 8 + CASES])
    return HostileWorld(opened=opened, declared=declared, bulk=_many(opened[:8]), requests=asked)


def _run(row: int) -> Opened:
    """One run of one call, as an agent with the worst intentions would journal it."""
    run = factories.make_run(
        team=TEAM,
        flow=at(NAMES, row, "flow"),
        external_id=at(LINES, row, "external"),
        goal=at(TEXTS, row, "goal"),
        input={"input": at(BODIES, row, "input"), **(MEMBERS if row < 2 else {})},
    )
    token = leases.claim(
        team=TEAM,
        run_id=run.pk,
        claim_id=f"c{row}",
        worker=f"worker-{row}",
        flow_version=factories.VERSION,
        lease_seconds=600,
    ).token
    args: dict[str, Any] = {
        "payment": at(TEXTS, row, "argument"),
        at(NAMES, row, "argument"): at(BODIES, row, "argument"),
        "amount_minor": 100 + row,
        "currency": "EUR",
        **(MEMBERS if row < 2 else {}),
    }
    save_turn(
        team=TEAM,
        run_id=run.pk,
        token=token,
        index=1,
        decision={"thought": at(BODIES, row, "thought"), **(MEMBERS if row < 2 else {})},
        parallel=False,
        calls=(CallChosen(call_id="r1", tool=at(NAMES, row, "tool"), effect=False, args=args),),
    )
    save_result(
        team=TEAM, run_id=run.pk, token=token, index=1, call_id="r1", result={"r": at(BODIES, row, "result")}
    )
    effect = CallChosen(
        call_id="c1",
        tool=at(NAMES, row, "tool"),
        effect=True,
        provider=cases.PAYMENTS,
        args=args,
        amount=Money("EUR", 100 + row),
    )
    save_turn(
        team=TEAM, run_id=run.pk, token=token, index=2, decision={"t": 2}, parallel=False, calls=(effect,)
    )
    operation = Operation.objects.get(run=run)
    begin_send(team=TEAM, operation_id=operation.pk, token=token, attempt_id="a1")
    reports.report_unknown(
        sender=reports.Sender(team=TEAM, token=token),
        operation_id=operation.pk,
        attempt_id="a1",
        seen=reports.SeenReply(
            status=500,
            headers=((at(NAMES, row, "header"), at(TEXTS, row, "header")),),
            body=at(BODIES, row, "reply").encode(),
            error=at(TEXTS, row, "error"),
            phase="reading",
        ),
    )
    factories.quieten(operation)
    return Opened(factories.Claimed(run, token, [operation]), Case.objects.get(operation=operation).pk)


def _look_up(opened: Opened, row: int) -> None:
    """What a provider answers, in its head, its body and its records; and a notice that it sent."""
    record = cases.record_of(opened, id=at(LINES, row, "reference"), memo=at(BODIES, row, "record"))
    exchange = Exchange(
        method="GET",
        url=f"http://127.0.0.1/{at(TEXTS, row, 'record')}",
        request_headers=((at(NAMES, row, "header"), at(TEXTS, row, "header")),),
        status=200,
        response_headers=((at(NAMES, row, "header"), at(TEXTS, row, "header")),),
        body=json.dumps({"data": [record], **MEMBERS}),
        body_length=9,
        body_whole=True,
        duration_ms=84,
        phase=Phase.DONE,
    )
    summary = at(TEXTS, row, "summary")
    receipts = (cases.receipt_of(opened, record),)
    findings: tuple[Finding, ...] = (
        NotFound(summary=summary, exchange=exchange, proof=False),
        Candidate(summary=summary, exchange=exchange, receipts=receipts),
        Mismatch(
            summary=summary,
            exchange=exchange,
            receipts=(cases.receipt_of(opened, {**record, "amount_minor": 9}),),
        ),
    )
    cases.looked_up(opened, findings[0])
    cases.looked_up(opened, findings[1 + row % 2])
    with factories.held(opened.operation) as locked:
        record_evidence(
            locked,
            kind=EvidenceKind.WEBHOOK,
            claim=Claim.UNKNOWN,
            summary=at(TEXTS, row, "webhook"),
            actor=Actor(ActorKind.SYSTEM, at(NAMES, row, "webhook")),
            reference=at(LINES, row, "webhook"),
            seen={"headers": [[at(NAMES, row, "webhook"), at(TEXTS, row, "webhook")]]},
            body=json.dumps({"event": at(BODIES, row, "webhook")}).encode(),
        )


def _work(opened: Opened, row: int) -> None:
    """What colleagues leave on it, under names of their own choosing."""
    worker = Worker(actor=Actor(ActorKind.PERSON, f"person:9{row}"), name=at(NAMES, row, "claimant"))
    note = at(BODIES, row, "note")
    add_note(case_id=opened.case_id, team=TEAM, worker=worker, text=note, key=f"note-{row}")
    claim_case(case_id=opened.case_id, team=TEAM, worker=worker)
    attach_file(
        case_id=opened.case_id,
        team=TEAM,
        worker=worker,
        summary=at(TEXTS, row, "file"),
        content="".join(one for one in at(BODIES, row, "file") if one.isprintable()).encode(),
        name=at(NAMES, row, "file"),
        key=f"file-{row}",
    )
    CasePresence.objects.create(
        case_id=opened.case_id,
        actor=f"person:8{row}",
        actor_name=at(NAMES, row, "present"),
        seen_at=database_now(),
    )


def _many(opened: tuple[Opened, ...]) -> str:
    """A list of these cases, frozen in the operator's name; returns its address."""
    client = Client()
    client.force_login(Person.objects.get(username="operator"))
    answer = client.post("/bulk/new/", {"deed": "look_up", "case": [one.case_id for one in opened]})
    return str(answer["Location"])


def _frame(opened: Opened) -> None:
    """Names of views, and what a restore has found at a provider."""
    owner = Person.objects.get(username="operator")
    # As many as one person keeps; a name is shorter than most vectors.
    for row, name in enumerate(packed(32)[-VIEWS_MAX:]):
        saved_views.save_view(
            person=owner,
            teams=(TEAM,),
            name="".join(one for one in f"view{row} {name}" if one.isprintable())[:40],
            query=f"q={row}",
            reach=ViewReach.PRIVATE,
            team="",
        )
    account = ProviderAccount.objects.get(pk=cases.PAYMENTS)
    now = database_now()
    freeze = Freeze.objects.create(id=new_id("frz"), found_at=now, because=at(TEXTS, 0, "orphan"))
    AccountReturn.objects.create(
        freeze=freeze, account=account, listing_note=at(TEXTS, 1, "orphan"), listing_not_before_at=now
    )
    for row, text in enumerate(packed(280)):
        Orphan.objects.create(
            id=new_id("orph"),
            account=account,
            freeze=freeze,
            reference=f"orphan{row} {text}",
            our_reference=opened.operation.pk,
            state_there="pending",
            body={"orphan": text},
            body_digest="d" * 64,
            found_at=now,
        )


def _declared() -> str:
    """An account whose title and sources are hostile, declared as an administrator would."""
    title = next(one for one in NAMES if '"><img' in one)
    typed = {
        **FIELDS_TYPED,
        "title": f"title0 {title}",
        "base_url": "http://127.0.0.1:9/v1",
    }
    text, *_ = DeclarationDraft(typed, fresh=True).declaration()
    person = Person.objects.get(username="administrator")
    made = declare(
        text=text,
        reason=at(TEXTS, 0, "title"),
        seen_number=0,
        actor=Actor(ActorKind.PERSON, f"person:{person.pk}"),
        actor_name=at(NAMES, 0, "claimant"),
    )
    return made.account
