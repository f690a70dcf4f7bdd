"""Tag lists."""

import json

import pytest

from baryflow.exceptions import InvalidInputError
from baryflow.streams.sampling.tags import Tag, read_tags


def written(tmp_path, text, name="tags.csv"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def test_csv_with_everything(tmp_path):
    path = written(
        tmp_path,
        "\ufeffAddress,column,unit,scale,offset,key\n# feeds\nns=2;s=F1,flow,m³/h,0.1,-3,p7\n\n"
        '"a,b",speed,,,,\n',
    )
    assert read_tags(path) == [Tag("ns=2;s=F1", "flow", "m³/h", 0.1, -3.0, "p7"), Tag("a,b", "speed")]


def test_semicolons_and_decimal_commas(tmp_path):
    path = written(tmp_path, 'address;column;scale\n"ns=2;s=F1";flow;0,001\nplant/f2;speed;\n')
    assert read_tags(path) == [Tag("ns=2;s=F1", "flow", scale=0.001), Tag("plant/f2", "speed")]


def test_json(tmp_path):
    path = written(
        tmp_path, json.dumps([{"address": "t/1", "column": "a", "scale": 2, "key": 7}]), "t.json"
    )
    assert read_tags(path) == [Tag("t/1", "a", scale=2.0, key="7")]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "lists no tags"),
        ("# nothing\n", "lists no tags"),
        ("address,column\n", "header has no address"),
        ("address,name\nA,a\n", "line 2 has 'name'; expected some of address, column"),
        ("address\nA\n", "line 2 has no column"),
        ("address,column\nA,a\n,b\n", "line 3 has no address"),
        ("address,column\nA,a\nA,b\n", "lists 'A' twice"),
        ("address,column,scale\nA,a,much\n", "line 2: scale must be a number, got 'much'"),
        ("address,column,scale\nA,a,0\n", "scale must not be 0"),
        ("address,column,offset\nA,a,inf\n", "offset must be a number"),
        ("address;column\nns=2;s=F1;flow\n", "line 2 has 3 cells where the header has 2"),
    ],
)
def test_invalid_tag_lists_are_refused(tmp_path, text, words):
    with pytest.raises(InvalidInputError, match=words):
        read_tags(written(tmp_path, text))


@pytest.mark.parametrize("text", ["{", "{}", "[1]", '[{"address": "A"}]', '[{"scale": []}]'])
def test_invalid_json_tag_lists_are_refused(tmp_path, text):
    with pytest.raises(InvalidInputError, match=r"tags\.json"):
        read_tags(written(tmp_path, text, "tags.json"))
