"""What people do differently when they call a run again, and what must not be lost by it."""

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner

from baryflow import OnlineDaDiL
from baryflow.cli import main
from baryflow.cli.run import check_shared
from baryflow.client import forward, open_target
from baryflow.datasets import make_domains
from baryflow.exceptions import InvalidInputError
from baryflow.runtime import Runner, SessionConfig, Store
from baryflow.streams import open_sink
from baryflow.streams.urls import Endpoint
from tests.runtime.ends import Rows, feed_rows

P = make_domains(n_sources=3, n_classes=3, n_features=4, n_per_class=60, random_state=0)


def fit(names):
    fitted = OnlineDaDiL(classifier="linear", validate=False, keep_sources=False, random_state=0).fit(
        P.X, P.y, P.domain
    )
    fitted.feature_names_in_ = np.array(list(names), dtype=object)
    return fitted


MODEL = fit("abcd")


def ask_twice(n):
    asked = iter([False] * n)
    return lambda: next(asked, True)


@pytest.mark.parametrize("batch_size", [12, 5, 64])
def test_a_batch_of_another_size_than_before(tmp_path, batch_size):
    for size, stop in ((32, ask_twice(2)), (batch_size, lambda: False)):
        kept = Store(tmp_path / "kept")
        runner = Runner(SessionConfig(MODEL, size), Rows(P.X_target[:50]), store=kept, read_size=6)
        totals = runner.run(stop)
        kept.close()
    assert totals.predicted == 50
    assert runner.session.model.n_samples_seen_ == 50


@pytest.mark.parametrize("names", ["dcba", "abce"])
def test_a_model_of_other_columns_is_refused_before_anything_is_kept(tmp_path, names):
    for model in (MODEL, fit(names), MODEL):
        kept = Store(tmp_path / "kept")
        runner = Runner(SessionConfig(model), Rows(P.X_target[:64]), store=kept)
        try:
            if model is MODEL:
                runner.run(ask_twice(1))
            else:
                with pytest.raises(InvalidInputError, match="a model of other columns"):
                    runner.run()
        finally:
            kept.close()
    assert runner.totals.read == 64


@pytest.fixture
def files(tmp_path):
    MODEL.save(tmp_path / "model.bary")
    rows = [",".join(map(str, row)) + f",m{i % 2}" for i, row in enumerate(P.X_target[:60])]
    rows[7] = rows[7].rpartition(",")[0] + ","
    rows[9] = "1,2,three,4,m0"
    (tmp_path / "rows.csv").write_text("\n".join(["a,b,c,d,machine", *rows[:40]]) + "\n")
    (tmp_path / "more").write_text("\n".join(["1,2,three,4,m0", *rows[40:]]) + "\n")
    return tmp_path


def run(files, *more):
    how = ["run", files / "model.bary", files / "rows.csv", "--checkpoint", files / "kept", *more]
    return CliRunner().invoke(main, list(map(str, how)))


def test_an_output_that_is_left_out_once_keeps_what_it_had(files):
    aside = ["--quarantine", files / "bad.ndjson"]
    for more in (aside, [], aside):
        assert run(files, "-o", files / "out.ndjson", *more).exit_code == 0
        if not more:
            with (files / "rows.csv").open("a") as file:
                file.write((files / "more").read_text())
    found = [json.loads(line)["position"] for line in (files / "bad.ndjson").read_text().splitlines()]
    assert found == [10, 41]


def test_a_table_of_machines_of_which_one_has_no_name(files):
    found = run(files, "-o", files / "out.csv", "--key", "machine")
    assert found.exit_code == 0, found.output
    lines = (files / "out.csv").read_text().splitlines()
    assert lines[0].startswith("key,position")
    assert lines[8].startswith(",8,")
    assert len(lines) == 40


def test_events_do_not_fit_into_a_table(files):
    found = run(files, "-o", files / "out.ndjson", "--events", files / "events.csv")
    assert found.exit_code != 0
    assert ".ndjson" in found.output


def test_a_parquet_file_has_the_fields_of_all_records(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    sink = open_sink(tmp_path / "out.parquet")
    sink.write([{"position": 1}, {"key": "m", "position": 2}])
    sink.close()
    assert parquet.read_table(tmp_path / "out.parquet").column("key").to_pylist() == [None, "m"]


@pytest.mark.parametrize(
    ("name", "kept", "words"), [("o.ndjson", None, "--checkpoint"), ("o.parquet", "kept", ".ndjson")]
)
def test_files_that_parts_of_a_shared_input_would_overwrite_are_refused(name, kept, words):
    with pytest.raises(InvalidInputError, match=words):
        check_shared((name, None, None), kept)


@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
def test_rows_put_aside_by_a_killed_feed_are_there_once(tmp_path):
    program = "import sys; from tests.runtime.ends import feed_rows; feed_rows(sys.argv[1], kill_at=20)"
    killed = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], check=False, capture_output=True, text=True
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    feed_rows(tmp_path)
    lines = (tmp_path / "bad.ndjson").read_text().splitlines()
    assert [json.loads(line)["position"] for line in lines] == list(range(1, 401, 5))


def test_the_folder_of_a_feed_is_not_that_of_a_run(tmp_path):
    class Service:
        def send(self, *_, **__):
            return {"repeated": False}

        def close(self):
            pass

    kept = Store(tmp_path / "kept")
    forward(Rows(P.X_target[:20]), Service(), "x", store=kept)
    with pytest.raises(InvalidInputError, match="use another folder"):
        Runner(SessionConfig(MODEL), Rows(P.X_target[:20]), store=kept).run()
    kept.close()


@pytest.mark.parametrize(
    "url", ["mqtt://bob:hunter2/ab@host/t", "http://bob:hunter2/x", "http://:hunter2@h/x"]
)
def test_no_piece_of_a_password_is_shown(url):
    with pytest.raises(InvalidInputError) as caught:
        (open_target if url.startswith("http") else Endpoint.parse)(url)
    assert "hunter2" not in str(caught.value)


def test_a_parquet_file_that_is_finished_says_so(tmp_path):
    pytest.importorskip("pyarrow")
    open_sink(tmp_path / "out.parquet").close()
    with pytest.raises(InvalidInputError, match="is complete"):
        open_sink(tmp_path / "out.parquet", resume=True)


def test_a_new_checkpoint_beside_existing_outputs_is_a_warning(files):
    out = files / "out.ndjson"
    assert "overwritten" not in run(files, "-o", out).stderr
    assert "overwritten" not in run(files, "-o", out).stderr  # it resumes
    for path in (files / "kept").iterdir():
        path.unlink()
    found = run(files, "-o", out)
    assert (found.exit_code, "out.ndjson is overwritten" in found.stderr) == (0, True)


@pytest.mark.parametrize("name", ["store.db", "store.mark"])
def test_a_checkpoint_without_one_of_its_files_is_refused(files, name):
    run(files, "-o", files / "out.ndjson")
    (files / "kept" / name).unlink()
    before = (files / "out.ndjson").read_bytes()
    found = run(files, "-o", files / "out.ndjson")
    assert (found.exit_code, "cannot resume" in found.stderr) == (1, True)
    assert (files / "out.ndjson").read_bytes() == before
