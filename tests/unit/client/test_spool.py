"""The folder of undelivered reports: durable, bounded, and never trusting what it reads."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from recourse_client import Client, NotConfigured, ReportNotDelivered
from recourse_client.__main__ import main
from recourse_client.outcomes import Seen
from recourse_client.reports import Attempt, Outcome, seen_report
from recourse_client.spool import Report, Spool
from tests.unit.client.agents import Shop, order_turn
from tests.unit.client.stub_journal import TOKEN, StubJournal


def report(url: str = "http://journal/api/v1", attempt: str = "att_1", operation: str = "op_1") -> Report:
    return seen_report(
        url, Attempt(operation, "order", attempt, "tok_1"), Outcome.UNKNOWN, Seen(error="read timed out")
    )


@pytest.fixture
def undelivered(make_client: Callable[..., Client], stub: StubJournal, spool: Path) -> Path:
    """A receipt that an earlier process could not deliver; the journal answers again."""
    stub.fault("POST .*/receipt$", "drop", times=99)
    with pytest.raises(ReportNotDelivered), order_turn(make_client()) as turn:
        turn.effect("order", Shop())
    stub.faults.clear()
    stub.end_lease()
    (file,) = spool.glob("*.json")
    return file


def test_a_report_comes_back_byte_for_byte(spool: Path) -> None:
    kept = report()
    Spool(spool).put(kept)
    (found,), unreadable = Spool(spool).waiting()
    assert found.report == kept
    assert unreadable == []


def test_reports_come_back_oldest_first(spool: Path) -> None:
    for number in range(5):
        Spool(spool).put(report(attempt=f"att_{number}"))
    found, _ = Spool(spool).waiting()
    assert [one.report.attempt_id for one in found] == [f"att_{number}" for number in range(5)]


def test_the_folder_and_its_files_are_their_owners_alone(spool: Path) -> None:
    file = Spool(spool).put(report())
    assert spool.stat().st_mode & 0o777 == 0o700
    assert file.stat().st_mode & 0o777 == 0o600


def test_file_and_folder_are_synced_before_the_report_counts_as_kept(
    spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    fsync, rename = os.fsync, Path.rename

    def synced(descriptor: int) -> None:
        steps.append("folder" if os.path.isdir(f"/proc/self/fd/{descriptor}") else "file")  # noqa: PTH112
        fsync(descriptor)

    def renamed(path: Path, target: Path) -> Path:
        steps.append("rename")
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "rename", renamed)
    Spool(spool).put(report())
    assert steps == ["file", "rename", "folder"]


def spoil_half(content: bytes) -> bytes:
    return content[: len(content) // 2]


def spoil_content(content: bytes) -> bytes:
    return content.replace(b"timed out", b"timed in!")


def spoil_path(content: bytes) -> bytes:
    return content.replace(b"/operations/op_1/unknown", b"/cases/case_1/retry")


def spoil_types(content: bytes) -> bytes:
    return json.dumps({**json.loads(content), "content": 7}).encode()


@pytest.mark.parametrize(
    "spoil",
    [
        spoil_half,
        spoil_content,
        spoil_path,
        spoil_types,
        lambda content: b"",
        lambda content: b"\xff\xfe",
        lambda content: b"[" * 100_000,
        lambda content: b"null",
        lambda content: b'{"format": "recourse-report-9"}',
        lambda content: content + b" " * 5_000_000,
    ],
)
def test_a_damaged_file_is_set_aside_and_named_and_the_others_are_delivered(
    client: Client, stub: StubJournal, undelivered: Path, spool: Path, spoil: Callable[[bytes], bytes]
) -> None:
    damaged = Spool(spool).put(report(stub.url + "/api/v1"))
    damaged.write_bytes(spoil(damaged.read_bytes()))
    delivery = client.deliver_spooled()
    assert [one.outcome for one in delivery.delivered] == ["receipt"]
    (found,) = delivery.unreadable
    assert found.file == spool / "unreadable" / damaged.name
    assert found.file.exists()
    assert found.file.with_suffix(".reason").read_text() == found.reason
    assert list(spool.glob("*.json")) == []


def test_a_file_that_is_not_ours_is_set_aside(client: Client, spool: Path) -> None:
    spool.mkdir()
    (spool / "notes.json").write_text("{}")
    (spool / "readme.txt").write_text("left alone")
    (found,) = client.deliver_spooled().unreadable
    assert found.file == spool / "unreadable" / "notes.json"
    assert (spool / "readme.txt").exists()


def test_a_half_written_report_is_never_seen(client: Client, spool: Path) -> None:
    file = Spool(spool).put(report())
    file.rename(spool / f".{file.name}.1.tmp")
    delivery = client.deliver_spooled()
    assert (delivery.delivered, delivery.unreadable) == ((), ())


def test_a_report_for_another_journal_is_left_alone(client: Client, stub: StubJournal, spool: Path) -> None:
    file = Spool(spool).put(report("http://elsewhere/api/v1"))
    delivery = client.deliver_spooled()
    assert len(delivery.elsewhere) == 1
    assert file.exists()
    assert stub.asked == []


def test_a_report_that_the_journal_refuses_for_good_is_set_aside_and_named(
    client: Client, stub: StubJournal, spool: Path
) -> None:
    file = Spool(spool).put(report(f"{stub.url}/api/v1", operation="op_404"))
    delivery = client.deliver_spooled()
    ((aside, reason),) = delivery.refused
    assert aside == spool / "refused" / file.name
    assert "not_found" in reason


def test_a_token_that_is_not_let_in_leaves_the_report_for_another(
    make_client: Callable[..., Client], undelivered: Path
) -> None:
    delivery = make_client(token="expired").deliver_spooled()
    assert len(delivery.kept) == 1
    assert undelivered.exists()
    assert len(make_client().deliver_spooled().delivered) == 1


def test_a_journal_that_cannot_be_asked_is_asked_once_not_for_each_report(
    client: Client, stub: StubJournal, spool: Path
) -> None:
    for number in range(5):
        Spool(spool).put(report(f"{stub.url}/api/v1", attempt=f"att_{number}"))
    stub.fault("POST .*", "drop", times=99)
    assert len(client.deliver_spooled().kept) == 5
    assert len({asked.content for asked in stub.asked}) == 1


def test_two_that_deliver_one_folder_at_once_do_no_harm(
    make_client: Callable[..., Client], stub: StubJournal, undelivered: Path
) -> None:
    held = stub.fault("POST .*/receipt$", "hold")
    first, second = make_client(), make_client()
    thread = threading.Thread(target=first.deliver_spooled)
    thread.start()
    assert held.reached.wait(10)
    assert len(second.deliver_spooled().delivered) == 1
    held.release.set()
    thread.join(10)
    assert not undelivered.exists()
    assert stub.only_operation().state == "confirmed"
    assert len({asked.content for asked in stub.calls("/receipt$")}) == 1
    assert len(stub.evidence) == 1


# --- the command line -------------------------------------------------------------------------------------


def test_the_command_lists_and_then_delivers(
    stub: StubJournal,
    undelivered: Path,
    spool: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("RECOURSE_URL", stub.url)
    monkeypatch.setenv("RECOURSE_TOKEN", TOKEN)
    assert main(["spool", str(spool)]) == 1
    listed = capsys.readouterr().out
    assert "op_1" in listed
    assert "1 waiting" in listed
    assert undelivered.exists()
    assert main(["spool", str(spool), "--deliver"]) == 0
    assert capsys.readouterr().out.startswith("delivered  receipt op_1")
    assert main(["spool", str(spool)]) == 0


def test_the_command_says_what_it_could_not_deliver(
    stub: StubJournal,
    undelivered: Path,
    spool: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("RECOURSE_URL", stub.url)
    monkeypatch.setenv("RECOURSE_TOKEN", "expired")
    assert main(["spool", str(spool), "--deliver"]) == 1
    assert capsys.readouterr().out.startswith("waiting    receipt op_1")


def test_the_command_without_an_address_says_so(
    spool: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("RECOURSE_URL", raising=False)
    assert main(["spool", str(spool), "--deliver"]) == 2
    assert "RECOURSE_URL" in capsys.readouterr().err
    with pytest.raises(NotConfigured):
        Client()


# --- what a report may say --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seen", "members"),
    [
        (Seen(status=502, body="bad gateway"), {"status": 502, "body": "bad gateway"}),
        (Seen(body=b"\xff\x01"), {"body_base64": "/wE="}),
        (Seen(body=b"a\x00b"), {"body_base64": "YQBi"}),
        (Seen(body="\ud800"), {"body_base64": "7aCA"}),
        (Seen(body={"a": 1}), {"body": '{"a":1}'}),
        (Seen(error="nul \x00 and \ud800"), {"error": "nul � and ?"}),
        (
            Seen(headers={"X-Id": "7", "Set-Cookie": "s"}, phase="sending"),
            {"headers": {"X-Id": "7"}, "phase": "sending"},
        ),
    ],
)
def test_whatever_was_seen_has_a_strict_json_form(seen: Seen, members: dict[str, object]) -> None:
    made = seen_report("u", Attempt("op_1", "c", "att_1", "tok_1"), Outcome.UNKNOWN, seen)
    assert json.loads(made.content) == {"token": "tok_1", "attempt_id": "att_1", **members}


def test_a_long_body_is_cut_and_its_length_and_digest_are_told() -> None:
    made = seen_report(
        "u", Attempt("op_1", "c", "att_1", "tok_1"), Outcome.UNKNOWN, Seen(body=b"x" * 140_000, error="late")
    )
    body = json.loads(made.content)
    assert len(body["body"]) == 128 * 1024
    assert body["error"].startswith("late (the body was cut: 140000 bytes, sha256 ")
