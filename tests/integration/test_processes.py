"""The suite's real processes really run, see the test database, and leave nothing behind."""

from __future__ import annotations

import httpx
import pytest
from django.db import connection

from console.embedded.processes import alive
from runs.models import Team
from tests.processes import Process, Server, Spawn


def test_the_web_server_answers_from_the_test_database(web_server: Server) -> None:
    assert httpx.get(web_server.url + "/nowhere").status_code == 404
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
        assert cursor.fetchone()[0] >= 1


def test_a_worker_takes_a_task(celery_worker: Process, celery_beat: Process) -> None:
    celery_worker.wait_for(r"console\.tasks\.sweep\[\S+\] succeeded")


@pytest.mark.django_db(transaction=True)
def test_rows_of_one_test_are_gone_in_the_next_1() -> None:
    assert not Team.objects.exists()
    Team.objects.create(slug="left-over", name="Left over")


@pytest.mark.django_db(transaction=True)
def test_rows_of_one_test_are_gone_in_the_next_2() -> None:
    assert not Team.objects.exists()
    Team.objects.create(slug="left-over", name="Left over")


def test_a_child_of_a_test_sees_what_the_test_committed(app_env: dict[str, str], spawn: Spawn) -> None:
    Team.objects.create(slug="seen", name="Seen")
    program = "from runs.models import Team; print(Team.objects.get().slug)"
    child = spawn.manage("shell", "-c", program, env=app_env)
    assert child.wait() == 0
    assert "seen" in child.output()
    assert not alive(child.pid)
