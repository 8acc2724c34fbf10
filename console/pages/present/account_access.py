"""Who may use which provider account, worded."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from django.urls import reverse

from console.pages.present.administration import REASON
from console.pages.present.marks import plural
from console.pages.shapes import Link
from console.pages.shapes.administration import AdministrationPage, Cell, ChangeForm, Choice, Entry, Table
from console.queries.administration import CASES_MAX, AccountRead, Listed
from runs.account_access import seen_of
from runs.models import Team

FORM: Final = "access"
_EVERY: Final = "Every team"


def accounts_page(listed: Listed[AccountRead]) -> AdministrationPage:
    rows = tuple(
        (
            Cell(
                text=one.account.title,
                sub=one.account.pk,
                href=reverse("account_access", args=[one.account.pk]),
            ),
            Cell(text=", ".join(one.teams) or _EVERY),
            Cell(at=max(named.made_at for named in one.named)) if one.named else Cell(text="–"),
        )
        for one in listed.rows
    )
    table = Table(
        id="accounts",
        title="Provider accounts",
        heads=("Account", "Open to", "Last team named"),
        rows=rows,
        empty="The journal knows no account yet: manage.py sync_providers takes in what is declared.",
        next_href=reverse("account_access_list", query={"after": listed.after}) if listed.after else "",
    )
    return AdministrationPage(
        title="Account access",
        lead="Which teams may use which account at a provider. To every other team it isn’t there.",
        section="access",
        tables=(table,),
    )


def account_page(read: AccountRead, *, teams: Sequence[Team]) -> AdministrationPage:
    slug = read.account.pk
    concerned = sorted({*read.teams, *read.open_cases})
    counted = sum(read.open_cases.values())
    rows = tuple(
        (
            Cell(text=team),
            Cell(text="May use it" if not read.teams or team in read.teams else "Isn’t named for it"),
            Cell(text=plural(read.open_cases.get(team, 0), "open case")),
        )
        for team in concerned
    )
    table = Table(
        id="teams",
        title="Teams that are named, or have open cases here",
        heads=("Team", "Account", "Still open here"),
        rows=rows,
        empty="Every team may use it, and none has an open case here.",
    )
    facts = [("Account", slug), ("Open to", ", ".join(read.teams) or _EVERY)]
    if counted >= CASES_MAX:
        facts.append(("Open cases", f"the first {CASES_MAX:,} are counted"))
    return AdministrationPage(
        title=read.account.title,
        lead="Who may use this account.",
        section="access",
        facts=tuple(facts),
        tables=(table,),
        forms=(access_form(slug, named=read.teams, teams=teams, open_=True),),
        back=Link("Back to account access", reverse("account_access_list")),
    )


def access_form(
    slug: str, *, named: Collection[str], teams: Sequence[Team], open_: bool = False
) -> ChangeForm:
    """The form that names the teams of an account."""
    return ChangeForm(
        id=FORM,
        title="Say who may use it",
        note=(
            "To a team that isn’t named the account isn’t there from then on: not on pages, in notices or in"
            " its agents’ new turns. What it has begun here stays its own and is looked up, sent, decided"
            " and settled as before."
        ),
        href=reverse("account_access", args=[slug]),
        button="Change who may use it",
        seen=seen_of(named),
        open=open_,
        entries=(
            Entry(
                name="there_for",
                label="Open to",
                kind="one",
                choices=(
                    Choice(value="every", label=_EVERY, chosen=not named, hint="also teams made later"),
                    Choice(value="named", label="The teams named below, and no other", chosen=bool(named)),
                ),
            ),
            Entry(
                name="teams",
                label="Teams",
                kind="several",
                choices=tuple(
                    Choice(value=one.slug, label=one.name, chosen=one.slug in named, hint=one.slug)
                    for one in teams
                ),
            ),
            REASON,
        ),
    )


def changed(slug: str, named: Collection[str]) -> str:
    """What was just said, for the page after it."""
    whom = f"{' and '.join(named)} alone" if named else "every team"
    return f"{slug} is there for {whom}."
