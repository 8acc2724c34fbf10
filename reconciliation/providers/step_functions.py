"""AWS Step Functions, standard workflows: StartExecution with our key as the execution's name.

The name makes the execution's ARN, so an execution is asked for exactly. "Already exists" proves that there
is one, and says nothing about its input: the lookup compares that.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from typing import Any

from reconciliation.contracts import (
    AnswerPattern,
    CompareAs,
    Contract,
    KeyFormat,
    KeyScope,
    ListingWay,
    LookupKind,
    LookupWay,
    MatchField,
    OnInFlight,
    OnOtherPayload,
    ReceiptPaths,
    Replays,
    ReplyShows,
    Verification,
    VerifiedWith,
    WindowKind,
)
from reconciliation.providers.aws import CREDENTIALS, ERROR_CODE, NOT_NOW_PATTERN, OPTIONAL_CREDENTIALS
from reconciliation.providers.aws_account import AwsAccount, regional_url, subject_of
from reconciliation.providers.aws_listing import AwsList
from reconciliation.providers.base import Finding, OutgoingOperation, Question, Unavailable
from reconciliation.providers.code_accounts import OURS, CodeAdapter, Described, facts_from, text_or_env
from reconciliation.providers.conclusions import inconclusive, judge_ours
from reconciliation.providers.listing_table import LAG_MS_UNSTATED
from reconciliation.providers.request_tables import AnswerRules
from reconciliation.providers.tables import Table, found_text

# A version or an alias would follow after another colon; what executions of those are called isn't stated.
_MACHINE = re.compile(
    r"arn:(?P<partition>aws[a-z-]*):states:(?P<region>[a-z0-9-]+):[0-9]{12}:stateMachine:[^:/\s]{1,80}\Z"
)
_DAY_MS = 24 * 3600 * 1000

CONTRACT = Contract(
    key_field="name",
    key_format=KeyFormat.BODY_FIELD,
    key_scope=KeyScope.ENDPOINT,
    # Ninety days by default, and thirty where an account has asked for that.
    dedup_window_ms=30 * _DAY_MS,
    window_kind=WindowKind.MINIMUM,
    window_margin_ms=_DAY_MS,
    on_other_payload=OnOtherPayload.REFUSED,
    on_in_flight=OnInFlight.UNKNOWN,
    replays=Replays.FIRST_SUCCESS,
    rejection_replays=False,
    proves_existence=(AnswerPattern(path=ERROR_CODE, values=("ExecutionAlreadyExists",)),),
    lookup=LookupKind.BY_KEY,
    # "Eventually consistent", with no time stated.
    visibility_lag_ms=None,
    lookup_retention_ms=30 * _DAY_MS,
    absence_is_proof=False,
    match_fields=(MatchField(payload="$", answer="$.input", compare=CompareAs.JSON_TEXT),),
    # The effect is that it was started; how it ends is the workflow's own matter.
    success_when=None,
    rate_limit_per_second=5.0,
    in_flight_bound_ms=15_000,
    start_within_ms=10_000,
    request_within_ms=10_000,
    receipt=ReceiptPaths(
        id="$.executionArn",
        key="$.name",
        reference="$.executionArn",
        # The reply to a start shows the ARN and a date, not the input.
        reply=ReplyShows.PART,
    ),
)

_START = "https://docs.aws.amazon.com/step-functions/latest/apireference/API_StartExecution.html"
_DESCRIBE = "https://docs.aws.amazon.com/step-functions/latest/apireference/API_DescribeExecution.html"
_GUARANTEES = "https://docs.aws.amazon.com/step-functions/latest/dg/express-at-least-once-execution.html"
_READ_ON = date(2026, 11, 30)

FACTS = (
    *facts_from(
        _START,
        _READ_ON,
        {
            "key_format": "a parameter of the call",
            "key_field": "up to 80 characters",
            "key_scope": "unique for account, region and state machine",
            "replays": "standard workflows only: the same name and input give the first answer again while"
            " the execution runs, and ExecutionAlreadyExists once it has ended",
            "on_other_payload": "ExecutionAlreadyExists, which doesn't say whose input the execution has",
            "on_in_flight": "not stated for the time before the first request is answered",
            "rejection_replays": "nothing says that an error is kept",
            "proves_existence": "ExecutionAlreadyExists: an execution of this name is there",
            "receipt": "the answer to a start has the execution's ARN, in which our key is the name",
            "success_when": "the effect is the start; how the execution ends is the workflow's own matter",
        },
    ),
    *facts_from(
        _GUARANTEES,
        _READ_ON,
        {
            "dedup_window_ms": "a name can be used again once its execution's data is removed: 90 days after"
            " it ended, 30 where the account asked for that",
            "window_kind": "30 days is the shortest that can be asked for",
            "lookup_retention_ms": "as the window",
        },
    ),
    *facts_from(
        _DESCRIBE,
        _READ_ON,
        {
            "lookup": "by ARN, which follows from the machine's and the name; not for express workflows",
            "visibility_lag_ms": "eventually consistent, and no time is stated",
            "absence_is_proof": "never, since no time is stated after which an execution must show",
            "match_fields": "the input as text, compared as the JSON value that it is",
        },
    ),
    *facts_from(
        "https://docs.aws.amazon.com/step-functions/latest/apireference/API_ListExecutions.html",
        _READ_ON,
        {
            "listing": "the newest first, with names, of standard workflows; eventually consistent and best"
            " effort, with no time stated: how long we wait for it is our own choice"
        },
    ),
    *facts_from(
        OURS, _READ_ON, {"in_flight_bound_ms": "our own choice: no bound is published; longer may be set"}
    ),
)


class StepFunctions(AwsAccount):
    """One state machine. The payload is the execution's input, any JSON value."""

    service = "stepfunctions"
    method = "start_execution"

    def parameters(self, operation: OutgoingOperation) -> Mapping[str, Any]:
        return {
            "stateMachineArn": self._settings["state_machine_arn"],
            "name": operation.idempotency_key,
            # The same bytes for every attempt: the service compares the text.
            "input": operation.payload_bytes.decode(),
        }

    def find(self, question: Question) -> Finding:
        """Describe the execution of our name; it is there or it isn't."""
        arn = execution_arn(self._settings["state_machine_arn"], question.idempotency_key)
        got = self.ask(question, "describe_execution", {"executionArn": arn})
        if isinstance(got, Unavailable):
            return got
        exchange = got.answer.exchange
        if got.error_code == "ExecutionDoesNotExist":
            return self.not_found(question, exchange)
        if got.content is None or got.answer.status != 200:
            return self.unexpected(got)
        if "input" not in got.content:
            return inconclusive(
                exchange, "input_hidden", "it shows an execution of this name, and not what it was given"
            )
        reading = self.reading(got.content, subject_of(question))
        if reading is None:
            return inconclusive(exchange, "no_reference", "it shows an execution without an ARN")
        if not reading.receipt.named:
            return inconclusive(exchange, "not_filtered", "it answered with another execution")
        status = str(got.content.get("status", ""))
        return judge_ours((replace(reading.receipt, status=status[:80]),), exchange, incomplete=False)

    def listing(self) -> AwsList:
        return AwsList(
            method="list_executions",
            parameters={"stateMachineArn": self._settings["state_machine_arn"], "maxResults": 500},
            items=lambda content: content.get("executions") or (),
            made_at=lambda item: item.get("startDate"),
            token="nextToken",  # noqa: S106 - of a page
            newest_first=True,
        )


