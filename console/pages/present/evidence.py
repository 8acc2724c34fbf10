"""Evidence as it came: newest first, inert, without secrets, bounded; the same answer again is one entry."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Any, Final

from django.urls import reverse

from console.pages.present.attaching import MEDIA_TYPES
from console.pages.present.jsons import part_view
from console.pages.present.marks import FINDINGS, plural
from console.pages.shapes import Code, EvidenceItem, FileLink, JsonView, Phrase, Since, Tone
from console.queries.cases import CaseRead
from console.queries.people import Names
from reconciliation.providers.redaction import Redactor
from reconciliation.revealing import attachment_of, body_part, redactor_of, seen_part
from runs.models import Evidence
from runs.states import Claim, EvidenceKind

_REPORT_LOOKS: Final[dict[Claim, tuple[str, Tone]]] = {
    Claim.RECEIPT: ("receipt-text", "green"),
    Claim.REJECTION: ("circle-x", "red"),
    Claim.NOT_SENT: ("undo-2", "blue"),
    Claim.UNKNOWN: ("unplug", "amber"),
    Claim.FINDING: ("scan-search", "grey"),
    Claim.ABSENT: ("undo-2", "green"),
}
_KINDS: Final[dict[EvidenceKind, str]] = {
    EvidenceKind.REPORT: "Report",
    EvidenceKind.LATE_REPORT: "Late report",
    EvidenceKind.STRAY_REPORT: "Report of an attempt that was never given",
    EvidenceKind.LOOKUP: "Lookup",
    EvidenceKind.WEBHOOK: "Notice from the provider",
    EvidenceKind.ATTACHMENT: "Given by a person",
    EvidenceKind.MAKE_ABSENT: "Request to make it absent",
}


def evidence_of(read: CaseRead) -> tuple[EvidenceItem, ...]:
    """The entries of one page of evidence."""
    items = []
    redactor = redactor_of(read.operation)
    # Neighbours that say the same, as lookups do for hours, are one entry: the newest, with their number.
    for _, alike in groupby(read.evidence, key=_sameness):
        listed = list(alike)
        items.append(_item(listed[0], listed[1:], read, redactor))
    return tuple(items)


def _sameness(evidence: Evidence) -> tuple[str, str]:
    same = evidence.digest if evidence.kind == EvidenceKind.LOOKUP else evidence.pk
    return evidence.kind, same


def _item(evidence: Evidence, earlier: list[Evidence], read: CaseRead, redactor: Redactor) -> EvidenceItem:
    kind = EvidenceKind(evidence.kind)
    if kind is EvidenceKind.LOOKUP:
        shown = FINDINGS.get(evidence.finding)
        title = f"Lookup: {shown.word.lower() if shown else evidence.finding}"
        icon, tone = (shown.icon, shown.tone) if shown else ("scan-search", "grey")
    elif attachment_of(evidence):
        title = f"Attached by {read.names.of(evidence.actor_kind, evidence.actor)}"
        icon, tone = "paperclip", "violet"
    else:
        title = f"{_KINDS[kind]}: {_claim_in_words(evidence)}"
        icon, tone = _REPORT_LOOKS[Claim(evidence.claim)]
        if evidence.claim == Claim.RECEIPT and not _matches(evidence):
            icon, tone = ("hourglass", "amber") if _is_pending(evidence) else ("equal-not", "red")
    text: Phrase = (evidence.summary,)
    if earlier:
        text = (
            *text,
            f" The same answer came {plural(len(earlier), 'time')} before, first ",
            Since(earlier[-1].recorded_at),
            ".",
        )
    if evidence.reference and evidence.reference not in evidence.summary:
        text = (*text, " Reference ", Code(evidence.reference), ".")
    return EvidenceItem(
        evidence_id=evidence.pk,
        title=title,
        text=text,
        icon=icon,
        tone=tone,
        at=evidence.recorded_at,
        source=_source(evidence, read.names),
        bodies=tuple(_bodies(evidence, read.case.pk, redactor)),
        file=_file(evidence, read.case.pk),
    )


def _file(evidence: Evidence, case_id: str) -> FileLink | None:
    """The download of an attached file; a text's is on its own page, where what is hidden in it is."""
    attached = attachment_of(evidence)
    if not attached:
        return None
    media_type = str(attached.get("type", ""))
    is_shown = bool(evidence.body)
    return FileLink(
        href="" if is_shown else reverse("case_attachment", args=[case_id, evidence.pk]),
        name=str(attached.get("name", "")) or ("a text" if is_shown else "a file"),
        kind=MEDIA_TYPES.get(media_type, media_type),
        bytes_total=int(attached.get("length", 0)),
        digest=str(attached.get("sha256", "")),
    )


