"""Labels from files, complete or growing, and rows with their labels as one stream."""

import contextlib
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from baryflow.exceptions import InvalidInputError
from baryflow.streams import Batch, Label, open_source
from baryflow.streams.label_records import LabelFormat, parse_time
from baryflow.streams.labels import LabelledSource, open_labels

PLAIN = LabelFormat()


def read(path, how=PLAIN, n=100, **options):
    """Return all labels that are there, and the notices."""
    labels, notices = [], []
    with contextlib.closing(open_labels(path, how, **options)) as source:
        while batch := source.read(n):
            labels += batch.labels
            notices += batch.notices
    return labels, notices


def write(path, *lines):
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def test_csv_and_ndjson_hold_the_same(tmp_path):
    table = write(tmp_path / "a.csv", "position,label", "17,bearing wear", "18,", "", "19,normal")
    objects = write(
        tmp_path / "a.ndjson",
        '{"position": 17, "label": "bearing wear"}',
        '{"position": 18, "label": null}',
        '{"position": 19, "label": "normal"}',
    )
    for path in (table, objects):
        labels, notices = read(path)
        assert [(one.position, one.label) for one in labels] == [(17, "bearing wear"), (19, "normal")]
        assert not notices


def test_a_table_of_labels_that_names_no_rows_is_refused_at_once(tmp_path):
    path = write(tmp_path / "a.csv", "record_id,flow,label", "m5-0,1.5,leak", "m5-1,1.7,worn")
    with pytest.raises(InvalidInputError, match="record_id"):
        read(path, LabelFormat(columns=("speed",), time="stamp"))
    assert len(read(path, LabelFormat(columns=("flow",)))[0]) == 2
    assert len(read(path, LabelFormat(time="record_id"))[0]) == 2


def test_rows_are_known_by_time_offset_and_key_under_the_names_of_the_input(tmp_path):
    path = write(
        tmp_path / "a.csv", "pump;stamp;offset;label;certify", "north;2024-01-01 08:00;;leak;yes",
        "south;;2:17;3;",
    )  # fmt: skip
    first, second = read(path, LabelFormat(time="stamp", key="pump"))[0]
    assert (first.time, first.key, first.label, first.certify) == (
        "2024-01-01 08:00", "north", "leak", True,
    )  # fmt: skip
    assert (second.offset, second.key, second.label, second.certify) == ("2:17", "south", "3", False)
    assert read(path, LabelFormat(time="stamp", certify=True))[0][1].certify
    assert read(path, LabelFormat(time="stamp"))[0][0].key == ""  # one target needs none


def test_a_label_can_bring_its_row(tmp_path):
    path = write(tmp_path / "a.csv", "b;label;a", "1,5;leak;2", "bad;leak;")
    (label,), notices = read(path, LabelFormat(columns=("a", "b")))
    assert label.values == [2.0, 1.5]
    assert "neither" in notices[0]  # no column has a value
    path = write(tmp_path / "a.ndjson", '{"label": 3, "values": [1, null]}')
    label = read(path)[0][0]
    assert label.label == 3
    assert label.values[0] == 1.0
    assert math.isnan(label.values[1])


@pytest.mark.parametrize(
    ("record", "word"),
    [
        ({"label": "leak"}, "neither"),
        ({"position": 1}, "no label"),
        ({"position": "first", "label": "leak"}, "'first'"),
        ({"position": 1.5, "label": "leak"}, "1.5"),
        ({"position": True, "label": "leak"}, "True"),
        ({"position": 1, "label": ["leak"]}, "neither text"),
        ({"position": 1, "label": "leak", "certify": "perhaps"}, "perhaps"),
        ({"label": "leak", "values": ["x"]}, "values[0]"),
        ({"start": "2024-01-02", "end": "2024-01-01"}, "before"),
        ({"start": "yesterday", "end": "2024-01-01"}, "yesterday"),
        ({"time": "2024-01-02", "rating": "NO_ANOMALY"}, "normal class"),
        ("no object", "not valid JSON"),
    ],
)
def test_a_record_that_is_no_label_is_reported_and_stops_nothing(tmp_path, record, word):
    good = '{"position": 2, "label": "leak"}'
    bad = record if isinstance(record, str) else json.dumps(record)
    labels, notices = read(write(tmp_path / "a.ndjson", good, bad, good))
    assert len(labels) == 2
    assert len(notices) == 1
    assert notices[0].startswith("label 2 ")
    assert word in notices[0]


