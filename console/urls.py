"""Every address of the console."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, include, path

from console.pages import problems

urlpatterns: list[URLPattern | URLResolver] = [
    path("", include("console.pages.urls")),
]

handler400 = problems.bad_request
handler403 = problems.forbidden
handler404 = problems.not_found
handler500 = problems.server_error
