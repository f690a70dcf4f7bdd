"""Metrics, health and structured logs of ``run``, and commands that use a model without following."""

import json
import logging
import socket
import struct
import subprocess
import sys
import urllib.error
import urllib.request
import warnings

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import baryflow
from baryflow import OnlineDaDiL
from baryflow.cli import main
from baryflow.cli.console import Stop, report_errors
from baryflow.cli.metrics import RunMetrics
from baryflow.datasets import make_domains
from baryflow.runtime import Runner, SessionConfig
from tests.runtime.ends import Rows
from tests.waiting import PATIENCE, ask_to_end

P = make_domains(n_sources=3, n_classes=3, n_features=4, n_per_class=40, random_state=0)
COLUMNS = list("abcd")
CLASSES = np.array(["normal", "worn", "broken"])


def call(*arguments, code=0, **how):
    result = CliRunner().invoke(main, [str(a) for a in arguments], **how)
    assert result.exit_code == code, f"{result.output}\n{result.exception!r}"
    return result


@pytest.fixture(scope="module")
def model():
    frame = pd.DataFrame(P.X, columns=COLUMNS)
    names = np.array(["", "north", "south", "west"])[P.domain]
    fitted = OnlineDaDiL(classifier="linear", validate=False, keep_sources=True, random_state=0)
    return fitted.fit(frame, CLASSES[P.y], names)


@pytest.fixture
def files(model, tmp_path):
    model.save(tmp_path / "model.bary")
    lines = [",".join(map(str, row)) for row in P.X_target[:100]]
    lines[6] = "1,2,three,4"
    (tmp_path / "rows.csv").write_text("\n".join([",".join(COLUMNS), *lines]) + "\n")
    return tmp_path


# -- metrics -----------------------------------------------------------------------------------------


def get(url):
    with urllib.request.urlopen(url, timeout=PATIENCE) as answer:  # noqa: S310 - loopback
        return answer.status, answer.read().decode()


def test_a_client_that_goes_away_prints_nothing(capfd):
    with RunMetrics(0) as metrics:
        port = int(metrics.url.rpartition(":")[2])
        for _ in range(20):
            with socket.create_connection(("127.0.0.1", port)) as one:
                one.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        assert get(f"{metrics.url}/metrics")[0] == 200
    assert capfd.readouterr().err == ""


def test_metrics_and_health_of_a_run(model):
    pytest.importorskip("prometheus_client")
    with RunMetrics(0) as metrics:
        source = metrics.observe(Rows(P.X_target[:100], bad={6}))
        runner = Runner(SessionConfig(model, 16), source)
        with metrics.count("", runner):
            with pytest.raises(urllib.error.HTTPError, match="503"):  # nothing was read yet
                get(f"{metrics.url}/health")
            runner.run()
            _, text = get(f"{metrics.url}/metrics")
            for line in (
                'baryflow_rows_read_total{partition=""} 100.0',
                'baryflow_predictions_total{partition=""} 99.0',
                'baryflow_rows_quarantined_total{partition=""} 1.0',
                'baryflow_batches_total{partition=""} 7.0',
            ):
                assert line in text
            assert "baryflow_last_row_age_seconds" in text
            status, health = get(f"{metrics.url}/health")
            health = json.loads(health)
            assert (status, health["status"], health["rows_read"]) == (200, "ok", 100)
            assert health["last_row_age_seconds"] >= 0
        with pytest.raises(urllib.error.HTTPError, match="404"):
            get(f"{metrics.url}/other")
    assert metrics.url.startswith("http://127.0.0.1:")


