"""The example files are what their script writes, and what is said of them holds."""

import importlib
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

FOLDER = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def scripts():
    """Return both scripts, imported from where they stand."""
    sys.path.insert(0, str(FOLDER))
    try:
        yield importlib.import_module("make_machines"), importlib.import_module("score_machines")
    finally:
        sys.path.remove(str(FOLDER))
        for name in ("make_machines", "score_machines"):
            sys.modules.pop(name, None)


def test_the_script_writes_the_files_that_are_here(scripts, tmp_path):
    written = scripts[0].write(tmp_path)
    assert {path.name for path in written} == {path.name for path in (FOLDER / "pumps").iterdir()}
    for path in written:
        assert path.read_bytes() == (FOLDER / "pumps" / path.name).read_bytes(), path.name


def test_another_seed_makes_other_pumps(scripts):
    ours, others = scripts[0].make(), scripts[0].make(1)
    assert all(not np.array_equal(ours[name][0], others[name][0]) for name in ours)


def test_the_files_are_small():
    assert sum(path.stat().st_size for path in (FOLDER / "pumps").iterdir()) < 1_500_000


def test_the_export_is_as_awkward_as_exports_are_and_says_what_was_measured(scripts):
    make, score = scripts
    path = FOLDER / "pumps" / "pump_d.csv"
    raw = path.read_bytes()
    assert raw.startswith(b"\xef\xbb\xbftime;")
    assert all(word in raw for word in (b"Bad", b";;", b"No Data", b"I/O Timeout", b"\r\n"))
    assert raw.decode("utf-8-sig").splitlines()[1].startswith(";rpm;m³/h;bar;")
    names = [sensor.name for sensor in make.SENSORS]
    words = ["Bad", "No Data", "I/O Timeout"]
    frame = pd.read_csv(path, sep=";", decimal=",", skiprows=[1], na_values=words, encoding="utf-8-sig")
    readings, conditions = score.read(path)
    np.testing.assert_array_equal(frame[names].to_numpy(dtype=float), readings)
    assert frame["condition"].tolist() == conditions.tolist()
    truth = make.make()["pump_d"][0]
    assert 0.005 < np.isnan(readings).mean() < 0.02
    there = ~np.isnan(readings)
    decimals = np.array([sensor.decimals for sensor in make.SENSORS])
    off = np.abs(readings - truth) * 10.0**decimals
    assert off[there].max() < 0.501


def test_the_pump_without_labels_has_none_and_knows_all_conditions(scripts):
    make, score = scripts
    assert score.read(FOLDER / "pumps" / "pump_e.csv")[1] is None
    truth = pd.read_csv(FOLDER / "pumps" / "pump_e_labels.csv")
    rows = pd.read_csv(FOLDER / "pumps" / "pump_e.csv")
    assert truth["time"].tolist() == rows["time"].tolist()
    assert set(truth["condition"]) == set(make.CONDITIONS)


def test_adapting_is_worth_it_on_the_files_and_the_table_says_how_much(scripts):
    found = scripts[1].score()
    assert 0.75 <= found.source <= 0.85
    assert found.standardised_flowing > found.source
    assert found.flowing >= found.source + 0.05
    assert found.flowing >= max(found.standardised_flowing, found.standardised_end)
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    (line,) = [line for line in page.splitlines() if line.startswith("| 0, the files here |")]
    told = [float(cell) / 100.0 for cell in line.strip("|").split("|")[1:]]
    # Another BLAS may name a few rows otherwise.
    np.testing.assert_allclose(list(vars(found).values()), told, atol=0.01)
