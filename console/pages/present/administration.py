"""The pages of administration, worded."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from django.urls import reverse

from console.models import ApiToken, Person, Role, Scope
from console.pages.present.marks import plural
from console.pages.shapes import Banner, Link
from console.pages.shapes.administration import (
    AdministrationPage,
    Cell,
    ChangeForm,
    Choice,
    Entry,
    Once,
    Table,
)
from console.people import seen_of
from console.queries.administration import Listed, PersonRead
from console.tokens import DAYS_DEFAULT, DAYS_MAX
from runs.models import Flow, Team

Given = Mapping[str, Sequence[str]]
NOTHING: Final[Given] = {}
REASON: Final = Entry(
    name="reason", label="Reason", kind="long", hint="At least 10 characters, for the audit log."
)
_ROLE_HINTS: Final[Mapping[Role, str]] = {
    Role.VIEWER: "reads",
    Role.OPERATOR: "decides cases",
    Role.APPROVER: "consents to what operators ask for",
    Role.AUDITOR: "reads and exports the history",
    Role.ADMINISTRATOR: "gives accounts and runs the deployment",
}
_SCOPE_HINTS: Final[Mapping[Scope, str]] = {
    Scope.JOURNAL: "an agent’s worker",
    Scope.READ: "reading alone",
    Scope.DECIDE: "decides in the name of a person",
}


def changed(form: ChangeForm, given: Given, errors: Mapping[str, str]) -> ChangeForm:
    """The form as it came back: open, with what was typed and what is wrong."""
    entries = tuple(
        replace(
            entry,
            value=(given.get(entry.name) or [""])[0] if not entry.choices else "",
            choices=tuple(
                replace(choice, chosen=choice.value in given.get(entry.name, ())) for choice in entry.choices
            ),
            error=errors.get(entry.name, ""),
        )
        for entry in form.entries
    )
    return replace(form, entries=entries, open=True)


def refused(sentence: str) -> Banner:
    return Banner(
        tone="red",
        icon="octagon-x",
        title=("Nothing was changed.",),
        text=(sentence,),
        kept="What you typed is kept",
        focus=True,
    )


# --- People -----------------------------------------------------------------------------------------------


def people_page(listed: Listed[Person]) -> AdministrationPage:
    rows = tuple(
        (
            Cell(text=str(one), href=reverse("person", args=[one.pk]), sub=one.username),
            Cell(text=_roles(one)),
            Cell(text=", ".join(sorted(team.slug for team in one.teams.all())) or "–"),
            Cell(text="Open" if one.is_active else "Closed"),
            Cell(at=one.last_login) if one.last_login else Cell(text="Never"),
        )
        for one in listed.rows
    )
    table = Table(
        id="people",
        title="Accounts",
        heads=("Person", "Roles", "Teams", "Login", "Last sign-in"),
        rows=rows,
        empty="Nobody has a login yet.",
        next_href=reverse("person_list", query={"after": listed.after}) if listed.after else "",
    )
    return AdministrationPage(
        title="People",
        lead="Who can sign in, what they may do, and whose cases they see.",
        section="people",
        tables=(table,),
        links=(Link("Make an account", reverse("person_new")),),
    )


def person_new_page(teams: Sequence[Team]) -> AdministrationPage:
    form = ChangeForm(
        id="new",
        title="Make an account",
        note="They choose their password by a link that you are shown once, and that works for three days.",
        href=reverse("person_new"),
        button="Make the account",
        open=True,
        entries=(
            Entry(name="username", label="Login"),
            Entry(name="name", label="Name", required=False),
            Entry(
                name="email",
                label="E-mail",
                kind="email",
                required=False,
                hint="Where notices go, and what links a verified address of the identity provider.",
            ),
            _role_entry(()),
            _team_entry(teams, ()),
            REASON,
        ),
    )
    return AdministrationPage(
        title="Make an account",
        lead="Nobody signs up by themselves.",
        section="people",
        forms=(form,),
        back=Link("Back to people", reverse("person_list")),
    )


def person_page(
    read: PersonRead, *, teams: Sequence[Team], own: bool, single_sign_on: str
) -> AdministrationPage:
    person = read.person
    facts = (
        ("Login", person.username),
        ("E-mail", person.email or "–"),
        ("Roles", _roles(person)),
        ("Teams", ", ".join(read.teams) or "–"),
        ("State", "Open" if person.is_active else "Closed"),
        ("Second factors", ", ".join(_FACTORS.get(one, one) for one in read.factors) or "none"),
        ("Human being", person.principal),
        ("Other accounts of theirs", ", ".join(one.username for one in read.twins) or "none"),
    )
    rows = tuple(_token_row(one)[:1] + _token_row(one)[2:] for one in read.tokens)
    table = Table(
        id="tokens",
        title="Tokens in their name",
        heads=("Token", "May", "Until", "Last use"),
        rows=rows,
        empty="No token acts in their name.",
    )
    return AdministrationPage(
        title=str(person),
        lead="Your own account, and others of yours, are changed by another administrator."
        if own
        else "Every change is on record with your reason.",
        section="people",
        facts=facts,
        tables=(table,),
        forms=() if own else person_forms(read, teams=teams, single_sign_on=single_sign_on),
        back=Link("Back to people", reverse("person_list")),
    )


_FACTORS: Final = {"totp": "codes of an app", "webauthn": "passkey", "recovery_codes": "recovery codes"}


def person_forms(read: PersonRead, *, teams: Sequence[Team], single_sign_on: str) -> tuple[ChangeForm, ...]:
    """One form for each thing that can be done with the account, under the names of `person_act`."""
    person = read.person
    found = [
        _act(
            person,
            "access",
            "Change roles and teams",
            "They count at the person’s next click or call.",
            "Change them",
            _role_entry(person.roles),
            _team_entry(teams, read.teams),
            seen=seen_of(person),
        ),
        _act(
            person,
            "invitation",
            "Let them choose a new password",
            "You are shown a link, once. The password they have fits until they use it.",
            "Make the link",
        ),
        _act(
            person,
            "same-as",
            "Another account is the same human being",
            "From then on the two never make four eyes, also for what is asked for already.",
            "Say that they are one",
            Entry(name="username", label="Login of the other account"),
        ),
        _act(
            person,
            "sessions",
            "Sign them out everywhere",
            "They can sign in again at once.",
            "End their sessions",
        ),
    ]
    if single_sign_on:
        found.append(
            _act(
                person,
                "link",
                f"Link to {single_sign_on}",
                "By the subject that the provider has for them; empty takes the link away.",
                "Link",
                Entry(name="subject", label="Subject", value=read.subject, required=False),
            )
        )
    if read.factors:
        found.append(
            _act(
                person,
                "factors",
                "Take codes and passkeys away",
                "For whoever lost their telephone: make sure by another way that it is them.",
                "Take them away",
                danger=True,
            )
        )
    if person.is_active:
        note = "They are out at once, with every session; their tokens are revoked for good."
        found.append(_act(person, "closing", "Close the login", note, "Close the login", danger=True))
    else:
        note = "They can sign in again; tokens stay revoked."
        found.append(_act(person, "opening", "Open the login", note, "Open the login"))
    return tuple(found)


def _act(
    person: Person,
    act: str,
    title: str,
    note: str,
    button: str,
    *entries: Entry,
    seen: str = "",
    danger: bool = False,
) -> ChangeForm:
    return ChangeForm(
        id=act,
        title=title,
        note=note,
        href=reverse("person_act", args=[person.pk, act]),
        button=button,
        entries=(*entries, REASON),
        seen=seen,
        danger=danger,
    )


def _roles(person: Person) -> str:
    return ", ".join(str(Role(role).label) for role in person.roles) or "none"


def _role_entry(chosen: Collection[str]) -> Entry:
    choices = tuple(
        Choice(value=str(role), label=str(role.label), chosen=str(role) in chosen, hint=_ROLE_HINTS[role])
        for role in Role
    )
    return Entry(name="roles", label="Roles", kind="several", choices=choices)


def _team_entry(teams: Sequence[Team], chosen: Collection[str]) -> Entry:
    choices = tuple(
        Choice(value=team.slug, label=team.name, chosen=team.slug in chosen, hint=team.slug) for team in teams
    )
    return Entry(name="teams", label="Teams", kind="several", choices=choices)


def invitation(url: str, who: str) -> Once:
    return Once(
        title=f"A link for {who}",
        text="Give it to them by a way that you trust. It is shown once, works once, for three days.",
        secret=url,
    )


# --- Teams ------------------------------------------------------------------------------------------------


def teams_page(teams: Sequence[Team]) -> AdministrationPage:
    rows = tuple(
        (
            Cell(text=one.name, sub=one.slug),
            Cell(text=f"{one.people_count:,}"),  # type: ignore[attr-defined]
            Cell(text=f"{one.flow_count:,}"),  # type: ignore[attr-defined]
            Cell(at=one.created_at),
        )
        for one in teams
    )
    form = ChangeForm(
        id="new",
        title="Make a team",
        note="A flow, its runs and its cases belong to the team whose token started it, and stay there.",
        href=reverse("team_new"),
        button="Make the team",
        entries=(
            Entry(name="slug", label="Id", hint="Small letters, digits, - and _. It never changes."),
            Entry(name="name", label="Name"),
            REASON,
        ),
    )
    return AdministrationPage(
        title="Teams",
        lead="Whose cases, runs and tokens they are: what is another team’s isn’t there.",
        section="teams",
        tables=(
            Table(
                id="teams",
                title="Teams",
                heads=("Team", "People", "Flows", "Made"),
                rows=rows,
                empty="There is no team yet.",
            ),
        ),
        forms=(form,),
    )


# --- Tokens -----------------------------------------------------------------------------------------------


def tokens_page(listed: Listed[ApiToken], *, teams: Sequence[Team], now: datetime) -> AdministrationPage:
    usable = [one for one in listed.rows if one.revoked_at is None and one.expires_at > now]
    rows = tuple((*_token_row(one), Cell(text=_standing(one, now))) for one in listed.rows)
    make = ChangeForm(
        id="new",
        title="Make a token",
        note="Its secret is shown once. A worker’s token never decides.",
        href=reverse("token_new"),
        button="Make the token",
        entries=(
            Entry(name="name", label="What it is for"),
            Entry(
                name="team",
                label="Team",
                kind="one",
                choices=tuple(Choice(value=one.slug, label=one.name, hint=one.slug) for one in teams),
            ),
            Entry(
                name="scopes",
                label="It may",
                kind="several",
                choices=tuple(
                    Choice(value=str(one), label=str(one.label), hint=_SCOPE_HINTS[one]) for one in Scope
                ),
            ),
            Entry(
                name="person",
                label="Login of the person whose decisions they are",
                required=False,
                hint="Only for a token that decides.",
            ),
            Entry(
                name="days",
                label="Days that it lasts",
                kind="number",
                value=str(DAYS_DEFAULT),
                hint=f"1 to {DAYS_MAX}.",
            ),
        ),
    )
    revoke = ChangeForm(
        id="revoke",
        title="Revoke a token",
        note="Whoever calls with it is refused within seconds, in every process. It can’t be taken back.",
        href=reverse("token_revoke"),
        button="Revoke it",
        danger=True,
        entries=(
            Entry(
                name="token",
                label="Token",
                kind="one",
                choices=tuple(Choice(value=one.pk, label=one.name, hint=one.pk) for one in usable),
            ),
            REASON,
        ),
    )
    table = Table(
        id="tokens",
        title="Tokens",
        heads=("Token", "Team", "May", "Until", "Last use", "State"),
        rows=rows,
        empty="No token was made yet. Agents call the API with one.",
        next_href=reverse("token_list", query={"after": listed.after}) if listed.after else "",
    )
    return AdministrationPage(
        title="Tokens",
        lead="What agents and scripts call the API with.",
        section="tokens",
        tables=(table,),
        forms=(make, revoke) if usable else (make,),
    )


def _token_row(one: ApiToken) -> tuple[Cell, ...]:
    return (
        Cell(text=one.name, sub=one.pk),
        Cell(text=one.team_id, sub=f"for {one.person}" if one.person else ""),
        Cell(text=", ".join(one.scopes)),
        Cell(at=one.expires_at),
        Cell(at=one.last_used_at) if one.last_used_at else Cell(text="Never"),
    )


def _standing(one: ApiToken, now: datetime) -> str:
    if one.revoked_at is not None:
        return "Revoked"
    return "Usable" if one.expires_at > now else "Expired"


# --- Flows ------------------------------------------------------------------------------------------------


def flows_page(listed: Listed[Flow]) -> AdministrationPage:
    rows = tuple(
        (
            Cell(text=one.name, href=reverse("flow", args=[one.pk])),
            Cell(text=one.team_id),
            Cell(text=_REPEATS[one.automatic_repeat]),
            Cell(text=plural(one.abandonment_people, "person", "people")),
            Cell(text=plural(one.decide_within_minutes, "minute")),
        )
        for one in listed.rows
    )
    table = Table(
        id="flows",
        title="Flows",
        heads=("Flow", "Team", "Automatic repeats", "Abandonment takes", "Decide within"),
        rows=rows,
        empty="No agent has started a run yet; a flow is known from its first run on.",
        next_href=reverse("flow_list", query={"after": listed.after}) if listed.after else "",
    )
    return AdministrationPage(
        title="Flows",
        lead="What their teams decided about them.",
        section="flows",
        tables=(table,),
    )


_REPEATS: Final = {"off": "Off", "safe": "Where the contract makes them safe"}


def flow_page(flow: Flow) -> AdministrationPage:
    form = ChangeForm(
        id="policy",
        title="Change its policy",
        note="It counts for what is asked from now on; what was decided stays.",
        href=reverse("flow", args=[flow.pk]),
        button="Change it",
        open=True,
        entries=(
            Entry(
                name="automatic_repeat",
                label="Automatic repeats with the same key",
                kind="one",
                choices=(
                    Choice(
                        value="off",
                        label="Off",
                        chosen=flow.automatic_repeat == "off",
                        hint="a person decides",
                    ),
                    Choice(
                        value="safe",
                        label="On where the contract makes them safe",
                        chosen=flow.automatic_repeat == "safe",
                        hint="the policy repeats once by itself",
                    ),
                ),
            ),
            Entry(
                name="abandonment_people",
                label="People that an abandonment takes",
                kind="one",
                choices=tuple(
                    Choice(value=str(one), label=label, chosen=flow.abandonment_people == one)
                    for one, label in ((1, "One"), (2, "Two: another person consents"))
                ),
            ),
            Entry(
                name="decide_within_minutes",
                label="Minutes until a case counts as overdue",
                kind="number",
                value=str(flow.decide_within_minutes),
            ),
            REASON,
        ),
    )
    return AdministrationPage(
        title=flow.name,
        lead=f"A flow of team {flow.team_id}.",
        section="flows",
        forms=(form,),
        back=Link("Back to flows", reverse("flow_list")),
    )
