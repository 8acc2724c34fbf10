"""Requests made from the OpenAPI document: no 5xx, and every answer is one that the document promises."""

from __future__ import annotations

import json
from typing import Any

import pytest
import schemathesis
from django.core.wsgi import get_wsgi_application
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from console.api import assembly
from tests.integration.api.world import World, in_doubt, read, working

# Repeats meet unique constraints, which end a transaction that a test would hold open.
pytestmark = pytest.mark.usefixtures("transactional_db")

# Enough to vary every member of every body; the corpus of hostile bodies is its own test.
EXAMPLES_MAX = 15
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


def document() -> dict[str, Any]:
    # As a client gets it: through JSON, where statuses are text.
    schema: dict[str, Any] = json.loads(json.dumps(assembly.api.get_openapi_schema()))
    return schema


def call_names() -> list[str]:
    return sorted(call["operationId"] for call in assembly.calls_of(document()))


@pytest.mark.parametrize("name", call_names())
def test_generated_requests_get_the_answers_of_the_document(world: World, name: str) -> None:
    schema = schemathesis.openapi.from_dict(document())
    schema.app = get_wsgi_application()
    operation = schema.find_operation_by_id(name)
    made = working(world.worker, read())
    doubtful, case = in_doubt(world.worker)
    ids = {
        "run_id": [made.run, doubtful.run],
        "operation_id": [doubtful.operation],
        "case_id": [case],
        "call_id": ["r1"],
        "index": [1],
    }
    caller = world.operator if "decide" in operation.definition.raw["x-scopes"] else world.worker
    callers = [caller.secret, world.reader.secret, "rec_unknown"]

    @given(case=operation.as_strategy(), data=st.data())
    @settings(
        max_examples=EXAMPLES_MAX,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def ask(case: schemathesis.Case, data: st.DataObject) -> None:
        # Mostly ids that are there, so that more than 404s are seen.
        for parameter, known in ids.items():
            if parameter in case.path_parameters and data.draw(st.integers(0, 3)):
                case.path_parameters[parameter] = data.draw(st.sampled_from(known))
        if isinstance(case.body, dict) and "token" in case.body and data.draw(st.booleans()):
            case.body["token"] = made.token
        secret = callers[0] if data.draw(st.integers(0, 5)) else data.draw(st.sampled_from(callers))
        case.call_and_validate(headers={"Authorization": f"Bearer {secret}"}, checks=CHECKS)

    ask()