def test_a_table_without_labels_is_refused(tmp_path):
    path = write(tmp_path / "a.csv", "time,labl", "08:00,leak")
    with pytest.raises(InvalidInputError, match="did you mean 'labl'"):
        read(path)
    with pytest.raises(InvalidInputError, match=r"\.parquet"):
        open_labels(tmp_path / "a.parquet", PLAIN)
    with pytest.raises(InvalidInputError, match="MQTT or Kafka"):
        open_labels("opc.tcp://127.0.0.1:4840/", PLAIN)
    write(tmp_path / "a.json", '{"a": [], "b": []}')
    with pytest.raises(InvalidInputError, match="no list"):
        open_labels(tmp_path / "a.json", PLAIN)


# -- AWS Lookout for Equipment -------------------------------------------------------------------------


def test_label_files_of_lookout_have_two_times_and_no_header(tmp_path):
    path = write(
        tmp_path / "labels.csv",
        "2020-01-01T00:00:00.000000,2020-01-03T00:00:00.000000",
        "2020/2/2 0:05,2020/2/7 0:05",
    )
    first, second = read(path)[0]
    assert (first.label, first.time[:10], first.until[:10]) == ("anomaly", "2020-01-01", "2020-01-03")
    assert (second.time, second.until) == ("2020/2/2 0:05", "2020/2/7 0:05")


def test_labels_that_the_aws_command_line_lists(tmp_path):
    span = {"StartTime": "2024-03-04T00:00:00+01:00", "EndTime": 1709600000.5, "LabelGroupName": "g"}
    listed = [
        span | {"Rating": "ANOMALY", "FaultCode": "seal leak", "Equipment": "pump 7"},
        span | {"Rating": "ANOMALY"},
        span | {"Rating": "NO_ANOMALY"},
        span | {"Rating": "NEUTRAL", "FaultCode": "seal leak"},
    ]
    path = write(tmp_path / "labels.json", json.dumps({"LabelSummaries": listed}, indent=2))
    labels, notices = read(path, LabelFormat(normal="good", key="unit"))
    assert [label.label for label in labels] == ["seal leak", "anomaly", "good"]
    assert (labels[0].key, labels[0].until) == ("pump 7", "1709600000.5")
    assert not notices
    assert read(path, LabelFormat(normal="good"))[0][0].key == ""
    table = write(tmp_path / "l.csv", "start_time,end_time,rating,fault code", "1,2,ANOMALY,leak")
    (label,) = read(table)[0]
    assert (label.time, label.until, label.label) == ("1", "2", "leak")


def test_times_are_the_same_however_they_are_written():
    same = ["2024-03-04T02:00:00", "2024-03-04 02:00", "2024/3/4 2:00", "2024-03-04T03:00:00+01:00"]
    assert len({parse_time(text) for text in same}) == 1
    assert parse_time("17") == 17.0
    assert [parse_time(text) for text in ("", "noon", "nan", "2024-13-01", "2024/13/1 0:00")] == [
        None
    ] * 5


# -- growing and interrupted ---------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["csv", "ndjson"])
def test_a_growing_file_is_followed(tmp_path, suffix):
    path = tmp_path / f"labels.{suffix}"
    head = "position,label\n" if suffix == "csv" else ""

    def line(n):
        return f"{n},leak\n" if suffix == "csv" else json.dumps({"position": n, "label": "leak"}) + "\n"

    source = open_labels(path, PLAIN, tail=True)
    assert not source.read(10)
    path.write_text(head + line(1) + line(2)[:5])
    first = source.read(10)
    assert [one.position for one in first.labels] == [1]
    with path.open("a") as file:
        file.write(line(2)[5:] + line(3))
    assert [one.position for one in source.read(10).labels] == [2, 3]
    assert not source.read(10)
    source.close()
    again = open_labels(path, PLAIN, tail=True)
    again.seek(first.cursor)
    assert [one.position for one in again.read(10).labels] == [2, 3]
    for number, first in ((4, head), (5, "")):  # rotated, at last without writing the header again
        path.rename(tmp_path / f"labels-{number}.{suffix}")
        path.write_text(first + line(number))
        found = []
        while not found:
            found = again.read(10).labels
        assert [(one.position, one.label) for one in found] == [(number, "leak")]
    again.close()


