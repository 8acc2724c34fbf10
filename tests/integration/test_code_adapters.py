"""What the adapters in code say, carried through the journal: reports, lookups and repeats by the console."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from reconciliation import approving, lookups, retries
from reconciliation.approval_models import ApprovalRequest
from reconciliation.models import Case
from reconciliation.providers import registry
from reconciliation.states import Action, CaseKind
from runs.models import Attempt, Evidence, Grant, Operation, Receipt
from runs.states import AttemptOutcome, Executor
from tests.cases_world import case_of, decide, declare, report, state_of
from tests.contract.fault_server import Conversation, FaultServer, http_answer
from tests.contract.peers.mail import MailServer
from tests.contract.subjects.smtp import smtp_file
from tests.factories import Claimed, effect, grant, make_claimed, quieten, send
from tests.people import approver, operator

pytestmark = pytest.mark.django_db(transaction=True)

MACHINE = "arn:aws:states:eu-west-1:123456789012:stateMachine:orders"
MAIL = {"from": "shop@example.com", "to": ["ada@example.net"], "subject": "Hello", "text": "Hello.\n"}
ENVIRON = {
    "AWS_REGION": "eu-west-1",
    "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "secret-of-this-test",
    "STEP_FUNCTIONS_STATE_MACHINE_ARN": MACHINE,
    "SMTP_MESSAGE_ID_DOMAIN": "example.com",
}

Declare = Callable[..., None]


@pytest.fixture
def accounts(db: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Declare]:
    """Declares the shipped accounts with these addresses; the mail server is one without a password."""

    def make(**urls: str) -> None:
        for name, value in {**ENVIRON, **urls}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(settings, "RECOURSE_PROVIDERS", ["step-functions", "ec2"])
        monkeypatch.setattr(settings, "RECOURSE_PROVIDERS_DIR", [str(tmp_path)])
        (tmp_path / "smtp.toml").write_text(smtp_file(starttls="never", password=False))
        declare()

    yield make
    registry.reload()


def in_doubt(provider: str, payload: dict[str, Any]) -> tuple[Claimed, Case]:
    """An operation that was sent, whose outcome nobody knows, and whose attempt is quiet."""
    claimed = make_claimed(effect(provider=provider, args=payload))
    send(claimed)
    report("unknown", claimed)
    quieten(claimed.operation)
    return claimed, case_of(claimed)


def permitted_by_two(claimed: Claimed, case: Case) -> Grant:
    """One more request by the console, which one person asked for and another approved."""
    asked = decide(case, Action.RETRY, actor=operator().actor, executor=Executor.CONSOLE)
    request = ApprovalRequest.objects.get(pk=asked.approval)
    approving.approve(
        approval_id=request.pk,
        teams=None,
        worker=approver(),
        content_digest=request.content_digest,
        comment="A second mail does less harm than none.",
    )
    return Grant.objects.get(operation=claimed.operation)


@pytest.mark.parametrize(
    ("provider", "code", "exists"),
    [
        ("ec2", "IdempotentInstanceTerminated", True),
        ("ec2", "IdempotentParameterMismatch", False),
        ("ec2", "RequestLimitExceeded", False),
        ("step-functions", "ExecutionAlreadyExists", True),
        ("step-functions", "ThrottlingException", False),
    ],
)
def test_what_amazon_says_is_no_refusal_in_a_workers_report_either(
    accounts: Declare, provider: str, code: str, exists: bool
) -> None:
    accounts()
    claimed = make_claimed(effect(provider=provider))
    send(claimed)
    body = json.dumps({"Error": {"Code": code, "Message": "because"}}).encode()
    report("rejection", claimed, status=400, body=body)
    assert state_of(claimed) == "sent_unknown"
    assert case_of(claimed).kind == CaseKind.UNKNOWN
    if exists:
        report("not_sent", claimed)
        assert state_of(claimed) == "sent_unknown", "what is there was sent"


def test_another_error_of_amazons_is_a_refusal(accounts: Declare) -> None:
    accounts()
    claimed = make_claimed(effect(provider="ec2"))
    send(claimed)
    report("rejection", claimed, status=400, body=b'{"Error":{"Code":"InvalidAMIID.NotFound"}}')
    assert state_of(claimed) == "rejected"


def test_an_execution_that_a_lookup_shows_settles_its_case(accounts: Declare) -> None:
    payload = {"order": 7}
    keys: list[str] = []

    def describes(conversation: Conversation) -> None:
        request = json.loads(conversation.read_request().partition(b"\r\n\r\n")[2])
        arn = request["executionArn"]
        keys.append(arn.rpartition(":")[2])
        answer = {"executionArn": arn, "name": keys[-1], "status": "RUNNING", "input": '{"order": 7}'}
        conversation.send(http_answer(json.dumps(answer).encode(), status="200 OK"))

    with FaultServer(describes) as server:
        accounts(STEP_FUNCTIONS_URL=server.url)
        claimed, case = in_doubt("step-functions", payload)
        assert lookups.look_up(case_id=case.pk) == "found"
        registry.reload()
    assert state_of(claimed) == "confirmed"
    assert keys == [claimed.operation.key]
    kept = Receipt.objects.get(operation=claimed.operation)
    assert kept.reference == f"{MACHINE.replace('stateMachine', 'execution')}:{keys[0]}"


@pytest.mark.parametrize(
    ("says", "outcome", "state"),
    [
        ("250 2.0.0 Ok: queued as ABC123", AttemptOutcome.RECEIPT, "confirmed"),
        # A refusal of a repeat says nothing about the first mail.
        ("554 5.7.1 Spam", AttemptOutcome.REJECTED, "sent_unknown"),
        ("451 4.3.0 Busy", AttemptOutcome.UNKNOWN, "sent_unknown"),
    ],
)
def test_a_mail_that_the_console_repeats_is_what_the_server_says(
    accounts: Declare, says: str, outcome: AttemptOutcome, state: str
) -> None:
    with MailServer() as server:
        server.answers["DATA"] = says
        accounts(SMTP_URL=server.url)
        claimed, case = in_doubt("smtp", MAIL)
        given = permitted_by_two(claimed, case)
        retries.send_granted(grant_id=given.pk)
        kept = list(server.kept)
    attempt = Attempt.objects.get(operation=claimed.operation, number=2)
    assert attempt.outcome == outcome
    assert state_of(claimed) == state
    if outcome == AttemptOutcome.RECEIPT:
        assert [one.message_id for one in kept] == [f"<{claimed.operation.key}@example.com>"]
        receipt = Receipt.objects.get(operation=claimed.operation)
        assert (receipt.reference, receipt.matched_by) == (kept[0].message_id, "reply_only")
    evidence = Evidence.objects.filter(operation=claimed.operation).latest("recorded_at")
    dialogue = json.loads(bytes(evidence.body or b""))["dialogue"]
    assert f"< {says[:3]} {says[4:]}" in dialogue


def test_a_mail_server_that_is_down_proves_that_the_repeat_was_not_sent(
    accounts: Declare,
) -> None:
    with MailServer() as server:
        accounts(SMTP_URL=server.url)
    claimed, case = in_doubt("smtp", MAIL)
    given = permitted_by_two(claimed, case)
    assert retries.send_granted(grant_id=given.pk) == "not_sent"
    assert Attempt.objects.get(operation=claimed.operation, number=2).outcome == AttemptOutcome.NOT_SENT
    assert state_of(claimed) == "sent_unknown", "the first mail is as unknown as before"
    assert Operation.objects.get(pk=claimed.operation.pk).key == claimed.operation.key


def test_a_mail_is_not_repeated_on_one_persons_word(accounts: Declare) -> None:
    with MailServer() as server:
        accounts(SMTP_URL=server.url)
        claimed, _ = in_doubt("smtp", MAIL)
        given = grant(claimed.operation, executor=Executor.CONSOLE)
        retries.send_granted(grant_id=given.pk)
        assert list(server.kept) == []
    assert not Attempt.objects.filter(operation=claimed.operation, number=2).exists()
