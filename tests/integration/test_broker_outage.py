"""A broker that is away delays nobody and is found again by whoever needs it."""

from __future__ import annotations

import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from console.celery import app as celery_app
from console.embedded import folders, valkey
from tests.processes import Spawn, start_celery_beat, start_celery_worker, until

# A caller only hands its call over. Without that it waited two seconds and more for a broker that is away;
# a busy machine gets the benefit of the doubt.
AT_ONCE_SECONDS = 1.0


@pytest.fixture
def home() -> Iterator[folders.Home]:
    """A folder for a broker of the test's own."""
    folder = Path(tempfile.mkdtemp(prefix="recourse-broker-"))
    folder.chmod(0o755)
    yield folders.prepare(folder / "state")
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    "url",
    [
        "redis://127.0.0.1:1/0",
        "redis+socket:///tmp/no-broker-here.sock?virtual_host=0",
        "amqp://127.0.0.1:1//",
    ],
)
def test_a_wake_up_call_without_a_broker_keeps_nobody_waiting_and_is_given_up(
    spawn: Spawn, app_env: dict[str, str], url: str
) -> None:
    program = (
        "import time; from reconciliation import waking; began = time.monotonic(); waking.wake('sweep');"
        " print('took', time.monotonic() - began); print('over', waking.flush(within_seconds=40))"
    )
    caller = spawn.manage("shell", "-c", program, env={**app_env, "BROKER_URL": url})
    caller.wait_for(r"^over True$")
    assert float(caller.wait_for(r"^took ([\d.]+)").group(1)) < AT_ONCE_SECONDS
    assert "wake_up_lost" in caller.output()


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port where somebody listens and never says a word, as a broker does that was stopped or cut off."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(16)
        yield listener.getsockname()[1]


@pytest.mark.parametrize("url", ["redis://127.0.0.1:{port}/0", "amqp://127.0.0.1:{port}//"])
def test_a_broker_that_never_answers_delays_no_caller_in_any_thread(
    spawn: Spawn, app_env: dict[str, str], silent_port: int, url: str
) -> None:
    """Each of a web server's threads would wait in turn, and nobody could open a page meanwhile."""
    program = (
        "import threading, time; from reconciliation import waking; took = []\n"
        "def call():\n"
        "    began = time.monotonic(); waking.wake('sweep'); took.append(time.monotonic() - began)\n"
        "threads = [threading.Thread(target=call) for _ in range(50)]\n"
        "[one.start() for one in threads]; [one.join() for one in threads]\n"
        "print('took', max(took)); print('over', waking.flush(within_seconds=40))"
    )
    caller = spawn.manage("shell", "-c", program, env={**app_env, "BROKER_URL": url.format(port=silent_port)})
    caller.wait_for(r"^over True$")
    assert float(caller.wait_for(r"^took ([\d.]+)").group(1)) < AT_ONCE_SECONDS
    # One call found out for all of them.
    assert caller.output().count("wake_up_lost") == 1


def test_a_process_that_ends_makes_its_last_call(spawn: Spawn, app_env: dict[str, str]) -> None:
    caller = spawn.manage(
        "shell", "-c", "from reconciliation import waking; waking.wake('sweep')", env=app_env
    )
    assert caller.wait() == 0
    with celery_app.connection_for_write() as connection:
        assert connection.default_channel.client.llen(celery_app.conf.task_default_queue) == 1


def test_worker_and_beat_outlive_their_broker_and_find_the_next_one(
    spawn: Spawn, app_env: dict[str, str], home: folders.Home
) -> None:
    first = valkey.start(home)
    env = {**app_env, "BROKER_URL": first.url}
    worker = start_celery_worker(spawn, env=env)
    beat = start_celery_beat(spawn, env=env)
    worker.wait_for(r"sweep\S* ?\S* succeeded")
    first.child.process.kill()
    first.child.process.wait()
    worker.wait_for(r"Connection to broker lost|Cannot connect to")
    done_before = worker.output().count(" succeeded in ")
    second = valkey.start(home)
    try:
        assert any(worker.output().count(" succeeded in ") > done_before for _ in until(45)), worker.output()
        assert beat.running()
    finally:
        worker.kill_group()
        beat.kill_group()
        second.child.stop()
