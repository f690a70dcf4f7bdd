"""Files on the path of a row, as docs/about/architecture.md shows it, and files that sync others."""

import contextlib
import re
import sys
import threading
from pathlib import Path

import httpx
import numpy as np
import pytest

import baryflow
from baryflow import OnlineDaDiL
from baryflow.datasets import make_domains
from baryflow.runtime import Outputs, Runner, SessionConfig, Store
from baryflow.service import Limits, background, create_app
from baryflow.streams import open_sink, open_source
from baryflow.streams.urls import Credentials
from tests.streams.mosquitto import PASSWORD, USER, Broker, Publisher

ROOT = Path(baryflow.__file__).parent
FOLDER = f"{ROOT}/"
#: What a session does with rows is not the path to it and back.
MODEL = ("core", "drift", "estimators")
COLUMNS = ["x0", "x1", "x2"]
RUNTIME = {f"runtime/{name}.py" for name in ("loop", "session", "store")}
MQTT = {
    *RUNTIME,
    "runtime/runner.py",
    *(f"streams/{name}.py" for name in ("mqtt", "brokers")),
    *(f"streams/{name}.py" for name in ("base", "decoding", "sinks")),
    "validation.py",
}
POST = {
    *RUNTIME,
    *(f"service/{name}.py" for name in ("server", "auth", "routes", "parsing")),
    *(f"service/{name}.py" for name in ("targets", "worker", "worker_targets")),
    "validation.py",
}


class Trace:
    """Files of the package whose functions are called while ``active``, in any thread begun since."""

    def __init__(self):
        self.active, self.files = False, set()

    def __enter__(self):
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_):
        threading.setprofile(None)
        sys.setprofile(None)

    def _note(self, frame, event, _):
        name = frame.f_code.co_filename
        if self.active and event == "call" and name.startswith(FOLDER):
            self.files.add(name.removeprefix(FOLDER))

    def outside_the_model(self):
        return {name for name in self.files if name.partition("/")[0] not in MODEL}


@pytest.fixture(scope="module")
def problem():
    return make_domains(n_sources=3, n_classes=3, n_features=3, n_per_class=60, random_state=0)


@pytest.fixture(scope="module")
def model(problem):
    fitted = OnlineDaDiL(classifier="linear", validate=False, keep_sources=False, random_state=0)
    fitted.fit(problem.X, problem.y, sample_domain=problem.domain)
    fitted.feature_names_in_ = np.array(COLUMNS, dtype=object)
    return fitted


def test_a_row_by_mqtt_visits_no_other_files(problem, model, tmp_path):
    rows = [dict(zip(COLUMNS, row, strict=True)) for row in problem.X_target.tolist()]
    with contextlib.ExitStack() as stack:
        trace = stack.enter_context(Trace())
        broker = stack.enter_context(Broker(tmp_path / "broker"))
        url = broker.url("plant/pump")
        credentials = Credentials(USER, PASSWORD)
        source = stack.enter_context(
            contextlib.closing(open_source(url, columns=COLUMNS, credentials=credentials, durable=True))
        )
        store = stack.enter_context(contextlib.closing(Store(tmp_path / "checkpoint")))
        names = ("predictions", "events")
        sinks = [open_sink(tmp_path / f"{name}.ndjson") for name in names]
        for sink in sinks:
            stack.callback(sink.close)
        outputs = Outputs(*sinks)
        publisher = stack.enter_context(Publisher(broker.port))
        runner = Runner(SessionConfig(model, 1), source, outputs, store=store)
        publisher.send("plant/pump", rows[0])

        def stop():
            if not trace.active and runner.totals.read == 1:
                trace.active = True
                publisher.send("plant/pump", rows[1])
            trace.active = trace.active and runner.totals.read < 2
            return runner.totals.read == 2

        assert runner.run(stop).predicted == 2
    assert trace.outside_the_model() == MQTT


def test_a_post_of_a_row_visits_no_other_files(problem, model, tmp_path):
    rows, limits = problem.X_target.tolist(), Limits(snapshot_seconds=3600.0)  # commits are not traced
    app = create_app(model, state_dir=tmp_path, limits=limits, batch_size=1)
    with (
        Trace() as trace,
        background(app) as url,
        httpx.Client(base_url=url, timeout=300) as client,
    ):
        for number in range(2):
            trace.active = number == 1
            answer = client.post("/v1/targets/pump/rows", json={"rows": [rows[number]]})
            assert answer.json()["last"] == number + 1
        trace.active = False
    assert trace.outside_the_model() == POST


def test_only_models_and_output_files_are_synced_outside_the_store():
    found = {
        path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py") if "fsync" in path.read_text()
    }
    assert found == {"container.py", "streams/sinks.py"}


def test_the_page_names_what_is_there():
    page = (Path(__file__).parents[1] / "docs" / "about" / "architecture.md").read_text(encoding="utf-8")
    boxes = "".join(re.findall(r"```text\n(.*?)```", page, re.DOTALL))
    code = [path.read_text(encoding="utf-8") for path in ROOT.rglob("*.py")]
    names = re.findall(r"\b([A-Z]\w+)\.(\w+)", boxes)
    assert len(names) > 15
    for name, function in names:
        found = [text for text in code if re.search(rf"^class {name}\b", text, re.MULTILINE)]
        assert any(re.search(rf"def {function}\b", text) for text in found), (name, function)
    files = re.findall(r"\w+/[\w/]+\.py", boxes)
    assert all((ROOT / file).is_file() for file in files), files
    assert f"visits {len(MQTT)} files and a POST {len(POST)}" in page
