"""Bodies that no endpoint may choke on, each with the word of the refusal it must get.

`HOSTILE_BODIES` are whole bodies that concern the JSON reader alone. `wrong_types` and `missing_members`
make more from a body that an endpoint accepts. Large bodies are made when asked for, not on import.

    @pytest.mark.parametrize("hostile", HOSTILE_BODIES, ids=str)
    def test_…(hostile): post(hostile.body) … == hostile.endpoint_word
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

UNREADABLE = "unreadable_json"
TOO_LARGE = "too_large"
INVALID = "invalid"


@dataclass(frozen=True)
class HostileBody:
    """A body, by name, and the reader's word for it: None where the reader must accept it."""

    name: str
    make: Callable[[], bytes]
    word: str | None

    def __str__(self) -> str:
        return self.name

    @property
    def body(self) -> bytes:
        """The bytes to send."""
        return self.make()

    @property
    def endpoint_word(self) -> str:
        """The word an endpoint that requires members must answer: readable is not yet a valid call."""
        return self.word or INVALID


def _refused(name: str, body: bytes) -> HostileBody:
    return HostileBody(name, lambda: body, UNREADABLE)


def _accepted(name: str, body: bytes) -> HostileBody:
    return HostileBody(name, lambda: body, None)


_EMPTY = [
    _refused("empty", b""),
    _refused("whitespace only", b" \t\r\n "),
    _refused("a form feed as whitespace", b'\x0c{"a":1}'),
    _refused("a no-break space as whitespace", '\u00a0{"a":1}'.encode()),
]

_ENCODING = [
    _refused("byte order mark", b'\xef\xbb\xbf{"a":1}'),
    _refused("UTF-16 with mark", '{"a":1}'.encode("utf-16")),
    _refused("UTF-16 little-endian", '{"a":1}'.encode("utf-16-le")),
    _refused("UTF-16 big-endian", '{"a":1}'.encode("utf-16-be")),
    _refused("UTF-32", '{"a":1}'.encode("utf-32")),
    _refused("Latin-1", '{"a":"é"}'.encode("latin-1")),
    _refused("lone continuation byte", b'{"a":"\x80"}'),
    _refused("overlong slash", b'{"a":"\xc0\xaf"}'),
    _refused("overlong U+0000", b'{"a":"\xc0\x80"}'),
    _refused("beyond U+10FFFF", b'{"a":"\xf4\x90\x80\x80"}'),
    _refused("truncated sequence", b'{"a":"\xe2\x82'),
    _refused("surrogate encoded raw", b'{"a":"\xed\xa0\x80"}'),
    _refused("surrogate pair encoded raw", b'{"a":"\xed\xa0\xbd\xed\xb8\x80"}'),
]

_CHARACTERS = [
    _refused("lone high surrogate", b'{"a":"\\ud800"}'),
    _refused("lone low surrogate", b'{"a":"\\uDC00"}'),
    _refused("surrogates in the wrong order", b'{"a":"\\udc00\\ud800"}'),
    _refused("high surrogate before a letter", b'{"a":"\\ud83dx"}'),
    _refused("lone surrogate in a name", b'{"\\udfff":1}'),
    _refused("lone surrogate deep inside", b'{"a":[{"b":["ok","\\uDBFF"]}]}'),
    _refused("NUL escaped", b'{"a":"x\\u0000y"}'),
    _refused("NUL escaped in a name", b'{"x\\u0000y":1}'),
    _refused("NUL raw in a string", b'{"a":"x\x00y"}'),
    _refused("NUL raw after the document", b'{"a":1}\x00'),
    _refused("NUL raw first", b'\x00{"a":1}'),
    _refused("raw newline in a string", b'{"a":"x\ny"}'),
    _refused("raw tab in a string", b'{"a":"x\ty"}'),
    _refused("raw escape character in a string", b'{"a":"\x1b[2J"}'),
    _accepted("surrogate pair escaped", b'{"a":"\\ud83d\\ude00"}'),
    _accepted("an escape that only looks like a surrogate", b'{"a":"\\\\ud800"}'),
    _accepted("an escape that only looks like NUL", b'{"a":"\\\\u0000"}'),
    _accepted("delete, line separator, bidi override", '{"a":"\x7f\u2028\u202e"}'.encode()),
]

