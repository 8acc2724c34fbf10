"""What the strict reader takes and refuses, and that equal values have equal bytes."""

from __future__ import annotations

import hashlib
import json
import math
import random
import re
import struct
from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from runs import canonical
from runs.canonical import (
    BYTES_MAX,
    INTEGER_MAX,
    Canonical,
    JsonValue,
    TooLarge,
    UnreadableJson,
    canonical_bytes,
    canonicalise,
    digest,
    parse,
)
from runs.refusals import Refusal
from tests.corpus.hostile_bodies import HOSTILE_BODIES, HostileBody, missing_members, wrong_types

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))
NUMBERS = st.integers(-INTEGER_MAX, INTEGER_MAX) | st.floats(-INTEGER_MAX, INTEGER_MAX)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXTS, inner, max_size=5),
    max_leaves=30,
)


def refusal_of(body: bytes, **limits: int) -> Refusal:
    with pytest.raises(Refusal) as caught:
        parse(body, **limits)
    return caught.value


class TestHostileBodies:
    @pytest.mark.parametrize("hostile", HOSTILE_BODIES, ids=str)
    def test_each_is_accepted_or_refused_by_its_word(self, hostile: HostileBody) -> None:
        if hostile.word is None:
            value = parse(hostile.body)
            assert value == json.loads(hostile.body)
            assert parse(canonical_bytes(value)) == value
        else:
            assert refusal_of(hostile.body).word == hostile.word

    @pytest.mark.parametrize("hostile", [h for h in HOSTILE_BODIES if h.word], ids=str)
    def test_each_refusal_can_be_sent_and_stored(self, hostile: HostileBody) -> None:
        refusal = refusal_of(hostile.body)
        written = json.dumps([refusal.sentence, refusal.details], ensure_ascii=False)
        assert len(written.encode("utf-8")) < 1_000
        assert "\\u0000" not in written.replace("\\\\", "")

    def test_no_two_bodies_have_one_name(self) -> None:
        names = Counter(str(hostile) for hostile in HOSTILE_BODIES)
        assert [name for name, count in names.items() if count > 1] == []

    def test_made_bodies_leave_the_original_and_the_free_members_alone(self) -> None:
        valid = {"token": "t", "index": 1, "amount": {"minor": 5}, "args": {"x": 1}, "note": "n"}
        before = json.dumps(valid)
        made = {str(h): json.loads(h.body) for h in wrong_types(valid, free=["/args"], nullable=["/note"])}
        assert json.dumps(valid) == before
        assert made["/index as fraction"] == {**valid, "index": 1.5}
        assert made["/index as true"] == {**valid, "index": True}
        assert made["/amount/minor as null"] == {**valid, "amount": {"minor": None}}
        assert "/note as null" not in made
        assert "/note as zero" in made
        assert not [name for name in made if name.startswith("/args")]
        assert "whole body as array" in made
        assert [str(h) for h in missing_members(valid, optional=["note", "args"])] == [
            "without token",
            "without index",
            "without amount",
        ]


