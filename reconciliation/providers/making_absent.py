"""Making sure that an effect isn't there: the declared request, and what its answer says.

It is sent like an effect is, on a connection of its own and never twice, for it changes the provider.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from reconciliation.contracts import AnswerPattern, Contract, ProviderAccount
from reconciliation.providers.answers import NOT_DEFINITE, Body, matches_any, read_body
from reconciliation.providers.authorizing import TokenRefused, TokenSource
from reconciliation.providers.base import AbsenceKind, AbsenceSeen, Exchange, OutgoingOperation, Phase
from reconciliation.providers.declaration import Declared
from reconciliation.providers.making_absent_table import AbsenceRules
from reconciliation.providers.redaction import Redactor
from reconciliation.providers.request_building import build_absence
from reconciliation.providers.templates import Values, ValueUnusable
from reconciliation.providers.transport import Answer, Transport
from runs.refusals import Refusal


@runtime_checkable
class MakesAbsent(Protocol):
    """An adapter that can make an effect absent; whether its account's file says how, the answer says."""

    @property
    def account(self) -> ProviderAccount: ...

    @property
    def contract(self) -> Contract: ...

    def make_absent(self, operation: OutgoingOperation) -> AbsenceSeen: ...


def not_started(summary: str, error_class: str, *, seen: Exchange | None = None) -> AbsenceSeen:
    """Nothing was sent, and why."""
    said = "" if seen is None else f"{seen.status or seen.error_class} from {seen.url}"
    exchange = Exchange(method="", url="", error_class=error_class, error=said, phase=Phase.NOT_STARTED)
    return AbsenceSeen(kind=AbsenceKind.NOT_SENT, exchange=exchange, summary=summary)


def make_absent(
    declared: Declared,
    operation: OutgoingOperation,
    *,
    transport: Transport,
    redactor: Redactor,
    tokens: TokenSource | None,
) -> AbsenceSeen:
    """Send the declared request once. The caller has its record on disk and holds no transaction."""
    account, http = declared.account, declared.http
    if not account.configured or account.base_url is None:
        return not_started("This account isn't configured here, so nothing was sent.", "NotConfigured")
    template = http.absence.request_for(operation.tool) if http.absence is not None else None
    if http.absence is None or template is None:
        return not_started("No request is declared for this tool, so nothing was sent.", "NoSuchTool")
    values = Values(
        key=operation.idempotency_key,
        operation=operation.operation_id,
        tool=operation.tool,
        payload=operation.payload,
        amount=operation.amount,
        secrets=http.secrets,
        settings=http.settings,
    )
    try:
        call = build_absence(declared, template, operation, values)
        if tokens is not None:
            call = tokens.sign(call)
    except TokenRefused as error:
        return not_started(error.sentence, "NoToken", seen=error.exchange)
    except (ValueUnusable, Refusal) as error:
        return not_started(f"The request can't be made ({error}), so nothing was sent.", "Unusable")
    answer = transport.call(
        call, redactor=redactor.keeping(operation.idempotency_key, operation.operation_id)
    )
    if answer.status == 401 and tokens is not None:
        tokens.forget()
    return _judge(http.absence, answer)


def _judge(rules: AbsenceRules, answer: Answer) -> AbsenceSeen:
    exchange, status = answer.exchange, answer.status
    if status is None:
        why = exchange.error_class
        if answer.not_sent:
            return AbsenceSeen(
                kind=AbsenceKind.NOT_SENT,
                exchange=exchange,
                summary=f"The request to make it absent was never started ({why}), so nothing was sent.",
            )
        return AbsenceSeen(
            kind=AbsenceKind.UNKNOWN,
            exchange=exchange,
            summary=f"The request to make it absent left and no answer came back ({why}): "
            "whether anything was undone is unknown.",
        )
    body = read_body(answer)

    def is_one(patterns: tuple[AnswerPattern, ...], *, unreadable: bool) -> bool:
        return matches_any(patterns, status, body, unreadable=unreadable, headers=answer.headers)

    # An answer whose body can't be read could be one of these, so it counts as one.
    undecided = is_one(rules.unknown, unreadable=True)
    if not undecided and is_one(rules.refused, unreadable=False):
        return _refused(answer, status)
    says_absent = not undecided and is_one(rules.absent, unreadable=False)
    if says_absent and _is_whole(answer, body):
        return AbsenceSeen(
            kind=AbsenceKind.ABSENT,
            exchange=exchange,
            summary=f"The provider answered {status}: it isn't there now. "
            "Whether it had been there before, the answer doesn't say.",
        )
    if not undecided and not says_absent and 400 <= status < 500 and status not in NOT_DEFINITE:
        return _refused(answer, status)
    return AbsenceSeen(
        kind=AbsenceKind.UNKNOWN,
        exchange=exchange,
        summary=f"The provider answered {status}, which doesn't say whether it is absent now.",
    )


def _is_whole(answer: Answer, body: Body) -> bool:
    """Whether the answer can be the provider's own: nothing at all, or JSON to its end.

    Whatever stands before it has pages for every status, and a page would be taken for a proof.
    """
    return body.readable or (answer.readable and not answer.content.strip())


def _refused(answer: Answer, status: int) -> AbsenceSeen:
    return AbsenceSeen(
        kind=AbsenceKind.REFUSED,
        exchange=answer.exchange,
        summary=f"The provider refused with {status} to make it absent. Whether it happened is as unknown "
        "as before.",
    )
