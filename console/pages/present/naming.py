"""How an effect is called: "Refund €1,240.00", and the question a person is asked about it.

A tool's name and a payload are the agent's own; a name is made of them where they follow common habits, and
shown as they are where they don't.
"""

from __future__ import annotations

import re
from typing import Any, Final

from runs.money import Money, format_money

# The heading of a case's page, which takes the focus of whoever goes on to the next one.
TO_QUESTION: Final = "#question"

# Verbs that tools start with, and what was done if it happened.
_DONE: Final = {
    "book": "booked",
    "cancel": "cancelled",
    "charge": "charged",
    "close": "closed",
    "create": "created",
    "delete": "deleted",
    "file": "filed",
    "issue": "issued",
    "make": "made",
    "notify": "notified",
    "open": "opened",
    "order": "ordered",
    "pay": "paid",
    "place": "placed",
    "post": "posted",
    "publish": "published",
    "schedule": "scheduled",
    "send": "sent",
    "submit": "submitted",
    "update": "updated",
    "void": "voided",
}
# Nouns that something happens with, rather than being made: "Did the refund happen?"
_HAPPENINGS: Final = frozenset({"refund", "payment", "charge", "transfer", "payout", "capture", "reversal"})
_SPELLING: Final = {"email": "e-mail", "emails": "e-mail", "mail": "e-mail", "sms": "SMS", "api": "API"}
# Members that say in a few words what an effect is about, the most telling first.
_TELLING: Final = ("title", "subject", "summary", "name", "sku", "item")
DETAIL_LENGTH_MAX = 60
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+")


def words_of(tool: str) -> list[str]:
    """The words of a tool's name, however it is written: `create_refund`, `createRefund`, `refund.create`."""
    return [_SPELLING.get(word.lower(), word.lower()) for word in _WORD.findall(tool)]


def detail_of(payload: Any) -> str:
    """What the payload says it is about, in a few words; "" where nothing tells."""
    if not isinstance(payload, dict):
        return ""
    for name in _TELLING:
        value = payload.get(name)
        if isinstance(value, str) and value.strip():
            text = " ".join(value.split())
            quantity = payload.get("quantity")
            counted = isinstance(quantity, int) and not isinstance(quantity, bool)
            if name in {"sku", "item"} and counted:
                text = f"{quantity} × {text}"
            return text if len(text) <= DETAIL_LENGTH_MAX else text[: DETAIL_LENGTH_MAX - 1] + "…"
    return ""


def _verb_and_noun(tool: str) -> tuple[str, str]:
    words = words_of(tool)
    for place in (0, len(words) - 1):
        if len(words) > 1 and words[place] in _DONE:
            return words[place], " ".join(words[:place] + words[place + 1 :])
    return "", " ".join(words)


def noun_of(tool: str) -> str:
    """What the effect is, without its verb: "refund" for `create_refund`; a tool without words is itself."""
    return _verb_and_noun(tool)[1] or tool


def title_of(tool: str, amount: Money | None, payload: Any = None) -> str:
    """Name an effect in a heading: "Refund €1,240.00", "Order 40 × FC-20", "E-mail “Your refund”".

    The amount names it where the payload doesn't; it is shown beside the name anyway.
    """
    noun = noun_of(tool)
    detail = detail_of(payload)
    named = noun[:1].upper() + noun[1:]
    if detail:
        return f"{named} {detail if detail[0].isdigit() else f'“{detail}”'}"
    return f"{named} {format_money(amount)}" if amount is not None else named


def question_of(tool: str, amount: Money | None, payload: Any = None) -> str:
    """Ask the human question: "Did the refund of €1,240.00 happen?", "Was the e-mail “Hello” sent?"."""
    verb, noun = _verb_and_noun(tool)
    detail = detail_of(payload)
    about = ""
    if detail:
        about = f" of {detail}" if detail[0].isdigit() else f" “{detail}”"
    if amount is not None:
        about += f" for {format_money(amount)}" if about else f" of {format_money(amount)}"
    thing = f"{noun or tool}{about}"
    if verb and noun not in _HAPPENINGS:
        return f"Was the {thing} {_DONE[verb]}?"
    return f"Did the {thing} happen?"
