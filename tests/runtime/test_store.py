"""The store: everything that was committed is there, or the start says what is damaged."""

import contextlib
import gc
import os
import random
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest

from baryflow import container
from baryflow.exceptions import BaryflowError, FileFormatError, InvalidInputError
from baryflow.runtime import Loop, Store
from baryflow.runtime.store import Entry
from baryflow.streams import Batch, Rejected
from tests.runtime.ends import full_disk


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


class Application:
    """Remembers what it was given."""

    owner = "run"

    def __init__(self, store):
        self.found, self.loop = [], Loop(self, store)
        self.n_replayed = self.loop.recover()

    def apply(self, entry):
        return int(entry.batch.cursor["offset"])

    def finish(self, entry, result):
        self.found.append(result)
        for message in self.loop.post(entry, "alarms", [{"offset": result}]):
            self.loop.note(message, {"somebody"}, True)

    def state(self):
        return {"found": self.found}

    def restore(self, state):
        self.found = state["found"]

    def add(self, *seeds):
        for entry in self.loop.receive([Entry(batch(seed)) for seed in seeds]):
            self.loop.apply(entry)


@contextlib.contextmanager
def opened(folder):
    with contextlib.closing(Store(folder)) as store:
        yield Application(store)


def test_a_store_that_is_dropped_is_closed_without_a_warning(recwarn):
    Store(None)
    gc.collect()
    assert not recwarn.list


def test_batches_come_back_as_they_were(tmp_path):
    with contextlib.closing(Store(tmp_path)) as store, store.transaction():
        store.append([Entry(batch(seed, n=seed), f"t{seed}", 0, "rows", "key") for seed in range(5)])
    with contextlib.closing(Store(tmp_path)) as store:
        found = [store.read(seq) for seq in store.pending]
    assert [(one.seq, one.generation, one.target) for one in found] == [
        (seed + 1, seed + 1, f"t{seed}") for seed in range(5)
    ]
    assert all(same(one.batch, batch(seed, n=seed)) for seed, one in enumerate(found))


def test_a_transaction_that_fails_changes_nothing(tmp_path):
    with contextlib.closing(Store(tmp_path)) as store:
        with store.transaction():
            store.append([Entry(batch(1))])
            store.write_session("a", 1, 1, "{}", b"first")
        with pytest.raises(ZeroDivisionError), store.transaction():  # noqa: PT012
            store.append([Entry(batch(2))])
            store.write_session("a", 1, 2, "{}", b"second")
            store.write_session("b", 2, 2, "{}", b"new")
            store.trim(1)
            raise ZeroDivisionError
        assert (store.seq, [*store.pending], [*store.sessions]) == (1, [1], ["a"])
        assert store.read_session("a") == b"first"
        with store.transaction():
            store.delete_session("a")
    with contextlib.closing(Store(tmp_path)) as store:
        assert (store.seq, [*store.pending], [*store.sessions]) == (1, [1], [])


def test_what_is_not_committed_is_replayed(tmp_path):
    with opened(tmp_path) as application:
        application.add(1, 2)
        application.loop.commit()
        application.add(3)
        application.add(4)
        expected = list(application.found)
    with opened(tmp_path) as application:
        assert (application.n_replayed, application.found) == (2, expected)
        assert not application.loop.store.pending
        application.add(5)
    with opened(tmp_path) as application:
        assert (application.n_replayed, application.found) == (1, [*expected, 500])


def test_another_schema_version_is_refused(tmp_path):
    with opened(tmp_path) as application:
        store = application.loop.store
        store._connection.execute("UPDATE head SET schema = 7")
    with pytest.raises(InvalidInputError, match="version 7"):
        Store(tmp_path)


@pytest.mark.parametrize("owner", ["run", "serve"])
def test_a_checkpoint_of_an_earlier_version_is_refused_with_the_command_that_finishes_it(
    tmp_path, owner
):
    container.write(tmp_path / "snapshot-00000003.bary", "checkpoint", {"owner": owner}, {})
    (tmp_path / "journal-00000003.log").write_bytes(b"")
    with pytest.raises(InvalidInputError, match=rf"baryflow==0\.2\.0 baryflow {owner} "):
        Store(tmp_path)
    assert not (tmp_path / "store.db").exists()


# -- damage ------------------------------------------------------------------------------------------

PROGRAM = """
import os, signal, sys
from baryflow.runtime import Store
from tests.runtime.test_store import Application
application = Application(Store(sys.argv[1]))
application.add(*range(1, 6))
with application.loop.store.transaction():
    for name in "abcdefgh":
        application.loop.store.write_session(name, 1, 1, "{}", name.encode() * 3000)
application.loop.commit()
application.loop.store._connection.execute("PRAGMA wal_checkpoint")  # so that both files matter
for seed in range(6, 12):
    application.add(seed)
application.loop.flush()
os.kill(os.getpid(), signal.SIGKILL)
"""
EXPECTED = [100 * seed for seed in range(1, 12)]


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """The folder of a process that was killed."""
    folder = tmp_path_factory.mktemp("killed") / "store"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder)], check=False, capture_output=True, text=True
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    return folder


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def check(folder):
    """Return whether everything is there; if not, the start says so and leaves the folder as it is."""
    try:
        with opened(folder) as application:
            assert application.found == EXPECTED
            store = application.loop.store
            assert {name: store.read_session(name)[:1] for name in store.sessions} == {
                name: name.encode() for name in "abcdefgh"
            }
    except BaryflowError:
        return False
    return True


