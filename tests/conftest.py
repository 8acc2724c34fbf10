"""The suite's servers, database, roles and processes.

One embedded PostgreSQL for the whole run, also under xdist; one embedded Valkey per worker. With
DATABASE_URL and DATABASE_OWNER_URL set, that database server is used, and with BROKER_URL that broker (a
broker of the suite's own: it is emptied before each test, so use one worker with it).
The test database is made and emptied by the owner; tests and their processes log in as the application.
"""

from __future__ import annotations

import fcntl
import gc
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from django.conf import settings
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.test import TransactionTestCase
from playwright.sync_api import Browser, BrowserContext, Page
from psycopg import sql
from pytest_django import DjangoDbBlocker

from console.celery import app as celery_app
from console.embedded import EmbeddedServers, folders, valkey
from console.variables import database
from reconciliation.providers import registry
from reconciliation.providers.reach import parse_listing
from tests import chromium
from tests.contract.matrix import MatrixPlugin
from tests.processes import (
    ROOT,
    Process,
    Server,
    Spawn,
    start_celery_beat,
    start_celery_worker,
    start_sandbox,
    start_web_server,
)

FAST_SWEEP_SECONDS = 0.2
LISTED_HOSTS = "127.0.0.1=loopback,localhost=loopback"
# What migrations put in and every test may count on.
KEPT_TABLES = ("django_migrations", "django_content_type", "auth_permission")
# Each deleted row is asked for in every table that may point to it, not always by an index.
DELETED_ROWS_MAX = 200
RESTART_SEQUENCES = """
    SELECT setval(format('%I', sequencename)::regclass, start_value, false) FROM pg_sequences
    WHERE schemaname = 'public' AND last_value IS NOT NULL AND sequencename NOT LIKE ALL(ARRAY[
        'django_migrations%', 'django_content_type%', 'auth_permission%'])
"""


@dataclass(frozen=True, kw_only=True)
class Urls:
    """How the suite reaches its servers; every login is to the server's own default database."""

    app: str
    owner: str
    broker: str
    state_dir: str
    embedded: bool


_cleanup = ExitStack()
_found: list[Urls] = []


def urls() -> Urls:
    """Where this run's servers are; known from the start of the session."""
    assert _found, "no session has started yet"
    return _found[-1]


# --- Servers -------------------------------------------------------------------------------------------


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(MatrixPlugin(config), "contract matrix")


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    config = session.config
    if config.option.collectonly:
        return
    given = getattr(config, "workerinput", {}).get("recourse_urls")
    found = Urls(**given) if given else _start_database()
    in_workers = given is None and bool(config.getoption("numprocesses", default=None))
    if not found.broker and not in_workers:
        home = folders.prepare(Path(found.state_dir))
        name = config.workerinput["workerid"] if given else "main"
        broker = valkey.start(home, name=f"valkey-{name}")
        _cleanup.callback(broker.child.stop)
        found = replace(found, broker=broker.url)
    _found.append(found)
    settings.DATABASES["default"].update(database(found.app))
    settings.RECOURSE_DATABASE_OWNER_URL = found.owner
    # Peers of tests stand on this machine; what may be reached by default is tested by itself.
    settings.RECOURSE_ALLOWED_PROVIDER_HOSTS = [parse_listing(item) for item in LISTED_HOSTS.split(",")]
    settings.BROKER_URL = settings.CELERY_BROKER_URL = found.broker
    celery_app.conf.broker_url = found.broker
    # In this process contracts are read again when one was tightened: a page's queries can then be counted.
    settings.RECOURSE_PROVIDERS_CHECK_SECONDS = 3600.0
    # Every client of a test would list all static files first; so they are looked up when one is asked for.
    settings.WHITENOISE_AUTOREFRESH = True
    # Passwords as everywhere, for the tests' servers know no other, at the least cost that Argon2 has.
    settings.PASSWORD_HASHERS = ["tests.passwords.CheapArgon2", *settings.PASSWORD_HASHERS[1:]]


def pytest_configure_node(node: Any) -> None:
    """Under xdist: tell a worker where the controller's servers are."""
    node.workerinput["recourse_urls"] = asdict(urls())


def pytest_unconfigure(config: pytest.Config) -> None:
    _cleanup.close()