def test_run_serves_metrics_while_it_waits_for_rows(files):
    pytest.importorskip("prometheus_client")
    arguments = [files / "model.bary", files / "rows.csv", "--tail", "-o", files / "out.ndjson"]
    more = ["--metrics-port", "0", "--log-format", "json", "--max-latency", "100ms"]
    process = subprocess.Popen(
        [sys.executable, "-m", "baryflow", "run", *map(str, arguments), *more],
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        first = json.loads(process.stderr.readline())
        url = first["message"].removeprefix("metrics: ")
        while 'baryflow_rows_read_total{partition=""} 100.0' not in get(url)[1]:
            assert process.poll() is None
        ask_to_end(process)
        last = json.loads(process.stderr.read().splitlines()[-1])
    assert process.returncode == 0
    assert last["message"].startswith("100 rows = 99 predicted + 1 quarantined")


def test_a_metrics_port_that_is_taken_is_an_error(files):
    pytest.importorskip("prometheus_client")
    with RunMetrics(0) as metrics:
        port = metrics.url.rpartition(":")[2]
        found = call("run", files / "model.bary", files / "rows.csv", "--metrics-port", port, code=1)
    assert f"127.0.0.1:{port}" in found.stderr


# -- logs --------------------------------------------------------------------------------------------


def records(text):
    return [json.loads(line) for line in text.splitlines()]


def test_a_log_of_json_has_events_and_nothing_else(files):
    rows = [",".join(map(str, row)) for row in P.X_target[:64]]
    rows = [row.rpartition(",")[0] + "," for row in rows]  # a column without a value
    (files / "rows.csv").write_text("\n".join([",".join(COLUMNS), *rows]) + "\n")
    found = call(
        "run", files / "model.bary", files / "rows.csv", "-o", files / "o.csv", "--log-format", "json"
    )
    log = records(found.stderr)
    assert all(list(one)[:4] == ["time", "level", "logger", "message"] for one in log)
    assert {one["logger"] for one in log} == {"baryflow.cli.run"}
    assert any(one.get("event") == "column" and one["level"] == "WARNING" for one in log)
    assert "64 rows = 64 predicted" in log[-1]["message"]
    text = call("run", files / "model.bary", files / "rows.csv", "-o", files / "p.csv").stderr
    assert [one["message"] for one in log] == text.splitlines()


def test_an_error_is_a_line_of_json_too(files):
    found = call("run", files / "model.bary", files / "none.csv", "--log-format", "json", code=1)
    (record,) = records(found.stderr)
    assert (record["level"], record["exit_code"]) == ("ERROR", 1)
    assert "none.csv" in record["message"]


def test_records_of_other_loggers_and_warnings_are_in_the_log(capsys):
    with warnings.catch_warnings(), report_errors(log_format="json"):
        warnings.simplefilter("always")
        warnings.warn("old \x1b[31m", UserWarning, stacklevel=1)
        logging.getLogger("baryflow.service").error("disk %s", "full")
        try:
            raise ValueError("inner")
        except ValueError:
            logging.getLogger("other").exception("failed")
    first, second, third = records(capsys.readouterr().err)
    assert (first["level"], first["message"]) == ("WARNING", "old \x1b[31m")
    assert (second["logger"], second["message"]) == ("baryflow.service", "disk full")
    assert "ValueError: inner" in third["exception"]
    with report_errors():
        logging.getLogger("baryflow.service").error("disk full")
        logging.getLogger("baryflow.cli.serve").info("listening")
    first, second = capsys.readouterr().err.splitlines()
    assert first.endswith("ERROR disk full")
    assert second == "listening"


def test_a_command_leaves_the_logging_of_the_process_alone(files):
    before = list(logging.getLogger().handlers), warnings.showwarning
    call("inspect", files / "model.bary")
    assert (list(logging.getLogger().handlers), warnings.showwarning) == before


def test_json_logs_are_json_whatever_the_numbers(capfd):
    fields = {"share": float("nan"), "rows": np.int64(3), "said": "NaN"}
    with report_errors(log_format="json"):
        logging.getLogger("baryflow.cli").info("a", extra={"fields": fields})

    def refuse(constant):
        raise ValueError(constant)

    found = json.loads(capfd.readouterr().err, parse_constant=refuse)
    assert (found["share"], found["rows"], found["said"]) == (None, 3, "NaN")


def test_the_second_signal_interrupts_at_once():
    stop = Stop()
    assert not stop.wait(0.0)
    stop.receive(2, None)
    assert stop()
    assert stop.wait()
    with pytest.raises(KeyboardInterrupt):
        stop.receive(2, None)


def test_outputs_rotate(files):
    how = ["run", files / "model.bary", files / "rows.csv", "-o", files / "out.ndjson"]
    call(*how, "--rotate", "4kB", "--checkpoint", files / "kept")
    parts = sorted(files.glob("out*.ndjson*"))
    assert len(parts) > 1
    assert sum(len(part.read_text().splitlines()) for part in parts) == 99
    # Which file a record is in depends on the size: resumed with another one, files would be mixed up.
    for other in ([], ["--rotate", "8kB"]):
        found = call(*how, *other, "--checkpoint", files / "kept", code=1)
        assert "--rotate" in found.stderr


def test_rotation_does_not_replace_an_input(files):
    rows = (files / "rows.csv").rename(files / "rows-000001.csv")
    before = rows.read_bytes()
    found = call("run", files / "model.bary", rows, "-o", files / "rows.csv", "--rotate", "4kB", code=1)
    assert "would be overwritten" in found.stderr
    assert rows.read_bytes() == before
    found = call(
        "run", files / "model.bary", rows, "-o", files / "out.csv", "--rotate", "4kB",
        "--quarantine", files / "out-000001.csv", code=1,
    )  # fmt: skip
    assert "out-000001.csv" in found.stderr


# -- predict -----------------------------------------------------------------------------------------


def test_predict_labels_rows_and_learns_nothing(model, files):
    before = (files / "model.bary").read_bytes()
    found = call(
        "predict", files / "model.bary", files / "rows.csv", "-o", files / "o.ndjson",
        "--quarantine", files / "bad.ndjson", "--batch-size", 16,
    )  # fmt: skip
    assert "100 rows = 99 predicted + 1 quarantined" in found.stderr
    predictions = records((files / "o.ndjson").read_text())
    good = np.delete(P.X_target[:100], 6, axis=0)
    frame = pd.DataFrame(good, columns=COLUMNS)
    assert [one["label"] for one in predictions] == model.predict(frame).tolist()
    assert [one["probability"] for one in predictions] == pytest.approx(
        model.predict_proba(frame).max(axis=1), abs=1e-6
    )
    assert [one["novelty"] for one in predictions] == pytest.approx(model.novelty(frame), abs=1e-6)
    assert [one["position"] for one in records((files / "bad.ndjson").read_text())] == [7]
    assert {one["rows_seen"] for one in predictions} == {0}
    assert (files / "model.bary").read_bytes() == before


def test_predict_has_the_fields_of_run_and_does_not_depend_on_the_batch_size(files):
    arguments = [files / "model.bary", files / "rows.csv"]
    for name, size in (("a.csv", 7), ("b.csv", 1000)):
        call("predict", *arguments, "-o", files / name, "--batch-size", size)
    assert (files / "a.csv").read_bytes() == (files / "b.csv").read_bytes()
    call("run", *arguments, "-o", files / "run.csv")
    header = [(files / name).read_text().splitlines()[0] for name in ("a.csv", "run.csv")]
    assert header[0] == header[1]


def test_predict_uses_what_an_adapted_model_has_learned(files):
    call(
        "run",
        files / "model.bary",
        files / "rows.csv",
        "-o",
        files / "o.csv",
        "--save",
        files / "e.bary",
    )
    call("predict", files / "e.bary", files / "rows.csv", "-o", files / "p.ndjson")
    adapted = baryflow.load(files / "e.bary")
    frame = pd.DataFrame(np.delete(P.X_target[:100], 6, axis=0), columns=COLUMNS)
    labels = [one["label"] for one in records((files / "p.ndjson").read_text())]
    assert labels == adapted.predict(frame).tolist()


def test_predict_reads_standard_input(files):
    found = subprocess.run(
        [sys.executable, "-m", "baryflow", "predict", str(files / "model.bary"), "-"],
        input=(files / "rows.csv").read_bytes(),
        capture_output=True,
        check=True,
    )
    assert len(records(found.stdout.decode())) == 99


def test_predict_is_for_files(files):
    assert "baryflow run" in call("predict", files / "model.bary", "mqtt://h/t", code=1).stderr
    assert (
        "overwritten"
        in call(
            "predict", files / "model.bary", files / "rows.csv", "-o", files / "rows.csv", code=1
        ).stderr
    )


# -- add-source --------------------------------------------------------------------------------------


def labelled(path, rows, labels, columns=COLUMNS):
    pd.DataFrame(rows, columns=columns).assign(state=labels, note="x").to_csv(path, index=False)
    return path


def test_a_source_is_added_by_name_with_its_columns_in_any_order(model, files):
    rows, labels = P.X_target[:120], CLASSES[P.y_target[:120]]
    path = labelled(files / "east.csv", rows[:, ::-1], labels, COLUMNS[::-1])
    out = files / "more.bary"
    found = call("add-source", files / "model.bary", path, "--label", "state", "-o", out)
    assert "120 rows" in found.stderr
    added = baryflow.load(out)
    expected = baryflow.load(files / "model.bary").add_source(
        pd.DataFrame(rows, columns=COLUMNS), labels, "east"
    )
    assert added.sources_ == ["east", "north", "south", "west"]
    frame = pd.DataFrame(P.X_target, columns=COLUMNS)
    np.testing.assert_array_equal(added.predict_proba(frame), expected.predict_proba(frame))
    call("run", out, files / "rows.csv", "-o", files / "o.csv")


def test_several_files_are_one_source_that_needs_a_name(files):
    paths = [
        labelled(files / f"{name}.csv", P.X_target[i::2], CLASSES[P.y_target[i::2]])
        for i, name in enumerate(("e1", "e2"))
    ]
    how = ["add-source", files / "model.bary", *paths, "--label", "state", "-o", files / "more.bary"]
    assert "--name" in call(*how, code=1).stderr
    call(*how, "--name", "east")
    assert "east" in baryflow.load(files / "more.bary").sources_


def test_sources_that_cannot_be_added_are_refused(model, files):
    path = labelled(files / "east.csv", P.X_target[:, :3], CLASSES[P.y_target], COLUMNS[:3])
    how = ["add-source", files / "model.bary", path, "--label", "state", "-o", files / "more.bary"]
    assert "'d'" in call(*how, code=1).stderr
    labelled(path, P.X_target, CLASSES[P.y_target])
    taken = call(*how, "--name", "north", code=1).stderr
    assert "already has a source 'north': choose another name with --name" in taken
    bare = OnlineDaDiL(classifier="linear", validate=False, random_state=0)
    bare.fit(pd.DataFrame(P.X, columns=COLUMNS), CLASSES[P.y], P.domain).save(files / "bare.bary")
    found = call("add-source", files / "bare.bary", path, "--name", "9", *how[3:], code=1)
    assert "--keep-rows" in found.stderr
    assert not (files / "more.bary").exists()


def test_packages_that_print_their_own_records_are_left_out(capsys):
    chatty = logging.getLogger("chatty")
    chatty.setLevel(logging.INFO)
    with report_errors(log_format="json"):
        logging.getLogger("chatty.part").info("hello")
        chatty.addHandler(logging.NullHandler())
        logging.getLogger("chatty.part").error("handled elsewhere")
        chatty.handlers.clear()
        logging.getLogger("chatty.part").warning("once")
    assert [one["message"] for one in records(capsys.readouterr().err)] == ["once"]
