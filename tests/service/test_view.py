"""The data of the live page is complete and correct."""

import itertools
import json
import math

import numpy as np
import pytest

from baryflow import Mixture, OnlineDaDiL
from baryflow.estimators._input import InOrder
from baryflow.estimators._predict import in_view, source_mixtures
from baryflow.runtime import Label, Rows, SessionConfig
from baryflow.service.view import Projection, explain, picture
from baryflow.service.worker_targets import record_likelihood
from tests.service.conftest import post


def follow(model, rows, batch=16):
    session = SessionConfig(model, batch).begin()
    positions = np.arange(1, len(rows) + 1)
    for start in range(0, len(rows), batch):
        some = slice(start, start + batch)
        n = len(rows[some])
        records = session.apply(Rows(rows[some], positions[some], [""] * n, [""] * n)).records
        new = [one | {"values": row.tolist()} for one, row in zip(records, rows[some], strict=True)]
        session.metadata["recent"] = [*session.metadata.get("recent", []), *new][-50:]
        record_likelihood(session)
    return session


def test_the_picture_is_complete_and_json(model, rows):
    session = follow(model, rows[:64])
    before = session.state()
    drawn = json.loads(json.dumps(picture(session), allow_nan=False))
    assert drawn["classes"] == ["0", "1", "2"]
    assert drawn["sources"] == ["1", "2", "3"]
    assert {one["class"] for one in drawn["ellipses"]["target"]} <= {"0", "1", "2"}
    assert math.isclose(sum(one["weight"] for one in drawn["ellipses"]["target"]), 1.0, abs_tol=0.01)
    assert [len(all_) for all_ in drawn["ellipses"]["sources"].values()] == [3, 3, 3]
    assert drawn["history"]["rows"] == [16, 32, 48, 64]
    assert all(isinstance(value, float) for value in drawn["history"]["likelihood"])
    shares = np.array(list(drawn["history"]["resemblance"].values()))
    np.testing.assert_allclose(shares.sum(axis=0), 1.0, atol=1e-3)
    assert len(drawn["recent"]) == 50
    assert "values" not in drawn["recent"][0]
    assert {one["name"] for one in drawn["columns"]} == {"flow", "heat", "speed", "noise"}
    sizes = [abs(one["difference"]) for one in drawn["columns"]]
    assert sizes == sorted(sizes, reverse=True)
    after = session.state()
    assert before.waiting is after.waiting
    assert before.metadata is after.metadata


def test_before_the_first_row_only_the_sources_are_drawn(model):
    drawn = picture(SessionConfig(model).begin())
    assert drawn["ellipses"]["target"] == []
    assert drawn["history"]["rows"] == drawn["recent"] == drawn["columns"] == []
    assert drawn["proportions"] == {}
    json.dumps(drawn, allow_nan=False)


def test_only_the_target_moves(model, rows):
    first, later = (picture(follow(model, rows[:n])) for n in (16, 96))
    assert first["ellipses"]["sources"] == later["ellipses"]["sources"]
    assert first["ellipses"]["target"] != later["ellipses"]["target"]


def test_a_component_is_drawn_where_rows_of_its_class_lie(model, rows, problem):
    """The last rows lie near the ellipses of their true class."""
    drawn = picture(follow(model, rows[:96]))
    truth = problem.y_target[46:96]
    near = [
        min(
            drawn["ellipses"]["target"],
            key=lambda one: math.hypot(one["x"] - row["x"], one["y"] - row["y"]),
        )
        for row in drawn["recent"]
    ]
    assert np.mean([one["class"] == str(label) for one, label in zip(near, truth, strict=True)]) > 0.8


def test_explanations_have_the_nearest_components_and_columns_in_their_units(model, rows):
    session = follow(model, rows[:64])
    found = json.loads(json.dumps(explain(session, 60), allow_nan=False))
    record = next(one for one in session.metadata["recent"] if one["position"] == 60)
    assert found["label"] == record["label"]
    assert found["probabilities"][0]["class"] == str(record["label"])
    assert found["components"][0]["class"] == str(record["label"])
    distances = [one["distance"] for one in found["components"]]
    assert distances == sorted(distances)
    assert {one["speaks"] for one in found["columns"]} <= {"for", "against"}
    columns = dict(zip(["flow", "heat", "speed", "noise"], record["values"], strict=True))
    for one in found["columns"]:
        assert one["value"] == pytest.approx(columns[one["name"]], rel=1e-3)


def test_rows_that_the_model_remembers_can_be_explained(model, rows):
    session = follow(model, rows[:64])
    assert "values" not in json.loads(json.dumps(explain(session, 3), allow_nan=False))
    assert explain(session, 3)["position"] == 3
    assert (
        explain(session, 3)["label"]
        == session.model.classes_[session.model.predict_proba(InOrder(rows[2:3])).argmax()]
    )
    assert explain(session, 0) is None
    assert explain(session, 65) is None


