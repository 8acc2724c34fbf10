"""The words of a message: what happened, about which case, until when; and nothing that an effect holds.

Ids, the account's title, the kind and the time: no payload, no amount, no provider's answer, no name that an
agent chose. What leaves the console is read in places that keep it, by people whose access ends elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from django.conf import settings
from django.urls import reverse

from console.notification_models import SUBJECT_LENGTH, Happening, Occurrence

# More lines are counted, not listed: the queue lists them.
LINES_MAX: Final = 20
TITLE_LENGTH_MAX: Final = 60

LABELS: Final[dict[Happening, str]] = {
    Happening.NEEDS_DECISION: "Needs a decision",
    Happening.KEY_ENDS_SOON: "Key ends soon",
    Happening.TIME_LIMIT_PASSED: "Time limit passed",
    Happening.APPROVAL_REQUESTED: "Approval requested",
    Happening.APPROVAL_ENDS_SOON: "Approval request ends soon",
    Happening.CONFLICT: "More effects than intended",
    Happening.BREAKER_OPEN: "Lookups stopped",
}
# What each is, where somebody chooses what to hear of.
EXPLAINED: Final[dict[Happening, str]] = {
    Happening.NEEDS_DECISION: "A case can’t be settled without a person.",
    Happening.KEY_ENDS_SOON: "A case waits for people, and its idempotency key is about to end: after that, a"
    " retry isn’t the same request any more.",
    Happening.TIME_LIMIT_PASSED: "Nobody decided within the time that the flow allows.",
    Happening.APPROVAL_REQUESTED: "Somebody asks for a second person.",
    Happening.APPROVAL_ENDS_SOON: "A request for approval is about to end without an answer.",
    Happening.CONFLICT: "More is known than can be true at once, as when an effect happened twice.",
    Happening.BREAKER_OPEN: "A provider gives no usable answers, and lookups there have stopped for now.",
}
# How several are counted in a subject line.
_COUNTED: Final[dict[Happening, tuple[str, str]]] = {
    Happening.NEEDS_DECISION: ("case needs a decision", "cases need a decision"),
    Happening.KEY_ENDS_SOON: ("key ends soon", "keys end soon"),
    Happening.TIME_LIMIT_PASSED: ("time limit passed", "time limits passed"),
    Happening.APPROVAL_REQUESTED: ("approval requested", "approvals requested"),
    Happening.APPROVAL_ENDS_SOON: ("approval request ends soon", "approval requests end soon"),
    Happening.CONFLICT: ("conflict", "conflicts"),
    Happening.BREAKER_OPEN: ("provider doesn’t answer lookups", "providers don’t answer lookups"),
}
# What can be told of first: what can't be undone, then what gets worse soonest.
ORDER: Final = (
    Happening.CONFLICT,
    Happening.KEY_ENDS_SOON,
    Happening.APPROVAL_ENDS_SOON,
    Happening.TIME_LIMIT_PASSED,
    Happening.APPROVAL_REQUESTED,
    Happening.NEEDS_DECISION,
    Happening.BREAKER_OPEN,
)
_ENDS: Final[dict[Happening, str]] = {
    Happening.NEEDS_DECISION: "gets worse at",
    Happening.KEY_ENDS_SOON: "the key ends at",
    Happening.TIME_LIMIT_PASSED: "to be decided by",
    Happening.APPROVAL_REQUESTED: "ends at",
    Happening.APPROVAL_ENDS_SOON: "ends at",
}


@dataclass(frozen=True, kw_only=True)
class Written:
    """A message's words. `content` is JSON: `heading`, `lines` (each `text` and `path`), `more`."""

    subject: str
    content: dict[str, Any]