def test_a_kill_loses_nothing(killed, tmp_path):
    shutil.copytree(killed, tmp_path / "copy")
    assert check(tmp_path / "copy")
    with opened(tmp_path / "copy") as application:
        assert not application.loop.unsent("alarms")  # nothing is sent again


@pytest.mark.parametrize("name", ["store.db", "store.db-wal", "store.mark"])
def test_zeros_after_the_end_of_a_file_do_no_harm(killed, tmp_path, name):
    shutil.copytree(killed, tmp_path / "copy")
    with (tmp_path / "copy" / name).open("ab") as file:
        file.write(bytes(5000))
    assert check(tmp_path / "copy")


@pytest.mark.parametrize("name", ["store.db", "store.db-wal", "store.mark"])
def test_a_file_that_is_missing_is_reported(killed, tmp_path, name):
    shutil.copytree(killed, tmp_path / "copy")
    (tmp_path / "copy" / name).unlink()
    with pytest.raises(FileFormatError, match="cannot resume"):
        Store(tmp_path / "copy")


def test_what_a_later_process_has_committed_is_missed_too(tmp_path):
    folder = tmp_path / "store"
    with opened(folder) as application:
        application.add(1)
    shutil.copytree(folder, tmp_path / "before")
    with opened(folder) as application:
        application.add(2)
    shutil.copyfile(tmp_path / "before" / "store.db", folder / "store.db")
    with pytest.raises(FileFormatError, match="transactions are missing"):
        Store(folder)


@pytest.mark.parametrize("name", ["store.db", "store.db-wal", "store.mark"])
@pytest.mark.parametrize("kind", ["flip", "cut", "zeros"])
def test_damage_anywhere_is_reported_or_does_no_harm(killed, tmp_path, name, kind):
    """Many more places are an experiment: experiments/kills/damage.py."""
    rng, n_reported = random.Random(f"{name} {kind}"), 0
    for n in range(12):
        copy = tmp_path / str(n)
        shutil.copytree(killed, copy)
        content = bytearray((copy / name).read_bytes())
        place = rng.randrange(len(content))
        if kind == "flip":
            content[place] ^= 1 << rng.randrange(8)
        elif kind == "cut":
            del content[place:]
        else:
            content[place : place + 600] = bytes(len(content[place : place + 600]))
        (copy / name).write_bytes(content)
        before = contents(copy)
        if not check(copy):
            n_reported += 1
            assert contents(copy) == before
            assert not check(copy)  # the next start says the same
    assert n_reported


# -- full disks --------------------------------------------------------------------------------------


def test_a_full_disk_refuses_a_batch_and_loses_none(tmp_path):
    with opened(tmp_path) as application:
        application.add(1)
        size = os.stat(tmp_path / "store.db-wal").st_size  # noqa: PTH116
        for seed in range(2, 40):
            try:
                with full_disk(size + 700 * seed):
                    application.add(seed)
            except OSError:
                application.add(seed)
        found = list(application.found)
        assert found == [100 * seed for seed in range(1, 40)]
    with opened(tmp_path) as application:
        assert application.found == found


def test_it_can_be_opened_and_read_on_a_full_disk(killed, tmp_path):
    shutil.copytree(killed, tmp_path / "copy")
    with full_disk(0):
        store = Store(tmp_path / "copy")
        assert len(store.pending) == 6
        with pytest.raises(OSError, match=r"store\.db"), store.transaction():
            store.append([Entry(batch(99))])
        assert len(store.pending) == 6
        found = Application(store)  # a replay is applied, though it cannot be committed
        assert found.found == EXPECTED
        store.close()
    assert check(tmp_path / "copy")


def test_a_store_that_could_not_be_created_is_created_when_there_is_room(tmp_path):
    n_failed = 0
    for n in range(40):
        folder = tmp_path / str(n)
        with contextlib.suppress(OSError), full_disk(1500 * n):
            Store(folder).close()
            continue
        n_failed += 1
        with opened(folder) as application:
            application.add(1)
        with opened(folder) as application:
            assert application.found == [100]
    assert n_failed > 10


def test_a_damaged_store_stays_as_it_is_on_a_full_disk(killed, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(killed, copy)
    mark = (copy / "store.mark").read_bytes()
    (copy / "store.mark").write_bytes(bytes(len(mark)))
    with full_disk(0), pytest.raises(FileFormatError, match="mark"):
        Store(copy)
    assert sorted(path.name for path in copy.iterdir()) == ["store.db", "store.db-wal", "store.mark"]
    (copy / "store.mark").write_bytes(mark)
    assert check(copy)
