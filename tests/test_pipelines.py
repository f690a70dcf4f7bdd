"""The examples of docs/howto/pipelines.md, each in the library that it is about."""

import re
from pathlib import Path

import pytest
from sklearn import config_context, set_config
from sklearn.neighbors import NearestCentroid

PAGE = Path(__file__).parent.parent / "docs" / "howto" / "pipelines.md"
FIRST, *EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
NEEDED = {"skada": "skada", "stream": "sklearn", "river": "river"}


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize(
    ("needed", "code"), list(zip(NEEDED.values(), EXAMPLES, strict=True)), ids=list(NEEDED)
)
def test_an_example_runs_and_adapts(needed, code):
    names = {}
    with config_context(enable_metadata_routing=False):  # skada turns it on for the whole process
        pytest.importorskip(needed)
        set_config(enable_metadata_routing=needed == "skada")
        exec(compile(FIRST + code, PAGE.name, "exec"), names)  # noqa: S102 - our own text
    p = names["p"]
    not_adapting = NearestCentroid().fit(p.X, p.y).score(p.X_target, p.y_target)
    assert names["score"] > max(0.85, not_adapting)
