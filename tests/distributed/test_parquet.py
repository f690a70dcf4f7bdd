import os
from datetime import date
from decimal import Decimal

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from baryflow.distributed.files import Files
from baryflow.distributed.parquet import Folder, natural_key
from baryflow.distributed.partitions import read_parquet
from baryflow.exceptions import InvalidInputError, UnreachableError
from tests.distributed import histories


def test_partitions_are_row_groups_in_natural_order_of_names(tmp_path):
    rows = histories.table()
    root = histories.folder(tmp_path / "in", n_files=12)
    (root / "_SUCCESS").touch()
    (root / "notes.txt").write_text("no data")
    found = Folder.open(str(root), size=1)
    assert found.n_rows == rows.num_rows
    assert len(found.partitions) == 24  # 300 rows in groups of 150
    read = [batch for partition in found.partitions for batch in found.batches(partition, ["s0"])]
    np.testing.assert_array_equal(pa.Table.from_batches(read)["s0"], rows["s0"])
    assert [partition.path.rsplit(".", 2)[1] for partition in found.partitions[::2]] == [
        str(n + 5) for n in range(12)
    ]


def test_small_row_groups_are_combined(tmp_path):
    assert len(Folder.open(str(histories.folder(tmp_path / "in"))).partitions) == 4


def test_names_are_sorted_naturally():
    names = ["a/part-10", "a/part-9", "a/b", "a/part-09b", "b-1"]
    assert sorted(names, key=natural_key) == ["a/b", "a/part-9", "a/part-09b", "a/part-10", "b-1"]


def test_folder_names_are_columns(tmp_path):
    rows = histories.table().drop_columns(["plant"])
    histories.folder(tmp_path / "plant=a%20b", rows.slice(0, 300), n_files=2)
    histories.folder(tmp_path / "plant=7", rows.slice(300, 100), n_files=1)
    parts = read_parquet(str(tmp_path), label="fault", domain="plant")
    blocks = [block for partition in parts.partitions for block in parts.reader.blocks(partition)]
    assert {name for block in blocks for name in block.domains} == {"a b", "7"}
    assert parts.columns == histories.COLUMNS
    assert parts.left_out == {"note": "holds text"}


def test_each_file_can_be_a_domain(tmp_path):
    root = histories.folder(tmp_path, histories.table().drop_columns(["plant"]), n_files=2)
    parts = read_parquet(str(root), label="fault", domain_from_file=True)
    assert [next(iter(parts.reader.blocks(partition))).domains for partition in parts.partitions] == [
        ["part.5"],
        ["part.6"],
    ]


def test_files_with_equal_names_are_different_domains(tmp_path):
    rows = histories.table().drop_columns(["plant"])
    folders = [histories.folder(tmp_path / name, rows, n_files=1) for name in ("north", "south")]
    parts = read_parquet([str(one) for one in folders], label="fault", domain_from_file=True)
    assert {name for block in blocks_of(parts) for name in block.domains} == {
        "north/part.5",
        "south/part.5",
    }


@pytest.mark.parametrize(
    ("names", "labels"),
    [
        (["1", "20"], [1, 20]),
        (["01", "1"], ["01", "1"]),
        (["1", "__HIVE_DEFAULT_PARTITION__"], [1, None]),
        (["1.0", "%202"], [1, 2]),
        (["1.5", "2"], ["1.5", "2"]),
        (["1", "NaN"], [1, None]),
        (["ok", "ok%20"], ["ok", "ok"]),
        (["ok", "%20"], ["ok", None]),
    ],
)
def test_labels_from_folder_names_equal_those_of_a_column(tmp_path, names, labels):
    rows = histories.table().drop_columns(["fault", "plant"])
    for place, name in enumerate(names):
        folder = tmp_path / f"line={place}" / f"fault={name}"
        histories.folder(folder, rows.slice(0, 10), n_files=1)
    blocks = blocks_of(read_parquet(str(tmp_path), label="fault", domain="line"))
    found = [{block.labels[code] for code in block.label_codes} for block in blocks]
    assert found == [set() if label is None else {label} for label in labels]
    assert [block.without_label for block in blocks] == [10 * (label is None) for label in labels]


def test_folder_names_are_unquoted_and_stripped(tmp_path):
    rows = histories.table().drop_columns(["plant"])
    for name in ("north", "north%20", "%20"):
        histories.folder(tmp_path / f"the%20plant={name}", rows.slice(0, 10), n_files=1)
    blocks = blocks_of(read_parquet(str(tmp_path), label="fault", domain="the plant"))
    assert sorted(block.domains for block in blocks) == [[], ["north"], ["north"]]
    assert sum(block.without_domain for block in blocks) == 10


def blocks_of(parts):
    return [block for partition in parts.partitions for block in parts.reader.blocks(partition)]


