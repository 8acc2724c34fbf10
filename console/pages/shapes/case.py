"""One case: what is known, the five questions, the evidence, and the decision."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from console.pages.shapes.parts import (
    Actor,
    Badge,
    Banner,
    Choice,
    Consequence,
    Counts,
    Fact,
    JsonView,
    KeyWindow,
    NextPage,
    TimelineItem,
)
from console.pages.shapes.text import Answer, Link, Phrase, Tone
from reconciliation.states import Action, Permission


@dataclass(frozen=True, kw_only=True, slots=True)
class VerdictView:
    """What is known now, in one heading and one or two sentences, with the counts beside it.

    `open` draws the dashed edge: this verdict settles nothing. `lookup_href` takes the POST that looks
    again; without it the sentence `note` says why there is no button.
    """

    title: str
    text: Phrase
    icon: str
    tone: Tone
    counts: Counts
    open: bool = False
    lookup_href: str = ""
    note: Phrase = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class QuestionView:
    """One of the five questions with its answer and why. `locks` names what the answer holds back."""

    number: int
    question: str
    answer: Answer
    why: Phrase
    locks: tuple[str, ...] = ()
    evidence: tuple[Link, ...] = ()


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of a compared value; `differs` marks what isn't the same on the other side."""

    text: str
    differs: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class DiffRow:
    """One compared field. An absent side is None. `result` says it in words ("€36.00 less")."""

    field: str
    intended: tuple[Piece, ...] | None
    provider: tuple[Piece, ...] | None
    outcome: Literal["same", "differs", "unknown"]
    result: str


@dataclass(frozen=True, kw_only=True, slots=True)
class DiffView:
    """The intended effect beside one piece of evidence: what differs first, then what matches.

    `standing` says whether this record can be chosen as the receipt, and otherwise what stands against it.
    """

    summary: str
    intended_source: str
    provider_source: str
    differing: tuple[DiffRow, ...]
    matching: tuple[DiffRow, ...]
    title: str = "Intended effect and provider evidence"
    matching_text: str = ""
    not_compared: str = ""
    standing: Phrase = ()
    standing_icon: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class FileLink:
    """A file that somebody attached; `href` downloads it, "" where its text is among the bodies."""

    href: str
    name: str
    kind: str
    bytes_total: int
    digest: str


