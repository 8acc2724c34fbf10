"""Where a body that is laid out in lines can be folded: between brackets that end lines and begin them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

# A bracket around fewer lines than this is read faster than it is opened.
FOLD_LINES_MIN: Final = 3
# Deeper, or longer, starts folded: what is in it is not what a body is about, or hides what comes after it.
OPEN_DEPTH_MAX: Final = 3
OPEN_LINES_MAX: Final = 60


@dataclass(frozen=True, slots=True)
class Fold:
    """The lines between a bracket's own two, from `first` to before `end`."""

    first: int
    end: int
    open: bool

    @property
    def lines_count(self) -> int:
        return self.end - self.first


def folds_of(lines: list[str]) -> dict[int, Fold]:
    """The folds of laid-out JSON, by the number of the line that opens each; {} for any other text.

    The outermost bracket is no fold, and one whose end was cut off is none either.
    """
    if not lines or lines[0] not in ("{", "["):
        return {}
    return dict(_matched(lines))


def _matched(lines: list[str]) -> Iterator[tuple[int, Fold]]:
    opened: list[int] = []
    for number, line in enumerate(lines):
        # A string can't end its line with a bare bracket: it ends with a quote.
        if line[-1:] in ("{", "["):
            opened.append(number)
        elif line.lstrip()[:1] in ("}", "]") and opened:
            first = opened.pop() + 1
            depth, count = len(opened), number - first
            if depth and count >= FOLD_LINES_MIN:
                shown = depth < OPEN_DEPTH_MAX and count <= OPEN_LINES_MAX
                yield first - 1, Fold(first=first, end=number, open=shown)
