"""Passwords of tests: real Argon2, at the least cost that it takes."""

from __future__ import annotations

from django.contrib.auth.hashers import Argon2PasswordHasher


class CheapArgon2(Argon2PasswordHasher):
    """Read by the servers that a test starts too: an Argon2 hash says itself what it cost."""

    time_cost = 1
    memory_cost = 8  # KiB, the least for one lane
    parallelism = 1
