"""What the pages of one's own account take."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from console.pages.shapes.case import FieldError, HiddenField
from console.pages.shapes.text import Link, Phrase


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One field of a form, with what browsers and password managers need to know of it."""

    name: str
    label: str
    type: str = "text"
    autocomplete: str = "off"
    hint: str = ""
    value: str = ""
    numeric: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class QrCode:
    """A QR code as one path of unit squares, `size` to a side with its quiet zone."""

    path: str
    size: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Passkeys:
    """What the browser's own dialogue is asked with: to `make` or to `get` a passkey, as JSON."""

    act: str
    options: str


@dataclass(frozen=True, kw_only=True, slots=True)
class AccountForm:
    """A page with one form about the account. `passkeys`: its button opens the browser's dialogue."""

    title: str
    lead: Phrase
    button: str
    back: Link | None = None
    entries: tuple[Entry, ...] = ()
    errors: tuple[FieldError, ...] = ()
    hidden: tuple[HiddenField, ...] = ()
    qr: QrCode | None = None
    secret: str = ""
    codes: tuple[str, ...] = ()
    others: tuple[Link, ...] = ()
    passkeys: Passkeys | None = None
    danger: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Way:
    """One way to show that it is you, and what can be done with it."""

    title: str
    state: str
    text: str
    links: tuple[Link, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class AccountPage:
    """One's own account: who one is here, and how one signs in."""

    name: str
    username: str
    roles: str
    teams: str
    ways: tuple[Way, ...]
    sessions: int


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionRow:
    """One place where the person is signed in."""

    id: int
    device: str
    device_full: str
    address: str
    began_at: datetime
    seen_at: datetime
    current: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionsPage:
    """Every place where the person is signed in, the last used first."""

    rows: tuple[SessionRow, ...]
    others: int
