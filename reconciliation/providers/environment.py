"""What a declaration takes from the environment: base URL, settings, secrets, and how it signs itself in."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from urllib.parse import urlsplit

from reconciliation.contracts import CredentialReference
from reconciliation.providers.secrets import ALLOWED as SECRET_ALLOWED
from reconciliation.providers.secrets import env_name, read_secret
from reconciliation.providers.tables import Table, found_text
from reconciliation.providers.templates import Template, Values

_SETTING_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}\Z")
# A setting goes into paths and queries: an account's number, a workspace, a region.
_SETTING_VALUE = re.compile(r"[!-~]{1,200}\Z")


class AuthScheme(StrEnum):
    """How a request says who we are."""

    BEARER = "bearer"  # a token (RFC 6750)
    BASIC = "basic"  # a user and a password (RFC 7617)
    CLIENT_CREDENTIALS = "client_credentials"  # a token that is asked for first (RFC 6749, section 4.4)


@dataclass(frozen=True, kw_only=True, slots=True)
class Authorization:
    """The account's `Authorization` header; `user` and `secret` are templates of settings and secrets.

    For client credentials they are the client's id and secret, and `token_path` is where a token is had.
    """

    scheme: AuthScheme
    secret: Template
    user: Template | None = None
    token_path: str = ""

    def header(self, values: Values) -> str:
        """The header of a bearer or basic account; raises `ValueUnusable` where a value is missing."""
        if self.scheme is AuthScheme.BEARER:
            return f"Bearer {self.secret.header(values)}"
        return f"Basic {self.basic(values)}"

    def basic(self, values: Values) -> str:
        """User and password as RFC 7617 writes them, without the scheme's name."""
        user = "" if self.user is None else self.user.text(values)
        return base64.b64encode(f"{user}:{self.secret.text(values)}".encode()).decode("ascii")


@dataclass(frozen=True, kw_only=True, slots=True)
class Surroundings:
    """What was found. `missing` names the variables that aren't set; None for a secret that isn't there."""

    base_url: str | None
    settings: Mapping[str, str]
    credentials: tuple[CredentialReference, ...]
    secrets: Mapping[str, str | None] = field(repr=False)
    missing: tuple[str, ...]
    setting_names: tuple[str, ...]

    @property
    def known(self) -> tuple[str, ...]:
        """The placeholders that the file may use beyond the plain ones."""
        names = [f"secret.{name}" for name in self.secrets]
        return (*names, *(f"setting.{name}" for name in self.setting_names))


def read_surroundings(
    top: Table,
    environ: Mapping[str, str],
    *,
    schemes: tuple[str, ...] = ("http", "https"),
    default_url: str | None = None,
) -> Surroundings:
    """Read `base_url`, `[settings]` and `[credentials]`; what isn't set is missing, and no fault.

    `default_url` holds where neither the file nor its variable says a base URL; empty, where it isn't known
    yet for want of something else that is missing.
    """
    base_url, url_missing = _base_url(top, environ, schemes, default_url)
    names, settings, settings_missing = _settings(top, environ)
    credentials, secrets = _credentials(top, environ)
    lacking = [one.env for one in credentials if one.fingerprint is None]
    return Surroundings(
        base_url=base_url,
        settings=settings,
        credentials=credentials,
        secrets=secrets,
        missing=tuple(dict.fromkeys([*url_missing, *settings_missing, *lacking])),
        setting_names=names,
    )


def read_authorization(top: Table, known: Iterable[str]) -> Authorization | None:
    """The table `[authorization]`; the templates are of settings and secrets only."""
    table = top.table("authorization")
    if table is None:
        return None
    known = tuple(known)
    scheme = table.choice("scheme", AuthScheme)
    match scheme:
        case AuthScheme.BEARER:
            found = Authorization(scheme=scheme, secret=_identity(table, "token", known))
        case AuthScheme.BASIC:
            user = _identity(table, "user", known)
            found = Authorization(scheme=scheme, user=user, secret=_identity(table, "password", known))
        case AuthScheme.CLIENT_CREDENTIALS:
            token_path = table.text("token_path")
            if token_path and not re.fullmatch(r"/[A-Za-z0-9/._-]*", token_path):
                table.fault("token_path", found=found_text(token_path), allowed="a path below base_url")
            found = Authorization(
                scheme=scheme,
                user=_identity(table, "client_id", known),
                secret=_identity(table, "client_secret", known),
                token_path=token_path,
            )
    table.finish()
    return found


