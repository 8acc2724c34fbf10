"""Django's admin as a window: administrators look at what they administer, as stored, and change nothing.

What belongs to a team isn't in it: a row of the journal would be shown to every administrator, and with
everything that the console's pages hide. Neither is anything that opens a door: hashes of passwords and
tokens, secrets of second factors, content of sessions.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, ClassVar

from allauth.socialaccount.models import SocialAccount
from allauth.usersessions.models import UserSession
from django.contrib import admin
from django.db.models import Model
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse

from console import access
from console.access import Deed
from console.models import ApiToken, Person
from runs.models import AccountTeam, Flow, FlowVersion, ProviderAccount, Team

if TYPE_CHECKING:
    _ModelAdmin = admin.ModelAdmin[Any]
else:
    _ModelAdmin = admin.ModelAdmin

# Addresses of Django's admin that do something, or that nothing of ours needs.
_NOT_HERE = frozenset(
    {"login", "logout", "password_change", "password_change_done", "view_on_site", "autocomplete"}
)


class Window(admin.AdminSite):
    """The site: for administrators alone, signed in as everywhere."""

    site_header = "Recourse: what is stored"
    site_title = "Recourse"
    index_title = "Read-only"
    site_url = "/people/"
    enable_nav_sidebar = False

    def has_permission(self, request: HttpRequest) -> bool:
        return isinstance(request.user, Person) and access.may(request.user, Deed.ADMINISTER)

    def admin_view(self, view: Any, cacheable: bool = False) -> Any:
        """There is one way in; who came in and is no administrator finds nothing here."""
        inner = super().admin_view(view, cacheable)

        @wraps(view)
        def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
            if self.has_permission(request):
                response: HttpResponse = inner(request, *args, **kwargs)
                return response
            if request.user.is_authenticated:
                raise Http404
            return HttpResponseRedirect(reverse("login", query={"next": request.get_full_path()}))

        return guarded

    def get_urls(self) -> list[Any]:
        return [one for one in super().get_urls() if getattr(one, "name", None) not in _NOT_HERE]


class ReadOnly(_ModelAdmin):
    """One kind of row: seen, and never added, changed or deleted."""

    actions = None
    show_full_result_count = False
    list_per_page = 50
    hidden: ClassVar[tuple[str, ...]] = ()

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return window.has_permission(request)

    def has_module_permission(self, request: HttpRequest) -> bool:
        return window.has_permission(request)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def get_exclude(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        return self.hidden


class People(ReadOnly):
    hidden = ("password", "groups", "user_permissions", "is_staff", "is_superuser")
    list_display = ("username", "first_name", "roles", "is_active", "last_login")


class Tokens(ReadOnly):
    hidden = ("secret_sha256",)
    list_display = ("id", "name", "team", "scopes", "expires_at", "revoked_at", "last_used_at")


class Sessions(ReadOnly):
    # The key is the session; whoever has it is that person.
    hidden = ("session_key", "data")
    list_display = ("user", "ip", "last_seen_at")


class Links(ReadOnly):
    hidden = ("extra_data",)
    list_display = ("user", "provider", "uid")


window = Window(name="admin")
_SHOWN: tuple[tuple[type[Model], type[ReadOnly]], ...] = (
    (Person, People),
    (ApiToken, Tokens),
    (UserSession, Sessions),
    (SocialAccount, Links),
    (Team, ReadOnly),
    (Flow, ReadOnly),
    (FlowVersion, ReadOnly),
    (ProviderAccount, ReadOnly),
    (AccountTeam, ReadOnly),
)
for _model, _shown in _SHOWN:
    window.register(_model, _shown)
