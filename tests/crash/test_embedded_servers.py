"""The launcher's promises, with real servers: nothing outlives its parent, nothing shares a folder."""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
import redis

from console.embedded import EmbeddedServerError, EmbeddedServers, folders
from console.embedded.processes import alive, command_line, record, stop_recorded
from tests.processes import ROOT, Process, Spawn, until

pytestmark = pytest.mark.crash

# Starts servers, says where they are, and waits to be killed. With a user id: as that user, having
# loaded everything first, since a user who isn't root may not be able to read our interpreter. As an
# orphanage it withholds the kernel's promise, as on a system that has none.
HOLDER = """
import json, os, signal, sys
from pathlib import Path
import encodings.idna, hashlib, psycopg, redis, shutil, tempfile
from console.embedded import EmbeddedServerError, EmbeddedServers, processes
state, uid, gid, orphanage = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "orphanage"
if orphanage:
    promise = processes.guarded
    processes.guarded = lambda command, **given: promise(command, **{**given, "death_signal": 0})
if uid >= 0:
    os.setgroups([])
    os.setgid(gid)
    os.setuid(uid)
    sys.executable = next(p for p in (sys.executable, "/usr/bin/python3") if os.access(p, os.X_OK))
try:
    with EmbeddedServers(state) as servers:
        print(json.dumps({
            "pids": [child.pid for child in servers.children],
            "url": servers.database_url,
            "owner_url": servers.owner_url,
            "broker": servers.broker_url,
        }), flush=True)
        signal.pause()
except EmbeddedServerError as error:
    sys.exit(str(error))
"""
COMMIT = "CREATE TABLE kept AS SELECT 7 AS value"
LOOK = "SELECT value FROM kept"


