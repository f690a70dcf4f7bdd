"""Labels over HTTP that are none."""

import pytest

from baryflow.service.errors import RequestError
from baryflow.service.parsing import Parser


@pytest.mark.parametrize(
    "label", [b'{"label": true, "position": 1}', b'{"label": 1, "values": [null, null]}']
)
def test_a_truth_value_and_an_empty_row_are_refused(label):
    with pytest.raises(RequestError, match="nothing was stored"):
        Parser(2, None, 100).parse_labels(b'{"labels": [' + label + b"]}", None)
