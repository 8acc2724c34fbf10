"""Requests for a second person's consent: the list, one of them, and the forms that ask for one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from console.pages.shapes.case import DiffView, FieldError, QuestionView, VerdictView
from console.pages.shapes.parts import (
    Actor,
    Badge,
    Banner,
    Choice,
    Consequence,
    EmptyState,
    Fact,
    JsonView,
    NextPage,
    Tab,
)
from console.pages.shapes.text import Phrase
from runs.money import Money


@dataclass(frozen=True, kw_only=True, slots=True)
class ApprovalRow:
    """One request in a list. `late` draws its time red: it ends soon."""

    approval_id: str
    href: str
    title: str
    badge: Badge
    about: Phrase
    reason: str
    asked_by: Actor
    asked_at: datetime
    amount: Money | None
    expires_at: datetime | None
    late: bool
    ended: Badge | None = None
    answer: Phrase = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class ApprovalListPage:
    """`approvals.html`. `news_href` is polled for how many wait now; it moves no row."""

    now: datetime
    lead: str
    rows: tuple[ApprovalRow, ...]
    tabs: tuple[Tab, ...]
    kinds: tuple[Choice, ...]
    view: str
    title: str = "Approvals"
    time_heading: str = "Ends"
    news_href: str = ""
    news: str = ""
    next: NextPage | None = None
    empty: EmptyState | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What one answer would do, under its heading."""

    title: str
    consequences: tuple[Consequence, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class AmountRow:
    """A line of a table of amounts: now, or if it is approved."""

    name: str
    limit: Money
    spent: Money
    reserved: Money
    held: Money
    remaining: Money
    strong: bool = False
    note: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Stretch:
    """A part of a bar: `name` is its class, `x` and `width` are thousandths of the whole."""

    name: Literal["spent", "reserved", "held", "next"]
    label: str
    amount: Money
    x: int
    width: int


@dataclass(frozen=True, kw_only=True, slots=True)
class BudgetBar:
    """The new limit as it would be used. `text` says all of it; `mark_x` is where the old limit is."""

    text: str
    stretches: tuple[Stretch, ...]
    remaining: Money
    old: Money
    mark_x: int | None = None
    # What goes on with it.
    then: Phrase = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class VersionRow:
    """One thing on record about the versions: of the pinned one, and of the other where there is one."""

    label: str
    pinned: Phrase
    other: Phrase = ()
    same: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class VersionTable:
    """Two flow versions beside each other, as far as anything is on record. `other` may be ""."""

    pinned: str
    other: str
    rows: tuple[VersionRow, ...]
    # Whether the programs differ, and what can't be known of how.
    verdict: Phrase
    note: Phrase


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerForm:
    """The four-eyes decision while this person may make it. `acknowledgement` is a box to tick."""

    href: str
    key: str
    content_digest: str
    approve: str
    danger: bool
    comment: str
    outcomes: tuple[Outcome, ...]
    recorded_as: str
    acknowledgement: str = ""
    acknowledged: bool = False
    errors: tuple[FieldError, ...] = ()
    # How the person's sign-in stands: an answer takes a recent one.
    sign_in: Phrase = ()
    sign_in_href: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnForm:
    """What somebody may still do with their own request: reply to a question, or take it back."""

    href: str
    key: str
    text: str
    may_reply: bool
    errors: tuple[FieldError, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Said:
    """A question about the request, or the reply to it."""

    by: Actor
    at: datetime
    text: str
    kind: Literal["question", "reply"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ApprovalPage:
    """`approval.html`: everything that is consented to, and the decision about it.

    Exactly one of `form`, `own` and `closed` says what this person can do here.
    """

    now: datetime
    approval_id: str
    title: str
    badge: Badge
    state: Badge
    about: Phrase
    asked_by: Actor
    asked_at: datetime
    expires_at: datetime
    open: bool
    reason: str
    content_title: str
    content: tuple[Fact, ...]
    exact: JsonView
    content_digest: str
    facts: tuple[Fact, ...] = ()
    reason_code: str = ""
    answered_by: Actor | None = None
    answered_at: datetime | None = None
    answer_word: str = ""
    # What was said with the answer, or why it ended without one.
    answer: str = ""
    # Whether it can still come to anything: it waits, or is approved and not carried out yet.
    stands: bool = True
    viewer: Actor | None = None
    banner: Banner | None = None
    warning: Banner | None = None
    form: AnswerForm | None = None
    own: OwnForm | None = None
    closed: Phrase = ()
    said: tuple[Said, ...] = ()
    amounts: tuple[AmountRow, ...] = ()
    bar: BudgetBar | None = None
    versions: VersionTable | None = None
    plans: tuple[Outcome, ...] = ()
    verdict: VerdictView | None = None
    questions: tuple[QuestionView, ...] = ()
    questions_summary: str = ""
    diffs: tuple[DiffView, ...] = ()
    no_diff: str = ""
    kept: tuple[Fact, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class AskField:
    """One field of a form that asks: radio buttons, a select box, or a line to type in."""

    name: str
    label: str
    kind: Literal["text", "select"]
    value: str = ""
    hint: str = ""
    choices: tuple[Choice, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class RunAsk:
    """A form on a run's page that asks a second person for something."""

    href: str
    ask: str
    title: str
    icon: str
    text: Phrase
    key: str
    button: str
    fields: tuple[AskField, ...] = ()
    hidden: tuple[tuple[str, str], ...] = ()
    reason: str = ""
    open: bool = False
    errors: tuple[FieldError, ...] = ()
