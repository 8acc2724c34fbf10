"""What the AWS adapters make of answers that moto never gives, and of what goes wrong on the way.

The answers are written here by the services' documentation, so this is no independent peer: it holds the
adapters to what we understood, and `subjects/aws.py` to somebody else's server.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from reconciliation.contracts import LookupKind
from reconciliation.providers.answers import Body, matches_any
from reconciliation.providers.aws_account import AwsAccount
from reconciliation.providers.base import (
    Found,
    Inconclusive,
    Mismatch,
    NotFound,
    NotSentSeen,
    Phase,
    ReceiptSeen,
    Refused,
    RejectedSeen,
    SendKind,
    SendOutcome,
    Several,
    Unavailable,
    UnknownSeen,
)
from reconciliation.providers.code_adapters import CODE_ADAPTERS
from reconciliation.providers.declaration import read_file
from reconciliation.providers.registry import CATALOGUE
from tests.contract.declaring import KEY, operation, question
from tests.contract.fault_server import Conversation, FaultServer, Script, http_answer

SECRETS = {
    "AWS_ACCESS_KEY_ID": "AKIDTHEACCOUNTSOWN",
    "AWS_SECRET_ACCESS_KEY": "the-secret-of-the-account",
    "AWS_SESSION_TOKEN": "the-session-token-of-the-account",
}
MACHINE = "arn:aws:states:eu-west-1:123456789012:stateMachine:orders"
EXECUTION = f"arn:aws:states:eu-west-1:123456789012:execution:orders:{KEY}"
ENVIRON = {
    **SECRETS,
    "AWS_REGION": "eu-west-1",
    "SQS_FIFO_QUEUE_URL": "https://sqs.eu-west-1.amazonaws.com/123456789012/orders.fifo",
    "STEP_FUNCTIONS_STATE_MACHINE_ARN": MACHINE,
}
MESSAGE = {"MessageBody": "hello", "MessageGroupId": "g"}
MD5_OF_HELLO = "5d41402abc4b2a76b9719d911017c592"
LAUNCH = {"ImageId": "ami-1", "InstanceType": "t3.micro"}


@dataclass(frozen=True, kw_only=True)
class Service:
    """One adapter with an operation for it, and how its service writes an error."""

    slug: str
    url_name: str
    payload: Any
    error: Callable[[str], bytes]


def json_error(code: str) -> bytes:
    return json.dumps({"__type": f"com.amazonaws.service#{code}", "message": "because"}).encode()


def xml_error(code: str) -> bytes:
    return (
        f"<Response><Errors><Error><Code>{code}</Code><Message>because</Message></Error></Errors>"
        "<RequestID>r-1</RequestID></Response>"
    ).encode()


SQS = Service(slug="sqs-fifo", url_name="SQS_URL", payload=MESSAGE, error=json_error)
WORKFLOWS = Service(
    slug="step-functions", url_name="STEP_FUNCTIONS_URL", payload={"order": 7}, error=json_error
)
EC2 = Service(slug="ec2", url_name="EC2_URL", payload=LAUNCH, error=xml_error)
SERVICES = {one.slug: one for one in (SQS, WORKFLOWS, EC2)}


@contextmanager
def account(
    service: Service, url: str, *, environ: Mapping[str, str] = ENVIRON, folder: Path | None = None
) -> Iterator[AwsAccount]:
    path = CATALOGUE / f"{service.slug}.toml"
    if folder is not None:
        text = path.read_text().replace(
            "[credentials]\n", '[credentials]\nsession_token = { env = "AWS_SESSION_TOKEN" }\n'
        )
        path = folder / path.name
        path.write_text(text)
    declared = read_file(path, shown_as=path.name, environ={**environ, service.url_name: url})
    adapter = CODE_ADAPTERS[declared.account.adapter].make(declared)
    assert isinstance(adapter, AwsAccount)
    try:
        yield adapter
    finally:
        adapter.close()


def answering(body: bytes, status: str = "200 OK", extra: str = "") -> Script:
    def script(conversation: Conversation) -> None:
        conversation.read_request()
        conversation.send(http_answer(body, status=status, extra=extra))

    return script


def sent(service: Service, script: Script, **changes: Any) -> tuple[SendOutcome, FaultServer]:
    with FaultServer(script) as server, account(service, server.url) as adapter:
        return adapter.send(operation(payload=service.payload, **changes)), server


def each_sent(service: Service, answers: list[bytes]) -> tuple[list[SendOutcome], FaultServer]:
    """One send for each answer, through one adapter."""

    def script(conversation: Conversation) -> None:
        conversation.read_request()
        conversation.send(answers[conversation.server.requests - 1])

    with FaultServer(script) as server, account(service, server.url) as adapter:
        return [adapter.send(operation(payload=service.payload)) for _ in answers], server


def asked(service: Service, script: Script) -> Any:
    with FaultServer(script) as server, account(service, server.url) as adapter:
        finding = adapter.look_up(question(payload=service.payload))
        assert server.requests == 1
        return finding


# --- errors --------------------------------------------------------------------------------------------


ABOUT_NOW = (
    ("400 Bad Request", "ThrottlingException"),
    ("400 Bad Request", "RequestLimitExceeded"),
    ("400 Bad Request", "ServiceUnavailable"),
    ("403 Forbidden", "RequestThrottled"),
    ("408 Request Timeout", "RequestTimeout"),
    ("409 Conflict", "Whatever"),
    ("429 Too Many Requests", "Whatever"),
    ("500 Internal Server Error", "InternalError"),
    ("503 Service Unavailable", "Unavailable"),
)


@pytest.mark.parametrize("slug", SERVICES)
def test_errors_about_now_are_unknown_and_sent_once(slug: str) -> None:
    service = SERVICES[slug]
    answers = [
        http_answer(service.error(code), status=status, extra="Retry-After: 3\r\n")
        for status, code in ABOUT_NOW
    ]
    outcomes, server = each_sent(service, answers)
    for about, outcome in zip(ABOUT_NOW, outcomes, strict=True):
        assert isinstance(outcome, UnknownSeen), f"{about}: {outcome.summary}"
        assert not outcome.effect_exists
        assert outcome.retry_after_ms == 3000
    assert server.requests == len(ABOUT_NOW), "botocore retries nothing"


@pytest.mark.parametrize("slug", SERVICES)
def test_other_errors_are_refusals_of_this_request(slug: str) -> None:
    service = SERVICES[slug]
    script = answering(service.error("ValidationError"), "400 Bad Request")
    first, _ = sent(service, script)
    again, _ = sent(service, script, attempt_number=2)
    assert isinstance(first, RejectedSeen), first.summary
    assert "ValidationError" in first.summary
    assert isinstance(again, RejectedSeen)
    assert (first.speaks_for_first, again.speaks_for_first) == (True, False)


@pytest.mark.parametrize("slug", SERVICES)
def test_an_error_that_cannot_be_read_is_unknown(slug: str) -> None:
    bodies = (b"<html>a proxy's page</html>", b"", b"not json {")
    answers = [http_answer(body, status="400 Bad Request") for body in bodies]
    for body, outcome in zip(bodies, each_sent(SERVICES[slug], answers)[0], strict=True):
        assert outcome.kind is SendKind.UNKNOWN, f"{body!r}: {outcome.summary}"


@pytest.mark.parametrize(
    ("service", "code"), [(EC2, "IdempotentInstanceTerminated"), (WORKFLOWS, "ExecutionAlreadyExists")]
)
def test_an_error_that_proves_existence_is_no_refusal(service: Service, code: str) -> None:
    outcome, _ = sent(service, answering(service.error(code), "400 Bad Request"))
    assert isinstance(outcome, UnknownSeen), outcome.summary
    assert outcome.effect_exists
    # Whoever reads the evidence later concludes the same from it.
    kept = Body(value=json.loads(outcome.exchange.body), readable=True)
    with account(service, "http://127.0.0.1:9") as adapter:
        assert matches_any(adapter.contract.proves_existence, 400, kept, unreadable=False)


def test_a_token_used_for_something_else_is_no_refusal_of_ours() -> None:
    outcome, _ = sent(EC2, answering(xml_error("IdempotentParameterMismatch"), "400 Bad Request"))
    assert isinstance(outcome, UnknownSeen), outcome.summary
    assert not outcome.effect_exists, "that something was launched says nothing of this launch"


@pytest.mark.parametrize("slug", SERVICES)
def test_a_redirect_is_not_followed(slug: str) -> None:
    service = SERVICES[slug]
    for status in ("301 Moved", "307 Temporary Redirect", "308 Permanent Redirect"):
        with FaultServer(answering(b"{}")) as other:
            script = answering(service.error("Moved"), status, f"Location: {other.url}/\r\n")
            outcome, server = sent(service, script)
            assert other.connections == 0
        assert outcome.kind is SendKind.UNKNOWN, outcome.summary
        assert server.requests == 1


# --- successes -----------------------------------------------------------------------------------------


def test_a_queue_that_repeats_its_first_answer_gives_the_same_receipt() -> None:
    answer = {"MessageId": "m-1", "SequenceNumber": "18", "MD5OfMessageBody": MD5_OF_HELLO}
    first, _ = sent(SQS, answering(json.dumps(answer).encode()))
    again, _ = sent(SQS, answering(json.dumps(answer).encode()), attempt_number=2)
    assert isinstance(first, ReceiptSeen), first.summary
    assert isinstance(again, ReceiptSeen)
    assert first.receipt.reference == again.receipt.reference == "m-1"


def test_a_message_that_arrived_otherwise_is_no_receipt() -> None:
    answer = {"MessageId": "m-1", "SequenceNumber": "18", "MD5OfMessageBody": "0" * 32}
    outcome, _ = sent(SQS, answering(json.dumps(answer).encode()))
    assert isinstance(outcome, UnknownSeen), outcome.summary
    assert outcome.receipt is not None
    assert [one.path for one in outcome.receipt.differences] == ["$.MessageBody"]


@pytest.mark.parametrize("slug", SERVICES)
def test_a_success_without_a_receipt_is_unknown(slug: str) -> None:
    bodies = (b"{}", b"", b"<RunInstancesResponse/>", b"\x1f\x8b", b'{"MessageId": "m-1"}')
    answers = [http_answer(body, status="200 OK") for body in bodies]
    for body, outcome in zip(bodies, each_sent(SERVICES[slug], answers)[0], strict=True):
        assert outcome.kind is SendKind.UNKNOWN, f"{body!r}: {outcome.summary}"


def test_a_receipt_that_the_database_could_not_hold_is_unknown() -> None:
    for odd in ("\\u0000", "\\ud800"):
        body = f'{{"MessageId": "m-1", "MD5OfMessageBody": "{MD5_OF_HELLO}", "SequenceNumber": "{odd}"}}'
        outcome, _ = sent(SQS, answering(body.encode()))
        assert isinstance(outcome, UnknownSeen), outcome.summary
        assert outcome.receipt is None


def test_an_execution_of_another_name_is_no_receipt() -> None:
    answer = {"executionArn": f"{EXECUTION}-else", "startDate": 1764460800.0}
    outcome, _ = sent(WORKFLOWS, answering(json.dumps(answer).encode()))
    assert isinstance(outcome, UnknownSeen), outcome.summary


# --- asking --------------------------------------------------------------------------------------------


def instances(*each: str) -> bytes:
    reservations = "".join(
        f"<item><reservationId>r-{at}</reservationId><instancesSet>{one}</instancesSet></item>"
        for at, one in enumerate(each)
    )
    listed = f"<reservationSet>{reservations}</reservationSet>"
    return f"<DescribeInstancesResponse>{listed}</DescribeInstancesResponse>".encode()


def instance(
    name: str = "i-1", *, state: str = "running", reason: str = "", key: str = KEY, image: str = "ami-1"
) -> str:
    return (
        f"<item><instanceId>{name}</instanceId><imageId>{image}</imageId><instanceType>t3.micro</instanceType>"
        f"<instanceState><code>16</code><name>{state}</name></instanceState>"
        f"<stateReason><code>{reason}</code><message/></stateReason>"
        f"<tagSet><item><key>recourse-key</key><value>{key}</value></item></tagSet></item>"
    )


def test_an_instance_with_our_tag_is_found() -> None:
    finding = asked(EC2, answering(instances(instance())))
    assert isinstance(finding, Found), finding.summary
    assert finding.receipts[0].reference == "i-1"


def test_an_instance_that_was_terminated_was_launched() -> None:
    ended = instance(state="terminated", reason="Client.UserInitiatedShutdown")
    assert isinstance(asked(EC2, answering(instances(ended))), Found)


def test_a_launch_that_failed_ended_without_effect() -> None:
    failed = instance(state="terminated", reason="Server.InsufficientInstanceCapacity")
    finding = asked(EC2, answering(instances(failed)))
    assert isinstance(finding, Refused), finding.summary
    assert "InsufficientInstanceCapacity" in finding.summary


def test_two_instances_are_several_in_one_reservation_or_two() -> None:
    for body in (
        instances(instance("i-1"), instance("i-2")),
        instances(instance("i-1") + instance("i-2")),
    ):
        finding = asked(EC2, answering(body))
        assert isinstance(finding, Several), finding.summary
        assert [one.reference for one in finding.receipts] == ["i-1", "i-2"]


def test_an_instance_of_another_image_differs() -> None:
    finding = asked(EC2, answering(instances(instance(image="ami-2"))))
    assert isinstance(finding, Mismatch), finding.summary


def test_a_filter_that_shows_others_shows_nothing() -> None:
    """Some stand-ins take any filter for all: that is neither found nor absent."""
    finding = asked(EC2, answering(instances(instance(key="somebody-elses"))))
    assert isinstance(finding, Inconclusive)
    assert finding.reason == "not_filtered"


def test_a_list_that_goes_on_is_not_absence() -> None:
    body = instances().replace(b"</reservationSet>", b"</reservationSet><nextToken>more</nextToken>")
    finding = asked(EC2, answering(body))
    assert isinstance(finding, Inconclusive)
    assert finding.reason == "incomplete"


def test_no_instance_is_never_proof() -> None:
    finding = asked(EC2, answering(instances()))
    assert isinstance(finding, NotFound)
    assert not finding.proof


def execution(**changes: Any) -> bytes:
    return json.dumps(
        {
            "executionArn": EXECUTION,
            "name": KEY,
            "stateMachineArn": MACHINE,
            "status": "FAILED",
            "startDate": 1764460800.0,
            "input": ' {"order" : 7} ',
            **changes,
        }
    ).encode()


def test_an_execution_is_found_whatever_became_of_it() -> None:
    finding = asked(WORKFLOWS, answering(execution()))
    assert isinstance(finding, Found), finding.summary
    assert finding.receipts[0].status == "FAILED"


def test_an_execution_with_other_input_differs() -> None:
    for given in ('{"order": 8}', "[]", "not json", '{"order": 7, "order": 7}'):
        finding = asked(WORKFLOWS, answering(execution(input=given)))
        assert isinstance(finding, Mismatch), f"{given}: {finding.summary}"


def test_an_execution_whose_input_is_hidden_says_nothing() -> None:
    body = json.loads(execution())
    del body["input"]
    finding = asked(WORKFLOWS, answering(json.dumps(body).encode()))
    assert isinstance(finding, Inconclusive)
    assert finding.reason == "input_hidden"


def test_no_such_execution_is_never_proof() -> None:
    finding = asked(WORKFLOWS, answering(json_error("ExecutionDoesNotExist"), "400 Bad Request"))
    assert isinstance(finding, NotFound)
    assert not finding.proof


NOT_ANSWERED = (
    ("400 Bad Request", "AccessDeniedException", "refused_us"),
    ("403 Forbidden", "UnauthorizedOperation", "refused_us"),
    ("400 Bad Request", "ThrottlingException", "overloaded"),
    ("503 Service Unavailable", "RequestLimitExceeded", "overloaded"),
    ("500 Internal Server Error", "InternalError", "failing"),
)


@pytest.mark.parametrize("service", [WORKFLOWS, EC2], ids=["workflows", "ec2"])
def test_a_question_that_is_not_answered_says_nothing(service: Service) -> None:
    def script(conversation: Conversation) -> None:
        for status, code, _ in NOT_ANSWERED:
            conversation.read_request()
            conversation.send(http_answer(service.error(code), status=status))

    with FaultServer(script) as server, account(service, server.url) as adapter:
        for status, code, reason in NOT_ANSWERED:
            finding = adapter.look_up(question(payload=service.payload))
            assert isinstance(finding, Unavailable), f"{status} {code}: {finding.summary}"
            assert finding.reason == reason, f"{status} {code}"


@pytest.mark.parametrize("service", [WORKFLOWS, EC2], ids=["workflows", "ec2"])
def test_another_error_to_a_question_is_inconclusive(service: Service) -> None:
    finding = asked(service, answering(service.error("ValidationException"), "400 Bad Request"))
    assert isinstance(finding, Inconclusive), finding.summary


# --- what leaves, and what doesn't -----------------------------------------------------------------------


@pytest.mark.parametrize("slug", SERVICES)
def test_secrets_and_signatures_stay_out_of_evidence(slug: str, tmp_path: Path) -> None:
    service = SERVICES[slug]
    requests: list[bytes] = []

    def echoes(conversation: Conversation) -> None:
        requests.append(conversation.read_request())
        said = " ".join(SECRETS.values())
        conversation.send(http_answer(service.error(f"Echo {said}"), status="400 Bad Request"))

    with FaultServer(echoes) as server, account(service, server.url, folder=tmp_path) as adapter:
        outcome = adapter.send(operation(payload=service.payload))
    (request,) = requests
    signature = request.partition(b"Signature=")[2][:64].decode()
    assert len(signature) == 64
    assert SECRETS["AWS_SESSION_TOKEN"].encode() in request
    kept = repr(outcome)
    for secret in (*SECRETS.values(), signature):
        assert secret not in kept
    names = dict(outcome.exchange.request_headers)
    assert names["Authorization"] == names["X-Amz-Security-Token"] == "[redacted]"


@pytest.mark.parametrize("slug", SERVICES)
def test_every_attempt_has_the_same_body_and_our_key(slug: str) -> None:
    service = SERVICES[slug]
    bodies: list[bytes] = []

    def script(conversation: Conversation) -> None:
        bodies.append(conversation.read_request().partition(b"\r\n\r\n")[2])

    for attempt in (1, 2):
        sent(service, script, attempt_number=attempt)
    assert bodies[0] == bodies[1]
    assert KEY.encode() in bodies[0]


def test_nothing_in_the_environment_changes_where_a_request_goes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A profile, another endpoint, more attempts, a proxy: the account's file alone decides."""
    config = tmp_path / "config"
    config.write_text(
        "[profile other]\nmax_attempts = 7\nregion = us-west-2\nendpoint_url = http://127.0.0.1:9\n"
    )
    for name, value in {
        "AWS_PROFILE": "one-that-is-nowhere",
        "AWS_CONFIG_FILE": str(config),
        "AWS_SHARED_CREDENTIALS_FILE": str(config),
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
        "AWS_ENDPOINT_URL_SQS": "http://127.0.0.1:9",
        "AWS_MAX_ATTEMPTS": "7",
        "AWS_RETRY_MODE": "legacy",
        "AWS_DEFAULT_REGION": "us-west-2",
        "AWS_ACCESS_KEY_ID": "AKIDSOMEBODYELSES",
        "AWS_USE_FIPS_ENDPOINT": "true",
        "AWS_DATA_PATH": str(tmp_path),
        "HTTP_PROXY": "http://127.0.0.1:9",
        "http_proxy": "http://127.0.0.1:9",
        "HOME": str(tmp_path),
    }.items():
        monkeypatch.setenv(name, value)
    requests: list[bytes] = []

    def script(conversation: Conversation) -> None:
        requests.append(conversation.read_request())
        conversation.send(http_answer(json_error("InternalError"), status="500 Internal Server Error"))

    outcome, server = sent(SQS, script)
    assert outcome.kind is SendKind.UNKNOWN, outcome.summary
    assert server.requests == 1
    assert f"Credential={SECRETS['AWS_ACCESS_KEY_ID']}/".encode() in requests[0]
    assert b"/eu-west-1/sqs/" in requests[0]


