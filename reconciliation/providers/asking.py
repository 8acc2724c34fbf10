"""Asking a declared provider: its ways to look, the pages of each, and what follows from all of it.

The ways are asked in the declared order, the strongest first, until one shows what became of the operation.
Where none does, the strongest one's answer stands: that a weaker way is silent too adds nothing, and that it
couldn't be asked takes nothing away. A hint may show something for a person to look at, and that is all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from reconciliation.contracts import LookupKind
from reconciliation.providers import paging
from reconciliation.providers.answers import Body, matches_any, read_body, retry_after_ms
from reconciliation.providers.authorizing import TokenRefused, TokenSource
from reconciliation.providers.base import (
    Candidate,
    Exchange,
    Finding,
    Found,
    Inconclusive,
    Mismatch,
    NotFound,
    Pending,
    Question,
    Refused,
    Several,
    Unavailable,
    elapsed_seconds,
)
from reconciliation.providers.conclusions import by_reference, count, inconclusive, judge_ours
from reconciliation.providers.declaration import Declared
from reconciliation.providers.lookup_tables import LookupStep
from reconciliation.providers.matching import Reading, Subject, read_record
from reconciliation.providers.paging import Parameters
from reconciliation.providers.paths import Missing, text_at, value_at
from reconciliation.providers.redaction import Redactor
from reconciliation.providers.request_building import build_question
from reconciliation.providers.request_tables import RequestTemplate
from reconciliation.providers.templates import Values, ValueUnusable
from reconciliation.providers.transport import Answer, Transport
from runs.refusals import Refusal

# More records than this for one operation are not read one by one.
ITEMS_MAX = 1000
# No request of a lookup is begun later than this after its first: with the wait for a slot and the longest
# usual request it stays inside the time for which a case is claimed.
LOOKUP_SECONDS_MAX = 45.0


@dataclass(kw_only=True)
class _Listed:
    """The records of one way to look, page after page. `problem` ends the reading: nothing follows."""

    items: list[Mapping[str, Any]] = field(default_factory=list)
    exchanges: list[Exchange] = field(default_factory=list)
    incomplete: bool = False
    # Our own limit left no time to read on.
    limited: bool = False
    absent: bool = False
    # The status that says "not found" came with strict JSON: whatever stands before a provider says it too,
    # of an address that it doesn't know, and in HTML.
    absent_in_json: bool = False
    problem: Finding | None = None


class Asker:
    """Puts one account's questions. Share between threads, not across a fork."""

    def __init__(
        self, declared: Declared, *, transport: Transport, redactor: Redactor, tokens: TokenSource | None
    ) -> None:
        self._declared = declared
        self._contract = declared.account.contract
        self._transport = transport
        self._redactor = redactor
        self._tokens = tokens

    def look_up(self, question: Question) -> Finding:
        """Ask what the declaration allows; the finding says what may be concluded from the answers."""
        if self._contract.lookup is LookupKind.NONE or not self._declared.http.lookups:
            return Inconclusive(
                reason="no_lookup", summary="This provider offers no way to look the effect up."
            )
        account = self._declared.account
        if not account.configured or account.base_url is None:
            return Unavailable(
                reason="not_configured", summary="This account isn't configured here, so it can't be asked."
            )
        until = elapsed_seconds() + LOOKUP_SECONDS_MAX
        findings: list[Finding] = []
        exchanges: list[Exchange] = []
        for number, step in enumerate(self._declared.http.lookups):
            template = step.request_for(question.tool)
            if template is None or not _applies(step, question.payload):
                continue
            if exchanges and not _may_go_on(question, until):
                break
            finding, asked = self._ask(question, step, template, until=until, strongest=number == 0)
            exchanges += asked
            if isinstance(finding, Found | Pending | Refused | Mismatch | Several):
                return _beside(finding, exchanges)
            findings.append(finding)
        if not findings:
            return Inconclusive(
                reason="no_lookup", summary="No declared way to look fits this operation, so nobody asked."
            )
        return _beside(_most_telling(findings), exchanges)

    def _ask(
        self,
        question: Question,
        step: LookupStep,
        template: RequestTemplate,
        *,
        until: float,
        strongest: bool,
    ) -> tuple[Finding, list[Exchange]]:
        values = self._values(question, step)
        listed = self._read_pages(question, step, template, values, until=until)
        if listed.problem is not None:
            finding = listed.problem
        elif listed.absent:
            may_prove = strongest and listed.absent_in_json
            finding = self._not_found(question, listed.exchanges[-1], may_prove=may_prove)
        else:
            finding = self._judge(question, step, listed, may_prove=strongest)
        return (_as_hint(finding, step) if step.hint else finding), listed.exchanges

    def _values(self, question: Question, step: LookupStep) -> Values:
        ends_at = max(question.last_quiet_at or question.asked_at, question.first_sent_at)
        return Values(
            key=question.idempotency_key,
            operation=question.operation_id,
            tool=question.tool,
            payload=question.payload,
            reference=question.reference,
            first_sent_at=question.first_sent_at,
            window_start_at=question.first_sent_at - timedelta(milliseconds=step.window_before_ms),
            window_end_at=ends_at + timedelta(milliseconds=step.window_after_ms),
            amount=question.amount,
            secrets=self._declared.http.secrets,
            settings=self._declared.http.settings,
        )

    # -- pages ------------------------------------------------------------------------------------------

    def _read_pages(
        self, question: Question, step: LookupStep, template: RequestTemplate, values: Values, *, until: float
    ) -> _Listed:
        listed = _Listed()
        page: Parameters = ()
        seen: set[Parameters] = set()
        pages_max = step.rules.pages.pages_max if step.rules.pages else 1
        for _ in range(pages_max):
            answer = self._put(question, step, template, values, page, listed)
            if answer is None:
                return listed
            body = self._take(step, answer, listed)
            if body is None:
                return listed
            following, unreachable = paging.following(step.rules, answer, body.value, page)
            listed.incomplete = listed.incomplete or unreachable
            if following is None or paging.reaches_back(step.rules, body.value, values):
                return listed
            if following in seen:
                listed.problem = inconclusive(
                    answer.exchange, "pages_repeat", "its list leads back to a page that was read already"
                )
                return listed
            seen.add(following)
            page = following
            if len(listed.items) > ITEMS_MAX or len(listed.exchanges) == pages_max:
                break
            if not _may_go_on(question, until):
                listed.limited = True
                break
        listed.incomplete = True
        return listed

    def _put(
        self,
        question: Question,
        step: LookupStep,
        template: RequestTemplate,
        values: Values,
        page: Parameters,
        listed: _Listed,
    ) -> Answer | None:
        redactor = self._redactor.keeping(question.idempotency_key, question.operation_id)
        try:
            call = build_question(self._declared, template, values, within_ms=step.rules.within_ms, page=page)
            if self._tokens is not None:
                call = self._tokens.sign(call)
        except TokenRefused as error:
            listed.problem = Unavailable(reason="refused_us", summary=error.sentence, exchange=error.exchange)
            return None
        except (ValueUnusable, Refusal) as error:
            listed.problem = Inconclusive(
                reason="cannot_ask", summary=f"The question can't be put ({error})."
            )
            return None
        answer = self._transport.call(call, redactor=redactor)
        if answer.status == 401 and self._tokens is not None:
            self._tokens.forget()
        listed.exchanges.append(answer.exchange)
        return answer

    def _take(self, step: LookupStep, answer: Answer, listed: _Listed) -> Body | None:
        """Take an answer's records in; None where there is nothing to go on with."""
        rules = step.rules
        body = read_body(answer)
        listed.problem = _problem(step, answer, body)
        if listed.problem is not None:
            return None
        if answer.status in rules.not_found_statuses:
            # Of a further page that is no "not found": the list that led there isn't whole.
            listed.absent = len(listed.exchanges) == 1
            listed.absent_in_json = body.readable
            listed.incomplete = not listed.absent
            return None
        items = value_at(rules.items, body.value)
        if isinstance(items, dict):
            items = [items]
        elif isinstance(items, Missing) and rules.missing_is_empty and isinstance(body.value, dict):
            items = []
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            listed.problem = inconclusive(
                answer.exchange, "unexpected_form", "its answer doesn't have the declared form"
            )
            return None
        listed.items += items
        listed.incomplete = listed.incomplete or paging.says(rules.incomplete, body.value)
        if len(listed.items) > ITEMS_MAX and rules.pages is None:
            listed.problem = inconclusive(
                answer.exchange, "too_many", f"it answered with more than {ITEMS_MAX} records"
            )
            return None
        return body

    # -- concluding -------------------------------------------------------------------------------------

    def _judge(self, question: Question, step: LookupStep, listed: _Listed, *, may_prove: bool) -> Finding:
        """Conclude from the records of a list, whole or not."""
        exchange = listed.exchanges[-1]
        readings = [self._reading(question, step, item) for item in listed.items]
        usable = [reading for reading in readings if reading is not None]
        unread = len(usable) < len(readings)
        ours = by_reference(reading.receipt for reading in usable if reading.receipt.named)
        if ours:
            return judge_ours(ours, exchange, incomplete=listed.incomplete or unread)
        if unread:
            return inconclusive(exchange, "no_reference", "it shows a record without an id")
        if listed.limited:
            return inconclusive(
                exchange, "limited", "there was no time left, or no room in its limit, to read on"
            )
        if listed.incomplete:
            return inconclusive(exchange, "incomplete", "its answer is not the whole list")
        alike = by_reference(
            reading.receipt
            for reading in usable
            if reading.carries_nothing and reading.receipt.same and reading.receipt.comparisons
        )
        if alike:
            return Candidate(
                exchange=exchange,
                receipts=alike,
                summary=f"{count(alike)} looks like this operation and carries nothing of ours:"
                " only a person can tell.",
            )
        exact = step.kind_under(self._contract) in (LookupKind.BY_KEY, LookupKind.BY_REFERENCE)
        if usable and exact:
            # An exact filter that shows others' records isn't filtering, so it may be hiding ours.
            return inconclusive(exchange, "not_filtered", "it answered with records of other operations")
        return self._not_found(question, exchange, may_prove=may_prove)

    def _reading(self, question: Question, step: LookupStep, item: Mapping[str, Any]) -> Reading | None:
        record = item if step.rules.record is None else value_at(step.rules.record, dict(item))
        if not isinstance(record, dict):
            return None
        return read_record(
            record,
            contract=step.contract_under(self._contract),
            subject=Subject(
                operation_id=question.operation_id,
                key=question.idempotency_key,
                tool=question.tool,
                payload=question.payload,
                amount=question.amount,
            ),
            named_by_reply=False,
            redactor=self._redactor,
            key_beside=text_at(step.rules.key, dict(item)),
        )

    def _not_found(self, question: Question, exchange: Exchange, *, may_prove: bool) -> NotFound:
        proof = (
            may_prove
            and question.last_quiet_at is not None
            and self._contract.absence_is_proved(
                first_sent_at=question.first_sent_at,
                last_quiet_at=question.last_quiet_at,
                asked_at=question.asked_at,
            )
        )
        meaning = (
            "By its contract that proves that nothing happened."
            if proof
            else "That doesn't prove that nothing happened."
        )
        return NotFound(
            exchange=exchange,
            proof=proof,
            summary=f"The provider shows no record of this operation. {meaning}",
        )


