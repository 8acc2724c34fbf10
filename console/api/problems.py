"""Refusals as answers: RFC 9457 documents, with one table of words that says what each means.

`type` is `/problems/<word>`, where the same table answers; `word` stands beside it; `detail` is the
refusal's own sentence, and what else a caller needs to act stands beside these as members.
"""

from __future__ import annotations

import json
import math
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Any, ClassVar

import structlog
from django.db import DatabaseError, InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse
from ninja.errors import AuthenticationError, HttpError
from ninja.errors import ValidationError as NinjaValidationError

from runs.account_access import AccountNotFound
from runs.canonical import UnreadableJson, parse
from runs.refusals import Invalid, NotFound, Refusal

log = structlog.get_logger(__name__)

CONTENT_TYPE = "application/problem+json"
# How long until the same call is worth repeating when the database could not be asked.
UNAVAILABLE_RETRY_SECONDS = 1


@dataclass(frozen=True)
class Word:
    """What one word of a refusal means: its status, its title, and what a caller does about it."""

    status: int
    title: str
    meaning: str


# Every word that this API answers with. A test walks all refusals of the code and finds each of them here.
WORDS: dict[str, Word] = {
    "already_claimed": Word(
        409,
        "Another worker holds the run",
        "Somebody else's lease lives. `holder` names them, `expires_in_ms` says how long it still lasts. Ask "
        "for claimable runs, or claim after that time. A restarted process waits for its own old lease too.",
    ),
    "run_paused": Word(
        409,
        "The run is paused",
        "Nothing may be sent for it now; `reasons` say why, and on a claim `plan` shows how far it is. It "
        "becomes claimable by itself when the reasons fall away; `Retry-After` says when to look.",
    ),
    "run_ended": Word(409, "The run has ended", "It is completed or abandoned and takes no more work."),
    "flow_version_mismatch": Word(
        409,
        "The run is pinned to another flow version",
        "`pinned` is the version, and where known the digest, that a worker must run. Nothing changed.",
    ),
    "stale_token": Word(
        409,
        "The fencing token is outdated",
        "The lease expired, was given back, revoked, or ended with the run. Start nothing. A report "
        "made with this token is still taken: it becomes evidence.",
    ),
    "external_id_reused": Word(
        409,
        "The external id belongs to a run with another input",
        "A run is one flow and one external id. The same again needs the same input.",
    ),
    "turn_already_decided": Word(
        409,
        "This turn, or this read, is on record with other content",
        "The first decision and the first result stand. Read the plan, and go on from what it says.",
    ),
    "previous_turn_open": Word(
        409,
        "An earlier call isn't settled",
        "The next turn, or a later read of an ordered turn, waits until the calls before it are settled.",
    ),
    "not_sendable": Word(
        409,
        "The operation may not be sent now",
        "Nothing was changed and nothing may be sent. `reason` says which fact stands in the way.",
    ),
    "start_window_passed": Word(
        409,
        "The time to start this attempt is over",
        "It must not start any more. Report it as not sent, if it never was.",
    ),
    "attempt_ended": Word(
        409,
        "The attempt is settled",
        "It, or its operation, has an outcome on record: there is nothing to start.",
    ),
    "receipt_mismatch": Word(
        409,
        "The receipt doesn't match the operation",
        "`problems` say what differs. The receipt is stored as evidence and a case is open; start nothing.",
    ),
    "receipt_reused": Word(
        409,
        "The receipt already confirmed another operation",
        "It is stored, and both operations have a conflict case; start nothing.",
    ),
    "sending_frozen": Word(
        409,
        "Sending is frozen",
        "The database may be a copy, or may have forgotten what was sent since its backup. Nothing was sent "
        "and nothing may be sent at `provider` until an administrator has said which it is. Release the run.",
    ),
    "limit_not_raised": Word(
        409,
        "The budget limit can't become this",
        "A limit goes up only, in its own currency, and while its run goes on.",
    ),
    "approval_not_renewed": Word(
        409,
        "The run's approval can't be renewed like this",
        "The run refers to none, has ended, or the new one would end no later than the present one.",
    ),
    "version_not_awaited": Word(
        409,
        "The run doesn't wait for a worker of its version",
        "A worker of the pinned version came, or the run was settled or moved: there is nothing to say.",
    ),
    "version_unknown": Word(
        409,
        "The flow has no such version on record",
        "`digest` is what the version is recorded under, where there is one.",
    ),
    "version_in_flight": Word(
        409,
        "Something of the run may be on its way",
        "`operations` were sent or granted under the pinned version, and are settled under it first.",
    ),
    "nothing_held": Word(
        409,
        "The operation holds no amount",
        "It was spent, freed, or never reserved.",
    ),
    "approval_pending": Word(
        409,
        "A second person is asked for this already",
        "`approval` is the request, `by` who made it, `expires_at` until when it can be answered.",
    ),
    "approval_answered": Word(
        409,
        "The request has its answer",
        "`state` says which, `by` and `at` whose and when, `comment` why. Nothing was changed by this call.",
    ),
    "approval_expired": Word(
        409,
        "The request's time is over",
        "Nobody answered it in time, and nothing was done: expiry never approves. Ask anew.",
    ),
    "approval_void": Word(
        409,
        "What the request is about has changed",
        "`changed` says what. Nothing was done. Read what it is about as it stands now, and ask anew.",
    ),
    "own_approval": Word(
        403,
        "The one who asked can't answer",
        "The same human being is behind both, whatever account or token they use. An attempt to approve is "
        "on record.",
    ),
    "operations_open": Word(
        409,
        "The run has unsettled calls",
        "`operations` and `calls` name what has to be settled or given up.",
    ),
    "decision_stale": Word(
        409,
        "The case changed since it was read",
        "Nothing was decided. `changed` says what moved, and by whom if a person did; read the case anew.",
    ),
    "action_locked": Word(
        423,
        "The policy doesn't allow this now",
        "`reasons` say why, `question` which of the five questions locks it, `unlocks_at` when time will.",
    ),
    "idempotency_key_reused": Word(
        409,
        "The Idempotency-Key was used for another decision",
        "The decision made under it stands. Another decision needs a key of its own.",
    ),
    "unreadable_json": Word(
        422,
        "The body is not JSON that everyone reads alike",
        "`where` and `reason` say what stands in the way. Nothing was changed.",
    ),
    "invalid": Word(
        422,
        "The request doesn't have the form that the call needs",
        "`where` is a JSON pointer into the body, or names a query parameter or header. Nothing was changed.",
    ),
    "too_large": Word(
        413, "The body is too large", "At most `bytes_max` bytes are taken. Nothing was changed."
    ),
    "not_found": Word(
        404,
        "There is nothing here that this token can see",
        "It doesn't exist, or it belongs to another team; the answer is the same.",
    ),
    "account_not_found": Word(
        404,
        "There is no such provider account for this team",
        "No account has this name, or it is other teams'; the answer is the same. `account` is the name, and "
        "in a turn `where` is the call that has it. Nothing was changed.",
    ),
    "forbidden": Word(
        403,
        "This token may not do this",
        "Its scope, or the role of its person, doesn't include the call. Nothing was changed.",
    ),
    "unauthorized": Word(
        401,
        "A bearer token is needed",
        "The token is missing, unknown, expired or revoked. A browser's session doesn't count here.",
    ),
    "rate_limited": Word(
        429,
        "The token makes too many calls",
        "Nothing was looked at. `retry_after_ms`, and `Retry-After` in seconds, say when to make the same "
        "call again; its content is recognised.",
    ),
    "webhook_forged": Word(
        403,
        "The notice isn't signed by its provider",
        "It carries no signature that one of the account's secrets could have made. Nothing of it is kept.",
    ),
    "webhook_stale": Word(
        403,
        "The notice was signed at another time",
        "Its signature holds, and its time is too far from now: it may have been recorded. Nothing is kept.",
    ),
    "webhook_not_ready": Word(
        503,
        "The account's notices can't be checked here",
        "None of the secrets that its file names is set. Deliver the notice again later.",
    ),
    "bad_request": Word(400, "The request can't be read", "Its head is not one that this server can take."),
    "method_not_allowed": Word(405, "This address doesn't take this method", "`Allow` names those it takes."),
    "unsupported_media_type": Word(
        415, "The body must be JSON", "Send `Content-Type: application/json`, in UTF-8, without an encoding."
    ),
    "unavailable": Word(
        503,
        "The journal could not be asked",
        "Whether the call was carried out isn't known. The same call with the same content is recognised: "
        "before go, repeat it and send nothing; after, repeat the report and start nothing new.",
    ),
    "internal_error": Word(
        500,
        "Recourse failed on this call",
        "Whether it was carried out isn't known; the log has it under `error_id`. Treat it as no answer.",
    ),
}