def write(
    *, team: str, counts: Mapping[Happening, int], first: Sequence[Occurrence], titles: Mapping[str, str]
) -> Written:
    """Write a message about `counts` occurrences, of which `first` are listed, most pressing first."""
    total = sum(counts.values())
    counted = [
        f"{counts[one]} {_COUNTED[one][0 if counts[one] == 1 else 1]}" for one in ORDER if counts.get(one)
    ]
    said = line_of(first[0], titles) if total == 1 and first else ", ".join(counted)
    where = settings.RECOURSE_ENVIRONMENT
    subject = f"[Recourse {where}] {team}: {said}"
    return Written(
        subject=subject if len(subject) <= SUBJECT_LENGTH else f"{subject[: SUBJECT_LENGTH - 1]}…",
        content={
            "heading": f"{team}: {', '.join(counted)}",
            "lines": [{"text": line_of(one, titles), "path": path_of(one)} for one in first[:LINES_MAX]],
            "more": max(0, total - min(len(first), LINES_MAX)),
        },
    )


def line_of(one: Occurrence, titles: Mapping[str, str]) -> str:
    """One occurrence in a line: what, where, about which id, until when."""
    happening = Happening(one.happening)
    title = titles.get(one.provider_slug, one.provider_slug)[:TITLE_LENGTH_MAX]
    parts = [LABELS[happening]]
    if title:
        parts.append(title)
    if happening is not Happening.BREAKER_OPEN:
        parts.append(one.subject)
    said = f"{parts[0]}: {', '.join(parts[1:])}" if len(parts) > 1 else parts[0]
    if one.ends_at is not None and happening in _ENDS:
        said += f"; {_ENDS[happening]} {utc(one.ends_at)}"
    return said


def path_of(one: Occurrence) -> str:
    """The page about it, within the console."""
    match Happening(one.happening):
        case Happening.BREAKER_OPEN:
            return reverse("provider", args=[one.provider_slug])
        case Happening.APPROVAL_REQUESTED | Happening.APPROVAL_ENDS_SOON:
            return reverse("approval", args=[one.subject])
        case _ if one.case_ref:
            return reverse("case", args=[one.case_ref])
        case _:
            return reverse("queue")


def absolute(path: str) -> str:
    """An address that works outside the console; "" where nobody said under which address it is reached."""
    base: str = settings.RECOURSE_PUBLIC_URL
    return f"{base}{path}" if base else ""


def utc(at: datetime) -> str:
    return at.strftime("%-d %b %Y %H:%M") + "Z"


def text_of(content: Mapping[str, Any]) -> str:
    """The message as plain text: an e-mail's body."""
    lines = [str(content["heading"]), ""]
    for line in content["lines"]:
        lines.append(f"- {line['text']}")
        if address := absolute(line["path"]):
            lines.append(f"  {address}")
    if content["more"]:
        lines.append(f"- and {content['more']} more, in the queue")
    where = absolute(reverse("notification_settings"))
    foot = "What you are told of is set" + (
        f" at {where}" if where else " under Notifications in the console."
    )
    return "\n".join([*lines, "", "-- ", f"Recourse, {settings.RECOURSE_ENVIRONMENT}. {foot}", ""])


def payload_of(subject: str, content: Mapping[str, Any]) -> dict[str, Any]:
    """The message as Slack and what is compatible with it take it: `text`, and `blocks` that show it."""
    told = [f"• {_mrkdwn(line['text'], absolute(line['path']))}" for line in content["lines"]]
    if content["more"]:
        told.append(f"• and {content['more']} more")
    blocks: list[dict[str, Any]] = [
        {"type": "header", "text": {"type": "plain_text", "text": str(content["heading"])[:150]}},
        # A section takes 3,000 characters, links and all; five lines stay below.
        *(
            {"type": "section", "text": {"type": "mrkdwn", "text": "\n".join(told[at : at + 5])}}
            for at in range(0, len(told), 5)
        ),
    ]
    if queue := absolute(reverse("queue")):
        link = {"type": "mrkdwn", "text": _mrkdwn("Open the queue", queue)}
        blocks.append({"type": "context", "elements": [link]})
    return {"text": _escaped(subject), "blocks": blocks}


def _mrkdwn(text: str, href: str) -> str:
    escaped = _escaped(text)
    # The bar ends an address in Slack's markup; ours has none, and a title's would only end the text.
    return f"<{href}|{escaped.replace('|', '¦')}>" if href else escaped


def _escaped(text: str) -> str:
    """The three characters that Slack's markup is made of, as its documentation has them written."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
