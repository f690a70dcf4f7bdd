"""The description is true: what it allows is answered as it says, and what it forbids is refused."""

import contextlib

import hypothesis
import pytest
import schemathesis
from hypothesis import HealthCheck
from hypothesis.errors import Unsatisfiable

from tests.service.conftest import post, serve

STREAMS = {"get_live", "get_target_live"}  # never end


@pytest.fixture(scope="module")
def service(model, problem):
    with serve(model, rows=50) as client:
        post(client, "0", problem.X_target[:40])
        yield client


@pytest.fixture(scope="module")
def schema(service):
    return schemathesis.openapi.from_dict(service.get("/openapi.json").json())


def operations(schema):
    for found in schema.get_all_operations():
        operation = found.ok()
        if operation.definition.raw["operationId"] not in STREAMS:
            yield operation


def test_every_route_is_described(service, schema):
    from baryflow.service.routes import open_routes, routes

    described = {(o.path, o.method.upper()) for o in (f.ok() for f in schema.get_all_operations())}
    there = {
        (route.path, method)
        for route in [*routes(), *open_routes()]
        if hasattr(route, "methods")
        for method in route.methods - {"HEAD"}
    }
    assert described == there - {("/", "GET"), ("/openapi.json", "GET")}
    assert described


@pytest.mark.parametrize("mode", list(schemathesis.GenerationMode))
def test_what_is_sent_by_the_description_is_answered_by_it(service, schema, mode):
    for operation in operations(schema):

        @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
        @hypothesis.settings(
            max_examples=20, derandomize=True, deadline=None, database=None,
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        def check(case):
            case.call_and_validate(base_url=str(service.base_url))

        with contextlib.suppress(Unsatisfiable):  # what has no parameters cannot be asked wrongly
            check()