def _may_go_on(question: Question, until: float) -> bool:
    """Whether one more request may go out: there is time, and the account's limit has room."""
    if elapsed_seconds() > until:
        return False
    return question.permit is None or question.permit()


def _applies(step: LookupStep, payload: Any) -> bool:
    has = step.when is None or not isinstance(value_at(step.when, payload), Missing)
    has_not = step.unless is None or isinstance(value_at(step.unless, payload), Missing)
    return has and has_not


def _problem(step: LookupStep, answer: Answer, body: Body) -> Finding | None:
    """Why nothing follows from this answer; None where it can be read."""
    exchange, status = answer.exchange, answer.status
    if status is None:
        return Unavailable(
            exchange=exchange,
            summary=f"The provider could not be asked ({exchange.error_class}): nothing follows.",
        )
    rules = step.rules
    if status in rules.not_found_statuses and answer.readable:
        return None
    if status in (408, 425, 429) or status >= 500:
        return Unavailable(
            reason="overloaded" if status in (429, 503) else "failing",
            exchange=exchange,
            retry_after_ms=retry_after_ms(answer),
            summary=f"The provider answered {status} to the question. Nothing follows from that.",
        )
    if status in (401, 403, 407):
        return Unavailable(
            reason="refused_us",
            exchange=exchange,
            retry_after_ms=retry_after_ms(answer),
            summary=f"The provider refused the question with {status}: our credentials may be wrong.",
        )
    if matches_any(rules.unavailable, status, body, unreadable=False, headers=answer.headers):
        return Unavailable(
            reason="declined",
            exchange=exchange,
            retry_after_ms=retry_after_ms(answer),
            summary=f"The provider answered {status}, and says in its body that it didn't answer the"
            " question. Nothing follows from that.",
        )
    if not 200 <= status < 300:
        return inconclusive(exchange, "unexpected_status", f"it answered {status}")
    if not body.readable:
        return inconclusive(exchange, "unreadable", "its answer could not be read safely to the end")
    return None


