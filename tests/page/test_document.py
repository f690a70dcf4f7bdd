"""The report is one well-formed document: accessible, escaped, and free of scripts and requests."""

import re
from html.parser import HTMLParser

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from baryflow import DaDiL, OnlineDaDiL, OnlineGaussianMixture, load
from baryflow.datasets import make_domains
from baryflow.exceptions import InvalidInputError
from baryflow.page import html_report

VOID = {"meta", "link", "wbr", "br", "input", "img", "hr"}


class Page(HTMLParser):
    """Elements, attributes and text of a page; fails if elements are not closed in order."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.elements, self.chunks, self.rows = [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in {"wbr", "bdi", "b"}:
            self.chunks.append(" ")
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th") and self.rows:
            self.rows[-1].append("")

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.chunks.append(data)
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data

    @property
    def text(self):
        return " ".join("".join(self.chunks).split())

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]

    def row(self, first):
        """Return the other cells of the first table row that starts with `first`."""
        return next(row[1:] for row in self.rows if row and row[0] == first)


def small_problem(sources=("a", "b", "c"), classes=("fine", "worn"), n_features=4, n=20, seed=0):
    rng = np.random.default_rng(seed)
    means = rng.normal(0.0, 4.0, (len(classes), n_features))
    y = np.tile(np.repeat(np.arange(len(classes)), n), len(sources))
    X = means[y] + rng.normal(size=(len(y), n_features))
    domain = np.repeat(np.array(sources), n * len(classes))
    target = means[rng.integers(len(classes), size=96)] + rng.normal(size=(96, n_features))
    return X, np.array(classes)[y], domain, target


def fitted(**keywords):
    X, y, domain, target = small_problem(**keywords)
    return OnlineDaDiL(classifier="linear", random_state=0, validate=False).fit(
        X, y, sample_domain=domain
    ), target


@pytest.fixture(scope="module")
def session():
    p = make_domains(n_per_class=40, random_state=0)
    model = OnlineDaDiL(classifier="linear", random_state=0).fit(p.X, p.y, sample_domain=p.domain)
    for batch in np.array_split(p.X_target, 8):
        model.partial_fit(batch)
    return model


def test_the_page_loads_nothing_and_runs_no_script(session):
    text = html_report(session)
    page = Page(text)
    assert not any(page.all(tag) for tag in ("script", "img", "iframe", "object"))
    assert not re.search(r"https?://|url\(|@import|\bon\w+=|srcset|\bsrc=", text)
    assert [link["href"] for link in page.all("link")] == ["data:,"]
    policy = next(m for m in page.all("meta") if m.get("http-equiv") == "Content-Security-Policy")
    assert policy["content"].startswith("default-src 'none'")


def test_every_chart_has_a_text_alternative_and_a_data_table(session):
    page = Page(html_report(session))
    drawings = page.all("svg")
    charts = [svg for svg in drawings if svg.get("role") == "img"]
    assert len(charts) == 3  # 8 classes are drawn in the rows of their table
    assert all(svg.get("aria-hidden") == "true" for svg in drawings if svg not in charts)
    identities = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(identities) == len(set(identities))
    for svg in charts:
        assert set(svg["aria-labelledby"].split()) <= set(identities)
    assert len(page.all("title")) == len(page.all("desc")) + 1 == 4
    assert page.text.count("Along the stream") == 5


def test_the_page_shows_what_the_model_reports(session):
    page = Page(html_report(session, title="Unit 7"))
    assert page.text.startswith("Unit 7 Unit 7 The model learned 8 classes from 4 sources")
    assert session.committee_.reason in page.text
    for line in session.report().splitlines():
        assert " ".join(line.split()) in page.text
    for name, share in session.resemblance_.items():
        shown = page.row(f"source {name}")[-1]
        assert shown == f"{100 * share:.0f} %" or share < 0.005 or share > 0.995
    assert f"Target rows seen {session.n_samples_seen_} " in page.text


def test_columns_are_in_the_units_of_rows_with_the_largest_difference_first():
    X, y, domain, target = small_problem()
    X, target = X.copy(), target.copy()
    X[:, 2] = 80.0 + 2.0 * np.random.default_rng(1).normal(size=len(X))
    target[:, 2] = 95.0 + 0.01 * np.arange(len(target))
    model = OnlineDaDiL(classifier="linear", random_state=0, validate=False).fit(
        X, y, sample_domain=domain
    )
    model.partial_fit(target[:48]).partial_fit(target[48:])
    found = model.compare_columns()
    assert found.order()[0] == 2
    assert found.target_means == pytest.approx(target.mean(axis=0))
    assert found.target_stds == pytest.approx(target.std(axis=0))
    assert found.source_means == pytest.approx(X.mean(axis=0))
    assert found.source_stds == pytest.approx(X.std(axis=0))
    gap = (target[:, 2].mean() - X[:, 2].mean()) / X[:, 2].std()
    assert found.differences[2] == pytest.approx(gap)
    cells = Page(html_report(model)).row("column 2")
    assert cells[1] == f"+{gap:.1f}"
    assert cells[2] == f"+{target[:, 2].mean() - X[:, 2].mean():.1f}"
    assert cells[3:5] == [f"{target[:, 2].mean():.1f}", f"{X[:, 2].mean():.1f}"]


def test_the_description_of_class_proportions_is_escaped_once():
    X, y, domain, _ = small_problem()
    names = np.char.add("<i>&", y)
    model = OnlineDaDiL(classifier="linear", random_state=0, validate=False)
    model.fit(X, names, sample_domain=domain).partial_fit(X[y == y[0]])  # one class only
    assert f"<i>&{y[0]} 100%" in model.describe_proportions()
    text = html_report(model)
    assert f"&lt;i&gt;&amp;{y[0]} 100%" in text
    assert "<i>" not in text
    assert "&amp;lt;" not in text


def test_columns_without_values_and_columns_that_do_not_vary():
    X, y, domain, target = small_problem()
    X, target = X.copy(), target.copy()
    X[:, 0] = 5.0
    target[:, 0], target[:, 1] = 6.0, np.nan
    model = OnlineDaDiL(classifier="linear", random_state=0, validate=False).fit(
        X, y, sample_domain=domain
    )
    before = model.compare_columns()
    assert np.isnan(before.target_means).all()
    assert len(before.order()) == 0
    with pytest.warns(UserWarning, match="no value at all"):
        model.partial_fit(target)
    found = model.compare_columns()
    assert found.differences[0] == np.inf
    assert np.isnan(found.differences[1])
    assert found.order()[0] == 0
    assert sorted(found.order()) == [0, 2, 3]
    page = Page(html_report(model))
    assert page.row("column 0")[1] == "∞"
    assert "no value at all" in page.row("column 1")[0]


def test_a_class_that_no_source_has_is_named_without_a_share():
    model, target = fitted()
    for batch in np.array_split(target, 4):
        model.partial_fit(batch)
    model.feedback(target[:6] + 9.0, ["pump off"] * 6).partial_fit(target[:32])
    page = Page(html_report(model))
    assert "pump off" in page.text
    assert "nan" not in page.text
    shares = [row for row in page.rows if row and row[0] == "pump off" and row[-1].endswith("%")]
    assert shares == []
    assert page.row("fine")[-1].endswith("%")
    model.plot().canvas.draw()


def test_a_batch_unlike_all_sources_is_said(session):
    model = load_copy(session)
    assert "unlike all sources" not in html_report(model)
    noise = np.random.default_rng(0).normal(size=(20, model.n_features_in_))
    found = model.compare_columns()
    model.partial_fit(found.source_means + 5.0 * found.source_stds * noise)
    text = html_report(model)
    assert f"{100 * model.novelty_:.0f} % of the last batch is unlike all sources" in text


def load_copy(model):
    return type(model).from_bytes(model.to_bytes())


def test_before_any_target_the_page_shows_the_sources():
    model, _ = fitted()
    page = Page(html_report(model))
    assert "not seen a target yet" in page.text
    assert "Sources: a, b, c" in page.text
    assert not [svg for svg in page.all("svg") if svg.get("role") == "img"]


@pytest.mark.parametrize(("n_sources", "n_classes"), [(2, 2), (1, 2), (30, 29)])
def test_few_and_many_sources_and_classes(n_sources, n_classes):
    sources = [f"unit {k}" for k in range(n_sources)]
    classes = [f"fault {k}" for k in range(n_classes)]
    model, target = fitted(sources=sources, classes=classes, n=4)
    model.partial_fit(target)
    page = Page(html_report(model))
    cells = {row[0] for row in page.rows if row}
    assert set(sources) | set(classes) <= cells
    # Each has an area, in colours of sources or of classes.
    areas = [polygon["class"] for polygon in page.all("polygon")]
    assert sum(area.startswith("area s") for area in areas) == n_sources
    assert sum(area.startswith("area c") for area in areas) == n_classes


def test_names_are_escaped_and_shortened():
    hostile = "<script>alert(1)</script>"
    sources = ['"><img src=x onerror=alert(2)>', "a & b", "z" * 300]
    classes = [hostile, "null \x00 and \ud800", "'quoted'"]
    model, target = fitted(sources=sources, classes=classes)
    model.partial_fit(target)
    events = [{"position": 40, "event": hostile, "message": "</td><b>"}]
    text = html_report(model, title="</title><script>", events=events)
    page = Page(text)
    assert not page.all("script")
    assert not page.all("img")
    assert all(text in page.text for text in (hostile, "alert(2)", "a & b", "'quoted'"))
    cells = {cell for row in page.rows for cell in row}
    assert {*sources[:2], hostile, "'quoted'"} <= cells
    assert max(map(len, cells)) < 250  # a long name is shortened ...
    assert any(
        bdi.get("title") == "z" * 300 for bdi in page.all("bdi")
    )  # ... and is complete in the tooltip
    assert not {"\x00", "\ud800"} & set(text)
    assert text.encode("utf-8")


def test_events_are_listed_and_marked_in_the_charts():
    model, target = fitted()
    for batch in np.split(target, 4):
        model.partial_fit(batch)
    events = [
        {"position": 48, "time": "2024-03-04T12:00", "event": "drift", "message": "the loss rose"},
        {"position": 72, "event": "checkpoint"},
        {"event": "note", "message": "valve replaced"},
        {"position": 5000, "event": "later"},
    ]
    page = Page(html_report(model, events=events))
    assert page.row("drift") == ["48", "2024-03-04T12:00", "the loss rose"]
    assert page.row("checkpoint") == ["72", "", ""]
    assert page.row("note")[-1] == "valve replaced"
    marks = [line for line in page.all("line") if line.get("class") == "mark"]
    # Two lie within the stream, in each of four charts; rows 24 to 96 span the width.
    assert sorted({float(line["x1"]) for line in marks}) == pytest.approx([333.3, 666.7])
    assert len(marks) == 8
    with pytest.raises(InvalidInputError, match=r"got str at position 0"):
        html_report(model, events=["drift"])


def test_alarms_and_labels_are_listed_by_themselves():
    model, target = fitted()
    for batch in np.split(target, 4):
        model.partial_fit(batch)
    alarm = {"event": "alarm", "position": 30, "time": "2026-01-01T00:30Z", "message": "alarm 1: <worn>"}
    events = [alarm, {"event": "label", "position": 48, "message": "2 labels learned"}]
    page = Page(html_report(model, events=events))
    assert page.row("alarm") == ["30", "2026-01-01T00:30Z", "alarm 1: <worn>"]
    assert page.row("label") == ["48", "", "2 labels learned"]
    assert "No drift was reported" in page.text
    assert not [line for line in page.all("line") if line.get("class") == "mark"]


def test_a_saved_model_gives_the_same_page(session, tmp_path):
    session.save(tmp_path / "m.bary")
    assert html_report(load(tmp_path / "m.bary")) == html_report(session) == html_report(session)


def test_a_batch_model_has_a_page():
    X, y, domain, target = small_problem()
    names = np.concatenate([domain, np.full(len(target), "t")])
    everything = np.concatenate([X, target])
    labels = np.concatenate([y, np.full(len(target), y[0])])
    model = DaDiL(classifier="linear", random_state=0, validate=False).fit(
        everything, labels, names, target="t"
    )
    page = Page(html_report(model))
    assert "seen 96 target rows" in page.text
    assert len(page.all("polyline")) == 4


def test_other_models_and_unfitted_models_are_rejected():
    with pytest.raises(InvalidInputError, match="OnlineGaussianMixture"):
        html_report(OnlineGaussianMixture())
    with pytest.raises(NotFittedError):
        html_report(OnlineDaDiL())


def test_the_page_of_a_long_stream_stays_small():
    model, target = fitted()
    for _ in range(100):
        model.partial_fit(target[:4])
    assert len(html_report(model)) < 150_000


def test_the_absence_of_drift_is_stated_only_if_it_is_known():
    p = make_domains(n_per_class=20, random_state=0)
    model = OnlineDaDiL(classifier="linear", validate=False, random_state=0).fit(
        p.X, p.y, sample_domain=p.domain
    )
    model.partial_fit(p.X_target[:20])
    quiet = Page(html_report(model, events=[], about="Rows are <windows>.")).text
    assert "No drift was reported along the stream." in quiet
    assert "Rows are <windows>." in quiet
    assert "of the last batch" in quiet
    assert "No drift was seen" not in Page(html_report(model)).text
    assert (
        "No drift was seen"
        not in Page(html_report(model, events=[{"position": 3, "event": "drift"}])).text
    )


def test_competing_explanations_are_listed_with_what_settles_it():
    easy = make_domains(n_sources=3, n_classes=4, n_per_class=40, shift=0.5, random_state=1)
    model = OnlineDaDiL(classifier="linear", random_state=0).fit(easy.X, easy.y, easy.domain)
    model.partial_fit(easy.X_target)
    assert "What is not known" not in html_report(model)
    p = make_domains(n_classes=4, n_per_class=60, shift=1.0, random_state=1)
    rng = np.random.default_rng(1)

    def calibrate(X):
        gain, offset = np.exp(rng.normal(0, 0.25, X.shape[1])), rng.normal(0, 1, X.shape[1])
        return X * gain + offset * p.X.std(axis=0)

    X = np.concatenate([calibrate(p.X[p.domain == source]) for source in (1, 2, 3, 4)])
    normal = calibrate(p.X_target)[p.y_target == 0]
    model = OnlineDaDiL(classifier="linear", random_state=0).fit(X, p.y, p.domain)
    text = html_report(model.partial_fit(normal))
    assert "What is not known" in text
    assert all(one in text for one in model.describe_explanations())
    assert "baseline" in text
