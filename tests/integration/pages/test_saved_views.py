"""Saved views of the queue: kept, shared, limited, refused by name, and never a door to another team."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.test import Client

from console import saved_views
from console.models import Person, Role, SavedView, ViewReach
from console.pages.present.saved_views import SHARED_PREFIX
from runs.ids import new_id
from tests import cases, factories
from tests.cases import Effect
from tests.integration.pages.conftest import Login
from tests.integration.pages.forms import page_of

QUERY = "tool=place_order&min=100"
SHARED = f"{SHARED_PREFIX}{factories.TEAM}"


def save(client: Client, name: str, *, reach: str = "private", query: str = QUERY) -> Any:
    return client.post("/queue/views/", {"name": name, "reach": reach, "query": query})


def names(client: Client) -> list[str]:
    return [row.name for row in page_of(client, "/").saved.rows]


def test_a_view_is_saved_followed_and_taken_away(login: Login) -> None:
    client = login(Role.OPERATOR)
    cases.needs_decision()
    order = cases.needs_decision(Effect(tool="place_order", provider=cases.SUPPLIER, minor=20_000))
    assert page_of(client, "/").saved.save_href == "", "a list narrowed by nothing offers nothing to save"
    offered = page_of(client, f"/?{QUERY}").saved
    assert save(client, "  Large   orders ", query=offered.query).headers["Location"] == f"/?{QUERY}"
    (row,) = page_of(client, f"/?{QUERY}").saved.rows
    assert (row.name, row.current) == ("Large orders", True)
    page = page_of(client, row.href)
    assert [one.case_id for group in page.groups for one in group.rows] == [order.case_id]
    assert client.post(row.remove_href).status_code == 302
    assert names(client) == []


def test_a_private_view_is_its_owners_alone_and_a_shared_one_its_teams(login: Login) -> None:
    robin = login(Role.OPERATOR, name="robin")
    save(robin, "Mine")
    save(robin, "Ours", reach=SHARED)
    assert names(robin) == ["Mine", "Ours"]
    colleague = login(Role.VIEWER, name="kim")
    assert names(colleague) == ["Ours"]
    stranger = login(Role.OPERATOR, name="stranger", team="other")
    assert names(stranger) == []
    view = SavedView.objects.get(name="Ours")
    path = f"/queue/views/{view.pk}/removal/"
    assert stranger.post(path).status_code == 404
    refused = colleague.post(path)
    assert refused.status_code == 403
    assert "shared by robin" in refused.content.decode()
    assert SavedView.objects.filter(pk=view.pk).exists()
    assert login(Role.ADMINISTRATOR, name="admin").post(path).status_code == 302
    assert names(robin) == ["Mine"]


def test_a_refused_view_keeps_what_was_typed_and_says_why(
    login: Login, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = login(Role.OPERATOR)
    save(client, "Large")
    taken = save(client, "LARGE")
    assert taken.status_code == 409
    saved = taken.context["page"].saved
    assert (saved.name, saved.query) == ("LARGE", QUERY)
    assert "You have a view named “LARGE” already" in saved.refusal
    assert save(client, "Large", reach=SHARED).status_code == 302, "a shared name is another name"
    for name, query in ((" ", QUERY), ("x" * 41, QUERY), ("a\u200bb", QUERY), ("Empty", "after=x&min=none")):
        assert save(client, name, query=query).status_code == 422, name
    assert save(client, "Theirs", reach=f"{SHARED_PREFIX}other").status_code == 422
    monkeypatch.setattr(saved_views, "PRIVATE_MAX", 1)
    full = save(client, "One more")
    assert full.status_code == 409
    assert "You keep 1 views" in full.content.decode()
    assert SavedView.objects.count() == 2


def test_a_view_keeps_nothing_but_what_the_queue_understands(login: Login) -> None:
    client = login(Role.OPERATOR)
    save(client, "<b>x</b>", query=f"{QUERY}&after=abc&next=//evil.example&age=%00&tool=a")
    assert SavedView.objects.get().query == "tool=a&min=100"
    assert "<b>x</b>" not in client.get("/").content.decode()


def test_the_database_refuses_a_second_view_of_a_name(login: Login) -> None:
    login(Role.OPERATOR, name="robin")
    robin = Person.objects.get(username="robin")
    row = {"owner": robin, "query": "q=x", "reach": ViewReach.PRIVATE}
    SavedView.objects.create(id=new_id("view"), name="Twice", **row)
    for change in ({"name": "twice"}, {"name": "Shared by nobody", "reach": ViewReach.SHARED}):
        with pytest.raises(IntegrityError), transaction.atomic():
            SavedView.objects.create(id=new_id("view"), **{**row, **change})
