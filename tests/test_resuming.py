"""What a run must not do: write over its input under another name, or resume with other options."""

import os

import numpy as np
import pytest
from click.testing import CliRunner

from baryflow import OnlineDaDiL
from baryflow.cli import main
from baryflow.datasets import make_domains
from baryflow.exceptions import InvalidInputError
from baryflow.service import background, create_app

P = make_domains(n_sources=3, n_classes=3, n_features=4, n_per_class=40, random_state=0)


@pytest.fixture(scope="module")
def model():
    fitted = OnlineDaDiL(classifier="linear", validate=False, keep_sources=False, random_state=0).fit(
        P.X, P.y, P.domain
    )
    fitted.feature_names_in_ = np.array(["a", "b", "c", "d"], dtype=object)
    return fitted


@pytest.fixture
def files(model, tmp_path):
    model.save(tmp_path / "model.bary")
    rows = [f"m,{i}," + ",".join(map(str, row)) for i, row in enumerate(P.X_target[:40])]
    (tmp_path / "rows.csv").write_text("\n".join(["machine,when,a,b,c,d", *rows]) + "\n")
    return tmp_path


def call(*arguments):
    return CliRunner().invoke(main, [*map(str, arguments)])


@pytest.mark.parametrize("link", [os.link, os.symlink])
@pytest.mark.parametrize(
    ("option", "name"),
    [("-o", "out.csv"), ("--quarantine", "bad.csv"), ("--events", "e.ndjson"), ("--save", "new.bary")],
)
def test_an_output_that_is_a_link_to_the_input_is_refused(files, link, option, name):
    before = (files / "rows.csv").read_bytes()
    link(files / "rows.csv", files / name)
    more = [] if option == "-o" else ["-o", files / "other.ndjson"]
    found = call("run", files / "model.bary", files / "rows.csv", *more, option, files / name)
    assert found.exit_code == 1
    assert f"{name} (a link to " in found.stderr
    assert (files / "rows.csv").read_bytes() == before


def test_links_to_models_checkpoints_and_other_outputs_are_refused(files):
    run = ["run", files / "model.bary", files / "rows.csv"]
    os.link(files / "model.bary", files / "same.bary")
    found = call(*run, "-o", files / "out.csv", "--save", files / "same.bary")
    assert "a link to" in found.stderr
    os.link(files / "model.bary", files / "same.png")
    assert "a link to" in call("plot", files / "model.bary", "-o", files / "same.png").stderr
    assert "a link to" in call("report", files / "model.bary", "--html", files / "same.bary").stderr
    (files / "one.ndjson").touch()
    os.link(files / "one.ndjson", files / "two.ndjson")
    found = call(*run, "-o", files / "one.ndjson", "--events", files / "two.ndjson")
    assert "two outputs" in found.stderr
    (files / "kept").mkdir()
    os.link(files / "rows.csv", files / "kept/store.db")
    kept = ["-o", files / "out.ndjson", "--checkpoint", files / "kept"]
    assert "a link to" in call(*run, *kept).stderr
    (files / "kept/store.db").unlink()
    (files / "kept/rows.csv").write_bytes((files / "rows.csv").read_bytes())
    found = call("run", files / "model.bary", files / "kept/rows.csv", *kept)
    assert found.exit_code == 0, found.output


@pytest.mark.parametrize(
    ("first", "then", "words"),
    [
        (
            ["--batch-size", 16],
            ["--batch-size", 8],
            "with --batch-size 8: {} was made with --batch-size 16;",
        ),
        ([], ["--drift", "off"], "with --drift off: {} was made with --drift report;"),
        ([], ["--time", "when"], "with --time when: {} was made without --time;"),
        (["--key", "machine"], [], "without --key: {} was made with --key machine;"),
    ],
)
def test_resuming_with_other_options_is_refused(files, first, then, words):
    kept = files / "kept"
    run = ["run", files / "model.bary", files / "rows.csv", "-o", files / "out.ndjson"]
    run += ["--checkpoint", kept]
    assert call(*run, *first).exit_code == 0
    before = (files / "out.ndjson").read_bytes()
    found = call(*run, *then)
    assert found.exit_code == 1
    assert f"cannot resume {words.format(kept)}" in found.stderr
    assert (
        call(*run, *first, "--max-latency", "1s", "--in-memory", 3).exit_code == 0
    )  # they shape no result
    assert (files / "out.ndjson").read_bytes() == before


def test_a_service_refuses_a_folder_that_was_made_with_other_options(model, tmp_path):
    def start(**options):
        with background(create_app(model, state_dir=tmp_path / "state", **options)):
            pass

    start(batch_size=8)
    start(batch_size=8)
    with pytest.raises(InvalidInputError, match="cannot resume with --batch-size 16"):
        start(batch_size=16)
    with pytest.raises(InvalidInputError, match="cannot resume with --drift off"):
        start(batch_size=8, drift="off")