def test_a_second_request_for_one_call_is_stopped() -> None:
    """Whatever botocore may one day want to retry, one call stays one request."""
    answer = answering(json_error("InternalError"), "500 Internal Server Error")
    with FaultServer(answer) as server, account(SQS, server.url) as adapter:
        client = adapter._client._ready()
        client.meta.events.register_first("needs-retry", lambda **_: 0)
        outcome = adapter.send(operation(payload=MESSAGE))
        assert server.requests == 1
    assert isinstance(outcome, UnknownSeen), outcome.summary


def test_an_account_that_is_not_configured_neither_sends_nor_asks() -> None:
    with FaultServer(answering(b"{}")) as server:
        without = {name: value for name, value in ENVIRON.items() if name != "AWS_SECRET_ACCESS_KEY"}
        with account(EC2, server.url, environ=without) as adapter:
            assert adapter.account.missing == ("AWS_SECRET_ACCESS_KEY",)
            assert isinstance(adapter.send(operation(payload=LAUNCH)), NotSentSeen)
            assert isinstance(adapter.look_up(question(payload=LAUNCH)), Unavailable)
        assert server.connections == 0


def test_lookups_that_were_switched_off_are_not_made() -> None:
    with FaultServer(answering(instances(instance()))) as server, account(EC2, server.url) as adapter:
        silent = replace(adapter.account, contract=replace(adapter.contract, lookup=LookupKind.NONE))
        adapter._account = silent
        finding = adapter.look_up(question(payload=LAUNCH))
        assert server.connections == 0
    assert isinstance(finding, Inconclusive)
    assert finding.reason == "no_lookup"


