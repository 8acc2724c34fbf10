"""When two people may let a provider make an effect absent, what follows from it, and what it rules out.

Part of the policy, and pure as it is. Such a request can undo an effect that nobody knows of, so it waits
until no attempt can still reach the provider and is never made where the outcome is known. Once one has left,
what was on record before it says nothing about now: a receipt may be of what it undid, and the key may be
burnt, so nothing is confirmed by itself on an older word, and nothing is sent again with that key.
"""

from __future__ import annotations

from datetime import datetime

from reconciliation.contracts import AskedAgain, Contract, LateSend, MakeAbsent
from reconciliation.facts import AbsenceFacts, Facts
from reconciliation.providers.base import FindingKind
from reconciliation.states import Need

_SHOWS_ANOTHER = (FindingKind.MISMATCH, FindingKind.SEVERAL)
_NEEDS = {
    FindingKind.PENDING: Need.PENDING,
    FindingKind.CANDIDATE: Need.CANDIDATE,
    FindingKind.MISMATCH: Need.MISMATCH,
    FindingKind.SEVERAL: Need.SEVERAL,
    FindingKind.REFUSED: Need.REFUSED,
}


def under_way(facts: Facts) -> AbsenceFacts | None:
    """The request whose answer nobody knows yet, if there is one."""
    return next((one for one in facts.absences if one.open), None)


def under_way_sentence(absence: AbsenceFacts) -> str:
    """What everything else waits for while such a request may still take effect."""
    return (
        f"A request to make it absent left at {_utc(absence.sent_at)}; its answer comes first, or the time "
        f"after which it can no longer take effect, {_utc(absence.quiet_after_at)}."
    )


def shown_since(facts: Facts) -> bool:
    """Whether the latest lookup was asked when every such request had ended: what it shows is of now."""
    if not facts.absences:
        return True
    since = max(one.quiet_after_at for one in facts.absences)
    return facts.lookup is not None and facts.lookup.asked_at >= since


def is_overtaken(facts: Facts) -> bool:
    """Whether such a request has left since what is on record was seen: it may have been undone."""
    found = facts.lookup is not None and facts.lookup.finding == FindingKind.FOUND
    return bool(facts.absences) and not (found and shown_since(facts))


def whom_to_ask(facts: Facts) -> Need | None:
    """Whom to ask after such a request has left and proved nothing; None: look again.

    Nothing here settles anything: a receipt may be older, and "not found" would let the same key be sent.
    """
    if facts.mismatch_reported:
        return Need.MISMATCH
    if any(one.matches for one in facts.receipts):
        return Need.CONFLICT
    if facts.lookup is None or not shown_since(facts):
        return None
    return _NEEDS.get(facts.lookup.finding, Need.NOT_FOUND)


def why_not(facts: Facts) -> str:
    """What is on record that such a request must not be made for; "" if nothing is."""
    finding = facts.lookup.finding if facts.lookup else None
    matches = any(one.matches for one in facts.receipts)
    if (matches or finding == FindingKind.FOUND) and not is_overtaken(facts):
        return (
            "The effect is on record at the provider: its outcome is known, and undoing it is another matter."
        )
    if finding in _SHOWS_ANOTHER or facts.mismatch_reported:
        return (
            "What the provider shows under our key isn’t what was asked for: it has to be looked into before "
            "anything is undone by that key."
        )
    if not facts.key_reaches_console:
        return (
            "The provider keeps keys apart, and the agent sent first: the console’s request might be about "
            "another key than the agent’s, and its answer would prove nothing."
        )
    if facts.pinned != facts.current:
        return (
            "Adapter, endpoint, region or credential changed since the first send: the key may name nothing "
            "there, and the answer would prove nothing."
        )
    return "" if facts.console_can_send else "The console holds no credentials for this account."


def may_prove(facts: Facts, contract: Contract, way: MakeAbsent, sent_at: datetime) -> bool:
    """Whether the answer "absent" to a request that is recorded at `sent_at` would be a proof."""
    until = _recorded_until(facts, contract, way)
    return until is not None and sent_at < until


def _recorded_until(facts: Facts, contract: Contract, way: MakeAbsent) -> datetime | None:
    """Until when a request may be put on record to be a proof, if it then takes all the time that it may.

    It leaves after its record, and the provider must not have forgotten the key when it takes effect there.
    """
    until = way.proves_until(facts.first_sent_at) if facts.first_sent_at is not None else None
    return None if until is None else until - (contract.quiet_at(until) - until)


def proves_absence(
    facts: Facts, contract: Contract, way: MakeAbsent, absence: AbsenceFacts, *, attempts_before: int
) -> bool:
    """Whether the answer "absent" that came is a proof: in time, and nothing has contradicted it since.

    `attempts_before`: how many attempts there were when it left; every one was quiet then.
    """
    return (
        may_prove(facts, contract, way, absence.sent_at)
        and len(facts.attempts) == attempts_before
        and not any(one.matches for one in facts.receipts)
        and not facts.mismatch_reported
        and not facts.sent_by_unknown
    )


def sentence(facts: Facts, contract: Contract, way: MakeAbsent, now: datetime) -> str:
    """What it would do, what its answer would prove, and what stays open."""
    parts = ["One request that changes the provider, so it takes a second person."]
    until = _recorded_until(facts, contract, way)
    if until is not None and now < until:
        parts.append(f"If it leaves before {_utc(until)}, its success proves that the effect isn’t there.")
    else:
        parts.append(
            "By now the provider may have forgotten what the key names: its success proves nothing, and you "
            "decide again."
        )
    if way.late_send is LateSend.MAY_LAND:
        parts.append("A request of ours that still arrived after it could make the effect all the same.")
    if facts.absences:
        times = "once" if len(facts.absences) == 1 else f"{len(facts.absences)} times"
        again = (
            "the provider promises that asking again does nothing more."
            if way.again is AskedAgain.HARMLESS
            else "whether asking again does something more, the provider doesn’t say."
        )
        parts.append(f"It was asked for {times} before without proof; {again}")
    return " ".join(parts)


def _utc(at: datetime) -> str:
    return at.strftime("%-d %b %H:%M:%S") + "Z"