def _start_database() -> Urls:
    state = Path(tempfile.mkdtemp(prefix="recourse-test-"))
    _cleanup.callback(shutil.rmtree, state, ignore_errors=True)
    app, owner, broker = (
        os.environ.get(name, "") for name in ("DATABASE_URL", "DATABASE_OWNER_URL", "BROKER_URL")
    )
    if bool(app) != bool(owner):
        raise pytest.UsageError("Set DATABASE_URL and DATABASE_OWNER_URL together, or neither of them.")
    servers = _cleanup.enter_context(EmbeddedServers(state, database=not app, broker=False))
    if not servers.home.servers.is_relative_to(state):
        _cleanup.callback(shutil.rmtree, servers.home.servers, ignore_errors=True)
    found = Urls(
        app=app or servers.database_url,
        owner=owner or servers.owner_url,
        broker=broker,
        state_dir=str(state),
        embedded=not app,
    )
    if app:
        _cleanup.callback(_drop_template, found)
    return found


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """What a test needs is marked by its folder and its fixtures, before any mark is asked for.

    What takes longest begins first: no worker is idle at the end.
    """
    for item in items:
        if "django_db_setup" in getattr(item, "fixturenames", ()) or item.get_closest_marker("django_db"):
            item.add_marker(pytest.mark.database)
        for folder, mark in (("browser", pytest.mark.browser), ("crash", pytest.mark.crash)):
            if folder in item.path.relative_to(ROOT).parts:
                item.add_marker(mark)
    yield
    items.sort(key=lambda item: not {"browser", "crash"} & set(item.path.relative_to(ROOT).parts))


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """What was collected stays until the end: the collector of garbage need not walk it again and again."""
    gc.collect()
    gc.freeze()


# --- The test database, as its owner and as the application -----------------------------------------------


@pytest.fixture(scope="session")
def django_db_keepdb(django_db_keepdb: bool) -> bool:
    """An embedded database isn't dropped: its whole server is thrown away a moment later."""
    return django_db_keepdb or urls().embedded


@pytest.fixture(scope="session")
def django_db_modify_db_settings(
    django_db_modify_db_settings: None, django_db_blocker: DjangoDbBlocker
) -> None:
    """Only the owner can make the test database and migrate it; workers copy one that is migrated."""
    connection = connections["default"]
    connection.settings_dict.update(_login(urls().owner))
    if os.environ.get("PYTEST_XDIST_WORKER"):
        with django_db_blocker.unblock():
            connection.settings_dict["TEST"]["TEMPLATE"] = _template(connection)


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None) -> Iterator[None]:
    """From here on, everything in the test process is the application's role."""
    connection = connections["default"]
    connection.close()
    connection.settings_dict.update(_login(urls().app))
    yield
    connection.close()
    connection.settings_dict.update(_login(urls().owner))
    _owner.close()


