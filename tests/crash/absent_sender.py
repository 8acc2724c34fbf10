"""A worker that sends what two people approved, and that stops once the record of the request is on disk.

Arguments: the approval's id, and "recorded" to stop there, or "" to go on.
"""

from __future__ import annotations

import os
import sys

import django


def main(approval_id: str, window: str) -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")
    django.setup()
    from console.staged.inside import say, wait_for_word
    from reconciliation import making_absent

    if window == "recorded":
        send = making_absent._send

        def stop_before(outgoing: making_absent._Outgoing) -> object:
            say("recorded")
            wait_for_word()
            return send(outgoing)

        making_absent._send = stop_before  # type: ignore[assignment]
    say("ended", outcome=making_absent.send(approval_id=approval_id))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
