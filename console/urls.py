"""Every address of the console."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, URLResolver, include, path

from console import admin_window, health, metrics, webhooks
from console.api import assembly
from console.api import problems as api_problems
from console.pages import problems

urlpatterns: list[URLPattern | URLResolver] = [
    # Before the API's own addresses: no token is asked for here, the signature is what counts.
    path(
        f"{assembly.ROOT.removeprefix('/')}providers/<id:account>/webhook", webhooks.receive, name="webhook"
    ),
    path(assembly.ROOT.removeprefix("/"), include("console.api.assembly")),
    path("healthz", health.healthz, name="healthz"),
    path("readyz", health.readyz, name="readyz"),
    path("metrics", metrics.metrics, name="metrics"),
    path("problems/", api_problems.explain_all, name="problem_list"),
    path("problems/<str:word>", api_problems.explain, name="problem"),
    path("admin/", admin_window.window.urls),
    path("", include("console.pages.urls")),
]


def _page_or_document(
    page: Callable[..., HttpResponse], word: str, sentence: str
) -> Callable[..., HttpResponse]:
    """A page for people; for whoever called the API, what every other refusal there looks like."""

    @wraps(page)
    def answer(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if request.path.startswith(assembly.ROOT):
            return api_problems.problem(word, sentence)
        return page(request, *args, **kwargs)

    return answer


handler400 = _page_or_document(
    problems.bad_request, "bad_request", "The head of this request can't be taken."
)
handler403 = problems.forbidden
# allauth looks for it here.
handler429 = problems.too_many_requests
handler404 = _page_or_document(problems.not_found, "not_found", "There is no such address in this API.")
handler500 = _page_or_document(
    problems.server_error,
    "internal_error",
    "Recourse failed on this call; whether it was carried out isn't known.",
)