_NAMES = [
    _refused("duplicate name", b'{"a":1,"a":2}'),
    _refused("duplicate name with equal values", b'{"a":1,"a":1}'),
    _refused("duplicate name, one spelled by an escape", b'{"a":1,"\\u0061":2}'),
    _refused("duplicate empty name", b'{"":1,"":2}'),
    _refused("duplicate name far apart", b'{"a":1,"b":{"a":1},"c":[],"a":2}'),
    _refused("duplicate name one level down", b'{"x":{"a":1,"a":2}}'),
    _refused("duplicate name in an array", b'[0,[1,{"a":1,"a":2}]]'),
    _refused("duplicate name ten levels down", b'{"x":' * 10 + b'{"a":1,"a":2}' + b"}" * 10),
    _refused("duplicate name inside a duplicate", b'{"x":{"a":1,"a":2},"x":1}'),
    HostileBody("100,000 duplicate names", lambda: b"{" + b'"a":1,' * 99_999 + b'"a":1}', UNREADABLE),
    _accepted("same name in different objects", b'[{"a":1},{"a":1,"b":{"a":1}}]'),
    _accepted("prototype names", b'{"__proto__":{"admin":true},"constructor":{"prototype":{}}}'),
    _accepted("Python names", b'{"__class__":"os.system","__reduce__":["id"],"self":1}'),
    _accepted("template in a string", b'{"a":"{{7*7}}{% debug %}<script>alert(1)</script>"}'),
]

_NUMBERS = [
    *(_refused(f"constant {name}", f'{{"a":{name}}}'.encode()) for name in ("NaN", "Infinity", "-Infinity")),
    _refused("NaN as the whole body", b"NaN"),
    _refused("nan in lower case", b'{"a":nan}'),
    _refused("-NaN", b'{"a":-NaN}'),
    _refused("2^53", b'{"a":9007199254740992}'),
    _refused("-2^53", b'{"a":-9007199254740992}'),
    _refused("2^53 with a fraction", b'{"a":9007199254740992.0}'),
    _refused("2^53 + 1 with a fraction", b'{"a":9007199254740993.0}'),
    _refused("2^53 with an exponent", b'{"a":9007199254740992e0}'),
    _refused("2^64", b'{"a":18446744073709551616}'),
    _refused("1e300", b'{"a":1e300}'),
    _refused("1e400, an infinity to most readers", b'{"a":1e400}'),
    _refused("-1e400", b'{"a":-1e400}'),
    _refused("exponent of 5,000 digits", b'{"a":1e' + b"9" * 5_000 + b"}"),
    _refused("negative exponent of 5,000 digits", b'{"a":1e-' + b"9" * 5_000 + b"}"),
    _refused("integer of 5,000 digits", b'{"a":' + b"7" * 5_000 + b"}"),
    _refused("negative integer of 5,000 digits", b'{"a":-' + b"7" * 5_000 + b"}"),
    _refused("fraction of 5,000 digits", b'{"a":0.' + b"7" * 5_000 + b"}"),
    HostileBody("integer of 1,000,000 digits", lambda: b"7" * 1_000_000, UNREADABLE),
    _refused("leading zero", b'{"a":01}'),
    _refused("plus sign", b'{"a":+1}'),
    _refused("hexadecimal", b'{"a":0x10}'),
    _refused("underscore in a number", b'{"a":1_000}'),
    _refused("point without digits", b'{"a":1.}'),
    _refused("digits after nothing", b'{"a":.5}'),
    _refused("minus alone", b'{"a":-}'),
    _refused("Arabic digits", '{"a":٣}'.encode()),
    _accepted("2^53 - 1", b'{"a":9007199254740991}'),
    _accepted("-(2^53 - 1)", b'{"a":-9007199254740991}'),
    _accepted("minus zero", b'{"a":[-0,-0.0,0e-1]}'),
    _accepted("the smallest double", b'{"a":5e-324}'),
]

