"""What is known about an effect, in one heading and a sentence or two, with requests beside effects."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from django.urls import reverse

from console.pages.present.marks import ALIKE, FINDINGS, RESOLUTIONS, counts_of, plural
from console.pages.shapes import Badge, Code, Counts, Phrase, Since, Strong, Tone, Until, VerdictView
from console.queries.cases import CaseRead
from console.templatetags.recourse import state_of
from reconciliation.conclusions import matching_references
from reconciliation.marking import PERHAPS_REPEATED
from reconciliation.models import Lookup
from reconciliation.states import CaseKind, CaseState, Need, Resolution
from runs.journal.freezing import FORGOTTEN_SENDER
from runs.states import MatchedBy, OperationState

NOT_FOUND: Final = "Not found, which proves nothing"
_TITLES: Final = {
    "found": "It is at the provider, and it matches",
    "candidate": "Something alike was found; only a person can tell whether it is this",
    "pending": "It exists at the provider and isn’t final",
    "refused": "One request ended without effect",
    "mismatch": "A receipt was found for a different payload",
    "several": "More than one effect carries our key",
    "not_found": NOT_FOUND,
}
_MATCHED: Final = {
    MatchedBy.KEY: "carries our key and matches the payload",
    MatchedBy.REFERENCE: "carries our reference and matches the payload",
    MatchedBy.REPLY_ONLY: "is known by reply only: it answered our own request and matches the payload",
    MatchedBy.PERSON: "was matched by a person",
}


def verdict_of(read: CaseRead, *, may_look_up: bool, why_not: str) -> VerdictView:
    """The verdict of the case as it stands."""
    title, icon, tone, text, still_open = _known(read)
    href, note = _lookup_button(read, may_look_up=may_look_up, why_not=why_not)
    return VerdictView(
        title=title,
        icon=icon,
        tone=tone,
        text=text,
        counts=counts_in(read),
        open=still_open,
        lookup_href=href,
        note=note,
    )


def counts_in(read: CaseRead) -> Counts:
    """Requests of the journal, effects of the latest look that told something or of the receipt."""
    requests = read.operation.attempts_count
    has_lookup = read.judged.contract.has_lookup
    # By reference, so that an effect that was reported and then looked up is one.
    named: dict[str, bool] = {
        str(one.get("reference", "")): bool(one.get("named"))
        for one in records_of(read.lookup)
        if one.get("state") != "refused"
    }
    for seen in read.judged.facts.receipts:
        if seen.matches:
            named[seen.reference] = True
    if read.receipt is not None:
        ours = read.receipt.matched_by in (MatchedBy.KEY, MatchedBy.REFERENCE)
        named.setdefault(read.receipt.reference, ours)
    if _on_word(read) and len(named) == 1 and read.case.effects_seen <= 1:
        # No record of it was ever seen, so whether it carries our key is no question.
        return Counts(requests=requests, effects=1, on_word=True)
    confirmed = read.receipt.reference if read.receipt is not None else ""
    alike = [reference for reference, ours in named.items() if not ours and reference != confirmed]
    known = max(len(named) - len(alike), read.case.effects_seen)
    if read.case.kind == CaseKind.CONFLICT and read.operation.state != OperationState.SENT_UNKNOWN:
        # What opened it was an effect, though no record of it may have come.
        known = max(known, 1)
    if alike and not known:
        return Counts(requests=requests, effects=None, uncounted=ALIKE, alike=len(alike))
    counts = counts_of(
        requests,
        known,
        told=read.lookup is not None,
        has_lookup=has_lookup,
        carrying=sum(named.values()) if known and len(named) - len(alike) == known else None,
    )
    return replace(counts, alike=len(alike))


def _on_word(read: CaseRead) -> bool:
    """Whether it was confirmed without any record of the effect: by the word of two people alone."""
    receipt = read.receipt
    if receipt is None or receipt.matched_by != MatchedBy.PERSON:
        return False
    shown = {str(one.get("reference", "")) for one in records_of(read.lookup)}
    return receipt.reference not in shown | {seen.reference for seen in read.judged.facts.receipts}


def records_of(lookup: Lookup | None) -> list[dict[str, Any]]:
    """The provider's records that a lookup showed."""
    listed = lookup.receipts if lookup is not None else []
    return [one for one in listed if isinstance(one, dict)]


_Known = tuple[str, str, Tone, Phrase, bool]


def _known(read: CaseRead) -> _Known:
    case = read.case
    if case.state == CaseState.RESOLVED:
        return _resolved(read, Resolution(case.resolution))
    if case.kind == CaseKind.CONFLICT:
        return _conflict(read)
    if read.judged.facts.mismatch_reported and read.lookup is None:
        text: Phrase = ("A sender reported a receipt that doesn’t name this operation, or differs from it.",)
        return "A receipt was reported for a different payload", "equal-not", "red", text, False
    if case.state == CaseState.RETRYING:
        return _retrying(read)
    if read.lookup is not None:
        return _before_a_restore(read, read.lookup) or _looked_up(read, read.lookup)
    return _nothing_told(read)


def _before_a_restore(read: CaseRead, lookup: Lookup) -> _Known | None:
    """What an earlier "not found" is worth once the journal has forgotten what was done since."""
    restored = [one.ended_at for one in read.attempts if one.worker == FORGOTTEN_SENDER and one.ended_at]
    if lookup.finding != "not_found" or not restored or lookup.asked_at > max(restored):
        return None
    text: Phrase = (f"{PERHAPS_REPEATED} Lookup {lookup.number}, from before that, at ", lookup.asked_at, ".")
    return "Not found before a restore; a repeat may have been sent since", "scan-search", "amber", text, True


