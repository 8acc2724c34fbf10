"""The environment page in words."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Final

from django.urls import reverse

from console.pages.present.marks import plural
from console.pages.shapes import Badge, Banner, FieldError, Phrase, Since
from console.pages.shapes.environment import (
    AnswerChoice,
    AnswerForm,
    EnvironmentPage,
    OrphanRow,
    SendingRow,
)
from console.queries.environment import ORPHANS_SHOWN_MAX, AccountRead, EnvironmentRead
from runs.models import Freeze, Orphan
from runs.money import Money
from runs.states import FreezeAnswer, ListingState, OrphanState, Sending

_CHOICES: Final = (
    (
        FreezeAnswer.PRODUCTION,
        "The production, restored from a backup or moved",
        (
            "Every operation that was ready counts as perhaps sent and is looked up. The time since the"
            " backup is listed at the providers. An account sends again once everything there is settled, or"
            " when you open it."
        ),
    ),
    (
        FreezeAnswer.COPY,
        "A copy beside the production",
        "It stays frozen: nothing is sent from here. You can give it an environment of its own later.",
    ),
    (
        FreezeAnswer.OWN_ENVIRONMENT,
        "A copy that becomes a deployment of its own",
        (
            "It gets a new environment id, which no account is bound to: you open those accounts that are its"
            " own, and no other. What the production may have sent counts as perhaps sent here too."
        ),
    ),
)
_SAID: Final = {
    FreezeAnswer.PRODUCTION: "the production, restored",
    FreezeAnswer.COPY: "a copy, which stays frozen",
    FreezeAnswer.OWN_ENVIRONMENT: "a copy with an environment of its own",
    FreezeAnswer.AWAITED: "",
}
_NO_NUMBER: Final = "not readable for this database role"


def environment_page(
    read: EnvironmentRead,
    *,
    now: datetime,
    why_not: str,
    draft: Mapping[str, str],
    errors: tuple[FieldError, ...] = (),
    banner: Banner | None = None,
) -> EnvironmentPage:
    """The page; `why_not` is why this person can't say or open anything, "" if they may."""
    freeze = read.freeze
    return EnvironmentPage(
        now=now,
        lead=(
            "Which deployment this database belongs to, whether it sends, and what it may have forgotten."
            " Accounts that are other teams’ aren’t listed."
        ),
        facts=_facts(read),
        banner=banner or _banner(freeze),
        said=_said(freeze),
        form=None if freeze is None else _form(freeze, why_not, draft, errors),
        rows=tuple(_row(one, why_not) for one in read.accounts),
        # They belong to no team that this journal knows, so not to everybody.
        orphans=() if why_not else tuple(_orphan(one) for one in read.orphans),
        orphans_note=_orphans_note(read),
        orphans_closed=_CLOSED if why_not and read.orphans else "",
    )


def _facts(read: EnvironmentRead) -> tuple[tuple[str, str], ...]:
    where = read.environment
    if where is None:
        return (("Environment", "not made yet: worker or beat makes it when it first starts"),)
    return (
        ("Environment", where.id_text),
        ("Database server", str(where.system_identifier or _NO_NUMBER)),
        ("Timeline", str(where.timeline or _NO_NUMBER)),
        ("Database", str(where.database_oid or _NO_NUMBER)),
    )


def _banner(freeze: Freeze | None) -> Banner:
    if freeze is None:
        return Banner(
            tone="green",
            icon="check",
            title=("Sending is open.",),
            text=("This database is where it last ran, and every account that is bound to it may send.",),
        )
    if freeze.answer == FreezeAnswer.AWAITED:
        text: Phrase = (
            (
                "Nothing is sent at any account. What isn’t known is which database this is: the production"
                " that was restored or moved, or a copy of it."
            ),
        )
    elif freeze.answer == FreezeAnswer.COPY:
        text = ("It is a copy. Nothing is sent from here, whatever agents or people ask for.",)
    else:
        text = ("What may have been sent is looked up. Accounts send again one by one, as below.",)
    return Banner(tone="red", icon="lock", title=("Sending is frozen.",), text=(*text,), quote=freeze.because)