def test_labels_and_what_they_change_are_drawn(model, rows, problem):
    session = follow(model, rows[:64])
    same = [i + 1 for i in range(32, 64) if problem.y_target[i] == 0]  # to be renamed
    session.label([Label(7, position, certify=True) for position in same])
    drawn = json.loads(json.dumps(picture(session), allow_nan=False))
    probabilities = session.model.predict_proba(InOrder(rows[14:64]))
    expected = session.model.classes_[probabilities.argmax(axis=1)]
    assert [one["now"] for one in drawn["recent"]] == expected.tolist()
    now = [one["now_probability"] for one in drawn["recent"]]
    np.testing.assert_allclose(now, probabilities.max(axis=1), atol=1e-5)
    assert 7 in expected
    assert (drawn["classes"][-1], drawn["new_classes"]) == ("7", ["7"])
    assert drawn["certificate"]["labels"] == len(same)
    assert "7" in {one["class"] for one in explain(session, same[-1])["probabilities"]}


def test_likelihood_is_kept_for_the_points_of_the_history(model, rows, monkeypatch):
    monkeypatch.setattr("baryflow.estimators._history.LONGEST", 8)
    session = follow(model, rows[:80], batch=4)
    kept = [n for n, _ in session.metadata["likelihood"]]
    assert kept == session.model.state_.history.n_rows.tolist()
    assert len(kept) <= 8


def test_rows_with_gaps_are_drawn(model, rows):
    gaps = rows[:32].copy()
    gaps[5:, 1] = np.nan
    drawn = picture(follow(model, gaps))
    json.dumps(drawn, allow_nan=False)
    assert all(one["x"] is not None for one in drawn["recent"])


def _two_classes(means):
    return Mixture([0.5, 0.5], means, np.full(np.shape(means), 0.5), labels=np.eye(2))


def test_an_ellipse_is_the_projection_of_its_gaussian():
    projection = Projection.fit([_two_classes([[0.0, 0.0, 0.0], [4.0, 0.0, 0.0]])], 2)
    mixture = Mixture([1.0], [[2.0, 0.0, 0.0]], [[2.0, 0.5, 0.1]], labels=[[1.0, 0.0]])
    drawn = projection.ellipses(mixture, ["a", "b"])[0]
    # At the centre nothing shrinks; the first axis is the first column.
    assert drawn["rx"] == pytest.approx(2.0, rel=1e-3)
    assert drawn["angle"] in (0.0, pytest.approx(-90.0))
    assert (drawn["x"], drawn["y"]) == (0.0, 0.0)


def test_one_column_is_enough():
    projection = Projection.fit([_two_classes([[0.0], [4.0]])], 2)
    drawn = projection.class_ellipses(_two_classes([[0.0], [4.0]]), ["a", "b"])
    assert drawn[0]["x"] != drawn[1]["x"]
    assert drawn[0]["y"] == drawn[1]["y"] == 0.0
    assert drawn[0]["ry"] == 0.0


def test_a_distant_class_leaves_room_for_the_others():
    means = [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [200.0, 0.0]]
    mixture = Mixture(np.full(4, 0.25), means, np.full((4, 2), 0.1), labels=np.eye(4))
    x = [one["x"] for one in Projection.fit([mixture], 4).class_ellipses(mixture, list("abcd"))]
    assert max(x) - min(x) < 12 * abs(x[1] - x[0])


def test_sources_and_rows_share_their_coordinates(problem):
    model = OnlineDaDiL(classifier="linear", validate=False, random_state=0)
    model.fit(problem.X, problem.y, sample_domain=problem.domain).partial_fit(problem.X_target)
    Z = in_view(model.knowledge_, model.state_, problem.X_target)
    held = source_mixtures(model.knowledge_, model.sources_)
    assert list(held) == [str(name) for name in model.sources_]
    assert all(mixture.means.shape[1] == Z.shape[1] for mixture in held.values())
    # In these coordinates the sources' own mixtures classify most rows of the target correctly.
    right = [
        np.mean(mixture.predict_proba(Z).argmax(axis=1) == problem.y_target) for mixture in held.values()
    ]
    assert min(right) > 0.7


def test_diagnoses_in_bands_do_not_depend_on_how_rows_arrive(serving, rows):
    with serving() as client:
        post(client, "whole", rows[:60], time="noon")
        for start, end in ((0, 1), (1, 20), (20, 60)):
            post(client, "parts", rows[start:end], time="noon")
        whole, parts = (
            client.get(f"/v1/targets/{name}/view").json()["bands"] for name in ("whole", "parts")
        )
    assert whole == parts
    assert sum(band["rows"] for band in whole) == 60
    for before, after in itertools.pairwise(whole):
        assert before["label"] != after["label"]
        assert before["last"] + 1 == after["first"]
    assert all(band["rows"] == band["last"] - band["first"] + 1 for band in whole)


def test_targets_have_the_age_of_their_last_row(serving, rows, tmp_path):
    with serving(tmp_path) as client:
        post(client, "pump", rows[:4])
        first = client.get("/v1/targets").json()["targets"][0]
        assert first["seconds_since_rows"] < 100.0
        assert first["seconds_between_rows"] is None
        post(client, "pump", rows[4:8])
        assert client.get("/v1/targets").json()["targets"][0]["seconds_between_rows"] is not None
    with serving(tmp_path) as client:
        assert client.get("/v1/targets").json()["targets"][0]["seconds_since_rows"] is None