_GRAMMAR = [
    _refused("trailing comma in an object", b'{"a":1,}'),
    _refused("trailing comma in an array", b"[1,]"),
    _refused("line comment", b'{"a":1} // no'),
    _refused("block comment", b'{"a":/* no */1}'),
    _refused("single quotes", b"{'a':1}"),
    _refused("name without quotes", b"{a:1}"),
    _refused("name that is a number", b"{1:1}"),
    _refused("two documents", b'{"a":1}{"a":1}'),
    _refused("two lines of JSON", b'{"a":1}\n{"a":1}'),
    _refused("text after the document", b'{"a":1} x'),
    _refused("unterminated string", b'{"a":"x'),
    _refused("string ended by an escape", b'{"a":"x\\"}'),
    _refused("lone backslash at the end", b'{"a":"x\\'),
    _refused("unknown escape", b'{"a":"\\x41"}'),
    _refused("escape cut short", b'{"a":"\\u12"}'),
    _refused("escape with an underscore", b'{"a":"\\u1_23"}'),
    _refused("unterminated object", b'{"a":1'),
    _refused("unterminated array", b"[1"),
    _refused("wrong closing bracket", b'{"a":[1}'),
    _refused("closing brackets only", b"]}]}"),
    _refused("missing colon", b'{"a" 1}'),
    _refused("missing comma", b"[1 2]"),
    _refused("True of Python", b'{"a":True}'),
    _refused("undefined", b'{"a":undefined}'),
    _refused("a form instead of JSON", b"a=1&b=2"),
    _refused("XML", b'<?xml version="1.0"?><!DOCTYPE a [<!ENTITY e SYSTEM "file:///etc/passwd">]><a>&e;</a>'),
    _refused("pickle", b"\x80\x04\x95\x0b\x00\x00\x00\x00\x00\x00\x00}\x94\x8c\x01a\x94K\x01s."),
    _refused("gzip", b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\xabV*\x01\x00"),
    *(_accepted(f"not an object: {text}", text.encode()) for text in ("[]", "1", '"text"', "null", "true")),
]

_DEPTH = [
    HostileBody("100,000 arrays deep", lambda: b"[" * 100_000 + b"]" * 100_000, UNREADABLE),
    HostileBody("100,000 arrays deep, unclosed", lambda: b"[" * 100_000, UNREADABLE),
    HostileBody("100,000 objects deep", lambda: b'{"a":' * 100_000 + b"1" + b"}" * 100_000, UNREADABLE),
    HostileBody("100,000 deep, mixed", lambda: b'[{"a":' * 50_000 + b"1" + b"}]" * 50_000, UNREADABLE),
    HostileBody("100,000 deep inside a member", lambda: b'{"a":' + b"[" * 100_000, UNREADABLE),
    HostileBody("100,000 deep after a string", lambda: b'{"\\"":' + b"[" * 100_000, UNREADABLE),
    _refused("65 deep", b"[" * 65 + b"]" * 65),
    _accepted("64 deep", b"[" * 64 + b"]" * 64),
    _accepted("1,000 siblings", b"[" + b"[]," * 999 + b"[]]"),
    HostileBody("100,000 brackets in a string", lambda: b'{"a":"' + b"[{" * 50_000 + b'"}', None),
    HostileBody("100,000 brackets in a name", lambda: b'{"' + b"[" * 100_000 + b'":1}', None),
    HostileBody("brackets after an escaped quote", lambda: b'["\\"' + b"[" * 1_000 + b'\\\\"]', None),
]

_TEN_MB = 10 * 1024 * 1024

_SIZE = [
    HostileBody("10 MB string", lambda: b'{"a":"' + b"x" * _TEN_MB + b'"}', TOO_LARGE),
    HostileBody("10 MB of whitespace", lambda: b" " * _TEN_MB, TOO_LARGE),
    HostileBody("10 MB of arrays", lambda: b"[" * _TEN_MB, TOO_LARGE),
    HostileBody("10 MB number", lambda: b"9" * _TEN_MB, TOO_LARGE),
    HostileBody("10 MB of bytes that are no text", lambda: b"\xff" * _TEN_MB, TOO_LARGE),
    HostileBody("500,000 escaped quotes, unterminated", lambda: b'"' + b'\\"' * 500_000, UNREADABLE),
    HostileBody("1,000,000 quotes", lambda: b'"' * 1_000_000, UNREADABLE),
    HostileBody("1,000,000 backslashes", lambda: b'"' + b"\\" * 1_000_000, UNREADABLE),
]

HOSTILE_BODIES: list[HostileBody] = [
    *_EMPTY,
    *_ENCODING,
    *_CHARACTERS,
    *_NAMES,
    *_NUMBERS,
    *_GRAMMAR,
    *_DEPTH,
    *_SIZE,
]

# One value of each JSON type, and those that a careless check takes for another type.
_SAMPLES: dict[str, Any] = {
    "null": None,
    "true": True,
    "zero": 0,
    "integer": 7,
    "fraction": 1.5,
    "text": "x",
    "digits as text": "7",
    "array": [],
    "nested array": [[1]],
    "object": {},
    "nested object": {"x": {"y": 1}},
}


def wrong_types(
    valid: dict[str, Any], *, free: Collection[str] = (), nullable: Collection[str] = ()
) -> Iterator[HostileBody]:
    """Yield a body per member of `valid` (at any depth) and JSON type that the member doesn't have.

    `free` names members, as JSON pointers, that take any JSON: they and what is in them are left alone.
    `nullable` names members that may be null. Of an array, the first element stands for all.
    """
    for path in _paths(valid, ()):
        pointer = _pointer(path)
        if any(pointer == start or pointer.startswith(f"{start}/") for start in free):
            continue
        original = _at(valid, path)
        for kind, sample in _SAMPLES.items():
            if _json_type(sample) == _json_type(original) or (sample is None and pointer in nullable):
                continue
            yield _made(f"{pointer} as {kind}", _replaced(valid, path, sample))
    for kind, sample in _SAMPLES.items():
        if not isinstance(sample, dict):
            yield _made(f"whole body as {kind}", sample)


def missing_members(valid: dict[str, Any], *, optional: Collection[str] = ()) -> Iterator[HostileBody]:
    """Yield `valid` without each of its top-level members but those named in `optional`."""
    for member in valid:
        if member not in optional:
            yield _made(f"without {member}", {name: value for name, value in valid.items() if name != member})


def _made(name: str, value: Any) -> HostileBody:
    body = json.dumps(value).encode()
    return HostileBody(name, lambda: body, INVALID)


def _json_type(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            # A member that takes fractions takes integers too, so those samples are left to its own tests.
            return "fraction"
        case str():
            return "text"
        case list():
            return "array"
        case _:
            return "object"


def _paths(value: Any, path: tuple[str | int, ...]) -> Iterator[tuple[str | int, ...]]:
    if path:
        yield path
    if isinstance(value, dict):
        for name, member in value.items():
            yield from _paths(member, (*path, name))
    elif isinstance(value, list) and value:
        yield from _paths(value[0], (*path, 0))


def _pointer(path: tuple[str | int, ...]) -> str:
    return "".join(f"/{step}" for step in path)


def _at(value: Any, path: tuple[str | int, ...]) -> Any:
    for step in path:
        value = value[step]
    return value


def _replaced(valid: dict[str, Any], path: tuple[str | int, ...], sample: Any) -> dict[str, Any]:
    changed = copy.deepcopy(valid)
    _at(changed, path[:-1])[path[-1]] = sample
    return changed
