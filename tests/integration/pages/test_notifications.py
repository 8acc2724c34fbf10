"""The notifications' pages: who sees which messages, who sets what, and nothing of another team."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client

from console.models import Person, Role
from console.notification_models import Channel, Message
from console.notifying.senders import Taken
from tests import cases, factories, notified
from tests.integration.pages.conftest import Login
from tests.integration.pages.forms import page_of

LIST, SETTINGS = "/notifications/", "/notifications/settings/"
ADD, OWN = f"{SETTINGS}channels/", f"{SETTINGS}own/"

pytestmark = pytest.mark.django_db


@pytest.fixture
def admin(login: Login) -> Client:
    return login(Role.ADMINISTRATOR)


@pytest.fixture
def maya(login: Login) -> Client:
    client = login(Role.OPERATOR, name="maya")
    Person.objects.filter(username="maya").update(email="maya@example.com", first_name="Maya")
    return client


@pytest.fixture
def told(maya: Client) -> cases.Opened:
    opened, conflict = cases.needs_decision(), cases.needs_decision()
    notified.every_state(case=opened.case, conflict=conflict.case, person=Person.objects.get(username="maya"))
    return opened


def rows(client: Client, path: str = LIST) -> list[tuple[str, str, str]]:
    return [(row.to, row.badge.word, row.why) for row in page_of(client, path).rows]


def test_an_administrator_sees_what_came_of_each_message_and_why(admin: Client, told: cases.Opened) -> None:
    assert sorted(rows(admin)) == [
        ("Maya", "Delivered", ""),
        ("Maya", "Given up", notified.GONE.because),
        ("payments@example.com", "Delivered", ""),
        ("payments@example.com", "Given up", notified.GONE.because),
        ("payments@example.com", "Not delivered yet", notified.REFUSED.because),
    ]
    assert len(rows(admin, f"{LIST}?view=undelivered")) == 3
    page = page_of(admin, LIST)
    assert page.waiting.startswith("2 notifications not in a message yet")
    assert page.rows[0].lines[0].href == f"/cases/{told.case_id}/"
    # People are named, not their addresses.
    assert "maya@example.com" not in admin.get(LIST).content.decode()


def test_others_see_their_own_messages_and_have_none_sent_again(
    login: Login, maya: Client, told: cases.Opened
) -> None:
    assert {to for to, *_ in rows(maya)} == {"You"}
    assert not [row for row in page_of(maya, LIST).rows if row.retry_href]
    assert rows(login(Role.OPERATOR)) == []
    failed = Message.objects.filter(state="failed").first()
    assert failed is not None
    answer = maya.post(f"{LIST}{failed.pk}/retry/")
    assert answer.status_code == 403
    assert "administrators say whom a team tells" in answer.content.decode()
    assert Message.objects.get(pk=failed.pk).state == "failed"


def test_an_administrator_has_a_message_sent_again_and_a_delivered_one_is_left(
    admin: Client, told: cases.Opened
) -> None:
    failed = Message.objects.filter(state="failed").first()
    assert failed is not None
    assert admin.post(f"{LIST}{failed.pk}/retry/").status_code == 302
    again = Message.objects.get(pk=failed.pk)
    assert (again.state, again.ended_at) == ("waiting", None)
    sent = Message.objects.filter(state="sent").first()
    assert sent is not None
    answer = admin.post(f"{LIST}{sent.pk}/retry/", follow=True)
    assert "isn’t sent a second time" in answer.content.decode()
    assert Message.objects.get(pk=sent.pk).state == "sent"


def test_nothing_offers_to_send_where_nothing_can_be_sent_and_no_attempt_is_announced_for_the_past(
    admin: Client, told: cases.Opened, settings: Any
) -> None:
    Message.objects.filter(state="waiting").update(next_attempt_at=datetime.now(UTC) - timedelta(hours=1))
    settings.RECOURSE_MAIL_CONFIGURED = True
    waiting = [row for row in page_of(admin, LIST).rows if row.badge.word == "Not delivered yet"]
    assert [(row.due, row.next_attempt_at, bool(row.retry_href)) for row in waiting] == [(True, None, True)]
    assert "the next one is due" in admin.get(LIST).content.decode()
    settings.RECOURSE_MAIL_CONFIGURED, settings.RECOURSE_NOTIFY_WEBHOOKS = False, {}
    page = page_of(admin, LIST)
    assert page.banner is not None
    assert not [row for row in page.rows if row.retry_href]


def test_another_team_s_messages_and_channels_are_not_there(login: Login, told: cases.Opened) -> None:
    outsider = login(Role.ADMINISTRATOR, name="out", team="other")
    assert rows(outsider) == []
    assert page_of(outsider, SETTINGS).channels == ()
    message, channel = Message.objects.first(), Channel.objects.get(team=factories.TEAM)
    assert message is not None
    assert outsider.post(f"{LIST}{message.pk}/retry/").status_code == 404
    assert outsider.post(f"{ADD}{channel.pk}/", {"state": "removed"}).status_code == 404
    refused = outsider.post(
        ADD, {"team": factories.TEAM, "email": "x@example.com", "happenings": ["conflict"]}
    )
    assert refused.status_code == 404
    assert Channel.objects.get(team=factories.TEAM).state == "on"


def test_a_long_list_goes_on_where_the_page_before_ended(admin: Client) -> None:
    opened = cases.needs_decision()
    notified.mailbox()
    notified.message(opened.case, Taken(), mark="0")
    first = Message.objects.get()
    Message.objects.bulk_create(
        Message(
            id=f"msg_{number:03}",
            channel=first.channel,
            team=first.team,
            subject="s",
            content=first.content,
            count=1,
            state="sent",
            made_at=first.made_at,
            tried_from_at=first.made_at,
            ended_at=first.made_at,
        )
        for number in range(60)
    )
    seen, path = [], LIST
    while True:
        page = page_of(admin, path)
        seen += [row.message_id for row in page.rows]
        if page.next is None:
            break
        path = f"{LIST}{page.next.href}"
    assert len(seen) == len(set(seen)) == 61
    assert admin.get(f"{LIST}?after=nonsense").status_code == 400


def test_a_person_says_what_they_are_told_and_hears_nothing_before(maya: Client) -> None:
    assert not [one for one in page_of(maya, SETTINGS).own if one.chosen]
    assert maya.post(OWN, {"happenings": ["conflict", "key_ends_soon", "made_up"]}).status_code == 302
    assert [one.value for one in page_of(maya, SETTINGS).own if one.chosen] == ["key_ends_soon", "conflict"]
    assert maya.post(OWN, {}).status_code == 302
    channel = Channel.objects.get(person__username="maya")
    assert (channel.state, channel.happenings) == ("off", [])


def test_whoever_has_no_address_is_told_so_and_nothing_is_kept(login: Login) -> None:
    client = login(Role.OPERATOR)
    assert page_of(client, SETTINGS).own_href == ""
    answer = client.post(OWN, {"happenings": ["conflict"]})
    assert answer.status_code == 422
    assert "no e-mail address" in answer.content.decode()
    assert not Channel.objects.exists()


@pytest.mark.parametrize(
    ("sent", "status", "said"),
    [
        ({"email": "x@example.com"}, 422, "Choose what it hears of"),
        ({"email": "nobody", "happenings": ["conflict"]}, 422, "Write one e-mail address"),
        ({"webhook": "unknown", "happenings": ["conflict"]}, 422, "Choose one of the webhooks"),
        ({"webhook": "w", "email": "x@example.com", "happenings": ["conflict"]}, 422, "not both"),
        ({"email": "payments@example.com", "happenings": ["conflict"]}, 409, "tells payments@example.com"),
    ],
)
def test_a_channel_that_cannot_be_is_refused_and_what_was_typed_stays(
    admin: Client, sent: dict[str, Any], status: int, said: str
) -> None:
    notified.mailbox()
    answer = admin.post(ADD, {"team": factories.TEAM, **sent})
    assert answer.status_code == status
    text = answer.content.decode()
    assert said in text
    form = answer.context["page"].form
    assert form.email == sent.get("email", "")
    assert [one.value for one in form.choices if one.chosen] == sent.get("happenings", [])
    assert Channel.objects.count() == 1


def test_an_administrator_changes_switches_off_and_removes_what_a_team_tells(
    admin: Client, login: Login
) -> None:
    sent = {"team": factories.TEAM, "email": "ops@example.com", "happenings": ["conflict"]}
    assert admin.post(ADD, sent).status_code == 302
    channel = Channel.objects.get()
    path = f"{ADD}{channel.pk}/"
    assert admin.post(path, {"state": "on"}).status_code == 422
    assert admin.post(path, {"state": "on", "happenings": ["breaker_open"]}).status_code == 302
    assert Channel.objects.get().happenings == ["breaker_open"]
    operator = login(Role.OPERATOR)
    shown = page_of(operator, SETTINGS)
    assert (shown.channels[0].href, shown.form) == ("", None)
    assert operator.post(path, {"state": "removed"}).status_code == 403
    for state in ("off", "removed"):
        assert admin.post(path, {"state": state, "happenings": ["conflict"]}).status_code == 302
        assert Channel.objects.get().state == state
    assert admin.post(path, {"state": "on", "happenings": ["conflict"]}).status_code == 404
    assert page_of(admin, SETTINGS).channels == ()


def test_the_pages_cost_few_queries_however_much_there_is(
    admin: Client, told: cases.Opened, django_assert_max_num_queries: Any
) -> None:
    for path in (LIST, SETTINGS):
        with django_assert_max_num_queries(12):
            assert admin.get(path).status_code == 200
