"""The pages of `docs/providers/` that are made from the shipped declarations, one for each account.

They are read with an empty environment, so that a page says the same on every machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from console.pages.present.contract_words import (
    LOOKUPS,
    absence_in_words,
    key_in_words,
    make_absent_in_words,
    window_in_words,
)
from console.pages.present.promises import OURS, Promise, promises_of
from reconciliation.contracts import ProviderAccount, VerifiedWith
from reconciliation.providers import registry
from reconciliation.providers.declaration import MAKE_ABSENT, Declared, read_file

INDEX: Final = "README.md"
MADE: Final = "<!-- Made by `manage.py provider_docs` from the declaration; changes here are lost. -->"
_INTRODUCTION: Final = (
    "What Recourse knows of each provider, where that comes from and how it was tested. "
    "[declared.md](declared.md) says how to declare one of your own, [console.md](console.md) how to do that "
    "in the console, [code.md](code.md) how the accounts are "
    "used whose adapter is code, [matrix.md](matrix.md) what was run against which server, "
    "[webhooks.md](webhooks.md) how their notices are taken in."
)
TESTED: Final[dict[VerifiedWith, str]] = {
    VerifiedWith.INDEPENDENT_PEER: "against a server that somebody else wrote",
    VerifiedWith.OWN_STUB: "**only by our own stub**, which may share our misreading",
    VerifiedWith.NOTHING: "**never run**",
}


def pages() -> dict[str, str]:
    """Each page's text by its name in `docs/providers/`; raises `DeclarationInvalid` for a wrong file."""
    sandbox = _read(registry.SHIPPED)
    catalogue = _read(registry.CATALOGUE)
    made = {f"{one.account.slug}.md": _page(one, offered=True) for one in catalogue}
    made |= {f"{one.account.slug}.md": _page(one, offered=False) for one in sandbox}
    made[INDEX] = _index([one.account for one in catalogue], [one.account for one in sandbox])
    return made


def _read(folder: Path) -> tuple[Declared, ...]:
    return tuple(read_file(path, shown_as=path.name, environ={}) for path in sorted(folder.glob("*.toml")))


def _index(catalogue: Sequence[ProviderAccount], sandbox: Sequence[ProviderAccount]) -> str:
    return "\n".join(
        [
            "# Providers",
            "",
            MADE,
            "",
            _INTRODUCTION,
            "",
            "Shipped, to be named in `RECOURSE_PROVIDERS`:",
            "",
            *_overview(catalogue),
            "",
            "Of the sandbox, a provider of our own for demo and tests; always there:",
            "",
            *_overview(sandbox),
            "",
        ]
    )


def _overview(accounts: Iterable[ProviderAccount]) -> list[str]:
    rows = ["| account | the same key | lookup | “not found” | tested |", "|---|---|---|---|---|"]
    for one in accounts:
        contract = one.contract
        key = key_in_words(contract)
        if contract.honours_key:
            key += f"; {_lower(window_in_words(contract))}"
        cells = (
            f"[{cell(one.title)}]({one.slug}.md)",
            cell(key),
            cell(LOOKUPS[contract.lookup]),
            cell(absence_in_words(contract)),
            _tested(one),
        )
        rows.append(row(cells))
    return rows


def _page(declared: Declared, *, offered: bool) -> str:
    account = declared.account
    use = _use(account, offered=offered) + _notices(declared)
    lines = [f"# {cell(account.title)}", "", MADE, "", use, ""]
    lines += [f"Tested {_tested(account)}. What was run: [matrix.md](matrix.md).", ""]
    if account.documentation_url:
        lines += [f"The provider’s documentation: <{account.documentation_url}>", ""]
    for group in promises_of(account):
        lines += [f"## {group.title}", "", "| | what it says | what follows | source |", "|---|---|---|---|"]
        lines += [_line(one) for one in group.lines]
        lines.append("")
    lines += _ways(account)
    return "\n".join(lines)


def _use(account: ProviderAccount, *, offered: bool) -> str:
    use = f"Account `{account.slug}`."
    if offered:
        use += f" To use it, name `{account.slug}` in `RECOURSE_PROVIDERS`."
    if account.missing:
        needs = ", ".join(f"`{one}`" for one in account.missing)
        use += f" It needs {needs} from the environment."
    return use


def _notices(declared: Declared) -> str:
    """Where its own notices are taken in, and what from the environment they are checked with."""
    rules = declared.webhook
    if rules is None:
        return ""
    checked = " or ".join(f"`{one}`" for one in rules.secret_names)
    # Read with an empty environment, so everything that is signed beside the body is still to be given.
    checked += "".join(f", and with `{one}`" for one in rules.lacks)
    path = f"/api/v1/providers/{declared.account.slug}/webhook"
    return f" Its own notices go to `{path}` and are checked with {checked} ([webhooks.md](webhooks.md))."


def _tested(account: ProviderAccount) -> str:
    tested = account.tested
    said = TESTED[tested.kind]
    about = [part for part in (tested.peer, tested.tested_on.isoformat() if tested.tested_on else "") if part]
    return f"{said} ({cell(', '.join(about))})" if about else said


def _line(line: Promise) -> str:
    sources = [
        f"{cell(one.source) if not one.source.startswith('https://') else f'<{one.source}>'},"
        f" read {one.read_on.isoformat()}{f'. {cell(one.note)}' if one.note else ''}"
        for one in line.sources
    ]
    source = "<br>".join(sources) or ("our own choice" if line.field in OURS else "–")
    return row((f"{cell(line.label)}<br>`{line.field}`", cell(line.value), cell(line.meaning), source))


def _ways(account: ProviderAccount) -> list[str]:
    lines: list[str] = []
    if account.lookups and account.contract.has_lookup:
        lines += ["## Ways to ask, in this order", ""]
        for one in account.lookups:
            hint = " A hint: it proves nothing." if one.hint else ""
            note = f" {cell(one.note)}" if one.note else ""
            lines.append(f"- **{cell(one.name)}**: {_lower(LOOKUPS[one.kind])}.{hint}{note}")
        lines.append("")
    if account.worker_sends:
        lines += ["## A worker that sends by itself", "", cell(account.worker_sends), ""]
    if account.make_absent is not None:
        way = account.make_absent
        lines += [f"## {cell(way.title)}: a change at the provider, for two people", ""]
        lines += [f"`{way.request}`. {cell(way.says)} It is no way to look.", ""]
        lines += [f"- {cell(one)}" for one in make_absent_in_words(way)]
        lines.append("")
        for fact in account.facts:
            if fact.field == MAKE_ABSENT:
                note = f" {cell(fact.note)}" if fact.note else ""
                lines += [f"Source: {cell(fact.source)}, read on {fact.read_on}.{note}", ""]
        if way.documentation_url:
            lines += [f"<{way.documentation_url}>", ""]
    return lines


def row(cells: Iterable[str]) -> str:
    """One row of a Markdown table; each cell is Markdown already."""
    return f"| {' | '.join(cells)} |"


def cell(text: str) -> str:
    """Text as Markdown shows it: nothing in it is a mark."""
    for mark in ("\\", "|", "*", "<", "[", "`"):
        text = text.replace(mark, f"\\{mark}")
    return " ".join(text.split())


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]
