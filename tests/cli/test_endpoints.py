"""Which credentials `run`, `forward` and `serve` use for which address."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner

from baryflow.cli import main
from baryflow.exceptions import InvalidInputError
from baryflow.streams import Batch, Credentials, Sink, Source, read_credentials, register_transport
from tests.streams.run_process import COLUMNS, save_model

OPENED = {}  # "source here/rows" → the credentials and options that it was opened with


class Nothing(Source, Sink):
    """A source without rows, and a sink that keeps nothing."""

    columns = wanted = COLUMNS
    position = 0

    def __init__(self):
        self._ended = False

    def read(self, n, timeout=None):  # noqa: ARG002 - it ends at once
        if self._ended:
            return None
        self._ended = True
        return Batch(np.empty((0, len(COLUMNS))), np.empty(0, dtype=np.intp), [], [], [], {"n": 0})

    def seek(self, cursor):
        pass

    def write(self, records):
        pass

    def truncate(self, position):
        pass

    def flush(self):
        pass

    def close(self, finished=True):
        pass


def opened(kind):
    def open_(endpoint, options=None):
        OPENED[f"{kind} {endpoint.host}/{endpoint.path}"] = (endpoint.credentials, options)
        return Nothing()

    return open_


@pytest.fixture(scope="module", autouse=True)
def transport():
    register_transport("noted", SimpleNamespace(open_source=opened("source"), open_sink=opened("sink")))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("endpoints")
    save_model(folder / "model.bary")
    (folder / "baryflow.toml").write_text("[alarms]\nnormal = []\n")
    return folder


def run(folder, *arguments, environment=None):
    """Run with one address for each purpose, and return the user that each was opened with."""
    OPENED.clear()
    addresses = [
        "noted://in/rows", "-o", "noted://out/rows", "--events", "noted://out/events",
        "--labels", "noted://labels/x", "--alarms", "noted://alarms/x",
        "--alarm-commands", "noted://alarms/commands",
    ]  # fmt: skip
    found = CliRunner().invoke(
        main,
        ["--config", str(folder / "baryflow.toml"), "run", str(folder / "model.bary")]
        + addresses
        + [str(one) for one in arguments],
        env=environment or {},
    )
    assert found.exit_code == 0, found.output
    return {name: credentials.username for name, (credentials, _) in OPENED.items()}


def variables(role, user):
    return {f"BARYFLOW_{role}_USERNAME": user, f"BARYFLOW_{role}_PASSWORD": "secret"}


def test_each_role_has_variables_of_its_own(folder):
    roles = {role: variables(role, role.lower()) for role in ("INPUT", "OUTPUT", "LABELS", "ALARMS")}
    everything = {name: value for one in roles.values() for name, value in one.items()}
    assert run(folder, environment=everything) == {
        "source in/rows": "input",
        "sink out/rows": "output",
        "sink out/events": "output",
        "source labels/x": "labels",
        "sink alarms/x": "alarms",
        "source alarms/commands": "alarms",
    }
    users = run(folder, environment=roles["INPUT"])
    assert users.pop("source in/rows") == "input"
    assert set(users.values()) == {None}
    # One login for all hosts is a thing of the past.
    old = {"BARYFLOW_USERNAME": "all", "BARYFLOW_PASSWORD": "secret"}
    assert set(run(folder, environment=old).values()) == {None}


def test_a_file_has_the_credentials_of_each_address(folder, tmp_path):
    file = tmp_path / "logins.json"
    file.write_text(
        json.dumps(
            {
                "noted://in": {"username": "reader", "password": "secret"},
                "noted://alarms": {"username": "all", "password": "secret"},
                "noted://alarms/commands": {"username": "commander", "password": "secret"},
            }
        )
    )
    users = run(folder, "--credentials", file)
    assert users["source in/rows"] == "reader"
    assert users["sink alarms/x"] == "all"
    assert users["source alarms/commands"] == "commander"
    assert users["sink out/rows"] is users["source labels/x"] is None


def test_sources_are_durable_only_with_a_checkpoint(folder, tmp_path):
    for options, durable in (((), False), (("--checkpoint", tmp_path / "state"), True)):
        run(folder, *options)
        found = {name: options.durable for name, (_, options) in OPENED.items() if options}
        assert found == dict.fromkeys(
            ("source in/rows", "source labels/x", "source alarms/commands"), durable
        )


def test_credentials_are_for_one_host():
    environment = variables("ALARMS", "operator")
    both = ["mqtts://a.example/x", "kafka+ssl://b.example/x"]
    with pytest.raises(
        InvalidInputError, match=r"kafka\+ssl://b.example and mqtts://a.example"
    ) as caught:
        read_credentials("alarms", both, environment=environment)
    assert "secret" not in str(caught.value)
    found = read_credentials("alarms", [both[0], "mqtts://a.example/y", None], environment=environment)
    assert found == dict.fromkeys((both[0], "mqtts://a.example/y"), Credentials("operator", "secret"))


@pytest.mark.parametrize(
    "url",
    [
        "mqtts://other.example/plant/x", "mqtts://a.example:8884/plant/x", "mqtt://a.example/plant/x",
        "mqtts://a.example/planted", "mqtts://a.example.evil.example/plant/x",
    ],
)  # fmt: skip
def test_an_entry_is_for_its_own_address_only(tmp_path, url):
    file = tmp_path / "logins.json"
    file.write_text(json.dumps({"mqtts://a.example/plant": {"username": "u"}}))
    assert read_credentials("input", [url], file, {}) == {}
    own = "mqtts://a.example/plant/x?client=y"
    assert read_credentials("input", [own], file, {}) == {own: Credentials("u")}


@pytest.mark.parametrize(
    ("content", "word"),
    [
        ("no JSON", "JSON"),
        ('{"username": "u", "password": "s3cret"}', "addresses"),
        ('{"mqtts://a": {"user": "s3cret"}}', "'user'"),
        ('{"mqtts://a": "s3cret"}', "strings"),
        ('{"mqtts://u:s3cret@a": {}}', "user or password"),
        ('{"mqtts://a": {"ca_file": "nowhere.pem"}}', "nowhere.pem"),
    ],
)
def test_other_files_are_refused_without_a_password_in_the_message(tmp_path, content, word):
    (tmp_path / "logins.json").write_text(content)
    with pytest.raises(InvalidInputError, match=word) as caught:
        read_credentials("input", ["mqtts://a/x"], tmp_path / "logins.json", {})
    assert "s3cret" not in str(caught.value)
