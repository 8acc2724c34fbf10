"""The states of a case, and the words of the policy's answers, without a database."""

from __future__ import annotations

from enum import StrEnum


class CaseKind(StrEnum):
    # Nobody knows whether the effect happened.
    UNKNOWN = "unknown"
    # More is known than can be true at once: success after rejected, a second receipt, several effects.
    CONFLICT = "conflict"


class CaseState(StrEnum):
    # Enters: opened at a provider that can be asked; or a repeat was sent. Leaves: evidence settles it, or
    # policy hands it to people. A Celery worker moves it on; the sweeper calls one.
    LOOKING_UP = "looking_up"
    # Enters: policy asks a person. Leaves: a decision; or evidence settles it after all.
    NEEDS_DECISION = "needs_decision"
    # Enters: a decision that takes a second person. Leaves: approved, refused, expired, withdrawn. What two
    # people let a worker of ours send to make an effect absent stays here until its record is written.
    AWAITING_APPROVAL = "awaiting_approval"
    # Enters: a retry was granted. Leaves: the repeat is reported, the grant ends unused, evidence arrives.
    RETRYING = "retrying"
    # Enters: the question is answered. Final.
    RESOLVED = "resolved"


class Resolution(StrEnum):
    # A receipt that names the operation and matches.
    CONFIRMED = "confirmed"
    # A definite refusal.
    REJECTED = "rejected"
    # Every attempt is proved not to have happened; the operation is ready again.
    NOT_SENT = "not_sent"
    # The obligation was given up.
    ABANDONED = "abandoned"
    # Conflict: the extra effect stands, and its amount is booked.
    ACCEPTED = "accepted"
    # Conflict: the extra effect was undone, and that is on record.
    COMPENSATED = "compensated"


class Need(StrEnum):
    """Why a person is asked; what the queue shows beside the case."""

    # Looked up often enough, and nothing of ours is there; where that is no proof.
    NOT_FOUND = "not_found"
    # The provider offers no lookup.
    NO_LOOKUP = "no_lookup"
    # Something alike was found that carries nothing of ours.
    CANDIDATE = "candidate"
    # Ours by key or reference, with other content.
    MISMATCH = "mismatch"
    # More than one effect for one operation.
    SEVERAL = "several"
    # It exists and hasn't become final for long.
    PENDING = "pending"
    # A refusal that doesn't speak for every attempt.
    REFUSED = "refused"
    # The lookups themselves keep failing.
    PARKED = "parked"
    # Contradicting evidence.
    CONFLICT = "conflict"
    # A granted retry ended unused.
    GRANT_ENDED = "grant_ended"
    # A second person was asked before the policy asked anybody, and refused or didn't answer.
    APPROVAL_ENDED = "approval_ended"


class Action(StrEnum):
    # It happened: this receipt proves it.
    CONFIRM = "confirm"
    # One more attempt with the same key.
    RETRY = "retry"
    # Give the obligation up.
    ABANDON = "abandon"
    # Let the provider make sure that the effect isn't there, and give the obligation up with that proof.
    MAKE_ABSENT = "make_absent"
    # Conflict: let the extra effect stand.
    ACCEPT = "accept"
    # Conflict: the extra effect was undone.
    COMPENSATE = "compensate"


class Permission(StrEnum):
    # One person may do it now.
    ALLOWED = "allowed"
    # It takes a second person.
    SECOND_PERSON = "second_person"
    # Nobody may do it now; the sentence says why, and until when if time will change it.
    LOCKED = "locked"


class WebhookOutcome(StrEnum):
    """What became of a notice that the provider had signed."""

    # It names an operation of ours, and is evidence about it.
    EVIDENCE = "evidence"
    # It names no operation of ours.
    UNMATCHED = "unmatched"
    # Its body, or the record in it, is not of the declared form.
    UNREADABLE = "unreadable"


class WebhookRefusal(StrEnum):
    """Why a notice was refused or left alone; it is counted and not kept."""

    # No signature, or none that a secret of the account could have made.
    FORGED = "forged"
    # Signed, at a time too far from now.
    STALE = "stale"
    # Longer than is read.
    OVERSIZED = "oversized"
    # No secret is set here, so nothing could be checked.
    NOT_READY = "not_ready"
    # Signed, and of no type that the account's file names; acknowledged.
    OTHER_TYPE = "other_type"


class Truth(StrEnum):
    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


class TakenAs(StrEnum):
    """How a person came by their claim of a case, and so what ends it."""

    # They chose the case, took it over or were given it: until they give it back, or it ends.
    CHOSEN = "chosen"
    # They asked for the next one, whichever it was: leaving its page gives it back as well.
    NEXT = "next"


class Then(StrEnum):
    """What an abandonment does to the run."""

    # The run ends with it.
    END = "end"
    # The run goes on without the effect; its plan says so.
    CONTINUE = "continue"


class ReasonCode(StrEnum):
    """Why a person decided as they did; free text says the rest."""

    PROVIDER_RECORD = "provider_record"
    CUSTOMER_CONFIRMED = "customer_confirmed"
    DONE_BY_HAND = "done_by_hand"
    NOT_AT_PROVIDER = "not_at_provider"
    NO_LONGER_NEEDED = "no_longer_needed"
    DUPLICATE = "duplicate"
    OTHER = "other"


REASON_LABELS: dict[ReasonCode, str] = {
    ReasonCode.PROVIDER_RECORD: "Seen in the provider's own records",
    ReasonCode.CUSTOMER_CONFIRMED: "The recipient says that it arrived",
    ReasonCode.DONE_BY_HAND: "Done by a person outside the run",
    ReasonCode.NOT_AT_PROVIDER: "The provider says that it isn't there",
    ReasonCode.NO_LONGER_NEEDED: "No longer needed",
    ReasonCode.DUPLICATE: "A duplicate of another effect",
    ReasonCode.OTHER: "Other, see the reason",
}
