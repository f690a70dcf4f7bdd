import pytest

from baryflow.live.plant import load_settled_states
from baryflow.tep.plant import model as module


@pytest.fixture(scope="session")
def plant():
    return module.Plant()


@pytest.fixture(scope="session")
def settled():
    """The plant at rest in every mode, as it is shipped: simulating it takes ten seconds of CPU."""
    return load_settled_states()
