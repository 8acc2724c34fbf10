"""What each answer means, for a send and for a question, over a real socket."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from reconciliation.providers.base import (
    Candidate,
    Finding,
    Found,
    Inconclusive,
    MatchedBy,
    Mismatch,
    NotFound,
    NotSentSeen,
    Pending,
    Phase,
    ReceiptSeen,
    Refused,
    RejectedSeen,
    SendKind,
    SendOutcome,
    Several,
    Unavailable,
    UnknownSeen,
)
from reconciliation.providers.http_declared import HttpDeclared
from runs.canonical import canonical_bytes
from runs.money import Money
from tests.contract.declaring import DECLARATION, KEY, PAYLOAD, declare, operation, question
from tests.contract.fault_server import Conversation, FaultServer, http_answer

RECEIPT: dict[str, Any] = {"id": "ord_1", "status": "succeeded", "idempotency_key": KEY, **PAYLOAD}
EXISTS = (
    "[[contract.match_fields]]",
    """[[contract.proves_existence]]
statuses = [409]
path = "$.code"
values = ["duplicate"]

[[contract.match_fields]]""",
)
SECRET = (
    "[contract]\nkey_field",
    """[credentials]
token = { env = "SHOP_TOKEN" }

[headers]
Authorization = "Bearer {secret.token}"

[contract]
key_field""",
)


class Peer:
    """A server that answers each request with the next of its answers, and keeps what it was asked."""

    def __init__(self, *answers: bytes) -> None:
        self.answers = list(answers)
        self.heads: list[str] = []
        self.bodies: list[bytes] = []

    def __call__(self, conversation: Conversation) -> None:
        while True:
            head, _, body = conversation.read_request().partition(b"\r\n\r\n")
            self.heads.append(head.decode())
            self.bodies.append(body)
            conversation.send(self.answers.pop(0))

    def header(self, name: str) -> str | None:
        for line in self.heads[-1].split("\r\n")[1:]:
            found, _, value = line.partition(": ")
            if found.lower() == name.lower():
                return value
        return None


def as_json(value: object) -> bytes:
    return value if isinstance(value, bytes) else json.dumps(value).encode()


def send(
    folder: Path,
    answer: object,
    *changes: tuple[str, str],
    status: str = "201 Created",
    extra: str = "",
    **how: Any,
) -> tuple[SendOutcome, Peer]:
    peer = Peer(http_answer(as_json(answer), status=status, extra=extra))
    environ = how.pop("environ", None)
    with FaultServer(peer) as server:
        adapter = HttpDeclared(declare(folder, server.url, *changes, environ=environ))
        outcome = adapter.send(operation(**how))
        adapter.close()
    return outcome, peer


def ask(
    folder: Path,
    answer: object,
    *changes: tuple[str, str],
    status: str = "200 OK",
    extra: str = "",
    **how: Any,
) -> Finding:
    peer = Peer(http_answer(as_json(answer), status=status, extra=extra))
    with FaultServer(peer) as server:
        adapter = HttpDeclared(declare(folder, server.url, *changes))
        finding = adapter.look_up(question(**how))
        adapter.close()
    assert peer.heads[0].startswith("GET ")
    assert peer.bodies == [b""]
    return finding


def shown(*records: object, more: bool = False) -> dict[str, Any]:
    return {"data": list(records), "has_more": more}


# --- what is sent ---


def test_the_payloads_own_bytes_are_sent_with_the_bare_key(tmp_path: Path) -> None:
    outcome, peer = send(tmp_path, RECEIPT)
    assert isinstance(outcome, ReceiptSeen)
    assert peer.bodies == [canonical_bytes(PAYLOAD)]
    assert peer.header("Idempotency-Key") == KEY
    assert peer.heads[0].startswith("POST /orders HTTP/1.1")
    assert outcome.exchange.request_sha256 == hashlib.sha256(canonical_bytes(PAYLOAD)).hexdigest()


def test_a_quoted_key_is_a_structured_field_string(tmp_path: Path) -> None:
    quoted = ('"header_bare"', '"header_quoted"')
    _, peer = send(tmp_path, RECEIPT, quoted, key='rk-"a\\b')
    assert peer.header("Idempotency-Key") == '"rk-\\"a\\\\b"'


def test_a_key_in_the_body_stands_beside_the_payload(tmp_path: Path) -> None:
    body = ('"header_bare"', '"body_field"'), ('key_field = "Idempotency-Key"', 'key_field = "request_id"')
    _, peer = send(tmp_path, RECEIPT, *body)
    assert json.loads(peer.bodies[0]) == {**PAYLOAD, "request_id": KEY}
    assert peer.header("Idempotency-Key") is None


def test_a_declared_body_is_rendered_and_the_same_on_every_attempt(tmp_path: Path) -> None:
    declared = (
        '[send.request]\npath = "/orders"',
        """[send.request]
