"""Declaring a provider in the console: what a file would say, kept as a numbered series in the database.

Judged by the reader of the files, and held to more than a file: hosts are those that the environment lists,
secrets are named and never typed, no variable but the account's own can be named (`providers.inhouse`), and
nothing that is concluded may become looser while operations are open. The only writer of `Declaration`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Final
from urllib.parse import urlsplit

from django.db import connection, transaction

from reconciliation import effective
from reconciliation.accounts import sync_account
from reconciliation.contracts import Contract
from reconciliation.models import Case, Declaration
from reconciliation.providers import registry
from reconciliation.providers.declaration import ADAPTER, FILE_BYTES_MAX, Declared, parse_toml
from reconciliation.providers.reach import PORTS, OutOfReach, environment_reach
from reconciliation.providers.redaction import REDACTED, Redactor, is_secret_shaped
from reconciliation.providers.registry import Stored
from reconciliation.providers.tables import DeclarationInvalid
from reconciliation.states import CaseState
from reconciliation.strictness import BY_FIELD, held_to
from reconciliation.tightening import REASON_LENGTH_MAX, REASON_LENGTH_MIN, newest_of, sort_queue_anew
from runs import account_access, audit
from runs.actors import Actor, ActorKind
from runs.journal.evidence import storable_text
from runs.locking import database_now
from runs.models import Attempt
from runs.models import ProviderAccount as JournalAccount
from runs.refusals import Invalid, Refusal
from runs.states import AttemptOutcome

# One declaration at a time: whether a slug is free and what is in force is read and written under this lock.
DECLARING_LOCK: Final = 7_245_302
# How faults name what was typed; a file would be named here.
SHOWN_AS: Final = "This declaration"
# A secret is rarely all capitals, and a variable that is meant for this nearly always is.
_VARIABLE: Final = re.compile(r"[A-Z_][A-Z0-9_]{1,127}\Z")
# The console's address of the form, beside those of the accounts.
_PAGE_OF_ITS_OWN: Final = "new"
_PLACEHOLDER: Final = re.compile(r"\{[^{}]*\}")
# Of these expressions none may go back over what it has read: a declaration may be long and hostile.
_SCHEME_WORD: Final = re.compile(r"(?:bearer|basic|token|apikey|key)?\s*[=:]?\Z", re.IGNORECASE)
# A long run of letters and digits together, as keys without a known prefix look.
_RUN: Final = re.compile(r"[A-Za-z0-9+/=_-]{24,}")
_USER_IN_URL: Final = re.compile(r"://[^/\s@:]*:[^/\s@]*@")
# The fields whose values pages show as they are.
_SHOWN: Final = ("base_url", "settings")
_KEY_IN_NAME: Final = re.compile(r"(?:\A|_)(?:KEY|PASS|PW|AUTH|PRIVATE)(?:_|\Z)")
# Where literal text travels to the provider.
_TRAVELLING: Final = ("headers", "query", "body", "add")
# Fields of a contract that bind only what is sent from now on: an attempt keeps what was fixed with it.
_FOR_LATER_ATTEMPTS: Final = frozenset({"start_within_ms", "request_within_ms"})


class DeclarationMoved(Refusal):
    """Somebody else declared the account since the person looked; details say who, when and why."""

    word: ClassVar[str] = "declaration_moved"


class NothingDeclared(Refusal):
    """The text is the one in force already."""

    word: ClassVar[str] = "nothing_declared"


class SlugTaken(Invalid):
    """An account of this slug is declared by a file, is shipped, or belongs to operations of the journal."""

    word: ClassVar[str] = "invalid"


class NoTeam(Refusal):
    """Whoever declares a new account is in no team that it could be for."""

    word: ClassVar[str] = "no_team"


class OpenOperationsHold(Refusal):
    """Something would be concluded otherwise while operations are open; `fields` in the details says what."""

    word: ClassVar[str] = "open_operations_hold"


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """One thing that is wrong: `place` as a dotted name of the file's field, "" for the whole text."""

    place: str
    sentence: str


def newest_declaration(account: str) -> Declaration | None:
    """The declaration in force, or None where the console declares no such account."""
    return Declaration.objects.filter(account=account).order_by("-number").first()


