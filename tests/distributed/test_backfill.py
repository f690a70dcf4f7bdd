import os
import signal
import threading
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from baryflow.distributed import follow
from baryflow.distributed.cluster import connect
from baryflow.exceptions import InvalidInputError
from tests.distributed import fleets

MODEL = fleets.fit()


@pytest.fixture(scope="module")
def client():
    with connect("local", 2) as present:
        yield present


def do(client, folder, source, **how):
    how = {"key": "machine", "time": "when", "batch_size": 16, "epoch_rows": 24} | how
    return follow(
        how.pop("model", MODEL), source, output=folder / "out", state=folder / "state", client=client, **how
    )


@pytest.mark.parametrize("layout", [fleets.by_folder, fleets.mixed])
def test_each_target_is_followed_as_if_it_were_alone(client, tmp_path, layout):
    summary = do(client, tmp_path, layout(tmp_path / "in"), drift="tell")
    assert summary.targets == len(fleets.MACHINES)
    assert summary.rows == summary.predicted == sum(fleets.ROWS)
    assert not summary.failed
    for number, key in enumerate(fleets.MACHINES):
        expected, _ = fleets.alone(MODEL, fleets.rows_of(number), tmp_path, batch_size=16, drift="tell")
        assert fleets.read(tmp_path / "out", key) == expected
    assert max(record["rows_seen"] for record in expected) == 48  # it did learn
