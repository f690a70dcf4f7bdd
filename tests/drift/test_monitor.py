from copy import deepcopy

import numpy as np
import pytest

from baryflow import OnlineDaDiL, codec
from baryflow.datasets import make_domains
from baryflow.drift import BettingDetector, DriftMonitor, MonitorState
from baryflow.estimators._orders import stream_order
from baryflow.exceptions import InvalidInputError

BEFORE = 480


@pytest.fixture(scope="module")
def plant():
    return make_domains(n_sources=3, n_classes=4, n_per_class=250, random_state=0)


@pytest.fixture(scope="module")
def fitted(plant):
    some = np.concatenate([np.flatnonzero(plant.domain == d)[:200] for d in (1, 2, 3)])
    model = OnlineDaDiL(classifier="linear", random_state=0, validate=False)
    return model.fit(plant.X[some], plant.y[some], sample_domain=plant.domain[some])


@pytest.fixture
def model(fitted):
    return deepcopy(fitted)


def changing(plant, source=2):
    """Return a target that turns into another domain after BEFORE rows."""
    other = plant.X[np.flatnonzero(plant.domain == source)[200:360]]
    return np.concatenate([plant.X_target[:BEFORE], other])


def follow(monitor, X, size=32):
    reports = []
    for start in range(0, len(X), size):
        reports.append(monitor.update(X[start : start + size]))
        monitor.model.partial_fit(X[start : start + size])
    return reports


class Low:
    """As river's detectors are shaped: sounds after so many low numbers in turn."""

    def __init__(self):
        self.low, self.seen = 0, []

    @property
    def drift_detected(self):
        return self.low >= 8

    def update(self, x):
        self.seen.append(x)
        self.low = 0 if self.drift_detected or x > 0.2 else self.low + 1


def test_a_target_that_turns_into_another_domain_is_found_and_told_in_words(plant, model):
    reports = follow(DriftMonitor(model, warm_up=100), changing(plant))
    found = [report for report in reports if report.drift_detected]
    assert len(found) == 1
    assert BEFORE < found[0].n_rows <= BEFORE + 64
    assert abs(found[0].since - BEFORE) <= 5
    assert {"likelihood", "loss"} & set(found[0].signals)
    assert found[0].strength >= 100_000
    words = found[0].describe()
    assert "chance" not in words
    assert f"since row {found[0].since}" in words
    assert "unchanged" in words
    assert found[0].measures["novelty"] > reports[10].measures["novelty"]
    assert "learning" in reports[0].reason
    assert reports[10].reason == ""
    assert "no drift" in reports[10].describe()


@pytest.mark.parametrize("order", ["shuffled", "runs"])
def test_a_target_that_does_not_change_gives_no_alarm(plant, model, order):
    turn = stream_order(plant.y_target, order, np.random.default_rng(0))
    monitor = DriftMonitor(model)
    assert not any(report.drift_detected for report in follow(monitor, plant.X_target[turn]))
    assert monitor.n_drifts == 0


def test_other_proportions_of_the_same_classes_are_found(plant, model):
    rng, often = np.random.default_rng(0), plant.y_target < 2
    common, rare = (rng.permutation(np.flatnonzero(flag)) for flag in (often, ~often))
    before = rng.permutation(np.concatenate([common[:400], rare[:80]]))
    after = rng.permutation(np.concatenate([common[400:420], rare[80:260]]))
    X = plant.X_target[np.concatenate([before, after])]
    reports = follow(DriftMonitor(model, signals=("proportions",), warm_up=100), X)
    found = [report for report in reports if report.drift_detected]
    assert found
    assert found[0].signals == ("proportions",)
    assert len(before) - 60 <= found[0].since
    assert len(before) < found[0].n_rows <= len(before) + 128


@pytest.mark.parametrize("n_classes", [1, 4])
def test_classes_that_come_one_after_the_other_are_not_watched(plant, model, n_classes):
    mine = np.flatnonzero(plant.y_target < n_classes)
    turn = mine[np.argsort(plant.y_target[mine], kind="stable")]
    reports = follow(DriftMonitor(model, warm_up=60), plant.X_target[turn])
    assert {report.phase for report in reports} == {"learning"}
    assert "class" in reports[-1].reason
    assert f"not watched for drift: {reports[-1].reason}" in reports[-1].describe()


