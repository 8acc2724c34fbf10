"""A provider's answer reads the same here as in the journal's plan, however hostile it is."""

from __future__ import annotations

import json

import pytest

from recourse_client.answers import shown
from runs.plan import _value

BODIES: list[bytes] = [
    b'{"id": "ord_1", "total": 1.0, "share": 0.5}',
    b'[1, 2e3, -0, "\\u00e9"]',
    b"null",
    b'"text"',
    b"",
    b"accepted",
    b"<html>" + b"x" * 5_000,
    b"\xff\xfe",
    b'{"a": 1, "a": 2}',
    b'{"a": NaN}',
    b"[Infinity]",
    b'{"n": 9007199254740991}',
    b'{"n": 9007199254740992}',
    b'{"n": 1e400}',
    b'{"n": 1e16}',
    b"[" + b"1" * 5_000 + b"]",
    b"[0." + b"1" * 200 + b"]",
    b'"\\u0000"',
    b'{"\\u0000": 1}',
    b'"\\ud800"',
    b'"\\ud83d\\ude00"',
    b"[" * 64 + b"]" * 64,
    b"[" * 65 + b"]" * 65,
    b"[" * 63 + b"1" + b"]" * 63,
    b"[" * 64 + b'"x"' + b"]" * 64,
    b"[" * 100_000,
    b'{"a":' * 500 + b"1" + b"}" * 500,
]


@pytest.mark.parametrize("body", BODIES, ids=[repr(body[:24]) for body in BODIES])
def test_an_answer_is_shown_as_the_plan_will_show_it(body: bytes) -> None:
    here, there = shown(body), _value(body)
    assert json.dumps(here) == json.dumps(there)
