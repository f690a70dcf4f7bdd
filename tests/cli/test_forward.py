"""``baryflow forward``: rows go to a service, which has the models."""

import contextlib
import json
import os
import signal
import socket
import threading

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from baryflow import OnlineDaDiL
from baryflow.cli import main
from baryflow.client import Client, forward
from baryflow.datasets import make_domains
from baryflow.exceptions import InvalidInputError
from baryflow.runtime import Store
from baryflow.service import Limits, background, create_app
from baryflow.streams import open_sink
from tests.runtime.ends import Rows

P = make_domains(n_sources=3, n_classes=3, n_features=4, n_per_class=60, random_state=0)


@pytest.fixture(scope="module")
def model():
    fitted = OnlineDaDiL(classifier="linear", validate=False, keep_sources=False, random_state=0).fit(
        P.X, P.y, P.domain
    )
    fitted.feature_names_in_ = np.array(["a", "b", "c", "d"], dtype=object)
    return fitted


@pytest.fixture
def files(model, tmp_path):
    model.save(tmp_path / "model.bary")
    lines = [
        "machine,a,b,c,d",
        *(f"pump-{i % 2}," + ",".join(map(str, row)) for i, row in enumerate(P.X_target[:80])),
    ]
    lines[7] = "pump-0,1,2,three,4"
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n")
    return tmp_path


def send(files, url, *more):
    """Forward the rows of a file, with the columns of a model."""
    arguments = ["forward", files / "rows.csv", url, "--model", files / "model.bary", *more]
    return CliRunner().invoke(main, list(map(str, arguments)))


def test_rows_go_to_the_targets_of_a_service_and_count_once(model, files):
    with background(create_app(model)) as url, Client(url) as client:
        how = ["--key", "machine"]
        how += ["--quarantine", files / "bad.ndjson", "--checkpoint", files / "kept"]
        for _ in range(2):  # the second has nothing left to send
            found = send(files, url, *how)
            assert found.exit_code == 0, found.output
            assert "80 rows = 79 sent + 1 quarantined" in found.stderr
        seen = [client.target(f"pump-{i}")["rows_seen"] for i in range(2)]
        one = send(files, f"{url}/alone")
        assert one.exit_code == 0, one.output
        assert client.target("alone")["rows_seen"] == 79
    assert seen == [39, 40]
    aside = [json.loads(line) for line in (files / "bad.ndjson").read_text().splitlines()]
    assert [(row["position"], "three" in row["reason"]) for row in aside] == [(7, True)]


def test_without_a_model_all_columns_are_sent(model, files):
    with background(create_app(model)) as url, Client(url) as client:
        arguments = ["forward", str(files / "rows.csv"), url, "--key", "machine"]
        found = CliRunner().invoke(main, arguments)
        assert found.exit_code == 0, found.output
        assert sum(line["rows_seen"] for line in client.targets()) == 79


def test_a_file_with_a_text_column_needs_a_model_for_its_columns(files):
    how = ["forward", files / "rows.csv", "http://127.0.0.1:1/x", "--checkpoint", files / "kept"]
    found = CliRunner().invoke(main, list(map(str, how)))
    assert found.exit_code == 1
    assert "row 1: column 'machine' holds 'pump-0', which is not a number; add --model" in found.stderr
    assert not (files / "kept").exists()  # no row counts as read


def test_a_url_without_a_target_needs_a_key(files):
    found = send(files, "http://127.0.0.1:1")
    assert found.exit_code == 1
    assert "names no target" in found.stderr
    assert "--key COLUMN" in found.stderr


def test_a_topic_needs_a_model_for_its_columns(files):
    found = CliRunner().invoke(main, ["forward", "mqtt://127.0.0.1/topic", "http://127.0.0.1:1/x"])
    assert found.exit_code == 1
    assert "--model" in found.stderr


def test_run_names_the_command_that_sends_rows(files):
    arguments = ["run", files / "model.bary", files / "rows.csv", "-o", "http://127.0.0.1:1/x"]
    found = CliRunner().invoke(main, list(map(str, arguments)))
    assert found.exit_code == 1
    assert "baryflow forward" in found.stderr


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_rows_whose_key_the_service_refuses_are_quarantined_and_the_others_sent(model, files):
    keys = ["pump-0", "pump 2", "plant/pump/2", "", "pump-1"]
    rows = [f"{keys[i % 5]}," + ",".join(map(str, row)) for i, row in enumerate(P.X_target[:80])]
    (files / "rows.csv").write_text("\n".join(["machine,a,b,c,d", *rows]) + "\n")
    with background(create_app(model)) as url, Client(url) as client:
        how = ["--key", "machine"]
        how += ["--quarantine", files / "bad.ndjson", "--checkpoint", files / "kept"]
        for _ in range(2):  # the second has nothing left to send
            found = send(files, url, *how)
            assert found.exit_code == 0, found.output
            assert "80 rows = 32 sent + 48 quarantined" in found.stderr
        assert {line["name"]: line["rows_seen"] for line in client.targets()} == {
            "pump-0": 16,
            "pump-1": 16,
        }
    aside = lines_of(files / "bad.ndjson")
    assert [row["position"] for row in aside] == [i + 1 for i in range(80) if i % 5 in (1, 2, 3)]
    assert all("[A-Za-z0-9]" in row["reason"] or "empty" in row["reason"] for row in aside)
    assert any("'plant/pump/2'" in row["reason"] for row in aside)


