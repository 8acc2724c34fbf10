"""PostgreSQL and Valkey together, as one thing that is started and stopped."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from console.embedded import folders, postgres, valkey
from console.embedded.processes import Child, EmbeddedServerError

T = TypeVar("T")


class EmbeddedServers:
    """Real servers in a folder of their own, for as long as the `with` block, or this process, lives.

        with EmbeddedServers(state_dir) as servers:
            servers.database_url, servers.owner_url, servers.broker_url

    Data stays in the folder; a second start on it is quick, and refused while one is live. Start it from
    the main thread: Linux ends the servers when the thread that started them ends. Raises
    `EmbeddedServerError` with what the server itself said.
    """

    def __init__(self, state_dir: Path, *, database: bool = True, broker: bool = True) -> None:
        self.state_dir = state_dir
        self._with_database = database
        self._with_broker = broker
        self._cleanup = ExitStack()
        self._home: folders.Home | None = None
        self._postgres: postgres.Postgres | None = None
        self._valkey: valkey.Valkey | None = None

    def __enter__(self) -> Self:
        try:
            self._home = folders.prepare(self.state_dir)
            self._cleanup.enter_context(folders.only_start(self._home))
            if self._with_database:
                self._postgres = postgres.start(self._home)
                self._cleanup.callback(self._postgres.child.stop)
            if self._with_broker:
                self._valkey = valkey.start(self._home)
                self._cleanup.callback(self._valkey.child.stop)
        except BaseException:
            self._cleanup.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cleanup.close()

    @property
    def home(self) -> folders.Home:
        return _started(self._home)

    @property
    def children(self) -> list[Child]:
        """The servers' processes, for whoever watches that they live."""
        return [server.child for server in (self._postgres, self._valkey) if server is not None]

    @property
    def database_url(self) -> str:
        """How the application logs in: a member of `recourse_app` that owns nothing."""
        return _started(self._postgres).url(postgres.APP_ROLE)

    @property
    def owner_url(self) -> str:
        """How `migrate` logs in, and nobody else."""
        return _started(self._postgres).url(postgres.OWNER_ROLE)

    @property
    def superuser_url(self) -> str:
        """The administrator's way in, for tests of what happens when a database is set up wrongly."""
        return _started(self._postgres).url(postgres.SUPERUSER, database="postgres")

    @property
    def broker_url(self) -> str:
        return _started(self._valkey).url


def _started(value: T | None) -> T:
    if value is None:
        raise EmbeddedServerError("The servers are not running.")
    return value