def execution_arn(state_machine_arn: str, name: str) -> str:
    """The ARN of a standard workflow's execution of this name."""
    return f"{state_machine_arn.replace(':stateMachine:', ':execution:', 1)}:{name}"


def _describe(own: Table, region: str, environ: Mapping[str, str], missing: list[str]) -> Described:
    allowed = "a state machine's ARN without version or alias, in the account's region"
    arn = text_or_env(own, "state_machine_arn", environ, missing, allowed=allowed)
    found = _MACHINE.match(arn)
    if arn and (found is None or (region and found["region"] != region)):
        own.fault("state_machine_arn", found=found_text(arn), allowed=allowed)
    ours = execution_arn(arn, "{key}") if found else None
    paths = CONTRACT.receipt if ours else replace(CONTRACT.receipt, reference=None)
    return Described(
        contract=replace(CONTRACT, receipt=replace(paths, our_reference=ours)),
        endpoint=f"/{arn}",
        answers=AnswerRules(unknown=(NOT_NOW_PATTERN,)),
        settings={"state_machine_arn": arn},
        lookups=(
            LookupWay(
                name="describe",
                kind=LookupKind.BY_KEY,
                hint=False,
                note="DescribeExecution on the ARN that follows from the key",
            ),
        ),
        listing=ListingWay(offered=True, lag_ms=LAG_MS_UNSTATED),
        worker_sends="StartExecution of this state machine with the idempotency key as name and the payload's"
        " own bytes as input.",
    )


STEP_FUNCTIONS = CodeAdapter(
    name="step_functions",
    code_version=1,
    describe=_describe,
    make=StepFunctions,
    facts=FACTS,
    tested=Verification(kind=VerifiedWith.INDEPENDENT_PEER, peer="moto 5.2.5", tested_on=_READ_ON),
    documentation_url=_START,
    default_url=regional_url("states"),
    needs_region=True,
    credentials=CREDENTIALS,
    optional_credentials=OPTIONAL_CREDENTIALS,
)