def judge(text: str) -> Declared:
    """Read a declaration as it would be if it were saved now.

    Raises `DeclarationInvalid`; `problems` and `places` in its details go together. What looks like a secret
    is refused before anything else is read, and no sentence repeats it.
    """
    if faults := list(_secret_faults(text)):
        raise _invalid(faults, secret_places=[one.place for one in faults])
    declared = registry.read_stored(Stored(slug=SHOWN_AS, number=0, text=text), shown_as=SHOWN_AS)
    data = tomllib.loads(text)
    if faults := [*_of_the_console(data), *_out_of_reach(declared)]:
        raise _invalid(faults)
    return declared


def faults_of(error: DeclarationInvalid) -> tuple[Fault, ...]:
    """What a refused declaration's faults are, each with its place."""
    problems, places = error.details["problems"], error.details.get("places", [])
    return tuple(
        Fault(place=places[number] if number < len(places) else "", sentence=sentence)
        for number, sentence in enumerate(problems)
    )


def without_secrets(text: str) -> str:
    """The text with everything that `judge` would take for a secret replaced, to be shown again."""
    places = {one.place for one in _secret_faults(text)}
    for place, _, value in _texts(_parsed(text)):
        if place in places and value:
            text = text.replace(value, REDACTED)
    return Redactor().shapes_gone(text)


def declare(
    *,
    text: str,
    reason: str,
    seen_number: int,
    actor: Actor,
    actor_name: str = "",
    teams: Sequence[str] | None = None,
) -> Declaration:
    """Put this declaration in force from now on, as the next of its account. Owns its transaction.

    `seen_number` is that of the declaration that the person saw in force, 0 for none. What was tightened
    stays tightened. A new account is there for `teams` alone, those of whoever declares it, until an
    administrator names others; None leaves it to every team. Refuses in this order, having changed nothing:
    `Invalid`, `DeclarationInvalid`, `NoTeam`, `SlugTaken` (also by an account of other teams),
    `DeclarationMoved`, `NothingDeclared`, `OpenOperationsHold`. Operations that were sent before keep what
    their first send fixed (law 5): where the declaration now sends otherwise, their key protects nothing any
    more.
    """
    if actor.kind is not ActorKind.PERSON:
        raise Invalid("Only a person declares a provider.", where="actor")
    if not REASON_LENGTH_MIN <= len(reason.strip()) <= REASON_LENGTH_MAX:
        raise Invalid(
            f"Give a reason of {REASON_LENGTH_MIN} to {REASON_LENGTH_MAX} characters.", where="reason"
        )
    text = text.replace("\r\n", "\n")
    declared = judge(text)
    slug = declared.account.slug
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [DECLARING_LOCK])
        newest = newest_declaration(slug)
        if teams is not None:
            _refuse_others(slug, newest, teams)
        _refuse_taken(slug, newest)
        _refuse_moved(newest, seen_number)
        if newest is not None:
            if newest.text == text:
                raise NothingDeclared("This is the declaration in force, to the letter.")
            _refuse_looser(newest, declared)
        made = Declaration.objects.create(
            account=slug,
            number=seen_number + 1,
            text=text,
            reason=storable_text(reason.strip()),
            actor=actor.id,
            actor_name=actor_name[:100],
            made_at=database_now(),
        )
        before = (
            # Held before it is read what is tightened: whoever tightens has the row first.
            JournalAccount.objects.select_for_update(no_key=True)
            .filter(pk=slug)
            .values("adapter_version", "endpoint")
            .first()
        )
        tightened = newest_of(slug)
        in_force = held_to(declared.account, tightened.values if tightened is not None else {})
        sync_account(in_force, now=made.made_at)
        if newest is None and teams is not None:
            account_access.name_first(account=slug, teams=teams, actor=actor)
        sort_queue_anew(slug, in_force)
        pin = in_force.pin
        audit.append(
            audit.Event(
                action="provider.declared",
                actor=actor,
                subject=slug,
                before={"number": seen_number, **(before or {})},
                after={
                    "number": made.number,
                    "digest": declared.account.declaration_digest,
                    "adapter_version": pin.adapter,
                    "endpoint": pin.endpoint,
                    **({"teams": sorted(teams)} if newest is None and teams is not None else {}),
                },
                reason=made.reason,
            )
        )
        transaction.on_commit(effective.forget)
    return made


# --- what a declaration of the console must not say ------------------------------------------------------


