"""Every adapter at every peer that it is held against."""

from __future__ import annotations

from tests.contract.matrix import Subject, Untested
from tests.contract.subjects import aws, emulated, sandbox, smtp, stripe, stubbed

SUBJECTS: tuple[Subject, ...] = (
    *sandbox.SUBJECTS,
    *stripe.SUBJECTS,
    *emulated.SUBJECTS,
    *aws.SUBJECTS,
    *smtp.SUBJECTS,
    *stubbed.SUBJECTS,
)

# Those whose sends are made to fail in every way there is.
FAULTED: tuple[Subject, ...] = (sandbox.SUPPLIER, stripe.REFUNDS, emulated.RESEND, aws.STEP_FUNCTIONS)

# What the contracts state and none of these peers can show.
UNTESTED: tuple[Untested, ...] = (
    Untested(
        provider="every provider",
        fact="what it really answers",
        why="nothing here reaches a real provider; a sandbox account of yours can",
    ),
    Untested(
        provider="Stripe",
        fact="that lists show an effect at once, and what a repeat gets while the first runs (409)",
        why="the peers are one process without replicas; the 409 is only in our stub",
    ),
    Untested(
        provider="Stripe",
        fact="the 24 hours of charges and refunds",
        why="stripe-stateful-mock never forgets a key; only our stub of PaymentIntents does",
    ),
    Untested(
        provider="Stripe",
        fact="the header name `Idempotent-Replayed`",
        why="seen at stripe-stateful-mock, and not verified at Stripe",
    ),
    Untested(
        provider="Resend",
        fact="what a repeat gets while the first runs (409)",
        why="emulate handles one request at a time; it never answers `concurrent_idempotent_requests`",
    ),
    Untested(
        provider="GitHub, Slack, Twilio",
        fact="how late a list may show what was made, and rate limits",
        why="emulate shows everything at once; the published limits are not imitated",
    ),
    Untested(
        provider="GitHub, Slack",
        fact="that the list of places (repositories, channels) has every one that the token can write to",
        why="emulate's token sees everything; who belongs where isn't imitated",
    ),
    Untested(
        provider="Twilio, Resend",
        fact="that their lists start with the newest, on which reading back to a time relies",
        why="not stated by Twilio, shown by example by Resend; emulate orders its lists otherwise",
    ),
    Untested(
        provider="Zendesk",
        fact="its incremental export: `next_page`, `end_of_stream`, `per_page`, the last minute",
        why="read in excerpts and from memory; only our stub was there to test against",
    ),
    Untested(
        provider="Square, PayPal",
        fact="that a list by time has everything after how long; a seller's further locations",
        why="no bound but PayPal's three hours is published; only our stubs were there to test against",
    ),
    Untested(
        provider="AWS Step Functions, Amazon EC2",
        fact="how late their lists show what was made",
        why="eventually consistent, with no time stated; moto shows everything at once",
    ),
    Untested(
        provider="Zendesk",
        fact="the two hours, `x-idempotency-lookup`, the answer while the first request runs",
        why="known from other people's quotations; only our stub was there to test against",
    ),
    Untested(
        provider="PayPal",
        fact="45 days, the three hours of its transaction search, `PREVIOUS_REQUEST_IN_PROGRESS`",
        why="written from its specifications; only our stub was there to test against",
    ),
    Untested(
        provider="Adyen",
        fact="seven days (its pages say 7 and 31), `transient-error`, error 704",
        why="its sources disagree; only our stub was there to test against",
    ),
    Untested(
        provider="Square",
        fact="how long a key is kept, how an empty list looks, cancelling by key",
        why="the window isn't published; only our stub was there to test against",
    ),
    Untested(
        provider="Amazon SQS and Step Functions",
        fact="that of several requests at once only one has an effect",
        why="moto lets two starts of one name through, so our starter lets in one request at a time",
    ),
    Untested(
        provider="Amazon SQS",
        fact="that a repeat is answered with the first MessageId",
        why="moto answers with a new one",
    ),
    Untested(
        provider="Amazon EC2",
        fact="ClientToken, `IdempotentInstanceTerminated`, terminated instances that vanish",
        why="no peer that we know honours ClientToken",
    ),
    Untested(
        provider="AWS Step Functions",
        fact="the days for which a name stays taken",
        why="moto never forgets one",
    ),
    Untested(
        provider="mail servers",
        fact="what a relay does with a message after it was accepted",
        why="aiosmtpd accepts and keeps; delivery is somebody else's",
    ),
)
