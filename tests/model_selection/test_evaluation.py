"""What was found, as text, frame and picture."""

import sys
from dataclasses import replace

import numpy as np
import pytest

from baryflow.exceptions import InvalidInputError
from baryflow.model_selection import DomainScore, Evaluation

NAN = float("nan")
ONE = DomainScore("north", 0, 100, 0.5, 0.6, 0.62, 0.7, 0.8, 0.0, "adapt", "it won", "All said.")
TWO = replace(ONE, domain="a machine whose name is long 7", n_rows=50, source=0.9, harm=0.2)
FOUND = Evaluation((ONE, TWO), "accuracy", "runs", 16)


def test_the_mean_counts_every_domain_the_same():
    found = FOUND.summary()
    assert (found.domain, found.n_rows, found.decision) == ("mean", 150, "")
    assert found.source == pytest.approx(0.7)
    assert found.harm == pytest.approx(0.1)
    again = replace(ONE, seed=1, source=0.7)
    seeds = Evaluation((ONE, again, TWO))
    assert [score.source for score in seeds.by_domain()] == pytest.approx([0.6, 0.9])
    assert seeds.summary().source == pytest.approx(0.75)
    assert seeds.summary().n_rows == 150


def test_the_table_is_aligned_and_says_everything():
    lines = FOUND.table().splitlines()
    assert lines[0] == (
        "% accuracy, with each domain in turn as the target; rows in runs of one class, in batches of 16"
    )
    head = lines[3]
    first, second, mean = lines[5], lines[6], lines[8]
    for line, figures in (
        (first, ["100", "50.0", "60.0", "62.0", "50.0", "50.0", "70.0", "80.0", "0.0"]),
        (second, ["50", "90.0", "60.0", "62.0", "90.0", "90.0", "70.0", "80.0", "20.0"]),
        (mean, ["150", "70.0", "60.0", "62.0", "70.0", "70.0", "70.0", "80.0", "10.0"]),
    ):
        assert line.split()[-10 if "adapt" in line else -9 :][:9] == figures
    for name in ("source", "harm"):  # numbers end where their heads end
        end = head.index(name) + len(name)
        assert all(line[end - 1].isdigit() and not line[end : end + 1].strip() for line in (first, mean))
    assert lines[-1] == "all: adapt; it won"
    assert str(FOUND) == FOUND.table()


def test_what_a_model_does_not_have_is_a_dash_and_other_scores_are_no_percentages():
    table = Evaluation((replace(ONE, flowing=NAN),), scoring="kappa").table()
    assert "0.500" in table
    assert "–" in table
    assert "%" not in table


def test_reasons_name_their_domains():
    other = replace(TWO, decision="do not adapt", reason="it lost")
    words = Evaluation((ONE, other)).table().splitlines()[-2:]
    assert words[0] == "north: adapt; it won"
    assert words[1].startswith("a machine w")
    assert words[1].endswith("long 7: do not adapt; it lost")


def test_a_frame_has_a_row_for_each_score():
    frame = FOUND.to_frame()
    assert frame["domain"].tolist() == ["north", TWO.domain]
    assert frame["harm"].tolist() == [0.0, 0.2]
    assert "report" not in frame


def test_the_picture_shows_every_domain_and_the_mean():
    ax = FOUND.plot()
    assert [label.get_text() for label in ax.get_yticklabels()][::2] == ["north", "mean"]
    drawn = {line.get_label(): line.get_xdata() for line in ax.get_lines()}
    np.testing.assert_allclose(drawn["not adapting"], [50, 90, 70])
    np.testing.assert_allclose(drawn["at the end"], [80, 80, 80])
    ax.figure.canvas.draw()
    offline = Evaluation((replace(ONE, flowing=NAN),)).plot(ax)
    labels = [line.get_label() for line in offline.get_lines()]
    assert "at the end" in labels


def test_without_matplotlib_or_pandas_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'baryflow\[plot\]'"):
        FOUND.plot()
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ModuleNotFoundError, match="pip install pandas"):
        FOUND.to_frame()


def test_nothing_cannot_be_drawn():
    with pytest.raises(InvalidInputError, match="nothing to draw"):
        Evaluation(()).plot()
