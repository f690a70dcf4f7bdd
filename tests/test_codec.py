from __future__ import annotations

import contextlib
import json
import math
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from baryflow import codec, container
from baryflow.exceptions import FileFormatError, InvalidInputError
from baryflow.validation import Booleans, Floats, Integers
from tests.strategies import seeds


@dataclass(frozen=True, eq=False)
class Leaf:
    points: Floats
    codes: Integers
    flags: Booleans
    name: str = ""
    level: float = 0.0


@dataclass(frozen=True, eq=False)
class Twig:
    """Takes only positive numbers."""

    size: int

    def __post_init__(self):
        if self.size < 1:
            raise InvalidInputError("a twig has a size")


@dataclass(frozen=True, eq=False)
class Tree:
    leaf: Leaf | None
    either: Leaf | Twig
    leaves: list[Leaf]
    pair: tuple[int, float]
    twigs: tuple[Twig, ...]
    table: dict[Any, Any]
    by_name: dict[str, Leaf]
    names: Any
    kind: Literal["oak", "elm"]
    tall: bool
    shade: Floats = field(init=False)  # follows from the rest

    def __post_init__(self):
        object.__setattr__(self, "shade", np.ones(3))


@dataclass(frozen=True, eq=False)
class Stranger:
    """No annotation of a tree leads here."""

    size: int


floats = st.floats(allow_nan=True, allow_infinity=True)
shapes = arrays_of.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=3)
leaves = st.builds(
    Leaf,
    arrays_of.arrays(np.float64, shapes),
    arrays_of.arrays(np.intp, shapes),
    arrays_of.arrays(np.bool_, shapes),
    st.text(max_size=5),
    floats,
)
twigs = st.builds(Twig, st.integers(1, 10**30))
keys = st.one_of(
    st.integers(), st.booleans(), st.text(max_size=3), st.none(), st.tuples(st.integers(), st.text())
)
plain = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), floats, st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(keys, inner, max_size=3),
    ),
    max_leaves=8,
)
names = st.one_of(
    st.lists(st.text(alphabet="abcä", min_size=1, max_size=4), max_size=4).map(
        lambda words: np.array(words, dtype="<U4")
    ),
    st.lists(st.one_of(st.none(), st.integers(), st.text(max_size=3)), max_size=4).map(
        lambda words: np.array(words, dtype=object)
    ),
    arrays_of.arrays(np.int64, st.integers(0, 4)),
)
trees = st.builds(
    Tree,
    leaf=st.none() | leaves,
    either=leaves | twigs,
    leaves=st.lists(leaves, max_size=3),
    pair=st.tuples(st.integers(), floats),
    twigs=st.lists(twigs, max_size=3).map(tuple),
    table=st.dictionaries(keys, plain, max_size=3),
    by_name=st.dictionaries(st.text(max_size=3), leaves, max_size=2),
    names=names,
    kind=st.sampled_from(["oak", "elm"]),
    tall=st.booleans(),
)


def same(a, b):  # noqa: PLR0911 - one for every kind of value
    """Tell whether two values are equal all through, types, NaN and signs of zeros included."""
    if type(a) is not type(b):
        return False
    if is_dataclass(a):
        return all(same(getattr(a, f.name), getattr(b, f.name)) for f in fields(a))
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and same(a.tolist(), b.tolist())
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return same(list(a.items()), list(b.items()))
    if isinstance(a, float):
        return math.copysign(1.0, a) == math.copysign(1.0, b) and (
            a == b or (math.isnan(a) and math.isnan(b))
        )
    return a == b


def through_a_file(value):
    content = container.from_bytes(container.to_bytes("tree", *codec.encode(value)))
    return codec.decode(type(value), content.values, content.arrays)


def small_tree():
    leaf = Leaf(np.arange(4.0).reshape(2, 2), np.arange(3), np.array([True]), "ash", np.inf)
    return Tree(
        leaf, Twig(2), [leaf], (1, 2.0), (Twig(3),), {1: None}, {"a": leaf}, np.array(["x"]), "oak", True
    )


# -- there and back ---------------------------------------------------------------------------------


@given(trees)
@example(replace(small_tree(), pair=(1, -math.nan)))
def test_what_is_saved_comes_back(tree):
    assert same(through_a_file(tree), tree)


@given(trees)
def test_the_same_is_the_same_bytes(tree):
    assert container.to_bytes("tree", *codec.encode(tree)) == container.to_bytes(
        "tree", *codec.encode(through_a_file(tree))
    )


def test_what_was_given_is_not_changed():
    tree = small_tree()
    values, arrays = codec.encode(tree)
    before = json.dumps(values)
    assert same(codec.decode(Tree, values, arrays), tree)
    assert json.dumps(values) == before
    assert arrays["leaf.points"] is tree.leaf.points
    assert "shade" not in values["fields"]


def test_numpy_scalars_become_plain_numbers():
    tree = small_tree()
    numbers = {"a": np.float64(0.5), "b": np.int64(3), "c": np.bool_(True), "d": np.str_("x")}
    tree.table.clear()
    tree.table.update(numbers)
    again = through_a_file(tree).table
    assert same(again, {"a": 0.5, "b": 3, "c": True, "d": "x"})


@pytest.mark.parametrize("value", [{1, 2}, b"bytes", 1j, print, object(), np.zeros(2, dtype=complex)])
def test_what_cannot_be_kept_is_refused(value):
    tree = small_tree()
    tree.table["x"] = value
    with pytest.raises(TypeError, match="cannot keep table"):
        codec.encode(tree)


# -- what does not fit ------------------------------------------------------------------------------


