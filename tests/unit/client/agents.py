"""The least agent that tests need: one run, one turn, one order, one function that counts its calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from recourse_client import Client, Decided, Effect, Go, Json, Read, Receipt, Run, Turn

ORDER = Effect("order", tool="place_order", provider="stub", args={"sku": "A-1", "count": 2})
PRICE = Read("price", tool="price", args={"sku": "A-1"})


class Shop:
    """A sending function that remembers what it was asked, and does what it is told."""

    def __init__(self, does: Callable[[Go], Any] | None = None) -> None:
        self.asked: list[Go] = []
        self._does = does

    def __call__(self, go: Go) -> Receipt:
        self.asked.append(go)
        if self._does is None:
            return Receipt(f"shop-{go.key}", {"key": go.key, "sku": "A-1"})
        answer: Receipt = self._does(go)
        return answer


def raising(error: BaseException) -> Shop:
    def fail(go: Go) -> Receipt:
        raise error

    return Shop(fail)


class Model:
    """A model that remembers how often it was asked."""

    def __init__(self, *calls: Effect | Read, parallel: bool = False) -> None:
        self.asked = 0
        self._decided = Decided("as you wish", calls or (ORDER,), parallel=parallel)

    def __call__(self) -> Decided:
        self.asked += 1
        return self._decided


@contextmanager
def order_run(client: Client, **options: Json) -> Iterator[Run]:
    named: dict[str, Json] = {
        "flow": "order-agent",
        "flow_version": "6",
        "external_id": "ORD-1",
        "input": {"sku": "A-1"},
        **options,
    }
    with client.run(**named) as run:
        yield run


@contextmanager
def order_turn(client: Client, **options: Json) -> Iterator[Turn]:
    with order_run(client, **options) as run:
        yield run.turn(1, Model())
