"""What pages make of instants, durations, amounts and other people's text."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.template import Context, Template

from console.pages import wording
from console.pages.shapes import Actor, Code, Counts, Link, Part, Since, Strong, Until
from console.templatetags import recourse
from reconciliation.states import CaseState, Truth
from runs.money import Money
from runs.states import OperationState, RunState

NOW = datetime(2026, 11, 29, 18, 42, 7, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "coarse", "fine"),
    [
        (0, "0 s", "0 s"),
        (59, "59 s", "59 s"),
        (60, "1 min", "1 min 00 s"),
        (599, "9 min", "9 min 59 s"),
        (600, "10 min", "10 min"),
        (3599, "59 min", "59 min"),
        (3600, "1 h 00 min", "1 h 00 min"),
        (172_799, "47 h 59 min", "47 h 59 min"),
        (172_800, "2 d 0 h", "2 d 0 h"),
        (-161, "2 min", "2 min 41 s"),
    ],
)
def test_a_duration_has_at_most_two_units(seconds: int, coarse: str, fine: str) -> None:
    assert wording.span(timedelta(seconds=seconds)) == coarse
    assert wording.span(timedelta(seconds=seconds), fine=True) == fine


def test_an_instant_names_its_day_and_year_only_where_they_differ() -> None:
    assert wording.clock(NOW - timedelta(hours=1), now=NOW) == "17:42:07Z"
    assert wording.clock(NOW - timedelta(days=1), now=NOW) == "28 Nov 18:42:07Z"
    assert wording.clock(datetime(2025, 1, 2, 3, 4, 5, tzinfo=UTC), now=NOW) == "2 Jan 2025 03:04:05Z"


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        ("a\u202eb", "a⟨U+202E⟩b"),
        ("a\u200bb\ufeff", "a⟨U+200B⟩b⟨U+FEFF⟩"),
        ("\x00\x1b[31m", "⟨U+0000⟩⟨U+001B⟩[31m"),
        ("\ud800", "⟨U+D800⟩"),
        ("tag\U000e0041", "tag⟨U+E0041⟩"),
        ("line\n\tkept", "line\n\tkept"),
        ("€1,240.00 größer 注文", "€1,240.00 größer 注文"),
    ],
)
def test_text_that_cant_be_seen_is_made_visible(hostile: str, shown: str) -> None:
    assert wording.inert(hostile) == shown


def test_a_long_text_is_cut_and_says_how_long_it_was() -> None:
    assert wording.inert("x" * 3_000) == "x" * 2_000 + "… (3,000 characters)"


def rendered(*phrase: Part) -> str:
    return Template("{% load recourse %}{% say phrase %}").render(Context({"phrase": phrase, "page": Page()}))


class Page:
    now = NOW


def test_a_sentence_escapes_every_part_of_it() -> None:
    text = rendered("<i>", Strong("<b>"), Code("<c>"), Link("<d>", "/x?a=1&b='\""), " ", Money("EUR", 124000))
    assert text == (
        '&lt;i&gt;<b>&lt;b&gt;</b><span class="id">&lt;c&gt;</span>'
        '<a href="/x?a=1&amp;b=&#x27;&quot;">&lt;d&gt;</a> €1,240.00'
    )


def test_a_sentence_tells_times_by_the_page_s_clock() -> None:
    text = rendered(Since(NOW - timedelta(minutes=2)), "|", Until(NOW + timedelta(minutes=13)), "|", NOW)
    words = [part.split(">")[1].split("<")[0] for part in text.split("|")]
    assert words == ["2 min ago", "in 13 min", "18:42:07Z"]
    assert 'datetime="2026-11-29T18:40:07Z"' in text
    assert 'title="29 Nov 2026, 18:40:07 UTC"' in text


def test_a_time_that_has_passed_is_not_still_to_come() -> None:
    assert "1 min ago" in rendered(Until(NOW - timedelta(minutes=1)))


def test_a_state_that_nobody_drew_is_shown_by_its_word() -> None:
    assert recourse.state_of("case", "looking_up").open is True
    assert recourse.state_of("case", "gone_fishing").word == "Gone fishing"


def test_every_state_has_a_badge_of_its_own() -> None:
    drawn = set(recourse._STATES)
    assert drawn == (
        {("operation", str(state)) for state in OperationState}
        | {("case", str(state)) for state in CaseState}
        | {("run", str(state)) for state in RunState}
    )
    # And one more for the last question once a case is over: it is no longer asked.
    assert set(recourse._ANSWERS) == {str(truth) for truth in Truth} | {"settled"}


def test_no_amount_is_a_dash_and_an_amount_is_exact() -> None:
    assert recourse.money(None) == "–"
    assert recourse.money(Money("KWD", 9007199254740991)) == "KWD 9,007,199,254,740.991"


@pytest.mark.parametrize(
    ("counts", "tone"),
    [
        (Counts(requests=2, effects=None), "grey"),
        (Counts(requests=2, effects=0), "grey"),
        (Counts(requests=2, effects=1, carrying_key=1), "green"),
        (Counts(requests=2, effects=1), "green"),
        (Counts(requests=2, effects=1, carrying_key=0), "red"),
        (Counts(requests=2, effects=2, carrying_key=2), "red"),
    ],
)
def test_effects_are_red_when_they_are_too_many_or_not_ours(counts: Counts, tone: str) -> None:
    assert counts.tone == tone


def test_initials_come_from_any_name() -> None:
    assert Actor(name="Maya van Dyk", is_person=True).initials == "MD"
    assert Actor(name="maya", is_person=True).initials == "M"
    assert Actor(name="…", is_person=True).initials == "?"
    assert Actor(name="worker-7c2f").initials == "W"
