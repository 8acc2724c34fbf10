"""The API put together: its routes, its strict reader, its refusals, and its OpenAPI document."""

from __future__ import annotations

import functools
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.http.response import HttpResponseBase
from django.urls import URLPattern, path, re_path, register_converter
from django.views.decorators.csrf import csrf_exempt
from ninja import NinjaAPI
from ninja.openapi.schema import OpenAPISchema

from console.api import answers, approvals, cases, operations, problems, runs
from console.api.problems import CONTENT_TYPE, WORDS, answered, no_such_address, on_unknown, refused
from console.api.reading import StrictParser, check_body
from runs.refusals import Refusal

ROOT = "/api/v1/"
DESCRIPTION = (
    "Recourse journals every effect before it is sent. Every call can be repeated with the same content and "
    "gives the same answer, marked `replayed`. Who gets a 5xx or nothing: before go, repeat identically and "
    "send nothing; after, repeat the report until it is acknowledged and start nothing new. Fencing tokens, "
    "ids and digests are opaque."
)


class _Id:
    """Ids of ours and of clients; anything else can't name anything, and is no address."""

    regex = r"[A-Za-z0-9_.:-]{1,64}"

    def to_python(self, value: str) -> str:
        return value

    def to_url(self, value: str) -> str:
        return value


register_converter(_Id, "id")


class Api(NinjaAPI):
    """Ninja, with the refusals of each call in its OpenAPI document."""

    @functools.cache  # noqa: B019 - there is one API in a process
    def _schema(self) -> OpenAPISchema:
        schema = super().get_openapi_schema(path_prefix=ROOT.removeprefix("/"))
        schema["components"]["schemas"]["Problem"] = answers.Problem.model_json_schema()
        for call in calls_of(schema):
            _add_problems(call)
        return schema

    def get_openapi_schema(self, **_: Any) -> OpenAPISchema:
        return self._schema()

    def get_openapi_operation_id(self, operation: Any) -> str:
        name: str = operation.view_func.__name__
        return name


def calls_of(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """Every call of an OpenAPI document."""
    return [call for methods in schema["paths"].values() for call in methods.values()]


def _add_problems(call: dict[str, Any]) -> None:
    by_status: dict[int, list[str]] = {}
    for word in call["x-words"]:
        by_status.setdefault(WORDS[word].status, []).append(word)
    for status, words in sorted(by_status.items()):
        call["responses"][status] = {
            "description": "; ".join(f"`{word}`: {WORDS[word].title}" for word in words),
            "content": {CONTENT_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }


def _make() -> Api:
    made = Api(
        title="Recourse",
        version="1",
        description=DESCRIPTION,
        parser=StrictParser(),
        docs_url=None,
        openapi_url=None,
        urls_namespace="api",
    )
    for router in (runs.router, operations.router, cases.router, approvals.router):
        made.add_router("", router)
    for kind, handler in problems.HANDLERS:
        made.add_exception_handler(kind, handler)
    return made


api = _make()


def _guarded(view: Any) -> Any:
    """Let a request through to its call once its head is fit, and turn the router's own refusal around."""

    @csrf_exempt
    @functools.wraps(view)
    def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        try:
            if request.method == "POST":
                check_body(request)
            response: HttpResponseBase = view(request, *args, **kwargs)
        except Refusal as refusal:
            return refused(refusal)
        except Exception as error:  # noqa: BLE001 - nothing that escapes may be shown as it is
            return on_unknown(request, error)
        if isinstance(response, HttpResponseNotAllowed):
            return _not_allowed(request, response["Allow"])
        return response

    return guarded


def _not_allowed(request: HttpRequest, allowed: str) -> HttpResponse:
    methods = ", ".join(sorted(allowed.split(", ")))
    return refused(
        problems.MethodNotAllowed(f"This address takes {methods}, not {(request.method or '')[:20]}."),
        headers={"Allow": methods},
    )


def openapi(request: HttpRequest) -> HttpResponse:
    """GET /api/v1/openapi.json, without a login: what the calls are is no secret."""
    if request.method not in {"GET", "HEAD"}:
        return _not_allowed(request, "GET")
    return answered(200, api.get_openapi_schema())


def _patterns() -> list[URLPattern]:
    routes: list[Any] = api.urls[0]
    calls = [
        URLPattern(route.pattern, _guarded(route.callback), route.default_args, route.name)
        for route in routes
        if route.name != "api-root"
    ]
    return [
        path("openapi.json", csrf_exempt(openapi), name="openapi"),
        *calls,
        re_path(r"^.*$", csrf_exempt(no_such_address), name="no_such_address"),
    ]


urlpatterns = _patterns()