class TestWhere:
    @pytest.mark.parametrize(
        ("body", "where"),
        [
            (b'{"calls":[{"args":{}},{"args":{"a":1,"b":{"c":2,"c":3}}}]}', "/calls/1/args/b/c"),
            (b'{"a":[1,2,9007199254740992]}', "/a/2"),
            (b'{"a":{"b":NaN}}', "/a/b"),
            (b'{"a":["ok","\\ud800"]}', "/a/1"),
            (b'{"a/b":{"~":1e400}}', "/a~1b/~0"),
            (b'{"x\\u0000y":1}', "/x\\u0000y"),
            ('{"\u202e":NaN}'.encode(), "/\\u202e"),
            (b"9007199254740992", "the whole body"),
            (b"  ", "the whole body"),
        ],
    )
    def test_a_value_is_named_by_its_pointer(self, body: bytes, where: str) -> None:
        refusal = refusal_of(body)
        assert refusal.details["where"] == where
        assert where in refusal.sentence
        assert refusal.details["reason"] in refusal.sentence

    def test_the_first_fault_in_the_document_is_named(self) -> None:
        assert refusal_of(b'{"a":[NaN,1],"b":"\\u0000"}').details["where"] == "/a/0"

    def test_a_broken_grammar_is_named_by_line_column_and_byte(self) -> None:
        details = refusal_of('{"é":1,\n "b": ]}'.encode()).details
        assert details["where"] == "line 2, column 7"
        assert (details["line"], details["column"], details["offset"]) == (2, 7, 15)

    def test_bytes_that_are_no_text_are_named_by_line_column_and_byte(self) -> None:
        details = refusal_of('{"é":\n"'.encode() + b"\xff").details
        assert (details["line"], details["column"], details["offset"]) == (2, 2, 8)

    def test_excessive_depth_is_named_at_the_bracket_that_goes_too_deep(self) -> None:
        details = refusal_of(b'["[[[",[[1]]]', depth_max=2).details
        assert details["reason"] == "nested more than 2 levels deep"
        assert details["offset"] == 8

    @pytest.mark.parametrize(
        ("body", "reason"),
        [
            (b"", "the body is empty"),
            (b"\xef\xbb\xbf{}", "the body starts with a byte order mark"),
            ("{}".encode("utf-16"), "the body is UTF-16 or UTF-32, not UTF-8"),
            ("{}".encode("utf-16-be"), "the body is UTF-16 or UTF-32, not UTF-8"),
            (b'"\xff"', "the body is not UTF-8"),
            (b"NaN", "NaN is not JSON"),
            (b'"\\u0000"', "the character U+0000"),
            (b'"\\ud800"', "a surrogate without its other half"),
            (b'{"a":1,"a":1}', "this name is used twice in one object"),
            (b"1e400", "a number beyond ±(2^53 - 1)"),
        ],
    )
    def test_the_reason_says_what_to_change(self, body: bytes, reason: str) -> None:
        assert refusal_of(body).details["reason"] == reason

    def test_a_long_pointer_is_cut(self) -> None:
        where = refusal_of(b'{"' + b"k" * 100_000 + b'":NaN}').details["where"]
        assert len(where) == canonical.POINTER_LENGTH_MAX + 1
        assert where.endswith("…")


class TestLimits:
    def test_bytes_up_to_the_limit_are_read_and_one_more_is_too_large(self) -> None:
        assert parse(b"[1,2]", bytes_max=5) == [1, 2]
        refusal = refusal_of(b"[1,2] ", bytes_max=5)
        assert isinstance(refusal, TooLarge)
        assert refusal.details == {"bytes_max": 5, "bytes_seen": 6}

    def test_size_is_looked_at_before_content(self) -> None:
        assert isinstance(refusal_of(b"\xff" * (BYTES_MAX + 1)), TooLarge)

    @pytest.mark.parametrize("opening", [b"[", b'{"a":'])
    @pytest.mark.parametrize("depth_max", [1, 2, 64])
    def test_depth_up_to_the_limit_is_read_and_one_more_is_refused(
        self, opening: bytes, depth_max: int
    ) -> None:
        def nested(depth: int) -> bytes:
            closing = b"]" if opening == b"[" else b"}"
            return opening * depth + (b"" if opening == b"[" else b"1") + closing * depth

        parse(nested(depth_max), depth_max=depth_max)
        assert isinstance(refusal_of(nested(depth_max + 1), depth_max=depth_max), UnreadableJson)

    def test_depth_is_found_past_strings_that_hide_quotes_and_brackets(self) -> None:
        hiding = rb'["]\"]\\",' + b"[" * 64 + b"]" * 65
        assert "64 levels" in refusal_of(hiding).details["reason"]

    def test_a_number_as_long_as_allowed_is_read_and_a_longer_one_refused(self) -> None:
        longest = "0." + "1" * (canonical.NUMBER_LENGTH_MAX - 2)
        assert parse(longest.encode()) == float(longest)
        assert isinstance(refusal_of(longest.encode() + b"1"), UnreadableJson)

    def test_long_digits_are_never_converted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        converted: list[str] = []

        def spy(literal: Any) -> int:
            converted.append(literal)
            return 0

        monkeypatch.setattr(canonical, "int", spy, raising=False)
        monkeypatch.setattr(canonical, "float", spy, raising=False)
        for literal in ("7" * 5_000, "-" + "7" * 5_000, "0." + "7" * 5_000, "1e" + "9" * 5_000):
            reader = canonical._Reader()
            reader.read(literal)
            assert reader.found_fault
        assert converted == []

    @pytest.mark.parametrize(
        "text",
        ['"' * 5_000, '"' + '\\"' * 5_000, '"' + "\\" * 5_001, '"\\' * 5_000, '"a\\\\"' * 5_000],
        ids=["quotes", "escaped quotes", "backslashes", "openings", "strings"],
    )
    def test_the_depth_scan_reads_each_character_once(self, text: str) -> None:
        matched = [m.span() for m in canonical._STRING_OR_BRACKET.finditer(text)]
        assert all(end <= start for (_, end), (start, _) in pairwise(matched))
        # A failed attempt to match would be a second reading: each quote outside a match is one.
        assert re.sub(canonical._STRING_OR_BRACKET, "", text).count('"') == 0

    def test_a_reader_deep_in_the_stack_still_reads_the_allowed_depth(self) -> None:
        def from_depth(frames: int) -> JsonValue:
            return from_depth(frames - 1) if frames else parse(b"[" * 64 + b"]" * 64)

        assert from_depth(700) is not None


