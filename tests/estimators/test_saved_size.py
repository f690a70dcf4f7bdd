import numpy as np

from baryflow import OnlineDaDiL, codec
from baryflow.datasets import load_tep


def test_a_saved_target_of_the_plant_is_small():
    data = load_tep(1)
    X, source = data.X.astype(np.float64), ~data.is_target
    model = OnlineDaDiL(classifier="linear", validate=False, keep_sources=False, random_state=0)
    model.fit(X[source], data.y[source], sample_domain=data.domain[source])
    sources = len(model.to_bytes())
    rows = np.random.default_rng(0).permutation(X[~source])
    for batch in np.array_split(rows, 8):
        model.partial_fit(batch)
    state = model.state_
    copied = sum(array.nbytes for array in codec.encode(state.adaptation)[1].values())
    size = len(model.to_bytes()) - sources
    assert size < 8e6
    spreads = state.rows.state().pool.spreads
    # However long the stream, a component keeps no more vectors than this.
    most = len(spreads.ranks) * (spreads.limit + 8) * X.shape[1] * 8
    rest = size - copied - spreads.vectors.nbytes
    assert size - copied < 5e6
    assert 87 / len(spreads.ranks) * most + rest < 5e6