def test_labels_and_domains_equal_those_of_a_fit_in_memory(tmp_path):
    big = 2**60
    columns = {
        "s0": pa.array([Decimal("1.5"), None, Decimal("3.0"), Decimal("4.0")]),
        "word": [" ok", "ok ", "NaN", ""],
        "big": [big, big + 1, None, big + 1],
        "day": [date(2024, 1, day) for day in (1, 2, 2, 2)],
        "run": [0, 1, None, -1],
    }
    pq.write_table(pa.table(columns), tmp_path / "rows.parquet")

    def read(label, domain):
        (block,) = blocks_of(read_parquet(str(tmp_path), label=label, domain=domain, columns=["s0"]))
        labels = [block.labels[code] for code in block.label_codes]
        return block.X[:, 0].tolist()[:1], labels, [block.domains[one] for one in block.domain_codes]

    assert read("word", "run") == ([1.5], ["ok", "ok"], ["0", "1"])
    assert read("big", "day") == ([1.5], [big, big + 1, big + 1], ["2024-01-01"] + ["2024-01-02"] * 2)
    assert read("day", "run")[1:] == (["2024-01-01"] + ["2024-01-02"] * 2, ["0", "1", "-1"])


@pytest.mark.skipif(int(pa.__version__.split(".")[0]) < 21, reason="it writes no string views")
def test_string_views_are_read_as_text(tmp_path):
    words = pa.array(["u", None, "v"], pa.string_view())
    raw = pa.array([b"u", None, b"v"], pa.binary_view())
    pq.write_table(pa.table({"s0": [1.0, 2.0, 3.0], "word": words, "raw": raw}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"s0": [4.0], "word": ["w"], "raw": [b"w"]}), tmp_path / "2.parquet")
    found = Folder.open(str(tmp_path))
    assert found.types == {"s0": "number", "word": "text", "raw": "other"}
    (batch,) = found.batches(found.partitions[0], ["s0", "word", "raw"])
    assert batch.take([2, 1])["word"].to_pylist() == ["v", None]
    assert batch.take([2, 1])["raw"].to_pylist() == [b"v", None]
    assert batch["s0"].to_pylist() == [1.0, 2.0, 3.0]
    blocks = blocks_of(read_parquet(str(tmp_path), label="word"))
    assert [block.labels for block in blocks] == [["u", "v"], ["w"]]


def test_duplicate_column_names_are_refused(tmp_path):
    pq.write_table(pa.Table.from_arrays([pa.array([1.0])] * 2, names=["a", "a"]), tmp_path / "a.parquet")
    with pytest.raises(InvalidInputError, match="several columns called 'a'"):
        read_parquet(str(tmp_path))


def test_unusable_rows_are_counted(tmp_path):
    rows = {
        "s0": [1.0, None, np.inf, 4.0, 5.0, -1e151],
        "on": [True, False, None, True, True, True],
        "fault": ["a", "a", "b", None, "b", "a"],
        "plant": pa.array(["x", "x", "x", "x", None, "x"]).dictionary_encode(),
    }
    pq.write_table(pa.table(rows), tmp_path / "rows.parquet")
    parts = read_parquet(str(tmp_path / "rows.parquet"), label="fault", domain="plant")
    (block,) = parts.reader.blocks(parts.partitions[0])
    np.testing.assert_array_equal(block.X, [[1.0, 1.0], [np.nan, 0.0]])
    assert (block.without_label, block.without_domain, block.out_of_range) == (1, 1, 2)
    assert [block.labels[code] for code in block.label_codes] == ["a", "a"]


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"label": "falt"}, "no column 'falt'.*columns: s0"),
        ({"label": "fault", "domain": "plant", "domain_from_file": True}, "exclude each other"),
        ({"columns": ["note"]}, "column 'note' holds text"),
        ({"columns": ["s0"], "ignore": ["gone"]}, "no column 'gone'"),
        ({"ignore": histories.COLUMNS}, "no numeric column"),
        ({"label": "fault", "domain": "fault"}, "'fault' has two roles"),
        ({"label": "s0", "columns": ["s0", "s1"]}, "'s0' has two roles"),
    ],
)
def test_invalid_columns_are_reported(tmp_path, how, words):
    with pytest.raises(InvalidInputError, match=words):
        read_parquet(str(histories.folder(tmp_path)), **how)


@pytest.mark.parametrize("again", ["", "/", "/north", "/north/part.5.parquet", "file://"])
def test_duplicate_files_are_refused(tmp_path, again):
    root = str(histories.folder(tmp_path / "in" / "north", n_files=1).parent)
    same = again + root if again.endswith("//") else root + again
    with pytest.raises(InvalidInputError, match=r"north/part\.5\.parquet would be read twice"):
        read_parquet([root, same], label="fault", domain="plant")


def test_several_file_systems_are_refused(tmp_path):
    root = histories.folder(tmp_path, n_files=1)
    system = fsspec.filesystem("memory")
    system.pipe_file("/elsewhere/part.9.parquet", (root / "part.5.parquet").read_bytes())
    try:
        with pytest.raises(InvalidInputError, match="different file systems"):
            read_parquet([str(root), "memory://elsewhere"], label="fault", domain="plant")
    finally:
        system.rm("/elsewhere", recursive=True)