class TestOneValuePerMeaning:
    @pytest.mark.parametrize("spelling", [b"1", b"1.0", b"1e0", b"10E-1", b"0.1e+1", b" 1\n"])
    def test_one_is_one_however_it_is_written(self, spelling: bytes) -> None:
        value = parse(spelling)
        assert (type(value), value) == (int, 1)
        assert canonical_bytes(value) == b"1"

    @pytest.mark.parametrize("spelling", [b"0", b"-0", b"0.0", b"-0.0", b"-0e5"])
    def test_zero_has_no_sign(self, spelling: bytes) -> None:
        value = parse(spelling)
        assert (type(value), value) == (int, 0)
        assert canonical_bytes(value) == canonical_bytes(-0.0) == b"0"

    def test_true_is_not_one(self) -> None:
        assert canonical_bytes(True) != canonical_bytes(1)

    def test_order_and_spacing_of_members_mean_nothing(self) -> None:
        one = canonicalise(parse(b'{"a":1,"b":{"c":[1,2],"d":"\\u00e9"}}'))
        other = canonicalise(parse('{ "b": {"d":"é","c":[1.0,2]},\n"a":1e0 }'.encode()))
        assert one == other
        assert one == Canonical(bytes='{"a":1,"b":{"c":[1,2],"d":"é"}}'.encode(), digest=one.digest)

    def test_order_of_an_array_means_something(self) -> None:
        assert canonical_bytes([1, 2]) != canonical_bytes([2, 1])

    def test_texts_that_only_look_alike_differ(self) -> None:
        assert canonical_bytes("é") != canonical_bytes("e\u0301")

    def test_the_digest_is_the_sha256_of_the_bytes(self) -> None:
        made = canonicalise({"a": 1})
        assert made.bytes == b'{"a":1}'
        assert made.digest == digest(made.bytes) == hashlib.sha256(b'{"a":1}').hexdigest()


