"""Providers in words: the list of accounts, and the page of one."""

from __future__ import annotations

from dataclasses import replace
from typing import Final
from urllib.parse import urlencode

from django.urls import reverse

from console.pages import wording
from console.pages.present.asking import health_badge, health_facts, held_badge
from console.pages.present.contract_words import (
    LOOKUPS,
    absence_in_words,
    duration,
    key_in_words,
    make_absent_in_words,
    window_in_words,
)
from console.pages.present.marks import plural
from console.pages.present.notices import notice_facts
from console.pages.present.promises import OURS, promises_of
from console.pages.present.tightening import tighten_form, tightened_views
from console.pages.provider_forms import TighteningDraft
from console.pages.shapes import (
    Badge,
    Banner,
    Code,
    EmptyState,
    Fact,
    FieldError,
    Link,
    PromiseRow,
    PromiseSection,
    ProviderListPage,
    ProviderPage,
    ProviderRow,
    SourceView,
    Strong,
    TrialForm,
    TrialResult,
)
from console.pages.shapes.administration import ChangeForm
from console.queries.providers import Listed, OpenCases, ProviderRead
from reconciliation.contracts import Fact as Source
from reconciliation.contracts import ProviderAccount, VerifiedWith, WindowKind
from runs.actors import ActorKind

TESTED: Final[dict[VerifiedWith, Badge]] = {
    VerifiedWith.INDEPENDENT_PEER: Badge(
        word="Tested on an independent peer", icon="circle-check", tone="green"
    ),
    VerifiedWith.OWN_STUB: Badge(word="Tested by our own stub only", icon="unknown", tone="amber", open=True),
    VerifiedWith.NOTHING: Badge(word="Never tested", icon="circle-dashed", tone="red", open=True),
}
_TESTED_TEXT: Final[dict[VerifiedWith, str]] = {
    VerifiedWith.INDEPENDENT_PEER: (
        "The account’s way of sending and asking was run against a server that somebody else wrote. That "
        "shows more than our own reading of the documentation; it isn’t the provider itself."
    ),
    VerifiedWith.OWN_STUB: (
        "Tested only by our own stub: a server that we wrote from the same documentation. Where we misread "
        "it, the stub does too, and nothing here would show it."
    ),
    VerifiedWith.NOTHING: (
        "Nobody has run this account’s way of sending and asking against any server. What it says is what "
        "its author read."
    ),
}


# --- the list --------------------------------------------------------------------------------------------


def provider_list_page(listed: Listed, *, declares: bool) -> ProviderListPage:
    """Every account, those that are no longer declared last; `declares` is whether they may declare more."""
    rows = [_row(one, listed, held_badge(listed, one) or _standing(one)) for one in listed.accounts]
    rows += [_row(one, listed, _GONE) for one in listed.undeclared]
    empty = None
    if not rows:
        empty = EmptyState(
            title="No provider is declared",
            text=f"{'Declare one here, or' if declares else 'An administrator declares one here, or'}"
            " as a TOML file: docs/providers/declared.md says how.",
        )
    configured = sum(1 for one in listed.accounts if one.configured)
    return ProviderListPage(
        now=listed.now,
        lead="What each provider promises, where that comes from, how we tested it, and how it is doing now.",
        rows=tuple(rows),
        offered=tuple(_row(one, listed, _OFFERED) for one in listed.offered),
        summary=f"{plural(len(listed.accounts), 'account')}, {configured} configured here",
        problems=listed.problems,
        problems_text=(
            "Web and worker processes don’t start while a file has a fault. Those that run go on by what "
            "they read before."
        ),
        empty=empty,
        declares=declares,
    )


