"""Requests to Amazon Web Services: written, signed and read by botocore, carried by our own transport.

botocore knows the wire formats, signatures and error codes. It never opens a connection here: its
`before-send` event is answered by our transport, so that the total time limit, the proof of how far a request
came, and the rule that one call is one request hold as for every other provider. Nothing but the account's
own file decides where a request goes and with which credentials: no profile, no metadata service, no setting
from the environment or from a file in somebody's home.
"""

from __future__ import annotations

import base64
import json
import os
import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import httpx

from reconciliation.contracts import AnswerPattern
from reconciliation.providers.base import Exchange, Phase, elapsed_seconds
from reconciliation.providers.redaction import Redactor
from reconciliation.providers.transport import ERROR_LENGTH_MAX, Answer, Call, Transport, evidence_text
from runs.canonical import parse
from runs.refusals import Refusal

if TYPE_CHECKING:
    from botocore.awsrequest import AWSPreparedRequest, AWSResponse
    from botocore.client import BaseClient
    from botocore.loaders import Loader

ACCESS_KEY_ID = "access_key_id"
SECRET_ACCESS_KEY = "secret_access_key"  # noqa: S105 - the name of a credential, not one
SESSION_TOKEN = "session_token"  # noqa: S105
CREDENTIALS = (ACCESS_KEY_ID, SECRET_ACCESS_KEY)
OPTIONAL_CREDENTIALS = (SESSION_TOKEN,)

ERROR_CODE = "$.Error.Code"
# Errors that come with a 4xx status and say "not now": nothing follows from them for the effect. The names
# are those that botocore itself retries (retries/standard.py), with those for trouble on Amazon's side.
NOT_NOW = (
    "BandwidthLimitExceeded",
    "EC2ThrottledException",
    "InternalError",
    "InternalFailure",
    "InternalServerError",
    "KmsThrottledException",
    "KMS.ThrottlingException",
    "KmsThrottled",
    "PriorRequestNotComplete",
    "RequestLimitExceeded",
    "RequestThrottled",
    "RequestThrottledException",
    "RequestTimeout",
    "RequestTimeoutException",
    "ServiceUnavailable",
    "SlowDown",
    "Throttled",
    "ThrottledException",
    "Throttling",
    "ThrottlingException",
    "TooManyRequestsException",
    "TransactionInProgressException",
    "Unavailable",
)
# Errors about us: signature, credentials, permission. Some services answer them with 400 instead of 403.
REFUSED_US = (
    "AccessDenied",
    "AccessDeniedException",
    "AuthFailure",
    "ExpiredToken",
    "ExpiredTokenException",
    "IncompleteSignature",
    "InvalidClientTokenId",
    "InvalidSignatureException",
    "MissingAuthenticationToken",
    "MissingAuthenticationTokenException",
    "NotAuthorized",
    "OptInRequired",
    "RequestExpired",
    "SignatureDoesNotMatch",
    "UnauthorizedOperation",
    "UnrecognizedClientException",
)
NOT_NOW_PATTERN = AnswerPattern(path=ERROR_CODE, values=NOT_NOW)

# The longest error code that is shown; Amazon's own are half as long.
CODE_LENGTH_MAX = 120
# What botocore would read in somebody's home.
_FILES = ("config_file", "credentials_file")
# The transport sets these itself, and botocore doesn't sign them.
_OWN_HEADERS = frozenset({"content-length", "host", "accept-encoding", "user-agent", "connection", "expect"})


class SecondRequest(BaseException):
    """botocore wanted to send once more for one call; one call is one request.

    Beside `Exception`, because botocore may take any of those for a reason to try yet again.
    """


