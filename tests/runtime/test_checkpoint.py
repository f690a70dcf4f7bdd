"""A journal may be begun before its snapshot is there."""

import pytest

from baryflow.runtime import Checkpoint
from baryflow.runtime.checkpoint import Snapshot
from tests.runtime.test_journal import batch, same


@pytest.fixture
def reopen(tmp_path):
    opened = []

    def open_again():
        while opened:
            opened.pop().close()
        opened.append(Checkpoint(tmp_path))
        return opened[-1]

    yield open_again
    while opened:
        opened.pop().close()


def recover(checkpoint):
    standings = []
    batches = checkpoint.recover(standings.append)
    return standings[-1].counts, list(batches)


def begin(checkpoint):
    checkpoint.save(Snapshot({}, counts={"batches": 0}))
    checkpoint.append(batch(1), batch(2))
    checkpoint.turn()
    checkpoint.append(batch(3))


def test_killed_between_a_journal_and_its_snapshot_both_journals_are_replayed(reopen):
    begin(reopen())
    counts, batches = recover(reopen())
    assert counts == {"batches": 0}
    assert len(batches) == 3
    assert all(same(found, batch(seed)) for seed, found in enumerate(batches, 1))


def test_once_the_snapshot_is_there_only_its_journal_is_replayed(reopen, tmp_path):
    checkpoint = reopen()
    begin(checkpoint)
    checkpoint.save_turned(Snapshot({}, counts={"batches": 2}))
    checkpoint.append(batch(4))
    counts, batches = recover(reopen())
    assert counts == {"batches": 2}
    assert [found.cursor["offset"] for found in batches] == [300, 400]
    # A damaged one costs only time, as ever.
    newest = max(tmp_path.glob("snapshot-*"))
    newest.write_bytes(newest.read_bytes()[:-3])
    with pytest.warns(UserWarning, match="going on from the one before"):
        counts, batches = recover(reopen())
    assert counts == {"batches": 0}
    assert len(batches) == 4


def test_turned_again_and_again_old_journals_go(reopen, tmp_path):
    checkpoint = reopen()
    begin(checkpoint)
    for n in range(4):
        checkpoint.save_turned(Snapshot({}, counts={"batches": n}))
        checkpoint.turn()
        checkpoint.append(batch(n))
    assert len(list(tmp_path.glob("snapshot-*"))) == 2
    assert len(list(tmp_path.glob("journal-*"))) == 3


def test_what_a_killed_run_left_half_written_goes(reopen, tmp_path):
    begin(reopen())
    (tmp_path / ".snapshot-00000002.bary.k3x_9aqe.unfinished").write_bytes(b"half")
    recover(reopen())
    assert not list(tmp_path.glob(".*"))
