"""The sandbox provider as a real process: keys, lookups, faults, and what it counts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timedelta

import httpx
import pytest

from console.sandbox.control import SandboxControl, SandboxRefused
from console.sandbox.process import SandboxProcess
from console.sandbox.records import Counts, Lookup, Status
from tests.sandbox_client import ORDER, Sender

# A reset that meets a client still sending its body is reported by the write, and httpx then reads an end.
RESET = (httpx.ReadError, httpx.RemoteProtocolError)


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SandboxProcess]:
    """One provider for the module; each test has an account of its own."""
    folder = tmp_path_factory.mktemp("sandbox")
    process = SandboxProcess.start(store=folder / "store.sqlite3", log=folder / "stderr")
    yield process
    assert process.stop() == 0
    assert (folder / "stderr").read_text() == ""


@pytest.fixture(scope="module")
def control(provider: SandboxProcess) -> Iterator[SandboxControl]:
    with provider.control() as control:
        yield control


@pytest.fixture
def sender(control: SandboxControl, unique: str) -> Iterator[Sender]:
    with closing(Sender(control, unique)) as sender:
        yield sender


def counts(sender: Sender, key: str | None = None) -> tuple[int, int]:
    """Requests and effects."""
    stats = sender.control.stats(sender.account, key=key)
    return stats.requests, stats.effects


# --- Keys ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "prefix", "body"),
    [
        ("orders", "ord_", ORDER),
        ("refunds", "rfd_", {"payment": "pay_1", "amount_minor": 500, "currency": "EUR"}),
        ("tickets", "tkt_", {"title": "Pump is late", "body": "Ask — „wann?“"}),
        ("emails", "eml_", {"to": "a@example.org", "subject": "Late", "body": ""}),
    ],
)
def test_a_new_key_makes_one_effect_whose_receipt_echoes_the_payload(
    sender: Sender, kind: str, prefix: str, body: dict[str, object]
) -> None:
    answer = sender.send("k", body, kind=kind)
    receipt = answer.json()
    assert answer.status_code == 201
    assert "Idempotent-Replayed" not in answer.headers
    assert receipt["id"].startswith(prefix)
    assert (receipt["kind"], receipt["status"], receipt["idempotency_key"]) == (kind, "succeeded", "k")
    assert body.items() <= receipt.items()
    (effect,) = sender.control.effects(sender.account)
    assert (effect.receipt, effect.source, effect.made_at) == (receipt, "request", receipt["created_at"])


def test_the_same_key_and_body_repeat_the_first_bytes_and_no_effect(sender: Sender) -> None:
    first = sender.send("k")
    second = sender.send("k", dict(reversed(ORDER.items())))
    assert (second.status_code, second.content) == (201, first.content)
    assert second.headers["Idempotent-Replayed"] == "true"
    assert counts(sender, "k") == (2, 1)


@pytest.mark.parametrize(("body", "kind"), [({**ORDER, "quantity": 3}, "orders"), (ORDER, "refunds")])
def test_a_key_reused_for_something_else_is_refused(
    sender: Sender, body: dict[str, object], kind: str
) -> None:
    sender.send("k")
    answer = sender.send("k", body, kind=kind)
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "key_reused")
    assert counts(sender, "k") == (2, 1)


def test_the_same_key_at_another_account_is_another_key(sender: Sender, control: SandboxControl) -> None:
    other = f"{sender.account}-other"
    sender.send("k")
    with closing(Sender(control, other)) as elsewhere:
        assert "Idempotent-Replayed" not in elsewhere.send("k").headers
    assert control.stats(sender.account, key="k").effects == control.stats(other, key="k").effects == 1


def test_paths_without_an_account_are_the_default_account(sender: Sender, unique: str) -> None:
    url = f"{sender.control.url}/orders"
    answer = sender.http.post(url, json=ORDER, headers={"Idempotency-Key": unique})
    assert answer.status_code == 201
    with closing(Sender(sender.control, "default")) as by_name:
        assert by_name.found(unique) == [answer.json()]


def test_a_quoted_key_is_the_key_without_its_quotes(sender: Sender) -> None:
    sender.send("k")
    assert sender.send('"k"').headers["Idempotent-Replayed"] == "true"


@pytest.mark.parametrize("key", [None, "", "a b", "k" * 256, "\xe9"])
def test_a_missing_or_unusable_key_is_refused_and_counted(sender: Sender, key: str | None) -> None:
    headers = None if key is None else {"Idempotency-Key": key}
    url = f"{sender.control.account_url(sender.account)}/orders"
    raw = {name.encode(): value.encode("latin-1") for name, value in (headers or {}).items()}
    answer = sender.http.post(url, json=ORDER, headers=raw)
    expected = "key_missing" if key is None else "key_invalid"
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, expected)
    assert counts(sender) == (1, 0)


def test_two_keys_on_one_request_are_none(sender: Sender) -> None:
    url = f"{sender.control.account_url(sender.account)}/orders"
    headers = [("Idempotency-Key", "a"), ("Idempotency-Key", "b")]
    assert sender.http.post(url, json=ORDER, headers=headers).json()["error"]["code"] == "key_invalid"


def test_a_key_is_remembered_to_the_end_of_its_window_and_not_beyond(sender: Sender) -> None:
    sender.control.set_account(sender.account, key_window_ms=600_000)
    first = sender.send("k").json()["id"]
    sender.control.advance_clock(by_ms=540_000)
    # The window runs from the first request; this repeat does not prolong it.
    assert sender.send("k").json()["id"] == first
    sender.control.advance_clock(by_ms=60_000)
    again = sender.send("k")
    assert again.json()["id"] != first
    assert "Idempotent-Replayed" not in again.headers
    assert counts(sender, "k") == (3, 2)


def test_an_account_that_ignores_keys_makes_an_effect_each_time(sender: Sender) -> None:
    sender.control.set_account(sender.account, honours_keys=False)
    ids = [sender.send("k").json()["id"] for _ in range(2)]
    assert [receipt["id"] for receipt in sender.found("k")] == ids
    assert sender.send(None).status_code == 201
    assert counts(sender) == (3, 3)
    assert sender.control.stats_by_key(sender.account) == {"k": Counts(requests=2, effects=2, lookups=1)}


def test_an_account_can_keep_the_key_out_of_its_receipts(sender: Sender) -> None:
    sender.control.set_account(sender.account, echoes_key=False)
    assert "idempotency_key" not in sender.send("k", {**ORDER, "idempotency_key": "k"}).json()


def test_a_payload_can_not_choose_its_receipts_identity(sender: Sender) -> None:
    claimed = {"id": "ord_1", "kind": "x", "status": "failed", "idempotency_key": "x", "created_at": "x"}
    receipt = sender.send("k", claimed).json()
    assert (receipt["kind"], receipt["status"], receipt["idempotency_key"]) == ("orders", "succeeded", "k")
    assert receipt["id"] != "ord_1"
    assert receipt["created_at"] != "x"


def test_an_account_with_a_token_answers_nobody_else(sender: Sender) -> None:
    sender.control.set_account(sender.account, requires_auth="s3cret")
    for headers in ({}, {"Authorization": "Bearer s3cre"}, {"Authorization": "s3cret"}):
        assert sender.send("k", headers=headers).status_code == 401
    assert sender.find("k").status_code == 401
    assert counts(sender) == (3, 0)
    assert sender.send("k", headers={"Authorization": "Bearer s3cret"}).status_code == 201


# --- Lookups -------------------------------------------------------------------------------------------


def test_a_lookup_shows_what_was_made_and_changes_nothing(sender: Sender) -> None:
    assert sender.found("k") == []
    receipt = sender.send("k").json()
    assert sender.found("k") == [receipt]
    assert sender.found("k", kind="refunds") == []
    url = f"{sender.control.account_url(sender.account)}/orders/{receipt['id']}"
    assert sender.http.get(url).json() == receipt
    assert sender.http.get(url.replace("/orders/", "/refunds/")).status_code == 404
    assert sender.control.stats(sender.account) == Counts(requests=1, effects=1, lookups=5)


def test_a_lookup_without_a_key_is_refused(sender: Sender) -> None:
    answer = sender.http.get(f"{sender.control.account_url(sender.account)}/orders")
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "key_missing")


def test_an_account_without_lookup_says_so(sender: Sender) -> None:
    sender.control.set_account(sender.account, lookup=Lookup.NONE)
    receipt = sender.send("k").json()
    assert sender.find("k").json()["error"]["code"] == "lookup_not_offered"
    url = f"{sender.control.account_url(sender.account)}/orders/{receipt['id']}"
    assert sender.http.get(url).status_code == 501


def test_a_new_effect_shows_in_lookups_once_the_lag_has_passed(sender: Sender) -> None:
    sender.control.set_account(sender.account, lookup_lag_ms=600_000)
    receipt = sender.send("k").json()
    url = f"{sender.control.account_url(sender.account)}/orders/{receipt['id']}"
    sender.control.advance_clock(by_ms=540_000)
    assert sender.found("k") == []
    assert sender.http.get(url).status_code == 404
    sender.control.advance_clock(by_ms=60_000)
    assert sender.found("k") == [receipt]
    assert sender.http.get(url).json() == receipt


# --- By hand -------------------------------------------------------------------------------------------


def test_what_a_person_did_by_hand_is_an_effect_without_a_request(sender: Sender) -> None:
    effect = sender.control.make_by_hand("refunds", {"payment": "p"}, account=sender.account, key="k")
    assert (effect.source, effect.request_id) == ("by_hand", None)
    assert sender.found("k", kind="refunds") == [effect.receipt]
    assert counts(sender) == (0, 1)
    # It was not made under the key's protection, so the key still makes one of its own.
    assert sender.send("k", {"payment": "p"}, kind="refunds").status_code == 201
    assert counts(sender, "k") == (1, 2)


def test_a_pending_effect_is_settled_by_hand_and_a_failed_one_is_no_effect(sender: Sender) -> None:
    receipt = sender.send("k", fault="status;pending").json()
    assert receipt["status"] == "pending"
    assert counts(sender, "k") == (1, 1)
    sender.control.settle(receipt["id"], Status.FAILED)
    assert [found["status"] for found in sender.found("k")] == ["failed"]
    assert counts(sender, "k") == (1, 0)
    assert sender.send("k").json()["status"] == "pending"  # a replay repeats the first bytes
    sender.control.settle(receipt["id"], Status.SUCCEEDED)
    assert counts(sender, "k") == (2, 1)


# --- Faults --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "error", "effects"),
    [
        ("drop_reply", httpx.RemoteProtocolError, 1),
        ("truncate", httpx.RemoteProtocolError, 1),
        ("reset", RESET, 0),
        ("reset;before", RESET, 0),
        ("reset;after", httpx.ReadError, 1),
    ],
)
def test_a_lost_answer_says_nothing_of_the_effect(
    sender: Sender, fault: str, error: type[Exception] | tuple[type[Exception], ...], effects: int
) -> None:
    with pytest.raises(error):
        sender.send("k", fault=fault)
    assert counts(sender, "k") == (1, effects)
    assert len(sender.found("k")) == effects
    again = sender.send("k")
    assert again.headers.get("Idempotent-Replayed") == ("true" if effects else None)
    assert counts(sender, "k") == (2, 1)


@pytest.mark.parametrize(
    ("fault", "status", "code", "effects"),
    [
        ("error_500_before_commit", 500, "failed", 0),
        ("error_500_after_commit", 500, "failed", 1),
        ("refuse", 422, "refused", 0),
        ("rate_limited", 429, "rate_limited", 0),
        ("redirect", 307, "redirect", 0),
    ],
)
def test_an_error_is_answered_with_or_without_an_effect(
    sender: Sender, fault: str, status: int, code: str, effects: int
) -> None:
    answer = sender.send("k", fault=fault)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert counts(sender, "k") == (1, effects)
    # Only what was committed is under the key: an error of before leaves it unused.
    assert sender.send("k").status_code == 201
    assert counts(sender, "k") == (2, 1)


@pytest.mark.parametrize(("fault", "effects"), [("garbage", 1), ("garbage_without_commit", 0)])
def test_garbage_is_a_success_that_no_parser_can_read(sender: Sender, fault: str, effects: int) -> None:
    answer = sender.send("k", fault=fault)
    assert answer.status_code == 201
    with pytest.raises(ValueError):
        answer.json()
    assert counts(sender, "k") == (1, effects)


def test_a_rate_limit_says_when_to_come_back(sender: Sender) -> None:
    assert sender.send("k", fault="rate_limited;7").headers["Retry-After"] == "7"


def test_a_redirect_points_where_a_follower_would_be_counted(sender: Sender) -> None:
    before = sender.control.stats("redirected")
    assert sender.send("k", fault="redirect").headers["Location"] == "/acct/redirected/orders"
    elsewhere = sender.send("k", fault="redirect;https://example.org/x?y=1")
    assert elsewhere.headers["Location"] == "https://example.org/x?y=1"
    assert sender.control.stats("redirected") == before


def test_a_remembered_refusal_is_repeated_under_its_key(sender: Sender) -> None:
    first = sender.send("k", fault="refuse;remember")
    again = sender.send("k")
    assert (first.status_code, again.status_code) == (422, 422)
    assert again.headers["Idempotent-Replayed"] == "true"
    assert again.content == first.content
    assert counts(sender, "k") == (2, 0)


@pytest.mark.parametrize(
    ("fault", "body", "changed"),
    [
        ("other_payload", ORDER, {"amount_minor": 124_001}),
        ("other_payload", {"quantity": 2}, {"quantity": 3}),
        ("other_payload", {"to": "a@example.org"}, {"to": "a@example.org (altered)"}),
        ("other_payload", {}, {"altered": True}),
        ("other_payload;amount_minor=5", ORDER, {"amount_minor": 5}),
        ("other_payload;currency=USD", ORDER, {"currency": "USD"}),
    ],
)
def test_another_payload_is_applied_and_its_receipt_shows_it(
    sender: Sender, fault: str, body: dict[str, object], changed: dict[str, object]
) -> None:
    receipt = sender.send("k", body, fault=fault).json()
    assert {**body, **changed}.items() <= receipt.items()
    assert sender.found("k") == [receipt]
    # The key belongs to what was asked for, not to what was done.
    assert sender.send("k", body).headers["Idempotent-Replayed"] == "true"


def test_twice_is_one_request_and_two_effects(sender: Sender) -> None:
    receipt = sender.send("k", fault="twice").json()
    first, second = sender.found("k")
    assert first == receipt
    assert first["id"] != second["id"]
    assert counts(sender, "k") == (1, 2)


def test_an_ignored_key_makes_a_second_effect_and_leaves_the_first_answer_remembered(sender: Sender) -> None:
    first = sender.send("k").json()
    assert sender.send("k", fault="ignore_key").json()["id"] != first["id"]
    assert sender.send("k").json() == first
    assert counts(sender, "k") == (3, 2)


def test_a_hidden_effect_is_made_and_never_found(sender: Sender) -> None:
    assert sender.send("k", fault="hide_from_lookup").status_code == 201
    assert sender.send("later", fault="hide_from_lookup;600000").status_code == 201
    sender.control.advance_clock(by_ms=600_000)
    assert sender.found("k") == []
    assert len(sender.found("later")) == 1
    assert counts(sender, "k") == (1, 1)


def test_a_slow_request_takes_at_least_its_time(sender: Sender) -> None:
    assert sender.send("k", fault="slow;150").status_code == 201
    (request,) = sender.control.requests(sender.account)
    assert request.ended_at is not None
    took = datetime.fromisoformat(request.ended_at) - datetime.fromisoformat(request.received_at)
    assert took >= timedelta(milliseconds=150)


def test_faults_of_different_slots_combine(sender: Sender) -> None:
    with pytest.raises(httpx.RemoteProtocolError):
        sender.send("k", fault="other_payload;quantity=9, twice, drop_reply")
    assert [receipt["quantity"] for receipt in sender.found("k")] == [9, 9]


@pytest.mark.parametrize(
    "fault",
    [
        "drop_reply, garbage",
        "twice, twice",
        "no_such_fault",
        "slow",
        "slow;-1",
        "slow;60001",
        "slow;1.5",
        "refuse;maybe",
        "redirect;javascript:1",
        "other_payload;=1",
        "drop_reply;1",
        "lookup_500",
        "status;succeeded",
        ", ".join(["twice"] * 9),
    ],
)
def test_a_fault_that_is_not_one_is_refused_rather_than_left_out(sender: Sender, fault: str) -> None:
    assert sender.send("k", fault=fault).json()["error"]["code"] == "invalid"
    assert counts(sender, "k") == (1, 0)
    if "," not in fault and not fault.startswith("lookup"):
        with pytest.raises(SandboxRefused):
            sender.control.fault(fault, account=sender.account)


def test_a_rule_is_used_up_by_the_requests_it_names_and_by_no_others(sender: Sender) -> None:
    control, account = sender.control, sender.account
    control.fault("error_500_before_commit", account=account, kind="orders", key="k", times=2)
    assert sender.send("other").status_code == 201
    assert sender.send("k", {"payment": "p"}, kind="refunds").status_code == 201
    assert sender.find("k").status_code == 200
    assert [sender.send("k").status_code for _ in range(2)] == [500, 500]
    assert [rule for rule in control.faults() if rule["account"] == account] == []
    assert sender.send("k").json()["error"]["code"] == "key_reused"  # the refund's key, at last


def test_a_rule_for_ever_lasts_until_it_is_removed(sender: Sender) -> None:
    rule_id = sender.control.fault("refuse", account=sender.account, times=-1)
    assert [sender.send(f"k{n}").status_code for n in range(3)] == [422] * 3
    sender.control.remove_fault(rule_id)
    assert sender.send("k").status_code == 201
    with pytest.raises(SandboxRefused):
        sender.control.remove_fault(rule_id)


def test_a_rule_waits_while_the_header_or_an_older_rule_takes_its_place(sender: Sender) -> None:
    sender.control.fault("refuse", account=sender.account)
    sender.control.fault("rate_limited", account=sender.account)
    assert sender.send("k", fault="error_500_before_commit").status_code == 500
    assert [sender.send("k").status_code for _ in range(3)] == [422, 429, 201]


def test_one_account_is_cleared_of_its_rules_and_another_keeps_its_own(sender: Sender) -> None:
    other = f"{sender.account}-other"
    for account in (sender.account, other):
        sender.control.fault("refuse", account=account, times=-1)
    assert sender.control.clear_faults(sender.account) == 1
    assert [rule["account"] for rule in sender.control.faults()] == [other]
    assert sender.control.clear_faults(other) == 1


# --- Faults of lookups ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("fault", "status"), [("lookup_500", 500), ("lookup_429;9", 429)])
def test_a_failing_lookup_tells_nothing_and_counts(sender: Sender, fault: str, status: int) -> None:
    sender.send("k")
    answer = sender.find("k", fault=fault)
    assert answer.status_code == status
    assert answer.headers.get("Retry-After") == ("9" if status == 429 else None)
    assert sender.control.stats(sender.account) == Counts(requests=1, effects=1, lookups=1)


def test_a_lookup_of_garbage_is_a_200_that_no_parser_can_read(sender: Sender) -> None:
    answer = sender.find("k", fault="lookup_garbage")
    assert answer.status_code == 200
    with pytest.raises(ValueError):
        answer.json()


def test_a_dropped_lookup_has_no_answer(sender: Sender) -> None:
    with pytest.raises(httpx.RemoteProtocolError):
        sender.find("k", fault="lookup_drop")


def test_a_rule_for_lookups_leaves_requests_alone(sender: Sender) -> None:
    sender.control.fault("lookup_500", account=sender.account, key="k")
    assert sender.send("k").status_code == 201
    assert [sender.find("k").status_code for _ in range(2)] == [500, 200]


# --- What is on record ---------------------------------------------------------------------------------


def test_every_request_is_on_record_with_its_outcome_in_order(sender: Sender) -> None:
    sender.send("k")
    sender.send("k")
    sender.send("k", {"quantity": 1})
    sender.find("k")
    with pytest.raises(RESET):
        sender.send("r", fault="reset")
    rows = sender.control.requests(sender.account)
    assert [(row.method, row.key, row.outcome) for row in rows] == [
        ("POST", "k", "applied"),
        ("POST", "k", "replayed"),
        ("POST", "k", "key_reused"),
        ("GET", "k", "answered"),
        ("POST", "r", "reset"),
    ]
    assert [row.received_at for row in rows] == sorted(row.received_at for row in rows)
    assert rows[-1].faults == "reset"


def test_records_come_in_pages(sender: Sender) -> None:
    for number in range(5):
        sender.send(f"k{number}")
    url = f"{sender.control.account_url(sender.account)}/effects"
    seen: list[str] = []
    after: int | None = 0
    pages = 0
    while after is not None:
        page = sender.http.get(url, params={"after": after, "limit": 2}).json()
        seen += [row["key"] for row in page["data"]]
        after, pages = page["next"], pages + 1
    assert (seen, pages) == ([f"k{number}" for number in range(5)], 3)


def test_totals_are_the_sums_over_the_accounts(sender: Sender) -> None:
    sender.send("k", fault="twice")
    by_account = sender.control.stats_by_account()
    assert by_account[sender.account] == Counts(requests=1, effects=2)
    total = sender.control.stats()
    assert total.requests == sum(each.requests for each in by_account.values())
    assert total.effects == sum(each.effects for each in by_account.values())


def test_a_reset_forgets_one_account_and_no_other(sender: Sender, control: SandboxControl) -> None:
    other = f"{sender.account}-other"
    control.set_account(sender.account, honours_keys=False)
    control.fault("refuse", account=sender.account, key="never")
    sender.send("k")
    control.make_by_hand("orders", {}, account=other)
    control.reset(sender.account)
    assert control.stats(sender.account) == Counts()
    assert control.account(sender.account)["honours_keys"] is True
    assert control.stats(other).effects == 1
    assert sender.send("k").headers.get("Idempotent-Replayed") is None


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/admin/accounts/x", {"honours_key": False}),
        ("/admin/accounts/x", {"honours_keys": "no"}),
        ("/admin/accounts/x", {"lookup": "sometimes"}),
        ("/admin/accounts/x", {"key_window_ms": -1}),
        ("/admin/accounts/x", {"key_window_ms": True}),
        ("/admin/faults", {"fault": "refuse", "times": 0}),
        ("/admin/faults", {"fault": "refuse", "kind": "cars"}),
        ("/admin/faults", {"fault": "refuse", "account": "a/b"}),
        ("/admin/faults", {"fault": "redirect;http://a\r\nSet-Cookie: x"}),
        ("/admin/faults", {}),
        ("/admin/holds", {"at": "somewhere"}),
        ("/admin/effects", {"kind": "orders"}),
        ("/admin/effects", {"account": "*", "kind": "orders", "payload": {}}),
        ("/admin/clock", {"advance_ms": -5}),
    ],
)
def test_an_admin_call_that_says_something_else_is_refused(
    sender: Sender, path: str, body: dict[str, object]
) -> None:
    answer = sender.http.post(sender.control.url + path, json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "invalid")
