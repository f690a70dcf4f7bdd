"""Files of a fleet that were written again with as many rows: told, and no reason to stop."""

import os
import warnings
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from baryflow.cli import main
from baryflow.cli.console import Line, report_errors
from baryflow.distributed import follow
from baryflow.distributed.fleet.manifest import Arrival
from baryflow.distributed.parquet import Folder
from baryflow.distributed.store import Store
from tests.distributed import fleets

MODEL = fleets.fit()
TABLES = {"1": fleets.rows_of(0), "2": fleets.rows_of(1)}


@pytest.fixture
def done(client, tmp_path):
    """A folder all of whose files were followed, three of them."""
    fleets.mixed(tmp_path / "in", tables=TABLES)
    do(client, tmp_path)
    return tmp_path


def do(client, folder, source=None):
    where = {"output": folder / "out", "state": folder / "state"}
    return follow(MODEL, source or folder / "in", key="machine", client=client, **where)


def reverse(path):
    """Write a file again, its rows in another order."""
    table = pq.ParquetFile(path).read()
    pq.write_table(table.take(np.arange(table.num_rows)[::-1].copy()), path, row_group_size=17)


def test_rows_of_a_file_that_was_written_again_are_not_followed_again(client, done):
    before = fleets.content(done / "out")
    reverse(done / "in/part-1.parquet")
    fleets.mixed(done / "in", 3, {"1": fleets.rows_of(0, 30, skip=70)}, n_files=1)
    with pytest.warns(
        UserWarning, match=r"in/part-1.parquet was written again .* not followed again"
    ) as told:
        summary = do(client, done)
    assert summary.predicted == 133  # what has come since is followed
    assert before.items() < fleets.content(done / "out").items()
    assert [one.filename for one in told] == [__file__]  # where follow was called


def test_one_warning_is_for_all_files(client, done):
    before = fleets.content(done)
    for path in (done / "in").iterdir():
        os.utime(path, (1e9, 1e9))  # as a copy that was put back may have it
    with pytest.warns(UserWarning, match=r"^3 files were written again .*part-0.parquet") as told:
        do(client, done)
    assert len(told) == 1
    assert fleets.content(done) == before


def test_a_folder_that_was_opened_before_is_looked_at_too(client, tmp_path):
    source = fleets.mixed(tmp_path / "in", tables=TABLES)
    do(client, tmp_path, Folder.open(str(source)))
    do(client, tmp_path, Folder.open(str(source)))
    reverse(source / "part-2.parquet")
    with pytest.warns(UserWarning, match="part-2"):
        do(client, tmp_path, Folder.open(str(source)))


@pytest.mark.parametrize("mark", [None, ""])
def test_what_nothing_was_said_of_is_not_warned_of(client, done, mark):
    state = Store(str(done / "state"))
    arrival = state.load(Arrival, "arrivals/000000.bary")
    assert len(arrival.marks) == 3
    marks = {} if mark is None else dict.fromkeys(arrival.marks, mark)
    state.keep(replace(arrival, marks=marks), "arrivals/000000.bary")
    reverse(done / "in/part-1.parquet")
    do(client, done)  # any warning is an error in these tests


def test_the_command_line_says_it_in_one_line(client, done):
    model = done / "model.bary"
    MODEL.save(model)
    arguments = [
        "backfill", str(model), str(done / "in"), "--dask", client.scheduler.address, "--key", "machine",
        "--drift", "off", "-o", str(done / "out"), "--checkpoint", str(done / "state"),
    ]  # fmt: skip
    reverse(done / "in/part-0.parquet")
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        found = CliRunner().invoke(main, arguments)
    assert found.exit_code == 0
    first, last = found.stderr.splitlines()
    assert first.startswith(f"warning: {done}/in/part-0.parquet was written again")
    assert last == "103 rows of 2 targets = 103 predicted + 0 quarantined"


def test_a_warning_does_not_go_into_the_bar(capsys):
    before = warnings.showwarning
    line = Line()
    line._watched = True
    with warnings.catch_warnings(), report_errors(), line:
        warnings.simplefilter("always")
        line.show("following ███")
        warnings.warn("files have changed", UserWarning, stacklevel=1)
        line.show("following ████")
    assert warnings.showwarning is before
    shown, said, then, _ = capsys.readouterr().err.split("\n")
    assert shown.strip() == "following ███"
    assert said == "warning: files have changed"
    assert then.strip() == "following ████"