class _Unread(Exception):
    """No whole answer came back: there is nothing for botocore to read."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AwsAnswer:
    """What came of one call. `content` is what botocore read, None where it couldn't.

    The answer's own content is the same as JSON, in one form for every protocol: Amazon's member names, and
    for an error `{"Error": {"Code": …, "Message": …}}`.
    """

    answer: Answer
    content: Mapping[str, Any] | None
    # Amazon's word for what went wrong, fit to be shown; empty where nothing did or none was read.
    error_code: str = ""


@dataclass(kw_only=True)
class _Running:
    """The one call that this thread is making."""

    transport: Transport
    redactor: Redactor
    ends_at: float
    start_by: float | None
    answer: Answer | None = None
    handed_over: bool = False


class AwsClient:
    """One account at one of Amazon's services. Safe to share between threads; not across a fork."""

    def __init__(self, *, service: str, region: str, url: str, secrets: Mapping[str, str]) -> None:
        self._service = service
        self._region = region
        self._url = url
        self._secrets = dict(secrets)
        self._lock = threading.Lock()
        self._client: BaseClient | None = None
        self._thread = threading.local()

    def call(
        self,
        method: str,
        parameters: Mapping[str, Any],
        *,
        transport: Transport,
        redactor: Redactor,
        within_seconds: float,
        start_by: float | None = None,
    ) -> AwsAnswer:
        """Make one call (`send_message`, …); raises nothing for what the network or Amazon does.

        `within_seconds` holds for all of it, `start_by` is an instant of `elapsed_seconds()`.
        """
        running = _Running(
            transport=transport,
            redactor=redactor,
            ends_at=elapsed_seconds() + within_seconds,
            start_by=start_by,
        )
        self._thread.running = running
        content: Mapping[str, Any] | None = None
        error: BaseException | None = None
        try:
            content = _plain(getattr(self._ready(), method)(**parameters))
        except (Exception, SecondRequest) as seen:  # noqa: BLE001 - whatever happened is a fact to record
            error = seen
            content = _error_content(seen)
        finally:
            self._thread.running = None
        if running.answer is None:
            return AwsAnswer(answer=self._not_handed_over(running, error), content=None)
        body = None if content is None else _strict(content)
        if content is None or body is None or not running.answer.readable:
            return AwsAnswer(answer=running.answer, content=None)
        return AwsAnswer(
            answer=_as_json(running.answer, body, redactor),
            content=content,
            error_code=_shown(redactor.text(_code_in(content))) if error is not None else "",
        )

    def _not_handed_over(self, running: _Running, error: BaseException | None) -> Answer:
        """What there is to say where our transport was never asked: nothing can have been sent.

        The transport is the only way out, so this is a positive sign and not a guess from an exception. It
        isn't given once the transport was asked, whatever it then did.
        """
        reason = " ".join(str(error or "").split())
        return Answer(
            exchange=Exchange(
                method="POST",
                url=running.redactor.url(self._url),
                error_class=type(error).__name__ if error else "",
                error=evidence_text(reason.encode("utf-8", "replace"), redactor=running.redactor)[0][
                    :ERROR_LENGTH_MAX
                ],
                phase=Phase.NOT_STARTED,
            ),
            content=b"",
            headers=httpx.Headers(),
            not_sent=not running.handed_over,
        )

    def _ready(self) -> BaseClient:
        with self._lock:
            if self._client is None:
                self._client = self._make()
            return self._client

    def _make(self) -> BaseClient:
        from botocore.config import Config
        from botocore.session import Session

        # Every setting that botocore would take from the environment or a file, with its default instead.
        fixed = {
            name: (None, None, os.devnull if name in _FILES else default, convert)
            for name, (_, _, default, convert) in Session.SESSION_VARIABLES.items()
        }
        session = Session(session_vars=fixed)
        session.register_component("data_loader", _models())
        client = session.create_client(
            self._service,
            region_name=self._region,
            endpoint_url=self._url,
            aws_access_key_id=self._secrets.get(ACCESS_KEY_ID),
            aws_secret_access_key=self._secrets.get(SECRET_ACCESS_KEY),
            aws_session_token=self._secrets.get(SESSION_TOKEN),
            config=Config(
                retries={"total_max_attempts": 1, "mode": "standard"},
                ignore_configured_endpoint_urls=True,
                use_dualstack_endpoint=False,
                use_fips_endpoint=False,
                inject_host_prefix=False,
                disable_request_compression=True,
                signature_version="v4",
                proxies={},
            ),
        )
        client.meta.events.register("before-send", self._carry)
        return client

    def _carry(self, request: AWSPreparedRequest, **_: object) -> AWSResponse:
        """Carry the one request of this call; botocore's own connections are never used."""
        from botocore.awsrequest import AWSResponse

        running: _Running = self._thread.running
        if running.handed_over:
            raise SecondRequest("one call is one request")
        running.handed_over = True
        answer = running.transport.call(
            Call(
                method=request.method,
                url=request.url,
                headers=tuple(_headers(request.headers)),
                content=_content(request.body),
                within_seconds=max(running.ends_at - elapsed_seconds(), 0.0),
                start_by=running.start_by,
            ),
            redactor=running.redactor,
        )
        running.answer = answer
        if answer.status is None or not answer.readable:
            raise _Unread(answer.exchange.error_class)
        return AWSResponse(request.url, answer.status, dict(answer.headers), _Raw(answer.content))


