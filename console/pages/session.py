"""Who is signed in, and how they like their pages: sign-in and out, theme, shortcuts.

A person whose session ends while they write must not lose what they wrote. So a POST without a session
answers with the sign-in form and carries the typed fields through it (`drafts`).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import wraps
from typing import Any, Concatenate, Final, Literal, ParamSpec, cast

from allauth.account.adapter import get_adapter
from allauth.account.internal.flows.login import perform_password_login
from allauth.account.models import Login
from allauth.core.internal import ratelimit
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.views import LoginView, LogoutView
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.shortcuts import render, resolve_url
from django.urls import reverse
from django.utils.functional import SimpleLazyObject
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_GET, require_POST, require_safe

from console import access
from console.access import Deed
from console.models import Person, Role
from console.pages import drafts, limits
from console.pages.present.marks import plural
from console.pages.shapes import Shell, Tone, Viewer
from console.pages.shapes.frame import FrozenNotice
from console.queries.frame import Frame, read_frame
from console.sign_in import WAITING_DRAFT

Theme = Literal["system", "light", "dark"]
THEMES: Final[tuple[Theme, ...]] = ("system", "light", "dark")
THEME_COOKIE: Final = "recourse_theme"
TIMES_COOKIE: Final = "recourse_times"
PREFERENCE_SECONDS: Final = 400 * 24 * 60 * 60  # the longest that browsers keep a cookie

# Beyond it the number beside the navigation says "99+".
OPEN_CASES_MAX: Final = 99

# The most that a role allows is what the top bar says of a person.
_ROLE_ORDER: Final = (Role.ADMINISTRATOR, Role.APPROVER, Role.OPERATOR, Role.AUDITOR, Role.VIEWER)

P = ParamSpec("P")
View = Callable[Concatenate[HttpRequest, P], HttpResponseBase]


# --- The frame of every page --------------------------------------------------------------------------


def shell(request: HttpRequest) -> dict[str, Any]:
    """Context processor: what `base.html` needs around every page, as `shell`."""
    return {"shell": shell_of(request)}


def shell_of(request: HttpRequest) -> Shell:
    """The frame for this request: environment, the person, their theme, and where they are."""
    user = getattr(request, "user", None)
    match = request.resolver_match
    name = (match.url_name or "") if match else ""
    section: Literal["queue", "runs", "approvals", "effects", "providers", ""] = ""
    if name == "case_report":
        # It is reached from the history, and is of it.
        section = "effects"
    elif name == "queue" or name.startswith(("case", "bulk")):
        section = "queue"
    elif name.startswith("run"):
        section = "runs"
    elif name.startswith("approval"):
        section = "approvals"
    elif name.startswith(("effect", "export")):
        section = "effects"
    elif name.startswith("provider"):
        section = "providers"
    return Shell(
        environment=settings.RECOURSE_ENVIRONMENT,
        environment_tone=_environment_tone(settings.RECOURSE_ENVIRONMENT),
        theme=theme_of(request),
        shortcuts=getattr(getattr(request, "user", None), "shortcuts", "on") != "off",
        path=request.get_full_path() if request.method == "GET" else request.path,
        viewer=viewer_of(request),
        administers=isinstance(user, Person) and access.may(user, Deed.ADMINISTER),
        section=section,
        now=datetime.now(UTC),
        times="own" if request.COOKIES.get(TIMES_COOKIE) == "own" else "utc",
        no_team=getattr(request, "teams", None) == (),
        # Asked for only where the navigation is shown: a fragment has none.
        open_cases=cast("str", SimpleLazyObject(lambda: _open_cases(request))),
        waiting_approvals=cast("str", SimpleLazyObject(lambda: _waiting_approvals(request))),
        frozen=cast("FrozenNotice | None", SimpleLazyObject(lambda: _frozen(request))),
    )


def _frozen(request: HttpRequest) -> FrozenNotice | None:
    """What a freeze means for this person; None while every account sends, and on the page that says more."""
    person, match = getattr(request, "user", None), request.resolver_match
    if not isinstance(person, Person) or (match and (match.url_name or "").startswith("environment")):
        return None
    frame = _frame(request)
    if not frame.frozen:
        return None
    everywhere = frame.frozen == frame.accounts
    where = "at every account" if everywhere else f"at {plural(frame.frozen, 'account')}"
    may = access.may(person, Deed.STATE_ENVIRONMENT)
    return FrozenNotice(
        title=f"Sending is frozen {where}.",
        text="Nothing is sent there, by an agent or by a retry. Lookups go on, and a case can be confirmed"
        " or abandoned." + ("" if may else " Administrators say when it sends again."),
        href=reverse("environment") if may else "",
    )


def _open_cases(request: HttpRequest) -> str:
    """How many cases wait for a person, for the navigation: "" for none, or where the page has no teams."""
    count = _frame(request).waiting if getattr(request, "teams", ()) else 0
    return f"{OPEN_CASES_MAX}+" if count > OPEN_CASES_MAX else str(count or "")


def _waiting_approvals(request: HttpRequest) -> str:
    """How many requests this person could answer; "" for none, and for whoever answers none."""
    person = request.user
    if not isinstance(person, Person) or not access.may(person, Deed.APPROVE):
        return ""
    count = _frame(request).approvals
    return f"{OPEN_CASES_MAX}+" if count > OPEN_CASES_MAX else str(count or "")


def _frame(request: HttpRequest) -> Frame:
    """What stands around this page, read once for it."""
    found = getattr(request, "frame", None)
    if not isinstance(found, Frame):
        person = request.user if isinstance(request.user, Person) else None
        found = read_frame(
            teams=getattr(request, "teams", ()),
            count_max=OPEN_CASES_MAX + 1,
            actor=access.person_actor(person).id if person is not None else "",
            principal=access.principal_of(person) if person is not None else "",
        )
        request.frame = found  # type: ignore[attr-defined]
    return found


def viewer_of(request: HttpRequest) -> Viewer | None:
    user = getattr(request, "user", None)
    if not isinstance(user, Person):
        return None
    role = next((role.label for role in _ROLE_ORDER if user.has_role(role)), "No role")
    return Viewer(name=str(user), role=str(role))


def _environment_tone(environment: str) -> Tone:
    """Production is red, so that nobody takes it for a place to try things."""
    return "red" if environment.strip().lower().startswith("prod") else "grey"


# --- Signing in -----------------------------------------------------------------------------------------


def signed_in(view: Callable[Concatenate[HttpRequest, P], HttpResponseBase]) -> View[P]:
    """Let only signed-in people through; what anybody else had typed is kept through the sign-in."""

    @wraps(view)
    def guarded(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponseBase:
        if request.user.is_authenticated:
            return view(request, *args, **kwargs)
        if request.method in {"GET", "HEAD"}:
            if request.headers.get("HX-Request") and not request.headers.get("HX-Boosted"):
                # A piece of an open page: a whole sign-in page has no place in it.
                return HttpResponse("Your session has ended.", status=401, content_type="text/plain")
            query = {"next": request.get_full_path()}
            return HttpResponseRedirect(reverse("login", query=query))
        return SignIn.as_view()(request, session_ended=True)

    return guarded


class SignInForm(AuthenticationForm):
    """Name and password, asked for through allauth's adapter, which counts what failed."""

    def clean(self) -> dict[str, Any]:
        username, password = self.cleaned_data.get("username"), self.cleaned_data.get("password")
        if username and password:
            credentials = {"username": username, "password": password}
            self.user_cache = get_adapter(self.request).authenticate(self.request, **credentials)
            if self.user_cache is None:
                raise self.get_invalid_login_error()
        return self.cleaned_data

    @property
    def is_limited(self) -> bool:
        """Whether the password wasn't looked at, because too many were wrong before it."""
        return self.has_error("__all__", "too_many_login_attempts")