def _identity(table: Table, name: str, known: tuple[str, ...]) -> Template:
    source = table.text(name, allowed='text such as "{secret.token}"')
    template = table.as_template(name, source, known=known)
    if any(not used.startswith(("secret.", "setting.")) for used in template.names):
        table.fault(name, found=found_text(source), allowed="secrets and settings only")
    if name in ("token", "password", "client_secret") and source and not template.uses_secret:
        # What stands there may be the secret itself, so it isn't repeated.
        table.fault(name, found="no secret", allowed='a secret by reference, such as "{secret.token}"')
    return template


def _base_url(
    top: Table, environ: Mapping[str, str], schemes: tuple[str, ...], default_url: str | None
) -> tuple[str | None, tuple[str, ...]]:
    allowed = f'a URL such as "{schemes[-1]}://api.example.com", or {{ env = "NAME" }}'
    written = top.text_if_written("base_url")
    if written is not None:
        return _checked_url(top, "base_url", written, schemes), ()
    reference = top.table("base_url", required=default_url is None)
    if reference is None:
        return default_url or None, ()
    name = env_name(reference, "env", allowed=allowed)
    default = reference.optional_text("default", allowed="a URL such as https://api.example.com")
    reference.finish()
    value = environ.get(name, "")
    if value:
        return _checked_url(top, f"base_url = {{ env = {name} }}", value, schemes), ()
    if default:
        return _checked_url(top, "base_url.default", default, schemes), ()
    if default_url is not None:
        return default_url or None, ()
    return None, (name,) if name else ()


def _checked_url(top: Table, name: str, url: str, schemes: tuple[str, ...]) -> str | None:
    """The URL without a slash at its end. A wrong one isn't repeated: it may hold a password."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        allowed = " or ".join(f"{scheme}://" for scheme in schemes)
        top.fault(name, found="something else", allowed=f"{allowed} with a host, perhaps a path")
    elif parts.username is not None or parts.query or parts.fragment:
        top.fault(name, found="a user, a query or a fragment", allowed="scheme, host, port and path only")
    elif not re.fullmatch(r"[!-~]+", url):
        top.fault(name, found="spaces or characters beyond ASCII", allowed="a URL as it is sent")
    else:
        return url.rstrip("/")
    return None


def _settings(
    top: Table, environ: Mapping[str, str]
) -> tuple[tuple[str, ...], dict[str, str], tuple[str, ...]]:
    """Names, values, and the variables that aren't set. A setting is no secret: it shows in URLs."""
    table = top.table("settings")
    if table is None:
        return (), {}, ()
    names, values, missing = [], {}, []
    for name, value in table.members().items():
        allowed = '{ env = "NAME" }, perhaps with a default or optional = true'
        if not _SETTING_NAME.match(name):
            table.fault(name, found="this name", allowed="letters, digits, _ and -")
            continue
        names.append(name)
        if not isinstance(value, dict):
            table.fault(name, found=found_text(value), allowed=allowed)
            continue
        inner = table.inner(name, value)
        env = env_name(inner, "env", allowed=allowed)
        default = inner.optional_text("default")
        optional = inner.flag("optional", default=False)
        inner.finish()
        said = environ.get(env, "") or default or ""
        if not said:
            missing += [] if optional else [env]
        elif not _SETTING_VALUE.match(said):
            table.fault(name, found=f"the value of {env}", allowed="1 to 200 visible ASCII characters")
        else:
            values[name] = said
    return tuple(names), values, tuple(one for one in missing if one)


def _credentials(
    top: Table, environ: Mapping[str, str]
) -> tuple[tuple[CredentialReference, ...], dict[str, str | None]]:
    table = top.table("credentials")
    if table is None:
        return (), {}
    references = []
    secrets: dict[str, str | None] = {}
    for name, value in table.members().items():
        if not isinstance(value, dict):
            # What stands there may be the secret itself, so it isn't repeated.
            table.fault(name, found="a value", allowed=SECRET_ALLOWED)
            continue
        inner = table.inner(name, value)
        secret = read_secret(inner, environ)
        inner.finish()
        secrets[name] = secret.value
        references.append(CredentialReference(name=name, env=secret.env, fingerprint=secret.fingerprint))
    return tuple(references), secrets
