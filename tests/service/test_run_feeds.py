"""``baryflow run -o http://``: rows go to a service, which has the models."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from baryflow import OnlineDaDiL
from baryflow.cli import main
from baryflow.client import Client
from baryflow.datasets import make_domains
from baryflow.service import background, create_app

P = make_domains(n_sources=3, n_classes=3, n_features=4, n_per_class=60, random_state=0)


@pytest.fixture(scope="module")
def model():
    fitted = OnlineDaDiL(rehearse=False, keep_sources=False, random_state=0).fit(P.X, P.y, P.domain)
    fitted.feature_names_in_ = np.array(["a", "b", "c", "d"], dtype=object)
    return fitted


@pytest.fixture
def files(model, tmp_path):
    model.save(tmp_path / "model.bary")
    lines = [
        "machine,a,b,c,d",
        *(f"pump-{i % 2}," + ",".join(map(str, row)) for i, row in enumerate(P.X_target[:80])),
    ]
    lines[7] = "pump-0,1,2,three,4"
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n")
    return tmp_path


def run(*arguments):
    return CliRunner().invoke(main, ["run", *map(str, arguments)])


def test_rows_go_to_the_targets_of_a_service_and_count_once(model, files):
    with background(create_app(model)) as url, Client(url) as client:
        how = [files / "model.bary", files / "rows.csv", "-o", url, "--key", "machine"]
        how += ["--quarantine", files / "bad.ndjson", "--checkpoint", files / "kept"]
        for _ in range(2):  # the second has nothing left to send
            found = run(*how)
            assert found.exit_code == 0, found.output
            assert "80 rows = 79 sent + 1 quarantined" in found.stderr
        seen = [client.target(f"pump-{i}")["rows_seen"] for i in range(2)]
        one = run(files / "model.bary", files / "rows.csv", "-o", f"{url}/alone")
        assert one.exit_code == 0, one.output
        assert client.target("alone")["rows_seen"] == 79
    assert seen == [39, 40]
    aside = [json.loads(line) for line in (files / "bad.ndjson").read_text().splitlines()]
    assert [(row["position"], "three" in row["reason"]) for row in aside] == [(7, True)]


@pytest.mark.parametrize("more", [["--save", "m.bary"], ["--events", "e.ndjson"]])
def test_what_the_service_keeps_itself_is_refused(files, more):
    found = run(files / "model.bary", files / "rows.csv", "-o", "http://127.0.0.1:1/x", *more)
    assert found.exit_code == 1
    assert "a service keeps models and events itself" in found.stderr
