"""Which provider accounts there are: the sandbox's, those of the catalogue that an administrator names, and
those in the folders that an administrator names. What is declared in the console is handed in by `hold`, for
nothing here reads a database.

Read once and kept; `reload` is for tests and for a process that was told to look again. A file that can't be
used stops the reading with every fault in every file, because running on with some accounts silently missing
would leave their open cases without a provider.
"""

from __future__ import annotations

import difflib
import os
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

from django.conf import settings

from reconciliation.contracts import AnswerPattern, Contract, ProviderAccount
from reconciliation.providers import inhouse
from reconciliation.providers.base import Adapter
from reconciliation.providers.code_adapters import CODE_ADAPTERS, OpenAdapter
from reconciliation.providers.declaration import Declared, read_content, read_file
from reconciliation.providers.http_declared import HttpDeclared
from reconciliation.providers.redaction import Redactor, redactor_for
from reconciliation.providers.tables import DeclarationInvalid
from reconciliation.providers.webhook_table import WebhookRules
from runs.refusals import Invalid

SHIPPED = Path(__file__).parent / "declared"
# Files for well-known providers, each an account only where RECOURSE_PROVIDERS names it: a variable that is
# set for something else must not give this installation a way to send.
CATALOGUE = SHIPPED / "catalogue"
FILES_MAX = 500


class UnknownProvider(Invalid):
    """No provider account of this slug is declared; `declared` in the details says which are."""

    word: ClassVar[str] = "invalid"


@dataclass(frozen=True, slots=True)
class Stored:
    """One declaration that was made in the console: its text as a file would have it."""

    slug: str
    number: int
    text: str

    @property
    def shown_as(self) -> str:
        return f"{self.slug}, declaration {self.number} of the console"


@dataclass
class _Registry:
    declared: dict[str, Declared]
    # Of the declarations made in the console, those that can't be used; the files' stop the reading.
    set_aside: tuple[str, ...] = ()
    # By account, declaration, and the contract that it concludes by, which may have been tightened. One that
    # was replaced stays until the next `reload`: another thread may be asking through it at this moment.
    adapters: dict[tuple[str, str, Contract], OpenAdapter] = field(default_factory=dict)


_lock = threading.Lock()
_current: _Registry | None = None
_stored: tuple[Stored, ...] = ()


def account(slug: str) -> ProviderAccount:
    """The account of this slug; raises `UnknownProvider`, or `DeclarationInvalid` if a file can't be used."""
    return _declared(slug).account


def all_accounts() -> tuple[ProviderAccount, ...]:
    """Every declared account, by slug, whether it is configured here or not."""
    declared = _registry().declared
    return tuple(declared[slug].account for slug in sorted(declared))


def catalogue() -> tuple[ProviderAccount, ...]:
    """What is shipped for well-known providers, named by this installation or not; for people to read.

    Raises `DeclarationInvalid` if a file of it can't be used.
    """
    files = sorted(CATALOGUE.glob("*.toml"))
    return tuple(read_file(path, shown_as=path.name).account for path in files)


def adapter(slug: str, *, contract: Contract | None = None) -> Adapter:
    """The adapter of this account, made once in each process; it concludes by `contract`, if one is given.

    Only `reconciliation.effective` knows the contract in force; without one it is the declared.
    """
    declared = _declared(slug)
    registry = _registry()
    key = slug, declared.account.declaration_digest, contract or declared.account.contract
    with _lock:
        if key not in registry.adapters:
            account = replace(declared.account, contract=key[2])
            registry.adapters[key] = _make(replace(declared, account=account))
        return registry.adapters[key]


def _make(declared: Declared) -> OpenAdapter:
    code = CODE_ADAPTERS.get(declared.account.adapter)
    return HttpDeclared(declared) if code is None else code.make(declared)


def undecided_answers(slug: str) -> tuple[AnswerPattern, ...]:
    """The answers that this account's file calls unknown whatever their status; none if it is undeclared."""
    declared = _registry().declared.get(slug)
    return declared.http.answers.unknown if declared is not None else ()


def refused_answers(slug: str) -> tuple[AnswerPattern, ...]:
    """The answers that this account's file calls a refusal, whatever their status; none if undeclared."""
    declared = _registry().declared.get(slug)
    return declared.http.answers.rejected if declared is not None else ()


def webhook_rules(slug: str) -> WebhookRules | None:
    """How this account's notices are checked and read, None where it takes none; raises `UnknownProvider`."""
    return _declared(slug).webhook


def redactor(slug: str) -> Redactor:
    """What to take out of whatever this account's provider says; raises `UnknownProvider`."""
    declared = _declared(slug)
    secrets = dict(declared.http.secrets)
    if declared.webhook is not None:
        secrets |= {f"webhook {number}": one for number, one in enumerate(declared.webhook.secrets)}
    return redactor_for(secrets, declared.http.redact_names)


def reload() -> None:
    """Forget what was read; files and environment are looked at again when somebody next asks."""
    global _current
    with _lock:
        old, _current = _current, None
    for one in old.adapters.values() if old else ():
        one.close()