def _template(connection: BaseDatabaseWrapper) -> str:
    """The migrated database of this run: the first worker that comes makes it, the others wait for that."""
    name = _template_name(urls())
    made = Path(urls().state_dir) / "template-made"
    with (Path(urls().state_dir) / "template-lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            own, test = connection.settings_dict["NAME"], connection.settings_dict["TEST"]["NAME"]
            connection.settings_dict["TEST"]["NAME"] = name
            connection.creation.create_test_db(verbosity=0, autoclobber=True, serialize=False)
            # Nobody may be logged in to a database while it is copied.
            connection.close()
            settings.DATABASES["default"]["NAME"] = connection.settings_dict["NAME"] = own
            connection.settings_dict["TEST"]["NAME"] = test
            made.touch()
    return name


def _template_name(found: Urls) -> str:
    """A name of this run's own, for two runs on one server."""
    return f"test_template_{Path(found.state_dir).name.rpartition('-')[2].lower()}"


def _drop_template(found: Urls) -> None:
    """A server that was given keeps nothing of a run."""
    with psycopg.connect(found.owner, autocommit=True) as owner:
        owner.execute(sql.SQL("DROP DATABASE IF EXISTS {}").format(sql.Identifier(_template_name(found))))


def _login(url: str) -> dict[str, Any]:
    return {name: value for name, value in database(url).items() if name != "NAME"}


def _named(url: str, name: str) -> str:
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


@dataclass
class _Owner:
    """The owner's own connection to the test database, kept for emptying it between tests."""

    connection: psycopg.Connection[Any] | None = None

    def get(self) -> psycopg.Connection[Any]:
        if self.connection is None or self.connection.closed:
            name = connections["default"].settings_dict["NAME"]
            self.connection = psycopg.connect(_named(urls().owner, name))
        return self.connection

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None


_owner = _Owner()


def _empty_database(case: TransactionTestCase) -> None:
    """Empty the tables that hold rows: as the owner, past the triggers that protect the audit log.

    The application's role may not TRUNCATE, so Django's own `flush` can't. A few rows are deleted: TRUNCATE
    makes every index of a table anew, which took a third of the suite's time.
    """
    connections["default"].close()
    connection = _owner.get()
    with connection.transaction():
        # A process that a test left with an open transaction would block us for ever.
        connection.execute("SET LOCAL lock_timeout = '10s'")
        filled = _filled(connection)
        if not filled:
            return
        many = max(filled.values()) > DELETED_ROWS_MAX
        # TRUNCATE … CASCADE reaches empty tables too.
        kept = [*settings.APPEND_ONLY_TABLES, *settings.NEVER_DELETED_TABLES]
        guarded = [sql.Identifier(name) for name in kept if many or name in filled]
        for name in guarded:
            connection.execute(sql.SQL("ALTER TABLE {} DISABLE TRIGGER USER").format(name))
        if many:
            names = sql.SQL(", ").join(map(sql.Identifier, filled))
            connection.execute(sql.SQL("TRUNCATE {} CASCADE").format(names))
        else:
            for table in filled:
                connection.execute(sql.SQL("DELETE FROM {}").format(sql.Identifier(table)))
            # Foreign keys wait for the end of the transaction; a table with open questions can't be altered.
            connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
        for name in guarded:
            connection.execute(sql.SQL("ALTER TABLE {} ENABLE TRIGGER USER").format(name))
        connection.execute(RESTART_SEQUENCES)
    # What this process has read of them: the next test would be told of an account that isn’t there.
    if {"reconciliation_tightening", "reconciliation_declaration"} & filled.keys():
        from reconciliation import effective

        effective.forget()


def _filled(connection: psycopg.Connection[Any]) -> dict[str, int]:
    """The tables that hold rows, and how many: as far as it matters."""
    tables = [
        name
        for (name,) in connection.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'"
            " AND relname <> ALL(%s) ORDER BY relname",
            [list(KEPT_TABLES)],
        )
    ]
    counted = sql.SQL(" UNION ALL ").join(
        sql.SQL("SELECT {}, (SELECT count(*) FROM (SELECT FROM {} LIMIT {}) AS first_rows)").format(
            sql.Literal(name), sql.Identifier(name), sql.Literal(DELETED_ROWS_MAX + 1)
        )
        for name in tables
    )
    return {name: rows for name, rows in connection.execute(counted) if rows} if tables else {}


TransactionTestCase._fixture_teardown = _empty_database  # type: ignore[method-assign]


@pytest.fixture
def owner_url(db: None) -> str:
    """The owner's login to the test database, for tests of what even the owner can't do."""
    return _named(urls().owner, connections["default"].settings_dict["NAME"])


@pytest.fixture
def app_url(db: None) -> str:
    """The application's login to the test database, for connections of a test's own."""
    return _named(urls().app, connections["default"].settings_dict["NAME"])


@pytest.fixture
def connect(app_url: str) -> Iterator[Callable[[], psycopg.Connection[Any]]]:
    """Open further real connections as the application; closed at the end of the test."""
    opened = ExitStack()

    def open_one() -> psycopg.Connection[Any]:
        return opened.enter_context(psycopg.connect(app_url, autocommit=True))

    with opened:
        yield open_one


# --- Real processes ------------------------------------------------------------------------------------


@pytest.fixture
def spawn(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Spawn]:
    """Start processes that end with the test; their output is shown when it fails."""
    spawned = Spawn(tmp_path)
    request.node.stash[_spawned] = spawned
    yield spawned
    spawned.stop_all()


_spawned = pytest.StashKey[Spawn]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report: Any = yield
    if report.failed and _spawned in item.stash:
        report.sections.append(("processes of this test", item.stash[_spawned].report()))
    return report


@pytest.fixture
def broker() -> str:
    """The broker's URL, its queues emptied."""
    if urls().broker.startswith("redis"):
        with celery_app.connection_for_write() as connection:
            connection.default_channel.client.flushdb()
    else:
        celery_app.control.purge()
    return urls().broker


