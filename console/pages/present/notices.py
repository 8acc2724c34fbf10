"""The provider's own notices, in words: where they go, how they are checked, what came of them lately."""

from __future__ import annotations

from typing import Final

from console.pages.shapes import Code, Fact, Phrase, Since, Strong
from console.queries.webhooks import COUNT_MAX, Notices
from reconciliation.states import WebhookOutcome, WebhookRefusal

_TAKEN: Final[dict[WebhookOutcome, str]] = {
    WebhookOutcome.EVIDENCE: "became evidence",
    WebhookOutcome.UNMATCHED: "named nothing of ours",
    WebhookOutcome.UNREADABLE: "could not be read",
}
_REFUSED: Final[dict[WebhookRefusal, str]] = {
    WebhookRefusal.FORGED: "without a valid signature",
    WebhookRefusal.STALE: "signed at another time",
    WebhookRefusal.OVERSIZED: "too long",
    WebhookRefusal.NOT_READY: "while they couldn’t be checked here",
    WebhookRefusal.OTHER_TYPE: "of a type that is not used",
}


def notice_facts(notices: Notices | None) -> tuple[Fact, ...]:
    """Lines about the account's notices; none where it takes none."""
    if notices is None:
        return ()
    taken = [(notices.taken.get(one, 0), said) for one, said in _TAKEN.items()]
    refused = [(notices.refused.get(one, 0), said) for one, said in _REFUSED.items()]
    facts = [
        Fact(
            label="Address",
            value=(Code(notices.path),),
            note=("The signature is checked; no token is needed.",),
        ),
        Fact(label="Signed as", value=(str(notices.scheme),), note=_secrets(notices)),
        Fact(
            label="Taken",
            value=_counts(taken),
            note=(f"Of the latest {COUNT_MAX:,}.",) if notices.capped else (),
        ),
        Fact(label="Left alone", value=_counts(refused)),
    ]
    if notices.last_at is not None:
        facts.append(Fact(label="Latest", value=(Since(notices.last_at),)))
    return tuple(facts)


def _secrets(notices: Notices) -> Phrase:
    names = " or ".join(notices.secrets)
    if not notices.secrets_set:
        return (Strong("No secret is set"), f": notices are put off until {names} is.")
    if notices.lacks:
        missing = " and ".join(notices.lacks)
        return (
            Strong(f"{missing} not set"),
            ": it is signed too, and notices are put off until it is known.",
        )
    if not notices.usable:
        return (
            Strong("Nothing to check with"),
            f": {names} can’t be used now. It may be malformed, or a certificate that has ended.",
        )
    return (f"{notices.secrets_set} of {names} set here.",) if len(notices.secrets) > 1 else (f"By {names}.",)


def _counts(counts: list[tuple[int, str]]) -> Phrase:
    told = [f"{count:,} {said}" for count, said in counts if count]
    return ("; ".join(told),) if told else ("none in the last 24 hours",)
