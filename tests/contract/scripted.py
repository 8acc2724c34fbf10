"""A server that gives its answers in order, whatever it is asked, and keeps what it was asked."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tests.contract.fault_server import Conversation, http_answer


@dataclass(frozen=True)
class Asked:
    method: str
    path: str
    query: list[tuple[str, str]]
    headers: dict[str, str]
    body: bytes

    @property
    def form(self) -> dict[str, str]:
        return dict(parse_qsl(self.body.decode(), strict_parsing=True))


def answer(value: object, *, status: str = "200 OK", extra: str = "") -> bytes:
    return http_answer(json.dumps(value).encode(), status=status, extra=extra)


class Scripted:
    """The script of a `FaultServer`; connections share the one list of answers.

    `hangs_up`: after the last of them it closes the connection, so that nobody waits for the rest of one that
    is cut short.
    """

    def __init__(self, *answers: bytes, hangs_up: bool = False) -> None:
        self.answers = list(answers)
        self.hangs_up = hangs_up
        self.asked: list[Asked] = []
        self._lock = threading.Lock()

    def __call__(self, conversation: Conversation) -> None:
        while True:
            head, _, body = conversation.read_request().partition(b"\r\n\r\n")
            first, *lines = head.decode().split("\r\n")
            method, target, _ = first.split(" ")
            parts = urlsplit(target)
            headers: dict[str, Any] = {}
            for line in lines:
                name, _, value = line.partition(": ")
                headers[name.lower()] = value
            with self._lock:
                pairs = parse_qsl(parts.query, keep_blank_values=True)
                self.asked.append(Asked(method, parts.path, pairs, headers, body))
                said = self.answers.pop(0)
            conversation.send(said)
            if self.hangs_up and not self.answers:
                return

    @property
    def paths(self) -> list[str]:
        return [one.path for one in self.asked]