def hold(stored: tuple[Stored, ...]) -> None:
    """Take in what is declared in the console, the newest of each account, instead of what was held before.

    One that can't be used, or whose slug a file has, is set aside and named by `set_aside`: its account is
    then like one that is no longer declared, and the others go on.
    """
    global _current, _stored  # noqa: PLW0603 - one registry for each process
    with _lock:
        if stored == _stored:
            return
        _stored = stored
        if _current is not None:
            files = {slug: one for slug, one in _current.declared.items() if not one.stored}
            _current = _with_stored(files, _current.adapters)


def set_aside() -> tuple[str, ...]:
    """Why declarations made in the console can't be used, in sentences; empty when all can."""
    return _registry().set_aside


def is_stored(slug: str) -> bool:
    """Whether this account is declared in the console, and not by a file."""
    declared = _registry().declared.get(slug)
    return declared is not None and declared.stored


def read_stored(one: Stored, *, shown_as: str = "", environ: Mapping[str, str] | None = None) -> Declared:
    """Read a declaration of the console; raises `DeclarationInvalid`. It lists no host by itself: only the
    environment does, so nobody reaches a host by typing its name. Nor does it name a variable of anybody
    else's: whoever can write here must not read what the environment holds.
    """
    content = one.text.encode("utf-8", "replace")
    declared = read_content(content, shown_as=shown_as or one.shown_as, environ=environ)
    inhouse.check_names(one.text, slug=declared.account.slug, shown_as=shown_as or one.shown_as)
    return replace(declared, own_hosts=(), stored=True)


def _with_stored(
    files: dict[str, Declared], adapters: dict[tuple[str, str, Contract], OpenAdapter]
) -> _Registry:
    declared, problems = dict(files), []
    for one in _stored:
        if (file := files.get(one.slug)) is not None:
            problems.append(
                f'{one.shown_as}: slug: found "{one.slug}", which {file.account.declared_in} declares;'
                " the file counts."
            )
            continue
        try:
            declared[one.slug] = read_stored(one)
        except DeclarationInvalid as error:
            problems.extend(error.details["problems"])
    return _Registry(declared=declared, set_aside=tuple(problems), adapters=adapters)


def problems() -> tuple[str, ...]:
    """Every fault of every file, in sentences, for a check at start-up; empty when all can be used."""
    try:
        _read_all(_folders())
    except DeclarationInvalid as error:
        return tuple(error.details["problems"])
    return ()


def _declared(slug: str) -> Declared:
    declared = _registry().declared
    if slug not in declared:
        raise UnknownProvider(
            f"No provider account “{slug[:64]}” is declared. Declared are: {', '.join(sorted(declared))}.",
            slug=slug[:64],
            declared=sorted(declared),
        )
    return declared[slug]


def _registry() -> _Registry:
    global _current  # noqa: PLW0603 - one registry for each process
    with _lock:
        if _current is None:
            _current = _with_stored(_read_all(_folders()), {})
        return _current


def _folders() -> list[Path]:
    return [SHIPPED, *(Path(folder) for folder in settings.RECOURSE_PROVIDERS_DIR)]


def _files(folders: list[Path], faults: list[str]) -> Iterator[Path]:
    """Every file that declares an account here; what was named and isn't there is a fault."""
    offered = {path.stem: path for path in sorted(CATALOGUE.glob("*.toml"))}
    for folder in folders:
        if not folder.is_dir():
            faults.append(f"{folder}: named in RECOURSE_PROVIDERS_DIR, and no folder is there.")
            continue
        yield from sorted(folder.glob("*.toml"))[:FILES_MAX]
    for name in dict.fromkeys(settings.RECOURSE_PROVIDERS):
        if name in offered:
            yield offered[name]
            continue
        near = difflib.get_close_matches(name, offered, n=1)
        faults.append(
            f'RECOURSE_PROVIDERS: found "{name[:64]}"; allowed: {", ".join(offered)}.'
            + (f" Did you mean {near[0]}?" if near else "")
        )


def _read_all(folders: list[Path]) -> dict[str, Declared]:
    faults: list[str] = []
    declared: dict[str, Declared] = {}
    for path in _files(folders, faults):
        shown_as = path.name if path.parent in (SHIPPED, CATALOGUE) else str(path)
        try:
            one = read_file(path, shown_as=shown_as)
        except DeclarationInvalid as error:
            faults.extend(error.details["problems"])
            continue
        if other := declared.get(one.account.slug):
            faults.append(
                f'{shown_as}: slug: found "{one.account.slug}", which {other.account.declared_in} already'
                " declares; allowed: a slug of its own."
            )
        declared[one.account.slug] = one
    if faults:
        raise DeclarationInvalid(
            f"{len(faults)} fault(s) in the provider files. {' '.join(faults)}", problems=faults
        )
    return declared


def _forget_connections() -> None:
    """A child process must not share its parent's sockets, nor close them."""
    global _lock  # noqa: PLW0603 - the parent's lock may have been held by another thread
    _lock = threading.Lock()
    if _current is not None:
        _current.adapters = {}


os.register_at_fork(after_in_child=_forget_connections)
