"""Every template with sample shapes, served without a database: to look at, and to check.

`python -m tests.browser.preview serve` serves them on a free port; `… shots FOLDER` saves screenshots of
each at 1440 and 390 px, light and dark.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")
    import django

    django.setup()

from django.core.wsgi import get_wsgi_application
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.test import override_settings
from django.urls import include, path

from console.pages import problems
from console.pages.session import theme_of
from tests.browser import preview_shapes as samples

WIDTHS = (1440, 390)
THEMES = ("light", "dark")

# Name of the preview → template and its sample.
PAGES: dict[str, tuple[str, Any]] = {
    "queue": ("queue.html", samples.QUEUE),
    "queue_empty": ("queue.html", samples.QUEUE_EMPTY),
    "case": ("case.html", samples.CASE_PAGE),
    "case_conflict": ("case.html", samples.CASE_DRAFT),
    "case_errors": ("case.html", samples.CASE_ERRORS),
    "case_looking": ("case.html", samples.CASE_LOOKING),
    "case_news": ("case.html", samples.CASE_NEWS),
    "case_resolved": ("case.html", samples.CASE_RESOLVED),
    "case_decide": ("case_decide.html", samples.REVIEW),
    "case_decide_danger": ("case_decide.html", samples.REVIEW_DANGER),
    "run_list": ("run_list.html", samples.RUNS),
    "run": ("run.html", samples.RUN_PAGE),
    "effects": ("effects.html", samples.EFFECTS),
    "search": ("search.html", samples.SEARCH),
    "search_empty": ("search.html", samples.SEARCH_EMPTY),
    "preferences": ("preferences.html", None),
    "login": ("registration/login.html", None),
    "session_ended": ("registration/login.html", None),
    "400": ("", problems.bad_request),
    "403": ("", problems.forbidden),
    "403_csrf": ("", problems.csrf_failure),
    "404": ("", problems.not_found),
    "500": ("", problems.server_error),
}
_SECTIONS = {"run_list": "runs", "run": "runs", "effects": "effects"}


def show(request: HttpRequest, name: str) -> HttpResponse:
    """Render one preview; the theme comes from the cookie, as it does for people."""
    if name not in PAGES:
        raise Http404
    template, page = PAGES[name]
    if callable(page):
        answer: HttpResponse = page(request)
        return answer
    signed_in = name not in {"login", "session_ended"}
    frame = samples.shell(
        theme=theme_of(request),
        section=_SECTIONS.get(name, "queue"),
        **({} if signed_in else {"viewer": None}),
    )
    context = {
        "page": page,
        "shell": frame,
        "session_ended": name == "session_ended",
        "kept": True,
        "target": "/preview/case/",
    }
    # What htmx asks for, as the real views answer it.
    if template == "case_decide.html" and request.headers.get("HX-Request"):
        template = "case_decide.html#sheet"
    elif request.GET.get("part") in {"news", "live"}:
        template = f"{template}#{request.GET['part']}"
    return render(request, template, context)


def there(_request: HttpRequest) -> HttpResponse:
    """The page's own question whether the console is there, without anybody signed in."""
    return HttpResponse(status=204)


urlpatterns = [
    path("live/", there),
    path("preview/<str:name>/", show),
    path("", include("console.pages.urls")),
]
handler404 = problems.not_found


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        pass


@contextmanager
def serve() -> Iterator[str]:
    """Serve the previews on a free port of the loopback address; gives the base URL."""
    with override_settings(
        ROOT_URLCONF=__name__,
        # Static files come from the source tree; WhiteNoise warns of a collected folder that isn't there.
        STATIC_ROOT=None,
        SESSION_COOKIE_SECURE=False,
        CSRF_COOKIE_SECURE=False,
        CSRF_COOKIE_NAME="csrf_preview",
    ):
        server = make_server(
            "127.0.0.1", 0, get_wsgi_application(), server_class=_Server, handler_class=_Quiet
        )
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            server.server_close()
            thread.join(timeout=5)


def shots(folder: Path, names: list[str]) -> None:
    """Save a screenshot of each preview at both widths, in both themes."""
    from tests import chromium

    folder.mkdir(parents=True, exist_ok=True)
    with serve() as base, chromium.launched(chromium.executable()) as browser:
        for width in WIDTHS:
            for theme in THEMES:
                context = browser.new_context(viewport={"width": width, "height": 1000}, color_scheme=theme)
                page = chromium.new_page(context)
                page.clock.install(time=samples.NOW)
                for name in names:
                    page.goto(f"{base}/preview/{name}/")
                    page.wait_for_timeout(150)
                    page.screenshot(path=folder / f"{name}-{theme}-{width}.png", full_page=True)
                context.close()


def main(arguments: list[str]) -> None:
    """Serve until interrupted, or save screenshots."""
    if arguments[:1] == ["shots"]:
        shots(Path(arguments[1]), arguments[2:] or list(PAGES))
        return
    with serve() as base:
        print("\n".join(f"{base}/preview/{name}/" for name in PAGES))
        while True:
            time.sleep(3600)


if __name__ == "__main__":
    # Imported again under its own name: the URL configuration is this module.
    from tests.browser.preview import main as run

    run(sys.argv[1:])
