"""Responses are valid JSON whatever they contain."""

import json

import numpy as np
import pytest

from baryflow.service.parsing import to_json


@pytest.mark.parametrize("text", ["ü", "\ud800"])  # a lone surrogate cannot be encoded as UTF-8
def test_nan_becomes_null_and_any_text_can_be_encoded(text):
    content = {"a": float("nan"), "b": [np.float64("inf"), 1.5], "c": np.arange(2), "d": text}
    assert json.loads(to_json(content)) == {"a": None, "b": [None, 1.5], "c": [0, 1], "d": text}


def test_unknown_objects_are_refused():
    with pytest.raises(TypeError, match="object"):
        to_json(object())
