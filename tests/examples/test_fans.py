"""The example signals are what their script writes, and what is said of them holds."""

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
        yield importlib.import_module("make_signals"), importlib.import_module("score_signals")
    finally:
        sys.path.remove(str(FOLDER))
        for name in ("make_signals", "score_signals"):
            sys.modules.pop(name, None)


def test_the_script_writes_the_files_that_are_here(scripts, tmp_path):
    written = scripts[0].write(tmp_path)
    assert {path.name for path in written} == {path.name for path in (FOLDER / "fans").iterdir()}
    for path in written:
        assert path.read_bytes() == (FOLDER / "fans" / path.name).read_bytes(), path.name
    assert sum(path.stat().st_size for path in written) < 1_500_000


def test_another_seed_makes_other_fans(scripts):
    ours, others = scripts[0].make(), scripts[0].make(1)
    assert all(not np.array_equal(ours[name][0], others[name][0]) for name in ours)


def test_every_fan_begins_normal_and_knows_all_conditions(scripts):
    make, score = scripts
    for name in make.FANS:
        truth = score.read(FOLDER / "fans", name)[1]
        assert set(truth) == set(make.CONDITIONS)
        assert set(truth[: score.COMMISSIONED]) == {"normal"}
    assert "condition" not in pd.read_csv(FOLDER / "fans" / "fan_e.csv").columns


def test_windows_are_worth_it_and_the_table_says_how_much(scripts):
    found = scripts[1].score()
    assert found.rows < 0.6  # levels alone do not tell
    assert found.flowing >= max(found.source + 0.05, found.standardised_flowing, found.standardised_end)
    assert found.known_flowing >= found.standardised_flowing
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    (line,) = [line for line in page.splitlines() if line.startswith("| 0, the fans here |")]
    told = [float(cell) / 100.0 for cell in line.strip("|").split("|")[1:]]
    # Another BLAS may name a few windows otherwise.
    np.testing.assert_allclose(list(vars(found).values()), told, atol=0.015)
