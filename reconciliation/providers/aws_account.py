"""What accounts at Amazon Web Services have in common: sending by one call, and judging what came back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import Any, ClassVar

from reconciliation.contracts import Contract, LookupKind, ProviderAccount
from reconciliation.providers.answers import NOT_DEFINITE, matches_any, read_body, retry_after_ms
from reconciliation.providers.aws import NOT_NOW, REFUSED_US, AwsAnswer, AwsClient
from reconciliation.providers.aws_listing import AwsList, list_made
from reconciliation.providers.base import (
    Exchange,
    Finding,
    Inconclusive,
    NotFound,
    NotSentSeen,
    OutgoingOperation,
    Phase,
    Question,
    ReceiptSeen,
    ReceiptState,
    RejectedSeen,
    SendOutcome,
    Unavailable,
    UnknownSeen,
)
from reconciliation.providers.conclusions import inconclusive
from reconciliation.providers.declaration import Declared
from reconciliation.providers.listing import Listing, Permit, not_offered
from reconciliation.providers.matching import Reading, Subject, read_record
from reconciliation.providers.reach import environment_reach
from reconciliation.providers.redaction import Redactor, redactor_for
from reconciliation.providers.transport import Transport

LOOKUP_SECONDS_MAX = 10.0


class PayloadUnusable(ValueError):
    """This operation's payload can't be made into a request of this adapter; the text says why."""


class AwsAccount(ABC):
    """One account at one service. Share between threads, not across a fork."""

    # botocore's names of the service and of the method that has the effect.
    service: ClassVar[str]
    method: ClassVar[str]
    # Why nothing can be asked, where nothing can.
    no_lookup: ClassVar[str] = "This account is asked nothing: lookups are switched off."

    def __init__(
        self, declared: Declared, *, sending: Transport | None = None, asking: Transport | None = None
    ) -> None:
        """`sending` takes a connection of its own for every request, `asking` keeps connections open."""
        self._account = declared.account
        self._answers = declared.http.answers
        self._settings = declared.http.settings
        self._redactor = redactor_for(declared.http.secrets, declared.http.redact_names)
        self._client = AwsClient(
            service=self.service,
            region=declared.account.region,
            url=declared.account.base_url or "",
            secrets=declared.http.secrets,
        )
        reach = environment_reach(declared.own_hosts)
        self._sending = sending or Transport(keep_alive=False, reach=reach)
        self._asking = asking or Transport(keep_alive=True, reach=reach)

    @property
    def account(self) -> ProviderAccount:
        return self._account

    @property
    def contract(self) -> Contract:
        return self._account.contract

    def close(self) -> None:
        self._sending.close()
        self._asking.close()

    @abstractmethod
    def parameters(self, operation: OutgoingOperation) -> Mapping[str, Any]:
        """The call's parameters, the same for every attempt; raises `PayloadUnusable`."""

    @abstractmethod
    def find(self, question: Question) -> Finding:
        """Ask a service that can be asked."""

    # -- sending ----------------------------------------------------------------------------------------

    def send(self, operation: OutgoingOperation) -> SendOutcome:
        """Send one attempt; the outcome says what may be concluded from what came back."""
        if not self._account.configured:
            return _not_started("This account isn't configured here, so nothing was sent.", "NotConfigured")
        try:
            parameters = self.parameters(operation)
        except PayloadUnusable as error:
            return _not_started(f"The request can't be made ({error}), so nothing was sent.", "Unusable")
        got = self._client.call(
            self.method,
            parameters,
            transport=self._sending,
            redactor=self._redactor.keeping(operation.idempotency_key, operation.operation_id),
            within_seconds=operation.request_within_ms / 1000,
            start_by=operation.start_by,
        )
        return self._judge_send(operation, got)

    def _judge_send(self, operation: OutgoingOperation, got: AwsAnswer) -> SendOutcome:
        exchange, status = got.answer.exchange, got.answer.status
        if status is None:
            return _unanswered(got)
        body = read_body(got.answer)
        exists = self.contract.proves_existence
        said = f"{status} {got.error_code}".strip()
        if matches_any(exists, status, body, unreadable=False):
            return UnknownSeen(
                exchange=exchange,
                summary=f"The provider answered {said}, which proves that the effect exists.",
                effect_exists=True,
            )
        undecided = UnknownSeen(
            exchange=exchange,
            retry_after_ms=retry_after_ms(got.answer),
            summary=f"The provider answered {said}, which doesn't say whether it happened.",
        )
        # An answer whose body can't be read could be one of these, so it counts as one.
        if status >= 300 and matches_any((*exists, *self._answers.unknown), status, body, unreadable=True):
            return undecided
        if 200 <= status < 300:
            return self._judge_receipt(operation, got)
        if 400 <= status < 500 and status not in NOT_DEFINITE:
            first = operation.attempt_number == 1
            more = "" if first else " That says nothing about earlier attempts."
            return RejectedSeen(
                exchange=exchange,
                speaks_for_first=first,
                summary=f"The provider refused this request with {said}.{more}",
            )
        return undecided

    def _judge_receipt(self, operation: OutgoingOperation, got: AwsAnswer) -> SendOutcome:
        exchange = got.answer.exchange
        reading = None
        if got.content is not None:
            reading = self.reading(got.content, _subject_of(operation), named_by_reply=True)
        if reading is None:
            return UnknownSeen(
                exchange=exchange,
                summary=f"The provider answered {exchange.status}, but without a receipt that can be read.",
            )
        receipt = reading.receipt
        if reading.foreign or not receipt.named or not receipt.same:
            fields = ", ".join(one.path for one in receipt.differences) or "its name"
            return UnknownSeen(
                exchange=exchange,
                receipt=receipt,
                summary=f"The provider's record {receipt.reference} differs from what was asked: {fields}.",
            )
        if receipt.state is not ReceiptState.SUCCEEDED:
            return UnknownSeen(
                exchange=exchange,
                receipt=receipt,
                summary=f"The provider took it as {receipt.reference}; it says"
                f" “{receipt.status}”, which is not success yet.",
            )
        return ReceiptSeen(
            exchange=exchange,
            receipt=receipt,
            summary=f"The provider confirmed it with receipt {receipt.reference}.",
        )

    # -- asking -----------------------------------------------------------------------------------------

    def look_up(self, question: Question) -> Finding:
        """Ask one question that changes nothing; an administrator may have switched lookups off."""
        if self.contract.lookup is LookupKind.NONE:
            return Inconclusive(reason="no_lookup", summary=self.no_lookup)
        return self.find(question)

    def listing(self) -> AwsList | None:
        """How to list everything that was made here; None where there is no such list."""
        return None

    def list_made(self, *, since_at: datetime, until_at: datetime, permit: Permit) -> Listing:
        """List what was made since then, without an operation to ask about."""
        one = self.listing() if self._account.listing.offered else None
        if one is None:
            return not_offered(self._account)
        return list_made(
            one,
            ask=partial(self._ask, redactor=self._redactor),
            account=self._account,
            redactor=self._redactor,
            since_at=since_at,
            permit=permit,
        )

    def ask(self, question: Question, method: str, parameters: Mapping[str, Any]) -> AwsAnswer | Unavailable:
        """Put one question that changes nothing; `Unavailable` where there is no answer to conclude from."""
        redactor = self._redactor.keeping(question.idempotency_key, question.operation_id)
        return self._ask(method, parameters, redactor=redactor)

    def _ask(
        self, method: str, parameters: Mapping[str, Any], *, redactor: Redactor
    ) -> AwsAnswer | Unavailable:
        if not self._account.configured:
            return Unavailable(
                reason="not_configured", summary="This account isn't configured here, so it can't be asked."
            )
        got = self._client.call(
            method,
            parameters,
            transport=self._asking,
            redactor=redactor,
            within_seconds=LOOKUP_SECONDS_MAX,
        )
        status, exchange = got.answer.status, got.answer.exchange
        if status is None:
            return Unavailable(
                exchange=exchange,
                summary=f"The provider could not be asked ({exchange.error_class}): nothing follows.",
            )
        if got.error_code in REFUSED_US or status in (401, 403, 407):
            return Unavailable(
                reason="refused_us",
                exchange=exchange,
                summary=f"The provider refused the question with {status} {got.error_code}:"
                " our credentials or their permissions may be wrong.",
            )
        if got.error_code in NOT_NOW or status in (408, 425, 429) or status >= 500:
            return Unavailable(
                reason="failing" if status >= 500 and status != 503 else "overloaded",
                exchange=exchange,
                retry_after_ms=retry_after_ms(got.answer),
                summary=f"The provider answered {status} {got.error_code}".rstrip()
                + " to the question. Nothing follows from that.",
            )
        return got

    def not_found(self, question: Question, exchange: Exchange) -> NotFound:
        """A complete answer without any record of ours; none of these services lets it prove anything."""
        proof = question.last_quiet_at is not None and self.contract.absence_is_proved(
            first_sent_at=question.first_sent_at,
            last_quiet_at=question.last_quiet_at,
            asked_at=question.asked_at,
        )
        return NotFound(
            exchange=exchange,
            proof=proof,
            summary="The provider shows no record of this operation."
            " That doesn't prove that nothing happened.",
        )

    def unexpected(self, got: AwsAnswer) -> Inconclusive:
        """What to say of an answer that is none of those that this question has."""
        exchange = got.answer.exchange
        if got.content is None:
            return inconclusive(exchange, "unreadable", "its answer could not be read safely to the end")
        said = f"{got.answer.status} {got.error_code}".strip()
        return inconclusive(exchange, "unexpected_status", f"it answered {said}")

    def reading(
        self,
        record: Mapping[str, Any],
        subject: Subject,
        *,
        named_by_reply: bool = False,
    ) -> Reading | None:
        return read_record(
            record,
            contract=self.contract,
            subject=subject,
            named_by_reply=named_by_reply,
            redactor=self._redactor,
        )