def _claim_in_words(evidence: Evidence) -> str:
    match Claim(evidence.claim):
        case Claim.RECEIPT:
            if _matches(evidence):
                return "a receipt that matches"
            return "it exists and isn’t final" if _is_pending(evidence) else "a receipt that doesn’t match"
        case Claim.REJECTION:
            return "a refusal"
        case Claim.NOT_SENT:
            return "the request never left"
        case Claim.UNKNOWN:
            return "nothing that settles it"
        case Claim.FINDING:
            return "what a lookup found"
        case Claim.ABSENT:
            return "the provider says that it isn’t there"


def _matches(evidence: Evidence) -> bool:
    match = evidence.seen.get("match") if isinstance(evidence.seen, dict) else None
    return isinstance(match, dict) and bool(match.get("matches"))


def _is_pending(evidence: Evidence) -> bool:
    """Whether the receipt is this operation's, with what was asked, and not final yet."""
    match = evidence.seen.get("match") if isinstance(evidence.seen, dict) else None
    receipt = match.get("receipt") if isinstance(match, dict) else None
    if not isinstance(receipt, dict):
        return False
    return bool(receipt.get("named") and receipt.get("same") and receipt.get("state") == "pending")


def _source(evidence: Evidence, names: Names) -> str:
    who = names.of(evidence.actor_kind, evidence.actor)
    if evidence.attempt is not None:
        return f"{who}, attempt {evidence.attempt.number}"
    exchange = _exchange(evidence)
    if exchange is not None and isinstance(exchange.get("duration_ms"), int):
        return f"{who}, {exchange['duration_ms']:,} ms"
    return who


def _exchange(evidence: Evidence) -> dict[str, Any] | None:
    exchange = evidence.seen.get("exchange") if isinstance(evidence.seen, dict) else None
    return exchange if isinstance(exchange, dict) else None


def _bodies(evidence: Evidence, case_id: str, redactor: Redactor) -> Iterable[JsonView]:
    exchange = _exchange(evidence)
    if exchange is not None:
        request = exchange.get("request")
        if isinstance(request, dict):
            yield JsonView(title="Request", text=_request(request))
        yield JsonView(title="Answer’s head", text=_head(exchange))
    for part in (seen_part(evidence, redactor), body_part(evidence, redactor)):
        if part is not None:
            yield part_view(part, case_id=case_id)


def _request(request: dict[str, Any]) -> str:
    lines = [f"{request.get('method', '')} {request.get('url', '')}", *_headers(request.get("headers"))]
    if request.get("length"):
        lines += ["", f"{request['length']:,} bytes, sha256 {request.get('sha256', '')}"]
    return "\n".join(lines)


def _head(exchange: dict[str, Any]) -> str:
    if exchange.get("status") is None:
        error = f"{exchange.get('error_class', '')} {exchange.get('error', '')}".strip()
        return f"No answer ({exchange.get('phase', 'unknown phase')})\n{error}".strip()
    return "\n".join([f"Status {exchange['status']}", *_headers(exchange.get("headers"))])


def _headers(pairs: object) -> list[str]:
    listed = pairs if isinstance(pairs, list) else []
    return [f"{pair[0]}: {pair[1]}" for pair in listed if isinstance(pair, list) and len(pair) == 2]
