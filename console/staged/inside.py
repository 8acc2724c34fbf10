"""The agent's half: it says where it is, and waits there for a word or for its end."""

from __future__ import annotations

import json
import os
import sys
from typing import Any, NoReturn


def say(event: str, **more: Any) -> None:
    """Tell whoever started us where we are: one JSON object on a line of standard output."""
    print(json.dumps({"event": event, **more}), flush=True)


def wait_for_word() -> None:
    """Wait until whoever started us lets us go on; ends the process when they are gone."""
    if not sys.stdin.readline():
        _end_with_them()


def wait_to_be_killed(window: str = "") -> NoReturn:
    """Say that the window is reached, and stay in it; nothing of us is ever asked to stop politely."""
    say("here", window=window)
    while sys.stdin.readline():
        pass
    _end_with_them()


def _end_with_them() -> NoReturn:
    # Nobody is left to kill us. Not `sys.exit`: it would be reported as something that the request came to.
    os._exit(1)