def subject_of(question: Question) -> Subject:
    return _subject_of(question)


def _subject_of(asked: OutgoingOperation | Question) -> Subject:
    return Subject(
        operation_id=asked.operation_id,
        key=asked.idempotency_key,
        tool=asked.tool,
        payload=asked.payload,
        amount=asked.amount,
    )


def _unanswered(got: AwsAnswer) -> SendOutcome:
    exchange = got.answer.exchange
    if not got.answer.not_sent:
        return UnknownSeen(
            exchange=exchange,
            summary=f"The request left and no answer came back ({exchange.error_class}).",
        )
    if exchange.phase is Phase.NOT_STARTED and exchange.error:
        summary = f"The request could not be made ({exchange.error}), so nothing was sent."
    else:
        summary = f"The request was never started ({exchange.error_class}), so nothing was sent."
    return NotSentSeen(exchange=exchange, summary=summary)


def _not_started(summary: str, error_class: str) -> NotSentSeen:
    return NotSentSeen(
        exchange=Exchange(method="", url="", error_class=error_class, phase=Phase.NOT_STARTED),
        summary=summary,
    )


def members_of(payload: object, *, required: tuple[str, ...], ours: tuple[str, ...]) -> Mapping[str, Any]:
    """The payload's members as parameters; raises `PayloadUnusable` for one that is missing or ours."""
    if not isinstance(payload, Mapping):
        raise PayloadUnusable("the payload is not an object with the call's parameters")
    for name in required:
        if name not in payload:
            raise PayloadUnusable(f"the payload has no {name}")
    for name in ours:
        if name in payload:
            raise PayloadUnusable(f"the payload has {name}, which is set here")
    return payload


def regional_url(service: str) -> Any:
    """Make the public base URL of a service in a region, where the region's name says the partition."""

    def url(region: str) -> str | None:
        if not region:
            return None
        suffix = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
        # Isolated partitions have suffixes of their own, which an account there says in its file.
        return None if "-iso" in region else f"https://{service}.{region}.{suffix}"

    return url
