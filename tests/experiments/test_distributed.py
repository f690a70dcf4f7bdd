"""What the committed results of the fit over partitions show."""

import numpy as np
import pytest

from experiments.distributed.client import read
from experiments.distributed.data import Problem, load, size
from experiments.distributed.watched import Watched


def only(name, **where):
    return [row for row in load(name) if all(row[key] == value for key, value in where.items())]


def test_rows_are_the_same_however_many_are_asked_for_together():
    problem = Problem(n_sources=2, n_classes=3, n_columns=5)
    some, more = problem.rows(2 * 20_000), problem.rows(2 * 16_384)
    np.testing.assert_array_equal(some[0][:16_384], more[0][:16_384])
    assert set(some[2].tolist()) == {1, 2}


def test_files_hold_the_rows(tmp_path):
    import pyarrow.parquet as pq

    problem = Problem(n_sources=2, n_classes=3, n_columns=5)
    table = pq.read_table(problem.write(tmp_path, 600))
    X, y, source = problem.rows(600)
    np.testing.assert_array_equal(table["sensor_04"].to_numpy(), X[:, 4])
    np.testing.assert_array_equal(table["state"].to_numpy(), y)
    np.testing.assert_array_equal(table["plant"].to_numpy(), source)


def test_more_rows_than_memory_are_fit_and_stay_away_from_the_client():
    large = max(only("memory", how="distributed"), key=lambda row: int(row["rows"]))
    assert float(large["times_the_limits"]) >= 2.0
    assert int(large["workers_lost"]) == 0
    beside_the_model = int(large["to_client"]) - int(large["model_bytes"])
    assert beside_the_model < 0.001 * 1e6 * float(large["parquet_mb"])


@pytest.mark.parametrize("figure", ["flowing", "end"])
def test_a_sample_is_as_good_as_all_rows(figure):
    for seed in ("0", "1", "2"):
        (sample,) = only("classifiers", how="sample 50000", seed=seed)
        (everything,) = only("classifiers", how="all rows", seed=seed)
        assert float(sample[figure]) >= float(everything[figure]) - 0.01


def test_what_reaches_the_client_does_not_depend_on_the_rows():
    table = load("traffic")
    assert [int(row["times"]) for row in table] == [1, 4, 16]
    for row in table:  # the model, and a message for each task
        beside_the_model = int(row["to_client_result"]) - int(row["model_bytes"])
        assert beside_the_model <= 1000 * int(row["pieces"])


@pytest.mark.parametrize("name", ["kills", "order"])
def test_bits_are_the_same(name):
    table = load(name)
    assert len(table) >= 3
    assert all(row["same_bits"] == "True" for row in table)


def test_a_worker_in_each_pass_and_the_client_were_killed():
    assert [int(row["kills"]) for row in load("kills")] == [0, 2, 1]


def test_other_pieces_give_the_same_bits():
    table = load("pieces")
    assert len({row["pieces"] for row in table}) == 3
    assert len({row["bits"] for row in table if row["shuffled"] == "False"}) == 1
    for row in table:
        assert float(row["nll_sources_off"]) < 0.02


def test_a_fleet_costs_little_more_than_a_plain_loop():
    found = {row["what"]: row for row in load("fleet")}
    loop, workers = found["plain loop"], found["2 workers"]
    assert loop["targets"] == workers["targets"] == "2000"
    assert float(workers["per_core"]) >= 0.8 * float(loop["per_core"])
    assert found["kills"]["result"].endswith("same bytes")


def test_rows_stay_away_from_the_client(tmp_path):
    """What a proxy between client and scheduler sees; results/traffic.csv has more sizes."""
    rows = Problem(n_sources=2, n_classes=3, n_columns=16).write(tmp_path, 4 * 32_768)
    with Watched(1) as cluster:
        figures, _ = cluster.fit(rows, "--partition-bytes", 1, "--sample-rows", 1500)
    assert len(read(rows, partition_bytes=1).partitions) == 8
    assert figures["to_client"] - figures["model_bytes"] < 0.02 * size(rows)
    assert figures["to_client"] > 0.5 * figures["model_bytes"]  # what was learned did come this way