@pytest.fixture
def open_dir() -> Iterator[Path]:
    """A folder that any user can reach, which pytest's own isn't for root."""
    folder = Path(tempfile.mkdtemp(prefix="recourse-launch-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def started_once() -> Iterator[Path]:
    """A state folder that has been started and stopped once; making one takes most of a first start."""
    folder = Path(tempfile.mkdtemp(prefix="recourse-started-"))
    folder.chmod(0o755)
    with EmbeddedServers(folder / "state"):
        pass
    yield folder / "state"
    shutil.rmtree(folder)


@pytest.fixture
def state_dir(started_once: Path, open_dir: Path) -> Path:
    """A state folder of the test's own."""
    subprocess.run(["cp", "-a", started_once, open_dir / "state"], check=True)
    return open_dir / "state"


@dataclass(frozen=True, kw_only=True)
class Held:
    """Servers that another process started and holds."""

    process: Process
    pids: list[int]
    url: str
    owner_url: str
    broker: str

    def execute(self, statement: str) -> tuple[object, ...] | None:
        with psycopg.connect(self.owner_url) as owner:
            cursor = owner.execute(statement)
            return cursor.fetchone() if cursor.description else None


def hold(spawn: Spawn, state_dir: Path, *, uid: int = -1, gid: int = -1, orphanage: bool = False) -> Held:
    how = "orphanage" if orphanage else "ours"
    process = spawn.python(
        *("-W", "error", "-c", HOLDER, state_dir, str(uid), str(gid), how),
        env={"PATH": os.defpath, "PYTHONPATH": str(ROOT)},
        name="holder",
    )
    process.wait_for(r"^\{.*\}$")
    return Held(process=process, **process.json_lines()[0])


def gone(pids: list[int], *, within_seconds: float = 5) -> bool:
    assert pids
    return any(not any(alive(pid) for pid in pids) for _ in until(within_seconds))


def commands_under(state_dir: Path) -> list[str]:
    """The commands of living processes that name the folder, ours excepted."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid() and alive(int(entry.name)):
            command = command_line(int(entry.name))
            if str(state_dir) in command:
                found.append(command)
    return found


def test_data_and_logins_outlive_a_restart(open_dir: Path) -> None:
    state_dir = open_dir / "new"
    with EmbeddedServers(state_dir, broker=False) as servers:
        first = servers.database_url
        with psycopg.connect(servers.owner_url) as owner:
            owner.execute(COMMIT)
    with EmbeddedServers(state_dir, broker=False) as servers:
        assert servers.database_url == first
        with psycopg.connect(servers.owner_url) as owner:
            assert owner.execute(LOOK).fetchone() == (7,)


def test_a_kill_of_the_parent_leaves_no_server_running_and_loses_nothing(
    spawn: Spawn, state_dir: Path
) -> None:
    held = hold(spawn, state_dir)
    held.execute(COMMIT)
    held.process.kill()
    assert gone(held.pids)
    assert any(not commands_under(state_dir) for _ in until(5))
    again = hold(spawn, state_dir)
    assert again.execute(LOOK) == (7,)


def test_servers_that_nothing_stopped_are_stopped_by_the_next_start(spawn: Spawn, state_dir: Path) -> None:
    orphaned = hold(spawn, state_dir, orphanage=True)
    orphaned.execute(COMMIT)
    orphaned.process.kill()
    assert all(alive(pid) for pid in orphaned.pids)
    again = hold(spawn, state_dir)
    assert gone(orphaned.pids, within_seconds=1)
    assert again.execute(LOOK) == (7,)


def test_emptying_stops_servers_that_nothing_stopped(spawn: Spawn, state_dir: Path) -> None:
    orphaned = hold(spawn, state_dir, orphanage=True)
    orphaned.process.kill()
    folders.empty(state_dir)
    assert gone(orphaned.pids, within_seconds=1)
    assert not (state_dir / "private").exists()


def test_a_recorded_id_that_now_belongs_to_another_program_is_left_alone(
    spawn: Spawn, tmp_path: Path
) -> None:
    bystander = spawn.python("-c", "import signal; signal.pause()", env={}, name="bystander")
    pid_file = tmp_path / "postgresql.pid"
    record(bystander.child, pid_file=pid_file, mark="/somewhere/postgresql")
    assert not stop_recorded(pid_file)
    assert bystander.running()


def test_a_second_start_on_a_live_folder_is_refused_and_harms_nothing(spawn: Spawn, state_dir: Path) -> None:
    held = hold(spawn, state_dir)
    refusal = rf"already running \(started by process {held.process.pid}\)"
    with pytest.raises(EmbeddedServerError, match=refusal), EmbeddedServers(state_dir):
        pass
    assert held.execute("SELECT 1") == (1,)


def test_a_second_start_in_the_same_process_is_refused_too(state_dir: Path) -> None:
    with (
        EmbeddedServers(state_dir, broker=False),
        pytest.raises(EmbeddedServerError, match="already running"),
        EmbeddedServers(state_dir),
    ):
        pass


def test_emptying_a_live_folder_is_refused(spawn: Spawn, state_dir: Path) -> None:
    held = hold(spawn, state_dir)
    with pytest.raises(EmbeddedServerError, match="already running"):
        folders.empty(state_dir)
    assert held.execute("SELECT 1") == (1,)


def test_a_folder_with_somebody_elses_files_is_neither_taken_nor_emptied(open_dir: Path) -> None:
    state_dir = open_dir / "university"
    state_dir.mkdir(mode=0o755)
    (state_dir / "thesis.txt").write_text("ten years of work")
    with pytest.raises(EmbeddedServerError, match="holds files that Recourse didn't put there"):
        folders.empty(state_dir)
    with pytest.raises(EmbeddedServerError), EmbeddedServers(state_dir):
        pass
    assert [entry.name for entry in state_dir.iterdir()] == ["thesis.txt"]
    assert stat.S_IMODE(state_dir.stat().st_mode) == 0o755


def test_nobody_else_can_look_into_data_or_passwords(state_dir: Path) -> None:
    with EmbeddedServers(state_dir, broker=False) as servers:
        for folder in (servers.home.private, servers.home.servers, servers.home.logs, servers.home.sockets):
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700, folder
        for file in servers.home.private.glob("*.password"):
            assert stat.S_IMODE(file.stat().st_mode) == 0o600, file


def test_a_wrong_password_is_refused_on_the_socket(state_dir: Path) -> None:
    with EmbeddedServers(state_dir, broker=False) as servers:
        right = servers.superuser_url
        password = right.split(":")[2].partition("@")[0]
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(right.replace(password, "guess"))


def test_a_path_too_long_for_a_socket_gets_a_short_one(started_once: Path, open_dir: Path) -> None:
    deep = open_dir / ("long" * 25) / "state"
    deep.parent.mkdir(mode=0o755)
    subprocess.run(["cp", "-a", started_once, deep], check=True)
    with EmbeddedServers(deep) as servers:
        try:
            assert not servers.home.sockets.is_relative_to(deep)
            with psycopg.connect(servers.database_url) as app:
                assert app.execute("SELECT 1").fetchone() == (1,)
        finally:
            shutil.rmtree(servers.home.sockets, ignore_errors=True)


def test_the_application_works_with_broker_and_database_alike(spawn: Spawn, state_dir: Path) -> None:
    held = hold(spawn, state_dir)
    client = redis.Redis(unix_socket_path=urlsplit(held.broker).path)
    assert client.ping()
    client.close()
    with psycopg.connect(held.url) as app, pytest.raises(psycopg.errors.InsufficientPrivilege):
        app.execute("CREATE TABLE mine (id int)")


@pytest.mark.skipif("os.geteuid() != 0", reason="who isn't root already tests this with every other test")
class TestAsRoot:
    """Root's servers run as another user, and an ordinary user's as that user."""

    def test_servers_of_root_run_as_nobody(self, state_dir: Path) -> None:
        with EmbeddedServers(state_dir) as servers:
            for child in servers.children:
                assert Path(f"/proc/{child.pid}").stat().st_uid == pwd.getpwnam("nobody").pw_uid

    def test_an_ordinary_user_starts_servers_that_die_with_their_parent(
        self, spawn: Spawn, state_dir: Path
    ) -> None:
        user = pwd.getpwnam("daemon")
        subprocess.run(["chown", "-R", f"{user.pw_uid}:{user.pw_gid}", state_dir], check=True)
        held = hold(spawn, state_dir, uid=user.pw_uid, gid=user.pw_gid)
        for pid in held.pids:
            assert Path(f"/proc/{pid}").stat().st_uid == user.pw_uid
        held.process.kill()
        assert gone(held.pids)

    def test_a_folder_below_a_closed_one_keeps_it_closed(self, open_dir: Path) -> None:
        closed = open_dir / "home"
        closed.mkdir(mode=0o700)
        with EmbeddedServers(closed / "state", broker=False) as servers:
            elsewhere = servers.home.servers
            assert not elsewhere.is_relative_to(closed)
            with psycopg.connect(servers.database_url) as app:
                assert app.execute("SELECT 1").fetchone() == (1,)
        assert stat.S_IMODE(closed.stat().st_mode) == 0o700
        folders.empty(closed / "state")
        assert not elsewhere.exists()

    def test_a_temporary_folder_takes_servers_that_are_elsewhere_with_it(self) -> None:
        with folders.temporary("recourse-thrown-away-") as folder:
            with EmbeddedServers(folder / "state", broker=False) as servers:
                elsewhere = servers.home.servers
                assert not elsewhere.is_relative_to(folder)
            assert elsewhere.exists()
        assert not elsewhere.exists()
        assert not folder.exists()

    def test_programs_below_a_closed_folder_are_copied_to_where_they_can_run(
        self, open_dir: Path, state_dir: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        closed = open_dir / "home"
        closed.mkdir(mode=0o700)
        find = folders._package
        monkeypatch.setattr(folders, "_package", lambda name: copy_of(find(name), closed / "site"))
        for _ in range(2):
            with EmbeddedServers(state_dir) as servers:
                programs = servers.home.servers / "programs"
                assert folders.postgres_binaries(servers.home).is_relative_to(programs)
                assert folders.valkey_binary(servers.home).is_relative_to(programs)
        assert stat.S_IMODE(closed.stat().st_mode) == 0o700


def copy_of(package: Path, site: Path) -> Path:
    """The package as it would lie in a clone below a closed folder."""
    copy = site / package.name
    if not copy.exists():
        shutil.copytree(package, copy)
        libraries = package.with_name(f"{package.name}.libs")
        if libraries.exists():
            shutil.copytree(libraries, copy.with_name(libraries.name))
    return copy
