"""An agent that one order goes through, and that waits at a window until it is let go on.

Argument: one JSON object. It says where it is on standard output, and how it ended.
"""

from __future__ import annotations

import json
import signal
import sys
from typing import Any

from console.staged.inside import say, wait_for_word
from recourse_client import Client, Decided, Effect, Go, HttpSender, Receipt, RecourseError

ORDER = Effect("order", tool="place_order", provider="sandbox-supplier", args={"sku": "FC-20", "quantity": 2})


def main(job: dict[str, Any]) -> str:
    def send(go: Go) -> Receipt:
        if job["window"] == "go":
            say("go")
            wait_for_word()
        receipt = HttpSender(
            f"{job['sandbox']}/acct/supplier/orders",
            receipt=lambda answer: Receipt(answer.json()["id"], answer.content),
        )(go)
        if job["window"] == "reply_read":
            say("reply_read")
            wait_for_word()
        return receipt

    with (
        Client(job["url"], job["token"], spool=job["spool"]) as client,
        client.run(
            flow="stopped",
            flow_version="1",
            external_id=job["external_id"],
            input={},
            lease_seconds=5,
            wait_seconds=30,
        ) as run,
    ):
        turn = run.turn(1, lambda: Decided("order it", [ORDER]))
        say("decided", run=run.id, operation=turn.call("order").operation.id)
        settled = turn.effect("order", send)
        run.complete({"ordered": True})
        return type(settled).__name__


if __name__ == "__main__":
    # A shell that started the suite in the background may have left SIGINT ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        say("ended", how=main(json.loads(sys.argv[1])))
    except RecourseError as error:
        say("ended", how=type(error).__name__)
