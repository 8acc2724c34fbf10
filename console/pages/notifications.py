"""Notifications: what was told outside the console and what wasn't, and who is told of what."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.shortcuts import render
from django.urls import reverse

from console.access import Deed
from console.notification_models import ADDRESS_LENGTH, ChannelState, Happening, Medium
from console.notifying import channels, delivering
from console.notifying.channels import ChannelsFull, ChannelTaken
from console.pages.drafts import shown_facts
from console.pages.forms import clean
from console.pages.guards import Viewer, is_given_back, page
from console.pages.present.notifications import notification_list_page, notification_settings_page
from console.pages.shapes import Banner, FieldError
from console.queries.notifications import Asked, Reach, View, list_messages, read_channels
from runs.ids import could_be_id
from runs.locking import database_now
from runs.refusals import Invalid

_FIELDS = {"team": 100, "email": ADDRESS_LENGTH + 1, "webhook": ADDRESS_LENGTH}


@page("GET", "HEAD")
def notification_list(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """List messages, newest first: an administrator sees their teams', everybody else their own."""
    return _list(request, viewer)


@page("POST")
def notification_retry(request: HttpRequest, viewer: Viewer, message_id: str) -> HttpResponse:
    """Have a message tried at once."""
    why_not = viewer.why_not(Deed.SET_NOTIFICATIONS)
    if why_not:
        return _list(request, viewer, banner=_refused(why_not), status=403)
    known = message_id if could_be_id(message_id) else ""
    message = delivering.try_again(message_id=known, teams=viewer.teams, actor=viewer.actor)
    if message.ended_at is None:
        messages.success(request, "It is sent in a few seconds. What comes of it shows here.")
    else:
        messages.info(request, "It was delivered meanwhile, so it isn’t sent a second time.")
    return HttpResponseRedirect(reverse("notification_list"))


@page("GET", "HEAD")
def notification_settings(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """Show who is told of what."""
    return _settings(request, viewer)


@page("POST")
def notification_own(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """Keep what this person wants to hear of."""
    chosen = _happenings(request.POST)
    try:
        channels.set_own(person=viewer.person, happenings=chosen)
    except Invalid as refusal:
        return _settings(request, viewer, banner=_refused(refusal.sentence), status=422)
    messages.success(
        request, "Saved. It counts from now on." if chosen else "Saved. You are told nothing by mail."
    )
    return HttpResponseRedirect(reverse("notification_settings"))


@page("POST", gives_back=True)
def notification_channel_add(request: HttpRequest, viewer: Viewer) -> HttpResponse:
    """Tell a team's mailbox or webhook."""
    draft = {
        name: clean(request.POST[name])[:length] for name, length in _FIELDS.items() if name in request.POST
    }
    if is_given_back(request):
        return _settings(request, viewer, draft=draft)
    why_not = viewer.why_not(Deed.SET_NOTIFICATIONS)
    if why_not:
        return _settings(request, viewer, draft=draft, banner=_refused(why_not), status=403)
    webhook = draft.get("webhook", "")
    if webhook and draft.get("email", "").strip():
        error = FieldError(field="email", sentence="Write an e-mail address or choose a webhook, not both")
        return _settings(request, viewer, draft=draft, errors=(error,), status=422)
    try:
        channels.add(
            team=draft.get("team", ""),
            teams=viewer.teams,
            medium=Medium.WEBHOOK if webhook else Medium.EMAIL,
            address=webhook or draft.get("email", ""),
            happenings=_happenings(request.POST),
            actor=viewer.actor,
        )
    except Invalid as refusal:
        where = str(refusal.details.get("where", "email"))
        error = FieldError(
            field="new-happenings" if where == "happenings" else where, sentence=refusal.sentence
        )
        return _settings(request, viewer, draft=draft, errors=(error,), status=422)
    except (ChannelTaken, ChannelsFull) as refusal:
        return _settings(request, viewer, draft=draft, banner=_refused(refusal.sentence), status=409)
    messages.success(request, "Saved. It is told what happens from now on.")
    return HttpResponseRedirect(reverse("notification_settings"))


@page("POST")
def notification_channel(request: HttpRequest, viewer: Viewer, channel_id: str) -> HttpResponse:
    """Change what a team's channel hears of, switch it off, or remove it."""
    why_not = viewer.why_not(Deed.SET_NOTIFICATIONS)
    if why_not:
        return _settings(request, viewer, banner=_refused(why_not), status=403)
    wanted = request.POST.get("state", "")
    if wanted not in set(ChannelState):
        raise Invalid("The form doesn’t say what is to become of the channel.", where="state")
    try:
        channels.change(
            channel_id=channel_id if could_be_id(channel_id) else "",
            teams=viewer.teams,
            happenings=_happenings(request.POST),
            state=ChannelState(wanted),
            actor=viewer.actor,
        )
    except Invalid as refusal:
        return _settings(request, viewer, banner=_refused(refusal.sentence), status=422)
    messages.success(request, "Saved. It counts from now on.")
    return HttpResponseRedirect(reverse("notification_settings"))


def _happenings(sent: QueryDict) -> list[Happening]:
    wanted = set(sent.getlist("happenings"))
    return [one for one in Happening if str(one) in wanted]


def _refused(sentence: str) -> Banner:
    return Banner(tone="red", icon="octagon-x", title=("Nothing was changed.",), text=(sentence,), focus=True)


def _list(
    request: HttpRequest, viewer: Viewer, *, banner: Banner | None = None, status: int = 200
) -> HttpResponse:
    view = request.GET.get("view", "")
    asked = Asked(
        view=View(view) if view in set(View) else View.ALL,
        after=request.GET.get("after", ""),
    )
    own_only = bool(viewer.why_not(Deed.SET_NOTIFICATIONS))
    reach = Reach(teams=viewer.teams, person_id=viewer.person.pk, own_only=own_only)
    shown = notification_list_page(
        list_messages(reach=reach, asked=asked),
        asked,
        own_only=own_only,
        person_id=viewer.person.pk,
        banner=banner,
    )
    return render(request, "notification_list.html", {"page": shown}, status=status)


def _settings(
    request: HttpRequest,
    viewer: Viewer,
    *,
    draft: dict[str, str] | None = None,
    errors: tuple[FieldError, ...] = (),
    banner: Banner | None = None,
    status: int = 200,
) -> HttpResponse:
    shown = notification_settings_page(
        read_channels(person_id=viewer.person.pk, teams=viewer.teams),
        now=database_now(),
        person=viewer.person,
        why_not=viewer.why_not(Deed.SET_NOTIFICATIONS),
        draft=draft or {},
        drafted=[str(one) for one in _happenings(request.POST)] if draft is not None else (),
        errors=errors,
        banner=banner,
    )
    typed_kept = shown_facts(request.POST) if draft is not None and shown.form is None else ()
    return render(
        request, "notification_settings.html", {"page": shown, "typed_kept": typed_kept}, status=status
    )
