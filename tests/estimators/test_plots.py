"""The picture of a stream."""

import sys
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from baryflow.estimators._history import History
from baryflow.estimators._plots import _spread, plot_stream, short_name
from baryflow.exceptions import InvalidInputError


def simulated(n, n_sources, n_classes, *, seed=0):
    rng = np.random.default_rng(seed)
    history = History.empty(n_sources, n_classes)
    mix = rng.dirichlet(np.full(n_classes, 0.2))
    for k in range(n):
        history = history.record(
            n_rows=32 * (k + 1),
            resemblance=rng.dirichlet(np.ones(n_sources)),
            proportions=mix,
            reliability=1.0 - 0.5**k,
            coverage=1.0,
            novelty=0.1,
            losses=(100.0 / (k + 1), 50.0 / (k + 1)),
        )
    return history


def words(panel):
    beside = [text.get_text() for text in panel.texts if text.get_text() != "■"]
    return beside or [text.get_text() for text in panel.get_yticklabels()]


@pytest.mark.parametrize(
    ("n", "n_sources", "n_classes"), [(1, 1, 2), (3, 5, 29), (600, 30, 29), (20, 2, 200)]
)
def test_it_draws_any_number_of_points_sources_and_classes_without_a_warning(n, n_sources, n_classes):
    history = simulated(n, n_sources, n_classes)
    pyplot = "matplotlib.pyplot" in sys.modules
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = plot_stream(history, range(n_sources), range(n_classes))
        figure.canvas.draw()
    assert len(figure.axes) == 4
    assert len(words(figure.axes[0])) == n_sources
    assert len(words(figure.axes[2])) == n_classes
    for panel in figure.axes:
        assert panel.get_title(loc="left")
    assert ("matplotlib.pyplot" in sys.modules) == pyplot  # which would start a window system


def test_classes_whose_proportions_are_not_estimated_are_not_drawn():
    history = simulated(10, 3, 3).rearrange(range(3), [0, 1, 2, -1])
    figure = plot_stream(history, range(3), ["idle", "leak", "wear", "pump off"])
    assert len(words(figure.axes[2])) == 3
    assert not any("pump off" in text for text in words(figure.axes[2]))


def test_all_parts_are_named_with_their_share_at_the_end():
    history = simulated(10, 3, 29)
    classes = [f"fault {k}" for k in range(29)]
    figure = plot_stream(history, ["north", "south", 7], classes)
    last = history.resemblance[-1]
    expected = {
        f"{name}: {100 * s:.0f} %" for name, s in zip(("north", "south", "source 7"), last, strict=True)
    }
    assert set(words(figure.axes[0])) == expected
    named = words(figure.axes[2])
    last = history.proportions[-1]
    largest = np.argsort(-last, kind="stable")
    assert named == [f"{classes[k]}: {100 * last[k]:.0f} %" for k in largest]


def test_lanes_are_darker_the_larger_a_share_is():
    history = simulated(5, 2, 29)
    (lanes,) = plot_stream(history, "ab", range(29)).axes[2].collections[:1]
    drawn = np.asarray(lanes.get_array()).reshape(29, 5)
    order = np.argsort(-history.proportions[-1], kind="stable")
    np.testing.assert_array_equal(drawn, history.proportions.T[order])


def test_figures_that_are_missing_before_a_source_was_added_draw_as_nothing():
    history = simulated(5, 2, 3).rearrange([0, 1, -1], [0, 1, 2])
    assert "c: 0 %" in words(plot_stream(history, "abc", range(3)).axes[0])


def test_it_draws_into_a_figure_that_is_there():
    from matplotlib.figure import Figure

    figure = Figure()
    assert plot_stream(simulated(5, 2, 3), "ab", "xyz", figure=figure) is figure


def test_curves_are_the_figures_of_the_history():
    history = simulated(30, 2, 3)
    figure = plot_stream(history, "ab", "xyz")
    reliability, novelty = (line.get_ydata() for line in figure.axes[1].get_lines())
    np.testing.assert_array_equal(reliability, history.reliability)
    np.testing.assert_array_equal(novelty, history.novelty)
    after, before = (line.get_ydata() for line in figure.axes[3].get_lines())
    np.testing.assert_array_equal(np.column_stack([before, after]), history.losses)
    assert figure.axes[3].get_yscale() == "log"  # from 100 down to 1.7


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_labels_do_not_overlap_and_keep_their_order(heights):
    heights = np.array(heights)
    placed = _spread(heights, 0.1)
    order = np.argsort(heights, kind="stable")
    assert (np.diff(placed[order]) > 0.1 - 1e-9).all()
    assert placed.min() > -1e-9
    assert placed.max() < 1 + 1e-9
    if len(heights) == 1 or np.diff(heights[order]).min() > 0.1:
        np.testing.assert_allclose(placed, heights, atol=1e-12)


def test_long_names_keep_both_ends():
    assert short_name("compressor at the northern gate, 17") == "compressor…n gate, 17"
    assert short_name(17, "class") == "class 17"
    assert short_name(17) == "17"


def test_what_cannot_be_drawn_is_refused_in_words(monkeypatch):
    with pytest.raises(InvalidInputError, match="no target row was seen yet"):
        plot_stream(History.empty(2, 3), "ab", "xyz")
    with pytest.raises(InvalidInputError, match=r"expected classes to hold 3 names.*got 2"):
        plot_stream(simulated(2, 2, 3), "ab", "xy")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'baryflow\[plot\]'"):
        plot_stream(simulated(2, 2, 3), "ab", "xyz")
