"""Labels over HTTP that are none."""

import pytest

from baryflow.service.errors import RequestError
from baryflow.service.parsing import Parser


def test_a_truth_value_is_refused():
    with pytest.raises(RequestError, match="nothing was stored"):
        Parser(2, None, 100).parse_labels(b'{"labels": [{"label": true, "position": 1}]}', None)
