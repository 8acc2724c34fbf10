"""Every adapter at every peer that it is held against."""

from __future__ import annotations

from tests.contract.matrix import Subject
from tests.contract.subjects import sandbox

SUBJECTS: tuple[Subject, ...] = (*sandbox.SUBJECTS,)
