"""Amazon's SQS FIFO queues, Step Functions and EC2 at moto, which somebody else wrote to stand in for it."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import botocore.session
from botocore.config import Config

from reconciliation.providers.aws_account import AwsAccount
from reconciliation.providers.base import Adapter, ReceiptSeen, SendOutcome
from reconciliation.providers.code_adapters import CODE_ADAPTERS
from reconciliation.providers.declaration import read_file
from reconciliation.providers.registry import SHIPPED
from reconciliation.providers.transport import Transport
from runs.ids import new_id
from tests.contract.bench import Bench, Order
from tests.contract.matrix import Case, Check, Subject
from tests.contract.peers.servers import Peer
from tests.contract.suite import NOBODY_LISTS, PAST_MS, sends_at_once
from tests.fault_proxy import WAIT_SECONDS

MOTO = "moto 5.2.5"
REGION = "eu-west-1"
IMAGE = "ami-12c6146b"
ENVIRON = {
    "AWS_REGION": REGION,
    "AWS_ACCESS_KEY_ID": "AKIDEXAMPLEEXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "secret-of-the-contract-suite",
}
SEND_MESSAGE = "https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessage.html"
REPEATED_ID = "https://github.com/http4k/http4k/pull/1600"
CLIENT_TOKENS = "https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-idempotency.html"


_SESSION = botocore.session.Session()


def client_of(service: str, url: str) -> Any:
    """A client that goes to the peer by botocore's own ways, and counts there."""
    return _SESSION.create_client(
        service,
        region_name=REGION,
        endpoint_url=url,
        aws_access_key_id="counting",
        aws_secret_access_key="counting",
        config=Config(retries={"total_max_attempts": 1}),
    )


class AwsBench(Bench):
    """One account as it is shipped, and a client of the test's own that counts at the peer."""

    slug: str
    url_name: str
    # botocore's name of the service.
    service: str

    def __init__(self, moto: Peer) -> None:
        self.moto = moto
        peer_url = moto.urls["aws"]
        self.peer = client_of(self.service, peer_url)
        self.environ: Mapping[str, str] = {**ENVIRON, **self.prepare()}
        super().__init__(peer_url)

    def prepare(self) -> Mapping[str, str]:
        """Make what the account is about, at the peer; its variables."""
        return {}

    def close(self) -> None:
        self.moto.reset_clock()
        super().close()
        self.peer.close()

    def close_adapter(self) -> None:
        assert isinstance(self.adapter, AwsAccount)
        self.adapter.close()

    def adapter_at(self, url: str, *, sending: Transport | None = None) -> Adapter:
        name = f"{self.slug}.toml"
        (path,) = SHIPPED.rglob(name)
        declared = read_file(path, shown_as=name, environ={**self.environ, self.url_name: url})
        assert declared.account.configured, f"{name} wants {declared.account.missing}"
        adapter = type(CODE_ADAPTERS[declared.account.adapter].make(declared))
        assert issubclass(adapter, AwsAccount)
        return adapter(declared, sending=sending)


class SqsBench(AwsBench):
    """A queue of its own, and a message group for each order."""

    slug, url_name, service = "sqs-fifo", "SQS_URL", "sqs"

    def prepare(self) -> Mapping[str, str]:
        name = f"{new_id('queue').lower()}.fifo"
        url = self.peer.create_queue(QueueName=name, Attributes={"FifoQueue": "true"})["QueueUrl"]
        self.queue_url = url
        return {"SQS_FIFO_QUEUE_URL": url}

    def order(self) -> Order:
        place = new_id("group")
        payload = {"MessageBody": "An order – größer als Latin-1: 🚚", "MessageGroupId": place}
        return Order(
            tool="queue",
            payload=payload,
            other={**payload, "MessageBody": "another order"},
            refused={**payload, "MessageAttributes": {"a": {"DataType": "no such type", "StringValue": "b"}}},
            place=place,
        )

    def held(self, order: Order) -> list[str]:
        """Every message of the group, taken and given back at once."""
        answer = self.peer.receive_message(
            QueueUrl=self.queue_url,
            MaxNumberOfMessages=10,
            VisibilityTimeout=0,
            AttributeNames=["MessageGroupId"],
        )
        return [
            one["MessageId"]
            for one in answer.get("Messages", [])
            if one["Attributes"]["MessageGroupId"] == order.place
        ]