def _row(account: ProviderAccount, listed: Listed, standing: tuple[Badge, str]) -> ProviderRow:
    contract = account.contract
    cases = listed.cases.get(account.slug, OpenCases())
    tested_on = account.tested.tested_on
    return ProviderRow(
        slug=account.slug,
        href=reverse("provider", args=[account.slug]),
        title=account.title,
        key=key_in_words(contract),
        window=window_in_words(contract) if contract.honours_key else "A repeat may be a second effect",
        lookup=LOOKUPS[contract.lookup],
        absence=f"“Not found” {absence_in_words(contract)[:1].lower()}{absence_in_words(contract)[1:]}"
        if contract.has_lookup
        else "Nothing can be looked up",
        tested=TESTED[account.tested.kind],
        tested_note=" · ".join(
            one for one in (account.tested.peer, tested_on.isoformat() if tested_on else "") if one
        ),
        standing=standing[0],
        standing_note=standing[1],
        open_cases=_count(cases),
        open_note=f"{plural(cases.waiting, 'needs', 'need')} a decision" if cases.waiting else "",
        cases_href=_cases_href(account.slug) if cases.open else "",
        tightened=account.slug in listed.tightened,
    )


def _count(cases: OpenCases) -> str:
    return f"{cases.open:,}+" if cases.capped else f"{cases.open:,}"


def _cases_href(slug: str) -> str:
    return f"{reverse('queue')}?{urlencode({'provider': slug})}"


_GONE: Final = (
    Badge(word="No longer declared", icon="circle-slash", tone="red"),
    "Nothing is promised, sent or asked",
)
_OFFERED: Final = (Badge(word="Not used here", icon="circle-dashed", tone="grey"), "Shipped with Recourse")


def _standing(account: ProviderAccount) -> tuple[Badge, str]:
    if not account.configured:
        missing = ", ".join(account.missing)
        left = f"Not set: {missing}. Workers still send; Recourse can’t ask"
        return Badge(word="Not configured", icon="unplug", tone="grey"), left
    return (
        Badge(word="Configured", icon="circle-check", tone="green"),
        "The console may send a repeat" if account.console_can_send else "Only agents send",
    )


def _standing_of(read: ProviderRead) -> tuple[Badge, str]:
    if read.declared is not None:
        return _standing(read.account)
    return _OFFERED if read.offered else _GONE


# --- one account -----------------------------------------------------------------------------------------


def provider_page(
    read: ProviderRead,
    *,
    trial: TrialForm,
    tighten_why_not: str,
    draft: TighteningDraft,
    errors: tuple[FieldError, ...] = (),
    result: TrialResult | None = None,
    banner: Banner | None = None,
    access: ChangeForm | None = None,
) -> ProviderPage:
    """One account, with whatever its two forms have just led to."""
    account = read.account
    standing, _ = _standing_of(read)
    tested = TESTED[account.tested.kind]
    return ProviderPage(
        now=read.now,
        slug=account.slug,
        title=account.title,
        badges=(standing, tested),
        facts=_facts(read),
        sections=_sections(read),
        contract_summary=_summary(read),
        tested=tested,
        tested_text=_TESTED_TEXT[account.tested.kind],
        tested_facts=_tested_facts(account),
        setup=_setup(read),
        health=health_facts(read),
        health_note=read.health.sentence if read.health is not None else "",
        health_badge=health_badge(read),
        trial=trial,
        tighten=tighten_form(read, why_not=tighten_why_not, draft=draft, errors=errors),
        tightened=tightened_views(read),
        result=result,
        banners=_banners(read),
        banner=banner,
        documentation_url=account.documentation_url if _can_be_opened(account.documentation_url) else "",
        ways=_ways(account),
        make_absent=_make_absent(account),
        notices=notice_facts(read.notices),
        access=access,
    )