def _as_hint(finding: Finding, step: LookupStep) -> Finding:
    """What a hint shows is for a person to look at, and what it doesn't show means nothing."""
    if finding.receipts:
        return Candidate(
            exchange=finding.exchange,
            receipts=finding.receipts,
            summary=f"{count(finding.receipts)} was found by {step.name}, which is only a hint:"
            " a person has to look at the provider.",
        )
    if isinstance(finding, NotFound):
        return Inconclusive(
            reason="only_a_hint",
            exchange=finding.exchange,
            summary=f"Nothing was found by {step.name}. That is only a hint, and proves nothing.",
        )
    return finding


def _most_telling(findings: list[Finding]) -> Finding:
    """What stands where nothing was settled: something of ours, something alike, or the strongest answer."""
    of_ours = [one for one in findings if isinstance(one, Inconclusive) and one.receipts]
    alike = [one for one in findings if isinstance(one, Candidate)]
    return next(iter((*of_ours, *alike, *findings)))


def _beside(finding: Finding, exchanges: Iterable[Exchange]) -> Finding:
    """The finding with what else was asked for it, without the bodies: one answer is what it rests on."""
    earlier = tuple(
        replace(one, body="", body_cut=bool(one.body)) for one in exchanges if one is not finding.exchange
    )
    return replace(finding, earlier=earlier) if earlier else finding
