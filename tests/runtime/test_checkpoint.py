"""A journal may be begun before its snapshot exists."""

import pytest

from baryflow.runtime import Checkpoint, Snapshot
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
    snapshots = []
    batches = checkpoint.recover(snapshots.append)
    return snapshots[-1].counts, list(batches)


def begin(checkpoint):
    checkpoint.save(Snapshot("run", counts={"batches": 0}))
    checkpoint.append(batch(1), batch(2))
    checkpoint.rotate()
    checkpoint.append(batch(3))


def test_killed_between_a_journal_and_its_snapshot_both_journals_are_replayed(reopen):
    begin(reopen())
    counts, batches = recover(reopen())
    assert counts == {"batches": 0}
    assert len(batches) == 3
    assert all(same(found, batch(seed)) for seed, found in enumerate(batches, 1))


def test_after_the_snapshot_only_its_journal_is_replayed(reopen, tmp_path):
    checkpoint = reopen()
    begin(checkpoint)
    checkpoint.save_rotated(Snapshot("run", counts={"batches": 2}))
    checkpoint.append(batch(4))
    counts, batches = recover(reopen())
    assert counts == {"batches": 2}
    assert [found.cursor["offset"] for found in batches] == [300, 400]
    # A damaged snapshot costs only time.
    newest = max(tmp_path.glob("snapshot-*"))
    newest.write_bytes(newest.read_bytes()[:-3])
    with pytest.warns(UserWarning, match="trying the snapshot before"):
        counts, batches = recover(reopen())
    assert counts == {"batches": 0}
    assert len(batches) == 4


def test_old_journals_are_deleted(reopen, tmp_path):
    checkpoint = reopen()
    begin(checkpoint)
    for n in range(4):
        checkpoint.save_rotated(Snapshot("run", counts={"batches": n}))
        checkpoint.rotate()
        checkpoint.append(batch(n))
    assert len(list(tmp_path.glob("snapshot-*"))) == 2
    assert len(list(tmp_path.glob("journal-*"))) == 3


def test_unfinished_files_of_a_killed_run_are_deleted(reopen, tmp_path):
    begin(reopen())
    (tmp_path / ".snapshot-00000002.bary.k3x_9aqe.unfinished").write_bytes(b"half")
    recover(reopen())
    assert not list(tmp_path.glob(".*"))