def test_a_target_in_runs_of_one_class_is_watched_when_classes_have_returned(plant, model):
    turn = stream_order(plant.y_target, "runs", np.random.default_rng(1))
    reports = follow(DriftMonitor(model, warm_up=60), plant.X_target[turn])
    assert any("runs of about" in report.reason for report in reports)
    assert reports[-1].phase == "watching"
    assert not any(report.drift_detected for report in reports)


def test_a_long_run_in_a_stream_that_had_none_is_no_alarm(plant, model):
    last = np.flatnonzero(plant.y_target == 3)
    before = np.setdiff1d(np.arange(len(plant.y_target)), last[100:])[:600]
    X = plant.X_target[np.concatenate([before, last[100:]])]
    reports = follow(DriftMonitor(model, warm_up=100), X)
    assert reports[15].phase == "watching"
    assert not any(report.drift_detected for report in reports)
    assert reports[-1].phase == "learning"
    assert "one class" in reports[-1].reason
    news = [report.describe() for report in reports if report.news]
    assert len(news) == 2
    assert "watched for drift from now on" in news[0]
    assert "not watched for drift: rows since row" in news[1]


def test_rows_unlike_everything_are_drift_whatever_their_class(plant, model):
    X = plant.X_target[:600].copy()
    X[480:] = 9.0 - X[480:, ::-1]
    found = [report for report in follow(DriftMonitor(model, warm_up=100), X) if report.drift_detected]
    assert abs(found[0].since - 480) <= 5
    assert found[0].measures["novelty"] > 0.5


def test_telling_does_not_touch_the_model(plant, model):
    alone = deepcopy(model)
    X = changing(plant)
    follow(DriftMonitor(model, warm_up=100), X)
    for start in range(0, len(X), 32):
        alone.partial_fit(X[start : start + 32])
    assert model.to_bytes() == alone.to_bytes()


def test_after_a_restart_only_what_came_since_is_known(plant, model):
    X = changing(plant)
    monitor = DriftMonitor(model, action="restart", warm_up=100)
    reports = follow(monitor, X)
    (number,) = (i for i, report in enumerate(reports) if report.drift_detected)
    assert reports[number].action == "restart"
    assert model.n_samples_seen_ == len(X)
    assert model.state_.mass == len(X) - 32 * number
    assert model.resemblance_[2] > 0.5  # the domain into which it has turned


def test_forgetting_leaves_no_more_than_came_since(plant, model):
    X = changing(plant)
    reports = follow(DriftMonitor(model, action="forget", warm_up=100), X)
    (number,) = (i for i, report in enumerate(reports) if report.drift_detected)
    since = reports[number]
    assert model.state_.mass == pytest.approx(since.n_rows - since.since + len(X) - 32 * number)
    assert model.n_samples_seen_ == len(X)


@pytest.fixture(scope="module")
def uninterrupted(plant, fitted):
    whole = DriftMonitor(deepcopy(fitted), action="forget", warm_up=100)
    return whole, follow(whole, changing(plant))


@pytest.mark.parametrize("cut", [2, 16])  # while it warms up, and after it has found a drift
def test_resumed_it_goes_on_bit_for_bit(plant, model, uninterrupted, cut):
    X = changing(plant)
    whole, expected = uninterrupted
    first = DriftMonitor(model, action="forget", warm_up=100)
    reports = follow(first, X[: 32 * cut])
    again = OnlineDaDiL.from_bytes(first.model.to_bytes())
    state = codec.decode(MonitorState, *codec.encode(first.state()))
    second = DriftMonitor.from_state(again, state)
    assert second.drift_detected == first.drift_detected
    reports += follow(second, X[32 * cut :])
    # Measures can be NaN, which is not equal to itself.
    assert [repr(report) for report in reports] == [repr(report) for report in expected]
    assert again.to_bytes() == whole.model.to_bytes()
    mine, theirs = codec.encode(second.state()), codec.encode(whole.state())
    assert mine[0] == theirs[0]
    for name, array in mine[1].items():
        np.testing.assert_array_equal(array, theirs[1][name])


