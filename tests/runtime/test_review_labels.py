"""Labels of rows to come whose values have gaps: a snapshot keeps them."""

import math

from baryflow.runtime import Checkpoint, Label
from baryflow.runtime.labels import from_plain, to_plain
from tests.runtime.test_expected_labels import P, run


def test_an_expected_label_with_a_missing_value_is_saved(tmp_path):
    values = [math.nan, *P.X_target[79, 1:].tolist()]
    labels = [Label("leak", position=80, values=values), Label("leak", position=500, values=values)]
    run(tmp_path / "out", labels, checkpoint=Checkpoint(tmp_path / "state"))
    again = from_plain(to_plain(labels[0]))
    assert math.isnan(again.values[0])
    assert again.values[1:] == values[1:]