def test_mismatched_or_damaged_files_are_reported(tmp_path):
    histories.folder(tmp_path, n_files=2)
    pq.write_table(histories.table().drop_columns(["s3"]), tmp_path / "part.9.parquet")
    with pytest.raises(InvalidInputError, match=r"part\.9\.parquet has no column 's3'"):
        read_parquet(str(tmp_path))
    (tmp_path / "part.9.parquet").write_bytes(b"PAR1 and nothing else")
    with pytest.raises(InvalidInputError, match=r"part\.9\.parquet cannot be read as Parquet"):
        read_parquet(str(tmp_path))
    with pytest.raises(InvalidInputError, match="nowhere does not exist"):
        read_parquet(str(tmp_path / "nowhere"))
    with pytest.raises(InvalidInputError, match="cannot open"):
        read_parquet("nonsense://bucket/folder")


def test_an_empty_column_agrees_with_every_kind(tmp_path):
    full = {"s0": [1.0, 2.0], "s1": [3, 4], "fault": ["a", "b"], "never": pa.nulls(2)}
    for n, empty in enumerate(["s1", "fault", None, "s0"]):
        columns = {name: pa.nulls(2) if name == empty else full[name] for name in full}
        (tmp_path / f"{n % 2}").mkdir(exist_ok=True)
        pq.write_table(pa.table(columns), tmp_path / f"{n % 2}" / f"{n}.parquet")
    kinds = {"s0": "number", "s1": "number", "fault": "text", "never": "nothing"}
    assert Folder.open(str(tmp_path)).types == kinds
    for places in (str(tmp_path), [str(tmp_path / name) for name in "01"]):
        parts = read_parquet(places, label="fault")
        assert parts.columns == ["s0", "s1"]
        assert parts.left_out == {"never": "holds nothing"}
        rows = np.concatenate([block.X for block in blocks_of(parts)])
        assert np.isnan(rows).sum(axis=0).tolist() == [2, 2]
        assert sum(block.without_label for block in blocks_of(parts)) == 2
    with pytest.raises(InvalidInputError, match="'never' holds nothing"):
        read_parquet(str(tmp_path), columns=["never"])


def test_unused_columns_may_differ_between_files(tmp_path):
    rows = {"s0": [1.0, 2.0], "s1": [3.0, 4.0], "fault": ["a", "b"], "note": ["-", "-"]}
    pq.write_table(pa.table(rows), tmp_path / "1.parquet")
    pq.write_table(pa.table({**rows, "s1": ["x", "y"]}).drop_columns(["note"]), tmp_path / "2.parquet")
    assert Folder.open(str(tmp_path)).types == {"s0": "number", "fault": "text"}
    for places in (str(tmp_path), [str(tmp_path / f"{n}.parquet") for n in (1, 2)]):
        for how in ({"ignore": ["s1"]}, {"ignore": ["s1", "note"]}, {"columns": ["s0"]}):
            parts = read_parquet(places, label="fault", **how)
            assert sum(len(block.X) for block in blocks_of(parts)) == 4
            assert parts.columns == ["s0"]
        assert parts.left_out["note"] == "differs between files"
        differs = r"'s1' holds number in .*1\.parquet but text in .*2\.parquet"
        for how, words in (
            ({}, differs),
            ({"columns": ["s0", "s1"]}, differs),
            ({"domain": "note", "columns": ["s0"]}, r"2\.parquet has no column 'note', but .*1\."),
        ):
            with pytest.raises(InvalidInputError, match=words):
                read_parquet(places, label="fault", **how)


def test_rewritten_files_have_another_identity(tmp_path):
    root = histories.folder(tmp_path, n_files=2)

    def identity():
        return read_parquet(str(root), label="fault", domain="plant").identity

    before = identity()
    assert identity() == before
    file = root / "part.5.parquet"
    then = file.stat()
    rows = pq.read_table(file)
    pq.write_table(rows.take(np.arange(rows.num_rows)[::-1]), file)  # as many rows as before
    os.utime(
        file, ns=(then.st_atime_ns, then.st_mtime_ns + 1_000_000)
    )  # the clock of the file system may be coarse
    assert identity() != before


class Refused(MemoryFileSystem):
    """A file system that refuses access with an exception of its own."""

    class AccessDeniedError(Exception):
        """Not an OSError."""

    def _refuse(self, *_, **__):
        raise self.AccessDeniedError("no credentials")

    isfile = cat_file = ls = pipe_file = _refuse


def test_errors_of_file_systems_are_translated():
    fsspec.register_implementation("refused", Refused, clobber=True)
    store = Files("refused://bucket", {"secret": "hidden"})
    for call in (
        lambda: Folder.open("refused://bucket"),
        store.names,
        lambda: store.read("a"),
        lambda: store.write("a", b""),
    ):
        with pytest.raises(UnreachableError, match="cannot access refused://bucket: no credentials"):
            call()
    assert "hidden" not in repr(store)
    with pytest.raises(InvalidInputError, match="cannot open nonsense"):
        Files("nonsense://bucket").names()
