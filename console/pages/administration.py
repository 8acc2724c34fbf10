"""Administration: people, teams, who may use which account, tokens, flows.

For administrators alone, and never for their own account.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse

from console import access, people, teams, tokens
from console.access import Deed
from console.models import Person, Role, Scope
from console.pages.drafts import shown_facts, take_draft
from console.pages.forms import clean
from console.pages.guards import Viewer, is_given_back, page
from console.pages.present import account_access as access_words
from console.pages.present import administration as present
from console.pages.shapes.administration import AdministrationPage, ChangeForm, Once
from console.people import By
from console.queries import administration as queries
from runs.locking import database_now
from runs.models import Flow
from runs.refusals import Invalid, NotFound, Refusal

# Far longer than anything that is taken; what is longer is told by the domain.
FIELD_LENGTH_MAX = 5_000


def _by(viewer: Viewer) -> By:
    """Refuse everybody but administrators, also those who were one when the page was shown."""
    if viewer.why_not(Deed.ADMINISTER):
        raise PermissionDenied
    return By.person(viewer.person)


def _given(request: HttpRequest) -> dict[str, list[str]]:
    return {
        name: [clean(str(value))[:FIELD_LENGTH_MAX] for value in values]
        for name, values in request.POST.lists()
        if name != "csrfmiddlewaretoken"
    }


def _one(given: Mapping[str, list[str]], name: str) -> str:
    return (given.get(name) or [""])[0]


def _number(given: Mapping[str, list[str]], name: str) -> int:
    try:
        return int(_one(given, name).strip()[:9])
    except ValueError:
        raise Invalid("Write a whole number.", where=name) from None


def _show(
    request: HttpRequest, shown: AdministrationPage, *, status: int = 200, once: Once | None = None
) -> HttpResponse:
    # Where the form that somebody sent isn't on the page any more, their words are.
    lost = request.method == "POST" or is_given_back(request)
    lost = lost and once is None and not any(form.open and form.entries for form in shown.forms)
    context = {"page": replace(shown, once=once), "typed_kept": shown_facts(request.POST) if lost else ()}
    return render(request, "administration.html", context, status=status)


def _refused(
    request: HttpRequest, shown: AdministrationPage, refusal: Refusal, *, form_id: str
) -> HttpResponse:
    """The page again, with the form as it was typed and what stands in the way."""
    given = _given(request)
    where = str(refusal.details.get("where", ""))
    errors = {where: refusal.sentence} if where else {}
    forms: tuple[ChangeForm, ...] = tuple(
        present.changed(form, given, errors) if form.id == form_id else form for form in shown.forms
    )
    status = (
        422 if isinstance(refusal, Invalid) else 404 if isinstance(refusal, NotFound) and not where else 409
    )
    banner = present.refused(refusal.sentence)
    return _show(request, replace(shown, forms=forms, banner=banner), status=status)


def _first(request: HttpRequest, shown: AdministrationPage, *, form_id: str) -> HttpResponse:
    """The page with its form; filled in with what had been typed before a sign-in, if anything."""
    draft = take_draft(request, path=request.path)
    if not draft:
        return _show(request, shown)
    request.POST = draft  # type: ignore[assignment]
    return _back(request, shown, form_id=form_id)


def _back(request: HttpRequest, shown: AdministrationPage, *, form_id: str) -> HttpResponse:
    """The form as it came back from a sign-in: to be sent again, and not carried out."""
    given = _given(request)
    forms = tuple(present.changed(form, given, {}) if form.id == form_id else form for form in shown.forms)
    return _show(request, replace(shown, forms=forms))


# --- People -----------------------------------------------------------------------------------------------


@page("GET", "HEAD")
def person_list(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """Every account."""
    _by(viewer)
    return _show(
        request, present.people_page(queries.people(after=clean(request.GET.get("after", ""))[:150]))
    )


@page("GET", "HEAD", "POST")
def person_new(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """Make an account, and show its invitation once."""
    by = _by(viewer)
    shown = present.person_new_page(queries.teams())
    if request.method != "POST":
        return _first(request, shown, form_id="new")
    given = _given(request)
    try:
        made = people.make_person(
            by=by,
            username=_one(given, "username"),
            name=_one(given, "name"),
            email=_one(given, "email"),
            roles=_roles(given),
            teams=given.get("teams", []),
            reason=_one(given, "reason"),
        )
    except Refusal as refusal:
        return _refused(request, shown, refusal, form_id="new")
    return _show(request, _person(viewer, made.person.pk), once=_link(request, made))


@page("GET", "HEAD")
def person(request: HttpRequest, viewer: Viewer, person_id: int) -> HttpResponse:
    """One account and what can be done with it."""
    _by(viewer)
    return _show(request, _person(viewer, person_id))


@page("POST", gives_back=True)
def person_act(request: HttpRequest, viewer: Viewer, person_id: int, act: str) -> HttpResponse:
    """Change one thing about an account."""
    by = _by(viewer)
    carry_out = _ACTS.get(act)
    if carry_out is None:
        raise NotFound("There is no such form.")
    if is_given_back(request):
        return _back(request, _person(viewer, person_id), form_id=act)
    try:
        said = carry_out(by, person_id, _given(request))
    except Refusal as refusal:
        return _refused(request, _person(viewer, person_id), refusal, form_id=act)
    if isinstance(said, people.Invited):
        return _show(request, _person(viewer, person_id), once=_link(request, said))
    messages.success(request, said)
    return HttpResponseRedirect(reverse("person", args=[person_id]))


def _person(viewer: Viewer, person_id: int) -> AdministrationPage:
    read = queries.person(person_id)
    if read is None:
        raise NotFound("There is no such account.")
    own = access.principal_of(read.person) == access.principal_of(viewer.person)
    single_sign_on = str(settings.RECOURSE_IDENTITY_PROVIDER.get("name", ""))
    return present.person_page(read, teams=queries.teams(), own=own, single_sign_on=single_sign_on)


def _roles(given: Mapping[str, list[str]]) -> set[Role]:
    return {Role(one) for one in given.get("roles", []) if one in set(Role)}


def _link(request: HttpRequest, made: people.Invited) -> Once:
    path = reverse("invitation", args=[made.uid, made.token])
    return present.invitation(request.build_absolute_uri(path), str(made.person))


def _access(by: By, person_id: int, given: Mapping[str, list[str]]) -> str:
    changed = people.change_access(
        by=by,
        person_id=person_id,
        roles=_roles(given),
        teams=given.get("teams", []),
        seen=_one(given, "seen"),
        reason=_one(given, "reason"),
    )
    return f"The roles and teams of {changed} are changed."


def _same_as(by: By, person_id: int, given: Mapping[str, list[str]]) -> str:
    other = Person.objects.filter(username=_one(given, "username").strip()).first()
    if other is None:
        raise Invalid("There is no such login.", where="username")
    people.set_principal(by=by, person_id=person_id, same_as=other.pk, reason=_one(given, "reason"))
    return "The two accounts are one human being from now on."


def _link_to(by: By, person_id: int, given: Mapping[str, list[str]]) -> str:
    subject = _one(given, "subject")
    people.link(by=by, person_id=person_id, subject=subject, reason=_one(given, "reason"))
    return "The account is linked." if subject.strip() else "The link is taken away."


Act = Callable[[By, int, Mapping[str, list[str]]], "str | people.Invited"]


def _simple(carry_out: Callable[..., Any], said: str) -> Act:
    def act(by: By, person_id: int, given: Mapping[str, list[str]]) -> str:
        carry_out(by=by, person_id=person_id, reason=_one(given, "reason"))
        return said

    return act


_ACTS: dict[str, Act] = {
    "access": _access,
    "same-as": _same_as,
    "link": _link_to,
    "invitation": lambda by, person_id, given: people.invite(
        by=by, person_id=person_id, reason=_one(given, "reason")
    ),
    "sessions": _simple(people.end_sessions, "They are signed out everywhere."),
    "factors": _simple(people.remove_factors, "Codes and passkeys are taken away, and their sessions ended."),
    "closing": _simple(people.close, "The login is closed. Its sessions ended and its tokens are revoked."),
    "opening": _simple(people.open_again, "The login is open."),
}


# --- Teams and flows --------------------------------------------------------------------------------------


@page("GET", "HEAD")
def team_list(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """Every team."""
    _by(viewer)
    return _show(request, present.teams_page(queries.teams()))


@page("POST", gives_back=True)
def team_new(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """Make a team."""
    by = _by(viewer)
    shown = present.teams_page(queries.teams())
    if is_given_back(request):
        return _back(request, shown, form_id="new")
    given = _given(request)
    try:
        made = teams.make_team(
            by=by,
            slug=_one(given, "slug").strip(),
            name=_one(given, "name"),
            reason=_one(given, "reason"),
        )
    except Refusal as refusal:
        return _refused(request, shown, refusal, form_id="new")
    messages.success(request, f"Team {made.slug} is made. Give people and tokens to it.")
    return HttpResponseRedirect(reverse("team_list"))


@page("GET", "HEAD")
def account_access_list(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """Every provider account and the teams that may use it."""
    _by(viewer)
    listed = queries.accounts(after=clean(request.GET.get("after", ""))[:100])
    return _show(request, access_words.accounts_page(listed))


@page("GET", "HEAD", "POST")
def account_access(request: HttpRequest, viewer: Viewer, account: str) -> HttpResponse:
    """One provider account, and the teams that may use it to change."""
    by = _by(viewer)
    slug = clean(account)[:100]
    if request.method != "POST":
        return _first(request, _account(slug), form_id=access_words.FORM)
    given = _given(request)
    try:
        named = teams.name_account_teams(
            by=by,
            account=slug,
            teams=_named(given),
            seen=_one(given, "seen"),
            reason=_one(given, "reason"),
        )
    except Refusal as refusal:
        return _refused(request, _account(slug), refusal, form_id=access_words.FORM)
    messages.success(request, access_words.changed(slug, named))
    return HttpResponseRedirect(reverse("account_access_list"))


def _account(slug: str) -> AdministrationPage:
    read = queries.account(slug)
    if read is None:
        raise NotFound("There is no such provider account.")
    return access_words.account_page(read, teams=queries.teams())


def _named(given: Mapping[str, list[str]]) -> list[str]:
    """The teams that a form names; whoever means every team says so, and doesn't just tick none."""
    match _one(given, "there_for"):
        case "every":
            return []
        case "named":
            if not given.get("teams"):
                raise Invalid("Name at least one team. For every team, choose that.", where="teams")
            return given["teams"]
        case _:
            raise Invalid("Choose whom it is there for.", where="there_for")


