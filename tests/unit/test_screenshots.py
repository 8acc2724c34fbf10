"""Every page of the console has its picture in `make screenshots`: one that is added has it too."""

from __future__ import annotations

from django.urls import URLPattern, resolve

from console.pages.urls import urlpatterns
from runs.models import Run
from tests import factories
from tests.browser.screenshots import NOT_PICTURED, SIGNED_OUT, pages, pages_of_others
from tests.browser.seeding import Seeded
from tests.cases import Opened

ONE = Opened(factories.Claimed(Run(id="run_1"), "", []), "case_1")
NOTHING = Seeded(
    **dict.fromkeys(
        (
            *("mismatch", "not_found", "no_lookup", "closed_key", "several", "candidate", "looking"),
            *("retrying", "abandoned", "conflict", "absentable", "awaited"),
        ),
        ONE,
    ),
    steps=Run(id="run_1"),
    lists={"one": "bulk_1"},
    requests={"budget": "apr_1"},
)


def opened_by_get() -> set[str]:
    """The names of the addresses that a person's browser can open."""
    views = [one for one in urlpatterns if isinstance(one, URLPattern)]
    # A view that doesn't say its methods is its own: it either opens or takes a form alone.
    only_forms = {"logout", "theme"}
    return {
        str(one.name)
        for one in views
        if "GET" in getattr(one.callback, "page_methods", ("GET",)) and one.name not in only_forms
    }


def pictured() -> set[str]:
    every = [SIGNED_OUT, pages(NOTHING), *pages_of_others(NOTHING).values()]
    return {str(resolve(path.partition("?")[0]).url_name) for one in every for path in one.values()}


def test_every_page_has_a_picture_or_a_reason_to_have_none() -> None:
    assert opened_by_get() - pictured() - set(NOT_PICTURED) == set()


def test_no_reason_is_left_over() -> None:
    assert set(NOT_PICTURED) <= opened_by_get() - pictured()
