import pytest

from baryflow.tep.plant import model as module
from baryflow.tep.plant.settling import settle


@pytest.fixture(scope="session")
def plant():
    return module.Plant()


@pytest.fixture(scope="session")
def settled(plant, tmp_path_factory):
    """Every mode at rest: ten seconds of work, done once."""
    return settle(plant, tmp_path_factory.mktemp("tep") / "settled.bary")
