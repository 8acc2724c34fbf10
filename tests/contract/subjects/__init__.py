"""Every adapter at every peer that it is held against."""

from __future__ import annotations

from tests.contract.matrix import Subject, Untested
from tests.contract.subjects import aws, emulated, sandbox, smtp, stripe

SUBJECTS: tuple[Subject, ...] = (
    *sandbox.SUBJECTS,
    *stripe.SUBJECTS,
    *emulated.SUBJECTS,
    *aws.SUBJECTS,
    *smtp.SUBJECTS,
)

# Those whose sends are made to fail in every way there is.
FAULTED: tuple[Subject, ...] = (sandbox.SUPPLIER, stripe.REFUNDS, emulated.RESEND)

# What the contracts state and none of these peers can show.
UNTESTED: tuple[Untested, ...] = ()
