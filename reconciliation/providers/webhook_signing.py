"""Was this notice signed by the provider, and lately? Pure: headers, bytes, rules and a time go in.

A notice is anybody's until its signature holds. Signatures are compared in constant time, each given one with
each of the account's secrets, and the time is looked at only after that: "stale" is said of what the provider
did sign.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import ClassVar, assert_never

from reconciliation.providers.webhook_table import (
    Encoding,
    HeaderForm,
    SecretForm,
    Signing,
    TimestampForm,
    WebhookRules,
)
from runs.refusals import Refusal

# A rotation on the provider's side sends two; more than this are not compared.
SIGNATURES_MAX = 10
HEADER_LENGTH_MAX = 4_096
# Seconds since 1970 have ten digits until the year 2286.
_TIMESTAMP_DIGITS_MAX = 12
_PLACEHOLDER = re.compile(r"\{(timestamp|id|url)\}")


class WebhookForged(Refusal):
    """The notice carries no signature that one of the account's secrets could have made."""

    word: ClassVar[str] = "webhook_forged"


class WebhookStale(Refusal):
    """The notice was signed, at a time too far from now: it may have been recorded and played again."""

    word: ClassVar[str] = "webhook_stale"


class WebhookNotReady(Refusal):
    """No webhook secret of the account is set here, or not the signed address: nothing can be checked."""

    word: ClassVar[str] = "webhook_not_ready"


@dataclass(frozen=True, kw_only=True, slots=True)
class Signed:
    """What the signature vouches for beside the body: when it was made, None where the scheme doesn't say."""

    signed_at: datetime | None


def verify(rules: WebhookRules, *, headers: Mapping[str, str], body: bytes, now: datetime) -> Signed:
    """Check one notice. `headers` are by lower-case name; `now` is the database's clock.

    Raises `WebhookNotReady`, `WebhookForged`, `WebhookStale`.
    """
    signing = rules.signing
    keys = tuple(_keys(rules))
    if not keys or not rules.configured:
        names = " or ".join(rules.secret_names)
        raise WebhookNotReady(
            f"Notices of this account can't be checked here: {names}, or the signed address, isn't right."
        )
    header = headers.get(signing.header.lower(), "")[:HEADER_LENGTH_MAX]
    stamp, given = _read_header(signing, header)
    if signing.timestamp_header is not None:
        stamp = headers.get(signing.timestamp_header.lower(), "")
    content = _content(signing, stamp=stamp, id_given=_id_given(signing, headers), url=rules.url, body=body)
    if not _any_equal([_signature(signing, key, content) for key in keys], given):
        raise WebhookForged(
            f"The notice carries no valid signature in {signing.header}."
            if given
            else f"The notice carries no signature in {signing.header}."
        )
    if not signing.has_timestamp:
        return Signed(signed_at=None)
    signed_at = _instant(signing.timestamp_form, stamp)
    if signed_at is None or abs(now - signed_at) > timedelta(milliseconds=rules.tolerance_ms):
        raise WebhookStale(
            f"The notice was signed at another time than now; {rules.tolerance_ms // 1000} s are allowed.",
            signed_at=None if signed_at is None else signed_at.isoformat(),
        )
    return Signed(signed_at=signed_at)


def sign(rules: WebhookRules, *, body: bytes, at: datetime, id_given: str = "") -> dict[str, str]:
    """The headers that a provider would send with this body, signed with the first secret that is set.

    For a provider of our own, and for tests.
    """
    signing = rules.signing
    whole_second = at.astimezone(UTC).replace(microsecond=0)
    stamp = str(int(whole_second.timestamp()))
    if signing.timestamp_form is TimestampForm.ISO:
        stamp = whole_second.strftime("%Y-%m-%dT%H:%M:%SZ")
    content = _content(signing, stamp=stamp, id_given=id_given, url=rules.url, body=body)
    signature = _signature(signing, next(_keys(rules)), content)
    headers = {}
    match signing.form:
        case HeaderForm.PLAIN:
            headers[signing.header] = f"{signing.prefix}{signature}"
        case HeaderForm.PAIRS:
            headers[signing.header] = f"t={stamp},{signing.version}={signature}"
        case HeaderForm.LIST:
            headers[signing.header] = f"{signing.version},{signature}"
        case _:
            assert_never(signing.form)
    if signing.timestamp_header is not None:
        headers[signing.timestamp_header] = stamp
    if signing.id_header is not None:
        headers[signing.id_header] = id_given
    return headers


