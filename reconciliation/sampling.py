"""What would be concluded from answers that somebody makes up, through a declaration that isn't saved yet.

Nothing leaves: the adapter that would send and ask is given the sample instead of a connection, and stand-ins
for its secrets.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import httpx

from reconciliation.declaring import SHOWN_AS, judge
from reconciliation.policy import assess
from reconciliation.providers import registry
from reconciliation.providers.base import (
    Exchange,
    OutgoingOperation,
    Phase,
    SendOutcome,
    elapsed_seconds,
)
from reconciliation.providers.declaration import Declared
from reconciliation.providers.http_declared import HttpDeclared
from reconciliation.providers.redaction import Redactor
from reconciliation.providers.registry import Stored
from reconciliation.providers.transport import Answer, Call, Transport
from reconciliation.rehearsal import About, Rehearsed, facts_of, typed_question, with_finding
from runs import canonical
from runs.locking import database_now
from runs.refusals import Invalid, Refusal

# The operation that a sample is about. In a sample answer `{key}` and `{operation}` stand for these.
SAMPLE_KEY: Final = "sample-key-0000000000"
SAMPLE_OPERATION: Final = "op_sample"
# The provider's answers are read as far as this, too.
ANSWER_BYTES_MAX: Final = 64 * 1024
_STAND_IN: Final = "sample"
_STAND_IN_URL: Final = "https://sample.invalid"


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """One made-up answer: its status and its body as text. `payload` is JSON; `tool` chooses the request."""

    payload: str
    status: int
    body: str
    tool: str = ""


@dataclass(frozen=True, kw_only=True)
class Sampled:
    """What the answer would mean as the reply to a send, and as the answer to a lookup (None without one)."""

    sent: Call | None
    reply: SendOutcome
    asked: Call | None
    lookup: Rehearsed | None


def sample(*, text: str, sample: Sample) -> Sampled:
    """Conclude from the sample by this declaration, as a first send and as its lookup would.

    Raises `DeclarationInvalid` for the declaration, and `Invalid` with `sample_payload` or `sample_status` in
    `where` for the sample.
    """
    declared = _with_stand_ins(text, judge(text))
    try:
        payload = canonical.parse(sample.payload.encode("utf-8", "replace"), bytes_max=ANSWER_BYTES_MAX)
        content = canonical.canonical_bytes(payload)
    except Refusal as refusal:
        raise Invalid(f"The payload isn't JSON: {refusal.sentence}", where="sample_payload") from None
    if not isinstance(payload, dict):
        raise Invalid("The payload is a JSON object.", where="sample_payload")
    if not 100 <= sample.status <= 599:
        raise Invalid("A status is a number from 100 to 599, such as 201.", where="sample_status")
    body = sample.body.replace("{key}", SAMPLE_KEY).replace("{operation}", SAMPLE_OPERATION)
    sending, asking = _Made(sample.status, body.encode()), _Made(sample.status, body.encode())
    adapter = HttpDeclared(declared, sending=sending, asking=asking)
    reply = adapter.send(_outgoing(declared, sample, payload, content))
    lookup = _look_up(adapter, declared, sample)
    return Sampled(sent=sending.seen, reply=reply, asked=asking.seen, lookup=lookup)


def _look_up(adapter: HttpDeclared, declared: Declared, sample: Sample) -> Rehearsed | None:
    if not declared.account.contract.has_lookup:
        return None
    now = database_now()
    about = About(key=SAMPLE_KEY, reference=SAMPLE_OPERATION, payload=sample.payload, tool=sample.tool)
    question = typed_question(about, declared.account, now)
    finding = adapter.look_up(question)
    facts = facts_of(None, declared.account, question)
    return Rehearsed(
        account=declared.account,
        question=question,
        finding=finding,
        assessment=assess(with_finding(facts, finding, now), declared.account.contract, now),
        operation=None,
        asked_at=now,
    )


def _outgoing(declared: Declared, sample: Sample, payload: Any, content: bytes) -> OutgoingOperation:
    contract = declared.account.contract
    return OutgoingOperation(
        operation_id=SAMPLE_OPERATION,
        idempotency_key=SAMPLE_KEY,
        tool=sample.tool,
        payload_bytes=content,
        payload=payload,
        amount=None,
        attempt_id="sample",
        attempt_number=1,
        start_by=elapsed_seconds() + contract.start_within_ms / 1000,
        request_within_ms=contract.request_within_ms,
    )


def _with_stand_ins(text: str, declared: Declared) -> Declared:
    """The account as it would be with everything set that it names; never with a secret that is."""
    if declared.account.missing:
        environ = {**os.environ, **dict.fromkeys(declared.account.missing, _STAND_IN), **_url_of(text)}
        declared = registry.read_stored(
            Stored(slug=SHOWN_AS, number=0, text=text), shown_as=SHOWN_AS, environ=environ
        )
    secrets = {one.name: _STAND_IN for one in declared.account.credentials}
    return replace(
        declared,
        account=replace(declared.account, missing=()),
        http=replace(declared.http, secrets=secrets, authorization=None),
    )


def _url_of(text: str) -> Mapping[str, str]:
    reference = tomllib.loads(text).get("base_url")
    return {reference["env"]: _STAND_IN_URL} if isinstance(reference, dict) and "env" in reference else {}


class _Made(Transport):
    """Gives the sample for an answer to whatever is called, and remembers the first call."""

    def __init__(self, status: int, content: bytes) -> None:
        self._status, self._content = status, content
        self.seen: Call | None = None

    def call(self, call: Call, *, redactor: Redactor | None = None) -> Answer:
        self.seen = self.seen or call
        exchange = Exchange(
            method=call.method,
            url=call.url,
            status=self._status,
            response_headers=(("content-type", "application/json"),),
            body=self._content.decode("utf-8", "replace"),
            body_whole=True,
            body_length=len(self._content),
            body_sha256=canonical.digest(self._content),
            headers_started=True,
            phase=Phase.DONE,
        )
        headers = httpx.Headers({"content-type": "application/json"})
        return Answer(exchange=exchange, content=self._content, headers=headers, not_sent=False)

    def close(self) -> None:
        """There is nothing to close."""