def _invalid(faults: list[Fault], *, secret_places: Sequence[str] = ()) -> DeclarationInvalid:
    sentences = [one.sentence for one in faults]
    return DeclarationInvalid(
        " ".join(sentences),
        problems=sentences,
        places=[one.place for one in faults],
        secret_places=list(secret_places),
    )


def _secret_faults(text: str) -> Iterator[Fault]:
    """What looks like a secret; in text that isn't TOML, only its shapes can be told."""
    if is_secret_shaped(text):
        places = [place for place, _, value in _texts(_parsed(text)) if is_secret_shaped(value)]
        for place in places or [""]:
            yield _secret(place)
        return
    redactor = Redactor()
    for place, name, value in _texts(_parsed(text)):
        table = place.split(".")
        literal = _PLACEHOLDER.sub("", value)
        if name in ("env", "file_env"):
            if not _VARIABLE.match(value):
                yield Fault(
                    place=place,
                    sentence=f"{SHOWN_AS}: {place}: allowed: the name of an environment variable in capitals,"
                    " such as INHOUSE_ACME__TOKEN. What was found isn't repeated, for it may be the secret"
                    " itself.",
                )
        elif _USER_IN_URL.search(value):
            yield _secret(place)
        elif set(table) & set(_TRAVELLING) and not _SCHEME_WORD.match(literal.strip()):
            named = redactor.is_sensitive(name) and len(literal.strip()) >= 4
            if named or ("headers" in table and _looks_random(literal)):
                yield _secret(place)


def _looks_random(literal: str) -> bool:
    runs = (found[0] for found in _RUN.finditer(literal))
    return any(any(c.isdigit() for c in one) and any(c.isalpha() for c in one) for one in runs)


def _secret(place: str) -> Fault:
    where = f" {place}:" if place else ""
    return Fault(
        place=place,
        sentence=f"{SHOWN_AS}:{where} found what looks like a secret; allowed: one by reference. Put it"
        " into the environment or a secret file, name that under [credentials], and write {secret.name}.",
    )


def _parsed(text: str) -> Mapping[str, Any]:
    if len(text.encode("utf-8", "replace")) > FILE_BYTES_MAX:
        return {}
    try:
        return parse_toml(text)
    except ValueError:
        return {}


def _texts(value: Any, place: str = "", name: str = "") -> Iterator[tuple[str, str, str]]:
    """Every text inside, with its place and the name that it stands under."""
    match value:
        case dict():
            for inner_name, inner in value.items():
                yield from _texts(inner, f"{place}.{inner_name}" if place else inner_name, inner_name)
        case list():
            for inner in value:
                yield from _texts(inner, place, name)
        case str():
            yield place, name, value
        case _:
            return


def _of_the_console(data: Mapping[str, Any]) -> Iterator[Fault]:
    if data.get("adapter", ADAPTER) != ADAPTER:
        yield Fault(
            place="adapter",
            sentence=f"{SHOWN_AS}: adapter: allowed: {ADAPTER}. Adapters that are code are for files.",
        )
    if "reach" in data:
        yield Fault(
            place="reach",
            sentence=f"{SHOWN_AS}: reach: found here; allowed: nothing. What a host may lead to stands with"
            " the host in RECOURSE_ALLOWED_PROVIDER_HOSTS.",
        )
    for place, name, value in _texts(data):
        if place.partition(".")[0] in _SHOWN and name == "env" and _names_secret(value):
            yield Fault(
                place=place,
                sentence=f"{SHOWN_AS}: {place}: found {value}, by its name a secret; allowed: one that may be"
                " read by everyone, for pages show what base_url and settings hold. Name a secret under"
                " [credentials].",
            )


def _names_secret(variable: str) -> bool:
    return Redactor().is_sensitive(variable) or _KEY_IN_NAME.search(variable) is not None


def _out_of_reach(declared: Declared) -> Iterator[Fault]:
    url = declared.account.base_url
    if url is None:
        # Its variable isn't set: nothing is sent, and when it is set the same list judges every request.
        return
    parts = urlsplit(url)
    try:
        environment_reach().require_listed(parts.hostname or "", parts.port or PORTS[parts.scheme])
    except OutOfReach as error:
        yield Fault(
            place="base_url",
            sentence=f"{SHOWN_AS}: base_url: {error}. Whoever runs this installation lists hosts in"
            " RECOURSE_ALLOWED_PROVIDER_HOSTS.",
        )


