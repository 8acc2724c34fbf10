"""Samples of every shape: what the previews show and the checks of look and accessibility read.

They are made up, and no place for rules: a page's own tests use real rows.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from console.pages.shapes import (
    ActionView,
    Actor,
    AxisLabel,
    Badge,
    Banner,
    BudgetView,
    CasePage,
    Change,
    Choice,
    Code,
    Consequence,
    Counts,
    DecisionClosed,
    DecisionForm,
    DecisionMade,
    DiffRow,
    DiffView,
    Draft,
    EffectEntry,
    EffectsPage,
    EmptyState,
    EvidenceItem,
    Fact,
    FieldError,
    Filter,
    HiddenField,
    JsonView,
    KeyWindow,
    LeaseRow,
    Link,
    NextPage,
    Option,
    OptionGroup,
    Piece,
    PlanCount,
    PlanRow,
    QuestionView,
    QueueGroup,
    QueueNews,
    QueuePage,
    QueueRow,
    ReviewPage,
    RunListPage,
    RunPage,
    RunRow,
    SearchHit,
    SearchPage,
    Shell,
    Since,
    Stat,
    Strong,
    Tab,
    TimelineItem,
    TurnGroup,
    Until,
    VerdictView,
    Viewer,
    WaitBucket,
    Waterfall,
    WaterfallBar,
)
from reconciliation.states import Action, Permission, Truth
from runs.money import Money
from runs.states import OperationState, RunState

NOW = datetime(2026, 11, 29, 18, 42, 7, tzinfo=UTC)
SENT = datetime(2026, 11, 28, 21, 54, 8, tzinfo=UTC)
Y, N, U = Truth.YES, Truth.NO, Truth.UNKNOWN

OPERATION = "op_01KB7Q3M9TX4V6J2R8Y5N0ZD3H"
CASE = "case_01KB7Q4ZC1F8S3W6M9K2T5XQ7B"
RUN = "run_01KB7PW2ZCE5H8N1V4B7Y0R3GD"
OPERATOR = Viewer(name="Sam Lane", role="Operator")
SYSTEM = Actor(name="Lookup worker")
WORKER = Actor(name="worker-7c2f")
PERSON = Actor(name="Sam Lane", is_person=True)
OTHER = Actor(name="Robin Vale", is_person=True)


def euro(minor: int) -> Money:
    return Money(currency="EUR", minor=minor)


def ago(**parts: float) -> datetime:
    return NOW - timedelta(**parts)


def ahead(**parts: float) -> datetime:
    return NOW + timedelta(**parts)


def shell(**changes: object) -> Shell:
    base = Shell(
        environment="Development",
        environment_tone="grey",
        theme="system",
        shortcuts=True,
        path="/",
        viewer=OPERATOR,
        section="queue",
        open_cases="23",
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def window(left: timedelta | None, permille: int | None = None) -> KeyWindow:
    if left is None:
        return KeyWindow(label="No key", tone="grey", note="No key support")
    tone = "red" if left <= timedelta(minutes=20) else "amber" if left < timedelta(hours=1) else "green"
    if left < timedelta(0):
        return KeyWindow(
            label="The key’s window has closed",
            tone="red",
            locked=True,
            first_sent_at=NOW + left - timedelta(hours=24),
            ends_at=NOW + left,
            used_permille=1000,
        )
    return KeyWindow(
        label="Same key is safe for",
        tone=tone,
        first_sent_at=SENT,
        ends_at=NOW + left,
        used_permille=permille,
    )


# --- The queue ----------------------------------------------------------------------------------------------


def row(
    number: int,
    title: str,
    shows: Badge,
    counts: Counts,
    answers: tuple[Truth, Truth, Truth, Truth, Truth],
    waited: timedelta,
    key: KeyWindow,
    at_risk: Money | None,
    note: str = "",
    note_tone: str | None = None,
) -> QueueRow:
    return QueueRow(
        case_id=f"case_{number:026d}",
        href="/preview/case/",
        title=title,
        context=("order-exception-agent v14, step 4 of 7",),
        operation_id=f"op_{number:026d}",
        shows=shows,
        counts=counts,
        answers=answers,
        waiting_since=NOW - waited,
        window=key,
        looked_up_at=ago(minutes=3),
        at_risk=at_risk,
        note=note,
        note_tone=note_tone,  # type: ignore[arg-type]
    )


NOT_FOUND = Badge(word="Not found in 2 lookups", icon="unknown", tone="amber")
FOUND = Badge(word="1 matching refund", icon="circle-check", tone="green")
MISMATCH = Badge(word="Receipt for a different payload", icon="equal-not", tone="red")
NO_LOOKUP = Badge(word="Provider offers no lookup", icon="circle-slash", tone="grey")

URGENT = QueueGroup(
    title="Key or time limit ends within 1 hour (3)",
    icon="timer",
    tone="red",
    rows=(
        row(
            1,
            "Order 40 × filter cartridge FC-20",
            replace(NOT_FOUND, word="Not found, no proof"),
            Counts(requests=2, effects=0),
            (Y, Y, N, Y, Y),
            timedelta(minutes=2),
            window(timedelta(minutes=2, seconds=41), 460),
            euro(48600),
        ),
        row(
            2,
            "Refund €89.90",
            FOUND,
            Counts(requests=1, effects=1),
            (Y, Y, Y, Y, Y),
            timedelta(hours=23, minutes=42),
            window(timedelta(minutes=18), 980),
            euro(8990),
            "18 min left",
            "amber",
        ),
        row(
            3,
            "Charge KWD 32.000",
            NOT_FOUND,
            Counts(requests=2, effects=0),
            (Y, Y, Y, U, Y),
            timedelta(hours=3, minutes=19),
            window(timedelta(hours=20, minutes=41), 140),
            Money(currency="KWD", minor=32000),
            "41 min left",
            "amber",
        ),
    ),
)
CLOSED_KEYS = QueueGroup(
    title="The key’s window has closed: a retry with the same key is locked (2)",
    icon="lock",
    tone="amber",
    rows=(
        row(
            4,
            "Refund €312.50",
            replace(NOT_FOUND, word="Not found in 4 lookups"),
            Counts(requests=3, effects=0),
            (Y, N, Y, Y, Y),
            timedelta(hours=24, minutes=42),
            window(timedelta(minutes=-42)),
            euro(31250),
            "42 min over",
            "red",
        ),
        row(
            5,
            "Transfer €2,980.00 to a connected account",
            Badge(word="2 matching transfers", icon="equal-not", tone="red"),
            Counts(requests=2, effects=2),
            (Y, N, Y, Y, N),
            timedelta(hours=25, minutes=10),
            window(timedelta(minutes=-70)),
            euro(298000),
            "1 h 10 min over",
            "red",
        ),
    ),
)
REST = QueueGroup(
    title="Everything else (4 shown)",
    rows=(
        row(
            6,
            "Order 12 × pump seal PS-4",
            replace(FOUND, word="1 order alike, nothing of ours in it"),
            Counts(requests=2, effects=1, carrying_key=0),
            (Y, Y, Y, Y, N),
            timedelta(hours=2, minutes=57),
            window(timedelta(hours=21, minutes=3), 120),
            euro(110640),
            "1 h 03 min left",
        ),
        row(
            7,
            "E-mail “Your refund is on its way”",
            NO_LOOKUP,
            Counts(requests=1, effects=None),
            (Y, N, N, Y, Y),
            timedelta(hours=2, minutes=20),
            window(None),
            None,
            "1 h 40 min left",
        ),
        row(
            8,
            "Create ticket: damaged parcel \u202eRMA-20931 "
            "a_title_without_any_space_that_is_far_longer_than_any_column_is_wide",
            replace(NOT_FOUND, word="Not found, index may lag 60 s"),
            Counts(requests=1, effects=0),
            (Y, N, U, Y, Y),
            timedelta(hours=1, minutes=52),
            window(None),
            None,
        ),
        row(
            9,
            "Refund €1,240.00",
            MISMATCH,
            Counts(requests=3, effects=1, carrying_key=0),
            (Y, Y, Y, N, Y),
            timedelta(hours=20, minutes=48),
            window(timedelta(hours=3, minutes=12), 866),
            euro(124000),
            "3 h 24 min left",
        ),
    ),
)

QUEUE = QueuePage(
    now=NOW,
    title="Needs a decision",
    lead="23 side effects with an outcome nobody knows yet. Their runs are paused until someone decides.",
    groups=(URGENT, CLOSED_KEYS, REST),
    shown_text="9 of 23 cases",
    order_text="Ordered by what gets worse first: the sooner of key expiry and time limit",
    stats=(
        Stat(
            label="Needs a decision",
            number="23",
            icon="unknown",
            note="2 past their time limit",
            tone="amber",
            href="/",
        ),
        Stat(
            label="Looking up",
            number="41",
            icon="scan-search",
            note="may settle without you",
            tone="blue",
            href="/",
        ),
        Stat(
            label="Retry under way",
            number="4",
            icon="rotate-ccw",
            note="oldest 1 h 20 min",
            tone="blue",
            href="/",
        ),
        Stat(
            label="Settled, last 24 h",
            number="1,318",
            icon="circle-check",
            note="1,290 without a person",
            tone="green",
        ),
        Stat(label="At risk now", number="€9,417.00", icon="wallet", note="and KWD 32.000 in 1 case"),
    ),
    waits=(
        WaitBucket(label="< 5 min", count=2),
        WaitBucket(label="5–15 min", count=3),
        WaitBucket(label="15–60 min", count=5),
        WaitBucket(label="1–4 h", count=6),
        WaitBucket(label="4–24 h", count=5, tone="amber"),
        WaitBucket(label="> 24 h", count=2, tone="red"),
    ),
    tabs=(
        Tab(label="Needs a decision", href="/", current=True, count="23"),
        Tab(label="Looking up", href="/", count="41"),
        Tab(label="Key ends within 1 h", href="/", count="3", hot=True),
        Tab(label="More effects than intended", href="/", count="1", hot=True),
        Tab(label="Resolved", href="/"),
    ),
    filters=(
        Filter(
            name="q",
            label="Operation id, idempotency key or run",
            placeholder="op_…, key or run_…",
            grows=True,
        ),
        Filter(
            name="provider",
            label="Provider",
            choices=(Choice(value="", label="Any provider"), Choice(value="sandbox", label="Sandbox orders")),
        ),
        Filter(
            name="flow",
            label="Flow",
            choices=(Choice(value="", label="Any flow"), Choice(value="r", label="restock-agent")),
        ),
        Filter(
            name="age",
            label="Waiting",
            choices=(Choice(value="", label="Any time"), Choice(value="1h", label="Over 1 h")),
        ),
    ),
    news=QueueNews(text="2 new: show them", href="/"),
    next=NextPage(href="/preview/queue/?after=x", label="Load 14 more"),
)
QUEUE_EMPTY = replace(
    QUEUE,
    groups=(),
    news=None,
    next=None,
    stats=(),
    waits=(),
    shown_text="No cases",
    order_text="",
    lead="Nothing waits for a person.",
    empty=EmptyState(
        title="Nothing needs a decision",
        text="41 operations are being looked up. You will see a case here only if a lookup can’t settle it.",
        action=Link("See what is being looked up", "/"),
    ),
)

# --- The case -----------------------------------------------------------------------------------------------

QUESTIONS = (
    QuestionView(
        number=1,
        question="Which logical operation is this?",
        answer=Y,
        why=(
            "One journal entry, turn 9, ",
            Code("call_7f21"),
            ". The payload’s digest is the same in all 3 requests.",
        ),
    ),
    QuestionView(
        number=2,
        question="Does the provider honour the key, or offer a reliable lookup?",
        answer=Y,
        why=(
            "The contract says that keys are kept for at least 24 h. Ours was first used ",
            Since(SENT),
            ".",
        ),
    ),
    QuestionView(
        number=3,
        question="Can we see the effect without causing another change?",
        answer=Y,
        why=("Listing refunds by payment is read only. Last read ", Since(ago(minutes=2)), "."),
    ),
    QuestionView(
        number=4,
        question="Has the old worker lost its lease and its ability to write?",
        answer=N,
        why=(
            "Its lease is lost: fencing token 41 is behind 43. But a request of ",
            Code("worker-7c2f"),
            " may reach the provider until ",
            ahead(minutes=13),
            ", ",
            Until(ahead(minutes=13)),
            ".",
        ),
        locks=("Locks Retry",),
        evidence=(Link("Evidence: the last report", "#ev_01KB7Q9A"),),
    ),
    QuestionView(
        number=5,
        question="Do approval, budget and flow version still apply?",
        answer=U,
        why=(
            euro(124000),
            " is still reserved and flow v14 still pinned. Nobody has said whether the approval was renewed.",
        ),
    ),
)


def pieces(*parts: str) -> tuple[Piece, ...]:
    return tuple(Piece(part, differs=index % 2 == 1) for index, part in enumerate(parts))


DIFF = DiffView(
    summary="3 of 8 fields differ",
    intended_source="sha256 9f2c41…e07b",
    provider_source="re_3SxBq81 · ev_01KB7Q9B",
    differing=(
        DiffRow(
            field="Amount",
            intended=pieces("1,2", "40", ".00"),
            provider=pieces("1,2", "04", ".00"),
            outcome="differs",
            result="€36.00 less",
        ),
        DiffRow(
            field="Our operation id",
            intended=pieces(OPERATION),
            provider=None,
            outcome="differs",
            result="Not ours?",
        ),
        DiffRow(
            field="Created",
            intended=pieces("28 Nov 21:54:08Z to 21:58:12Z"),
            provider=pieces("28 Nov 22:31:07Z"),
            outcome="differs",
            result="33 min late",
        ),
        DiffRow(
            field="Fee", intended=pieces("0.00"), provider=None, outcome="unknown", result="Not returned"
        ),
    ),
    matching=(
        DiffRow(
            field="Currency", intended=pieces("EUR"), provider=pieces("EUR"), outcome="same", result="Same"
        ),
        DiffRow(
            field="Payment",
            intended=pieces("pi_3SxAe70"),
            provider=pieces("pi_3SxAe70"),
            outcome="same",
            result="Same",
        ),
        DiffRow(
            field="Order",
            intended=pieces("ORD-77041"),
            provider=pieces("ORD-77041"),
            outcome="same",
            result="Same",
        ),
    ),
    matching_text="3 fields match",
    not_compared="Not compared: description (the provider doesn’t return it).",
)

EVIDENCE = (
    EvidenceItem(
        evidence_id="ev_01KB7Q9B",
        title="Lookup 6: 1 refund, with other content",
        icon="scan-search",
        tone="red",
        at=ago(minutes=2, seconds=15),
        source="Lookup by payment, 84 ms",
        text=(
            "Found ",
            Code("re_3SxBq81"),
            ". It carries nothing of ours, and its amount is ",
            euro(120400),
            ".",
        ),
        bodies=(
            JsonView(
                title="Request", text="GET /v1/refunds?payment_intent=pi_3SxAe70\nAuthorization: ‹removed›"
            ),
            JsonView(
                title="Answer",
                text='{\n  "id": "re_3SxBq81",\n  "note": "<script>alert(1)</script> \u202e\u200b"\n}',
                digest="9f2c41aa0d5b77c0" * 4,
                bytes_total=70_412,
                cut=True,
            ),
        ),
    ),
    EvidenceItem(
        evidence_id="ev_01KB7Q9A",
        title="Report: no answer in 30 s",
        icon="unplug",
        tone="amber",
        at=ago(hours=20, minutes=47),
        source="worker-7c2f, attempt 1",
        text=("The connection was reset while the answer was awaited. That settles nothing.",),
    ),
)

TIMELINE = (
    TimelineItem(
        title="Intent recorded",
        icon="file-check",
        at=SENT - timedelta(seconds=6),
        text=("Refund ", euro(124000), ". Key minted, ", euro(124000), " reserved."),
        actor=Actor(name="Agent, turn 9"),
        digest="5b1e…09",
    ),
    TimelineItem(
        title="Request 1 sent",
        icon="send",
        at=SENT,
        text=("POST /v1/refunds, fencing token 41",),
        actor=WORKER,
        elapsed="6 s later",
        digest="c770…4d",
    ),
    TimelineItem(
        title="Answer lost",
        icon="unplug",
        tone="red",
        at=SENT + timedelta(seconds=30),
        text=("Connection reset, then silence. From here nobody knows.",),
        actor=WORKER,
        gap=True,
        elapsed="30 s later",
        digest="01ac…f2",
    ),
    TimelineItem(
        title="Run paused, case opened",
        icon="circle-pause",
        tone="violet",
        at=SENT + timedelta(minutes=11),
        actor=Actor(name="Recourse"),
        gap=True,
        elapsed="11 min later",
        digest="3f9b…c8",
    ),
    TimelineItem(
        title="Lookup 6: 1 refund, with other content",
        icon="scan-search",
        tone="red",
        at=ago(minutes=2, seconds=15),
        text=(Code("re_3SxBq81"), ", stored as ", Link("ev_01KB7Q9B", "#ev_01KB7Q9B")),
        actor=SYSTEM,
        gap=True,
        digest="e2c4…71",
    ),
    TimelineItem(
        title="Decision",
        icon="gavel",
        at=None,
        when_text="Now",
        next=True,
        text=("Waiting for a person. Then the receipt is recorded, or the retry starts.",),
    ),
)

CONFIRM = ActionView(
    action=Action.CONFIRM,
    title="Confirm it happened",
    standing=Permission.ALLOWED,
    selectable=True,
    text=("Take ", Code("re_3SxBq81"), " as the receipt."),
    consequences=(
        Consequence(icon="play", text=("The run goes on at ", Strong("step 5 of 7"), " (create ticket)")),
        Consequence(
            icon="wallet", text=("Books ", euro(120400), " and frees ", euro(3600), " of the reserved budget")
        ),
        Consequence(icon="key-round", text=("The key is retired. ", Strong("No more requests"))),
    ),
    acknowledgement="I accept 3 differences between intent and receipt",
)
RETRY_LOCKED = ActionView(
    action=Action.RETRY,
    title="Retry with the same key",
    standing=Permission.LOCKED,
    selectable=False,
    locked_by="Locked by question 4.",
    text=(
        "The old worker’s request may still arrive. Unlocks at ",
        ahead(minutes=13),
        ", ",
        Until(ahead(minutes=13)),
        ", with 2 h 59 min of the key’s window left.",
    ),
)
RETRY_SECOND = replace(
    RETRY_LOCKED,
    standing=Permission.SECOND_PERSON,
    locked_by="Needs a second person.",
    text=(
        "The key’s window closed ",
        Since(ago(minutes=42)),
        ": the provider may take a repeat for a new request. Worst case: a second refund of ",
        euro(31250),
        ".",
    ),
)
RETRY = ActionView(
    action=Action.RETRY,
    title="Retry with the same key",
    standing=Permission.ALLOWED,
    selectable=True,
    text=("One more request with the same key and the same bytes.",),
    consequences=(
        Consequence(
            icon="scan-search",
            text=("A fresh lookup runs first. If it finds the effect, ", Strong("nothing is sent")),
        ),
        Consequence(icon="send", text=("Otherwise ", Strong("1 request"), " is sent, the fourth")),
    ),
    options=(
        OptionGroup(
            name="executor",
            legend="Who sends it?",
            options=(
                Option(value="agent", label="The agent’s worker, when it resumes"),
                Option(value="console", label="Recourse itself, now"),
            ),
        ),
    ),
)
ABANDON = ActionView(
    action=Action.ABANDON,
    title="Abandon",
    standing=Permission.ALLOWED,
    selectable=True,
    text=("Stop trying. Whether it happened stays unknown.",),
    consequences=(
        Consequence(
            icon="triangle-alert",
            bad=True,
            text=("If request 1 to 3 lands later, it opens a ", Strong("conflict")),
        ),
    ),
    options=(
        OptionGroup(
            name="then",
            legend="And the run?",
            options=(
                Option(
                    value="end",
                    label="It ends here",
                    consequences=(Consequence(icon="circle-slash", text=("Steps 5 to 7 never run",)),),
                ),
                Option(
                    value="continue",
                    label="It goes on without the refund",
                    consequences=(
                        Consequence(icon="play", text=("Its plan says that the refund was given up",)),
                    ),
                ),
            ),
        ),
    ),
)
REASON_CODES = (
    Choice(value="provider_record", label="Seen in the provider’s own records"),
    Choice(value="done_by_hand", label="Done by a person outside the run"),
    Choice(value="other", label="Other, see the reason"),
)
REASON = "Support refunded by hand at 22:31Z (note on ORD-77041) and typed 1,204 for 1,240."
FORM = DecisionForm(
    href="/preview/case_decide/",
    version=7,
    evidence_digest="9f2c41aa",
    actions=(CONFIRM, RETRY_LOCKED, ABANDON),
    reason_codes=REASON_CODES,
    reason_length_min=20,
    recorded_as="Sam Lane",
    window=window(timedelta(hours=3, minutes=12), 866),
)

CASE_PAGE = CasePage(
    now=NOW,
    case_id=CASE,
    question="Did the refund of €1,240.00 happen?",
    state=Badge(word="Sent, outcome unknown", icon="unknown", tone="amber", open=True),
    subject=("Payments sandbox · create refund · ", Link("order-exception-agent v14", "/preview/run/")),
    operation_id=OPERATION,
    run_id=RUN,
    run_href="/preview/run/",
    position="Step 4 of 7",
    verdict=VerdictView(
        title="A receipt was found for a different payload",
        icon="equal-not",
        tone="red",
        text=(
            "Lookup 6 at ",
            ago(minutes=2, seconds=15),
            " found 1 refund on this payment. It is ",
            euro(3600),
            " less than intended, carries nothing of ours, and was made 33 min after our last request.",
        ),
        counts=Counts(requests=3, effects=1, carrying_key=0),
        lookup_href="/preview/case/",
        note=("Read only. Last one ", Since(ago(minutes=2, seconds=15)), "; the listing has no lag"),
    ),
    questions=QUESTIONS,
    questions_summary="3 yes, 1 no, 1 unknown. Every “no” or “unknown” limits what you can do.",
    panel=FORM,
    version=7,
    keyfacts=(
        Fact(label="At risk", value=(euro(124000),)),
        Fact(label="Outcome unknown for", value=("20 h 48 min",)),
        Fact(label="Decide within", value=("3 h 24 min",), note=("by 22:06Z",)),
    ),
    diff=DIFF,
    evidence=EVIDENCE,
    timeline=TIMELINE,
    timeline_note="Every entry is in the audit log",
    record=(
        Fact(label="Operation id", value=(Code(OPERATION),)),
        Fact(
            label="Idempotency key",
            value=(Code("rc1-K7Q2N4ZTP0V8M6X3R5W1Y9B2D"),),
            copy="rc1-K7Q2N4ZTP0V8M6X3R5W1Y9B2D",
        ),
        Fact(label="Run", value=(Link(RUN, "/preview/run/"),)),
        Fact(label="Payload digest", value=(Code("sha256 9f2c41aa0d5b77…e07b"),), copy="9f2c41aa0d5b77"),
        Fact(label="Flow, version", value=("order-exception-agent v14 (pinned)",)),
        Fact(label="Lease", value=("none; next fencing token 44",)),
    ),
    payload=JsonView(
        title="Payload as sent",
        text='{"amount":124000,"currency":"EUR","payment":"pi_3SxAe70"}',
        digest="9f2c41aa0d5b77c0" * 4,
        bytes_total=57,
    ),
    previous_href="/preview/case/",
    next_href="/preview/case_resolved/",
    place="12 of 23",
    mobile_note="Retry locked, 2 actions open",
)
CASE_DRAFT = replace(
    CASE_PAGE,
    banner=Banner(
        title=("Robin Vale decided first. Your decision was not recorded.",),
        icon="users",
        tone="red",
        focus=True,
        text=(
            "At ",
            ago(seconds=14),
            ", 14 s before you, Robin asked for a ",
            Strong("retry with the same key"),
            ". Nothing has been sent. You decided on version 7; this is ",
            Strong("version 8"),
            ".",
        ),
        quote="The refund found has no key of ours.\nRetry once the time has passed.",
        kept="Your typed reason is kept",
        links=(Link("See what changed", "#timeline-title"),),
    ),
    panel=replace(
        FORM,
        version=8,
        actions=(CONFIRM, RETRY, ABANDON),
        draft=Draft(action="retry", reason_code="done_by_hand", reason=REASON, acknowledged=True),
    ),
    version=8,
)
CASE_ERRORS = replace(
    CASE_PAGE,
    panel=replace(
        FORM,
        actions=(CONFIRM, RETRY_SECOND, ABANDON),
        window=window(timedelta(minutes=-42)),
        draft=Draft(action="abandon", reason="Looks right."),
        errors=(
            FieldError(field="then", sentence="Say whether the run ends or goes on"),
            FieldError(field="reason_code", sentence="Choose a reason code"),
            FieldError(field="reason", sentence="12 characters so far, 20 needed"),
        ),
    ),
)
CASE_LOOKING = replace(
    CASE_PAGE,
    live_href="/preview/case_looking/?part=live",
    news_href="/preview/case_news/?part=news",
    state=Badge(word="Looking up", icon="scan-search", tone="blue", open=True),
    diff=None,
    no_diff="Nothing to compare: no lookup has found an effect.",
    verdict=VerdictView(
        title="Not found, which proves nothing",
        icon="unknown",
        tone="amber",
        open=True,
        text=(
            "2 lookups by key found nothing. New effects may be invisible for 60 s. The next lookup is due ",
            Until(ahead(seconds=48)),
            ".",
        ),
        counts=Counts(requests=1, effects=0),
        note=("Recourse is looking by itself",),
    ),
    panel=DecisionClosed(
        text=("Recourse is still looking. You are asked when lookups can’t settle it.",),
        icon="scan-search",
        window=window(timedelta(hours=23, minutes=50), 7),
    ),
)
CASE_NEWS = replace(
    CASE_PAGE,
    news=Banner(
        title=("This case has changed since you opened it.",),
        icon="refresh-cw",
        tone="blue",
        text=("A lookup found a receipt. What you typed stays here until you load the new version.",),
        links=(Link("Show version 8", "/preview/case/"),),
    ),
)
CASE_RESOLVED = replace(
    CASE_PAGE,
    state=Badge(word="Confirmed", icon="circle-check", tone="green"),
    verdict=VerdictView(
        title="It happened, once",
        icon="circle-check",
        tone="green",
        text=("Receipt ", Code("re_3SxBq81"), " carries our key and matches the payload."),
        counts=Counts(requests=2, effects=1, carrying_key=1),
    ),
    panel=DecisionMade(
        title="Decided",
        badge=Badge(word="Confirmed", icon="circle-check", tone="green"),
        by=PERSON,
        at=ago(minutes=4),
        reason_code="Seen in the provider’s own records",
        reason=REASON,
        facts=(Fact(label="Case version", value=("7",)), Fact(label="Receipt", value=(Code("re_3SxBq81"),))),
        consequences=(Consequence(icon="play", text=("The run became claimable at ", ago(minutes=4))),),
    ),
)

REVIEW = ReviewPage(
    now=NOW,
    case_id=CASE,
    case_href="/preview/case/",
    href="/preview/case_decide/",
    title="Confirm that the refund happened?",
    lead=("Refund ", euro(124000), ", ", Code(OPERATION), ". You are deciding on version 7."),
    heading="If you confirm",
    consequences=(
        *CONFIRM.consequences,
        Consequence(
            icon="lock", bad=True, text=(Strong("Can’t be undone."), " A correction is a new, linked entry")
        ),
    ),
    changes=(
        Change(label="State", before=("Sent, outcome unknown",), after=("Confirmed, with differences",)),
        Change(label="Reserved", before=(euro(124000),), after=(euro(0),)),
        Change(label="Spent", before=(euro(231040),), after=(euro(351440),)),
    ),
    primary="Confirm it happened",
    reason=REASON,
    recorded_as="Sam Lane",
    reason_length_min=20,
    hidden=(
        HiddenField(name="action", value="confirm"),
        HiddenField(name="seen_version", value="7"),
        HiddenField(name="idempotency_key", value="k1"),
    ),
)
REVIEW_DANGER = replace(
    REVIEW,
    title="Abandon this refund?",
    heading="If you abandon it",
    primary="Abandon the refund",
    danger=True,
    changes=(),
    consequences=ABANDON.consequences,
    warning=Banner(
        title=("Whether it happened stays unknown",),
        icon="triangle-alert",
        tone="amber",
        text=("Nobody will look for it again unless new evidence arrives.",),
    ),
)

# --- Runs ---------------------------------------------------------------------------------------------------

RUNS = RunListPage(
    now=NOW,
    lead="Newest change first.",
    tabs=(
        Tab(label="All", href="/", current=True),
        Tab(label="Paused", href="/", count="23"),
        Tab(label="Open", href="/"),
        Tab(label="Ended", href="/"),
    ),
    filters=(Filter(name="q", label="Run, flow or external id", grows=True),),
    rows=(
        RunRow(
            run_id=RUN,
            href="/preview/run/",
            title="ORD-77041",
            flow="order-exception-agent v14",
            state=RunState.PAUSED,
            why="Waits for a decision",
            progress="3 of 7 steps",
            counts=Counts(requests=7, effects=1),
            started_at=ago(hours=21),
            changed_at=ago(minutes=2),
            spent=euro(231040),
        ),
        RunRow(
            run_id="run_2",
            href="/preview/run/",
            title="restock-0412",
            flow="restock-agent v6",
            state=RunState.OPEN,
            progress="2 of 3 steps",
            counts=Counts(requests=2, effects=2),
            started_at=ago(hours=2),
            changed_at=ago(minutes=9),
            spent=euro(48600),
        ),
        RunRow(
            run_id="run_3",
            href="/preview/run/",
            title="ORD-77020",
            flow="order-exception-agent v14",
            state=RunState.COMPLETED,
            progress="7 of 7 steps",
            counts=Counts(requests=5, effects=5),
            started_at=ago(hours=26),
            changed_at=ago(hours=25),
        ),
    ),
    next=NextPage(href="/preview/run_list/?after=x", label="Load older runs"),
)

RUN_PAGE = RunPage(
    now=NOW,
    run_id=RUN,
    title="ORD-77041",
    flow="order-exception-agent",
    state=RunState.PAUSED,
    subtitle=("started ", ago(hours=20, minutes=51)),
    banner=Banner(
        title=("Paused at step 4: the outcome of the refund of €1,240.00 is unknown",),
        icon="circle-pause",
        tone="violet",
        text=(
            "Since ",
            SENT,
            ". The run becomes claimable when case ",
            Link(CASE, "/preview/case/"),
            " is decided.",
        ),
        action=Link("Open the case", "/preview/case/"),
    ),
    facts=(
        Fact(
            label="Flow, pinned version",
            value=("order-exception-agent v14",),
            note=("v15 is running elsewhere. This run stays on v14 unless an approver moves it.",),
        ),
        Fact(label="Lease holder", value=("Nobody",), note=("last: worker-19ad, ended 22:06:41Z",)),
        Fact(label="Fencing token", value=("43",), note=("writes with 42 or lower are refused",)),
        Fact(
            label="Requests, effects", value=("7 requests, 1 effect",), note=("and 1 that nobody can place",)
        ),
        Fact(label="Approval", value=("none needed",)),
    ),
    budget=BudgetView(
        limit=euro(500000),
        spent=euro(231040),
        reserved=euro(124000),
        remaining=euro(129960),
        held=euro(15000),
        spent_width=462,
        reserved_width=246,
        held_width=30,
    ),
    steps_summary="3 of 7 steps done",
    axis=(
        AxisLabel(x=0, text="21:51:30Z"),
        AxisLabel(x=25, text="21:54"),
        AxisLabel(x=65, text="paused"),
        AxisLabel(x=80, text="next"),
    ),
    band=(660, 150),
    turns=(
        TurnGroup(
            title="Turn 1",
            rows=(
                PlanRow(
                    number="1",
                    name="read_order",
                    detail=("read only, result saved",),
                    next="skip",
                    next_why=("the saved result is reused",),
                    state_badge=Badge(word="Saved", icon="check", tone="green"),
                    waterfall=Waterfall(
                        label="21:51:30 to 21:51:56",
                        bars=(
                            WaterfallBar(kind="think", x=0, width=26),
                            WaterfallBar(kind="ok", x=26, width=16),
                        ),
                        requests=(26,),
                    ),
                ),
            ),
        ),
        TurnGroup(
            title="Turn 2",
            rows=(
                PlanRow(
                    number="2",
                    name="Order 1 × lamp base LB-2",
                    detail=("Supplier orders · ", Code("op_01KB7PYA11")),
                    next="skip",
                    next_why=("receipt ", Code("so_88213")),
                    state=OperationState.CONFIRMED,
                    href="/preview/case_resolved/",
                    waterfall=Waterfall(
                        label="one request, confirmed",
                        bars=(
                            WaterfallBar(kind="think", x=142, width=28),
                            WaterfallBar(kind="ok", x=170, width=34),
                        ),
                        requests=(170,),
                    ),
                ),
                PlanRow(
                    number="3",
                    name="Cancel courier pickup",
                    detail=("Courier · ", Code("op_01KB7PYB03")),
                    next="skip",
                    next_why=("refused: already collected",),
                    state=OperationState.REJECTED,
                    waterfall=Waterfall(
                        label="one request, refused",
                        bars=(WaterfallBar(kind="no", x=170, width=20),),
                        requests=(170,),
                    ),
                ),
            ),
        ),
        TurnGroup(
            title="Turn 3, paused here",
            rows=(
                PlanRow(
                    number="4",
                    name="Refund €1,240.00",
                    href="/preview/case/",
                    detail=("Payments sandbox · ", Code(OPERATION)),
                    next="wait",
                    next_why=("until the case is decided",),
                    state=OperationState.SENT_UNKNOWN,
                    here=True,
                    waterfall=Waterfall(
                        label="sent 3 times, outcome unknown",
                        bars=(
                            WaterfallBar(kind="think", x=210, width=40),
                            WaterfallBar(kind="unknown", x=251, width=556),
                        ),
                        requests=(251, 404, 493),
                    ),
                ),
                PlanRow(
                    number="5",
                    name="Void 1,240 loyalty points",
                    detail=("Loyalty · ", Code("op_01KB7Q3N2F")),
                    next="repeat",
                    next_why=("granted: same key, once",),
                    state=OperationState.SENT_UNKNOWN,
                    waterfall=Waterfall(
                        label="sent once, answer lost",
                        bars=(WaterfallBar(kind="unknown", x=251, width=140),),
                        requests=(251,),
                    ),
                ),
            ),
        ),
        TurnGroup(
            title="Not started",
            rows=(
                PlanRow(
                    number="6",
                    name="Create ticket",
                    detail=("not sent yet",),
                    next="send",
                    next_why=("first request, with the stored key",),
                    state=OperationState.READY,
                    todo=True,
                    waterfall=Waterfall(
                        label="planned", bars=(WaterfallBar(kind="planned", x=820, width=50),)
                    ),
                ),
                PlanRow(
                    number="7",
                    name="E-mail “Your refund is on its way”",
                    detail=("given up",),
                    next="skip",
                    next_why=("given up; nobody knows whether it went out",),
                    state=OperationState.ABANDONED,
                    waterfall=Waterfall(label="given up", bars=(WaterfallBar(kind="gone", x=876, width=40),)),
                ),
            ),
        ),
    ),
    plan=(
        PlanCount(next="skip", count=4, note="settled, results reused"),
        PlanCount(next="wait", count=1, note="step 4, for a decision"),
        PlanCount(next="repeat", count=1, note="same key, granted once"),
        PlanCount(next="send", count=1, note="never sent before"),
    ),
    plan_note="What a worker would be told now. Nothing is sent by looking.",
    leases=(
        LeaseRow(
            token="43",
            worker="worker-19ad",
            taken_at=SENT + timedelta(minutes=3),
            ended_at=SENT + timedelta(minutes=12),
            why="The run was paused",
            can_write=Badge(word="No", icon="check", tone="green"),
        ),
        LeaseRow(
            token="41",
            worker="worker-7c2f",
            taken_at=SENT - timedelta(minutes=3),
            ended_at=SENT + timedelta(minutes=1),
            why="Its time ran out",
            can_write=Badge(word="To the provider, yes", icon="x", tone="red"),
            note=("until ", ahead(minutes=13), "; the journal refuses it"),
        ),
    ),
    input=JsonView(title="Input", text='{"order": "ORD-77041"}', bytes_total=22),
)

# --- History, search ----------------------------------------------------------------------------------------

EFFECTS = EffectsPage(
    now=NOW,
    lead="Every intent, request, lookup, decision and receipt. Append only.",
    summary="29 Nov 2026, newest first",
    filters=(
        Filter(name="q", label="Search", placeholder="Operation, key, run or receipt", grows=True),
        Filter(name="from", label="From (UTC)", input_type="date", value="2026-11-29"),
        Filter(
            name="actor",
            label="By",
            choices=(Choice(value="", label="Anyone"), Choice(value="people", label="People only")),
        ),
    ),
    chips=(
        Tab(label="Everything", href="/", current=True),
        Tab(label="Decisions", href="/", count="3"),
        Tab(label="Conflicts", href="/", count="1"),
    ),
    entries=(
        EffectEntry(
            entry_id="e1",
            href="/preview/effects/",
            at=ago(minutes=2),
            event=Badge(word="Lookup: other content", icon="scan-search", tone="red"),
            note="1 refund, 3 fields differ",
            subject="Refund €1,240.00",
            subject_id=OPERATION,
            subject_href="/preview/case/",
            actor=SYSTEM,
            digest="e2c4…71",
        ),
        EffectEntry(
            entry_id="e2",
            href="/preview/effects/",
            at=ago(minutes=44),
            event=Badge(word="Confirmed by a person", icon="gavel", tone="amber"),
            note="1 difference accepted",
            subject="Order 6 × pump seal PS-4",
            subject_id="op_01KB95C0KD",
            actor=OTHER,
            digest="7c1e…d4",
            open=True,
            facts=(
                Fact(label="Decision", value=(Strong("Confirm it happened"), ", receipt ", Code("so_88190"))),
                Fact(label="Reason code", value=("Seen in the provider’s own records",)),
                Fact(
                    label="Reason",
                    value=("The supplier moved delivery by a day and confirmed the order number by phone.",),
                ),
                Fact(label="Case version", value=("4",)),
            ),
            body=JsonView(
                title="Entry (JSON)",
                text='{\n  "event": "decision.confirmed",\n  "operation": "op_01KB95C0KD"\n}',
            ),
        ),
        EffectEntry(
            entry_id="e3",
            href="/preview/effects/",
            at=ago(hours=2),
            event=Badge(word="Write refused by fencing", icon="octagon-x", tone="red"),
            note="token 7 is behind 9",
            subject="Create ticket RMA-20877",
            subject_id="op_01KB8WQH2P",
            actor=WORKER,
            digest="1f6a…e0",
        ),
        EffectEntry(
            entry_id="e4",
            href="/preview/effects/",
            at=ago(hours=30),
            event=Badge(word="Receipt stored", icon="receipt-text", tone="green"),
            subject="Refund €64.00",
            subject_id="op_01KB98EZ4R",
            actor=WORKER,
            digest="90be…17",
        ),
    ),
    printed="Printed 29 Nov 2026, 18:42:07 UTC by Sam Lane.",
    next=NextPage(href="/preview/effects/?after=x", label="Load older entries"),
)
SEARCH = SearchPage(
    now=NOW,
    query="ORD-77041",
    hits=(
        SearchHit(
            title="ORD-77041",
            href="/preview/run/",
            kind="Run",
            badge=Badge(word="Paused", icon="circle-pause", tone="violet"),
            detail=("order-exception-agent v14",),
        ),
        SearchHit(
            title="Refund €1,240.00",
            href="/preview/case/",
            kind="Case",
            badge=Badge(word="Needs a decision", icon="unknown", tone="amber", open=True),
            detail=(Code(OPERATION),),
        ),
    ),
)
SEARCH_EMPTY = SearchPage(
    now=NOW,
    query="op_nothing",
    empty=EmptyState(
        title="Nothing found",
        text="No run, operation, case or evidence that you can see has this id, key or reference.",
        icon="search",
    ),
)
