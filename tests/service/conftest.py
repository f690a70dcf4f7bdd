"""A small model, services that stop with the test, and certificates."""

import contextlib
import functools
import ssl

import httpx
import numpy as np
import pytest
import trustme

from baryflow import OnlineDaDiL
from baryflow.datasets import make_domains
from baryflow.service import Limits, background, create_app

COLUMNS = ["flow", "heat", "speed", "noise"]


@pytest.fixture(scope="session")
def problem():
    return make_domains(n_sources=3, n_classes=3, n_features=4, n_per_class=100, random_state=0)


@pytest.fixture(scope="session")
def model(problem):
    fitted = OnlineDaDiL(classifier="linear", validate=False, keep_sources=False, random_state=0)
    fitted.fit(problem.X, problem.y, sample_domain=problem.domain)
    fitted.feature_names_in_ = np.array(COLUMNS, dtype=object)
    return fitted


@pytest.fixture(scope="session")
def model_file(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model.bary"
    model.save(path)
    return path


@pytest.fixture(scope="session")
def rows(problem):
    return problem.X_target


@pytest.fixture(scope="session")
def certificate(tmp_path_factory):
    """Return the files of a certificate for localhost, of its key, and of the CA that signed it."""
    folder, authority = tmp_path_factory.mktemp("tls"), trustme.CA()
    issued = authority.issue_cert("localhost", "127.0.0.1")
    cert, key, ca = folder / "cert.pem", folder / "key.pem", folder / "ca.pem"
    cert.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    issued.private_key_pem.write_to_path(key)
    authority.cert_pem.write_to_path(ca)
    return cert, key, ca


@contextlib.contextmanager
def serve(model, state_dir=None, token=None, read_token=None, certificate=None, **limits):
    """Serve a model, and yield a client for the service."""
    app = create_app(
        model,
        state_dir=state_dir,
        token=token,
        read_token=read_token,
        limits=Limits(**limits),
        batch_size=8,
    )
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    cert, key, ca = certificate or (None, None, None)
    verify = True if ca is None else ssl.create_default_context(cafile=ca)
    with (
        background(app, tls_cert=cert, tls_key=key) as url,
        httpx.Client(base_url=url, headers=headers, timeout=300, verify=verify) as client,
    ):
        client.app = app
        yield client


def worker(client):
    """Return the worker of a service that has one, in a thread."""
    (channel,) = client.app.state.service.channels
    return channel.worker


def kill_at_end(worker):
    """Let a worker end as if killed: nothing is committed any more, so the journal is replayed."""
    worker.targets.loop.commit = lambda *_, **__: None


@pytest.fixture
def serving(model):
    return functools.partial(serve, model)


def post(client, name, rows, batch_id=None, time=None):
    content = {"rows": np.asarray(rows).tolist()}
    if time is not None:
        content["rows"] = [{"time": time, "values": row} for row in content["rows"]]
    if batch_id is not None:
        content["batch_id"] = batch_id
    return client.post(f"/v1/targets/{name}/rows", json=content)
