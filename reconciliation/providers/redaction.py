"""Take secrets and card numbers out of what is kept as evidence. Always on; a declaration can only add names.

Two things are looked for: values under a name that says secret (an authorization header, a password member,
a token in a query), and text that is itself shaped like a secret (a card number that passes its check digit,
a bearer token, a signed token, the keys of well-known providers). The secrets of the account in use are
replaced wherever they appear. Every pattern is linear: the text is the provider's, and may be hostile.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, quote, quote_plus, urlsplit, urlunsplit

REDACTED = "[redacted]"
REDACTED_CARD = "[redacted card number]"

# What is kept of one header, and of how many.
HEADER_VALUE_MAX = 1000
HEADERS_MAX = 64
# A secret shorter than this would be found inside ordinary words and make evidence unreadable.
SECRET_LENGTH_MIN = 6

# Parts of names, once lower-cased and without separators. "key" alone isn't one: it would hide our own key.
_SENSITIVE_NAME = re.compile(
    r"authori[sz]ation|cookie|password|passwd|passphrase|secret|token|apikey|accesskey|privatekey|credential"
    r"|signature|sessionid|cardnumber|^pan$|^cvv2?$|^cvc2?$|securitycode|^pin$"
)
# Names with one of those parts that don't hold a secret.
_HARMLESS_NAMES = frozenset(
    {"clienttoken", "nexttoken", "nextpagetoken", "pagetoken", "tokentype", "signaturealgorithm"}
)

_TOKEN_SHAPED = re.compile(
    # The prefixes under which well-known providers issue secrets.
    r"\b(?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{8,256}"
    r"|\bwhsec_[A-Za-z0-9+/=]{8,256}"
    r"|\bgh[pousr]_[A-Za-z0-9]{16,256}"
    r"|\bgithub_pat_[A-Za-z0-9_]{16,256}"
    r"|\bglpat-[A-Za-z0-9_-]{16,256}"
    r"|\bxox[abcdeoprs][-.][A-Za-z0-9%.-]{8,512}"
    r"|\bxapp-[A-Za-z0-9-]{8,256}"
    r"|\bhooks\.slack\.com/(?:services|workflows|triggers)/[A-Za-z0-9/_-]{8,256}"
    r"|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"
    r"|\bAIza[A-Za-z0-9_-]{30,64}"
    r"|\bya29\.[A-Za-z0-9_-]{16,1024}"
    r"|\bshp(?:at|ca|pa|ss)_[A-Za-z0-9]{16,128}"
    r"|\bsq0[a-z]{3}-[A-Za-z0-9_-]{16,128}"
    r"|\bEAAA[A-Za-z0-9_-]{40,256}"
    r"|\bA21AA[A-Za-z0-9_-]{40,512}"
    r"|\blin_(?:api|oauth)_[A-Za-z0-9]{16,128}"
    r"|\b(?:npm|hf)_[A-Za-z0-9]{20,128}"
    r"|\bsk-(?:proj|ant|svcacct)-[A-Za-z0-9_-]{16,512}"
    r"|\bSG\.[A-Za-z0-9_-]{16,64}\.[A-Za-z0-9_-]{16,128}"
    r"|\bre_[A-Za-z0-9]{8,32}_[A-Za-z0-9]{8,64}"
    # A signed token of three base64url parts (RFC 7519); a JSON header always starts with eyJ.
    r"|\beyJ[A-Za-z0-9_-]{8,4096}\.[A-Za-z0-9_-]{2,8192}\.[A-Za-z0-9_-]{0,2048}"
    # A private key as PEM (RFC 7468), whole or cut off; inside JSON its line ends are escaped.
    r"|-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----[^-]{0,16384}(?:-----END [A-Z ]{0,40}PRIVATE KEY-----)?"
    # Whatever follows an authorization scheme.
    r"|\b(?:Bearer|Basic)\s{1,4}[A-Za-z0-9._~+/=-]{8,4096}",
)
# Issuer prefixes of payment cards with the lengths they come in (ISO/IEC 7812), digits perhaps in groups. A
# leading 1 is left out on purpose: times in milliseconds start with it and pass the check one time in ten.
_CARD_SHAPED = re.compile(r"(?<![0-9A-Za-z_.-])[2-6](?:[ -]?[0-9]){12,18}(?![0-9A-Za-z_-]|\.[0-9])")
# A name and what follows it, in JSON (also JSON inside a JSON string), a form, or a header line.
_NAME_IN_TEXT = re.compile(
    r"""(?<![A-Za-z0-9])([A-Za-z][A-Za-z0-9_-]{1,63}+)\\{0,3}["']?\s{0,4}[:=]\s{0,4}"""
)
_VALUE_IN_TEXT = re.compile(
    r"""\\{1,3}"[^"\\]{0,8192}(?:\\{1,3}")?|"(?:[^"\\\n]|\\.){0,8192}"?|'[^'\n]{0,8192}'?"""
    r"""|(?:(?:Bearer|Basic|Digest)\s{1,4})?[^\s"'\\&,;{}\[\]<>]{1,8192}"""
)