class MethodNotAllowed(Refusal):
    """The address exists and doesn't take this method."""

    word: ClassVar[str] = "method_not_allowed"


def problem(
    word: str,
    detail: str,
    *,
    headers: dict[str, str] | None = None,
    members: Mapping[str, Any] | None = None,
) -> HttpResponse:
    """Return one problem document; what it must contain can't be overridden by `members`."""
    meant = WORDS[word]
    if word == "unauthorized":
        headers = {"WWW-Authenticate": 'Bearer realm="recourse"', **(headers or {})}
    document = {
        **(members or {}),
        "type": f"/problems/{word}",
        "word": word,
        "title": meant.title,
        "status": meant.status,
        "detail": detail,
    }
    response = _written(document, status=meant.status, content_type=CONTENT_TYPE, headers=headers)
    log.info("api_refused", word=word, status=meant.status)
    # A refusal is an answer, not an incident: Django would warn of each in the log.
    response._has_been_logged = True  # type: ignore[attr-defined]
    return response


def answered(status: int, body: dict[str, Any], *, headers: dict[str, str] | None = None) -> HttpResponse:
    """Return a call's answer: JSON in ASCII, which no cache may keep."""
    return _written(body, status=status, content_type="application/json", headers=headers)


def _written(
    body: dict[str, Any], *, status: int, content_type: str, headers: dict[str, str] | None
) -> HttpResponse:
    content = json.dumps(body, separators=(",", ":"), allow_nan=False, default=_as_text)
    response = HttpResponse(content, status=status, content_type=content_type)
    response["Cache-Control"] = "no-store"
    for name, value in (headers or {}).items():
        response[name] = value
    return response