def is_delivered_once(bench: Bench) -> None:
    """A repeat is accepted and not delivered; here it gets a MessageId that no message has."""
    order = bench.order()
    first, again = bench.receipt(bench.send(order)), bench.receipt(bench.send(order, attempt=2))
    assert bench.held(order) == [first.reference]
    assert again.reference != first.reference


def ignores_the_other_content(bench: Bench) -> None:
    """Other content under the same id is accepted and not delivered either, with nothing that says so."""
    order = bench.order()
    first = bench.receipt(bench.send(order))
    assert isinstance(bench.send(order.changed(), attempt=2), ReceiptSeen)
    assert bench.held(order) == [first.reference]


def delivers_one_of_many(bench: Bench) -> None:
    """Of five at once one is delivered, and each is told that it was accepted."""
    order = bench.order()
    outcomes: list[SendOutcome] = []
    ready = threading.Barrier(bench.at_once)

    def send(attempt: int) -> None:
        ready.wait(WAIT_SECONDS)
        outcomes.append(bench.send(order, attempt=attempt))

    threads = [threading.Thread(target=send, args=(number + 1,)) for number in range(bench.at_once)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(WAIT_SECONDS)
    receipts = {bench.receipt(one).reference for one in outcomes}
    assert len(outcomes) == bench.at_once
    (held,) = bench.held(order)
    assert held in receipts


def delivers_again_after_five_minutes(bench: Bench) -> None:
    """Past its window the same id is a second message, as the contract warned before that instant."""
    assert isinstance(bench, SqsBench)
    order = bench.order()
    contract = bench.contract
    assert contract.dedup_window_ms is not None
    assert contract.key_ends_at(order.first_sent_at) == order.first_sent_at + timedelta(
        milliseconds=contract.dedup_window_ms - contract.window_margin_ms
    )
    bench.receipt(bench.send(order))
    bench.moto.advance_clock(contract.dedup_window_ms - contract.window_margin_ms)
    bench.receipt(bench.send(order, attempt=2))
    assert len(bench.held(order)) == 1
    bench.moto.advance_clock(contract.window_margin_ms + PAST_MS)
    bench.receipt(bench.send(order, attempt=3))
    assert len(bench.held(order)) == 2


class StepFunctionsBench(AwsBench):
    """A state machine of its own; an order's executions are those whose name begins with its key."""

    slug, url_name, service = "step-functions", "STEP_FUNCTIONS_URL", "stepfunctions"

    def prepare(self) -> Mapping[str, str]:
        made = self.peer.create_state_machine(
            name=new_id("machine"),
            definition='{"StartAt": "Rest", "States": {"Rest": {"Type": "Pass", "End": true}}}',
            roleArn="arn:aws:iam::123456789012:role/contract-suite",
        )
        self.arn = made["stateMachineArn"]
        return {"STEP_FUNCTIONS_STATE_MACHINE_ARN": self.arn}

    def order(self) -> Order:
        payload = {"order": new_id("order"), "quantity": 2, "note": "größer"}
        return Order(tool="workflow", payload=payload, other={**payload, "quantity": 3})

    def held(self, order: Order) -> list[str]:
        listed = self.peer.list_executions(stateMachineArn=self.arn)["executions"]
        return [one["executionArn"] for one in listed if one["name"].startswith(order.key)]

    def send_refused(self, order: Order) -> SendOutcome:
        """A name with a blank in it, which no key of ours has."""
        return self.send(replace(order, key=f"{order.key} again"))


class Ec2Bench(AwsBench):
    """Instances in one region; an order's are those with its key in the tag."""

    slug, url_name, service = "ec2", "EC2_URL", "ec2"
    effects_of_a_repeat = 2
    at_once = 3

    def prepare(self) -> Mapping[str, str]:
        """The first question makes the peer read all that it knows of EC2: longer than a request may take."""
        self.peer.describe_instances()
        return {}

    def order(self) -> Order:
        payload = {"ImageId": IMAGE, "InstanceType": "t3.micro"}
        return Order(
            tool="launch",
            payload=payload,
            other={**payload, "InstanceType": "t3.small"},
            refused={**payload, "SubnetId": "subnet-0000000000000dead"},
        )

    def held(self, order: Order) -> list[str]:
        pages = self.peer.describe_instances(Filters=[{"Name": "tag:recourse-key", "Values": [order.key]}])
        return [one["InstanceId"] for each in pages["Reservations"] for one in each["Instances"]]

    def send_duplicate(self, order: Order) -> SendOutcome:
        return self.send(order, attempt=2)


KEEPS_NAMES = "the peer never forgets a name"
IGNORES_TOKENS = "launches another instance for the same ClientToken"

STEP_FUNCTIONS = Subject(
    adapter="step_functions",
    peer=MOTO,
    independent=True,
    keeps_connections=False,
    bench=lambda peers: StepFunctionsBench(peers.moto()),
    cases={
        Case.SEND: Check(),
        Case.SAME_KEY: Check(),
        Case.OTHER_PAYLOAD: Check(),
        Case.CONCURRENT: Check(),
        Case.LOST_REPLY: Check(),
        Case.REFUSAL: Check(),
        Case.ABSENCE: Check(),
        Case.LISTED: Check(),
    },
    not_run={
        Case.LAG: "moto shows an execution at once",
        Case.SEVERAL: "a name exists once in a state machine",
        Case.CLOSED_WINDOW: KEEPS_NAMES,
    },
)

SUBJECTS = (
    Subject(
        adapter="sqs_fifo",
        peer=MOTO,
        independent=True,
        bench=lambda peers: SqsBench(peers.moto()),
        cases={
            Case.SEND: Check(),
            Case.SAME_KEY: Check(
                run=is_delivered_once,
                departure="answers a repeat with a new MessageId; Amazon is told to answer with the first",
                source=REPEATED_ID,
            ),
            Case.OTHER_PAYLOAD: Check(run=ignores_the_other_content),
            Case.CONCURRENT: Check(
                run=delivers_one_of_many,
                departure="answers each of the others with a MessageId that no message has",
                source=REPEATED_ID,
            ),
            Case.LOST_REPLY: Check(),
            Case.REFUSAL: Check(),
            Case.SEVERAL: Check(),
            Case.CLOSED_WINDOW: Check(run=delivers_again_after_five_minutes),
        },
        not_run={
            Case.ABSENCE: "a queue can't be asked",
            Case.LISTED: NOBODY_LISTS,
            Case.LAG: "a queue can't be asked",
        },
    ),
    STEP_FUNCTIONS,
    Subject(
        adapter="ec2_run_instances",
        peer=MOTO,
        independent=True,
        bench=lambda peers: Ec2Bench(peers.moto()),
        cases={
            Case.SEND: Check(),
            Case.SAME_KEY: Check(departure=IGNORES_TOKENS, source=CLIENT_TOKENS),
            Case.OTHER_PAYLOAD: Check(departure=IGNORES_TOKENS, source=CLIENT_TOKENS),
            Case.CONCURRENT: Check(run=sends_at_once, departure=IGNORES_TOKENS, source=CLIENT_TOKENS),
            Case.LOST_REPLY: Check(),
            Case.REFUSAL: Check(),
            Case.ABSENCE: Check(),
            Case.SEVERAL: Check(departure=IGNORES_TOKENS, source=CLIENT_TOKENS),
            Case.LISTED: Check(),
        },
        not_run={
            Case.LAG: "moto shows an instance at once",
            Case.CLOSED_WINDOW: "no window is published",
        },
    ),
)
