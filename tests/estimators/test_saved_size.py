import numpy as np

from baryflow import OnlineDaDiL
from baryflow.datasets import load_tep


def test_a_saved_target_of_the_plant_is_small():
    data = load_tep(1)
    X, source = data.X.astype(np.float64), ~data.is_target
    model = OnlineDaDiL(rehearse=False, keep_sources=False, random_state=0)
    model.fit(X[source], data.y[source], sample_domain=data.domain[source])
    rng = np.random.default_rng(0)
    sizes = []
    for _ in range(3):  # the same runs again, with other noise
        rows = X[~source] + 0.01 * rng.normal(size=X[~source].shape)
        for batch in np.array_split(rows[rng.permutation(len(rows))], 8):
            model.partial_fit(batch)
        sizes.append(len(model.to_bytes()))
    spreads = model._follower.target.summary.state().pool.spreads
    # However long the stream, a component keeps no more vectors than this.
    most = len(spreads.ranks) * (spreads.limit + 4) * X.shape[1] * 8
    rest = sizes[-1] - spreads.vectors.nbytes
    assert sizes[-1] < 5e6
    assert 87 / len(spreads.ranks) * most + rest < 5e6
