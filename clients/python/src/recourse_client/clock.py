"""The clock that the start window and the lease are measured with.

A laptop that sleeps, or a virtual machine that is suspended, must find its window passed when it wakes.
So the clock has to run on while the machine doesn't, and must never be set back: that is CLOCK_BOOTTIME
on Linux and CLOCK_MONOTONIC on macOS (whose `time.monotonic` stands still during sleep).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TypeAlias

Clock: TypeAlias = Callable[[], float]


def _choose() -> Clock:
    number = getattr(time, "CLOCK_BOOTTIME", None)
    if number is None and sys.platform == "darwin":
        number = getattr(time, "CLOCK_MONOTONIC", None)
    if number is None:
        return time.monotonic
    chosen: int = number
    try:
        time.clock_gettime(chosen)
    except OSError:  # a kernel or a sandbox without it
        return time.monotonic
    return lambda: time.clock_gettime(chosen)


# Seconds since some fixed instant; only differences mean anything.
boot_seconds: Clock = _choose()
