"""Who is told of what outside the console: once, in few messages, only who may see it, none lost."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from datetime import timedelta
from typing import Any

import pytest
from django.core import mail
from django.db.models import F

from console import access, following
from console.models import Person, Role
from console.notification_models import (
    Channel,
    ChannelState,
    Happening,
    Medium,
    Message,
    Notification,
    NotificationProgress,
    Occurrence,
)
from console.notifying import channels, delivering, occurring, packing
from console.notifying.channels import ChannelsFull, ChannelTaken
from console.notifying.destinations import read_webhooks
from reconciliation import admission, approvals, breaking
from reconciliation.approval_models import ApprovalRequest
from reconciliation.models import Case
from reconciliation.states import Action
from reconciliation.working import Worker
from runs import account_access
from runs.actors import Actor, ActorKind
from runs.locking import database_now
from runs.models import AuditLeaf
from runs.refusals import Invalid, NotFound
from tests import cases, cases_world, factories
from tests.contract.fault_server import Conversation, FaultServer, http_answer
from tests.contract.peers.mail import MailServer

pytestmark = pytest.mark.usefixtures("transactional_db")
ADMIN = Actor(ActorKind.PERSON, "person:99", "administrator")
ALL = tuple(Happening)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    monkeypatch.setattr(following, "SETTLE_SECONDS", 0)
    monkeypatch.setattr(packing, "GATHER", timedelta())
    settings.RECOURSE_PUBLIC_URL = "https://recourse.example"
    settings.RECOURSE_MAIL_CONFIGURED = True


def begin() -> None:
    """What is in the log before is history: nobody is told of it."""
    occurring.note(now=database_now())


def note() -> None:
    """Note everything there is: one pass sees how far that is, the next goes there."""
    latest = AuditLeaf.objects.order_by("-id").values_list("pk", flat=True).first() or 0
    until = time.monotonic() + 60
    while True:
        occurring.note(now=database_now())
        if NotificationProgress.objects.filter(through_leaf__gte=latest).exists():
            return
        assert time.monotonic() < until, "the log never settled"
        time.sleep(0.02)


def told() -> list[tuple[str, str]]:
    return sorted(Occurrence.objects.values_list("happening", "subject"))


def somebody(name: str = "maya", *, team: str = factories.TEAM, **fields: Any) -> Person:
    person = Person.objects.create(
        username=name, email=f"{name}@example.com", **{"roles": [str(Role.OPERATOR)], **fields}
    )
    person.teams.add(factories.make_team(team))
    channels.set_own(person=person, happenings=ALL)
    return person


def mailbox(address: str = "payments@example.com", *, team: str = factories.TEAM) -> Channel:
    factories.make_team(team)
    return channels.add(
        team=team, teams=[team], medium=Medium.EMAIL, address=address, happenings=ALL, actor=ADMIN
    )


def deliver() -> list[Any]:
    packing.pack(now=database_now())
    delivering.deliver()
    sent, mail.outbox[:] = list(mail.outbox), []
    return sent


# --- What happened --------------------------------------------------------------------------------------


def test_a_case_that_comes_to_people_is_told_of_once_however_often_it_is_looked_for() -> None:
    begin()
    mailbox()
    opened = cases.needs_decision()
    note()
    assert told() == [("needs_decision", opened.case_id)]
    # The same stretch of the log again, as after a restore of the progress alone.
    NotificationProgress.objects.update(through_leaf=0)
    note()
    occurring.note(now=database_now())
    assert told() == [("needs_decision", opened.case_id)]
    assert Notification.objects.count() == 1


def test_what_happened_before_anybody_could_be_told_is_not_told() -> None:
    mailbox()
    cases.needs_decision()
    begin()
    note()
    assert told() == []


def test_a_pass_that_dies_has_noted_nothing_and_the_next_notes_everything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begin()
    mailbox()
    opened = cases.needs_decision()
    with monkeypatch.context() as broken:
        broken.setattr(occurring, "_TELL", "SELECT * FROM nowhere WHERE %(occurrences)s = %(roles)s")
        with pytest.raises(Exception, match="nowhere"):
            note()
    assert told() == []
    note()
    assert told() == [("needs_decision", opened.case_id)]


def test_a_conflict_is_told_of_as_one_and_not_as_a_decision_too() -> None:
    begin()
    mailbox()
    opened = cases.open_case()
    cases.looked_up(opened, cases.several(opened))
    note()
    assert told() == [("conflict", opened.case_id)]


@pytest.mark.parametrize(
    ("column", "happening", "inside", "outside"),
    [
        ("key_ends_at", "key_ends_soon", timedelta(minutes=59), timedelta(minutes=61)),
        ("key_ends_at", "key_ends_soon", timedelta(minutes=1), timedelta(seconds=-1)),
        ("decide_by_at", "time_limit_passed", timedelta(seconds=-1), timedelta(minutes=1)),
    ],
)
def test_what_time_brings_about_is_told_of_on_its_side_of_the_limit_alone(
    column: str, happening: str, inside: timedelta, outside: timedelta
) -> None:
    cases_there = {True: cases.needs_decision(), False: cases.needs_decision()}
    begin()
    now = database_now()
    for is_inside, opened in cases_there.items():
        far = {"key_ends_at": now + timedelta(days=2), "decide_by_at": now + timedelta(days=2)}
        at = now + (inside if is_inside else outside)
        Case.objects.filter(pk=opened.case_id).update(**{**far, column: at, "worsens_at": at})
    occurring.note(now=now)
    occurring.note(now=now)
    assert told() == [(happening, cases_there[True].case_id)]


def test_a_breaker_that_opens_is_told_to_teams_with_a_case_there_and_to_no_other() -> None:
    opened = cases.open_case()
    factories.make_team("other")
    mailbox(), mailbox("other@example.com", team="other")
    begin()
    failed = admission.Outcome(verdict=breaking.Verdict.FAILED, because="No connection.")
    for _ in range(breaking.FAILURES_TO_OPEN + 2):
        admission.note(slug=cases.PAYMENTS, claim="", outcome=failed)
    note()
    assert told() == [("breaker_open", cases.PAYMENTS)]
    assert set(Notification.objects.values_list("team_slug", flat=True)) == {opened.case.team_id}
    (sent,) = deliver()
    assert sent.to == ["payments@example.com"]


def test_a_breaker_is_told_to_no_team_that_may_not_use_the_account_any_more() -> None:
    cases.open_case()
    cases.open_case(team="other")
    mailbox(), mailbox("other@example.com", team="other")
    account_access.name_first(account=cases.PAYMENTS, teams=["other"], actor=ADMIN)
    begin()
    failed = admission.Outcome(verdict=breaking.Verdict.FAILED, because="No connection.")
    for _ in range(breaking.FAILURES_TO_OPEN + 2):
        admission.note(slug=cases.PAYMENTS, claim="", outcome=failed)
    note()
    assert set(Notification.objects.values_list("team_slug", flat=True)) == {"other"}


# --- Who hears of it ------------------------------------------------------------------------------------


def test_only_people_of_the_team_with_a_role_and_an_open_login_hear_of_it() -> None:
    begin()
    somebody("maya")
    somebody("robin", team="other")
    somebody("closed", is_active=False)
    somebody("norole", roles=[])
    Person.objects.create(username="never-asked", email="n@example.com", roles=["operator"]).teams.add(
        factories.make_team(factories.TEAM)
    )
    cases.needs_decision()
    note()
    assert [one.to for one in deliver()] == [["maya@example.com"]]


@pytest.mark.parametrize("how", ["disabled", "left", "role", "off"])
def test_who_may_not_hear_of_it_any_more_is_told_nothing_even_of_what_is_packed(how: str) -> None:
    begin()
    person = somebody()
    cases.needs_decision()
    note()
    packing.pack(now=database_now())
    match how:
        case "disabled":
            Person.objects.filter(pk=person.pk).update(is_active=False)
        case "left":
            person.teams.clear()
        case "role":
            Person.objects.filter(pk=person.pk).update(roles=[])
        case "off":
            channels.set_own(person=person, happenings=())
    assert deliver() == []
    message = Message.objects.get()
    assert (message.state, bool(message.because)) == ("dropped", True)


def test_a_channel_hears_of_what_it_chose_and_of_nothing_else() -> None:
    begin()
    channel = mailbox()
    channels.change(
        channel_id=channel.pk,
        teams=[factories.TEAM],
        happenings=[Happening.CONFLICT],
        state=ChannelState.ON,
        actor=ADMIN,
    )
    cases.needs_decision()
    note()
    assert (len(told()), Notification.objects.count()) == (1, 0)


def test_a_request_for_approval_is_told_to_others_than_whoever_asked_and_again_before_it_ends() -> None:
    begin()
    asker = somebody("asker")
    somebody("robin", roles=["approver"])
    opened = cases.needs_decision()
    asked = cases_world.decide(
        opened.case, Action.CONFIRM, actor=access.person_actor(asker), team=factories.TEAM, receipt=None
    )
    note()
    assert ("approval_requested", asked.approval) in told()
    # The case itself was told of before; it waits for the answer now.
    request = ApprovalRequest.objects.get()
    sent = {one.to[0]: one for one in deliver()}
    assert f"https://recourse.example/approvals/{request.pk}/" in sent["robin@example.com"].body
    assert request.pk not in sent["asker@example.com"].body
    for before, heard in ((timedelta(minutes=61), False), (timedelta(minutes=59), True)):
        occurring.note(now=request.expires_at - before)
        assert (("approval_ends_soon", request.pk) in told()) is heard
    approvals.withdraw(
        approval_id=request.pk,
        teams=[factories.TEAM],
        worker=Worker(actor=access.person_actor(asker), name="Asker"),
        comment="It was found meanwhile.",
    )
    assert not [one for one in deliver() if request.pk in one.body]


# --- Messages -------------------------------------------------------------------------------------------


def test_many_at_once_become_one_message_that_names_ids_and_holds_nothing_of_the_effect() -> None:
    begin()
    mailbox()
    opened = [cases.needs_decision(external_id=f"ORD-{number}") for number in range(23)]
    note()
    (sent,) = deliver()
    assert sent.subject == f"[Recourse Development] {factories.TEAM}: 23 cases need a decision"
    assert sent.body.count("https://recourse.example/cases/case_") == 20
    assert "and 3 more" in sent.body
    secret = ["pi_3SxAe70", "ORD-", "1,240", "124000", "rfd_", opened[0].operation.key]
    assert not [word for word in secret if word in sent.body + sent.subject]
    assert Message.objects.get().count == 23
    assert deliver() == []


def test_nobody_gets_more_than_so_many_an_hour_and_what_waits_comes_together(settings: Any) -> None:
    settings.RECOURSE_NOTIFICATIONS_PER_HOUR = 2
    begin()
    mailbox()
    for _ in range(4):
        cases.needs_decision()
        note()
        deliver()
    assert Message.objects.count() == 2
    assert Notification.objects.filter(state="waiting").count() == 2
    Message.objects.update(made_at=F("made_at") - timedelta(minutes=61))
    (sent,) = deliver()
    assert "2 cases need a decision" in sent.subject


def test_what_was_over_before_it_was_told_is_left_out_and_says_so() -> None:
    begin()
    mailbox()
    opened = cases.needs_decision()
    note()
    cases.looked_up(opened, cases.found(opened))
    assert opened.case.state == "resolved"
    assert deliver() == []
    assert Notification.objects.get().state == "overtaken"


# --- Delivery -------------------------------------------------------------------------------------------


def test_a_mail_that_is_not_taken_waits_longer_each_time_keeps_its_id_and_is_given_up_in_sight(
    settings: Any,
) -> None:
    begin()
    mailbox()
    cases.needs_decision()
    note()
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    with MailServer() as server:
        settings.EMAIL_HOST, settings.EMAIL_PORT, settings.EMAIL_USE_TLS = "127.0.0.1", server.port, False
        server.answers["DATA"] = "451 4.3.0 try later, pi_3SxAe70"
        packing.pack(now=database_now())
        waits = []
        for _ in range(4):
            assert delivering.deliver() == (0, 1)
            message = Message.objects.get()
            assert (message.state, message.because) == (
                "waiting",
                "The mail server refused the message (451).",
            )
            assert message.next_attempt_at is not None
            waits.append((message.next_attempt_at - database_now()).total_seconds())
            Message.objects.update(next_attempt_at=database_now())
        assert waits[0] <= 15 < waits[-1] <= 120
        Message.objects.update(tried_from_at=database_now() - delivering.GIVE_UP_AFTER)
        delivering.deliver()
        assert Message.objects.get().state == "failed"
        assert server.kept == []
        # An administrator has it tried anew.
        del server.answers["DATA"]
        administrator = Actor(ActorKind.PERSON, "person:1", "administrator")
        delivering.try_again(
            message_id=Message.objects.get().pk, teams=(factories.TEAM,), actor=administrator
        )
        leaf = AuditLeaf.objects.get(action="notification.retried")
        assert leaf.actor == "person:1"
        assert Message.objects.get().pk.encode() in bytes(leaf.body)
        assert delivering.deliver() == (1, 0)
        (kept,) = server.kept
        assert kept.message_id == f"<{message.pk}@recourse.example>"
    assert (Message.objects.get().state, Message.objects.get().attempts_count) == ("sent", 6)


def test_a_refused_address_is_given_up_at_once_and_a_mail_server_away_is_asked_once_in_a_pass(
    settings: Any,
) -> None:
    begin()
    mailbox("one@example.com"), mailbox("two@example.com")
    cases.needs_decision()
    note()
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    packing.pack(now=database_now())
    with MailServer() as server:
        settings.EMAIL_HOST, settings.EMAIL_PORT, settings.EMAIL_USE_TLS = "127.0.0.1", server.port, False
        server.refused_recipients["one@example.com"] = "550 5.1.1 nobody here"
        assert delivering.deliver() == (1, 1)
    states = dict(Message.objects.values_list("channel__address", "state"))
    assert states == {"one@example.com": "failed", "two@example.com": "sent"}
    # The server is gone now.
    Message.objects.update(
        state="waiting", ended_at=None, next_attempt_at=database_now(), attempts_count=0, because=""
    )
    assert delivering.deliver() == (0, 1)
    assert sorted(Message.objects.values_list("attempts_count", flat=True)) == [0, 1]


def test_a_message_of_a_sender_that_vanished_is_sent_again_when_its_claim_has_ended_and_not_before() -> None:
    begin()
    mailbox()
    cases.needs_decision()
    note()
    packing.pack(now=database_now())
    claimed = delivering._claim(without=set())
    assert claimed is not None
    Message.objects.update(next_attempt_at=database_now())
    assert delivering.deliver() == (0, 0)
    Message.objects.update(claimed_until_at=database_now())
    assert delivering.deliver() == (1, 0)
    # The first comes back late: what it says counts no more.
    delivering._end(claimed, delivering.NotTaken(because="late"))
    assert (Message.objects.get().state, Message.objects.get().because) == ("sent", "")


def test_a_webhook_gets_a_signed_post_that_its_receiver_can_check_and_tell_from_a_second(
    settings: Any,
) -> None:
    bodies: list[bytes] = []
    answers = iter(["503 Service Unavailable", "200 OK"])

    def script(one: Conversation) -> None:
        bodies.append(one.read_request())
        one.send(http_answer(b"ok", status=next(answers), extra="Retry-After: 90\r\n"))

    with FaultServer(script) as server:
        key = base64.b64encode(b"k" * 32).decode()
        settings.RECOURSE_NOTIFY_WEBHOOKS = read_webhooks(
            {
                "NOTIFY_OPS__URL": f"{server.url}/services/T0/B0/secret",
                "NOTIFY_OPS__SECRET": f"whsec_{key}",
                "NOTIFY_OPS__REACH": "loopback",
            }
        )
        begin()
        factories.make_team(factories.TEAM)
        channels.add(
            team=factories.TEAM,
            teams=[factories.TEAM],
            medium=Medium.WEBHOOK,
            address="ops",
            happenings=ALL,
            actor=ADMIN,
        )
        opened = cases.needs_decision()
        note()
        packing.pack(now=database_now())
        assert delivering.deliver() == (0, 1)
        message = Message.objects.get()
        assert message.because == "The webhook answered 503."
        assert message.next_attempt_at is not None
        assert (message.next_attempt_at - database_now()).total_seconds() > 80
        Message.objects.update(next_attempt_at=database_now())
        assert delivering.deliver() == (1, 0)
    sent = [_request(one) for one in bodies]
    assert [headers["webhook-id"] for headers, _ in sent] == [message.pk, message.pk]
    for headers, body in sent:
        signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
        expected = base64.b64encode(hmac.new(b"k" * 32, signed, hashlib.sha256).digest()).decode()
        assert headers["webhook-signature"] == f"v1,{expected}"
        assert abs(int(headers["webhook-timestamp"]) - time.time()) < 60
    assert sent[0][1] == sent[1][1]
    payload = json.loads(sent[0][1])
    assert payload["text"] == message.subject
    assert f"<https://recourse.example/cases/{opened.case_id}/|" in json.dumps(payload["blocks"])


def _request(raw: bytes) -> tuple[dict[str, str], bytes]:
    head, _, body = raw.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")[1:]
    return {name.lower(): value for name, _, value in (one.partition(": ") for one in lines)}, body


def test_a_webhook_reaches_no_address_that_the_environment_did_not_list_it_with(settings: Any) -> None:
    asked: list[bytes] = []
    with FaultServer(lambda one: asked.append(one.read_request())) as server:
        settings.RECOURSE_NOTIFY_WEBHOOKS = read_webhooks(
            {"NOTIFY_OPS__URL": server.url, "NOTIFY_OPS__SECRET": "s" * 32}
        )
        begin()
        factories.make_team(factories.TEAM)
        channels.add(
            team=factories.TEAM,
            teams=[factories.TEAM],
            medium=Medium.WEBHOOK,
            address="ops",
            happenings=ALL,
            actor=ADMIN,
        )
        cases.needs_decision()
        note()
        packing.pack(now=database_now())
        assert delivering.deliver() == (0, 1)
    assert asked == []
    assert Message.objects.get().because == "The webhook wasn’t reached (OutOfReach)."


# --- Whom a team tells ----------------------------------------------------------------------------------


def test_what_a_team_tells_whom_is_in_the_audit_log() -> None:
    channel = mailbox()
    leaf = AuditLeaf.objects.get(action="notification.channel_set")
    event = json.loads(bytes(leaf.body))["event"]
    assert (leaf.actor, leaf.team_slug, event["subject"]) == ("person:99", factories.TEAM, channel.pk)
    assert event["after"]["to"] == "payments@example.com"


def test_channels_that_cannot_be_are_refused_by_name() -> None:
    mailbox()
    with pytest.raises(ChannelTaken):
        mailbox()
    add: dict[str, Any] = {"team": factories.TEAM, "teams": [factories.TEAM], "actor": ADMIN}
    for medium, address, happenings in (
        (Medium.EMAIL, "a@example.com\nBcc: b@example.com", ALL),
        (Medium.EMAIL, "nobody", ALL),
        (Medium.WEBHOOK, "unknown", ALL),
        (Medium.EMAIL, "b@example.com", ()),
    ):
        with pytest.raises(Invalid):
            channels.add(**add, medium=medium, address=address, happenings=happenings)
    with pytest.raises(NotFound):
        channels.add(
            **{**add, "teams": ["other"]}, medium=Medium.EMAIL, address="b@example.com", happenings=ALL
        )
    for number in range(channels.CHANNELS_MAX - 1):
        mailbox(f"{number}@example.com")
    with pytest.raises(ChannelsFull):
        mailbox("one-more@example.com")
    with pytest.raises(Invalid):
        channels.set_own(person=Person.objects.create(username="no-address"), happenings=ALL)


@pytest.mark.parametrize(
    "environ",
    [
        {"NOTIFY_OPS__URL": "ftp://example.com"},
        {"NOTIFY_OPS__URL": "https://example.com/hook", "NOTIFY_OPS__SECRET": "short"},
        {"NOTIFY_OPS__URL": "https://example.com/hook"},
        {"NOTIFY_OPS__URL": "https://example.com/hook", "NOTIFY_OPS__SECRET": "whsec_no base64!"},
        {
            "NOTIFY_OPS__URL": "https://a.example",
            "NOTIFY_OPS__URL_FILE": "/x",
            "NOTIFY_OPS__SECRET": "s" * 32,
        },
        {"NOTIFY_OPS__URL_FILE": "/does/not/exist", "NOTIFY_OPS__SECRET": "s" * 32},
        {"NOTIFY_OPS__URL": "https://a.example", "NOTIFY_OPS__SECRET": "s" * 32, "NOTIFY_OPS__REACH": "any"},
    ],
)
def test_a_webhook_that_could_not_be_sent_to_safely_stops_the_start(environ: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="NOTIFY_OPS__"):
        read_webhooks(environ)
