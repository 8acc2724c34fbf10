"""Amazon EC2: RunInstances for one instance, with our key as ClientToken and in a tag.

One operation is one instance: a launch of several can be partly gone, and nobody could then say what is
there. The lookup goes by the tag. A terminated instance disappears from it within about an hour, so its
silence proves nothing; the key's own error for that case does: `IdempotentInstanceTerminated`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import date
from typing import Any

from reconciliation.contracts import (
    AnswerPattern,
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
    SuccessWhen,
    Verification,
    VerifiedWith,
    WindowKind,
)
from reconciliation.providers.aws import CREDENTIALS, ERROR_CODE, NOT_NOW_PATTERN, OPTIONAL_CREDENTIALS
from reconciliation.providers.aws_account import (
    AwsAccount,
    PayloadUnusable,
    members_of,
    regional_url,
    subject_of,
)
from reconciliation.providers.aws_listing import AwsList
from reconciliation.providers.base import (
    Finding,
    OutgoingOperation,
    Question,
    Receipt,
    ReceiptState,
    Unavailable,
)
from reconciliation.providers.code_accounts import OURS, CodeAdapter, Described, facts_from
from reconciliation.providers.conclusions import by_reference, inconclusive, judge_ours
from reconciliation.providers.listing_table import LAG_MS_UNSTATED
from reconciliation.providers.request_tables import AnswerRules
from reconciliation.providers.tables import Table, found_text

TAG_KEY = "recourse-key"
# A tag's name as EC2 takes it; "aws:" in front is Amazon's own.
_TAG_KEY = re.compile(r"(?!aws:)[A-Za-z0-9+=._:/@-]{1,128}\Z")
# Why an instance ended that never came up (StateReason in the API reference): launched, and without effect.
LAUNCH_FAILED = frozenset(
    {
        "Client.InternalError",
        "Client.InvalidSnapshot.NotFound",
        "Client.VolumeLimitExceeded",
        "Server.InsufficientInstanceCapacity",
        "Server.InternalError",
    }
)

# `[*]` leads to one value only where there is exactly one instance.
_INSTANCE = "$.Instances[*]"

CONTRACT = Contract(
    key_field="ClientToken",
    key_format=KeyFormat.BODY_FIELD,
    key_scope=KeyScope.REGION,
    # An older edition of the documentation said at least 24 hours after the instance's end; today's doesn't.
    dedup_window_ms=None,
    window_kind=WindowKind.UNPUBLISHED,
    window_margin_ms=0,
    on_other_payload=OnOtherPayload.REFUSED,
    on_in_flight=OnInFlight.UNKNOWN,
    replays=Replays.LATEST_STATUS,
    rejection_replays=False,
    proves_existence=(AnswerPattern(path=ERROR_CODE, values=("IdempotentInstanceTerminated",)),),
    lookup=LookupKind.BY_REFERENCE,
    # "Eventual consistency", with no time stated.
    visibility_lag_ms=None,
    lookup_retention_ms=3_600_000,
    absence_is_proof=False,
    match_fields=tuple(
        MatchField(payload=f"$.{name}", answer=f"{_INSTANCE}.{name}")
        for name in ("ImageId", "InstanceType", "KeyName", "SubnetId")
    ),
    # The effect is the launch: every state of an instance comes after it. What never came up is told apart by
    # the reason of its end.
    success_when=SuccessWhen(
        path=f"{_INSTANCE}.State.Name",
        succeeded=("pending", "running", "stopping", "stopped", "shutting-down", "terminated"),
    ),
    rate_limit_per_second=5.0,
    in_flight_bound_ms=30_000,
    start_within_ms=10_000,
    request_within_ms=20_000,
    receipt=ReceiptPaths(
        id=f"{_INSTANCE}.InstanceId",
        key=f"{_INSTANCE}.ClientToken",
        reference=f"{_INSTANCE}.Tags[?@.Key=='{TAG_KEY}'].Value",
        our_reference="{key}",
    ),
)

_IDEMPOTENCY = "https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-idempotency.html"
_DESCRIBE = "https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DescribeInstances.html"
_READ_ON = date(2026, 11, 30)

FACTS = (
    *facts_from(
        _IDEMPOTENCY,
        _READ_ON,
        {
            "key_format": "a parameter of the call",
            "key_field": "up to 64 ASCII characters, case-sensitive",
            "key_scope": "the region, or the zone where the request names one: the same token in another"
            " launches again",
            "window_kind": "no lifetime is stated today; the edition of API version 2016-11-15 said at"
            " least 24 hours after the instance's termination",
            "dedup_window_ms": "not stated",
            "replays": "a retry succeeds without further action; its answer may show the present state",
            "on_other_payload": "IdempotentParameterMismatch: something was done under this key, so it is no"
            " refusal of ours",
            "on_in_flight": "not stated",
            "rejection_replays": "nothing says that an error is kept",
        },
    ),
    *facts_from(
        "https://github.com/boto/boto3/issues/4406",
        date(2026, 11, 29),
        {"proves_existence": "IdempotentInstanceTerminated since 2025: launched, and terminated since"},
    ),
    *facts_from(
        _DESCRIBE,
        _READ_ON,
        {
            "lookup": "filter by tag",
            "visibility_lag_ms": "eventually consistent, and no time is stated",
            "lookup_retention_ms": "terminated instances stay visible for usually less than an hour",
            "absence_is_proof": "never: an instance that was terminated is gone from the list as well",
            "receipt": "an instance carries its ClientToken and its tags",
            "listing": "filter tag-key, whatever the tag's value; launch-time takes no range, so the time is"
            " compared here; how long we wait for it to show is our own choice",
        },
    ),
    *facts_from(
        "https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_StateReason.html",
        _READ_ON,
        {
            "success_when": "the effect is the launch; a launch that failed is told apart by the reason"
            " of the instance's end"
        },
    ),
    *facts_from(
        OURS, _READ_ON, {"in_flight_bound_ms": "our own choice: no bound is published; longer may be set"}
    ),
)


class Ec2RunInstances(AwsAccount):
    """One region of one account. The payload holds RunInstances' own parameters."""

    service = "ec2"
    method = "run_instances"

    def parameters(self, operation: OutgoingOperation) -> Mapping[str, Any]:
        members = members_of(operation.payload, required=(), ours=("ClientToken", "DryRun"))
        for name in ("MinCount", "MaxCount"):
            if members.get(name, 1) != 1 or isinstance(members.get(name), bool):
                raise PayloadUnusable(f"{name} is not 1: one operation launches one instance")
        return {
            **members,
            "MinCount": 1,
            "MaxCount": 1,
            "ClientToken": operation.idempotency_key,
            "TagSpecifications": _tagged(
                members.get("TagSpecifications", []), self._settings["tag_key"], operation.idempotency_key
            ),
        }

    def find(self, question: Question) -> Finding:
        """List the instances with our tag; one of them is found, two are several, none proves nothing."""
        tag = f"tag:{self._settings['tag_key']}"
        filters = [{"Name": tag, "Values": [question.idempotency_key]}]
        got = self.ask(question, "describe_instances", {"Filters": filters})
        if isinstance(got, Unavailable):
            return got
        exchange = got.answer.exchange
        if got.content is None or got.answer.status != 200:
            return self.unexpected(got)
        readings = [self.reading(one, subject_of(question)) for one in _instances(got.content)]
        usable = [one for one in readings if one is not None]
        ours = by_reference(_launched(one.receipt) for one in usable if one.receipt.named and not one.foreign)
        incomplete = bool(got.content.get("NextToken")) or len(usable) < len(readings)
        if ours:
            return judge_ours(ours, exchange, incomplete=incomplete)
        if incomplete:
            return inconclusive(exchange, "incomplete", "its answer is not the whole list")
        if usable:
            return inconclusive(exchange, "not_filtered", "it answered with instances of other operations")
        return self.not_found(question, exchange)

    def listing(self) -> AwsList:
        return AwsList(
            method="describe_instances",
            # By the tag's name alone: whatever its value, it is ours.
            parameters={
                "Filters": [{"Name": "tag-key", "Values": [self._settings["tag_key"]]}],
                "MaxResults": 100,
            },
            items=_instances,
            # An instance that was stopped and started again is newer than it is: it is then one of the known.
            made_at=lambda item: item["Instances"][0].get("LaunchTime"),
            token="NextToken",  # noqa: S106 - of a page
            newest_first=False,
        )


