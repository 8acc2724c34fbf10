"""The `[webhook]` table: understood wholly, or refused with every fault, and never with the secret itself."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from reconciliation.contracts import CompareAs
from reconciliation.providers.base import ReceiptState
from reconciliation.providers.tables import Faults, Table
from reconciliation.providers.webhook_schemes import SIGNING, Encoding, Scheme
from reconciliation.providers.webhook_table import TOLERANCE_MS, WebhookRules, read_webhook

LEAST = """
[webhook]
scheme = "stripe"
secrets = [{ env = "NEW" }, { env = "OLD" }]

[[webhook.events]]
types = ["charge.succeeded"]
record = "$.data.object"
"""
OWN = LEAST.replace('scheme = "stripe"', 'scheme = "hmac"\nheader = "X-Signature"\ntype = "$.type"')


def read(text: str, **environ: str) -> tuple[WebhookRules | None, list[str]]:
    faults = Faults("shop.toml")
    data: dict[str, Any] = tomllib.loads(text)
    rules = read_webhook(Table(data, name="", faults=faults), environ)
    return rules, faults.sentences


def understood(text: str, **environ: str) -> WebhookRules:
    rules, faults = read(text, **environ)
    assert faults == []
    assert rules is not None
    return rules


def test_no_table_is_no_webhook() -> None:
    assert read("title = 'Shop'") == (None, [])


def test_the_least_table_takes_the_rest_from_its_scheme() -> None:
    rules = understood(LEAST, NEW="new-secret")
    assert rules.signing == SIGNING[Scheme.STRIPE]
    assert rules.tolerance_ms == TOLERANCE_MS
    assert rules.secrets == ("new-secret",)
    assert rules.secret_names == ("NEW", "OLD")
    assert rules.configured
    assert not understood(LEAST).configured


@pytest.mark.parametrize("scheme", [scheme for scheme in Scheme if scheme is not Scheme.HMAC])
def test_every_scheme_is_data_and_says_where_a_notice_has_its_type(scheme: Scheme) -> None:
    more = 'url = "https://recourse.example/hook"\nwebhook_id = "WH-1"'
    text = LEAST.replace('scheme = "stripe"', f'scheme = "{scheme}"\n{more}')
    if scheme is Scheme.PAYPAL:
        text = text.replace("secrets =", "certificates =")
    rules = understood(text)
    assert rules.scheme is scheme
    assert any(one in rules.signing.signed for one in ("{body}", "{crc32}", "{parameters}", "{fields}"))
    assert rules.signing.type_path or rules.signing.type_header


def test_an_address_that_is_signed_may_come_from_the_environment() -> None:
    text = LEAST.replace('scheme = "stripe"', 'scheme = "square"\nurl = { env = "HOOK_URL" }')
    known = understood(text, NEW="secret", HOOK_URL="https://recourse.example/hook")
    assert (known.url, known.configured) == ("https://recourse.example/hook", True)
    unset = understood(text, NEW="secret")
    assert (unset.configured, unset.lacks, known.lacks) == (False, ("HOOK_URL",), ())


def test_a_scheme_of_ones_own_says_everything() -> None:
    more = 'prefix = "v2="\nencoding = "base64"\nsigned = "{timestamp}:{body}"\ntimestamp_header = "X-Time"\n'
    rules = understood(OWN.replace("secrets =", f"{more}secrets =", 1))
    assert rules.signing.header == "X-Signature"
    assert rules.signing.encoding is Encoding.BASE64
    assert rules.signing.has_timestamp


def test_an_event_may_read_its_record_otherwise_than_a_lookup_does() -> None:
    text = f"""{LEAST}
path = "$.livemode"
values = ["true"]
named_by = ["$.request.idempotency_key"]
state = "succeeded"
receipt = {{ id = "$.charge", key = "$.key" }}
match_fields = [{{ payload = "$.amount", answer = "$.total", compare = "text" }}]
"""
    event = understood(text).events[0]
    assert event.receipt is not None
    assert (event.receipt.id, event.receipt.key) == ("$.charge", "$.key")
    assert event.match_fields is not None
    assert event.match_fields[0].compare is CompareAs.TEXT
    assert event.state is ReceiptState.SUCCEEDED
    assert event.named_by == ("$.request.idempotency_key",)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (LEAST.replace("stripe", "strip"), "Did you mean stripe?"),
        (LEAST.replace("record =", "records ="), "Did you mean record?"),
        (LEAST.replace("scheme =", "tolerance = 1\nscheme ="), "Did you mean tolerance_ms?"),
        (LEAST.replace("scheme =", "tolerance_ms = 7_200_000\nscheme ="), "from 1000 to 3600000"),
        (LEAST.replace("stripe", "square"), "the address that the provider was given"),
        (LEAST.replace("stripe", "twilio"), "the address that the provider was given"),
        (
            LEAST.replace("stripe", "paypal").replace("secrets =", "certificates ="),
            "the provider's id of the subscription",
        ),
        (OWN.replace("secrets =", 'secret_form = "certificate"\nsecrets ='), "an HMAC's key is secret"),
        (LEAST.replace("$.data.object", "data..["), "[webhook.events #1] record"),
        (LEAST.replace('types = ["charge.succeeded"]', ""), "neither types nor path"),
        (LEAST + 'path = "$.action"', "path and values together"),
        (LEAST + 'named_by = ["$.["]', "JSONPaths"),
        (LEAST + 'state = "done"', "succeeded, pending, refused"),
        (LEAST.split("[[", maxsplit=1)[0], "1 to 50 tables [[webhook.events]]"),
        (OWN.replace('header = "X-Signature"\n', ""), "the header that holds the signature"),
        (OWN.replace('type = "$.type"\n', ""), "where a notice says its type"),
        (OWN.replace("header =", 'signed = "{bode}"\nheader ='), "text with {body}"),
        (OWN.replace("header =", 'signed = "{body}{body}"\nheader ='), "text with {body}"),
        (OWN.replace("header =", 'signed = "{timestamp}{body}"\nheader ='), "an unsigned time"),
        (OWN.replace("header =", 'timestamp_header = "X-Time"\nheader ='), "an unsigned time"),
    ],
)
def test_what_cannot_be_meant_is_a_fault_in_one_sentence(text: str, said: str) -> None:
    _, faults = read(text)
    assert len(faults) == 1, faults
    assert said in faults[0]


@pytest.mark.parametrize(
    "written", ['"whsec_verysecret"', '["whsec_verysecret"]', '[{ value = "whsec_verysecret" }]']
)
def test_a_secret_in_the_file_is_a_fault_that_does_not_repeat_it(written: str) -> None:
    _, faults = read(LEAST.replace('[{ env = "NEW" }, { env = "OLD" }]', written))
    assert faults
    assert "verysecret" not in " ".join(faults)


def test_secrets_show_themselves_in_no_representation() -> None:
    assert "new-secret" not in repr(understood(LEAST, NEW="new-secret"))
