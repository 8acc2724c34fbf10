"""Signatures of notices: each scheme against an HMAC written out here, and whatever forges or replays one."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from reconciliation.providers.webhook_schemes import (
    SIGNING,
    Encoding,
    Scheme,
    SecretForm,
    Signing,
    TimestampForm,
)
from reconciliation.providers.webhook_signing import (
    WebhookForged,
    WebhookNotReady,
    WebhookStale,
    sign,
    verify,
)
from reconciliation.providers.webhook_table import EventRule, WebhookRules

NOW = datetime(2026, 11, 29, 12, 0, 0, tzinfo=UTC)
UNIX = str(int(NOW.timestamp()))
ISO = "2026-11-29T12:00:00Z"
BODY = b'{"id":"evt_1","type":"charge.succeeded","note":"\xc3\xa9"}'
SECRET = "whsec_" + base64.b64encode(b"a-secret-of-bytes-9f2").decode()
URL = "https://recourse.example/api/v1/providers/shop/webhook"


def rules(
    scheme: Scheme = Scheme.STRIPE, *secrets: str, signing: Signing | None = None, tolerance_ms: int = 300_000
) -> WebhookRules:
    return WebhookRules(
        scheme=scheme,
        signing=signing or SIGNING[scheme],
        tolerance_ms=tolerance_ms,
        url=URL,
        events=(EventRule(types=("charge.succeeded",)),),
        secret_names=("HOOK_SECRET",),
        secrets=secrets or (SECRET,),
    )


def mac(content: bytes, key: bytes = SECRET.encode()) -> bytes:
    return hmac.new(key, content, hashlib.sha256).digest()


def base64_of(content: bytes, key: bytes = SECRET.encode()) -> str:
    return base64.b64encode(mac(content, key)).decode()


RAW = base64.b64decode(SECRET.removeprefix("whsec_"))
# What each provider's own documentation says is signed, written out once more, by hand.
GENUINE: dict[Scheme, dict[str, str]] = {
    Scheme.STRIPE: {"stripe-signature": f"t={UNIX},v0=00,v1={mac(UNIX.encode() + b'.' + BODY).hex()}"},
    Scheme.GITHUB: {"x-hub-signature-256": f"sha256={mac(BODY).hex()}", "x-github-delivery": "d-1"},
    Scheme.SLACK: {
        "x-slack-signature": f"v0={mac(b'v0:' + UNIX.encode() + b':' + BODY).hex()}",
        "x-slack-request-timestamp": UNIX,
    },
    Scheme.SVIX: {
        "svix-id": "msg_1",
        "svix-timestamp": UNIX,
        "svix-signature": "v1,bm9uZQ== v1," + base64_of(b"msg_1." + UNIX.encode() + b"." + BODY, RAW),
    },
    Scheme.STANDARD: {
        "webhook-id": "msg_1",
        "webhook-timestamp": UNIX,
        "webhook-signature": "v1a,AAAA v1," + base64_of(b"msg_1." + UNIX.encode() + b"." + BODY, RAW),
    },
    Scheme.ZENDESK: {
        "x-zendesk-webhook-signature": base64_of(ISO.encode() + BODY),
        "x-zendesk-webhook-signature-timestamp": ISO,
    },
    Scheme.SQUARE: {"x-square-hmacsha256-signature": base64_of(URL.encode() + BODY)},
}
TIMED = [scheme for scheme in GENUINE if SIGNING[scheme].has_timestamp]


def test_every_scheme_has_a_vector() -> None:
    # Certificates and items have their own tests, in test_webhook_opening.
    elsewhere = {Scheme.HMAC, Scheme.PAYPAL, Scheme.ADYEN, Scheme.TWILIO}
    assert set(GENUINE) == set(Scheme) - elsewhere


@pytest.mark.parametrize("scheme", GENUINE)
def test_a_genuine_notice_passes(scheme: Scheme) -> None:
    signed = verify(rules(scheme), headers=GENUINE[scheme], body=BODY, now=NOW)
    assert signed.signed_at == (NOW if scheme in TIMED else None)


@pytest.mark.parametrize("scheme", GENUINE)
def test_our_own_signing_is_what_the_check_expects(scheme: Scheme) -> None:
    headers = sign(rules(scheme), body=BODY, at=NOW, id_given="msg_1")
    lower = {name.lower(): value for name, value in headers.items()}
    assert verify(rules(scheme), headers=lower, body=BODY, now=NOW).signed_at in (NOW, None)


@pytest.mark.parametrize("scheme", GENUINE)
@pytest.mark.parametrize("body", [BODY + b" ", BODY.replace(b"evt_1", b"evt_2"), b"", BODY[:-1]])
def test_another_body_is_forged(scheme: Scheme, body: bytes) -> None:
    with pytest.raises(WebhookForged):
        verify(rules(scheme), headers=GENUINE[scheme], body=body, now=NOW)


@pytest.mark.parametrize("scheme", GENUINE)
def test_another_secret_is_forged(scheme: Scheme) -> None:
    other = "whsec_" + base64.b64encode(b"another-secret-altogether").decode()
    with pytest.raises(WebhookForged):
        verify(rules(scheme, other), headers=GENUINE[scheme], body=BODY, now=NOW)


@pytest.mark.parametrize("scheme", GENUINE)
def test_any_of_several_secrets_may_have_signed(scheme: Scheme) -> None:
    other = "whsec_" + base64.b64encode(b"another-secret-altogether").decode()
    for secrets in ((other, SECRET), (SECRET, other)):
        verify(rules(scheme, *secrets), headers=GENUINE[scheme], body=BODY, now=NOW)


@pytest.mark.parametrize("scheme", GENUINE)
def test_every_part_that_is_signed_counts(scheme: Scheme) -> None:
    """Each header by itself, changed or gone: only what the scheme doesn't sign may change."""
    unsigned = {"x-github-delivery"}
    for name in set(GENUINE[scheme]) - unsigned:
        without = {one: value for one, value in GENUINE[scheme].items() if one != name}
        for changed in (
            without,
            {**without, name: GENUINE[scheme][name][:-3] + "xyz"},
            {**without, name: ""},
        ):
            with pytest.raises((WebhookForged, WebhookStale)):
                verify(rules(scheme), headers=changed, body=BODY, now=NOW)


