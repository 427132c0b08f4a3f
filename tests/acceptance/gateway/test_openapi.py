"""
The document and the server agree: what a fuzzer sends is refused as the document says, and every
answer has the shape that it promises.
"""

from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from holdfast.gateway.http.openapi import openapi_document
from holdfast.gateway.routes.table import all_routes
from holdfast.gateway.workers.share import ALL
from tests.acceptance.gateway.conftest import Gateway

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
]
NO_GATEWAY: Any = SimpleNamespace(service=None, share=ALL)
DOCUMENT = openapi_document(all_routes(NO_GATEWAY))
OPERATIONS = [(path, method) for path, item in DOCUMENT["paths"].items() for method in item]


@pytest.fixture(scope="module")
def session(shared: Gateway) -> str:
    token = shared.token("fuzz", "read,send,approve,admin")
    client = shared.client(token)
    shared.send(client, "fuzz/a", "run: true")
    shared.waiting(client)
    return token


@pytest.mark.timeout(1800)  # ten times as many examples in `make test-long`
@pytest.mark.parametrize(("path", "method"), OPERATIONS)
def test_a_fuzzer_finds_no_answer_that_the_document_does_not_promise(
    shared: Gateway, session: str, path: str, method: str
) -> None:
    schema = schemathesis.openapi.from_dict(DOCUMENT)
    schema.config.update(base_url=shared.url)
    operation = schema[path][method]
    cases = st.one_of(
        operation.as_strategy(generation_mode=schemathesis.GenerationMode.POSITIVE),
        operation.as_strategy(generation_mode=schemathesis.GenerationMode.NEGATIVE),
    )

    @settings(
        max_examples=max(25, settings().max_examples // 8),
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=cases)
    def fuzz(case: schemathesis.Case) -> None:
        headers = {"authorization": f"Bearer {session}"}
        if path.endswith(
            ("/events", "/verify")
        ):  # an answer that never ends: what it starts with is looked at by the tests of streams
            with httpx.stream(
                method.upper(),
                f"{shared.url}{case.formatted_path}",
                headers={**headers, **_plain(case.headers)},
            ) as answer:
                assert answer.status_code in (200, 400, 403, 404, 409), answer.status_code
            return
        case.call_and_validate(headers=headers, checks=CHECKS, timeout=20)

    fuzz()


def _plain(headers: object) -> dict[str, str]:
    return {
        str(key): str(value)
        for key, value in dict(headers or {}).items()
        if str(key).lower() == "last-event-id" and str(value).isalnum() and str(value).isascii()
    }  # type: ignore[call-overload]
