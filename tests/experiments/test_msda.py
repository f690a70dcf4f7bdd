from collections import Counter

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier

from baryflow import OnlineDaDiL
from baryflow.datasets import make_domains
from experiments import mixes
from experiments.msda import __main__ as msda
from experiments.msda import methods, mix_tables, plain, problems, tables
from experiments.scores import Stream


@pytest.fixture
def folder(tmp_path):
    """A small set in the layout of the real ones."""
    p = make_domains(n_sources=2, n_classes=4, n_features=5, n_per_class=20, random_state=0)
    X = np.concatenate([p.X, p.X_target]).astype(np.float32)
    y = np.concatenate([p.y, p.y_target])
    domain = np.concatenate([p.domain - 1, np.full(len(p.y_target), 2)])
    np.savez(tmp_path / "cstr7.npz", X=X, y=y, domain=domain, names=np.array(list("abc")))
    return tmp_path


@pytest.fixture
def quick(monkeypatch):
    """Models that take no time to learn the sources."""

    def ours(seed, **options):
        if "method" not in options:
            options["classifier"] = "linear"
        return OnlineDaDiL(**options, validate=False, random_state=seed)

    monkeypatch.setattr(methods, "ours", ours)
    monkeypatch.setattr(plain, "CLASSIFIERS", dict.fromkeys(plain.CLASSIFIERS, DecisionTreeClassifier))


def test_it_runs_resumes_and_skips_what_is_absent(folder, tmp_path, capsys, quick):
    out = tmp_path / "out"
    arguments = ["--data", str(folder), "--out", str(out), "--seeds", "0", "--mixes", "as is"]
    arguments += ["--orders", "shuffled", "--targets", "a", "2", "--methods"]
    names = ["ours", "no-label-shift", "linear", "plain", "rivals"]
    assert msda.main([*arguments, *names, "--sets", "cstr7", "mgr"]) == 0
    said = capsys.readouterr()
    assert "mgr: not found" in said.err
    assert "| **OnlineDaDiL**, shuffled: at the end |" in said.out
    rows = tables.read(out / "msda.csv")
    assert {r["target"] for r in rows} == set("ac")
    assert {r["part"] for r in rows} == set(names)
    assert {r["order"] for r in rows} == {"", "shuffled"}
    assert msda.main([*arguments, *names, "--sets", "cstr7"]) == 0
    assert tables.read(out / "msda.csv") == rows


def test_every_mix_is_run_once_and_plain_classifiers_see_the_same_rows(
    folder, tmp_path, capsys, monkeypatch, quick
):
    monkeypatch.setattr(mixes, "FEWEST", 24)
    out = tmp_path / "out"
    arguments = ["--data", str(folder), "--out", str(out), "--sets", "cstr7", "--targets", "a", "c"]
    arguments += ["--methods", "ours", "plain", "--seeds", "0", "1", "2"]
    assert msda.main([*arguments, "--mixes", "as is", "one class"]) == 0
    assert "cstr7 c: one class, class, seed 1: 17 rows, skipped" in capsys.readouterr().err
    some = tables.read(out / "msda.csv")
    assert msda.main(arguments) == 0
    rows = tables.read(out / "msda.csv")
    assert rows[: len(some)] == some
    keys = [(*(r[name] for name in msda.KEY), r["method"]) for r in rows]
    assert len(set(keys)) == len(keys)
    # About 16 rows of a class: with as many others they make 24, with fewer they do not.
    for method in ("ours", methods.PICKED):
        mine = [r for r in rows if r["target"] == "a" and r["method"] == method]
        assert Counter((r["mix"], r["order"]) for r in mine) == {
            ("as is", "shuffled"): 3, ("as is", "runs"): 3, ("as is", "class"): 3,
            ("50 %", "shuffled"): 2, ("50 %", "class"): 2,
            ("half absent", "shuffled"): 2, ("half absent", "class"): 2,
        }  # fmt: skip
    for r in rows:
        assert int(r["rows"]) >= 24
        if r["method"] == "ours":
            assert all(0 <= float(r[f"ece_{name}"]) <= 1 for name in ("first", "last", "not_adapting"))
            assert r["adapts"] == "True"
            assert 0 <= float(r["shift_belief"]) <= 1