@lru_cache(maxsize=1)
def _models() -> Loader:
    """The services as botocore ships them, read once for every account; nothing from somebody's home."""
    from botocore.loaders import Loader

    return Loader(extra_search_paths=[Loader.BUILTIN_DATA_PATH], include_default_search_paths=False)


class _Raw:
    """An answer's body in the form in which botocore reads one."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def stream(self, **_: object) -> Iterator[bytes]:
        yield self._content


def _headers(headers: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in headers.items():
        if name.lower() not in _OWN_HEADERS:
            yield name, value.decode("ascii") if isinstance(value, bytes) else str(value)


def _content(body: object) -> bytes:
    match body:
        case None:
            return b""
        case bytes() | bytearray():
            return bytes(body)
        case str():
            return body.encode()
        case _:
            raise TypeError(f"a body of type {type(body).__name__} isn't carried")


def _error_content(error: BaseException) -> Mapping[str, Any] | None:
    """The error as Amazon wrote it; not the status, which botocore takes for a code where it reads none."""
    from botocore.exceptions import ClientError

    if not isinstance(error, ClientError):
        return None
    content = _plain(error.response)
    return content if re.match(r"[A-Za-z]", _code_in(content)) else None


def _code_in(content: Mapping[str, Any]) -> str:
    error = content.get("Error")
    return str(error.get("Code") or "") if isinstance(error, Mapping) else ""


def _plain(parsed: Mapping[str, Any]) -> Mapping[str, Any]:
    """What was read, as JSON values, without botocore's own notes about the answer."""
    return {name: _value(inner) for name, inner in parsed.items() if name != "ResponseMetadata"}


def _value(value: Any) -> Any:
    match value:
        case Mapping():
            return {str(name): _value(inner) for name, inner in value.items()}
        case list() | tuple():
            return [_value(inner) for inner in value]
        case datetime():
            return value.isoformat()
        case bytes() | bytearray():
            return base64.b64encode(value).decode("ascii")
        case str() | int() | float() | bool() | None:
            return value
        case _:
            return str(value)


def _strict(content: Mapping[str, Any]) -> bytes | None:
    """The content as JSON that every reader takes alike and PostgreSQL can hold; None if it isn't such."""
    try:
        body = json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
        parse(body)
    except (Refusal, UnicodeEncodeError):
        return None
    return body


def _shown(code: str) -> str:
    return "".join(one if one.isprintable() else "\ufffd" for one in code)[:CODE_LENGTH_MAX]


def _as_json(answer: Answer, body: bytes, redactor: Redactor) -> Answer:
    """The answer with its body as JSON, for evidence and for every rule that looks into bodies.

    EC2 answers in XML, and the others name errors in forms of their own. Length and SHA-256 stay those of the
    bytes that came.
    """
    text, cut = evidence_text(body, redactor=redactor)
    return replace(answer, content=body, exchange=replace(answer.exchange, body=text, body_cut=cut))
