"""The bar of a budget that is to be raised: whatever the amounts, nothing reaches beyond it; all is said."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from console.pages.present.approval_budget import MARK_WIDTH, bar_of
from runs.money import Money

MINOR = some.integers(min_value=0, max_value=2**50)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(limit=MINOR, old=MINOR, used=some.tuples(MINOR, MINOR, MINOR, MINOR))
def test_no_part_reaches_beyond_the_bar_or_over_another(
    limit: int, old: int, used: tuple[int, int, int, int]
) -> None:
    names = ("spent", "reserved", "held", "next")
    given_amounts = {name: Money("EUR", minor) for name, minor in zip(names, used, strict=True)}
    bar = bar_of(Money("EUR", limit), Money("EUR", old), given_amounts)
    end = 0
    for part in bar.stretches:
        assert part.x >= end
        assert part.width >= 0
        end = part.x + part.width
        assert end <= 1000
    assert bar.mark_x is None or 0 <= bar.mark_x <= 1000 - MARK_WIDTH
    assert [part.name for part in bar.stretches] == [
        name for name, minor in zip(names, used, strict=True) if minor
    ]
    assert bar.remaining.minor == max(0, limit - sum(used))


def test_the_bar_says_in_words_what_it_shows() -> None:
    money = [Money("EUR", minor) for minor in (478_765, 0, 2_000, 110_640)]
    used = dict(zip(("spent", "reserved", "held", "next"), money, strict=True))
    bar = bar_of(Money("EUR", 650_000), Money("EUR", 500_000), used)
    assert [(part.name, part.width) for part in bar.stretches] == [("spent", 737), ("held", 3), ("next", 170)]
    assert bar.mark_x == 769
    assert bar.text == (
        "Of the new limit of €6,500.00: spent €4,787.65, held, outcome given up unknown €20.00,"
        " reserved by what waits €1,106.40, remaining €585.95. The old limit was €5,000.00."
    )