def _facts(read: ProviderRead) -> tuple[Fact, ...]:
    contract = read.account.contract
    lag_ms = contract.visibility_lag_ms
    shows = "at once" if lag_ms == 0 else f"up to {duration(lag_ms)} late" if lag_ms else "lag not stated"
    window = ""
    if contract.dedup_window_ms is not None:
        kind = "published" if contract.window_kind is WindowKind.DOCUMENTED else "a minimum"
        window = f"{kind}; {duration(contract.window_margin_ms)} taken off"
    return (
        Fact(
            label="Key",
            value=(key_in_words(contract),),
            note=("the same with every request",) if contract.honours_key else (),
        ),
        Fact(label="Recognised", value=(window_in_words(contract),), note=(window,) if window else ()),
        Fact(
            label="Lookup",
            value=(LOOKUPS[contract.lookup],),
            note=(shows,) if contract.has_lookup else ("nothing can be asked",),
        ),
        Fact(
            label="“Not found”",
            value=(absence_in_words(contract),),
            note=("a person decides",) if contract.has_lookup and not contract.absence_is_proof else (),
        ),
        Fact(
            label="Open cases",
            value=(Link(_count(read.cases), _cases_href(read.account.slug)),)
            if read.cases.open
            else ("None",),
            note=(f"{plural(read.cases.waiting, 'needs', 'need')} a decision",) if read.cases.waiting else (),
        ),
        Fact(
            label="Open to",
            value=(", ".join(read.own_named) if read.named_teams else "Every team",),
            note=("no team that isn’t named",) if read.named_teams else (),
        ),
    )


def _sections(read: ProviderRead) -> tuple[PromiseSection, ...]:
    return sections_of(read.account, declared=read.declared)


def sections_of(
    account: ProviderAccount, *, declared: ProviderAccount | None = None
) -> tuple[PromiseSection, ...]:
    """The contract as the page of an account shows it; also of one that isn't saved yet."""
    return tuple(
        PromiseSection(
            title=group.title,
            rows=tuple(
                PromiseRow(
                    field=line.field,
                    label=line.label,
                    value=line.value,
                    meaning=line.meaning,
                    built_in=line.built_in,
                    unsourced="Our own choice" if line.field in OURS else "No source on record",
                    sources=tuple(_source(one) for one in line.sources),
                )
                for line in group.lines
            ),
        )
        for group in promises_of(account, declared=declared)
    )


def _source(source: Source) -> SourceView:
    return SourceView(
        text=source.source.removeprefix("https://"),
        href=source.source if _can_be_opened(source.source) else "",
        read_on=source.read_on.isoformat(),
        note=source.note[:1].upper() + source.note[1:],
    )


def _can_be_opened(url: str) -> bool:
    return url.startswith("https://") and url.isprintable() and " " not in url


def _summary(read: ProviderRead) -> str:
    sourced = len({one.field for one in read.account.facts})
    summary = f"{plural(sourced, 'line')} with a source and the day it was read"
    changed = sum(1 for section in _sections(read) for row in section.rows if row.built_in)
    if changed:
        summary += f"; {plural(changed, 'line')} held tighter than declared"
    return summary


def _tested_facts(account: ProviderAccount) -> tuple[Fact, ...]:
    tested = account.tested
    return (
        Fact(label="Against", value=(tested.peer or "nothing",)),
        Fact(label="On", value=(tested.tested_on.isoformat() if tested.tested_on else "no day on record",)),
    )


def _ways(account: ProviderAccount) -> tuple[Fact, ...]:
    if not account.contract.has_lookup:
        return ()
    return tuple(
        Fact(
            # The declaration's own name for it, such as "by_key".
            label=one.name.replace("_", " ").capitalize(),
            value=(LOOKUPS[one.kind],),
            note=tuple(
                part for part in ("A hint: it proves nothing. " if one.hint else "", one.note) if part
            ),
        )
        for one in account.lookups
    )


def _make_absent(account: ProviderAccount) -> Banner | None:
    way = account.make_absent
    if way is None:
        return None
    links = (
        (Link("The provider’s page on it", way.documentation_url),)
        if _can_be_opened(way.documentation_url)
        else ()
    )
    return Banner(
        title=(f"{way.title}: a change at the provider, for two people",),
        icon="users",
        tone="violet",
        text=(way.says, " It is ", Code(way.request), ". ", " ".join(make_absent_in_words(way))),
        links=links,
    )