def _keys(rules: WebhookRules) -> Iterator[bytes]:
    for secret in rules.secrets:
        match rules.signing.secret_form:
            case SecretForm.TEXT:
                yield secret.encode()
            case SecretForm.BASE64:
                bare = secret.removeprefix("whsec_")
                try:
                    key = base64.b64decode(bare, validate=True)
                except (binascii.Error, ValueError):
                    continue
                if key:
                    yield key
            case _:
                assert_never(rules.signing.secret_form)


def _read_header(signing: Signing, header: str) -> tuple[str, list[str]]:
    """The timestamp that stands in the signature's header, if one does, and the signatures."""
    match signing.form:
        case HeaderForm.PLAIN:
            # Another prefix may stand for another algorithm.
            bare = header.strip()
            held = bare.startswith(signing.prefix) and len(bare) > len(signing.prefix)
            return "", [bare.removeprefix(signing.prefix)] if held else []
        case HeaderForm.PAIRS:
            pairs = [part.strip().partition("=") for part in header.split(",")]
            stamps = [value for name, _, value in pairs if name == "t"]
            given = [value for name, _, value in pairs if name == signing.version]
            return stamps[0] if len(stamps) == 1 else "", given[:SIGNATURES_MAX]
        case HeaderForm.LIST:
            parts = [part.partition(",") for part in header.split()]
            return "", [value for name, _, value in parts if name == signing.version][:SIGNATURES_MAX]
        case _:
            assert_never(signing.form)


def _id_given(signing: Signing, headers: Mapping[str, str]) -> str:
    return "" if signing.id_header is None else headers.get(signing.id_header.lower(), "")


def _content(signing: Signing, *, stamp: str, id_given: str, url: str, body: bytes) -> bytes:
    """What was signed; the body's place is found before anything is filled in, so no value can move it."""
    before, after = signing.signed.split("{body}")
    values = {"timestamp": stamp, "id": id_given, "url": url}
    return _filled(before, values) + body + _filled(after, values)


def _filled(text: str, values: Mapping[str, str]) -> bytes:
    filled = _PLACEHOLDER.sub(lambda found: values[found[1]], text)
    # Header values come as latin-1 text; what isn't can't have been in one.
    return filled.encode("latin-1", errors="replace")


def _signature(signing: Signing, key: bytes, content: bytes) -> str:
    made = hmac.new(key, content, hashlib.sha256).digest()
    match signing.encoding:
        case Encoding.HEX:
            return made.hex()
        case Encoding.BASE64:
            return base64.b64encode(made).decode("ascii")
        case _:
            assert_never(signing.encoding)


def _any_equal(expected: list[str], given: list[str]) -> bool:
    """Whether any pair is equal; every pair is compared, however early one fits."""
    found = False
    for ours in expected:
        for theirs in given:
            found |= hmac.compare_digest(ours.encode(), theirs.encode("utf-8", errors="replace"))
    return found


def _instant(form: TimestampForm, stamp: str) -> datetime | None:
    match form:
        case TimestampForm.UNIX:
            if not (stamp.isascii() and stamp.isdecimal()) or len(stamp) > _TIMESTAMP_DIGITS_MAX:
                return None
            try:
                return datetime.fromtimestamp(int(stamp), UTC)
            except (OverflowError, OSError, ValueError):
                return None
        case TimestampForm.ISO:
            try:
                at = datetime.fromisoformat(stamp)
            except ValueError:
                return None
            return at if at.tzinfo is not None else at.replace(tzinfo=UTC)
        case _:
            assert_never(form)
