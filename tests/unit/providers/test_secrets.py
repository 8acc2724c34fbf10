"""Secrets by reference: in the environment, or in a file whose path is there, and nowhere else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reconciliation.providers.secrets import SECRET_BYTES_MAX, Secret, read_secret
from reconciliation.providers.tables import Faults, Table

VALUE = "hunter2-hunter2"


def read(written: dict[str, Any], environ: dict[str, str]) -> tuple[Secret, list[str]]:
    faults = Faults("shop.toml")
    table = Table(written, name="credentials.token", faults=faults)
    secret = read_secret(table, environ)
    table.finish()
    return secret, faults.sentences


def secret_file(folder: Path, content: bytes) -> str:
    path = folder / "secret"
    path.write_bytes(content)
    return str(path)


def test_a_variable_holds_the_secret() -> None:
    secret, faults = read({"env": "TOKEN"}, {"TOKEN": VALUE})
    assert (secret.value, secret.env, faults) == (VALUE, "TOKEN", [])


@pytest.mark.parametrize("ending", [b"", b"\n", b"\r\n"])
def test_a_file_holds_the_secret_without_the_line_end_behind_it(tmp_path: Path, ending: bytes) -> None:
    path = secret_file(tmp_path, VALUE.encode() + ending)
    assert read({"env": "TOKEN"}, {"TOKEN_FILE": path})[0].value == VALUE
    assert read({"file_env": "TOKEN_PATH"}, {"TOKEN_PATH": path})[0].value == VALUE


def test_only_one_line_end_is_taken_off(tmp_path: Path) -> None:
    path = secret_file(tmp_path, b" two\nlines \n\n")
    assert read({"env": "TOKEN"}, {"TOKEN_FILE": path})[0].value == " two\nlines \n"


def test_a_secret_in_two_places_is_a_fault_that_repeats_neither(tmp_path: Path) -> None:
    path = secret_file(tmp_path, b"other-value")
    _, faults = read({"env": "TOKEN"}, {"TOKEN": VALUE, "TOKEN_FILE": path})
    assert len(faults) == 1
    assert "both TOKEN and TOKEN_FILE set" in faults[0]
    assert VALUE not in faults[0]
    assert "other-value" not in faults[0]


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff\xfe", b"x" * (SECRET_BYTES_MAX + 1)])
def test_a_file_without_a_usable_secret_is_a_missing_secret(tmp_path: Path, content: bytes) -> None:
    secret, faults = read({"env": "TOKEN"}, {"TOKEN_FILE": secret_file(tmp_path, content)})
    assert (secret.value, secret.fingerprint, faults) == (None, None, [])


def test_a_file_that_is_not_there_is_a_missing_secret(tmp_path: Path) -> None:
    assert read({"env": "TOKEN"}, {"TOKEN_FILE": str(tmp_path / "none")})[0].value is None
    assert read({"env": "TOKEN"}, {"TOKEN_FILE": str(tmp_path)})[0].value is None


def test_a_reference_takes_one_name_and_a_plausible_one() -> None:
    assert read({"env": "TOKEN", "value": VALUE}, {"TOKEN": VALUE})[1]
    assert read({"env": "NO SUCH NAME"}, {})[1]
    assert read({}, {})[1]


def test_a_secret_shows_itself_in_no_representation() -> None:
    secret, _ = read({"env": "TOKEN"}, {"TOKEN": VALUE})
    assert VALUE not in repr(secret)
    assert secret.fingerprint is not None
    assert secret.fingerprint not in VALUE
