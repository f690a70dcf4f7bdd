"""The OpenAPI document is correct: valid requests are answered as it says, invalid ones are refused."""

import contextlib

import hypothesis
import pytest
import schemathesis
from hypothesis import HealthCheck
from hypothesis.errors import Unsatisfiable

from baryflow.service.routes import open_routes, routes
from tests.service.conftest import post, serve

STREAMS = {"get_live", "get_target_live"}  # they never end


@pytest.fixture(scope="module")
def service(model, problem):
    with serve(model, rows=50) as client:
        post(client, "0", problem.X_target[:40])
        yield client


#: Statuses that refuse an invalid request; 413 is that of too many rows or labels.
REFUSED = {"expected-statuses": ["400", "404", "409", "413", "415", "422", "429"]}


@pytest.fixture(scope="module")
def schema(service):
    config = schemathesis.Config.from_dict({"checks": {"negative_data_rejection": REFUSED}})
    return schemathesis.openapi.from_dict(service.get("/openapi.json").json(), config=config)


def operations(schema):
    for found in schema.get_all_operations():
        operation = found.ok()
        if operation.definition.raw["operationId"] not in STREAMS:
            yield operation


def test_every_route_is_documented(schema):
    documented = {(o.path, o.method.upper()) for o in (f.ok() for f in schema.get_all_operations())}
    there = {
        (route.path, method)
        for route in [*routes(), *open_routes()]
        if hasattr(route, "methods")
        for method in route.methods - {"HEAD"}
    }
    assert documented == there - {("/", "GET"), ("/openapi.json", "GET")}
    assert documented


def forget_ids(case):
    """Send no ids: one that was used for other rows is refused, which no schema can say."""
    case.headers.pop("Idempotency-Key", None)
    if isinstance(case.body, dict):
        for name in ("batch_id", "id"):
            case.body.pop(name, None)


@pytest.mark.parametrize("mode", list(schemathesis.GenerationMode))
def test_responses_conform_to_the_document(service, schema, mode):
    for operation in operations(schema):

        @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
        @hypothesis.settings(
            max_examples=20, derandomize=True, deadline=None, database=None,
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        def check(case):
            forget_ids(case)
            case.call_and_validate(base_url=str(service.base_url))

        with contextlib.suppress(
            Unsatisfiable
        ):  # an operation without parameters has no invalid requests
            check()


def test_answers_to_labels_and_queries_conform_to_the_document(service, schema):
    labels = [{"position": 1, "label": 0}, {"position": 10**6, "label": "2"}, {"time": "x", "label": 1}]
    body = {"labels": labels, "certify": True, "id": "conform"}
    post(service, "0", [[0.0] * 4] * 8)  # it may have been deleted
    for _ in range(2):
        case = schema["/v1/targets/{name}/labels"]["POST"].Case(
            path_parameters={"name": "0"}, body=body, media_type="application/json"
        )
        answer = case.call_and_validate(base_url=str(service.base_url))
        assert (answer.status_code, len(answer.json()["rejected"])) == (200, 2)
    for path in ("/v1/targets/{name}/query", "/v1/targets/{name}"):
        case = schema[path]["GET"].Case(path_parameters={"name": "0"})
        assert case.call_and_validate(base_url=str(service.base_url)).status_code == 200
