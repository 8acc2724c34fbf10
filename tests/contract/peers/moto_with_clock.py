"""moto's server, with a clock that a test can move, and one request at a time.

The milliseconds in PEER_CLOCK_FILE are added to its time. It works in threads without locks, so that two
starts of one name at once can both go through; what the services promise there, it can't show.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from moto import server
from moto.core import utils

Application = Callable[[Any, Any], Iterable[bytes]]

_ahead = Path(os.environ["PEER_CLOCK_FILE"])
_now = utils.utcnow
_serve = server.run_simple


def moved() -> datetime:
    return _now() + timedelta(milliseconds=int(_ahead.read_text() or "0"))


def one_at_a_time(host: str, port: int, application: Application, **how: Any) -> None:
    lock = threading.Lock()

    def locked(environ: Any, start_response: Any) -> Iterable[bytes]:
        with lock:
            return application(environ, start_response)

    _serve(host, port, locked, **how)


if __name__ == "__main__":
    # The queues' deduplication reads the time through this module.
    utils.utcnow = moved
    server.run_simple = one_at_a_time
    server.main()
