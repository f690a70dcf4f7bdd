import logging

import distributed
import pytest

from tests.distributed import histories


@pytest.fixture(scope="module")
def client():
    """A cluster with a worker thread in this process, since starting a process takes seconds of CPU.

    Other processes reach it at ``client.scheduler.address``. It is not the default client.
    """
    with (
        distributed.LocalCluster(
            n_workers=1,
            threads_per_worker=1,
            processes=False,
            protocol="tcp://",
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",  # any free port: several may run at once
            silence_logs=logging.CRITICAL,
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as present,
    ):
        yield present


@pytest.fixture(scope="session")
def in_memory():
    """A model of two classifiers."""
    few = slice(0, 1200)
    return histories.new(classifier=["linear", "trees"]).fit(
        histories.X[few], histories.Y[few], sample_domain=histories.DOMAIN[few]
    )
