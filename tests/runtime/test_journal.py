import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from baryflow.runtime import Journal
from baryflow.streams import Batch, Rejected


def batch(seed, n=3):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, 4))
    rows[:, 1] = np.nan
    return Batch(
        rows=rows,
        positions=np.arange(n) + 10 * seed,
        times=[f"2026-01-0{i}" for i in range(n)],
        keys=["é"] * n,
        rejected=[Rejected(seed, "text in 'x'", "a;b\ufffd")] if seed % 2 else [],
        cursor={"offset": 100 * seed, "file": "a.csv"},
    )


def same(a, b):
    np.testing.assert_array_equal(a.rows, b.rows)
    np.testing.assert_array_equal(a.positions, b.positions)
    return (a.times, a.keys, a.rejected, a.cursor) == (b.times, b.keys, b.rejected, b.cursor)


def read(path):
    journal = Journal(path)
    found = list(journal.replay())
    journal.close()
    return found


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "journal.log"
    journal = Journal(path)
    for seed in range(5):
        journal.append(batch(seed, n=seed))
    journal.close()
    return path


def test_batches_come_back_as_they_were(path):
    found = read(path)
    assert len(found) == 5
    assert all(same(b, batch(seed, n=seed)) for seed, b in enumerate(found))


@given(st.data())
def test_a_torn_end_is_cut_off_and_writing_goes_on(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("j") / "journal.log"
    journal = Journal(path)
    ends = [0]
    for seed in range(3):
        journal.append(batch(seed))
        ends.append(path.stat().st_size)
    journal.close()
    length = data.draw(st.integers(0, ends[-1]))
    with path.open("r+b") as file:
        file.truncate(length)
    again = Journal(path)
    whole = sum(end <= length for end in ends[1:])
    assert len(list(again.replay())) == whole
    assert again.cut == length - ends[whole]
    again.append(batch(7))
    again.close()
    found = read(path)
    assert len(found) == whole + 1
    assert same(found[-1], batch(7))


@given(st.data())
def test_a_flipped_byte_ends_the_journal_there(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("j") / "journal.log"
    journal = Journal(path)
    for seed in range(3):
        journal.append(batch(seed))
    journal.close()
    raw = bytearray(path.read_bytes())
    where = data.draw(st.integers(0, len(raw) - 1))
    raw[where] ^= data.draw(st.integers(1, 255))
    path.write_bytes(bytes(raw))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # whether it is told depends on where
        found = read(path)
    assert len(found) < 3
    assert all(same(b, batch(seed)) for seed, b in enumerate(found))


def test_a_write_that_fails_leaves_the_journal_as_it_was(path, monkeypatch):
    journal = Journal(path)
    assert len(list(journal.replay())) == 5
    before = path.read_bytes()

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        journal.append(batch(9))
    monkeypatch.undo()
    assert path.read_bytes() == before
    journal.append(batch(9))
    journal.close()
    assert len(read(path)) == 6


def test_damage_in_the_middle_is_told_and_what_follows_is_kept(tmp_path):
    path = tmp_path / "journal-00000000.log"
    journal, ends = Journal(path), []
    for seed in range(4):
        journal.append(batch(seed))
        ends.append(path.stat().st_size)
    journal.close()
    raw = bytearray(path.read_bytes())
    raw[ends[1] + 20] ^= 1
    path.write_bytes(bytes(raw))
    journal = Journal(path)
    with pytest.warns(UserWarning, match=r"damaged: .* kept in .*\.damaged"):
        found = list(journal.replay())
    journal.close()
    assert len(found) == 2
    assert path.stat().st_size == ends[1]
    assert (tmp_path / "journal-00000000.damaged").read_bytes() == bytes(raw[ends[1] :])