path = "/orders/{payload.sku}"
body = { q = "{payload.quantity}", n = "n{payload.quantity}", m = { op = "{operation}" }, l = [1, true] }
""",
    )
    first, one = send(tmp_path, RECEIPT, declared)
    _, two = send(tmp_path, RECEIPT, declared, attempt_number=2)
    assert isinstance(first, ReceiptSeen)
    assert json.loads(one.bodies[0]) == {"q": 2, "n": "n2", "m": {"op": "op_test"}, "l": [1, True]}
    assert one.bodies == two.bodies
    assert one.heads[0].startswith("POST /orders/A-1 ")


def test_a_form_is_written_with_brackets(tmp_path: Path) -> None:
    declared = (
        '[send.request]\npath = "/orders"',
        """[send.request]
path = "/orders"
encoding = "form"
body = { amount = "{payload.quantity}", metadata = { op = "a&b={operation}" } }
""",
    )
    _, peer = send(tmp_path, RECEIPT, declared)
    assert peer.bodies == [b"amount=2&metadata%5Bop%5D=a%26b%3Dop_test"]
    assert peer.header("Content-Type") == "application/x-www-form-urlencoded"


@pytest.mark.parametrize("payload", [None, 7, "text", [1]])
def test_a_payload_that_is_no_object_is_sent_as_it_is_or_not_at_all(payload: object, tmp_path: Path) -> None:
    outcome, peer = send(tmp_path, RECEIPT, payload=payload, payload_bytes=canonical_bytes(payload))
    assert peer.bodies == [canonical_bytes(payload)]
    assert isinstance(outcome, UnknownSeen)
    in_body = ('"header_bare"', '"body_field"'), ('key_field = "Idempotency-Key"', 'key_field = "request_id"')
    with FaultServer(Peer()) as server:
        adapter = HttpDeclared(declare(tmp_path, server.url, *in_body))
        unusable = adapter.send(operation(payload=payload, payload_bytes=canonical_bytes(payload)))
        adapter.close()
        assert server.connections == 0
    assert isinstance(unusable, NotSentSeen)


def test_a_request_for_one_tool_goes_before_the_one_for_all(tmp_path: Path) -> None:
    declared = ("[send.answer]", '[send.requests."shop.cancel"]\npath = "/cancellations"\n\n[send.answer]')
    _, peer = send(tmp_path, RECEIPT, declared, tool="shop.cancel")
    assert peer.heads[0].startswith("POST /cancellations ")


def test_a_secret_is_sent_and_kept_nowhere(tmp_path: Path) -> None:
    answer = {**RECEIPT, "echo": "Bearer tok-abcdefgh", "plain": "tok-abcdefgh"}
    outcome, peer = send(tmp_path, answer, SECRET, environ={"SHOP_TOKEN": "tok-abcdefgh"})
    assert peer.header("Authorization") == "Bearer tok-abcdefgh"
    assert isinstance(outcome, ReceiptSeen)
    assert "tok-abcdefgh" not in repr(outcome)
    assert KEY in repr(outcome.exchange.request_headers)


@pytest.mark.parametrize(
    ("changes", "how", "why"),
    [
        (
            [('[send.request]\npath = "/orders"', '[send.request]\npath = "/o/{payload.nope}"')],
            {},
            "Unusable",
        ),
        ([('[send.request]\npath = "/orders"', '[send.requests.other]\npath = "/o"')], {}, "NoSuchTool"),
        ([("SHOP_URL", "SHOP_OTHER_URL")], {}, "NotConfigured"),
        ([], {"key": "rk-\r\nX: 1"}, "Unusable"),
    ],
)
def test_a_request_that_cannot_be_made_is_not_sent(
    changes: list[tuple[str, str]], how: dict[str, Any], why: str, tmp_path: Path
) -> None:
    with FaultServer(Peer()) as server:
        adapter = HttpDeclared(declare(tmp_path, server.url, *changes))
        outcome = adapter.send(operation(**how))
        adapter.close()
        assert server.connections == 0
    assert isinstance(outcome, NotSentSeen)
    assert outcome.exchange.error_class == why
    assert outcome.exchange.phase is Phase.NOT_STARTED


# --- what comes back from a send ---


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        ("400 Bad Request", SendKind.REJECTED),
        ("401 Unauthorized", SendKind.REJECTED),
        ("402 Payment Required", SendKind.REJECTED),
        ("403 Forbidden", SendKind.REJECTED),
        ("404 Not Found", SendKind.REJECTED),
        ("422 Unprocessable", SendKind.REJECTED),
        ("408 Request Timeout", SendKind.UNKNOWN),
        ("409 Conflict", SendKind.UNKNOWN),
        ("421 Misdirected", SendKind.UNKNOWN),
        ("425 Too Early", SendKind.UNKNOWN),
        ("429 Too Many", SendKind.UNKNOWN),
        ("499 Left", SendKind.UNKNOWN),
        ("304 Not Modified", SendKind.UNKNOWN),
        ("500 Error", SendKind.UNKNOWN),
        ("502 Bad Gateway", SendKind.UNKNOWN),
        ("503 Unavailable", SendKind.UNKNOWN),
        ("504 Timeout", SendKind.UNKNOWN),
        ("599 Odd", SendKind.UNKNOWN),
        ("202 Accepted", SendKind.UNKNOWN),
    ],
)
def test_each_status_without_a_receipt_has_its_outcome(status: str, kind: SendKind, tmp_path: Path) -> None:
    outcome, _ = send(tmp_path, b"" if status.startswith("304") else {"error": "x"}, status=status)
    assert outcome.kind is kind
    assert outcome.exchange.status == int(status[:3])


def test_a_receipt_names_the_operation_by_key_and_carries_its_amount(tmp_path: Path) -> None:
    payload = {"amount_minor": 500, "currency": "EUR"}
    amount = Money("EUR", 500)
    outcome, _ = send(tmp_path, {**RECEIPT, **payload}, payload=payload, amount=amount)
    assert isinstance(outcome, ReceiptSeen)
    assert outcome.receipt.matched_by is MatchedBy.KEY
    assert outcome.receipt.amount == amount
    assert not outcome.replayed


def test_a_replay_says_that_it_is_one(tmp_path: Path) -> None:
    outcome, _ = send(tmp_path, RECEIPT, extra="Idempotent-Replayed: true\r\n", attempt_number=2)
    assert isinstance(outcome, ReceiptSeen)
    assert outcome.replayed


@pytest.mark.parametrize(
    "change",
    [
        {"quantity": 3},
        {"sku": None},
        {"idempotency_key": "rk-other"},
        {"idempotency_key": None},
        {"quantity": "2"},
    ],
)
def test_a_receipt_for_something_else_is_unknown_and_kept(change: dict[str, Any], tmp_path: Path) -> None:
    outcome, _ = send(tmp_path, {**RECEIPT, **change})
    assert isinstance(outcome, UnknownSeen)
    assert outcome.receipt is not None
    assert outcome.receipt.reference == "ord_1"
    assert not (outcome.receipt.named and outcome.receipt.same)


def test_an_effect_that_is_not_final_is_unknown_and_kept(tmp_path: Path) -> None:
    outcome, _ = send(tmp_path, {**RECEIPT, "status": "pending"}, status="202 Accepted")
    assert isinstance(outcome, UnknownSeen)
    assert outcome.receipt is not None
    assert outcome.receipt.same


def test_an_effect_that_ended_without_effect_is_a_refusal(tmp_path: Path) -> None:
    outcome, _ = send(tmp_path, {**RECEIPT, "status": "failed"})
    assert isinstance(outcome, RejectedSeen)


@pytest.mark.parametrize(
    ("changes", "attempt", "replayed", "speaks"),
    [
        ([], 1, False, True),
        ([], 2, True, False),  # the contract doesn't say that refusals are replayed
        ([("rejection_replays = false", "rejection_replays = true")], 2, True, True),
        (
            [("rejection_replays = false", "rejection_replays = true")],
            2,
            False,
            False,
        ),  # not marked as a replay
    ],
)
def test_a_refusal_speaks_for_earlier_attempts_only_where_it_is_their_replay(
    changes: list[tuple[str, str]], attempt: int, replayed: bool, speaks: bool, tmp_path: Path
) -> None:
    outcome, _ = send(
        tmp_path,
        {"error": "no"},
        *changes,
        status="422 No",
        extra="Idempotent-Replayed: true\r\n" if replayed else "",
        attempt_number=attempt,
    )
    assert isinstance(outcome, RejectedSeen)
    assert outcome.speaks_for_first is speaks


def test_an_error_can_prove_that_the_effect_exists(tmp_path: Path) -> None:
    outcome, _ = send(tmp_path, {"code": "duplicate"}, EXISTS, status="409 Conflict")
    assert isinstance(outcome, UnknownSeen)
    assert outcome.effect_exists
    other, _ = send(tmp_path, {"code": "busy"}, EXISTS, status="409 Conflict")
    assert isinstance(other, UnknownSeen)
    assert not other.effect_exists


def test_a_refusal_whose_body_would_tell_and_cannot_be_read_is_unknown(tmp_path: Path) -> None:
    exists = (EXISTS[0], EXISTS[1].replace("409", "422"))
    unreadable, _ = send(tmp_path, b"<html>", exists, status="422 No")
    assert isinstance(unreadable, UnknownSeen)
    assert not unreadable.effect_exists
    readable, _ = send(tmp_path, {"code": "invalid"}, exists, status="422 No")
    assert isinstance(readable, RejectedSeen)


def test_a_200_can_carry_a_declared_refusal(tmp_path: Path) -> None:
    declared = ("[lookup.request]", '[[send.answer.rejected]]\npath = "$.errors[0].code"\n\n[lookup.request]')
    outcome, _ = send(tmp_path, {"errors": [{"code": "NOPE"}]}, declared, status="200 OK")
    assert isinstance(outcome, RejectedSeen)


def test_a_429_is_a_refusal_where_the_provider_says_so(tmp_path: Path) -> None:
    declared = ("[lookup.request]", "[[send.answer.rejected]]\nstatuses = [429]\n\n[lookup.request]")
    outcome, _ = send(tmp_path, {}, declared, status="429 Slow down")
    assert isinstance(outcome, RejectedSeen)


@pytest.mark.parametrize(
    ("said", "wait_ms"),
    [
        ("7", 7_000),
        ("0", 0),
        ("999999999", 86_400_000),
        ("-1", None),
        ("soon", None),
        ("1e3", None),
        ("", None),
    ],
)
def test_retry_after_is_read_and_bounded(said: str, wait_ms: int | None, tmp_path: Path) -> None:
    outcome, _ = send(tmp_path, {}, status="429 Slow down", extra=f"Retry-After: {said}\r\n")
    assert isinstance(outcome, UnknownSeen)
    assert outcome.retry_after_ms == wait_ms


def test_retry_after_can_be_a_date(tmp_path: Path) -> None:
    past = "Retry-After: Sun, 06 Nov 1994 08:49:37 GMT\r\n"
    outcome, _ = send(tmp_path, {}, status="503 Busy", extra=past)
    assert isinstance(outcome, UnknownSeen)
    assert outcome.retry_after_ms == 0


def test_without_an_echo_a_direct_reply_is_matched_by_the_reply_alone(tmp_path: Path) -> None:
    no_echo = ('key = "$.idempotency_key"\n', 'reference = "$.ref"\nour_reference = "{payload.missing}"\n')
    outcome, _ = send(tmp_path, RECEIPT, no_echo)
    assert isinstance(outcome, ReceiptSeen)
    assert outcome.receipt.matched_by is MatchedBy.REPLY_ONLY


# --- what comes back from a question ---


def test_a_question_names_the_key_and_a_record_of_ours_is_found(tmp_path: Path) -> None:
    finding = ask(tmp_path, shown(RECEIPT), key=KEY)
    assert isinstance(finding, Found)
    assert finding.receipts[0].reference == "ord_1"
    assert finding.exchange is not None
    assert finding.exchange.url.endswith(f"/orders?idempotency_key={KEY}")


CASES: dict[str, tuple[Any, type[Finding]]] = {  # type: ignore[valid-type]
    "nothing": (shown(), NotFound),
    "ours": (shown(RECEIPT), Found),
    "ours twice in one list": (shown(RECEIPT, RECEIPT), Found),
    "two records of ours": (shown(RECEIPT, {**RECEIPT, "id": "ord_2"}), Several),
    "one of ours failed, one not": (shown({**RECEIPT, "status": "failed", "id": "ord_0"}, RECEIPT), Found),
    "only one that failed": (shown({**RECEIPT, "status": "failed"}), Refused),
    "pending": (shown({**RECEIPT, "status": "pending"}), Pending),
    "a state that we don't know": (shown({**RECEIPT, "status": "frobnicated"}), Pending),
    "another payload": (shown({**RECEIPT, "quantity": 3}), Mismatch),
    "another payload, failed": (shown({**RECEIPT, "quantity": 3, "status": "failed"}), Mismatch),
    "another payload, pending": (shown({**RECEIPT, "quantity": 3, "status": "pending"}), Mismatch),
    "ours and another's": (shown(RECEIPT, {**RECEIPT, "id": "x", "idempotency_key": "k"}), Found),
    "only of other operations": (shown({**RECEIPT, "idempotency_key": "k"}), Inconclusive),
    "alike, carrying nothing": (shown({**RECEIPT, "idempotency_key": None}), Candidate),
    "carrying nothing, not alike": (shown({**RECEIPT, "idempotency_key": None, "sku": "B"}), Inconclusive),
    "ours, and more pages": (shown(RECEIPT, more=True), Inconclusive),
    "nothing, and more pages": (shown(more=True), Inconclusive),
    "two of ours, and more pages": (shown(RECEIPT, {**RECEIPT, "id": "ord_2"}, more=True), Several),
    "a record without an id": (shown({**RECEIPT, "id": None}), Inconclusive),
    "no data member": ({"orders": []}, Inconclusive),
    "data is null": ({"data": None}, Inconclusive),
    "data is text": ({"data": "none"}, Inconclusive),
    "data holds text": ({"data": ["ord_1"]}, Inconclusive),
    "one object instead of a list": ({"data": RECEIPT}, Found),
    "a bare list": ([], Inconclusive),
    "not JSON": (b"<html>", Inconclusive),
    "empty": (b"", Inconclusive),
    "a name twice": (b'{"data":[],"data":[]}', Inconclusive),
    "deep": (b"[" * 50_000 + b"]" * 50_000, Inconclusive),
    "more than a megabyte": (b'{"data":[],"x":"' + b"x" * 1_100_000 + b'"}', Inconclusive),
    "more records than are read": (shown(*[{"id": str(n)} for n in range(1001)]), Inconclusive),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_each_answer_to_a_question_has_its_finding(name: str, tmp_path: Path) -> None:
    answer, kind = CASES[name]
    finding = ask(tmp_path, answer)
    assert isinstance(finding, kind), finding.summary
    assert finding.summary.endswith(".")
    assert "try again" not in finding.summary.lower()


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        ("404 Not Found", NotFound),  # declared
        ("400 Bad Request", Inconclusive),
        ("410 Gone", Inconclusive),
        ("301 Moved", Inconclusive),
        ("401 Unauthorized", Unavailable),
        ("403 Forbidden", Unavailable),
        ("408 Timeout", Unavailable),
        ("429 Slow down", Unavailable),
        ("500 Error", Unavailable),
        ("501 None", Unavailable),
        ("503 Busy", Unavailable),
    ],
)
def test_each_status_of_an_answer_has_its_finding(status: str, kind: type[Finding], tmp_path: Path) -> None:  # type: ignore[valid-type]
    finding = ask(tmp_path, {"error": "x"}, status=status, extra="Retry-After: 3\r\n")
    assert isinstance(finding, kind)
    if isinstance(finding, Unavailable) and finding.reason in ("overloaded", "failing"):
        assert finding.retry_after_ms == 3_000


def test_a_404_that_is_not_declared_proves_nothing(tmp_path: Path) -> None:
    undeclared = ("not_found_statuses = [404]\n", "")
    assert isinstance(ask(tmp_path, {}, undeclared, status="404 Not Found"), Inconclusive)


PROOF = ("absence_is_proof = false", "absence_is_proof = true")


@pytest.mark.parametrize(
    ("said", "proof"), [({"error": "none"}, True), (b"<html>404</html>", False), (b"", False)]
)
def test_a_declared_404_is_proof_only_if_it_is_written_as_the_providers_answers_are(
    said: object, proof: bool, tmp_path: Path
) -> None:
    finding = ask(tmp_path, said, PROOF, status="404 Not Found", quiet_after_ms=11_000, asked_after_ms=60_000)
    assert isinstance(finding, NotFound)
    assert finding.proof is proof


@pytest.mark.parametrize(
    ("changes", "quiet_after_ms", "asked_after_ms", "proof"),
    [
        ([], 11_000, 60_000, False),
        ([PROOF], 11_000, 12_999, False),
        ([PROOF], 11_000, 13_000, True),
        ([PROOF], None, 60_000, False),
        (
            [PROOF, ("visibility_lag_ms", "lookup_retention_ms = 50_000\nvisibility_lag_ms")],
            11_000,
            60_000,
            False,
        ),
    ],
)
def test_not_found_is_proof_only_by_contract_and_clock(
    changes: list[tuple[str, str]],
    quiet_after_ms: int | None,
    asked_after_ms: int,
    proof: bool,
    tmp_path: Path,
) -> None:
    finding = ask(tmp_path, shown(), *changes, quiet_after_ms=quiet_after_ms, asked_after_ms=asked_after_ms)
    assert isinstance(finding, NotFound)
    assert finding.proof is proof
    assert ("doesn't prove" in finding.summary) is not proof


def test_a_listing_may_show_other_operations_and_still_not_ours(tmp_path: Path) -> None:
    listing = ('lookup = "by_key"', 'lookup = "by_listing"')
    assert isinstance(ask(tmp_path, shown({**RECEIPT, "idempotency_key": "k"}), listing), NotFound)


def test_a_provider_without_a_lookup_is_not_asked(tmp_path: Path) -> None:
    text = DECLARATION.split("[lookup.request]")[0]
    none = ('lookup = "by_key"', 'lookup = "none"')
    finding = HttpDeclared(declare(tmp_path, "http://127.0.0.1:9", none, text=text)).look_up(question())
    assert isinstance(finding, Inconclusive)
    assert (finding.reason, finding.exchange) == ("no_lookup", None)


def test_an_account_that_is_not_configured_is_not_asked(tmp_path: Path) -> None:
    finding = HttpDeclared(declare(tmp_path, "")).look_up(question())
    assert isinstance(finding, Unavailable)
    assert finding.reason == "not_configured"


def test_a_provider_that_cannot_be_reached_is_unavailable(tmp_path: Path) -> None:
    with FaultServer(Peer()) as server:
        url = server.url
    finding = HttpDeclared(declare(tmp_path, url)).look_up(question())
    assert isinstance(finding, Unavailable)
    assert finding.exchange is not None
    assert finding.exchange.error_class == "ConnectError"


def test_the_same_answer_twice_has_one_digest_whatever_the_clock(tmp_path: Path) -> None:
    first = ask(tmp_path, shown({**RECEIPT, "updated_at": "1"}))
    second = ask(tmp_path, shown({**RECEIPT, "updated_at": "2"}), asked_after_ms=90_000)
    assert first.evidence_digest == second.evidence_digest
