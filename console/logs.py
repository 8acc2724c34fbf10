"""What a log line may say: no local variables, and nothing that is, or looks like, a secret.

A log is read by more people than the journal and kept by other systems. An exception's locals hold payloads,
credentials and answers, so a traceback is files, lines and names only; and whatever is logged, also by a
library, loses secrets in use, values under names that say secret, card numbers and tokens of known shapes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, MutableMapping
from typing import Any

import structlog

from reconciliation.providers.redaction import REDACTED, Redactor, redactor_for

# Of one text in a line: a database's error repeats what it was given, at any length.
TEXT_LENGTH_MAX = 4_000
# Frames of one traceback.
FRAMES_MAX = 50
# Whoever has this address chooses the person's password. Django logs the address of what it refused.
_INVITATION = re.compile(r"(/login/invitation/[^/\s]+/)[^/\s]+")

Processor = structlog.typing.Processor


def tracebacks_without_locals() -> Processor:
    """Exceptions as JSON: types, sentences, files, lines and names."""
    return structlog.processors.ExceptionRenderer(
        structlog.tracebacks.ExceptionDictTransformer(
            show_locals=False, max_frames=FRAMES_MAX, use_rich=False
        )
    )


class Redacted:
    """The last step before a line is written: secrets out, texts bounded, everything else as plain text."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        """`secrets` are values in use, looked for wherever they stand."""
        self._redactor: Redactor = redactor_for(
            {str(number): secret for number, secret in enumerate(secrets) if secret}
        )

    def __call__(self, logger: Any, method: str, event: MutableMapping[str, Any]) -> Mapping[str, Any]:
        redacted: dict[str, Any] = self._redactor.value(_plain(dict(event)))
        return redacted


def _plain(value: Any) -> Any:
    """A copy in which everything is text, a number, a list or a dictionary: only that can be searched."""
    match value:
        case None | bool() | int() | float():
            return value
        case str():
            text = value if len(value) <= TEXT_LENGTH_MAX else f"{value[:TEXT_LENGTH_MAX]}…"
            return _INVITATION.sub(rf"\g<1>{REDACTED}", text)
        case Mapping():
            return {str(name): _plain(inner) for name, inner in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_plain(inner) for inner in value]
        case bytes() | bytearray() | memoryview():
            # Bytes are bodies and keys; how many there were says enough.
            return f"{len(value)} bytes"
        case _:
            return _plain(str(value))