def test_only_the_id_of_github_is_not_signed() -> None:
    headers = {**GENUINE[Scheme.GITHUB], "x-github-delivery": "another"}
    verify(rules(Scheme.GITHUB), headers=headers, body=BODY, now=NOW)


def test_a_square_notice_is_signed_for_one_address() -> None:
    moved = rules(Scheme.SQUARE)
    with pytest.raises(WebhookForged):
        verify(
            WebhookRules(
                scheme=moved.scheme,
                signing=moved.signing,
                tolerance_ms=1,
                url=URL + "/",
                events=moved.events,
                secret_names=(),
                secrets=moved.secrets,
            ),
            headers=GENUINE[Scheme.SQUARE],
            body=BODY,
            now=NOW,
        )


@pytest.mark.parametrize("scheme", TIMED)
@pytest.mark.parametrize(
    ("away", "passes"),
    [
        (timedelta(seconds=300), True),
        (timedelta(seconds=-300), True),
        (timedelta(seconds=300, microseconds=1), False),
        (timedelta(seconds=-300, microseconds=-1), False),
        (timedelta(days=400), False),
    ],
)
def test_a_signed_time_must_be_near(scheme: Scheme, away: timedelta, passes: bool) -> None:
    if passes:
        verify(rules(scheme), headers=GENUINE[scheme], body=BODY, now=NOW + away)
    else:
        with pytest.raises(WebhookStale):
            verify(rules(scheme), headers=GENUINE[scheme], body=BODY, now=NOW + away)


def stripe(stamp: str) -> dict[str, str]:
    return {"stripe-signature": f"t={stamp},v1={mac(stamp.encode() + b'.' + BODY).hex()}"}


@pytest.mark.parametrize(
    "stamp", ["", "soon", "1e9", "-1", "١٢٣", "9" * 13, "9" * 12, " 1795953600", "1795953600.5"]
)
def test_a_time_that_cannot_be_read_is_stale_even_if_it_is_signed(stamp: str) -> None:
    try:
        headers = stripe(stamp)
        verify(rules(), headers=headers, body=BODY, now=NOW)
    except (WebhookStale, WebhookForged):
        return
    pytest.fail("taken")


def test_two_times_are_none() -> None:
    good = GENUINE[Scheme.STRIPE]["stripe-signature"]
    with pytest.raises(WebhookForged):
        verify(rules(), headers={"stripe-signature": f"t=1,{good}"}, body=BODY, now=NOW)