def _resolved(read: CaseRead, resolution: Resolution) -> _Known:
    match resolution:
        case Resolution.CONFIRMED:
            receipt = read.receipt
            if receipt is None:
                return "It happened", "circle-check", "green", (), False
            how = _MATCHED[MatchedBy(receipt.matched_by)]
            return (
                "It happened",
                "circle-check",
                "green",
                ("Receipt ", Code(receipt.reference), f" {how}."),
                False,
            )
        case Resolution.REJECTED:
            text: Phrase = ("The provider refused it, and no other request can have had an effect.",)
            return "It didn’t happen: the provider refused it", "circle-x", "red", text, False
        case Resolution.NOT_SENT:
            text = ("Every request is proved to have had no effect. The run sends it when it goes on.",)
            return "It didn’t happen, and that is proved", "undo-2", "blue", text, False
        case Resolution.ABANDONED:
            known = read.operation.known_effect or "What became of it is unknown."
            return "Given up", "circle-slash", "grey", (known,), True
        case Resolution.ACCEPTED:
            text = (read.case.opened_because,)
            return "The extra effect was let stand", "check", "green", text, False
        case Resolution.COMPENSATED:
            text = (read.case.opened_because,)
            return "The extra effect was undone", "undo-2", "green", text, False


def _conflict(read: CaseRead) -> _Known:
    if read.case.need == Need.SEVERAL:
        title = "More effects than intended"
    elif read.operation.state == OperationState.SENT_UNKNOWN:
        title = "The evidence contradicts itself"
    else:
        title = f"An effect appeared after the operation was {read.operation.state}"
    text: Phrase = (read.case.opened_because,)
    if read.case.need == Need.SEVERAL and read.lookup is not None:
        text = (f"Lookup {read.lookup.number} at ", read.lookup.asked_at, ": ", read.lookup.summary)
    return title, "git-compare", "red", text, False


def _retrying(read: CaseRead) -> _Known:
    if read.retry_pending:
        text: Phrase = (
            "A fresh lookup comes first. If it finds the effect, ",
            Strong("nothing is sent"),
            ".",
        )
        return "A retry was decided; nothing is sent yet", "rotate-ccw", "blue", text, True
    grant = read.grant
    if grant is None:
        return "A retry is under way", "rotate-ccw", "blue", (), True
    who = "the agent’s worker" if grant.executor == "agent" else "Recourse itself"
    text = (
        f"One request with the same key may be sent by {who} until ",
        grant.not_after_at,
        ", ",
        Until(grant.not_after_at),
        ".",
    )
    return "One more request is permitted", "rotate-ccw", "blue", text, True


def _looked_up(read: CaseRead, lookup: Lookup) -> _Known:
    shown = FINDINGS[lookup.finding]
    title = _TITLES.get(lookup.finding, shown.word)
    if lookup.finding == "not_found" and lookup.proof == "absence":
        title = "Not found, and here that is proof"
    if lookup.finding == "found" and not matching_references(read.judged.facts):
        title = shown.word
    text: list[Any] = [f"Lookup {lookup.number} at ", lookup.asked_at, ": ", lookup.summary]
    if read.case.finding in ("unavailable", "inconclusive"):
        text += [" The latest look told nothing: ", read.case.finding_summary]
    return title, shown.icon, shown.tone, tuple(text), shown.open


def _nothing_told(read: CaseRead) -> _Known:
    case = read.case
    if not read.judged.contract.has_lookup:
        sent = plural(read.operation.attempts_count, "request")
        which = "it" if read.operation.attempts_count == 1 else "them"
        text: Phrase = (
            f"{read.judged.account.title} shows nothing that could be asked for. ",
            f"{sent} left, and what became of {which} is unknown.",
        )
        return "Nobody can look this up", "circle-slash", "amber", text, True
    if case.parked_because and not case.finding:
        return "The provider couldn’t be asked", "unplug", "amber", (case.parked_because,), True
    if case.finding:
        text = (f"{plural(case.lookups_count, 'lookup')} told nothing. The latest: ", case.finding_summary)
        return "The provider couldn’t be asked", "unplug", "amber", text, True
    return "Not looked up yet", "scan-search", "blue", (case.opened_because,), True


def _lookup_button(read: CaseRead, *, may_look_up: bool, why_not: str) -> tuple[str, Phrase]:
    """The POST that looks again, or the sentence that says why there is none."""
    case = read.case
    if case.state == CaseState.RESOLVED:
        return "", ()
    if not read.judged.contract.has_lookup:
        return "", ("This provider offers no lookup.",)
    if not may_look_up:
        return "", (why_not,)
    note: Phrase = ("Read only: a lookup changes nothing at the provider.",)
    if case.next_lookup_at is not None and case.next_lookup_at <= read.now:
        return "", (read.waiting.sentence if read.waiting else "",)
    if case.lookups_count and read.lookup is not None:
        note = ("Read only. The last one that told something was ", Since(read.lookup.asked_at), ".")
    if case.next_lookup_at is not None:
        note = (*note, " The next is due ", Until(case.next_lookup_at), ".")
    return reverse("case_lookup", args=[case.pk]), note


def state_badge(read: CaseRead) -> Badge:
    """The case's state, or for a settled one how it was settled."""
    if read.case.state == CaseState.RESOLVED:
        return RESOLUTIONS[Resolution(read.case.resolution)]
    return state_of("case", read.case.state)
