"""moto's server, with a clock that a test can move: the milliseconds in PEER_CLOCK_FILE are added to it."""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from pathlib import Path

from moto.core import utils
from moto.server import main

_ahead = Path(os.environ["PEER_CLOCK_FILE"])
_now = utils.utcnow


def moved() -> datetime:
    return _now() + timedelta(milliseconds=int(_ahead.read_text() or "0"))


if __name__ == "__main__":
    # The queues' deduplication reads the time through this module.
    utils.utcnow = moved
    main()