@given(st.integers(1, 7), st.integers(0, 20))
def test_reading_resumes_after_any_batch(tmp_path_factory, n, interrupted):
    folder = tmp_path_factory.mktemp("labels")
    records = [{"position": i, "label": f"c{i}"} for i in range(10)]
    paths = [
        write(folder / "a.csv", "position,label", *(f"{r['position']},{r['label']}" for r in records)),
        write(folder / "a.ndjson", *map(json.dumps, records)),
        write(folder / "a.json", json.dumps(records)),
    ]
    for path in paths:
        source, found, cursor = open_labels(path, PLAIN), [], None
        for _ in range(interrupted):
            batch = source.read(n)
            if batch is None:
                break
            found, cursor = found + batch.labels, json.loads(json.dumps(batch.cursor))
        source.close()
        source = open_labels(path, PLAIN)
        if cursor is not None:
            source.seek(cursor)
        while batch := source.read(n):
            found += batch.labels
        source.close()
        assert [label.position for label in found] == list(range(10))


# -- with rows -----------------------------------------------------------------------------------------


def both(tmp_path, n_labels=3):
    rows = write(tmp_path / "rows.csv", "x", *range(10))
    labels = write(tmp_path / "l.csv", "position,label", *(f"{i},leak" for i in range(1, n_labels + 1)))
    return LabelledSource(open_source(rows, columns=["x"]), open_labels(labels, PLAIN))


def test_labels_come_before_rows_as_long_as_there_is_room(tmp_path):
    source = both(tmp_path)
    room = [2]
    source.room = lambda: room[0]
    first = source.read(4)
    assert (len(first.labels), first.rows.shape) == (2, (0, 1))
    room[0] = 0
    assert (len(source.read(4).rows), source.columns, source.wanted) == (4, ["x"], ["x"])
    room[0] = 2
    assert len(source.read(4).labels) == 1
    assert len(source.read(8).rows) == 6
    assert source.read(4) is None
    source.close()


def test_at_the_end_of_the_rows_all_labels_are_delivered(tmp_path):
    source = both(tmp_path)
    source.room = lambda: 0
    assert len(source.read(10).rows) == 10
    assert len(source.read(10).labels) == 3
    assert source.read(10) is None
    source.close()


def test_both_streams_resume_together(tmp_path):
    source = both(tmp_path)
    source.room = lambda: 1
    cursors, kinds = [], []
    while (batch := source.read(3)) is not None:
        cursors.append(batch.cursor)
        kinds.append((batch.rows[:, 0].tolist(), [label.position for label in batch.labels]))
    source.close()
    for number, cursor in enumerate(cursors):
        source = both(tmp_path)
        source.room = lambda: 1
        source.seek(json.loads(json.dumps(cursor)))
        rest = []
        while (batch := source.read(3)) is not None:
            rest.append((batch.rows[:, 0].tolist(), [label.position for label in batch.labels]))
        source.close()
        assert rest == kinds[number + 1 :]
    # A run that had no labels can be given some, and the reverse.
    plain = open_source(tmp_path / "rows.csv", columns=["x"])
    plain.seek(cursors[-1])
    assert plain.read(3) is None
    batch = plain.read(3)
    plain.close()
    source = both(tmp_path)
    source.seek({name: value for name, value in cursors[-1].items() if name != "labels"})
    assert len(source.read(3).labels) == 3
    source.close()


class Recorder:
    """A stream of nothing that remembers what was acknowledged."""

    columns = wanted = ("x",)

    def __init__(self, name):
        self.name, self.acknowledged = name, []

    def read(self, *_):
        label = [Label("leak", position=1)] if self.name == "labels" else []
        rows = np.zeros((0 if label else 1, 1))
        texts = [""] * len(rows)
        return Batch(rows, np.ones(len(rows), int), texts, texts, [], {"of": self.name}, labels=label)

    def acknowledge(self, cursor):
        self.acknowledged.append(cursor)

    def close(self):
        pass


def test_each_stream_is_acknowledged_its_own():
    rows, labels = Recorder("rows"), Recorder("labels")
    source = LabelledSource(rows, labels)
    source.acknowledge(source.read(1).cursor)
    assert (rows.acknowledged, labels.acknowledged) == ([], [{"of": "labels"}])
    source.room = lambda: 0
    source.acknowledge(source.read(1).cursor)
    assert rows.acknowledged == [{"of": "rows"}]


@pytest.mark.parametrize("time", ["1712011212345", "20261117", "20261301", "10000101"])
def test_a_time_of_digits_alone_is_a_number_even_if_it_looks_like_a_date(time):
    assert parse_time(time) == float(time)


def test_a_number_that_is_too_large_for_a_label_is_refused_with_a_reason():
    with pytest.raises(InvalidInputError, match="beyond"):
        LabelFormat().parse({"label": 10**400, "position": 1})
