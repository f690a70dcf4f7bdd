"""Rewritten files with as many rows as before cause a warning, and are not processed again."""

import os
import warnings
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from baryflow.cli import main
from baryflow.cli.console import Line, report_errors
from baryflow.distributed import backfill
from baryflow.distributed.files import Files
from baryflow.distributed.manifest import Manifest
from tests.distributed import fleets

MODEL = fleets.fit()
TABLES = {"1": fleets.rows_of(0), "2": fleets.rows_of(1)}


@pytest.fixture
def done(client, tmp_path):
    """A folder with three files that were processed."""
    fleets.mixed(tmp_path / "in", tables=TABLES)
    do(client, tmp_path)
    return tmp_path


def do(client, folder):
    where = {"output": folder / "out", "state": folder / "state"}
    return backfill(MODEL, folder / "in", key="pump", client=client, **where)


def reverse(path):
    """Rewrite a file with its rows in reverse order."""
    table = pq.ParquetFile(path).read()
    pq.write_table(table.take(np.arange(table.num_rows)[::-1].copy()), path, row_group_size=17)


def test_rows_of_a_rewritten_file_are_not_processed_again(client, done):
    before = fleets.content(done / "out")
    reverse(done / "in/part-1.parquet")
    fleets.mixed(done / "in", 3, {"1": fleets.rows_of(0, 30, skip=70)}, n_files=1)
    with pytest.warns(UserWarning, match=r"in/part-1.parquet was rewritten") as caught:
        summary = do(client, done)
    assert summary.predicted == 133  # new files are processed
    assert before.items() < fleets.content(done / "out").items()
    assert [one.filename for one in caught] == [__file__]  # where backfill was called


def test_one_warning_covers_all_files(client, done):
    before = fleets.content(done)
    for path in (done / "in").iterdir():
        os.utime(path, (1e9, 1e9))  # as in a restored copy
    with pytest.warns(UserWarning, match=r"^3 files were rewritten .*part-0.parquet") as caught:
        do(client, done)
    assert len(caught) == 1
    assert fleets.content(done) == before


def test_files_without_a_known_version_cause_no_warning(client, done):
    state = Files(str(done / "state"))
    manifest = state.load(Manifest, "manifests/000000.bary")
    assert len(manifest.versions) == 3
    state.save(replace(manifest, versions={}), "manifests/000000.bary")
    reverse(done / "in/part-1.parquet")
    do(client, done)  # any warning is an error in these tests


def test_the_command_line_prints_one_warning(client, done):
    model = done / "model.bary"
    MODEL.save(model)
    arguments = [
        "backfill", str(model), str(done / "in"), "--dask", client.scheduler.address, "--key", "pump",
        "--drift", "off", "-o", str(done / "out"), "--checkpoint", str(done / "state"),
    ]  # fmt: skip
    reverse(done / "in/part-0.parquet")
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        found = CliRunner().invoke(main, arguments)
    assert found.exit_code == 0
    first, last = found.stderr.splitlines()
    assert first.startswith(f"warning: {done}/in/part-0.parquet was rewritten")
    assert last == "103 rows of 2 targets = 103 predicted + 0 quarantined"


def test_a_warning_does_not_break_the_progress_bar(capsys):
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