class SignIn(LoginView):
    """The sign-in form. After an ended session it says so, and carries the typed fields along."""

    template_name = "registration/login.html"
    redirect_authenticated_user = True
    form_class = SignInForm

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        # A page that wanted a session answered with this form: show it, don't take the POST for a login.
        if kwargs.get("session_ended"):
            context = self.get_context_data(form=self.form_class(request))
            # It holds what somebody typed.
            return self.render_to_response(context, status=403, headers={"Cache-Control": "no-store"})
        return super().dispatch(request, *args, **kwargs)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        ended = bool(self.kwargs.get("session_ended"))
        # Packed before, where the session was ended by a form that asked who is there.
        packed = str(self.kwargs.get("draft", ""))
        draft = (packed or drafts.pack(self.request)) if ended else self.request.POST.get(drafts.KEY, "")
        target = self.kwargs.get("target") or (self.request.path if ended else self.get_redirect_url())
        # Where nobody knows whose words they are they can't be kept for anybody: they are shown now, or lost.
        nobodys = ended and not packed and not drafts.typist_of(self.request)
        return super().get_context_data(
            **kwargs,
            session_ended=ended,
            draft="" if nobodys else draft,
            kept=bool(drafts.unpack(draft)) and not nobodys,
            kept_facts=drafts.shown_facts(self.request.POST) if nobodys else (),
            file_lost=ended and bool(self.request.FILES),
            target=target,
            single_sign_on=settings.RECOURSE_IDENTITY_PROVIDER,
        )

    def get_default_redirect_url(self) -> str:
        person = self.request.user
        return (
            reverse(access.landing_of(person))
            if isinstance(person, Person)
            else super().get_default_redirect_url()
        )

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if not ratelimit.consume(request, app="allauth.account", action="login"):
            return self.limited(self.get_form())
        return super().post(request, *args, **kwargs)

    def form_valid(self, form: Any) -> HttpResponse:
        stash_draft(self.request)
        person = form.get_user()
        target = self.get_redirect_url() or reverse(access.landing_of(person))
        login = Login(user=person, redirect_url=target)
        answer = perform_password_login(self.request, {"username": person.username}, login)
        return cast("HttpResponse", answer)

    def form_invalid(self, form: Any) -> HttpResponse:
        return self.limited(form) if form.is_limited else super().form_invalid(form)

    def limited(self, form: Any) -> HttpResponse:
        """The form again, which says that nothing is looked at for now; nothing typed is lost."""
        context = self.get_context_data(form=form, limited=True)
        return limits.too_many(self.render_to_response(context))