def test_columns_are_matched_with_those_of_the_service_by_name(model, files):
    flipped = OnlineDaDiL(classifier="linear", validate=False, keep_sources=False, random_state=0)
    flipped.fit(P.X[:, ::-1], P.y, P.domain)
    flipped.feature_names_in_ = np.array(["d", "c", "b", "a"], dtype=object)
    good = np.delete(P.X_target[:80], 6, axis=0)
    with background(create_app(flipped)) as url, Client(url) as client:
        assert send(files, f"{url}/fed").exit_code == 0
        client.send("sent", good[:, ::-1])
        fed, sent = client.target("fed"), client.target("sent")
        assert fed["rows_seen"] == sent["rows_seen"] == 79
        assert fed["report"] == sent["report"]
    strange = model.spawn()
    strange.feature_names_in_ = np.array(["a", "b", "c", "heat"], dtype=object)
    with background(create_app(strange)) as url, Client(url) as client:
        found = send(files, f"{url}/x")
        assert found.exit_code == 1
        assert "'heat'" in found.stderr
        assert client.targets() == []


@contextlib.contextmanager
def absent(answer):
    """Serve nothing: take a connection, perhaps say that the service is away, and end this process."""
    taken = []

    def serve():
        with contextlib.suppress(OSError):
            while True:
                taken.append(server.accept()[0])
                if answer:
                    taken[-1].recv(65536)
                    taken[-1].sendall(answer)
                if len(taken) == 1:
                    os.kill(os.getpid(), signal.SIGTERM)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}"
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join(60)
            for one in taken:
                one.close()


BUSY = b"HTTP/1.1 503 away\r\nRetry-After: 60\r\nContent-Length: 0\r\n\r\n"


@pytest.mark.parametrize("answer", [b"", BUSY])
def test_sigterm_ends_a_feed_while_the_service_is_away_and_nothing_is_lost(model, files, answer):
    how = ["--key", "machine", "--quarantine", files / "bad.ndjson", "--checkpoint", files / "kept"]
    with absent(answer) as url:
        found = send(files, url, *how)
    assert found.exit_code == 0, found.output
    assert "0 rows = 0 sent + 0 quarantined; stopped" in found.stderr
    with background(create_app(model)) as url, Client(url) as client:
        found = send(files, url, *how)
        assert "80 rows = 79 sent + 1 quarantined" in found.stderr
        assert sum(line["rows_seen"] for line in client.targets()) == 79


def test_quarantined_rows_in_parquet_are_resumed_after_a_stop(model, files):
    how = ["--key", "machine", "--quarantine", files / "bad.parquet", "--checkpoint", files / "kept"]
    with absent(BUSY) as url:
        assert send(files, url, *how).exit_code == 0
    with background(create_app(model)) as url:
        found = send(files, url, *how)
        assert found.exit_code == 0, found.output
    assert pd.read_parquet(files / "bad.parquet").position.tolist() == [7]


def test_forwarding_fails_if_all_rows_are_quarantined(model, files):
    (files / "rows.csv").write_text("a,b,c,d\n" + "1,2,three,4\n" * 3)
    with background(create_app(model)) as url:
        found = send(files, f"{url}/x")
    assert found.exit_code == 1
    assert "all 3 rows were quarantined" in found.stderr


def test_rows_that_the_service_refuses_are_found_and_quarantined(model, tmp_path):
    """A batch is refused as a whole: the rows that cause it are found by halving it."""
    rows = P.X_target[:50].copy()
    rows[[7, 8, 33]] = 1e200  # beyond what the service takes; sources of rows stop it earlier
    checkpoint = Store(tmp_path / "kept")
    sink = open_sink(tmp_path / "bad.ndjson")
    with background(create_app(model)) as url, Client(url) as client:
        fed = forward(Rows(rows), client, "x", read_size=20, store=checkpoint, quarantine=sink)
        assert client.target("x")["rows_seen"] == 47
    sink.close()
    checkpoint.close()
    assert (fed.rows, fed.rejected) == (47, 3)
    assert [row["position"] for row in lines_of(tmp_path / "bad.ndjson")] == [8, 9, 34]


@pytest.mark.parametrize(("limit", "sent"), [({"rows": 7}, 50), ({"body": 60}, 0)])
def test_batches_that_are_too_large_are_sent_in_parts(model, limit, sent):
    limits = Limits(**limit)
    with background(create_app(model, limits=limits)) as url, Client(url) as client:
        fed = forward(Rows(P.X_target[:50]), client, "x", read_size=20)
        assert sum(line["rows_seen"] for line in client.targets()) == sent
    assert (fed.rows, fed.rejected) == (sent, 50 - sent)


def test_a_refusal_that_does_not_concern_rows_ends_the_feed(model):
    limits = Limits(targets=1)
    with background(create_app(model, limits=limits)) as url, Client(url) as client:
        client.send("other", P.X_target[:1])
        with pytest.raises(InvalidInputError, match="no room"):
            forward(Rows(P.X_target[:50]), client, "x", read_size=20)