# --- what is in the way ----------------------------------------------------------------------------------


def _refuse_others(slug: str, newest: Declaration | None, teams: Sequence[str]) -> None:
    if newest is None and not teams:
        raise NoTeam(
            "You are in no team, and a new account is there for the teams of whoever declares it. Let another"
            " administrator give you one, or somebody who has one declare it."
        )
    if slug in account_access.closed_to(teams):
        raise SlugTaken(f"“{slug}” is taken. Choose another slug.", where="slug")


def _refuse_taken(slug: str, newest: Declaration | None) -> None:
    effective.refresh()
    file = next((one for one in registry.all_accounts() if one.slug == slug), None)
    if file is not None and not registry.is_stored(slug):
        raise SlugTaken(f"“{slug}” is declared by {file.declared_in}. Choose another slug.", where="slug")
    if slug == _PAGE_OF_ITS_OWN:
        raise SlugTaken("“new” is the address of a page. Choose another slug.", where="slug")
    if any(one.slug == slug for one in registry.catalogue()):
        raise SlugTaken(f"“{slug}” is the name of a shipped account. Choose another slug.", where="slug")
    if newest is None and JournalAccount.objects.filter(pk=slug).exists():
        raise SlugTaken(
            f"The journal knows another account “{slug}”, which is no longer declared. A slug is never used"
            " for a second account: choose another.",
            where="slug",
        )


def _refuse_moved(newest: Declaration | None, seen_number: int) -> None:
    number = newest.number if newest is not None else 0
    if number == seen_number:
        return
    if newest is None:
        raise DeclarationMoved(
            "Nothing is declared under this slug; the page showed something else.", number=0
        )
    raise DeclarationMoved(
        f"{newest.actor_name or newest.actor} declared this account since you looked.",
        number=number,
        by=newest.actor_name or newest.actor,
        at=newest.made_at.isoformat(),
        their_reason=newest.reason,
    )


def _refuse_looser(newest: Declaration, after: Declared) -> None:
    """Nothing that is concluded of an open operation becomes looser, or only other, by one person's word."""
    if not _has_open_operations(newest.account):
        return
    try:
        before = registry.read_stored(Stored(slug=newest.account, number=newest.number, text=newest.text))
    except DeclarationInvalid:
        looser = ["the whole declaration, since the one in force can't be read"]
    else:
        looser = _looser(before, after)
    if looser:
        raise OpenOperationsHold(
            "Operations are open here, and what would be concluded of them would change. That needs an"
            " approval, and approvals of this kind don't exist yet. Settle the open cases first, or leave"
            f" these as they are: {', '.join(looser)}. Nothing was changed.",
            fields=looser,
        )


def _has_open_operations(slug: str) -> bool:
    # An operation that was sent and isn't settled has an open attempt or an open case.
    unknown = Attempt.objects.filter(outcome=AttemptOutcome.OPEN, operation__provider=slug)
    open_cases = Case.objects.filter(provider_slug=slug).exclude(state=CaseState.RESOLVED)
    return unknown.exists() or open_cases.exists()


def _looser(before: Declared, after: Declared) -> list[str]:
    looser = [
        f"contract.{one.name}"
        for one in fields(Contract)
        if one.name not in _FOR_LATER_ATTEMPTS and not _is_held(one.name, before, after)
    ]
    asked_before, asked_after = before.http.lookups, after.http.lookups
    if asked_after and asked_after != asked_before:
        looser.append("lookup")
    if asked_after and before.account.base_url != after.account.base_url:
        # "Not found" at another address says nothing about what was sent to this one.
        looser.append("base_url")
    if before.http.answers != after.http.answers:
        looser.append("send.answer")
    if before.webhook != after.webhook:
        looser.append("webhook")
    if after.account.console_sends and not before.account.console_sends:
        looser.append("console_sends")
    return looser


def _is_held(name: str, before: Declared, after: Declared) -> bool:
    """Whether this field of the contract is the same, or tighter than it was."""
    old, new = before.account, after.account
    if getattr(old.contract, name) == getattr(new.contract, name):
        return True
    if name == "lookup":
        return not new.contract.has_lookup
    rule = BY_FIELD.get(name)
    return rule is not None and rule.is_tighter(rule.read(old), rule.read(new))
