"""The root of every refusal: a fact that stopped a call, in words a caller can act on.

Refusals are raised where the fact is found and named for it; this module holds only the root and the
two that every layer shares. `word` is the machine's name for the fact (the last part of the problem
type in the HTTP API), the sentence is for people, and `details` carries what a caller needs to act.
"""

from __future__ import annotations

from typing import Any, ClassVar


class Refusal(Exception):
    """A call was refused and changed nothing, unless the subclass says what was kept."""

    word: ClassVar[str] = "refused"

    def __init__(self, sentence: str, **details: Any) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.details = details


class Invalid(Refusal):
    """The caller's words don't have the form that the call needs; `where` says which."""

    word = "invalid"


class NotFound(Refusal):
    """Nothing of that id is visible to the caller; another team's id is indistinguishable from none."""

    word = "not_found"
