"""No secret survives in what is kept, and evidence stays readable."""

from __future__ import annotations

import json
import string
import time
from urllib.parse import quote, urlencode

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from reconciliation.providers.redaction import REDACTED, REDACTED_CARD, Redactor, redactor_for

PLAIN = Redactor()
CARDS = ["4111111111111111", "5555 5555 5555 4444", "3782-822463-10005", "6011111111111117", "30569309025904"]
TOKENS = [
    "sk_live_4eC39HqLyjWDarjtT1zdp7dc",
    "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
    "xoxb-123456789012-abcdefghijkl",
    "AKIAIOSFODNN7EXAMPLE",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
    "Bearer abcdef0123456789",
    "Basic dXNlcjpwYXNzd29yZA==",
    "re_AbCdEfGh_1234567890abcdef",
    "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
    "rk_test_4eC39HqLyjWDarjtT1zdp7dc",
    "github_pat_11ABCDEFG0abcdefghijkl_mnopqrstuvwxyz",
    "glpat-AbCdEfGhIjKlMnOpQrSt",
    "xoxp-123456789012-123456789012-abcdef",
    "xoxe.xoxp-1-Mi0yLTEyMzQ1Njc4OTAx",
    "xapp-1-A012345678-1234567890123-abcdef",
    "hooks.slack.com/services/T00000000/B00000000/XXXXXXXXXXXXXXXXXXXXXXXX",
    "ASIAIOSFODNN7EXAMPLE",
    "AIzaSyA1234567890abcdefghijklmnopqrstuv",
    "ya29.a0AfH6SMBabcdefghijklmnop",
    "shpat_0123456789abcdef0123456789abcdef",
    "sq0atp-0123456789abcdefghijkl",
    "EAAAEOuLQObrVwJvCvoio3H13b8Ssqz1ighmTBKZvIENW9qxirHGHkqsGcPBC1uN",
    "A21AAFEpH4PsADK7qSS7pSRsgzfENtu-Q1ysgEDVDESseMHBYXVJYE8ovjj68elIDy8nF26AwPhfXTIeWAZHSLIsQkSYz9ifg",
    "lin_api_0123456789abcdefABCDEF",
    "npm_0123456789abcdefghijABCDEFGHIJ012345",
    "sk-ant-api03-0123456789abcdefghijABCDEFGHIJ",
    "-----BEGIN RSA PRIVATE KEY-----MIIEpAIBAAKCAQEA0123456789-----END RSA PRIVATE KEY-----",
    "-----BEGIN PRIVATE KEY-----MIIEpAIBAAKCAQEA0123456789",
]
# What evidence is made of and must stay: our ids and keys, times, amounts, digests, the providers' own ids.
HARMLESS = [
    "rk-mzxw6ytboi2dgnbvgy3tqojqgezdgnbvgy3tqojq",
    "op_01KB7PW2ZC0123456789ABCDEF",
    "2026-11-29T12:00:00Z",
    "1764417600123",
    "ch_3MmlLrLkdIwHu7ix0snN0B15",
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "4111111111111112",  # a card's length and start, without its check digit
    "amount_minor",
    "EUR 1,240.00",
    "192.168.100.200",
    "+49 171 2345678",
    "550e8400-e29b-41d4-a716-446655440000",
    "re_3MmlLrLkdIwHu7ix0snN0B15",
    "pi_3MtwBwLkdIwHu7ix28a3tqPa",
    "SM0123456789abcdef0123456789abcdef",
    "arn:aws:states:eu-west-1:123456789012:execution:orders:rk-1",
    "-----BEGIN CERTIFICATE-----",
]


@pytest.mark.parametrize("secret", [*CARDS, *TOKENS])
@pytest.mark.parametrize("frame", ["{}", "was {} today", '{{"note":"{}"}}', "a={}&b=2"])
def test_what_is_shaped_like_a_secret_goes(secret: str, frame: str) -> None:
    kept = PLAIN.text(frame.format(secret))
    assert secret not in kept
    assert REDACTED in kept or REDACTED_CARD in kept


@pytest.mark.parametrize("text", HARMLESS)
@pytest.mark.parametrize("frame", ["{}", "was {} today", '{{"note":"{}"}}'])
def test_what_evidence_is_made_of_stays(text: str, frame: str) -> None:
    assert PLAIN.text(frame.format(text)) == frame.format(text)


@pytest.mark.parametrize(
    "name",
    ["password", "client_secret", "accessToken", "X-Api-Key", "api_key", "Authorization", "cookie", "cvc"],
)
@pytest.mark.parametrize(
    "frame",
    [
        '{{"{name}": "{value}"}}',
        '{{"outer":"{{\\"{name}\\":\\"{value}\\"}}"}}',
        "{name}={value}&next=1",
        "{name}: {value}\nnext: 1",
        "'{name}': '{value}'",
        '{{"message":"{name}={value} was wrong"}}',
    ],
)
def test_the_value_of_a_name_that_says_secret_goes(name: str, frame: str) -> None:
    kept = PLAIN.text(frame.format(name=name, value="hunter2hunter2"))
    assert "hunter2" not in kept
    assert name in kept


def test_a_sensitive_member_goes_whole_whatever_is_in_it() -> None:
    kept = PLAIN.value({"credentials": {"user": "u", "more": [1, 2]}, "note": "fine", "token": None})
    assert kept == {"credentials": REDACTED, "note": "fine", "token": None}


