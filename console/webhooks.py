"""POST /api/v1/providers/<account>/webhook: where providers deliver their notices.

No token, no session, no CSRF: a notice proves itself by its signature. The answer says as little as a sender
needs to stop delivering, and comes after everything is committed.
"""

from __future__ import annotations

from typing import assert_never

from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt

from console.api.problems import (
    MethodNotAllowed,
    answered,
    on_database_error,
    on_unknown,
    problem,
    refused,
)
from console.api.reading import UnsupportedMediaType, check_length
from reconciliation import webhooks
from reconciliation.providers.webhook_schemes import Acknowledgement
from reconciliation.providers.webhook_signing import WebhookNotReady
from runs.canonical import TooLarge
from runs.refusals import Refusal

# When a provider whose notices can't be checked yet may come again: an administrator has a variable to set.
NOT_READY_RETRY_SECONDS = 60


@csrf_exempt
def receive(request: HttpRequest, account: str) -> HttpResponse:
    """Take in one notice of this account. A refusal is a problem document, as everywhere in the API."""
    try:
        return _receive(request, account)
    except WebhookNotReady as refusal:
        # Which variables are missing is for the log and the console, not for whoever asks.
        retry = {"Retry-After": str(NOT_READY_RETRY_SECONDS)}
        return problem(refusal.word, "This account's notices can't be checked here now.", headers=retry)
    except Refusal as refusal:
        return refused(refusal)
    except (OperationalError, InterfaceError) as error:
        return on_database_error(request, error)
    except Exception as error:  # noqa: BLE001 - nothing that escapes may be shown as it is
        return on_unknown(request, error)


def _receive(request: HttpRequest, account: str) -> HttpResponse:
    if request.method != "POST":
        return refused(
            MethodNotAllowed(f"This address takes POST, not {(request.method or '')[:20]}."),
            headers={"Allow": "POST"},
        )
    sent_from = str(request.META.get("REMOTE_ADDR", ""))
    encoding = request.headers.get("Content-Encoding", "identity")
    if encoding.lower() != "identity":
        raise UnsupportedMediaType(f"The body must come as it is, not in {encoding[:40]}.")
    try:
        check_length(request, bytes_max=webhooks.BODY_BYTES_MAX)
    except TooLarge as too_large:
        length = too_large.details.get("bytes_seen", webhooks.BODY_BYTES_MAX + 1)
        webhooks.refuse_oversized(account=account, length=int(length), sent_from=sent_from)
        raise
    taken = webhooks.receive(
        notice=webhooks.Notice(
            account=account,
            headers={name.lower(): value for name, value in request.headers.items()},
            body=request.body,
            query=str(request.META.get("QUERY_STRING", "")),
            sent_from=sent_from,
        )
    )
    match taken.acknowledgement:
        case Acknowledgement.JSON:
            challenge = {"challenge": taken.challenge} if taken.challenge else {}
            return answered(200, {"received": True, "replayed": taken.nothing_new, **challenge})
        case Acknowledgement.ACCEPTED:
            return _plain("[accepted]", status=200)
        case Acknowledgement.NOTHING:
            return _plain("", status=204)
        case _:
            assert_never(taken.acknowledgement)


def _plain(text: str, *, status: int) -> HttpResponse:
    response = HttpResponse(text, status=status, content_type="text/plain; charset=utf-8")
    response["Cache-Control"] = "no-store"
    return response
