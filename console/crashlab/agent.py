"""One agent of the crash lab: `python -m console.crashlab.agent JSON`. An order, then an e-mail.

It is an ordinary user of the Python client. At the window that it is told to die in, it says so on standard
output and waits to be killed; nothing of it is ever asked to stop politely. It waits for the lab's word
before it starts its order, so that the lab can arrange for the provider to hold the request.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from console.staged.inside import say, wait_for_word, wait_to_be_killed
from recourse_client import (
    Client,
    Decided,
    Effect,
    GivenUp,
    Go,
    HttpSender,
    Receipt,
    Refused,
    RunEnded,
)

MAIL = Effect(
    "mail", tool="send_mail", provider="sandbox-mail", args={"to": "buyer@example.org", "subject": "Ordered"}
)


def main() -> None:
    job: dict[str, Any] = json.loads(sys.argv[1])
    with Client(job["url"], job["token"], spool=job["spool"]) as client:
        try:
            with client.run(
                flow="crash-lab",
                flow_version="1",
                external_id=job["external_id"],
                input={"trial": job["external_id"]},
                lease_seconds=job["lease_seconds"],
                wait_seconds=job["wait_seconds"],
            ) as run:
                _work(job, run)
        except RunEnded:
            say("ended")


def _work(job: dict[str, Any], run: Any) -> None:
    window = job.get("window", "")
    order = Effect(
        "order", tool="place_order", provider=job["provider"], args={"sku": "FC-20", "quantity": 2}
    )
    turn = run.turn(1, lambda: Decided("order it", [order]))
    operation = turn.call("order").operation
    say("decided", key=operation.idempotency_key, operation=operation.id, run=run.id)
    if window == "decided":
        wait_to_be_killed()
    if window:
        # The lab arranges its hold now.
        wait_for_word()
    ordered = turn.effect("order", lambda go: _send(job, window, go, job["provider"]))
    say("settled", kind=type(ordered).__name__)
    if window == "receipt_saved":
        wait_to_be_killed()
    if isinstance(ordered, GivenUp | Refused):
        run.complete({"ordered": False})
    else:
        mailed = run.turn(2, lambda: Decided("say so", [MAIL])).effect(
            "mail", lambda go: _send(job, "", go, "mail", kind="emails")
        )
        run.complete({"ordered": True, "mail": mailed.receipt.reference})
    say("completed")


def _send(job: dict[str, Any], window: str, go: Go, account: str, kind: str = "orders") -> Receipt:
    if window == "go":
        wait_to_be_killed("go")
    send = HttpSender(
        f"{job['sandbox']}/acct/{account}/{kind}",
        receipt=lambda answer: Receipt(answer.json()["id"], answer.json()),
    )
    receipt = send(go)
    if window == "reply_read":
        wait_to_be_killed("reply_read")
    return receipt


if __name__ == "__main__":
    main()