def _as_text(value: object) -> str:
    """The few values in a refusal's details that are no JSON: times and enum members of other types."""
    return value.isoformat() if isinstance(value, datetime) else str(value)


def refused(refusal: Refusal, *, headers: dict[str, str] | None = None, **members: Any) -> HttpResponse:
    """Return a refusal's problem document, with its details and `members` beside its sentence."""
    details = {**refusal.details, **members}
    wait_ms = details.get("retry_after_ms")
    if isinstance(wait_ms, int):
        headers = {"Retry-After": str(math.ceil(wait_ms / 1000)), **(headers or {})}
    if isinstance(refusal, Invalid | AccountNotFound) and details.get("where") is not None:
        details["where"] = pointer(str(details["where"]))
    return problem(refusal.word, refusal.sentence, headers=headers, members=details)


# What the domain calls by its own name and the caller sent as a header.
_HEADERS = frozenset({"Idempotency-Key"})


def pointer(where: str) -> str:
    """Return a place in the request: a JSON pointer, "header: …" or "query: …"."""
    if where in _HEADERS:
        return f"header: {where}"
    if not where or where.startswith(("/", "header: ", "query: ")):
        return where
    return f"/{where}"


def invalid_from(errors: list[dict[str, Any]]) -> Invalid:
    """Turn the first fault that pydantic found into a refusal that says where, and lists the others."""
    found = [(_place(tuple(error["loc"])), str(error["msg"])) for error in errors]
    where, reason = found[0]
    more = [{"where": place, "reason": why} for place, why in found[1 : _FAULTS_LISTED_MAX + 1]]
    at = f" ({where})" if where else ""
    return Invalid(
        f"This request can't be taken: {_lower(reason)}{at}.",
        where=where,
        reason=reason,
        **({"also": more} if more else {}),
    )


