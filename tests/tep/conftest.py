import pytest

from baryflow.tep.plant import model as module
from baryflow.tep.plant.settling import load_settled


@pytest.fixture(scope="session")
def plant():
    return module.Plant()


@pytest.fixture(scope="session")
def settled():
    """The plant at rest in every mode, as it is shipped: simulating it takes ten seconds of CPU."""
    return load_settled()
