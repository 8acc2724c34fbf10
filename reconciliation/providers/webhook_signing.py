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
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import ClassVar, assert_never
from urllib.parse import parse_qsl

from reconciliation.providers import webhook_certificates
from reconciliation.providers.webhook_schemes import (
    Algorithm,
    Encoding,
    HeaderForm,
    SecretForm,
    Signing,
    TimestampForm,
)
from reconciliation.providers.webhook_table import WebhookRules
from runs.refusals import Refusal

# A rotation on the provider's side sends two; more than this are not compared.
SIGNATURES_MAX = 10
HEADER_LENGTH_MAX = 4_096
# Twilio's notices have some twenty fields.
FORM_FIELDS_MAX = 500
# Seconds since 1970 have ten digits until the year 2286.
_TIMESTAMP_DIGITS_MAX = 12
_PLACEHOLDER = re.compile(r"\{(timestamp|id|url|query|webhook_id|crc32|body|parameters|fields)\}")


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
    """What the signature vouches for: when it was made (None where the scheme doesn't say), and over what."""

    signed_at: datetime | None
    content: bytes


def verify(
    rules: WebhookRules, *, headers: Mapping[str, str], body: bytes, now: datetime, query: str = ""
) -> Signed:
    """Check one notice that is signed as a whole.

    `headers` are by lower-case name, `query` is what stood behind the address's "?", as it came; `now` is the
    database's clock. Raises `WebhookNotReady`, `WebhookForged`, `WebhookStale`.
    """
    signing = rules.signing
    check_ready(rules, now)
    header = headers.get(signing.header.lower(), "")[:HEADER_LENGTH_MAX]
    stamp, given = _read_header(signing, header)
    if signing.timestamp_header is not None:
        stamp = headers.get(signing.timestamp_header.lower(), "")
    if len(query) > HEADER_LENGTH_MAX:
        raise WebhookForged("The notice came to a longer address than any that was given out.")
    content = _content(rules, stamp=stamp, id_given=_id_given(signing, headers), query=query, body=body)
    if not signed_by_any(rules, given, content, now):
        raise WebhookForged(
            f"The notice carries no valid signature in {signing.header}."
            if given
            else f"The notice carries no signature in {signing.header}."
        )
    if not signing.has_timestamp:
        return Signed(signed_at=None, content=content)
    signed_at = _instant(signing.timestamp_form, stamp)
    if signed_at is None or abs(now - signed_at) > timedelta(milliseconds=rules.tolerance_ms):
        raise WebhookStale(
            f"The notice was signed at another time than now; {rules.tolerance_ms // 1000} s are allowed.",
            signed_at=None if signed_at is None else signed_at.isoformat(),
        )
    return Signed(signed_at=signed_at, content=content)


def check_ready(rules: WebhookRules, now: datetime) -> None:
    """Raise `WebhookNotReady` unless something is here that a notice can be checked with at `now`."""
    if not usable(rules, now):
        names = " or ".join(rules.secret_names)
        raise WebhookNotReady(
            f"Notices of this account can't be checked here: {names}, or what else is signed, isn't right."
        )


def usable(rules: WebhookRules, now: datetime) -> bool:
    """Whether a notice can be checked here at `now`: everything is set, and a secret or certificate holds."""
    if not rules.configured:
        return False
    if rules.signing.secret_form is SecretForm.CERTIFICATE:
        return any(webhook_certificates.public_key(one, now=now) for one in rules.secrets)
    return any(True for _ in _keys(rules))


def signed_by_any(rules: WebhookRules, given: list[str], content: bytes, now: datetime) -> bool:
    """Whether any of the given signatures of `content` is by any of the account's secrets or certificates."""
    match rules.signing.algorithm:
        case Algorithm.HMAC_SHA256 | Algorithm.HMAC_SHA1:
            return _any_equal([_signature(rules.signing, key, content) for key in _keys(rules)], given)
        case Algorithm.RSA_SHA256:
            found = (webhook_certificates.public_key(one, now=now) for one in rules.secrets)
            keys = [key for key in found if key is not None]
            signatures = [one for one in map(_decoded, given) if one is not None]
            return any(webhook_certificates.holds(key, one, content) for key in keys for one in signatures)
        case _:
            assert_never(rules.signing.algorithm)


