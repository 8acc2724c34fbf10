"""An agent in a process of its own: one run, one order by HTTP. Prints a line when it has ended, and how.

Arguments: the provider's address. The journal, the token and the spool come from the environment.
"""

from __future__ import annotations

import signal
import sys

from recourse_client import Client, Decided, Effect, HttpSender, Receipt, RecourseError


def main(provider_url: str) -> str:
    order = Effect("order", tool="place_order", provider="stub", args={"sku": "A-1"})
    send = HttpSender(provider_url, receipt=lambda answer: Receipt(answer.json()["id"], answer.content))
    with (
        Client() as client,
        client.run(
            flow="order-agent", flow_version="6", external_id="ORD-1", input={}, lease_seconds=5
        ) as run,
    ):
        return run.turn(1, lambda: Decided("order it", [order])).effect("order", send).receipt.reference


if __name__ == "__main__":
    # A shell that started the suite in the background may have left SIGINT ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        print(f"ended with {main(sys.argv[1])}", flush=True)
    except RecourseError as error:
        print(f"ended with {type(error).__name__}", flush=True)