def stash_draft(request: HttpRequest) -> None:
    """Keep what had been typed before this sign-in until its last step is done."""
    if draft := request.POST.get(drafts.KEY, ""):
        request.session[WAITING_DRAFT] = draft


class SignOut(LogoutView):
    """Ends the session. POST only, so that a link can't sign anybody out."""

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        response = super().post(request, *args, **kwargs)
        messages.success(request, "You are signed out.")
        return response


# --- Preferences ----------------------------------------------------------------------------------------


def theme_of(request: HttpRequest) -> Theme:
    """The theme that the person chose in this browser; the system's unless they chose."""
    chosen = request.COOKIES.get(THEME_COOKIE)
    return next((theme for theme in THEMES if theme == chosen), "system")


@require_GET
def preferences(request: HttpRequest) -> HttpResponse:
    """Show what can be set: the theme in this browser, and the keyboard shortcuts with their off switch."""
    if isinstance(request.user, Person):
        # So that the navigation counts their open cases, as on every page.
        request.teams = access.teams_of(request.user)  # type: ignore[attr-defined]
    response = render(request, "preferences.html", {"themes": THEMES})
    response["Cache-Control"] = "no-store"
    return response


@require_POST
def set_theme(request: HttpRequest) -> HttpResponse:
    """Keep the theme in this browser and the shortcuts switch with the person, and go back."""
    target = request.POST.get("next", "")
    if not url_has_allowed_host_and_scheme(
        target, allowed_hosts={request.get_host()}, require_https=request.is_secure()
    ):
        target = resolve_url(settings.LOGIN_REDIRECT_URL)
    response = HttpResponseRedirect(target)
    theme = request.POST.get("theme")
    if theme in THEMES:
        _keep(response, THEME_COOKIE, theme)
    times = request.POST.get("times")
    if times in {"utc", "own"}:
        _keep(response, TIMES_COOKIE, times)
    shortcuts = request.POST.get("shortcuts")
    if shortcuts in {"on", "off"} and isinstance(request.user, Person):
        Person.objects.filter(pk=request.user.pk).update(shortcuts=shortcuts)
    return response


def _keep(response: HttpResponse, name: str, value: str) -> None:
    response.set_cookie(
        name,
        value,
        max_age=PREFERENCE_SECONDS,
        secure=settings.SESSION_COOKIE_SECURE,
        httponly=True,
        samesite="Lax",
    )


@require_safe
def live(request: HttpRequest) -> HttpResponse:
    """Answer 204, or 401 without a session: so the page's indicator knows what a form would meet now."""
    status = 204 if request.user.is_authenticated else 401
    return HttpResponse(status=status, headers={"Cache-Control": "no-store"})