def _setup(read: ProviderRead) -> tuple[Fact, ...]:
    if read.declared is None and not read.offered:
        return ()
    facts = setup_facts(read.account)
    if not read.stored:
        return facts
    anew = Link("Declare it anew", reverse("provider_new") + "?" + urlencode({"account": read.account.slug}))
    return (replace(facts[0], note=(anew,)), *_declared_by(read), *facts[1:])


def _declared_by(read: ProviderRead) -> tuple[Fact, ...]:
    """Who declared it as it is in force, when and why; what was before is in the history."""
    declaration = read.declaration
    if declaration is None:
        return ()
    who = read.names.of(ActorKind.PERSON, declaration.actor, known_as=declaration.actor_name)
    words = {"action": "provider.declared", "provider": read.account.slug}
    every = Link(
        "every declaration, for auditors and administrators", f"{reverse('effects')}?{urlencode(words)}"
    )
    return (
        Fact(
            label="Declared by",
            value=(Strong(who), f" on {wording.full(declaration.made_at)}"),
            note=(every,),
        ),
        Fact(label="Why", value=(f"“{declaration.reason}”",)),
    )


def setup_facts(account: ProviderAccount) -> tuple[Fact, ...]:
    """Where it is declared, where it sends to, and what it needs from the environment."""
    facts = [
        Fact(label="Declared in", value=(Code(account.declared_in or account.adapter),)),
        Fact(label="Address", value=(Code(account.base_url),) if account.base_url else ("not set",)),
    ]
    if account.region:
        facts.append(Fact(label="Region", value=(account.region,)))
    for one in account.credentials:
        value = ("set, fingerprint ", Code(one.fingerprint)) if one.fingerprint else (Strong("not set"),)
        facts.append(Fact(label=f"Secret “{one.name}”", value=value, note=("from ", Code(one.env))))
    if account.worker_sends:
        facts.append(Fact(label="A worker that sends itself", value=(account.worker_sends,)))
    if account.declaration_digest:
        facts.append(Fact(label="Declaration’s sha256", value=(Code(account.declaration_digest[:16] + "…"),)))
    facts.append(Fact(label="Adapter", value=(Code(account.pin.adapter),)))
    return tuple(facts)


def _banners(read: ProviderRead) -> tuple[Banner, ...]:
    account = read.account
    if read.offered:
        return (
            Banner(
                title=("This account isn’t used here.",),
                icon="info",
                tone="blue",
                text=(
                    "Recourse ships it. Name ",
                    Code(account.slug),
                    " in ",
                    Code("RECOURSE_PROVIDERS"),
                    " and set what it needs from the environment; then effects can be sent and looked up.",
                ),
            ),
        )
    if read.declared is None:
        return (
            Banner(
                title=("This account is no longer declared.",),
                icon="circle-slash",
                tone="red",
                text=(
                    "Its operations stay, and people decide about them. Nothing is sent here, nothing is ",
                    "asked, and nothing counts as promised.",
                ),
            ),
        )
    banners = []
    if not account.configured:
        missing = ", ".join(account.missing)
        banners.append(
            Banner(
                title=("This account isn’t configured here: Recourse sends nothing and asks nothing there.",),
                icon="unplug",
                tone="amber",
                text=(
                    "Not set in this process’s environment: ",
                    Code(missing),
                    (
                        ". A worker sends by its own means and still gets “go”; what it leaves unknown can’t"
                        " be looked up from here, and is left to people."
                    ),
                ),
            )
        )
    if not read.known_to_journal:
        banners.append(
            Banner(
                title=("The journal doesn’t know this account yet.",),
                icon="info",
                tone="blue",
                text=(
                    Code("manage.py sync_providers"),
                    " takes it in; until then no effect can be saved for it.",
                ),
            )
        )
    return tuple(banners)