@dataclass(frozen=True, kw_only=True, slots=True)
class EvidenceItem:
    """One piece of evidence. Its id is the anchor `#<evidence_id>` that other parts of the page link to."""

    evidence_id: str
    title: str
    text: Phrase
    icon: str
    tone: Tone
    at: datetime
    source: str = ""
    bodies: tuple[JsonView, ...] = ()
    file: FileLink | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Option:
    """One of several ways to carry out an action (the run ends, or continues).

    `key` tells its id in the page, where `value` is somebody else's text.
    """

    value: str
    label: str
    key: str = ""
    text: Phrase = ()
    consequences: tuple[Consequence, ...] = ()
    selected: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class OptionGroup:
    """Radio buttons inside an action: `name` is the form field. None is preselected unless typed before."""

    name: str
    legend: str
    options: tuple[Option, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class TextField:
    """Something to type inside an action: one line, or `rows` of them. `value` is what was typed before."""

    name: str
    label: str
    value: str = ""
    hint: str = ""
    rows: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class ActionView:
    """One action of the decision panel.

    `standing` is policy's answer. A locked one is a sentence, not a greyed control: `locked_by` starts
    it in bold ("Locked by question 4.") and `text` says when it unlocks and the way out. What needs a
    second person can be chosen, and asks for one. `acknowledgement` is a box to tick
    ("I accept 3 differences between intent and receipt"); its form field is `acknowledged`.
    """

    action: Action
    title: str
    text: Phrase
    standing: Permission
    selectable: bool
    locked_by: str = ""
    consequences: tuple[Consequence, ...] = ()
    options: tuple[OptionGroup, ...] = ()
    fields: tuple[TextField, ...] = ()
    acknowledgement: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class FieldError:
    """A field of the decision form that needs something. `field` is its id in the page."""

    field: str
    sentence: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Draft:
    """What the person has typed so far: kept through every refusal."""

    action: str = ""
    reason_code: str = ""
    reason: str = ""
    acknowledged: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class DecisionForm:
    """The panel while the person may decide.

    Posts to `href`: `action`, the fields and option groups of the actions, `acknowledged`, `reason_code`,
    `reason`, `seen_version`, `evidence_digest`, and `step=review`. `note` is said above the actions.
    """

    kind: Literal["form"] = field(default="form", init=False)
    href: str
    version: int
    evidence_digest: str
    actions: tuple[ActionView, ...]
    reason_codes: tuple[Choice, ...]
    reason_length_min: int
    recorded_as: str
    window: KeyWindow | None = None
    note: Phrase = ()
    draft: Draft = Draft()
    errors: tuple[FieldError, ...] = ()

    @property
    def nothing_open(self) -> bool:
        """Whether every action is held back, so that there is nothing to fill in."""
        return not any(action.selectable for action in self.actions)

    @property
    def error_fields(self) -> frozenset[str]:
        """The ids of fields in error, for the template's marks."""
        return frozenset(error.field for error in self.errors)


@dataclass(frozen=True, kw_only=True, slots=True)
class DecisionMade:
    """The panel after a decision: who, when, what and why, and what became of it.

    `withdraw_href` takes the POST, with `reason`, that takes a granted retry back; "" where there is none or
    this person may not, which `note` then says.
    """

    kind: Literal["made"] = field(default="made", init=False)
    title: str
    badge: Badge
    by: Actor
    at: datetime
    reason_code: str
    reason: str
    facts: tuple[Fact, ...] = ()
    consequences: tuple[Consequence, ...] = ()
    window: KeyWindow | None = None
    note: Phrase = ()
    withdraw_href: str = ""
    withdraw_reason: str = ""
    reason_length_min: int = 0
    errors: tuple[FieldError, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class DecisionClosed:
    """The panel when this person can't decide now, and why not: no role, or a lookup still runs."""

    kind: Literal["closed"] = field(default="closed", init=False)
    text: Phrase
    icon: str = "lock"
    window: KeyWindow | None = None
    actions: tuple[ActionView, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class DecisionAwaited:
    """The panel while a second person is asked: by whom, for what, why, and until when.

    `href` is the request's own page. `withdraw_href` takes the POST of `act=withdraw` and `comment` by which
    whoever asked takes it back; "" for everybody else. `approved`: consent is there, and a worker is to send.
    """

    kind: Literal["awaited"] = field(default="awaited", init=False)
    badge: Badge
    by: Actor
    at: datetime
    until_at: datetime
    reason_code: str
    reason: str
    href: str
    facts: tuple[Fact, ...] = ()
    withdraw_href: str = ""
    comment_length_min: int = 0
    approved: bool = False


DecisionPanel = DecisionForm | DecisionMade | DecisionAwaited | DecisionClosed


@dataclass(frozen=True, kw_only=True, slots=True)
class SnoozeView:
    """Putting the case off. While it is put off, `lines` say until when and by whom, and `quote` why.

    Posts `length`, `until` and `reason` to `href`; `wake_href` takes the POST that wakes it.
    """

    href: str = ""
    wake_href: str = ""
    lines: Phrase = ()
    quote: str = ""
    lengths: tuple[Choice, ...] = ()
    until: str = ""
    reason: str = ""
    errors: tuple[FieldError, ...] = ()
    error_fields: tuple[str, ...] = ()
    reason_length_min: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class NoteForm:
    """The field for a note under the timeline. Posts `text` and `key` to `href`."""

    href: str
    key: str
    length_max: int
    text: str = ""
    error: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class AttachForm:
    """The form under the evidence. Posts `summary`, `file` or `text`, and `key` to `href`, as multipart.

    A browser gives no file back to a form, so a refusal says that it has to be chosen again.
    """

    href: str
    key: str
    accept: str
    taken: str
    summary: str = ""
    text: str = ""
    errors: tuple[FieldError, ...] = ()
    file_again: bool = False

    @property
    def error_fields(self) -> frozenset[str]:
        """The ids of fields in error, for the template's marks."""
        return frozenset(error.field for error in self.errors)


@dataclass(frozen=True, kw_only=True, slots=True)
class DeskView:
    """Who works on the case and who looks at it, and what this person can do about that.

    `lines` is what the poll at `live_href` asks for again. At most one of the addresses for claiming, giving
    back and taking over is there; `takeover_number` names the claim that the person saw.
    """

    lines: Phrase
    tone: Tone
    live_href: str = ""
    claim_href: str = ""
    release_href: str = ""
    # Told when the page is left; "" where that changes nothing.
    leave_href: str = ""
    takeover_href: str = ""
    takeover_number: int = 0
    takeover_reason: str = ""
    takeover_error: str = ""
    holder: str = ""
    reason_length_min: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class RelatedCase:
    """Another case, and what ties it to this one. `is_twin`: another operation asked for exactly the same."""

    href: str
    case_id: str
    title: str
    badge: Badge
    at: datetime
    ties: str
    is_conflict: bool = False
    is_twin: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class ProgressStep:
    """One step of a retry; `now` is under way, `ended` won't come any more."""

    title: str
    state: Literal["done", "now", "ahead", "ended"]
    text: Phrase
    at: datetime | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class CasePage:
    """`case.html`. The heading is the human question: "Did the refund of €1,240.00 happen?"

    `live_href` answers with the partial `case.html#live` while a lookup runs (empty otherwise) and
    `news_href` with `case.html#news`, which says that the case has changed under the reader. `kept` is what
    the person had typed, where no form is left to hold it.
    """

    now: datetime
    case_id: str
    question: str
    state: Badge
    subject: Phrase
    operation_id: str
    run_id: str
    run_href: str
    position: str
    verdict: VerdictView
    questions: tuple[QuestionView, ...]
    questions_summary: str
    panel: DecisionPanel
    version: int
    keyfacts: tuple[Fact, ...] = ()
    # Of a retry that was decided, as long as that is the last word.
    progress: tuple[ProgressStep, ...] = ()
    banner: Banner | None = None
    kept: tuple[Fact, ...] = ()
    diff: DiffView | None = None
    other_diffs: tuple[DiffView, ...] = ()
    no_diff: str = ""
    evidence: tuple[EvidenceItem, ...] = ()
    evidence_more: NextPage | None = None
    related: tuple[RelatedCase, ...] = ()
    related_href: str = ""
    timeline: tuple[TimelineItem, ...] = ()
    timeline_note: str = ""
    record: tuple[Fact, ...] = ()
    payload: JsonView | None = None
    previous_href: str = ""
    next_href: str = ""
    place: str = ""
    live_href: str = ""
    news_href: str = ""
    news: Banner | None = None
    mobile_note: str = ""
    desk: DeskView | None = None
    note: NoteForm | None = None
    attach: AttachForm | None = None
    snooze: SnoozeView | None = None
    is_conflict: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class BodyPage:
    """`case_body.html`: one body that a case is about, whole.

    `file_href` takes the GET that downloads what the page shows. `reveal_href` takes the POST, with `reason`
    and perhaps `as=file`, that shows what is hidden; "" where nothing is, or this person may not, which
    `reveal_note` says. `bytes_text` is a hexadecimal dump, "" while something is hidden.
    """

    now: datetime
    case_id: str
    case_href: str
    question: str
    view: JsonView
    facts: tuple[Fact, ...]
    file_href: str
    file_label: str
    revealed: bool = False
    reveal_href: str = ""
    reveal_note: str = ""
    reason: str = ""
    reason_length_min: int = 0
    error: str = ""
    banner: Banner | None = None
    bytes_text: str = ""
    bytes_note: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """A value before and after the decision."""

    label: str
    before: Phrase
    after: Phrase


@dataclass(frozen=True, kw_only=True, slots=True)
class HiddenField:
    """A field that the confirming form carries along unseen."""

    name: str
    value: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ReviewPage:
    """`case_decide.html`, and its partial `#sheet` for the dialog: the last look before anything happens.

    Posts to `href` with `step=record`, `reason`, and the `hidden` fields (action, options, reason_code,
    seen_version, evidence_digest, idempotency_key, acknowledged). `primary` names the effect.
    """

    now: datetime
    case_id: str
    case_href: str
    href: str
    title: str
    lead: Phrase
    heading: str
    consequences: tuple[Consequence, ...]
    primary: str
    reason: str
    recorded_as: str
    hidden: tuple[HiddenField, ...]
    reason_length_min: int
    danger: bool = False
    changes: tuple[Change, ...] = ()
    warning: Banner | None = None
    errors: tuple[FieldError, ...] = ()