@pytest.mark.parametrize("scheme", TIMED)
def test_a_forged_notice_is_called_forged_whatever_its_time(scheme: Scheme) -> None:
    with pytest.raises(WebhookForged):
        verify(
            rules(scheme, "whsec_YW5vdGhlcg=="),
            headers=GENUINE[scheme],
            body=BODY,
            now=NOW + timedelta(days=9),
        )


def test_a_prefix_of_another_algorithm_is_no_signature() -> None:
    value = GENUINE[Scheme.GITHUB]["x-hub-signature-256"]
    for forged in (value.replace("sha256=", "sha1="), value.removeprefix("sha256="), "sha256="):
        with pytest.raises(WebhookForged):
            verify(rules(Scheme.GITHUB), headers={"x-hub-signature-256": forged}, body=BODY, now=NOW)


def test_only_signatures_of_the_version_count() -> None:
    good = mac(UNIX.encode() + b"." + BODY).hex()
    with pytest.raises(WebhookForged):
        verify(rules(), headers={"stripe-signature": f"t={UNIX},v0={good}"}, body=BODY, now=NOW)


def test_the_eleventh_signature_is_not_compared() -> None:
    good = mac(UNIX.encode() + b"." + BODY).hex()
    ten = ",".join(["v1=00"] * 10)
    with pytest.raises(WebhookForged):
        verify(rules(), headers={"stripe-signature": f"t={UNIX},{ten},v1={good}"}, body=BODY, now=NOW)


@pytest.mark.parametrize(
    "value", ["t=", "v1", ",,,", "t=1,v1=\u00e9\u20ac", "=" * 5000, "t=1,v1=" + "f" * 64]
)
def test_a_header_of_rubbish_is_forged(value: str) -> None:
    with pytest.raises(WebhookForged):
        verify(rules(), headers={"stripe-signature": value}, body=BODY, now=NOW)


def test_without_a_usable_secret_nothing_can_be_checked() -> None:
    none = WebhookRules(
        scheme=Scheme.STRIPE,
        signing=SIGNING[Scheme.STRIPE],
        tolerance_ms=1,
        url="",
        events=(),
        secret_names=("HOOK_SECRET",),
        secrets=(),
    )
    with pytest.raises(WebhookNotReady, match="HOOK_SECRET"):
        verify(none, headers=GENUINE[Scheme.STRIPE], body=BODY, now=NOW)
    for unusable in ("whsec_", "not base64!", "whsec_***"):
        with pytest.raises(WebhookNotReady):
            verify(rules(Scheme.SVIX, unusable), headers=GENUINE[Scheme.SVIX], body=BODY, now=NOW)


def test_a_scheme_of_ones_own_is_checked_as_it_says() -> None:
    own = Signing(
        header="X-Sig",
        prefix="v2:",
        signed="{url}|{timestamp}|{body}",
        encoding=Encoding.BASE64,
        secret_form=SecretForm.TEXT,
        timestamp_header="X-Time",
        timestamp_form=TimestampForm.ISO,
    )
    content = f"{URL}|{ISO}|".encode() + BODY
    headers = {"x-sig": "v2:" + base64_of(content), "x-time": ISO}
    made = rules(Scheme.HMAC, signing=own)
    assert verify(made, headers=headers, body=BODY, now=NOW).signed_at == NOW
    with pytest.raises(WebhookForged):
        verify(made, headers={**headers, "x-time": "2026-11-29T12:00:01Z"}, body=BODY, now=NOW)


def test_a_value_cannot_stand_in_for_another_part() -> None:
    """A header's text that looks like a placeholder stays text."""
    own = Signing(header="X-Sig", signed="{id}{body}", id_header="X-Id")
    made = rules(Scheme.HMAC, signing=own)
    headers = {"x-sig": mac(b"{body}" + BODY).hex(), "x-id": "{body}"}
    verify(made, headers=headers, body=BODY, now=NOW)


def test_every_pair_is_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []
    real: Callable[[Any, Any], bool] = hmac.compare_digest

    def counting(ours: bytes, theirs: bytes) -> bool:
        compared.append((ours, theirs))
        return real(ours, theirs)

    monkeypatch.setattr(hmac, "compare_digest", counting)
    good = mac(UNIX.encode() + b"." + BODY).hex()
    header = f"t={UNIX},v1={good},v1=00,v1=11"
    verify(rules(Scheme.STRIPE, SECRET, "other"), headers={"stripe-signature": header}, body=BODY, now=NOW)
    assert len(compared) == 6, "an early match ends nothing early"
