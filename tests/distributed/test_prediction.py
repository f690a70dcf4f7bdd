"""Predictions over Dask arrays and data frames."""

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

from baryflow import distributed
from baryflow.exceptions import InvalidInputError
from tests.distributed import histories
from tests.distributed.histories import COLUMNS, DOMAIN, P, X, Y, new


def test_predictions_are_made_block_by_block(in_memory):
    model = in_memory.spawn().partial_fit(P.X_target)
    T = P.X_target[:500]
    blocks = da.from_array(T, chunks=(200, 2))
    np.testing.assert_array_equal(distributed.predict(model, blocks).compute(), model.predict(T))
    found = distributed.predict_proba(model, blocks)
    assert found.chunks == ((200, 200, 100), (4,))
    np.testing.assert_array_equal(found.compute(), model.predict_proba(T))
    np.testing.assert_array_equal(distributed.novelty(model, blocks).compute(), model.novelty(T))


def test_array_blocks_do_not_cause_warnings_about_names(recwarn):
    few = pd.DataFrame(X[:600], columns=COLUMNS)
    model = new().fit(few, Y[:600], sample_domain=DOMAIN[:600])
    blocks = da.from_array(P.X_target[:90], chunks=(30, -1))
    expected = model.predict(pd.DataFrame(P.X_target[:90], columns=COLUMNS))
    np.testing.assert_array_equal(distributed.predict(model, blocks).compute(), expected)
    assert not recwarn


@pytest.mark.parametrize("ask", [distributed.predict, distributed.predict_proba, distributed.novelty])
def test_unfitted_model_is_refused(ask):
    with pytest.raises(NotFittedError):
        ask(new(), da.zeros((3, 5)))


def test_predictions_of_a_frame_keep_its_index(tmp_path):
    parts = distributed.read_parquet(str(histories.folder(tmp_path)), label="fault", domain="plant")
    model = distributed.fit(new(), parts)
    frame = pd.DataFrame(P.X_target[:90], columns=COLUMNS, index=np.arange(90) * 10)
    turned = dd.from_pandas(frame[COLUMNS[::-1]].assign(note="-"), npartitions=3)
    labels = distributed.predict(model, turned).compute()
    assert labels.name == "label"
    assert labels.to_dict() == dict(zip(frame.index, model.predict(frame).tolist(), strict=True))
    shares = distributed.predict_proba(model, turned).compute()
    assert shares.columns.tolist() == model.classes_.tolist()
    np.testing.assert_array_equal(shares, model.predict_proba(frame))
    np.testing.assert_array_equal(distributed.novelty(model, turned).compute(), model.novelty(frame))
    with pytest.raises(InvalidInputError, match="'s0'"):
        distributed.predict(model, turned.drop(columns="s0"))
    with pytest.raises(InvalidInputError, match="Dask array"):
        distributed.predict(model, P.X_target)


@pytest.mark.parametrize(
    ("labels", "unknown"),
    [(Y, "new"), (Y, None), (Y > 1, None), (np.array(list("abcd"))[Y], "new kind")],
)
def test_predictions_have_the_announced_dtype(labels, unknown):
    model = new(unknown=0.9, unknown_label=unknown)
    model.fit(X[:600], labels[:600], sample_domain=DOMAIN[:600])
    rows = np.concatenate([X[:100], X[:100] + 1e3])
    found = distributed.predict(model, da.from_array(rows, chunks=(100, -1)))
    assert found.dtype == found.compute().dtype == model.predict(rows).dtype
    assert len(set(found.compute().tolist()) - set(model.classes_.tolist())) == 1