@pytest.fixture
def app_env(transactional_db: None, app_url: str, broker: str, tmp_path: Path) -> dict[str, str]:
    """The environment of the application's processes on the test database; a test may add to it.

    `transactional_db`: other processes see only what is committed.
    """
    inherited = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
    return {
        **inherited,
        "DJANGO_SETTINGS_MODULE": "console.settings",
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "clients" / "python" / "src")]),
        "PYTHONUNBUFFERED": "1",
        "PYTHONFAULTHANDLER": "1",
        "DATABASE_URL": app_url,
        "BROKER_URL": broker,
        "RECOURSE_SECRET_KEY": settings.SECRET_KEY,
        "RECOURSE_KEY_SECRET": settings.RECOURSE_KEY_SECRET,
        "RECOURSE_SWEEP_SECONDS": str(FAST_SWEEP_SECONDS),
        "RECOURSE_SECURE_COOKIES": "0",
        "RECOURSE_LOG_FORMAT": "text",
        "RECOURSE_STATE_DIR": str(tmp_path),
        "RECOURSE_ALLOWED_PROVIDER_HOSTS": LISTED_HOSTS,
        "SANDBOX_URL": settings.SANDBOX_URL,
    }


@pytest.fixture
def sandbox(spawn: Spawn, app_env: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A real sandbox provider; this process and those started after it know its address."""
    server = start_sandbox(spawn, env=app_env)
    app_env["SANDBOX_URL"] = server.url
    monkeypatch.setenv("SANDBOX_URL", server.url)
    monkeypatch.setattr(settings, "SANDBOX_URL", server.url)
    # What an earlier test had read holds that test's address, and a send would be pinned to it.
    registry.reload()
    yield server
    registry.reload()


def _sandbox_first(request: pytest.FixtureRequest) -> None:
    """A test that uses the sandbox wants its other processes to know where it is."""
    if "sandbox" in request.fixturenames:
        request.getfixturevalue("sandbox")


@pytest.fixture
def web_server(request: pytest.FixtureRequest, spawn: Spawn, app_env: dict[str, str]) -> Server:
    """A real granian serving the console."""
    _sandbox_first(request)
    return start_web_server(spawn, env=app_env)


@pytest.fixture
def celery_worker(request: pytest.FixtureRequest, spawn: Spawn, app_env: dict[str, str]) -> Process:
    """A real Celery worker with two pool processes."""
    _sandbox_first(request)
    return start_celery_worker(spawn, env=app_env)


@pytest.fixture
def celery_beat(request: pytest.FixtureRequest, spawn: Spawn, app_env: dict[str, str]) -> Process:
    """A real beat that wakes the sweeper every 0.2 s."""
    _sandbox_first(request)
    return start_celery_beat(spawn, env=app_env)


@pytest.fixture
def unique() -> str:
    """A word that no other test uses, for external ids and worker names."""
    return uuid.uuid4().hex[:12]


# --- A real browser ------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def chromium_path() -> str:
    """The Chromium to test with; without one, browser tests fail and say how to get it."""
    try:
        return chromium.executable()
    except chromium.NoChromium as missing:
        pytest.fail(str(missing), pytrace=False)


@pytest.fixture(scope="module")
def browser(chromium_path: str) -> Iterator[Browser]:
    """A headless Chromium for one module: Playwright's event loop stays out of every other module."""
    with pytest.MonkeyPatch.context() as patch, chromium.launched(chromium_path) as launched:
        # Django sees Playwright's loop in this thread and would refuse the test's own queries.
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
        yield launched


@pytest.fixture
def faults() -> chromium.Faults:
    """What went wrong on the test's pages; a test that expects a fault clears `faults.seen`."""
    return chromium.Faults()


@pytest.fixture
def browser_context(browser: Browser, faults: chromium.Faults) -> Iterator[BrowserContext]:
    """A fresh profile, 1440 by 900; the test fails on script errors, policy violations and 5xx."""
    context = browser.new_context(viewport={"width": 1440, "height": 900}, locale="en-GB", timezone_id="UTC")
    faults.watch(context)
    yield context
    context.close()
    assert not faults.seen, f"The pages had faults: {faults.seen}"


@pytest.fixture
def page(browser_context: BrowserContext) -> Page:
    """A page in a fresh profile."""
    return chromium.new_page(browser_context)