def test_past_the_start_window_nothing_leaves() -> None:
    outcome, server = sent(SQS, answering(b"{}"), start_in_seconds=-0.1)
    assert isinstance(outcome, NotSentSeen), outcome.summary
    assert outcome.exchange.error_class == "StartWindowPassed"
    assert server.connections == 0


def test_a_server_that_drips_is_left_when_the_time_is_up() -> None:
    def drips(conversation: Conversation) -> None:
        conversation.read_request()
        conversation.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        while not conversation.server.over.wait(0.05):
            conversation.send(b" ")

    # The client is made first: only the request is timed here.
    with FaultServer(drips) as server, account(SQS, server.url) as adapter:
        adapter._client._ready()
        outcome = adapter.send(operation(payload=MESSAGE, within_ms=600))
    assert isinstance(outcome, UnknownSeen), outcome.summary
    assert outcome.exchange.phase is Phase.READING


def test_a_closed_port_is_proved_not_sent() -> None:
    with account(SQS, "http://127.0.0.1:9") as adapter:
        outcome = adapter.send(operation(payload=MESSAGE))
    assert isinstance(outcome, NotSentSeen), outcome.summary
    assert not outcome.exchange.headers_started


UNUSABLE: dict[str, tuple[Service, Any, str]] = {
    "no object": (SQS, ["hello"], "not an object"),
    "no group": (SQS, {"MessageBody": "hello"}, "has no MessageGroupId"),
    "another key": (SQS, {**MESSAGE, "MessageDeduplicationId": "mine"}, "which is set here"),
    "another queue": (SQS, {**MESSAGE, "QueueUrl": "https://elsewhere"}, "which is set here"),
    "an unknown parameter": (SQS, {**MESSAGE, "Colour": "red"}, "Unknown parameter"),
    "a number for a text": (SQS, {**MESSAGE, "MessageBody": 5}, "Invalid type"),
    "another token": (EC2, {**LAUNCH, "ClientToken": "mine"}, "which is set here"),
    "a dry run": (EC2, {**LAUNCH, "DryRun": True}, "which is set here"),
    "several instances": (EC2, {**LAUNCH, "MaxCount": 2}, "one operation launches one instance"),
    "true instances": (EC2, {**LAUNCH, "MinCount": True}, "one operation launches one instance"),
    "our tag": (
        EC2,
        {
            **LAUNCH,
            "TagSpecifications": [
                {"ResourceType": "instance", "Tags": [{"Key": "recourse-key", "Value": "x"}]}
            ],
        },
        "which is set here",
    ),
    "tags in a text": (EC2, {**LAUNCH, "TagSpecifications": "none"}, "not a list of objects"),
}


