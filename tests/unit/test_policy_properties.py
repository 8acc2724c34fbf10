"""What the policy never does, over facts that nobody thought of."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciliation.conclusions import (
    LOOKUPS_BEFORE_ASKING,
    AskPerson,
    ConfirmBy,
    NotSent,
    RejectBy,
    RepeatByKey,
)
from reconciliation.contracts import (
    AskedAgain,
    Contract,
    KeyAfter,
    LateSend,
    LookupKind,
    MakeAbsent,
    OnInFlight,
    Replays,
    WindowKind,
    key_still_protects,
)
from reconciliation.facts import AbsenceFacts, AttemptFacts, Facts, Holder, LookupFacts, RejectionFacts
from reconciliation.making_absent_rules import proves_absence
from reconciliation.policy import Assessment, assess
from reconciliation.providers.base import FindingKind
from reconciliation.questions import silent
from reconciliation.states import Action, CaseKind, CaseState, Permission, Truth
from reconciliation.strictness import held_to
from runs.states import RUN_ENDED, AttemptOutcome, OperationState, RunState
from tests.policy_facts import (
    KEY_ENDS_AT,
    PIN,
    QUIET_AT,
    SENT_AT,
    contract,
    keyless,
    later,
    lookup,
    receipt,
)
from tests.policy_facts import facts as known_facts
from tests.unit.test_strictness import account as an_account

# Hundreds of situations each: seconds of work, and minutes on a machine that is busy with something else.
pytestmark = pytest.mark.timeout(600)

# Times are drawn near the instants where something changes, and anywhere in two days.
MARKS = [timedelta(0), QUIET_AT - SENT_AT, KEY_ENDS_AT - SENT_AT, timedelta(minutes=10), timedelta(minutes=2)]
spans = st.one_of(
    st.builds(lambda mark, by: mark + timedelta(microseconds=by), st.sampled_from(MARKS), st.integers(-2, 2)),
    st.integers(0, 48 * 3600).map(lambda seconds: timedelta(seconds=seconds)),
)
times = spans.map(lambda span: SENT_AT + span)


@st.composite
def contracts(draw: st.DrawFn) -> Contract:
    kind = draw(st.sampled_from(LookupKind))
    lag_ms = draw(st.sampled_from([None, 0, 3_000]))
    fields = {
        "lookup": kind,
        "visibility_lag_ms": lag_ms,
        "absence_is_proof": draw(st.booleans()),
        "lookup_retention_ms": draw(st.sampled_from([None, 60_000, 24 * 3_600_000])),
        "rejection_replays": draw(st.booleans()),
        "on_in_flight": draw(st.sampled_from(OnInFlight)),
    }
    if draw(st.booleans()):
        return keyless(**fields)
    window = draw(st.sampled_from([WindowKind.DOCUMENTED, WindowKind.MINIMUM, WindowKind.UNPUBLISHED]))
    return contract(**fields, window_kind=window, replays=draw(st.sampled_from(Replays)))


@st.composite
def attempts(draw: st.DrawFn, number: int, now: datetime) -> AttemptFacts:
    minted_at = draw(times)
    outcome = draw(st.sampled_from(AttemptOutcome))
    holder = draw(st.sampled_from(Holder))
    lease_ends_at = now + draw(spans) + timedelta(microseconds=1)
    return AttemptFacts(
        number=number,
        outcome=outcome,
        minted_at=minted_at,
        quiet_after_at=minted_at + (QUIET_AT - SENT_AT),
        holder=holder,
        worker=draw(st.sampled_from(["worker-1", ""])),
        lease_ends_at=lease_ends_at if holder == Holder.LIVE else None,
        proved_not_sent=outcome == AttemptOutcome.NOT_SENT or draw(st.booleans()),
    )


ABSENCE_WAY = MakeAbsent(
    title="Cancel it",
    request="POST /cancel",
    says="It cancels.",
    late_send=LateSend.MAY_LAND,
    key_after=KeyAfter.UNKNOWN,
    again=AskedAgain.UNKNOWN,
    proves_within_ms=3_600_000,
)


@st.composite
def absences(draw: st.DrawFn) -> list[AbsenceFacts]:
    """The requests to make it absent that have left; at most the last is open. Usually there is none."""
    count = draw(st.sampled_from([0, 0, 0, 1, 2]))
    found = []
    for number in range(1, count + 1):
        sent_at = draw(times)
        found.append(
            AbsenceFacts(
                number=number,
                sent_at=sent_at,
                quiet_after_at=sent_at + (QUIET_AT - SENT_AT),
                open=number == count and draw(st.booleans()),
            )
        )
    return found


@st.composite
def known(draw: st.DrawFn, now: datetime) -> Facts:
    tried = tuple(draw(attempts(number, now)) for number in range(1, draw(st.integers(0, 3)) + 1))
    case_state = draw(st.sampled_from(CaseState))
    # An open grant is a retry under way: nothing else leaves one behind.
    grant = draw(st.sampled_from(["", "grant_1"])) if case_state == CaseState.RETRYING else ""
    finding = draw(st.sampled_from([None, *FindingKind]))
    return Facts(
        operation_state=draw(st.sampled_from([OperationState.SENT_UNKNOWN] * 4 + list(OperationState))),
        case_kind=draw(st.sampled_from([CaseKind.UNKNOWN, CaseKind.UNKNOWN, CaseKind.CONFLICT])),
        case_state=case_state,
        opened_at=draw(times),
        turn_index=1,
        call_id="c1",
        attempts=tried,
        first_sent_at=draw(st.sampled_from([SENT_AT, SENT_AT, None])),
        last_quiet_at=max((one.quiet_after_at for one in tried), default=None),
        pinned=PIN,
        current=draw(st.sampled_from([PIN, PIN, replace(PIN, endpoint="other")])),
        console_can_send=True,
        receipts=tuple(
            receipt(name, matches=matches)
            for name, matches in draw(
                st.lists(st.tuples(st.sampled_from(["ord_1", "ord_2"]), st.booleans()), max_size=3)
            )
        ),
        rejections=tuple(
            RejectionFacts(attempt_number=number, evidence_id=f"ev_{number}")
            for number in draw(st.lists(st.integers(1, 3), max_size=2))
        ),
        mismatch_reported=draw(st.sampled_from(["", "", "ev_m"])),
        shown_before=draw(st.sampled_from(["", "", "ev_s"])),
        lookup=None
        if finding is None
        else LookupFacts(
            finding=finding,
            proof=draw(st.booleans()),
            asked_at=draw(times),
            evidence_id="ev_lookup",
            summary="It was asked.",
        ),
        lookups_count=draw(st.integers(0, 10)),
        lookups_failed_count=draw(st.integers(0, 10)),
        grant_open=grant,
        grant_ends_at=now + draw(spans) if grant else None,
        run_state=draw(st.sampled_from([RunState.OPEN, RunState.PAUSED, *RunState])),
        paused_for_version=draw(st.sampled_from(["", "", "6"])),
        approval_until_at=draw(st.one_of(st.none(), times)),
        abandonment_people=draw(st.sampled_from([1, 2])),
        may_repeat_alone=draw(st.booleans()),
        absence_way=draw(st.sampled_from([None, ABSENCE_WAY, replace(ABSENCE_WAY, proves_within_ms=None)])),
        absences=tuple(draw(absences())),
        key_reaches_console=draw(st.sampled_from([True, True, False])),
    )


@st.composite
def situations(draw: st.DrawFn) -> tuple[Facts, Contract, datetime]:
    now = draw(times)
    # As `gathering` reads them: by time alone nothing is left undone.
    return later(draw(known(now)), now), draw(contracts()), now


@settings(max_examples=200, deadline=None)
@given(situations())
def test_one_person_never_repeats_where_the_key_may_protect_nothing(
    situation: tuple[Facts, Contract, datetime],
) -> None:
    facts, promised, now = situation
    status = assess(facts, promised, now).action(Action.RETRY)
    if status is None or status.permission is not Permission.ALLOWED:
        return
    assert promised.honours_key
    assert promised.window_kind in (WindowKind.DOCUMENTED, WindowKind.MINIMUM)
    assert facts.pinned is not None
    assert facts.current is not None
    assert key_still_protects(promised, pinned=facts.pinned, current=facts.current)
    assert facts.first_sent_at is not None
    starts_by = promised.repeat_starts_by(facts.first_sent_at)
    assert starts_by is not None
    assert now < starts_by
    assert status.closes_at is not None
    assert status.closes_at <= starts_by
    # Nothing on record says that it happened, nobody can still send it, and the run goes on.
    assert facts.attempts
    assert all(silent(one, now) for one in facts.attempts)
    assert not any(one.matches for one in facts.receipts)
    assert not facts.mismatch_reported
    assert not facts.shown_before
    assert facts.lookup is None or facts.lookup.finding not in (
        FindingKind.FOUND,
        FindingKind.PENDING,
        FindingKind.MISMATCH,
        FindingKind.SEVERAL,
    )
    assert facts.case_kind == CaseKind.UNKNOWN
    assert facts.run_state not in RUN_ENDED


@settings(max_examples=200, deadline=None)
@given(situations())
def test_nothing_is_settled_beyond_its_evidence(situation: tuple[Facts, Contract, datetime]) -> None:
    facts, promised, now = situation
    conclusion = assess(facts, promised, now).conclusion
    open_effects = [one.number for one in facts.attempts if not one.proved_not_sent]
    if isinstance(conclusion, ConfirmBy | RejectBy | NotSent):
        assert facts.operation_state == OperationState.SENT_UNKNOWN
        assert facts.case_state != CaseState.RESOLVED
        assert facts.case_kind == CaseKind.UNKNOWN
    match conclusion:
        case ConfirmBy(reference=reference):
            assert {one.reference for one in facts.receipts if one.matches} == {reference}
            assert not facts.mismatch_reported
            assert facts.lookup is None or facts.lookup.finding not in (
                FindingKind.MISMATCH,
                FindingKind.SEVERAL,
            )
        case NotSent(proof="reports"):
            assert facts.attempts
            assert not open_effects
        case NotSent():
            assert promised.absence_is_proof
            assert promised.has_reliable_lookup
            assert promised.visibility_lag_ms is not None
            assert facts.lookup is not None
            assert facts.lookup.finding == FindingKind.NOT_FOUND
            assert facts.lookup.proof
            assert not facts.shown_before
            assert facts.last_quiet_at is not None
            shown_by = facts.last_quiet_at + timedelta(milliseconds=promised.visibility_lag_ms)
            assert facts.lookup.asked_at >= shown_by
            assert facts.first_sent_at is not None
            forgotten_at = promised.lookup_speaks_until(facts.first_sent_at)
            assert forgotten_at is None or facts.lookup.asked_at < forgotten_at
            assert all(silent(one, now) for one in facts.attempts)
        case RejectBy():
            rejected = {one.attempt_number for one in facts.rejections}
            by_record = facts.lookup is not None and facts.lookup.finding == FindingKind.REFUSED
            alone = len(open_effects) <= 1 if by_record else not set(open_effects) - rejected
            assert promised.rejection_replays or alone
        case _:
            pass


@pytest.mark.parametrize("kind", [one for one in LookupKind if not contract(lookup=one).has_reliable_lookup])
def test_absence_is_never_concluded_by_a_lookup_that_is_not_exact_whatever_the_contract_says(
    kind: LookupKind,
) -> None:
    """A file that says so is refused; a row of the database or a code adapter must not get around that."""
    promised = contract(lookup=kind, absence_is_proof=True, visibility_lag_ms=0)
    now = QUIET_AT + timedelta(hours=1)
    seen = lookup(FindingKind.NOT_FOUND, asked_at=now, proof=True)
    facts = known_facts(lookup=seen, lookups_count=9)
    assert not isinstance(assess(facts, promised, now).conclusion, NotSent)
    exact = contract(lookup=LookupKind.BY_KEY, absence_is_proof=True, visibility_lag_ms=0)
    assert isinstance(assess(facts, exact, now).conclusion, NotSent)


@settings(max_examples=200, deadline=None)
@given(situations())
def test_one_person_never_confirms_on_a_mismatch_or_on_several(
    situation: tuple[Facts, Contract, datetime],
) -> None:
    facts, promised, now = situation
    status = assess(facts, promised, now).action(Action.CONFIRM)
    if status is None or status.permission is not Permission.ALLOWED:
        return
    free = {one.reference for one in facts.receipts if one.matches and not one.confirmed_other}
    assert len(free) == 1
    finding = facts.lookup.finding if facts.lookup else None
    assert finding not in (FindingKind.MISMATCH, FindingKind.SEVERAL)
    assert finding is FindingKind.FOUND or not facts.mismatch_reported


@settings(max_examples=200, deadline=None)
@given(situations())
def test_after_the_keys_window_a_repeat_takes_a_second_person_or_nobody_may(
    situation: tuple[Facts, Contract, datetime],
) -> None:
    facts, promised, now = situation
    ends_at = promised.key_ends_at(facts.first_sent_at) if facts.first_sent_at else None
    if ends_at is not None and now < ends_at:
        now = ends_at
        facts = later(facts, now)
    assert _permission(assess(facts, promised, now), Action.RETRY) is not Permission.ALLOWED


@st.composite
def calm_facts(draw: st.DrawFn) -> Facts:
    """What would be put to a person because nothing is there; now and then with something against it."""
    asked_at = draw(times)
    return known_facts(
        lookup=draw(
            st.sampled_from(
                [
                    None,
                    lookup(FindingKind.NOT_FOUND, asked_at=asked_at),
                    lookup(FindingKind.NOT_FOUND, asked_at=asked_at),
                    lookup(FindingKind.CANDIDATE, asked_at=asked_at),
                ]
            )
        ),
        current=draw(st.sampled_from([PIN, PIN, PIN, replace(PIN, region="other")])),
        run_state=draw(st.sampled_from([RunState.OPEN, RunState.PAUSED, RunState.ABANDONED])),
        may_repeat_alone=draw(st.sampled_from([True, True, False])),
        grant_ended_unused=draw(st.sampled_from(["", "", "grant_1"])),
    )


@settings(max_examples=300, deadline=None)
@given(
    calm_facts(),
    times,
    st.sampled_from(Replays),
    st.sampled_from(OnInFlight),
    st.sampled_from([WindowKind.DOCUMENTED, WindowKind.DOCUMENTED, WindowKind.UNPUBLISHED]),
)
def test_the_policy_repeats_alone_only_where_one_person_may_and_the_same_key_makes_no_second_effect(
    calm: Facts, now: datetime, replays: Replays, on_in_flight: OnInFlight, window: WindowKind
) -> None:
    promised = contract(replays=replays, on_in_flight=on_in_flight, window_kind=window)
    facts = replace(calm, lookups_count=LOOKUPS_BEFORE_ASKING)
    judged = assess(facts, promised, now)
    if not isinstance(judged.conclusion, RepeatByKey):
        return
    assert facts.may_repeat_alone
    assert _permission(judged, Action.RETRY) is Permission.ALLOWED
    assert promised.replays not in (Replays.NOTHING, Replays.UNKNOWN)
    assert promised.on_in_flight not in (OnInFlight.PERFORMED, OnInFlight.UNKNOWN)
    assert facts.first_sent_at is not None
    starts_by = promised.repeat_starts_by(facts.first_sent_at)
    assert starts_by is not None
    assert now < starts_by
    # Without the flow's choice the same situation is put to a person.
    asked = assess(replace(facts, may_repeat_alone=False), promised, now).conclusion
    assert isinstance(asked, AskPerson)


HOUR_MS = 3_600_000
tightenings = st.fixed_dictionaries(
    {},
    optional={
        "key_window_trusted": st.just(False),
        "dedup_window_ms": st.sampled_from([1, HOUR_MS, 23 * HOUR_MS]),
        "window_margin_ms": st.sampled_from([600_000, HOUR_MS]),
        "rejection_replays": st.just(False),
        "lookups": st.just(False),
        "visibility_lag_ms": st.sampled_from([5_000, HOUR_MS]),
        "lookup_retention_ms": st.sampled_from([1, 60_000, HOUR_MS]),
        "absence_is_proof": st.just(False),
    },
)
# From what needs nobody's consent to what nobody may do.
STRICTNESS = {Permission.ALLOWED: 0, Permission.SECOND_PERSON: 1, Permission.LOCKED: 2}


@settings(max_examples=300, deadline=None)
@given(situations(), tightenings)
def test_a_tightened_contract_never_lets_more_be_done_or_concluded(
    situation: tuple[Facts, Contract, datetime], tightened: dict[str, object]
) -> None:
    facts, promised, now = situation
    held = held_to(an_account(promised), tightened).contract
    before, after = assess(facts, promised, now), assess(facts, held, now)
    for status in before.actions:
        tighter = _permission(after, status.action)
        assert tighter is not None
        assert STRICTNESS[tighter] >= STRICTNESS[status.permission], status.action
    if isinstance(after.conclusion, ConfirmBy | RejectBy | NotSent):
        assert after.conclusion == before.conclusion


@settings(max_examples=200, deadline=None)
@given(situations())
def test_every_answer_and_every_lock_has_its_reason_in_words(
    situation: tuple[Facts, Contract, datetime],
) -> None:
    facts, promised, now = situation
    judged = assess(facts, promised, now)
    for sentence in [
        *(one.sentence for one in judged.answers),
        *(one.sentence for one in judged.actions),
    ]:
        assert sentence.strip().endswith(".")
        assert "try again" not in sentence.lower()
        assert "None" not in sentence
    for action in judged.actions:
        if action.question and action.permission is Permission.LOCKED:
            answered_yes = judged.answers[action.question - 1].truth is Truth.YES
            assert not answered_yes or action.action is Action.ABANDON


@settings(max_examples=300, deadline=None)
@given(situations(), spans)
def test_what_time_unlocks_says_when(situation: tuple[Facts, Contract, datetime], passes: timedelta) -> None:
    """A lock without a time stays until somebody acts; one with a time stays until then."""
    facts, promised, now = situation
    then = now + passes
    before, after = assess(facts, promised, now), assess(later(facts, then), promised, then)
    for action in before.actions:
        if action.permission is not Permission.LOCKED:
            continue
        assert action.unlocks_at is None or action.unlocks_at >= now
        if action.unlocks_at is None or then < action.unlocks_at:
            assert _permission(after, action.action) is Permission.LOCKED, action
            continue
        if then == action.unlocks_at:
            continue
        # What is named has passed: if it is still locked, it is for another reason or until another time.
        status = after.action(action.action)
        assert status is not None
        said = (action.permission, action.sentence, action.unlocks_at)
        assert (status.permission, status.sentence, status.unlocks_at) != said or action.unlocks_at == now


@settings(max_examples=200, deadline=None)
@given(situations(), spans)
def test_what_one_person_may_repeat_they_may_until_the_time_that_is_named(
    situation: tuple[Facts, Contract, datetime], passes: timedelta
) -> None:
    facts, promised, now = situation
    then = now + passes
    status = assess(facts, promised, now).action(Action.RETRY)
    if status is None or status.permission is not Permission.ALLOWED:
        return
    assert status.closes_at is not None
    after = _permission(assess(later(facts, then), promised, then), Action.RETRY)
    assert (after is Permission.ALLOWED) is (then < status.closes_at)


def _permission(judged: Assessment, action: Action) -> Permission | None:
    status = judged.action(action)
    return status.permission if status else None


@settings(max_examples=300, deadline=None)
@given(situations())
def test_an_effect_is_made_absent_by_two_people_and_only_where_nobody_knows_its_outcome(
    situation: tuple[Facts, Contract, datetime],
) -> None:
    facts, promised, now = situation
    judged = assess(facts, promised, now)
    permission = _permission(judged, Action.MAKE_ABSENT)
    assert permission is not Permission.ALLOWED
    assert not (permission and facts.absence_way is None)
    if permission is not Permission.SECOND_PERSON:
        return
    assert facts.operation_state == OperationState.SENT_UNKNOWN
    assert facts.case_state not in (CaseState.RESOLVED, CaseState.AWAITING_APPROVAL, CaseState.RETRYING)
    # No attempt can still reach the provider, and no earlier request of the kind can still take effect.
    assert facts.attempts
    assert all(silent(one, now) for one in facts.attempts)
    assert not any(one.open for one in facts.absences)
    assert facts.pinned == facts.current
    assert facts.key_reaches_console
    if not facts.absences:
        assert not any(one.matches for one in facts.receipts)
        assert facts.lookup is None or facts.lookup.finding != FindingKind.FOUND


@settings(max_examples=300, deadline=None)
@given(situations())
def test_after_a_request_to_make_it_absent_an_older_word_settles_nothing_and_the_key_is_used_no_more(
    situation: tuple[Facts, Contract, datetime],
) -> None:
    facts, promised, now = situation
    if not facts.absences:
        return
    judged = assess(facts, promised, now)
    assert _permission(judged, Action.RETRY) in (None, Permission.LOCKED)
    assert not isinstance(judged.conclusion, NotSent | RepeatByKey)
    unsettled = facts.operation_state == OperationState.SENT_UNKNOWN
    if any(one.open for one in facts.absences) and unsettled:
        assert not isinstance(judged.conclusion, ConfirmBy | RejectBy)
        assert all(one.permission is Permission.LOCKED for one in judged.actions)
    since = max(one.quiet_after_at for one in facts.absences)
    if isinstance(judged.conclusion, ConfirmBy) or _permission(judged, Action.CONFIRM) is Permission.ALLOWED:
        assert facts.lookup is not None
        assert facts.lookup.finding == FindingKind.FOUND
        assert facts.lookup.asked_at >= since


@given(situations(), times, st.integers(0, 3))
def test_its_answer_proves_absence_only_in_time_and_where_nothing_contradicts_it(
    situation: tuple[Facts, Contract, datetime], sent_at: datetime, before: int
) -> None:
    facts, promised, _ = situation
    absence = AbsenceFacts(number=1, sent_at=sent_at, quiet_after_at=sent_at, open=True)
    for way in (ABSENCE_WAY, replace(ABSENCE_WAY, proves_within_ms=None)):
        if not proves_absence(facts, promised, way, absence, attempts_before=before):
            continue
        assert way.proves_within_ms is not None
        assert facts.first_sent_at is not None
        # Also the slowest was there in time.
        until = facts.first_sent_at + timedelta(milliseconds=way.proves_within_ms)
        assert promised.quiet_at(sent_at) < until
        assert before == len(facts.attempts)
        assert not any(one.matches for one in facts.receipts)
        assert not facts.mismatch_reported
