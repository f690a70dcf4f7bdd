"""Every example of the gallery runs and draws, on less data than in the documentation."""

from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import pytest

FOLDER = Path(__file__).parents[2] / "examples" / "gallery"
#: No leave-one-source-out, which takes most of the time.
WITHOUT_VALIDATION = {'classifier="linear"': 'classifier="linear", validate=False'}
#: What to replace in an example to make it quick, and by what.
SMALLER = {
    "plot_01_quickstart": {
        "n_per_class=100": "n_per_class=20",
        "OnlineDaDiL(": 'OnlineDaDiL(classifier="linear", ',
    },
    "plot_02_domains_as_points": {"size=500": "size=50"},
    "plot_03_online_mixture": {},
    "plot_04_resemblance": {"n_sources=3": "n_sources=3, n_per_class=20"},
    "plot_05_plant_faults": {"runs=25": "runs=3"},
    "plot_06_few_labels": {
        "(0, 1, 2)": "(0,)",
        "n_per_class=100": "n_per_class=20",
        "ROUNDS, EACH = 10": "ROUNDS, EACH = 2",
        **WITHOUT_VALIDATION,
    },
    "plot_07_new_class": {"n_per_class=100": "n_per_class=40"},
    "plot_08_class_proportions": {
        "(1 / 6, 0.5, 0.8, 0.95)": "(0.8,)",
        "[:1000]": "[:300]",
        **WITHOUT_VALIDATION,
    },
    "plot_09_reliability": {"N_SEEDS = 4": "N_SEEDS = 1", "n_per_class=60": "n_per_class=20"},
    "plot_10_evaluate": {"evaluate(model, table.X, table.y, table.domain)": "evaluate("
        "model, table.X[::15], table.y[::15], table.domain[::15])", **WITHOUT_VALIDATION},
    "plot_11_raw_signals": {"60, 10, by": "60, 40, by", **WITHOUT_VALIDATION},
    "plot_12_alarms": {"model.fit(table.X, table.y, sample_domain=table.domain)": "model.fit("
        "table.X[::6], table.y[::6], sample_domain=table.domain[::6])", **WITHOUT_VALIDATION},
    "plot_13_paper": {"n_per_class=60": "n_per_class=20"},
}  # fmt: skip


def test_all_examples_are_listed():
    assert sorted(path.stem for path in FOLDER.glob("*.py")) == sorted(SMALLER)


@pytest.mark.parametrize("name", SMALLER)
def test_example_runs_and_draws(name, monkeypatch, capsys):
    path = FOLDER / f"{name}.py"
    code = path.read_text()
    for text, smaller in SMALLER[name].items():
        assert text in code, f"{text!r} is not in {path.name} any more"
        code = code.replace(text, smaller)
    monkeypatch.chdir(FOLDER)
    monkeypatch.setattr(plt, "show", lambda: None)
    plt.close("all")
    with mpl.rc_context({"backend": "agg"}):
        exec(compile(code, str(path), "exec"), {"__name__": "__main__"})  # noqa: S102 - ours
        figures = [plt.figure(number) for number in plt.get_fignums()]
        for figure in figures:
            figure.canvas.draw()
            assert any(axes.get_xlabel() and axes.has_data() for axes in figure.axes)
        plt.close("all")
    assert figures
    assert capsys.readouterr().out
