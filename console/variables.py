"""What the environment says: each kind of variable read in one way, and refused where it can't be meant.

Whatever is wrong raises `ImproperlyConfigured`, naming the variable and what it should have been.
"""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured

from console.notifying.destinations import Webhook, read_webhooks, secret_of
from reconciliation.providers.reach import ListedHost, parse_listing


def flag(name: str, *, default: bool) -> bool:
    """Read a yes/no variable; anything but the words below is refused, so that a typo can't open a door."""
    value = os.environ.get(name, "").strip().lower()
    if value == "":
        return default
    if value in {"1", "true", "yes", "on"}:
        return True
    if value in {"0", "false", "no", "off"}:
        return False
    raise ImproperlyConfigured(f"{name} must be 1 or 0 (or true, false, yes, no, on, off), not {value!r}.")


def number(name: str, *, default: float, minimum: float) -> float:
    """Read a number variable that must be at least `minimum`."""
    text = os.environ.get(name, "").strip()
    if text == "":
        return default
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not value >= minimum:
        raise ImproperlyConfigured(f"{name} must be a number of at least {minimum:g}, not {text!r}.")
    return value


def words(name: str, *, separator: str = ",") -> list[str]:
    """Read a list variable; empty items are dropped."""
    return [item.strip() for item in os.environ.get(name, "").split(separator) if item.strip()]


def listed_hosts(name: str) -> list[ListedHost]:
    """Read a list of hosts with what they may lead to: `shop.internal:8443=private, 127.0.0.1=loopback`."""
    try:
        return [parse_listing(item) for item in words(name)]
    except ValueError as error:
        raise ImproperlyConfigured(f"{name}: {error}.") from None


def secret(name: str) -> str:
    """Read a secret: a variable's value, or the content of the file that `<name>_FILE` points at."""
    try:
        return secret_of(name, os.environ)
    except ValueError as error:
        raise ImproperlyConfigured(f"{error}.") from None


def webhooks() -> dict[str, Webhook]:
    """Read the webhooks that notifications may go to: `NOTIFY_<NAME>__URL` and `NOTIFY_<NAME>__SECRET`."""
    try:
        return read_webhooks(os.environ)
    except ValueError as error:
        raise ImproperlyConfigured(f"{error}.") from None


def public_url(name: str) -> str:
    """Read the address under which people reach the console: `https://recourse.example`, no path."""
    url = os.environ.get(name, "").strip().rstrip("/")
    parts = urlsplit(url)
    if url and (parts.scheme not in {"http", "https"} or not parts.hostname or parts.path or parts.query):
        raise ImproperlyConfigured(f"{name} must be of the form https://recourse.example, not {url!r}.")
    return url


def mail(url: str) -> dict[str, Any]:
    """Turn `smtp://user@host:587` into Django's settings of a mail server; none for an empty address.

    `smtps` is TLS from the first byte, `smtp` is STARTTLS, which the server must offer, and `smtp+plain` is
    neither: for a relay on this machine. The password stands in RECOURSE_MAIL_PASSWORD, or its file.
    """
    parts = urlsplit(url)
    ports = {"smtp": 587, "smtps": 465, "smtp+plain": 25}
    if url and (parts.scheme not in ports or not parts.hostname):
        raise ImproperlyConfigured("RECOURSE_MAIL_URL must be of the form smtp://user@mail.example:587.")
    return {
        "BACKEND": f"django.core.mail.backends.{'smtp' if url else 'dummy'}.EmailBackend",
        "HOST": parts.hostname or "",
        "PORT": parts.port or ports.get(parts.scheme, 25),
        "HOST_USER": unquote(parts.username or ""),
        "HOST_PASSWORD": secret("RECOURSE_MAIL_PASSWORD") or unquote(parts.password or ""),
        "USE_TLS": parts.scheme == "smtp",
        "USE_SSL": parts.scheme == "smtps",
    }


def identity_provider() -> dict[str, Any]:
    """Read the OpenID provider that people may sign in with; {} where there is none.

    People are linked to it by its subject, once they came, and before that by an e-mail address that it says
    is verified, where RECOURSE_OIDC_LINK_BY_EMAIL is on: then whoever the provider gives an address to is the
    person with that address.
    """
    names = ("ISSUER", "CLIENT_ID", "CLIENT_SECRET")
    given = {name: os.environ.get(f"RECOURSE_OIDC_{name}", "").strip() for name in names}
    if not any(given.values()):
        return {}
    if not all(given.values()):
        lacking = ", ".join(f"RECOURSE_OIDC_{name}" for name in names if not given[name])
        raise ImproperlyConfigured(f"For sign-in with an OpenID provider, set {lacking} too.")
    by_email = flag("RECOURSE_OIDC_LINK_BY_EMAIL", default=False)
    return {
        "provider_id": "sso",
        "name": os.environ.get("RECOURSE_OIDC_NAME", "").strip() or "single sign-on",
        "client_id": given["CLIENT_ID"],
        "secret": given["CLIENT_SECRET"],
        "settings": {
            "server_url": given["ISSUER"],
            "fetch_userinfo": True,
            "email_authentication": by_email,
            "auth_time_required": not flag("RECOURSE_OIDC_WITHOUT_AUTH_TIME", default=False),
        },
    }


def identity_provider_origins() -> list[str]:
    """Where a browser is sent to sign in: the issuer's origin, and others that it sends people on to."""
    parts = urlsplit(os.environ.get("RECOURSE_OIDC_ISSUER", "").strip())
    own = [f"{parts.scheme}://{parts.netloc}"] if parts.netloc else []
    return [*own, *words("RECOURSE_OIDC_ORIGINS")]


def database(url: str) -> dict[str, Any]:
    """Turn `postgresql://user:password@host:port/name?option=…` into Django's settings for one alias.

    `host` may also be a query parameter, as in libpq, which is how a socket folder is named. Every
    other parameter is handed to psycopg unchanged (`sslmode`, `sslrootcert`, `application_name`, …).
    """
    parts = urlsplit(url)
    if parts.scheme not in {"postgresql", "postgres"}:
        raise ImproperlyConfigured(
            "A database URL must start with postgresql://; Recourse runs on PostgreSQL only."
        )
    options: dict[str, Any] = dict(parse_qsl(parts.query))
    host = options.pop("host", "") or unquote(parts.hostname or "")
    # A write that waits longer than this for the server to answer at all is a broken connection.
    options.setdefault("connect_timeout", "10")
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": unquote(parts.path.lstrip("/")),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": host,
        "PORT": options.pop("port", "") or str(parts.port or ""),
        "OPTIONS": options,
        "CONN_MAX_AGE": int(number("RECOURSE_DB_CONN_MAX_AGE_SECONDS", default=60, minimum=0)),
        "CONN_HEALTH_CHECKS": True,
        "ATOMIC_REQUESTS": False,
    }