@page("GET", "HEAD")
def flow_list(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """Every flow and its policy."""
    _by(viewer)
    return _show(request, present.flows_page(queries.flows(after=clean(request.GET.get("after", ""))[:40])))


@page("GET", "HEAD", "POST")
def flow(request: HttpRequest, viewer: Viewer, flow_id: str) -> HttpResponse:
    """One flow, and its policy to change."""
    by = _by(viewer)
    found = Flow.objects.filter(pk=clean(flow_id)[:40]).first()
    if found is None:
        raise NotFound("There is no such flow.")
    if request.method != "POST":
        return _first(request, present.flow_page(found), form_id="policy")
    given = _given(request)
    try:
        teams.set_flow_policy(
            by=by,
            flow_id=found.pk,
            automatic_repeat=_one(given, "automatic_repeat"),
            abandonment_people=_number(given, "abandonment_people"),
            decide_within_minutes=_number(given, "decide_within_minutes"),
            reason=_one(given, "reason"),
        )
    except Refusal as refusal:
        return _refused(request, present.flow_page(found), refusal, form_id="policy")
    messages.success(request, f"The policy of {found.name} is changed.")
    return HttpResponseRedirect(reverse("flow_list"))


# --- Tokens -----------------------------------------------------------------------------------------------


@page("GET", "HEAD")
def token_list(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """Every token: what it may do, until when, and when it was last used."""
    _by(viewer)
    return _show(request, _tokens(clean(request.GET.get("after", ""))[:40]))


@page("POST", gives_back=True)
def token_new(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """Make a token, and show its secret once."""
    by = _by(viewer)
    if is_given_back(request):
        return _back(request, _tokens(), form_id="new")
    given = _given(request)
    try:
        made = tokens.make_token(
            by=by,
            team=_one(given, "team"),
            name=_one(given, "name"),
            scopes=[Scope(one) for one in given.get("scopes", []) if one in set(Scope)],
            days=_number(given, "days"),
            person_id=_person_id(_one(given, "person")),
        )
    except Refusal as refusal:
        return _refused(request, _tokens(), refusal, form_id="new")
    once = Once(
        title=f"The secret of {made.token.name}",
        text="Copy it to where it is needed. It is shown this once and stored nowhere.",
        secret=made.secret,
    )
    return _show(request, _tokens(), once=once)


@page("POST", gives_back=True)
def token_revoke(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """Revoke a token."""
    by = _by(viewer)
    if is_given_back(request):
        return _back(request, _tokens(), form_id="revoke")
    given = _given(request)
    try:
        reason = people.checked_reason(_one(given, "reason"))
        revoked = tokens.revoke_token(by=by, token_id=_one(given, "token")[:40], reason=reason)
    except Refusal as refusal:
        return _refused(request, _tokens(), refusal, form_id="revoke")
    messages.success(request, f"{revoked.name} is revoked.")
    return HttpResponseRedirect(reverse("token_list"))


def _tokens(after: str = "") -> AdministrationPage:
    return present.tokens_page(queries.tokens(after=after), teams=queries.teams(), now=database_now())


def _person_id(username: str) -> int | None:
    if not username.strip():
        return None
    found = Person.objects.filter(username=username.strip()).values_list("pk", flat=True).first()
    if found is None:
        raise Invalid("There is no such login.", where="person")
    return int(found)