def test_another_detector_takes_the_place_of_ours(plant, model):
    low = Low()
    monitor = DriftMonitor(model, signals=("likelihood",), detectors={"likelihood": low}, warm_up=100)
    found = [report for report in follow(monitor, changing(plant)) if report.drift_detected]
    assert found[0].signals == ("likelihood",)
    assert found[0].n_rows > BEFORE
    assert found[0].strength == 0.0
    assert 0.4 < np.mean(low.seen[:250]) < 0.6
    with pytest.raises(InvalidInputError, match="Low, which cannot be kept"):
        monitor.state()


@pytest.mark.parametrize("name", ["ADWIN", "PageHinkley", "KSWIN"])
def test_rivers_detectors_plug_in(plant, model, name):
    drift = pytest.importorskip("river.drift")
    given = {"KSWIN": {"seed": 0, "alpha": 1e-6}, "PageHinkley": {"threshold": 20.0}}.get(name, {})
    detector = getattr(drift, name)(**given)
    monitor = DriftMonitor(model, signals=("loss",), detectors={"loss": detector}, warm_up=100)
    found = [report for report in follow(monitor, changing(plant)) if report.drift_detected]
    assert found
    assert BEFORE < found[0].n_rows <= BEFORE + 160


def test_rows_of_which_nothing_can_be_read_are_passed_over(plant, model):
    X = plant.X_target[:BEFORE].copy()
    X[5::7] = np.nan
    monitor = DriftMonitor(model, warm_up=100)
    assert not any(report.drift_detected for report in follow(monitor, X))
    report = monitor.update(np.full((3, X.shape[1]), np.nan))
    assert not report.drift_detected
    assert np.isnan(report.measures["loss"])
    assert monitor.n_rows == BEFORE + 3


@pytest.mark.parametrize("size", [1, 640])
def test_a_batch_may_be_a_single_row_or_the_whole_stream(plant, model, size):
    monitor = DriftMonitor(model, warm_up=20)
    X = changing(plant)[: 60 if size == 1 else 640]
    assert not any(report.drift_detected for report in follow(monitor, X, size))
    assert monitor.n_rows == len(X)


def test_a_long_batch_that_changes_midway_is_found(plant, model):
    X = changing(plant)
    monitor = DriftMonitor(model, warm_up=100)
    follow(monitor, X[:100], 100)
    report = monitor.update(X[100:])
    assert report.drift_detected
    assert abs(report.since - BEFORE) <= 5
    assert report.n_rows == len(X)


def test_rows_are_not_changed(plant, model):
    X = changing(plant)
    X.flags.writeable = False
    follow(DriftMonitor(model, warm_up=100), X)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"action": "panic"}, "action"),
        ({"signals": ("weather",)}, "signals"),
        ({"signals": ()}, "each once"),
        ({"signals": ("loss", "loss")}, "each once"),
        ({"detectors": {"weather": BettingDetector()}}, "not among"),
        ({"detectors": {"loss": object()}}, r"update\(x\)"),
        ({"false_alarm_every": 0.5}, "false_alarm_every"),
        ({"warm_up": 0}, "warm_up"),
    ],
)
def test_what_cannot_be_is_refused(model, wrong, words):
    with pytest.raises(InvalidInputError, match=words):
        DriftMonitor(model, **wrong)


@pytest.mark.parametrize("action", ["report", "restart"])
def test_many_batches_are_looked_at_as_one_after_the_other(plant, model, action):
    X = changing(plant)
    model.partial_fit(X[:200])
    one = DriftMonitor(deepcopy(model), action=action, warm_up=100)
    many = DriftMonitor(deepcopy(model), action=action, warm_up=100)
    reports = [one.update(X[start : start + 32]) for start in range(0, len(X), 32)]
    together = [found for rows in (X[:320], X[320:]) for _, found in many.update_many(rows, 32)]
    assert len(together) < len(reports)
    for some in (reports, together):
        assert any(report.drift_detected for report in some)

    def happened(some):
        return [(r.n_rows, r.signals, r.since, r.news) for r in some if r.drift_detected or r.news]

    assert happened(together) == happened(reports)
    assert (many.n_rows, many.n_drifts) == (one.n_rows, one.n_drifts)
    for name, detector in many.detectors.items():
        assert detector.value == pytest.approx(one.detectors[name].value, rel=1e-9)