def test_the_plain_classifier_that_is_best_on_left_out_sources_is_picked(monkeypatch):
    """Domains that differ by scale and offset only: raw rows teach nothing."""
    monkeypatch.setattr(
        plain, "MEMBERS", (("logistic regression", "raw"), ("logistic regression", "per domain"))
    )
    rng = np.random.default_rng(0)
    y = np.tile([0, 1], 60)
    parts = [k + k * (y[:, None] + 0.1 * rng.normal(size=(120, 2))) for k in (1.0, 10.0, 100.0, 1000.0)]
    found = plain.PlainClassifiers(parts[:3], [y] * 3)
    assert found.picked == ("logistic regression", "per domain")
    stream = Stream(parts[3], y, parts[3][:20], y[:20])
    figures = dict(found.stream(stream, 32))
    ours, raw = figures[found.picked], figures["logistic regression", "raw"]
    assert (ours["end"], ours["held_out"], ours["last_fifth"]) == (1, 1, 1)
    assert 0.75 < ours["flowing"] < 1  # the first batch is taken as raw
    assert raw["flowing"] == raw["end"] == 0.5


def test_make_domains_needs_no_data():
    as_is, other = (problems.problem(None, "make_domains", "seed1", 1, mix) for mix in mixes.MIXES[:2])
    assert problems.targets(None, "make_domains", 1) == ["seed1"]
    assert len(as_is.y) == mixes.MOST
    assert len(other.y) == 2560
    for p in (as_is, other):
        assert [np.bincount(y).tolist() for y in p.ys] == [[100] * 8] * 4
    assert as_is.pooled()[0].tolist() == other.pooled()[0].tolist()


def test_the_larger_target_of_affine_has_sources_of_the_same_size(tmp_path):
    (tmp_path / "affine_domains.py").write_text(
        "import numpy as np\n"
        "def make_problem(seed, n_per_class=100):\n"
        "    y = np.repeat(np.arange(3), n_per_class)\n"
        "    X = np.random.default_rng(seed).normal(size=(len(y), 2))\n"
        "    return dict(Xs=[X, X], ys=[y, y], Xt=X, yt=y)\n"
    )
    as_is, other = (problems.problem(tmp_path, "affine", "seed0", 0, mix) for mix in mixes.MIXES[:2])
    assert (len(as_is.y), len(other.y)) == (240, 960)
    assert as_is.draw != other.draw
    for p in (as_is, other):
        assert [np.bincount(y).tolist() for y in p.ys] == [[100] * 3] * 2


def row(**figures):
    stem = {"set": "mgr", "target": "a", "split": "0", "part": "ours", "method": "ours"}
    return dict.fromkeys(msda.FIELDS, "") | stem | {k: str(v) for k, v in figures.items()}


def test_tables_of_mixes_are_what_the_rows_say():
    common = {
        "mix": "80 %",
        "order": "class",
        "ece_first": 0.2,
        "ece_last": 0.1,
        "ece_not_adapting": 0.3,
    }
    rows = [
        row(**common, rows=400, not_adapting=0.8, flowing=0.7, end=0.9),
        row(**common, rows=500, not_adapting=0.7, flowing=0.7, end=0.6, target="b"),
        row(**common, rows=100, not_adapting=0.5, flowing=0.4, end=0.3, seed="1"),
        row(mix="80 %", order="class", rows=100, end=0.2, seed="1", method=methods.PICKED),
    ]
    assert mix_tables.mixes_table(rows, "class").splitlines()[2:] == [
        "| mgr | 80 % | 450 | – | 75.0 | 70.0 | 75.0 | 1 of 2 |",
        "| mgr | 80 % (under 300 rows) | 100 | 20.0 | 50.0 | 40.0 | 30.0 | 1 of 1 |",
    ]
    assert len(mix_tables.mixes_table(rows, "shuffled").splitlines()) == 2
    *_, line = mix_tables.calibration_table(rows).splitlines()
    assert line == "| mgr | 20.0 → 10.0 (30.0) |"
    words = tables.harm_list(rows).splitlines()
    assert sum("At the end of the stream" in line for line in words) == 2
    assert "80 %" not in tables.accuracy_table(rows)
    assert not tables.values(rows, "end", set="mgr")  # without a mix: as is


def test_tables_compare_with_the_picked_classifier():
    common = {"mix": "as is", "order": "shuffled", "seed": "0", "rows": 400}
    member = "SVC, raw"
    rows = [
        row(**common, not_adapting=0.8, flowing=0.85, end=0.9),
        row(**common, part="plain", flowing=0.7, end=0.75, method=methods.PICKED, detail=member),
        row(**common, part="plain", flowing=0.7, end=0.75, method=f"plain: {member}"),
    ]
    assert (
        "| picked plain classifier, shuffled: at the end | 75.0\u00a0±\u00a00.0 |"
        in tables.accuracy_table(rows)
    )
    words = tables.harm_table(rows)
    assert "| at the end, shuffled, against not adapting | +10.0 | 0 of 1 | +10.0 |" in words
    assert "| while it flows, shuffled, against the picked classifier | +15.0 | 0 of 1 |" in words