def _said(freeze: Freeze | None) -> Phrase:
    if freeze is None or freeze.answered_at is None:
        return ()
    taken = (", backup taken ", freeze.backup_taken_at) if freeze.backup_taken_at else ()
    by = freeze.answered_by_name or freeze.answered_by
    return (f"{by} said: {_SAID[FreezeAnswer(freeze.answer)]}", *taken, ", ", Since(freeze.answered_at), ".")


def _form(
    freeze: Freeze, why_not: str, draft: Mapping[str, str], errors: tuple[FieldError, ...]
) -> AnswerForm:
    return AnswerForm(
        freeze=freeze.pk,
        choices=tuple(
            AnswerChoice(value=str(value), label=label, text=text, selected=draft.get("answer") == value)
            for value, label, text in _CHOICES
        ),
        backup_taken_at=draft.get("backup_taken_at", ""),
        reason=draft.get("reason", ""),
        errors=errors,
        closed=why_not,
    )


def _row(read: AccountRead, why_not: str) -> SendingRow:
    account, back, progress = read.account, read.back, read.progress
    blocked = () if progress is None else (*progress.blocked_by, *progress.left_to_people)
    return SendingRow(
        slug=account.slug,
        title=account.title,
        standing=_standing(read),
        marked=_marked(read),
        listed=_listed(read),
        notes=(*_not_configured(read), *blocked),
        may_open=not why_not and back is not None and progress is not None and not progress.blocked_by,
    )


def _standing(read: AccountRead) -> Badge:
    if read.account.sending != Sending.OPEN:
        return Badge(word="Frozen", icon="lock", tone="red")
    if read.missing:
        return Badge(word="Not configured", icon="unplug", tone="grey")
    return Badge(word="Sends", icon="check", tone="green")


def _not_configured(read: AccountRead) -> tuple[str, ...]:
    if not read.missing:
        return ()
    named = ", ".join(read.missing)
    workers = (
        " Workers that send by their own means still do." if read.account.sending == Sending.OPEN else ""
    )
    return (f"Missing here: {named}. Recourse sends nothing and asks nothing there.{workers}",)


def _marked(read: AccountRead) -> str:
    if read.back is None:
        return ""
    if read.back.marked_at is None:
        return "being collected"
    return plural(read.back.marked_count, "operation")


def _listed(read: AccountRead) -> str:
    back = read.back
    if back is None:
        return ""
    counts = f"{back.known_count} known, {back.orphans_count} forgotten, {back.others_count} not ours"
    match ListingState(back.listing):
        case ListingState.DONE:
            return counts if back.listed_at else "nothing to list"
        case ListingState.DUE:
            return f"not whole yet: {counts}" if back.listing_failures_count else "not listed yet"
        case ListingState.NOT_OFFERED:
            return "can’t be listed"


_CLOSED: Final = "They belong to no team that this journal knows, so only administrators see them."


def _orphans_note(read: EnvironmentRead) -> str:
    if read.more_orphans:
        return f"The newest {ORPHANS_SHOWN_MAX}"
    return plural(len(read.orphans), "effect")


def _orphan(one: Orphan) -> OrphanRow:
    linked = one.state == OrphanState.LINKED
    if linked:
        known = "Its run was redone: the same key belongs to an operation again, whose page says more."
    elif one.key:
        known = (
            "It carries a key of ours. Known is that it exists; which run made it isn’t. Redone with the same"
            " flow, external id, turn and call, that run mints the same key, and inside the key’s window the"
            " provider answers with this effect. A model that chooses other calls makes other keys, and new"
            " effects beside this one."
        )
    else:
        known = (
            "It carries the id of an operation that the journal has forgotten. A redone run has another id:"
            " the provider wouldn’t recognise it, and a second effect is possible. Settle it by hand first."
        )
    return OrphanRow(
        account=one.account.title,
        reference=one.reference,
        key=one.key or one.our_reference,
        amount=None if one.amount_minor is None else Money(one.amount_currency, one.amount_minor),
        state_there=one.state_there,
        found_at=one.found_at,
        known=known,
        body=json.dumps(one.body, ensure_ascii=False, indent=2, sort_keys=True),
        run_href=reverse("run", args=[one.operation.run_id]) if one.operation is not None else "",
    )