# One fault is what a caller mends; a hundred would only repeat what they sent.
_FAULTS_LISTED_MAX = 9
_PLACE_LENGTH_MAX = 200


def _place(loc: tuple[Any, ...]) -> str:
    source, path = str(loc[0]), loc[1:]
    if source == "body":
        # The first step is the name of our own parameter.
        steps = "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in path[1:])
        return "".join(c if c.isprintable() else "\ufffd" for c in steps)[:_PLACE_LENGTH_MAX]
    name = "/".join(str(step) for step in path)
    return f"{source}: {name}"[:_PLACE_LENGTH_MAX]


def _lower(reason: str) -> str:
    return reason[:1].lower() + reason[1:]


# --- exceptions of the framework ------------------------------------------------------------------------


def on_refusal(request: HttpRequest, error: Refusal) -> HttpResponse:
    return refused(error)


def on_validation_error(request: HttpRequest, error: NinjaValidationError) -> HttpResponse:
    """A request that doesn't fit its call. Without any body there was nothing to fit: say that instead."""
    if request.method == "POST" and not request.body and str(error.errors[0]["loc"][0]) == "body":
        try:
            parse(b"")
        except UnreadableJson as empty:
            return refused(empty)
    return refused(invalid_from(error.errors))


def on_http_error(request: HttpRequest, error: HttpError) -> HttpResponse:
    """The framework's own errors; it wraps whatever stopped the reading of a body."""
    cause = error.__cause__
    if isinstance(cause, Refusal):
        return refused(cause)
    if cause is not None:
        return on_unknown(request, cause)
    if isinstance(error, AuthenticationError):
        return problem("unauthorized", "Give a bearer token.")
    return problem("bad_request", f"The request can't be read: {error.message}.")


def on_missing(request: HttpRequest, error: Http404) -> HttpResponse:
    return no_such_address(request)


def no_such_address(request: HttpRequest) -> HttpResponse:
    return refused(NotFound("There is no such address in this API, or nothing of that id that you can see."))


def on_database_error(request: HttpRequest, error: DatabaseError | InterfaceError) -> HttpResponse:
    """The database is away, or broke up a deadlock: the caller repeats identically."""
    log.warning("api_unavailable", path=request.path, error=type(error).__name__, sentence=str(error)[:500])
    return problem(
        "unavailable",
        "The journal could not be asked; whether this call was carried out isn't known.",
        headers={"Retry-After": str(UNAVAILABLE_RETRY_SECONDS)},
    )


def on_unknown(request: HttpRequest, error: BaseException) -> HttpResponse:
    """A defect of ours: logged under an id, told without internals."""
    error_id = f"err_{uuid.uuid4().hex}"
    log.error("api_failed", error_id=error_id, method=request.method, path=request.path, exc_info=error)
    return problem(
        "internal_error",
        "Recourse failed on this call; whether it was carried out isn't known.",
        members={"error_id": error_id},
    )


HANDLERS: list[tuple[type[Exception], Any]] = [
    (Refusal, on_refusal),
    (NinjaValidationError, on_validation_error),
    (HttpError, on_http_error),
    (Http404, on_missing),
    (OperationalError, on_database_error),
    (InterfaceError, on_database_error),
    (Exception, on_unknown),
]


# --- the pages that `type` points at --------------------------------------------------------------------


def explain(request: HttpRequest, word: str) -> HttpResponse:
    """GET /problems/<word>: what the word means, without a login."""
    meant = WORDS.get(word)
    if meant is None:
        return refused(NotFound(f"There is no problem called {word[:64]}."))
    return answered(
        200,
        {
            "type": f"/problems/{word}",
            "word": word,
            "status": meant.status,
            "reason": HTTPStatus(meant.status).phrase,
            "title": meant.title,
            "meaning": meant.meaning,
        },
    )


def explain_all(request: HttpRequest) -> HttpResponse:
    """GET /problems/: every word."""
    words = [
        {"type": f"/problems/{word}", "word": word, "status": meant.status, "title": meant.title}
        for word, meant in sorted(WORDS.items())
    ]
    return answered(200, {"problems": words})