class TestProperties:
    @given(VALUES)
    def test_what_is_written_is_read_back_and_written_again_the_same(self, value: Any) -> None:
        written = canonical_bytes(value)
        read = parse(written)
        assert read == value
        assert canonical_bytes(read) == written

    @given(VALUES, st.booleans(), st.sampled_from([None, 2]))
    def test_valid_documents_read_as_the_standard_library_reads_them(
        self, value: Any, escaped: bool, indent: int | None
    ) -> None:
        body = json.dumps(value, ensure_ascii=escaped, indent=indent).encode()
        assert parse(body) == json.loads(body)

    @given(VALUES, st.randoms(use_true_random=False))
    def test_the_order_of_members_never_changes_the_bytes(self, value: Any, order: random.Random) -> None:
        assert canonical_bytes(_shuffled(value, order)) == canonical_bytes(value)

    @given(VALUES)
    def test_one_value_has_one_type_after_reading(self, value: Any) -> None:
        read = parse(json.dumps(value).encode())
        assert repr(read) == repr(_shuffled(parse(json.dumps(read).encode()), None))
        assert not any(number.is_integer() for number in _floats(read))

    @given(st.binary(max_size=200) | TEXTS.map(str.encode))
    def test_any_bytes_are_read_or_refused_and_nothing_else(self, body: bytes) -> None:
        try:
            value = parse(body)
        except UnreadableJson:
            return
        assert value == json.loads(body)

    @given(VALUES, st.data())
    def test_damaged_documents_are_read_or_refused_and_nothing_else(
        self, value: Any, data: st.DataObject
    ) -> None:
        body = bytearray(json.dumps(value).encode())
        for _ in range(data.draw(st.integers(1, 3))):
            at = data.draw(st.integers(0, len(body)))
            body[at : at + data.draw(st.integers(0, 2))] = data.draw(
                st.sampled_from(
                    [b"", b"\x00", b'"', b"\\", b"[", b"}", b",", b"9" * 20, b"e9", b"\\ud8", b"\xff"]
                )
            )
        try:
            read = parse(bytes(body))
        except UnreadableJson:
            return
        assert parse(canonical_bytes(read)) == read


def _shuffled(value: Any, order: random.Random | None) -> Any:
    if isinstance(value, dict):
        items = [(key, _shuffled(inner, order)) for key, inner in value.items()]
        if order is not None:
            order.shuffle(items)
        return dict(items)
    return [_shuffled(inner, order) for inner in value] if isinstance(value, list) else value


def _floats(value: Any) -> list[float]:
    if isinstance(value, float):
        return [value]
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    return [found for each in inner for found in _floats(each)]


class TestPythonValues:
    @pytest.mark.parametrize(
        ("value", "where"),
        [
            (math.nan, "the whole body"),
            ([math.inf], "/0"),
            ({"a": [-math.inf]}, "/a/0"),
            ({"a": 2**53}, "/a"),
            ({"a": -(2**53)}, "/a"),
            ({"a": 2.0**53}, "/a"),
            ({"a": 1e300}, "/a"),
            ({"a": 10**5_000}, "/a"),
            ({"a": "\ud800"}, "/a"),
            ({"a": "x\x00"}, "/a"),
            ({"\udc00": 1}, "/\\udc00"),
            ({"x\x00": 1}, "/x\\u0000"),
            ({"a": {1: 2}}, "/a"),
            ({"a": b"bytes"}, "/a"),
            ({"a": Decimal(1)}, "/a"),
            ({"a": datetime(2026, 1, 1, tzinfo=UTC)}, "/a"),
            ({"a": {1, 2}}, "/a"),
            (("ok", object()), "/1"),
        ],
    )
    def test_what_json_cannot_hold_is_refused_with_its_place(self, value: object, where: str) -> None:
        with pytest.raises(UnreadableJson) as caught:
            canonical_bytes(value)
        assert caught.value.details["where"] == where

    def test_a_tuple_is_written_as_an_array(self) -> None:
        assert canonical_bytes((1, (2,))) == b"[1,[2]]"

    def test_depth_up_to_the_limit_is_written_and_one_more_is_refused(self) -> None:
        value: object = 1
        for _ in range(64):
            value = [value]
        assert canonical_bytes(value) == b"[" * 64 + b"1" + b"]" * 64
        with pytest.raises(UnreadableJson, match="64 levels"):
            canonical_bytes([value])

    def test_a_value_deeper_than_the_stack_is_refused(self) -> None:
        value: object = 1
        for _ in range(100_000):
            value = [value]
        with pytest.raises(UnreadableJson, match="64 levels"):
            canonical_bytes(value)
        while isinstance(value, list):  # freed level by level: dropping it whole would recurse
            value = value.pop()

    def test_a_value_that_contains_itself_is_refused(self) -> None:
        value: list[object] = []
        value.append(value)
        with pytest.raises(UnreadableJson, match="64 levels"):
            canonical_bytes(value)

    def test_a_value_that_doubles_at_every_level_is_too_large(self) -> None:
        value: object = 1
        for _ in range(60):
            value = [value, value]
        with pytest.raises(TooLarge):
            canonical_bytes(value, bytes_max=1_000)

    def test_what_is_written_obeys_the_limit_too(self) -> None:
        assert canonical_bytes("x" * 8, bytes_max=10) == b'"xxxxxxxx"'
        with pytest.raises(TooLarge) as caught:
            canonical_bytes("x" * 9, bytes_max=10)
        assert caught.value.details == {"bytes_max": 10, "bytes_seen": 11}