def test_what_cannot_be_made_into_a_request_is_not_sent() -> None:
    for service in (SQS, EC2):
        with FaultServer(answering(b"{}")) as server, account(service, server.url) as adapter:
            for case, (of_service, payload, because) in UNUSABLE.items():
                if of_service is service:
                    outcome = adapter.send(operation(payload=payload))
                    assert isinstance(outcome, NotSentSeen), f"{case}: {outcome.summary}"
                    assert because in outcome.summary, case
                    assert outcome.exchange.phase is Phase.NOT_STARTED
            assert server.connections == 0


def test_our_tag_joins_those_of_the_payload() -> None:
    bodies: list[bytes] = []
    tags = [
        {"ResourceType": "volume", "Tags": [{"Key": "disk", "Value": "1"}]},
        {"ResourceType": "instance", "Tags": [{"Key": "team", "Value": "shop"}]},
    ]

    def script(conversation: Conversation) -> None:
        bodies.append(conversation.read_request())

    sent(replace(EC2, payload={**LAUNCH, "TagSpecification": tags} | {"TagSpecifications": tags}), script)
    sent(replace(EC2, payload={**LAUNCH, "TagSpecifications": tags}), script)
    (body,) = bodies
    assert body.count(b"ResourceType=instance") == 1
    assert b"TagSpecification.2.Tag.2.Key=recourse-key" in body
    assert b"ClientToken=" in body
    assert b"MinCount=1" in body


def test_no_import_of_a_service_costs_settings_anything() -> None:
    """The registry is read by every process; botocore only by one that sends or asks."""
    import subprocess
    import sys

    code = (
        "import os, sys, django; os.environ['DJANGO_SETTINGS_MODULE'] = 'console.settings'; django.setup();"
        "from reconciliation.providers import registry; registry.all_accounts();"
        "sys.exit(any(name.startswith('botocore') for name in sys.modules))"
    )
    environ = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    subprocess.run([sys.executable, "-c", code], check=True, env={**environ, "RECOURSE_PROVIDERS": "ec2"})
