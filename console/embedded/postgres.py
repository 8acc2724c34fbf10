"""An embedded PostgreSQL: initialised once, started in the foreground, stopped with its parent."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import psycopg
from psycopg import sql

from console.embedded import folders, processes
from console.embedded.processes import Child, EmbeddedServerError

DATABASE = "recourse"
SUPERUSER = "postgres"
OWNER_ROLE = "recourse_owner"
APP_ROLE = "recourse"
# Must be the name in settings.RECOURSE_APP_GROUP; this module works without settings.
APP_GROUP = "recourse_app"
READY_WITHIN_SECONDS = 60.0  # recovery after a kill reads the log once more; 0.1 s is usual
# "Fast" shutdown first; then "immediate", which recovers at the next start; then none of its own.
STOP_SIGNALS = ((signal.SIGINT, 15.0), (signal.SIGQUIT, 5.0), (signal.SIGKILL, 5.0))
SERVER_SETTINGS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "max_connections": "200",
    "shared_buffers": "128MB",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_destination": "stderr",
    "logging_collector": "off",
    "password_encryption": "scram-sha-256",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Postgres:
    """A running server with the roles of a production and a database owned by `recourse_owner`."""

    child: Child
    sockets: Path
    passwords: dict[str, str]

    def url(self, role: str, *, database: str = DATABASE) -> str:
        """The URL by which `role` logs in to `database` over the socket."""
        password = quote(self.passwords[role], safe="")
        return f"postgresql://{role}:{password}@/{database}?host={quote(str(self.sockets), safe='')}"


def start(home: folders.Home) -> Postgres:
    """Start the server on the folder's data, made on the first start. The caller holds the folder's lock."""
    binaries = folders.postgres_binaries(home)
    data = home.servers / "postgresql"
    passwords = _passwords(home)
    pid_file = home.private / "postgresql.pid"
    processes.stop_recorded(pid_file)
    if not data.exists():
        _initialise(data, binaries=binaries, home=home, password=passwords[SUPERUSER])
    _check_version(data, binaries=binaries, home=home)
    options = {**SERVER_SETTINGS, "unix_socket_directories": str(home.sockets)}
    child = processes.start(
        name="PostgreSQL",
        command=[
            binaries / "postgres",
            *("-D", data),
            *(part for name, value in options.items() for part in ("-c", f"{name}={value}")),
        ],
        log=home.logs / "postgresql.log",
        account=home.account,
        death_signal=signal.SIGINT,
        stop_signals=STOP_SIGNALS,
        environment={"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"},
        folder=Path("/"),
    )
    server = Postgres(child=child, sockets=home.sockets, passwords=passwords)
    try:
        processes.record(child, pid_file=pid_file, mark=str(data))
        _await_ready(server)
        _make_roles(server)
    except BaseException:
        child.stop()
        raise
    return server


def _passwords(home: folders.Home) -> dict[str, str]:
    """The roles' passwords, made once and kept where only the parent can read them."""
    found: dict[str, str] = {}
    for role in (SUPERUSER, OWNER_ROLE, APP_ROLE):
        file = home.private / f"{role}.password"
        if not file.exists():
            write_private(file, secrets.token_urlsafe(24))
        found[role] = file.read_text()
    return found


def write_private(file: Path, content: str) -> None:
    """Write a whole file or none, readable by its owner alone."""
    unfinished = file.with_suffix(".unfinished")
    unfinished.unlink(missing_ok=True)
    with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as output:
        output.write(content)
    unfinished.rename(file)


def _initialise(data: Path, *, binaries: Path, home: folders.Home, password: str) -> None:
    unfinished = data.with_name("postgresql.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    # A file, not standard input: the server's user could not reopen ours.
    password_file = home.servers / "initdb.password"
    write_private(password_file, password)
    if home.account.uid is not None:
        os.chown(password_file, home.account.uid, -1)
    try:
        processes.run(
            [
                binaries / "initdb",
                *("--pgdata", unfinished),
                *("--username", SUPERUSER),
                *("--pwfile", password_file),
                *("--auth", "scram-sha-256"),
                *("--encoding", "UTF8"),
                *("--locale-provider", "builtin"),
                *("--builtin-locale", "C.UTF-8"),
                *("--locale", "C"),
                "--no-instructions",
            ],
            account=home.account,
        )
    finally:
        password_file.unlink()
    unfinished.rename(data)


def _check_version(data: Path, *, binaries: Path, home: folders.Home) -> None:
    written_by = (data / "PG_VERSION").read_text().strip()
    available = _major_version(binaries)
    if written_by != available:
        raise EmbeddedServerError(
            f"The data in {home.state} was written by PostgreSQL {written_by}, and PostgreSQL {available} is "
            "installed, which can't read it. Starting anew (make demo-reset) deletes that data."
        )


def _major_version(binaries: Path) -> str:
    """The `18` of `postgres (PostgreSQL) 18.6`."""
    shown = subprocess.run([binaries / "postgres", "--version"], check=True, capture_output=True, text=True)
    return shown.stdout.split()[2].partition(".")[0]


def _await_ready(server: Postgres) -> None:
    url = server.url(SUPERUSER, database="postgres")
    for _ in processes.ticks(READY_WITHIN_SECONDS, otherwise="PostgreSQL did not become ready in 60 s."):
        if not server.child.running():
            raise EmbeddedServerError(f"PostgreSQL did not start:\n{server.child.log_tail()}")
        try:
            with psycopg.connect(url, connect_timeout=5):
                return
        except psycopg.OperationalError:
            continue


def _make_roles(server: Postgres) -> None:
    """What docs/operating.md has a database administrator do once; each part only where it is missing."""
    with psycopg.connect(server.url(SUPERUSER, database="postgres"), autocommit=True) as connection:
        roles = {name for (name,) in connection.execute("SELECT rolname FROM pg_roles")}
        if APP_GROUP not in roles:
            connection.execute(sql.SQL("CREATE ROLE {} NOLOGIN").format(sql.Identifier(APP_GROUP)))
        for role, may in ((OWNER_ROLE, "LOGIN CREATEDB"), (APP_ROLE, "LOGIN")):
            if role not in roles:
                connection.execute(
                    sql.SQL("CREATE ROLE {} " + may + " PASSWORD {}").format(
                        sql.Identifier(role), sql.Literal(server.passwords[role])
                    )
                )
        connection.execute(
            sql.SQL("GRANT {} TO {}").format(sql.Identifier(APP_GROUP), sql.Identifier(APP_ROLE))
        )
        if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]).fetchone():
            connection.execute(
                sql.SQL("CREATE DATABASE {} OWNER {}").format(
                    sql.Identifier(DATABASE), sql.Identifier(OWNER_ROLE)
                )
            )
