"""The example in the client's README does what it says, as it stands there."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.unit.client.stub_journal import TOKEN, StubJournal

README = Path(__file__).parents[3] / "clients" / "python" / "README.md"
PLACEHOLDER = "https://shop.example/orders"


@pytest.fixture
def shop() -> Iterator[tuple[str, list[str]]]:
    keys: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            keys.append(self.headers["Idempotency-Key"])
            self.send_response(201)
            self.send_header("Content-Length", "14")
            self.end_headers()
            self.wfile.write(b'{"id":"ord_1"}')

        def log_message(self, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/", keys
    server.shutdown()
    server.server_close()
    thread.join()


def example() -> str:
    found = re.search(r"## One effect in ten lines\n\n```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert found is not None
    return found[1]


def test_one_effect_takes_ten_lines() -> None:
    assert len([line for line in example().splitlines() if line.strip()]) <= 10


def test_the_ten_lines_journal_one_effect(
    stub: StubJournal, spool: Path, shop: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, keys = shop
    monkeypatch.setenv("RECOURSE_URL", stub.url)
    monkeypatch.setenv("RECOURSE_TOKEN", TOKEN)
    monkeypatch.setenv("RECOURSE_SPOOL", str(spool))
    code = example()
    assert PLACEHOLDER in code
    exec(compile(code.replace(PLACEHOLDER, url), str(README), "exec"), {})  # noqa: S102 (our own README)
    assert keys == ["key-op_1"]
    assert stub.only_operation().receipt == {"reference": "ord_1", "body": {"id": "ord_1"}}
    assert stub.only_run()["state"] == "completed"
    assert stub.only_run()["output"] == {"order": "ord_1"}