def test_a_card_number_written_as_a_number_goes() -> None:
    assert PLAIN.value({"pan_copy": 4111111111111111, "at_ms": 1764417600123}) == {
        "pan_copy": REDACTED_CARD,
        "at_ms": 1764417600123,
    }


def test_headers_lose_credentials_and_keep_our_key() -> None:
    kept = dict(
        PLAIN.headers(
            [
                ("Authorization", "Bearer abc"),
                ("Set-Cookie", "s=1"),
                ("X-Api-Key", "k"),
                ("Idempotency-Key", "rk-1"),
                ("X-Odd", "a\r\nb\x00c"),
            ]
        )
    )
    assert kept["Authorization"] == kept["Set-Cookie"] == kept["X-Api-Key"] == REDACTED
    assert kept["Idempotency-Key"] == "rk-1"
    assert kept["X-Odd"].isprintable()


def test_headers_are_bounded_in_number_and_length() -> None:
    kept = PLAIN.headers([("A", "x" * 5000)] * 200)
    assert len(kept) == 65
    assert all(len(value) <= 1000 for _, value in kept)


def test_a_url_loses_user_password_and_sensitive_query_values() -> None:
    kept = PLAIN.url("https://me:pw@api.example/orders?api_key=abc&idempotency_key=rk-1#frag")
    assert kept == "https://api.example/orders?api_key=[redacted]&idempotency_key=rk-1"


def test_a_secret_in_a_path_or_a_form_goes_however_it_was_encoded_there() -> None:
    redactor = redactor_for({"token": "ab/cd ef+gh"})
    path = "https://x/bot" + quote("ab/cd ef+gh", safe="") + "/send"
    assert redactor.url(path) == f"https://x/bot{REDACTED}/send"
    form = urlencode({"note": "ab/cd ef+gh"})
    assert redactor.text(f"bad request: {form}") == f"bad request: note={REDACTED}"


def test_what_must_be_kept_is_kept_even_if_it_is_shaped_like_a_card() -> None:
    redactor = PLAIN.keeping("4111111111111111")
    assert redactor.value({"id": "4111111111111111"}) == {"id": "4111111111111111"}
    assert "4111111111111111" in redactor.text('{"id":"4111111111111111"}')


def test_a_declared_name_is_redacted_too() -> None:
    redactor = redactor_for({}, ["Patient-Id"])
    assert redactor.value({"patient-id": "77"}) == {"patient-id": REDACTED}
    assert redactor.headers([("Patient-Id", "77")]) == (("Patient-Id", REDACTED),)


@settings(deadline=None)
@given(
    secret=st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=6, max_size=40),
    before=st.text(max_size=50),
    after=st.text(max_size=50),
)
@example(secret="redacted", before="", after="")
def test_a_secret_in_use_never_survives_anywhere(secret: str, before: str, after: str) -> None:
    redactor = redactor_for({"token": secret})
    for kept in (
        redactor.text(before + secret + after),
        *redactor.value({"note": before + secret + after, "list": [secret]})["list"],
        redactor.text(json.dumps({"note": before + secret + after})),
        redactor.url("https://x/orders?" + urlencode({"note": before + secret + after})),
    ):
        assert secret not in kept.replace(REDACTED_CARD, "").replace(REDACTED, "")


@settings(deadline=None)
@given(st.text(string.printable, max_size=400))
def test_redacting_twice_changes_nothing_more(text: str) -> None:
    once = PLAIN.text(text)
    assert PLAIN.text(once) == once


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=20,
)


@settings(deadline=None)
@given(JSON)
def test_any_json_value_stays_json_of_the_same_form(value: object) -> None:
    kept = PLAIN.value(value)
    json.dumps(kept)
    assert isinstance(kept, type(value)) or kept in (REDACTED, REDACTED_CARD)


@pytest.mark.parametrize(
    "piece",
    [
        *["a", 'password="', "4", "4-", "eyJ", "a:", '\\"', "sk_live_", "Bearer ", "token: ", "=", "'a':"],
        *["-----BEGIN PRIVATE KEY-----", "-----BEGIN ", "xoxb-", "EAAA", "hooks.slack.com/services/"],
    ],
)
def test_hostile_text_takes_linear_time(piece: str) -> None:
    started = time.process_time()
    PLAIN.text((piece * 80_000)[: 72 * 1024])
    assert time.process_time() - started < 1.0


def test_a_secret_is_hidden_however_json_writes_its_letters() -> None:
    for text in (
        r'{"passw\u006frd":"hunter22"}',
        r'{"note":"\u0070assword: hunter22"}',
        r'{"note":"\\\u0070assword=hunter22"}',
        r'{"token":"x","p\u0061ssword":"hunter22"}',
    ):
        assert "hunter22" not in Redactor().text(text), text
    card = r'{"card":"4242\u00204242\u00204242\u00204242"}'
    assert Redactor().text(card) == '{"card":"[redacted card number]"}'


def test_escapes_without_a_secret_stay_as_they_came() -> None:
    for text in (r'{"a":"\u0022\u005c\u0041"}', r"a \\u0070assword", r'{"token":"[redacted]","a":"\u0041"}'):
        assert Redactor().text(text) == text


def test_a_long_text_of_escapes_is_read_once() -> None:
    assert Redactor().text("\\u0061\\" * 100_000).count("\\u0061") == 100_000
