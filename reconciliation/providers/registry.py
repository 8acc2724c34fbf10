"""Which provider accounts there are: the sandbox's, those of the catalogue that an administrator names, and
those in the folders that an administrator names.

Read once and kept; `reload` is for tests and for a process that was told to look again. A file that can't be
used stops the reading with every fault in every file, because running on with some accounts silently missing
would leave their open cases without a provider.
"""

from __future__ import annotations

import difflib
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

from django.conf import settings

from reconciliation.contracts import AnswerPattern, Contract, ProviderAccount
from reconciliation.providers.base import Adapter
from reconciliation.providers.code_adapters import CODE_ADAPTERS, OpenAdapter
from reconciliation.providers.declaration import Declared, read_file
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


@dataclass
class _Registry:
    declared: dict[str, Declared]
    # By account and by the contract that it concludes by, which an administrator may have tightened.
    adapters: dict[tuple[str, Contract], OpenAdapter] = field(default_factory=dict)


_lock = threading.Lock()
_current: _Registry | None = None


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
    key = slug, contract or declared.account.contract
    with _lock:
        if key not in registry.adapters:
            account = replace(declared.account, contract=key[1])
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
            _current = _Registry(declared=_read_all(_folders()))
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
