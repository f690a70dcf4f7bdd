"""The page on evaluation shows what its examples print."""

import contextlib
import io
import re
from pathlib import Path

import pytest

TEXT = (Path(__file__).parents[2] / "docs" / "guide" / "evaluation.md").read_text()
PATTERN = r"```python\n([^`]*?found\.{}\(\)\)\n)```.*?```text\n(.*?)```"
EXAMPLES = re.findall(PATTERN.format("table"), TEXT, flags=re.DOTALL)
((LABELS_CODE, LABELS_SHOWN),) = re.findall(PATTERN.format("label_table"), TEXT, flags=re.DOTALL)
FIGURE = r"\d+\.\d"


def printed(code, names):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(code, names)  # noqa: S102 - our own text
    return out.getvalue()


@pytest.fixture(scope="module")
def labels():
    """Return what the example with labels printed, and its names."""
    names = {}
    return printed(LABELS_CODE, names), names


@pytest.fixture(scope="module")
def found(labels):
    """Return what the first two examples print.

    The first is the example with labels without its labels, which change no figure of its table.
    """
    (near, _), (far, _) = EXAMPLES
    assert re.sub(r" *#.*", "", near) == LABELS_CODE.replace(", labels_per_class=3", "").replace(
        "label_table", "table"
    )
    last = near.splitlines()[-1]
    return [printed(last, labels[1]), printed(far, {})]


def compare(text, shown, tolerance):
    assert re.sub(rf" *{FIGURE}", "", text) == re.sub(rf" *{FIGURE}", "", shown)
    figures = [[float(x) for x in re.findall(FIGURE, words)] for words in (text, shown)]
    assert figures[0] == pytest.approx(figures[1], abs=tolerance)


def test_the_tables_are_those_that_are_printed(found):
    assert len(EXAMPLES) == 2
    for (_, shown), text in zip(EXAMPLES, found, strict=True):
        compare(text, shown, 1.5)


def test_the_table_of_labels_is_that_which_is_printed(labels):
    compare(labels[0], LABELS_SHOWN, 3.0)


def test_it_helps_in_the_first_and_not_in_the_second(found):
    means = [re.search(r"^mean .*$", text, flags=re.MULTILINE).group().split() for text in found]
    (near, far) = (
        {"source": float(m[2]), "standardised": float(m[4]), "end": float(m[8])} for m in means
    )
    assert near["end"] > near["standardised"] + 3 > near["source"] + 10
    assert far["end"] < far["source"] + 2
