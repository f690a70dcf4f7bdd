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
    assert float(large["to_client_part_of_the_set"]) < 0.001


@pytest.mark.parametrize("figure", ["flowing", "end"])
def test_it_is_as_good_as_in_memory(figure):
    here = only("memory", how="in memory")
    assert here
    for row in here:
        (apart,) = only("memory", how="distributed", rows=row["rows"])
        assert float(apart[figure]) >= float(row[figure]) - 0.01


def test_what_reaches_the_client_does_not_depend_on_the_rows():
    table = load("traffic")
    assert [int(row["times"]) for row in table] == [1, 4, 16]
    got = [int(row["to_client_result"]) for row in table]
    assert max(got) <= 1.01 * min(got)


def test_a_target_in_partitions_is_learned_as_well_as_a_stream():
    table = load("absorbing")
    streams = {(r["seed"], r["rows"]): r for r in table if r["how"] == "stream"}
    absorbed = [row for row in table if row["how"].startswith("absorb")]
    assert len(streams) == 9
    assert len(absorbed) == 24
    for row in absorbed:
        assert float(row["accuracy"]) >= float(streams[row["seed"], row["rows"]]["accuracy"]) - 0.01
        alike = row["seed"], row["rows"], row["how"].rsplit(",", 1)[0]
        bits = {
            r["bits"] for r in absorbed if (r["seed"], r["rows"], r["how"].rsplit(",", 1)[0]) == alike
        }
        assert len(bits) == 1  # however many workers


@pytest.mark.parametrize("name", ["kills", "order"])
def test_bits_are_the_same(name):
    table = load(name)
    assert len(table) >= 3
    assert all(row["same_bits"] == "True" for row in table)


def test_three_workers_and_the_client_were_killed():
    assert [int(row["kills"]) for row in load("kills")] == [0, 3, 1]


def test_other_pieces_give_nearly_the_same_likelihood():
    table = load("pieces")
    assert len({row["pieces"] for row in table}) == 3
    for row in table:
        assert float(row["nll_sources_off"]) < 0.02
        assert float(row["nll_target_off"]) < 0.02


def test_two_workers_are_faster_than_one_and_give_the_same_bits():
    one, two = load("scaling")
    assert (one["workers"], two["workers"]) == ("1", "2")
    assert float(two["times_as_fast"]) >= 1.6
    assert one["bits"] == two["bits"]


def test_the_cost_model_holds_at_the_sizes_it_was_not_made_from():
    checked = [row for row in load("cost") if int(row["rows"]) in (1_000_000, 4_000_000)]
    assert len(checked) == 4
    assert all(0.75 <= float(row["predicted_by_measured"]) <= 1.33 for row in checked)


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
