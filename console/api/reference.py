"""The API's calls and words as tables for docs/api.md; `manage.py api_reference` writes them there.

A test holds the page to this, so that it can't tell of a call that isn't there.
"""

from __future__ import annotations

from typing import Any

from console.api.calling import BODY_WORDS, COMMON_WORDS
from console.api.problems import WORDS

BEGIN = "<!-- begin: manage.py api_reference -->"
END = "<!-- end -->"


def calls_table(schema: dict[str, Any]) -> str:
    """One row per call: method and address, who may call, what it answers, what only it refuses with."""
    lines = ["| call | scope | answers | refuses with |", "|---|---|---|---|"]
    everywhere = {*COMMON_WORDS, *BODY_WORDS}
    for address, methods in schema["paths"].items():
        for method, call in methods.items():
            own = [word for word in call["x-words"] if word not in everywhere]
            answers = [str(status) for status in sorted(map(int, call["responses"])) if status < 300]
            lines.append(
                f"| `{method.upper()} {address.removeprefix('/api/v1')}` | {' '.join(call['x-scopes'])} "
                f"| {' '.join(answers)} | {' '.join(f'`{word}`' for word in own)} |"
            )
    return "\n".join(lines)


def words_table() -> str:
    """One row per word: status, title, and what a caller does about it."""
    lines = ["| word | status | means |", "|---|---|---|"]
    lines += [
        f"| `{word}` | {meant.status} | **{meant.title}.** {meant.meaning} |"
        for word, meant in sorted(WORDS.items(), key=lambda item: (item[1].status, item[0]))
    ]
    return "\n".join(lines)


def page_part(schema: dict[str, Any]) -> str:
    """The part of docs/api.md between its two marks."""
    common = ", ".join(f"`{word}`" for word in COMMON_WORDS)
    body = ", ".join(f"`{word}`" for word in BODY_WORDS)
    return (
        f"{BEGIN}\n{calls_table(schema)}\n\nAny call may answer {common}; one that takes a body, {body}.\n\n"
        f"### The words\n\n{words_table()}\n{END}"
    )


def renewed(page: str, schema: dict[str, Any]) -> str:
    """The page with the part between its marks made anew."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + page_part(schema) + after
