"""Who acts, and the two refusals that every write door for people shares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from runs.actors import Actor
from runs.refusals import Refusal


class Forbidden(Refusal):
    """This actor may not do it."""

    word: ClassVar[str] = "forbidden"


class KeyReused(Refusal):
    """This Idempotency-Key was used by the same person for something else."""

    word: ClassVar[str] = "idempotency_key_reused"


@dataclass(frozen=True, kw_only=True)
class Worker:
    """A person at work, as the audit log names them and as colleagues do."""

    actor: Actor
    name: str = ""