# RFC 8785, appendix B: the double's bits, and its only spelling.
NUMBER_VECTORS = [
    ("0000000000000000", "0"),
    ("8000000000000000", "0"),
    ("0000000000000001", "5e-324"),
    ("8000000000000001", "-5e-324"),
    ("7fefffffffffffff", "1.7976931348623157e+308"),
    ("ffefffffffffffff", "-1.7976931348623157e+308"),
    ("4340000000000000", "9007199254740992"),
    ("c340000000000000", "-9007199254740992"),
    ("4430000000000000", "295147905179352830000"),
    ("44b52d02c7e14af5", "9.999999999999997e+22"),
    ("44b52d02c7e14af6", "1e+23"),
    ("44b52d02c7e14af7", "1.0000000000000001e+23"),
    ("444b1ae4d6e2ef4e", "999999999999999700000"),
    ("444b1ae4d6e2ef4f", "999999999999999900000"),
    ("444b1ae4d6e2ef50", "1e+21"),
    ("3eb0c6f7a0b5ed8c", "9.999999999999997e-7"),
    ("3eb0c6f7a0b5ed8d", "0.000001"),
    ("41b3de4355555553", "333333333.3333332"),
    ("41b3de4355555554", "333333333.33333325"),
    ("41b3de4355555555", "333333333.3333333"),
    ("41b3de4355555556", "333333333.3333334"),
    ("41b3de4355555557", "333333333.33333343"),
    ("becbf647612f3696", "-0.0000033333333333333333"),
    ("43143ff3c1cb0959", "1424953923781206.2"),
]


class TestVectorsOfTheStandard:
    @pytest.mark.parametrize(("bits", "spelling"), NUMBER_VECTORS)
    def test_a_number_is_spelled_as_the_standard_says_or_refused_as_too_big(
        self, bits: str, spelling: str
    ) -> None:
        (number,) = struct.unpack(">d", bytes.fromhex(bits))
        assert rfc8785.dumps(number) == spelling.encode()
        if abs(number) <= INTEGER_MAX:
            assert canonical_bytes(number) == spelling.encode()
            assert parse(spelling.encode()) == number
        else:
            with pytest.raises(UnreadableJson):
                canonical_bytes(number)
            assert isinstance(refusal_of(spelling.encode()), UnreadableJson)

    @pytest.mark.parametrize("bits", ["7fffffffffffffff", "7ff0000000000000", "fff0000000000000"])
    def test_nan_and_infinities_have_no_spelling(self, bits: str) -> None:
        (number,) = struct.unpack(">d", bytes.fromhex(bits))
        with pytest.raises(UnreadableJson, match="not a finite number"):
            canonical_bytes(number)

    def test_names_are_sorted_by_utf_16_code_units(self) -> None:
        names = ["\u20ac", "\r", "\ufb33", "1", "\U0001f600", "\u0080", "\u00f6"]
        written = canonical_bytes(dict.fromkeys(names))
        assert list(json.loads(written)) == ["\r", "1", "\u0080", "\u00f6", "\u20ac", "\U0001f600", "\ufb33"]

    def test_strings_are_escaped_only_where_they_must_be(self) -> None:
        assert (
            canonical_bytes('€$\u000f\nA\'B"\\\\"/\x7f') == '"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/\x7f"'.encode()
        )