def changed(place, value):
    """Return the values of a small tree with another value in one place, and its arrays."""
    values, arrays = codec.encode(small_tree())
    values = json.loads(json.dumps(values))
    inner = values["fields"]
    *path, last = place
    for step in path:
        inner = inner[step]
    inner[last] = value
    return values, arrays


LEAF = codec.encode(small_tree().leaf)[0]


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("leaf",), {"class": "Stranger", "fields": {"size": 1}}),
        (("leaf",), {"class": "Twig", "fields": {"size": 1}}),
        (("leaf",), {"class": "Leaf", "fields": {}}),
        (("leaf", "fields", "more"), 1),
        (("leaf", "fields", "name"), 3),
        (("leaf", "fields", "name"), None),
        (("leaf", "fields", "level"), "3"),
        (("leaf", "fields", "level"), True),
        (("leaf", "fields", "points"), {"array": "leaf.codes"}),
        (("leaf", "fields", "codes"), {"array": "leaf.points"}),
        (("leaf", "fields", "points"), {"array": "nowhere"}),
        (("leaf", "fields", "points"), {"list": [1.0, 2.0]}),
        (("leaf", "fields", "points"), {"empty": [0], "dtype": "<i8"}),
        (("leaf", "fields", "points"), {"empty": [2, 2], "dtype": "<f8"}),
        (("leaf", "fields", "points"), {"empty": [0], "dtype": "teapot"}),
        (("leaf", "fields", "points"), None),
        (("either", "fields", "size"), 0),
        (("either", "fields", "size"), 2.0),
        (("either",), None),
        (("leaves", "list", 0), 7),
        (("leaves", "list", 0, "fields", "name"), 7),
        (("leaves",), {"tuple": []}),
        (("pair",), {"tuple": [1]}),
        (("pair",), {"tuple": [1, "2"]}),
        (("pair",), {"tuple": [1.5, 2.0]}),
        (("twigs", "tuple", 0, "fields", "size"), "3"),
        (("twigs", "tuple", 0), {"class": "Leaf", "fields": LEAF["fields"]}),
        (("table",), {"dict": [[{"list": []}, 1]]}),
        (("table",), {"dict": 3}),
        (("by_name",), {"dict": [[1, LEAF]]}),
        (("by_name", "dict", 0, 1, "fields", "level"), {"float": "many"}),
        (("kind",), "ash"),
        (("tall",), 1),
        (("tall",), {}),
        (("tall",), {"unheard": 1}),
        (("tall",), [True]),
        (("leaf", "class"), ["Leaf"]),
        (("shade",), {"array": "leaf.points"}),
    ],
    ids=str,
)
def test_a_field_of_another_type_is_refused(place, value):
    with pytest.raises(FileFormatError, match="a saved Tree is damaged"):
        codec.decode(Tree, *changed(place, value))


def test_an_array_that_belongs_to_nothing_is_refused():
    values, arrays = codec.encode(small_tree())
    with pytest.raises(FileFormatError, match=r"arrays that belong to nothing: \['more'\]"):
        codec.decode(Tree, values, arrays | {"more": np.zeros(2)})


def test_another_dataclass_than_the_one_asked_for_is_refused():
    with pytest.raises(FileFormatError, match="a saved Tree is damaged"):
        codec.decode(Tree, *codec.encode(Twig(3)))
    with pytest.raises(FileFormatError, match="a saved Tree is damaged"):
        codec.decode(Tree, *codec.encode(Stranger(3)))
    with pytest.raises(FileFormatError, match="a saved Twig is damaged"):
        codec.decode(Twig, {"list": []}, {})


def test_nests_without_end_are_refused():
    nest: Any = {"list": []}
    for _ in range(100_000):
        nest = {"list": [nest]}
    values, arrays = changed(("table",), {"dict": [[1, nest]]})
    with pytest.raises(FileFormatError):
        codec.decode(Tree, values, arrays)


def places(value, path=()):
    """Return the paths to all parts of values."""
    found = [path] if path else []
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in pairs:
        deeper = isinstance(inner, (dict, list))
        found += places(inner, (*path, key)) if deeper else [(*path, key)]
    return found


@given(seeds)
def test_whatever_is_exchanged_the_outcome_is_a_tree_or_one_error(seed):
    values, arrays = codec.encode(small_tree())
    values = json.loads(json.dumps(values))
    rng = np.random.default_rng(seed)
    everything = places(values)
    for _ in range(int(rng.integers(1, 4))):
        *source, last = everything[rng.integers(len(everything))]
        part: Any = values
        try:
            for step in source:
                part = part[step]
            new = [None, 0, -1, 2.5, "", "<f8", "(", [], {}, [1], {"list": [1]}, {"array": "leaf.codes"}]
            part[last] = new[rng.integers(len(new))]
        except (TypeError, KeyError, IndexError):  # an earlier exchange took the place away
            continue
    with contextlib.suppress(FileFormatError):
        assert isinstance(codec.decode(Tree, values, arrays), Tree)


# -- files ------------------------------------------------------------------------------------------


def test_content_of_another_kind_is_named():
    values, arrays = codec.encode(Twig(2))
    good = container.Content("t.bary", "twig", values, arrays, version="0.2")
    assert codec.open_content(Twig, good, "twig").size == 2
    with pytest.raises(FileFormatError, match=r"t.bary holds a 'twig', not a 'tree'"):
        codec.open_content(Tree, good, "tree")
    bad = container.Content("t.bary", "twig", {"class": "Twig"}, arrays, version="0.2")
    with pytest.raises(FileFormatError, match=r"t.bary: a saved Twig is damaged"):
        codec.open_content(Twig, bad, "twig")