def sign(
    rules: WebhookRules, *, body: bytes, at: datetime, id_given: str = "", query: str = ""
) -> dict[str, str]:
    """The headers that a provider would send with this body, signed with the first secret that is set.

    For a provider of our own, and for tests. Only of schemes with a secret that both sides know.
    """
    signing = rules.signing
    whole_second = at.astimezone(UTC).replace(microsecond=0)
    stamp = str(int(whole_second.timestamp()))
    if signing.timestamp_form is TimestampForm.ISO:
        stamp = whole_second.strftime("%Y-%m-%dT%H:%M:%SZ")
    content = _content(rules, stamp=stamp, id_given=id_given, query=query, body=body)
    signature = signature_of(rules, content)
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
            case SecretForm.HEX:
                try:
                    key = bytes.fromhex(secret)
                except ValueError:
                    continue
                if key:
                    yield key
            case SecretForm.CERTIFICATE:
                return
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


def _content(rules: WebhookRules, *, stamp: str, id_given: str, query: str, body: bytes) -> bytes:
    """What was signed. Each part is put in once, so no value can stand in for another part."""
    texts = {
        "timestamp": stamp,
        "id": id_given,
        "url": rules.url,
        "query": f"?{query}" if query else "",
        "webhook_id": rules.webhook_id,
        "crc32": str(zlib.crc32(body)),
    }
    signed, content, at = rules.signing.signed, b"", 0
    for found in _PLACEHOLDER.finditer(signed):
        content += _latin(signed[at : found.start()])
        match found[1]:
            case "body":
                content += body
            case "parameters":
                content += b"".join(name + value for name, value in sorted(set(form_pairs(body))))
            case name:
                content += _latin(texts[name])
        at = found.end()
    return content + _latin(signed[at:])


def form_pairs(body: bytes) -> list[tuple[bytes, bytes]]:
    """The names and values of a form, decoded, in their order; `WebhookForged` if there are too many."""
    try:
        # Latin-1 both ways: bytes go in and come out, whatever they stand for.
        pairs = parse_qsl(
            body.decode("latin-1"),
            keep_blank_values=True,
            encoding="latin-1",
            max_num_fields=FORM_FIELDS_MAX,
        )
    except ValueError as error:
        raise WebhookForged(
            f"The notice is no form of at most {FORM_FIELDS_MAX} fields, so it can't be checked."
        ) from error
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in pairs]


def _latin(text: str) -> bytes:
    # Header values come as latin-1 text; what isn't can't have been in one.
    return text.encode("latin-1", errors="replace")


def _decoded(signature: str) -> bytes | None:
    try:
        return base64.b64decode(signature, validate=True)
    except (binascii.Error, ValueError):
        return None


def _signature(signing: Signing, key: bytes, content: bytes) -> str:
    match signing.algorithm:
        case Algorithm.HMAC_SHA256:
            made = hmac.new(key, content, hashlib.sha256).digest()
        case Algorithm.HMAC_SHA1:
            made = hmac.new(key, content, hashlib.sha1).digest()
        case Algorithm.RSA_SHA256:
            raise ValueError("only the provider has the private key")
        case _:
            assert_never(signing.algorithm)
    match signing.encoding:
        case Encoding.HEX:
            return made.hex()
        case Encoding.BASE64:
            return base64.b64encode(made).decode("ascii")
        case _:
            assert_never(signing.encoding)


def signature_of(rules: WebhookRules, content: bytes) -> str:
    """The signature of `content` by the first secret that is set, as text."""
    return _signature(rules.signing, next(_keys(rules)), content)


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
