"""Files of accounts whose adapter is code: understood wholly, or refused with every fault in a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from reconciliation.contracts import (
    KEY_LENGTH_MAX,
    CompareAs,
    Contract,
    MatchField,
    ProviderAccount,
    WindowKind,
    key_still_protects,
)
from reconciliation.providers import contract_table, registry
from reconciliation.providers.base import Adapter
from reconciliation.providers.code_adapters import CODE_ADAPTERS
from reconciliation.providers.declaration import read_file
from reconciliation.providers.matching import match_receipt
from reconciliation.providers.registry import CATALOGUE
from reconciliation.providers.tables import DeclarationInvalid, Faults, Table
from tests.processes import ROOT

SHIPPED = {
    "smtp": "smtp",
    "sqs-fifo": "sqs_fifo",
    "step-functions": "step_functions",
    "ec2": "ec2_run_instances",
}
QUEUE = "https://sqs.eu-west-1.amazonaws.com/123456789012/orders.fifo"
MACHINE = "arn:aws:states:eu-west-1:123456789012:stateMachine:orders"
ENVIRON = {
    "AWS_REGION": "eu-west-1",
    "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "secret-of-this-test",
    "SQS_FIFO_QUEUE_URL": QUEUE,
    "STEP_FUNCTIONS_STATE_MACHINE_ARN": MACHINE,
    "SMTP_URL": "smtp://mail.example.com",
    "SMTP_USERNAME": "shop",
    "SMTP_PASSWORD": "password-of-this-test",
    "SMTP_MESSAGE_ID_DOMAIN": "example.com",
}


def account(
    name: str, *changes: tuple[str, str], folder: Path, environ: Mapping[str, str] = ENVIRON
) -> ProviderAccount:
    """The shipped account with each change (this text, by that) made; one that finds nothing fails."""
    text = (CATALOGUE / f"{name}.toml").read_text()
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    path = folder / f"{name}.toml"
    path.write_text(text)
    return read_file(path, shown_as=path.name, environ=environ).account


def faults(
    name: str, *changes: tuple[str, str], folder: Path, environ: Mapping[str, str] = ENVIRON
) -> list[str]:
    with pytest.raises(DeclarationInvalid) as refused:
        account(name, *changes, folder=folder, environ=environ)
    problems = refused.value.details["problems"]
    assert isinstance(problems, list)
    return problems


# --- the shipped files ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_account_is_complete_with_its_variables(name: str, tmp_path: Path) -> None:
    whole = account(name, folder=tmp_path)
    assert whole.configured
    assert whole.console_can_send
    assert whole.adapter == SHIPPED[name]
    assert whole.tested.peer
    assert whole.documentation_url.startswith("https://")


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_account_without_its_variables_is_not_configured(name: str, tmp_path: Path) -> None:
    bare = account(name, folder=tmp_path, environ={})
    assert not bare.configured
    optional = {"SQS_URL", "STEP_FUNCTIONS_URL", "EC2_URL"}
    assert not optional & set(bare.missing)
    assert len(bare.missing) >= 3


@pytest.mark.parametrize("name", SHIPPED)
def test_each_promise_has_a_source_and_a_day(name: str, tmp_path: Path) -> None:
    stated = account(name, folder=tmp_path).facts
    ours = {"window_margin_ms", "rate_limit_per_second", "start_within_ms", "request_within_ms"}
    told = {*(one.name for one in fields(Contract)), "listing"}
    assert {one.field for one in stated} | {"match_fields"} == told - ours
    assert len({one.field for one in stated}) == len(stated)
    for one in stated:
        assert one.note
        assert one.source.startswith("https://") or (ROOT / one.source).is_file()
        assert one.read_on.year == 2026


@pytest.mark.parametrize("name", SHIPPED)
def test_a_promise_in_code_is_held_to_what_a_declared_one_is(name: str, tmp_path: Path) -> None:
    """The same checks for contradictions: a key without a window, a lookup without anything to find."""
    contract = account(name, folder=tmp_path).contract
    found = Faults("code")
    contract_table._check_key(Table({}, name="contract", faults=found), contract)
    contract_table._check_lookup(Table({}, name="contract", faults=found), contract)
    assert found.sentences == []


def test_none_of_them_lets_absence_be_proved_or_a_rejection_replayed(tmp_path: Path) -> None:
    for name in SHIPPED:
        contract = account(name, folder=tmp_path).contract
        assert not contract.absence_is_proof
        assert not contract.rejection_replays
        assert not contract.has_reliable_lookup, "no service states how late an effect may show"


def test_the_five_minutes_leave_time_for_a_repeat(tmp_path: Path) -> None:
    from datetime import UTC, datetime, timedelta

    contract = account("sqs-fifo", folder=tmp_path).contract
    assert contract.window_kind is WindowKind.DOCUMENTED
    sent_at = datetime(2026, 11, 30, tzinfo=UTC)
    starts_by = contract.repeat_starts_by(sent_at)
    assert starts_by is not None
    assert starts_by - contract.quiet_at(sent_at) >= timedelta(minutes=3)
    assert starts_by < sent_at + timedelta(minutes=5)


def test_our_keys_fit_each_service() -> None:
    # 128 for a deduplication id, 80 for an execution's name, 64 for a client token.
    assert KEY_LENGTH_MAX <= 64


# --- what a first send pins ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "variable", "value"),
    [
        ("sqs-fifo", "SQS_FIFO_QUEUE_URL", QUEUE.replace("orders", "others")),
        ("sqs-fifo", "SQS_URL", "https://sqs.example.com"),
        ("sqs-fifo", "AWS_SECRET_ACCESS_KEY", "another-secret-of-this-test"),
        ("step-functions", "STEP_FUNCTIONS_STATE_MACHINE_ARN", MACHINE.replace("orders", "others")),
        ("ec2", "AWS_REGION", "eu-west-2"),
        ("ec2", "EC2_URL", "https://ec2.example.com"),
    ],
)
def test_another_place_ends_the_keys_protection(name: str, variable: str, value: str, tmp_path: Path) -> None:
    before = account(name, folder=tmp_path)
    after = account(name, folder=tmp_path, environ={**ENVIRON, variable: value})
    assert key_still_protects(before.contract, pinned=before.pin, current=before.pin)
    assert not key_still_protects(before.contract, pinned=before.pin, current=after.pin)


def test_the_regions_own_address_is_used_unless_another_is_named(tmp_path: Path) -> None:
    assert account("ec2", folder=tmp_path).base_url == "https://ec2.eu-west-1.amazonaws.com"
    china = {**ENVIRON, "AWS_REGION": "cn-north-1"}
    assert (
        account("ec2", folder=tmp_path, environ=china).base_url == "https://ec2.cn-north-1.amazonaws.com.cn"
    )
    isolated = {**ENVIRON, "AWS_REGION": "us-iso-east-1"}
    assert "EC2_URL" in account("ec2", folder=tmp_path, environ=isolated).missing


# --- faults --------------------------------------------------------------------------------------------

WRONG: dict[str, tuple[str, tuple[str, str], str]] = {
    "an unknown adapter": (
        "sqs-fifo",
        ('adapter = "sqs_fifo"', 'adapter = "sqs-fifo"'),
        "allowed: http_declared, smtp, sqs_fifo, step_functions, ec2_run_instances. Did you mean sqs_fifo?",
    ),
    "another adapter's table": (
        "sqs-fifo",
        ("[sqs_fifo]", "[smtp]"),
        "sqs_fifo: found nothing; allowed: a table",
    ),
    "a declared table": (
        "ec2",
        ("[credentials]", "[send.request]\npath = '/'\n\n[credentials]"),
        "send: found an",
    ),
    "a promise of one's own": (
        "sqs-fifo",
        ("[sqs_fifo]", "[contract]\ndedup_window_ms = 86400000\n\n[sqs_fifo]"),
        "[contract] dedup_window_ms: found an unknown name; allowed: in_flight_bound_ms,",
    ),
    "a shorter time in flight": (
        "ec2",
        ("[credentials]", "[contract]\nin_flight_bound_ms = 1\n\n[credentials]"),
        "[contract] in_flight_bound_ms: found 1; allowed: a whole number from 30000",
    ),
    "a standard queue": (
        "sqs-fifo",
        ('{ env = "SQS_FIFO_QUEUE_URL" }', '"https://sqs.eu-west-1.amazonaws.com/123456789012/orders"'),
        "[sqs_fifo] queue_url: found",
    ),
    "a version of a machine": (
        "step-functions",
        ('{ env = "STEP_FUNCTIONS_STATE_MACHINE_ARN" }', f'"{MACHINE}:3"'),
        "without version or alias",
    ),
    "a machine elsewhere": (
        "step-functions",
        ('{ env = "STEP_FUNCTIONS_STATE_MACHINE_ARN" }', f'"{MACHINE.replace("eu-west-1", "eu-west-2")}"'),
        "in the account's region",
    ),
    "an odd region": ("ec2", ('{ env = "AWS_REGION" }', '"eu west"'), "region: found"),
    "a secret in the file": (
        "ec2",
        ('{ env = "AWS_SECRET_ACCESS_KEY" }', '"secret-in-the-file"'),
        "[credentials] secret_access_key: found a value",
    ),
    "no secret at all": (
        "ec2",
        ('secret_access_key = { env = "AWS_SECRET_ACCESS_KEY" }\n', ""),
        "credentials: found nothing for secret_access_key",
    ),
    "a secret of another service": (
        "ec2",
        ("access_key_id =", "password ="),
        'credentials: found "password"; allowed: access_key_id, secret_access_key, session_token',
    ),
    "Amazon's own tag": ("ec2", ('"recourse-key"', '"aws:key"'), "[ec2_run_instances] tag_key: found"),
    "a web address for mail": (
        "smtp",
        ('{ env = "SMTP_URL" }', '"https://mail.example.com"'),
        "smtp:// or smtps://",
    ),
    "a user without a password": (
        "smtp",
        ('password = { env = "SMTP_PASSWORD" }\n', ""),
        "credentials: found nothing for password",
    ),
    "a password in the clear": (
        "smtp",
        ("[smtp]\n", '[smtp]\nstarttls = "never"\n'),
        'smtp.starttls: found "never" beside credentials',
    ),
    "an odd word for encryption": ("smtp", ("[smtp]\n", '[smtp]\nstarttls = "maybe"\n'), "required, never"),
    "a domain that is none": (
        "smtp",
        ('{ env = "SMTP_MESSAGE_ID_DOMAIN" }', '"example.com>"'),
        "[smtp] message_id_domain: found",
    ),
    "a name for bounces": (
        "smtp",
        ("[smtp]\n", '[smtp]\nenvelope_from = "Shop <shop@example.com>"\n'),
        "[smtp] envelope_from: found",
    ),
    "a misspelt setting": ("smtp", ("[smtp]\n", '[smtp]\nhello = "x"\n'), "Did you mean helo?"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_file_is_refused_with_what_is_allowed(case: str, tmp_path: Path) -> None:
    name, change, sentence = WRONG[case]
    problems = faults(name, change, folder=tmp_path)
    assert any(sentence in one for one in problems), problems
    assert all(one.startswith(f"{name}.toml: ") for one in problems)
    assert "secret-in-the-file" not in str(problems)


def test_times_of_ours_can_be_chosen(tmp_path: Path) -> None:
    chosen = ("request_within_ms = 45000", "start_within_ms = 2000", "rate_limit_per_second = 0.5")
    table = "\n".join(("[contract]", *chosen, "", "[credentials]"))
    contract = account("ec2", ("[credentials]", table), folder=tmp_path).contract
    assert (contract.request_within_ms, contract.start_within_ms) == (45_000, 2_000)
    assert contract.rate_limit_per_second == 0.5


# --- the registry ----------------------------------------------------------------------------------------


def test_the_registry_makes_each_adapter_for_its_account(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in ENVIRON.items():
        monkeypatch.setenv(name, value)
    settings.RECOURSE_PROVIDERS = list(SHIPPED)
    registry.reload()
    try:
        made: list[Adapter] = [registry.adapter(name) for name in SHIPPED]
        assert [type(one).__name__ for one in made] == [
            *("Smtp", "SqsFifo", "StepFunctions", "Ec2RunInstances"),
        ]
        assert registry.undecided_answers("ec2")
        assert registry.undecided_answers("smtp") == ()
    finally:
        registry.reload()


def test_every_adapter_is_known_by_its_own_name() -> None:
    assert all(name == one.name for name, one in CODE_ADAPTERS.items())


# --- receipts that somebody submits --------------------------------------------------------------------


def matched(name: str, body: Any, payload: Any, folder: Path) -> Any:
    return match_receipt(
        contract=account(name, folder=folder).contract,
        operation_id="op_test",
        payload=payload,
        key="rk-test",
        amount=None,
        reference=None,
        body=body,
        named_by_reply=True,
    )


def test_the_answer_that_a_worker_got_from_its_own_client_confirms(tmp_path: Path) -> None:
    message = {"MessageBody": "hello", "MessageGroupId": "g"}
    answers: dict[str, tuple[Any, Any]] = {
        "sqs-fifo": ({"MessageId": "m-1", "MD5OfMessageBody": "5d41402abc4b2a76b9719d911017c592"}, message),
        "step-functions": (
            {"executionArn": f"{MACHINE.replace('stateMachine', 'execution')}:rk-test", "startDate": "x"},
            {"order": 7},
        ),
        "ec2": (
            {
                "ReservationId": "r-1",
                "Instances": [
                    {
                        "InstanceId": "i-1",
                        "ImageId": "ami-1",
                        "ClientToken": "rk-test",
                        "State": {"Code": 0, "Name": "pending"},
                    }
                ],
            },
            {"ImageId": "ami-1"},
        ),
        "smtp": ({"message_id": "<rk-test@example.com>"}, {"subject": "x"}),
    }
    for name, (body, payload) in answers.items():
        assert matched(name, body, payload, tmp_path).problems == (), name


def test_the_answer_of_a_launch_of_two_names_neither(tmp_path: Path) -> None:
    two = [{"InstanceId": f"i-{at}", "ClientToken": "rk-test"} for at in (1, 2)]
    assert matched("ec2", {"Instances": two}, {}, tmp_path).problems


def test_check_sums_and_json_in_text_are_compared_as_what_they_stand_for(tmp_path: Path) -> None:
    from dataclasses import replace

    contract = account("sqs-fifo", folder=tmp_path).contract
    for compare, intended, seen, same in (
        (CompareAs.MD5, "hello", "5D41402ABC4B2A76B9719D911017C592", True),
        (CompareAs.MD5, "grün", "5d41402abc4b2a76b9719d911017c592", False),
        (CompareAs.MD5, 5, "e4da3b7fbbce2345d7772b0674a318d5", False),
        (CompareAs.JSON_TEXT, {"a": 1, "b": [2]}, '{"b": [2.0], "a": 1}', True),
        (CompareAs.JSON_TEXT, {"a": 1}, '{"a": 1, "a": 1}', False),
        (CompareAs.JSON_TEXT, "a", "a", False),
        (CompareAs.JSON_TEXT, "a", '"a"', True),
    ):
        rule = replace(contract, match_fields=(MatchField(payload="$.a", answer="$.b", compare=compare),))
        match = match_receipt(
            contract=rule,
            operation_id="op_test",
            payload={"a": intended},
            key="rk-test",
            amount=None,
            reference=None,
            body={"MessageId": "m", "b": seen},
            named_by_reply=True,
        )
        assert match.matches is same, (compare, intended, seen)