# A printable ASCII character as JSON may write it too (RFC 8259 §7), after whole pairs of backslashes.
_ESCAPED_ASCII = re.compile(r"(?<!\\)((?:\\\\){0,64})\\u00([2-7][0-9A-Fa-f])")


@dataclass(frozen=True, kw_only=True, slots=True)
class Redactor:
    """What to take out beyond the built-in rules, and what must stay.

    `secrets` are values in use (an account's credentials); `names` are further names of members and headers
    whose values are secret; `keep` are texts that evidence needs whole, such as our key and the reference.
    """

    secrets: tuple[str, ...] = field(default=(), repr=False)
    names: frozenset[str] = frozenset()
    keep: frozenset[str] = frozenset()

    def keeping(self, *texts: str) -> Redactor:
        """The same rules, with these texts left as they are where they stand alone."""
        kept = self.keep | {text for text in texts if text}
        return Redactor(secrets=self.secrets, names=self.names, keep=frozenset(kept))

    def text(self, text: str) -> str:
        """Text without the secrets in it: JSON, a form, HTML or a plain sentence.

        Where a secret or its name is written in JSON's escapes, the text comes back without those of ASCII.
        """
        clean = self._plain_gone(text)
        if "\\u00" not in clean:
            return clean
        seen = self._plain_gone(plain := _ESCAPED_ASCII.sub(_unescaped, clean))
        return clean if seen == plain else seen

    def _plain_gone(self, text: str) -> str:
        return self.shapes_gone(self._named_gone(self._secrets_gone(text)))

    def value(self, value: Any) -> Any:
        """A copy of a JSON value, as strict JSON reads it, without the secrets in it."""
        match value:
            case dict():
                return {self.scalar_text(name): self._member(name, inner) for name, inner in value.items()}
            case list() | tuple():
                return [self.value(inner) for inner in value]
            case str():
                return self.scalar_text(value)
            case int() if (
                not isinstance(value, bool) and _is_card(str(value)) and str(value) not in self.keep
            ):
                return REDACTED_CARD
            case _:
                return value

    def scalar_text(self, text: str) -> str:
        """One string of a JSON value, or a header's value."""
        return text if text in self.keep else self.text(text)

    def headers(self, pairs: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
        """Headers, bounded in number and length, with the values of sensitive ones replaced."""
        kept = []
        for number, (name, value) in enumerate(pairs):
            if number == HEADERS_MAX:
                kept.append(("…", "further headers were not kept"))
                break
            clean = REDACTED if self.is_sensitive(name) else self.scalar_text(value)
            kept.append((_printable(name)[:HEADER_VALUE_MAX], _printable(clean)[:HEADER_VALUE_MAX]))
        return tuple(kept)

    def url(self, url: str) -> str:
        """A URL without user, password, and sensitive query values."""
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
        query = "&".join(
            f"{quote(self.scalar_text(name), safe='')}="
            f"{quote(REDACTED if self.is_sensitive(name) else self.scalar_text(value), safe='[]')}"
            for name, value in parse_qsl(parts.query, keep_blank_values=True)
        )
        return urlunsplit((parts.scheme, host, self.text(parts.path), query, ""))

    def is_sensitive(self, name: str) -> bool:
        """Whether a member or header of this name holds a secret."""
        flat = re.sub(r"[^a-z0-9]", "", name.lower())
        if name.lower() in self.names:
            return True
        return flat not in _HARMLESS_NAMES and _SENSITIVE_NAME.search(flat) is not None

    def _member(self, name: str, inner: Any) -> Any:
        if self.is_sensitive(name) and inner is not None and not isinstance(inner, bool):
            return REDACTED
        return self.value(inner)

    def _secrets_gone(self, text: str) -> str:
        for secret in sorted(self.secrets, key=len, reverse=True):
            if len(secret) >= SECRET_LENGTH_MIN:
                text = text.replace(secret, REDACTED)
        return text

    def shapes_gone(self, text: str) -> str:
        """Text without what is shaped like a secret; names are not looked at."""
        text = _TOKEN_SHAPED.sub(lambda found: self._unless_kept(found.group(), REDACTED), text)
        return _CARD_SHAPED.sub(self._card, text)

    def _card(self, found: re.Match[str]) -> str:
        shaped = found.group()
        return self._unless_kept(shaped, REDACTED_CARD) if _is_card(shaped) else shaped

    def _unless_kept(self, shaped: str, instead: str) -> str:
        return shaped if shaped in self.keep else instead

    def _named_gone(self, text: str) -> str:
        parts = []
        kept_to = 0
        for name in _NAME_IN_TEXT.finditer(text):
            if name.start() < kept_to or not self.is_sensitive(name[1]):
                continue
            value = _VALUE_IN_TEXT.match(text, name.end())
            if value is None or value.group() in ("null", "true", "false"):
                continue
            bare = value.group().strip("\\\"'")
            if not bare or bare in self.keep:
                continue
            parts += [text[kept_to : name.end()], value.group().replace(bare, REDACTED)]
            kept_to = value.end()
        return "".join([*parts, text[kept_to:]])


def _unescaped(found: re.Match[str]) -> str:
    character = chr(int(found[2], 16))
    # Those two would end the string that they stand in, or begin another escape.
    return found[0] if character in '"\\\x7f' else f"{found[1]}{character}"


def is_secret_shaped(text: str) -> bool:
    """Whether something in the text is shaped like a secret or a card number, whatever it is called."""
    return Redactor().shapes_gone(text) != text


def redactor_for(secrets: Mapping[str, str], names: Iterable[str] = ()) -> Redactor:
    """The redactor of an account whose credentials in use are `secrets` (name to value).

    Each is looked for as it is, as JSON writes it, and as a URL does.
    """
    forms = {
        form
        for value in secrets.values()
        if value
        for form in (
            value,
            json.dumps(value)[1:-1],
            json.dumps(value, ensure_ascii=False)[1:-1],
            quote(value),
            # As one segment of a path or one value of a query, and as a form's.
            quote(value, safe=""),
            quote_plus(value),
        )
    }
    return Redactor(
        secrets=tuple(sorted(forms)),
        names=frozenset(name.lower() for name in names),
    )


def _is_card(shaped: str) -> bool:
    digits = [int(character) for character in shaped if character.isdigit()]
    if not 13 <= len(digits) <= 19 or digits[0] not in (2, 3, 4, 5, 6):
        return False
    # The check digit of ISO/IEC 7812 (Luhn): every second digit from the right doubled, its digits summed.
    doubled = [digit * 2 - 9 * (digit > 4) for digit in digits[-2::-2]]
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0


def _printable(text: str) -> str:
    """Text that can't act where it is shown and that PostgreSQL can hold."""
    return "".join(character if character.isprintable() else "\ufffd" for character in text)
