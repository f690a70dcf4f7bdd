"""What is said is JSON, whatever it is."""

import json

import numpy as np
import pytest

from baryflow.service.errors import to_json


def test_what_json_has_no_word_for_becomes_null():
    said = to_json({"a": float("nan"), "b": [np.float64("inf"), 1.5], "c": np.arange(2), "d": "\ud800"})
    assert json.loads(said) == {"a": None, "b": [None, 1.5], "c": [0, 1], "d": "\ud800"}
    with pytest.raises(TypeError, match="cannot say object"):
        to_json(object())
