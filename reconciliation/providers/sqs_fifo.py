"""Amazon SQS FIFO queues: SendMessage with our key as MessageDeduplicationId.

The queue forgets a key five minutes after the first send, and it can't be asked: receiving is not reading.
The reply's MD5 of the body is the one proof that it took what we meant.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date
from typing import Any
from urllib.parse import urlsplit

from reconciliation.contracts import (
    CompareAs,
    Contract,
    KeyFormat,
    KeyScope,
    ListingWay,
    LookupKind,
    MatchField,
    OnInFlight,
    OnOtherPayload,
    ReceiptPaths,
    Replays,
    Verification,
    VerifiedWith,
    WindowKind,
)
from reconciliation.providers.aws import CREDENTIALS, NOT_NOW_PATTERN, OPTIONAL_CREDENTIALS
from reconciliation.providers.aws_account import AwsAccount, members_of, regional_url
from reconciliation.providers.base import Finding, Inconclusive, OutgoingOperation, Question
from reconciliation.providers.code_accounts import OURS, CodeAdapter, Described, facts_from, text_or_env
from reconciliation.providers.request_tables import AnswerRules
from reconciliation.providers.tables import Table, found_text

# https://sqs.eu-west-1.amazonaws.com/123456789012/orders.fifo
_QUEUE_PATH = re.compile(r"/[0-9]{12}/[A-Za-z0-9_-]{1,75}\.fifo\Z")

CONTRACT = Contract(
    key_field="MessageDeduplicationId",
    key_format=KeyFormat.BODY_FIELD,
    key_scope=KeyScope.QUEUE,
    dedup_window_ms=300_000,
    window_kind=WindowKind.DOCUMENTED,
    # A tenth of the window, for clocks that differ and a request that is slow to arrive.
    window_margin_ms=30_000,
    on_other_payload=OnOtherPayload.REPLAYED,
    on_in_flight=OnInFlight.UNKNOWN,
    replays=Replays.FIRST_SUCCESS,
    rejection_replays=False,
    proves_existence=(),
    lookup=LookupKind.NONE,
    visibility_lag_ms=None,
    lookup_retention_ms=None,
    absence_is_proof=False,
    match_fields=(MatchField(payload="$.MessageBody", answer="$.MD5OfMessageBody", compare=CompareAs.MD5),),
    success_when=None,
    # Nothing can be looked up; the limit is only there because every account has one.
    rate_limit_per_second=1.0,
    # No bound is published. With these three a repeat is possible from 35 seconds after the first send until
    # 250 seconds after it.
    in_flight_bound_ms=15_000,
    start_within_ms=10_000,
    request_within_ms=10_000,
    receipt=ReceiptPaths(id="$.MessageId"),
)

_API = "https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessage.html"
_TERMS = "https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/FIFO-key-terms.html"
_READ_ON = date(2026, 11, 30)

FACTS = (
    *facts_from(
        _API,
        _READ_ON,
        {
            "key_format": "a parameter of the call",
            "key_field": "up to 128 characters; it overrides content-based deduplication",
            "replays": "a repeat is accepted and not delivered; that it gets the first MessageId and"
            " SequenceNumber again is only told by others' re-implementations",
            "on_other_payload": "a message with a known id is accepted and not delivered; nothing says"
            " that its body is compared",
            "on_in_flight": "not stated",
            "rejection_replays": "nothing says that an error is kept",
            "proves_existence": "no error says that the message is there: a repeat is no error",
            "match_fields": "MD5OfMessageBody is of the body as the queue took it",
            "receipt": "MessageId and SequenceNumber; our id isn't echoed",
            "success_when": "a message that was accepted is in the queue",
        },
    ),
    *facts_from(
        _TERMS,
        _READ_ON,
        {
            "dedup_window_ms": "five minutes, also after the message was received and deleted",
            "window_kind": "the duration is stated",
        },
    ),
    *facts_from(
        "https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SetQueueAttributes.html",
        _READ_ON,
        {"key_scope": "the queue, or with DeduplicationScope messageGroup the group"},
    ),
    *facts_from(
        "https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_ReceiveMessage.html",
        _READ_ON,
        {
            "lookup": "receiving hides a message from its consumers: no question that changes nothing",
            "visibility_lag_ms": "there is no lookup",
            "lookup_retention_ms": "there is no lookup",
            "absence_is_proof": "there is no lookup",
            "listing": "no call lists messages; receiving one hides it from its consumers",
        },
    ),
    *facts_from(
        OURS, _READ_ON, {"in_flight_bound_ms": "our own choice: no bound is published; longer may be set"}
    ),
)


class SqsFifo(AwsAccount):
    """One FIFO queue. The payload has `MessageBody` and `MessageGroupId`, perhaps `MessageAttributes`."""

    service = "sqs"
    method = "send_message"
    no_lookup = (
        "A queue can't be asked for a message without taking it from its consumers: only they can tell."
    )

    def parameters(self, operation: OutgoingOperation) -> Mapping[str, Any]:
        members = members_of(
            operation.payload,
            required=("MessageBody", "MessageGroupId"),
            # DelaySeconds can't be set for one message of a FIFO queue, and would be refused.
            ours=("MessageDeduplicationId", "QueueUrl", "DelaySeconds"),
        )
        return {
            **members,
            "QueueUrl": self._settings["queue_url"],
            "MessageDeduplicationId": operation.idempotency_key,
        }

    def find(self, question: Question) -> Finding:
        return Inconclusive(reason="no_lookup", summary=self.no_lookup)


def _describe(own: Table, region: str, environ: Mapping[str, str], missing: list[str]) -> Described:
    allowed = "a FIFO queue's URL, such as https://sqs.eu-west-1.amazonaws.com/123456789012/orders.fifo"
    url = text_or_env(own, "queue_url", environ, missing, allowed=allowed)
    try:
        path = urlsplit(url).path
    except ValueError:
        path = ""
    if url and not _QUEUE_PATH.match(path):
        own.fault("queue_url", found=found_text(url), allowed=allowed)
    return Described(
        contract=CONTRACT,
        endpoint=path,
        answers=AnswerRules(unknown=(NOT_NOW_PATTERN,)),
        settings={"queue_url": url},
        listing=ListingWay(
            why_not="SQS lists no messages: ReceiveMessage takes them from their consumers. What reached the"
            " queue is seen where its messages are consumed."
        ),
        worker_sends="SendMessage with the idempotency key as MessageDeduplicationId, to this queue.",
    )


SQS_FIFO = CodeAdapter(
    name="sqs_fifo",
    code_version=1,
    describe=_describe,
    make=SqsFifo,
    facts=FACTS,
    tested=Verification(
        kind=VerifiedWith.INDEPENDENT_PEER,
        peer="moto 5.2.5, with its clock moved past the window; it gives a repeat a new MessageId",
        tested_on=_READ_ON,
    ),
    documentation_url=_API,
    default_url=regional_url("sqs"),
    needs_region=True,
    credentials=CREDENTIALS,
    optional_credentials=OPTIONAL_CREDENTIALS,
)