def _instances(content: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Each instance as a reservation of its own, which is the form of a direct reply."""
    for reservation in content.get("Reservations") or ():
        for instance in reservation.get("Instances") or ():
            yield {**reservation, "Instances": [instance]}


def _launched(receipt: Receipt) -> Receipt:
    """The receipt, as ended without effect where the launch itself failed."""
    instance = receipt.body["Instances"][0]
    reason = instance.get("StateReason")
    code = str(reason.get("Code", "")) if isinstance(reason, Mapping) else ""
    if receipt.status in ("terminated", "shutting-down") and code in LAUNCH_FAILED:
        return replace(receipt, state=ReceiptState.REFUSED, status=code)
    return receipt


def _tagged(specifications: object, tag_key: str, key: str) -> list[Any]:
    """The payload's own tags with ours; EC2 takes one specification for each type of resource."""
    if not isinstance(specifications, list) or not all(isinstance(one, Mapping) for one in specifications):
        raise PayloadUnusable("TagSpecifications is not a list of objects")
    ours = {"Key": tag_key, "Value": key}
    tagged, done = [], False
    for one in specifications:
        if one.get("ResourceType") != "instance":
            tagged.append(one)
            continue
        tags = one.get("Tags", [])
        if not isinstance(tags, list) or any(
            isinstance(tag, Mapping) and tag.get("Key") == tag_key for tag in tags
        ):
            raise PayloadUnusable(f"its tags are no list without {tag_key}, which is set here")
        tagged.append({**one, "Tags": [*tags, ours]})
        done = True
    return tagged if done else [*tagged, {"ResourceType": "instance", "Tags": [ours]}]


def _describe(own: Table, region: str, environ: Mapping[str, str], missing: list[str]) -> Described:
    tag_key = own.text("tag_key", TAG_KEY)
    if not _TAG_KEY.match(tag_key):
        allowed = "1 to 128 letters, digits and + = . _ : / @ -, not starting with aws:"
        own.fault("tag_key", found=found_text(tag_key), allowed=allowed)
        tag_key = TAG_KEY
    reference = f"{_INSTANCE}.Tags[?@.Key=='{tag_key}'].Value"
    return Described(
        contract=replace(CONTRACT, receipt=replace(CONTRACT.receipt, reference=reference)),
        endpoint="/RunInstances",
        answers=AnswerRules(
            unknown=(
                NOT_NOW_PATTERN,
                AnswerPattern(path=ERROR_CODE, values=("IdempotentParameterMismatch",)),
            )
        ),
        settings={"tag_key": tag_key},
        lookups=(
            LookupWay(
                name="tag",
                kind=LookupKind.BY_REFERENCE,
                hint=False,
                note=f"DescribeInstances, filtered by the tag {tag_key}",
            ),
        ),
        listing=ListingWay(
            offered=True,
            leaves_out="Instances that were terminated about an hour ago or longer, and those whose tag was"
            " removed.",
            lag_ms=LAG_MS_UNSTATED,
        ),
        worker_sends=f"RunInstances for one instance with the idempotency key as ClientToken and as the"
        f" instance's tag {tag_key}.",
    )


EC2_RUN_INSTANCES = CodeAdapter(
    name="ec2_run_instances",
    code_version=1,
    describe=_describe,
    make=Ec2RunInstances,
    facts=FACTS,
    tested=Verification(
        kind=VerifiedWith.INDEPENDENT_PEER,
        peer="moto 5.2.5, which ignores ClientToken: what the key does was only seen at a server of our own",
        tested_on=_READ_ON,
    ),
    documentation_url="https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_RunInstances.html",
    default_url=regional_url("ec2"),
    needs_region=True,
    credentials=CREDENTIALS,
    optional_credentials=OPTIONAL_CREDENTIALS,
)
