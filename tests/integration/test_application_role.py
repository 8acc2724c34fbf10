"""What the application's database role can and can't do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from django.db import connection


@pytest.mark.django_db
def test_tests_run_as_the_application_and_not_as_the_owner() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_user, pg_has_role('recourse_app', 'MEMBER')")
        assert cursor.fetchone() == ("recourse", True)
