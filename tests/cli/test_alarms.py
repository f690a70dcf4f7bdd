"""``run`` with alarms: from a configuration file to files, webhooks and back by commands."""

import json

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from baryflow import OnlineDaDiL
from baryflow.cli import main
from baryflow.datasets import make_domains
from tests.runtime.receiver import SECRET, Receiver

P = make_domains(n_sources=3, n_classes=3, n_features=4, n_per_class=40, random_state=0)
COLUMNS = list("abcd")
CLASSES = np.array(["normal", "worn", "broken"])
CONFIG = """
[alarms]
on-delay = "1min"
off-delay = 2
probability = 0.5
[alarms.classes.broken]
priority = "critical"
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    fitted = OnlineDaDiL(classifier="linear", validate=False, keep_sources=False, random_state=0)
    frame = pd.DataFrame(P.X, columns=COLUMNS)
    path = tmp_path_factory.mktemp("model") / "model.bary"
    fitted.fit(frame, CLASSES[P.y], P.domain).save(path)
    return path


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with rows: normal, worn, broken, normal; one a minute."""
    order = np.concatenate([np.flatnonzero(P.y_target == code)[:12] for code in (0, 1, 2)])
    order = np.append(order, np.flatnonzero(P.y_target == 0)[12:24])
    rows = pd.DataFrame(P.X_target[order], columns=COLUMNS)
    rows["time"] = [f"2026-01-01T00:{i:02d}:00Z" for i in range(len(rows))]
    rows.to_csv(tmp_path / "rows.csv", index=False)
    (tmp_path / "baryflow.toml").write_text(CONFIG)
    (tmp_path / "secret").write_text(SECRET)
    commands = [{"action": "acknowledge", "alarm": "worn", "by": "ada"}, {"action": "sing"}]
    (tmp_path / "commands.ndjson").write_text("".join(json.dumps(one) + "\n" for one in commands))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(*arguments, code=0, **env):
    result = CliRunner().invoke(main, [str(one) for one in arguments], env=env)
    assert result.exit_code == code, f"{result.output}\n{result.exception!r}"
    return result


def follow(model, *more, code=0, **env):
    return call("run", model, "rows.csv", "--time", "time", "-o", "out.ndjson", *more, code=code, **env)


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_alarms_reach_the_events_a_file_and_a_webhook(model, folder):
    with Receiver() as receiver:
        webhook = ["--alarm-webhook", receiver.url, "--alarm-secret-file", "secret"]
        found = follow(model, "--events", "events.ndjson", "--alarms", "alarms.ndjson", *webhook)
    alarms = [one for one in read(folder / "events.ndjson") if one["event"] == "alarm"]
    changes = [(one["change"], one["alarm"], one["priority"]) for one in alarms]
    assert changes == [
        ("raised", "worn", "medium"),
        ("cleared", "worn", "medium"),
        ("raised", "broken", "critical"),
        ("cleared", "broken", "critical"),
    ]
    assert read(folder / "alarms.ndjson") == receiver.messages == alarms
    assert "2 alarms raised" in found.stderr
    assert "critical alarm 2: broken" in found.stderr
    assert alarms[0]["evidence"]["columns"][0]["name"] in COLUMNS


@pytest.mark.parametrize(("names", "cleared"), [(["worn"], {"broken"}), (["all"], set())])
def test_a_latched_alarm_is_not_cleared(model, folder, names, cleared):
    latch = [one for name in names for one in ("--latch", name)]
    follow(model, "--alarms", "alarms.ndjson", *latch)
    alarms = read(folder / "alarms.ndjson")
    assert [one["alarm"] for one in alarms if one["change"] == "raised"] == ["worn", "broken"]
    assert {one["alarm"] for one in alarms if one["change"] == "cleared"} == cleared


def test_an_acknowledgement_ends_a_latched_alarm(model, folder):
    resumable = ["--latch", "worn", "--checkpoint", "state", "--alarms", "alarms.ndjson"]
    commands = folder / "later.ndjson"
    commands.write_text("")
    follow(model, *resumable, "--alarm-commands", commands)
    commands.write_text('{"action": "acknowledge", "alarm": "worn"}\n')
    follow(model, *resumable, "--alarm-commands", commands)
    changes = [one["change"] for one in read(folder / "alarms.ndjson") if one["alarm"] == "worn"]
    assert changes == ["raised", "acknowledged", "cleared"]


def test_the_report_page_lists_alarms_and_labels(model, folder):
    labels = [{"position": 3, "label": "normal"}, {"position": 900, "label": "worn", "time": ""}]
    labels.append({"position": 5, "label": "x" * 300})  # too long for a class
    (folder / "labels.ndjson").write_text("".join(json.dumps(one) + "\n" for one in labels))
    follow(model, "--events", "events.ndjson", "--labels", "labels.ndjson", "--save", "after.bary")
    call("report", "after.bary", "--html", "page.html", "--events", "events.ndjson")
    page = (folder / "page.html").read_text()
    alarms = [one for one in read(folder / "events.ndjson") if one["event"] == "alarm"]
    assert len(alarms) >= 4
    assert page.count('<th scope="row">alarm</th>') == len(alarms)
    assert all(one["time"] in page for one in alarms)
    assert "label learned" in page
    assert "is not used" in page


def test_commands_are_carried_out_and_refused_with_a_reason(model, folder):
    # Commands of a file are read before the first rows.
    found = follow(
        model,
        "--alarm-commands",
        "commands.ndjson",
        "--events",
        "events.ndjson",
        "--checkpoint",
        "state",
    )
    assert "cannot acknowledge 'worn': worn has had no alarm" in found.stderr
    assert "command 2 is not used: it has no 'alarm'" in found.stderr
    # With the checkpoint the run continues, and so do new lines of the file.
    with (folder / "commands.ndjson").open("a") as file:
        file.write('{"action": "acknowledge", "alarm": "worn", "by": "ada"}\n')
    follow(
        model,
        "--alarm-commands",
        "commands.ndjson",
        "--events",
        "events.ndjson",
        "--checkpoint",
        "state",
    )
    last = read(folder / "events.ndjson")[-1]
    assert (last["change"], last["state"], last["by"]) == ("acknowledged", "normal", "ada")


def test_half_a_record_at_the_end_of_a_file_of_alarms_is_cut_off(model, folder):
    """A kill or a full disk may have left it."""
    first = {"event": "alarm", "change": "raised", "message": "of an earlier run"}
    (folder / "alarms.ndjson").write_text(json.dumps(first) + '\n{"event": "al')
    follow(model, "--alarms", "alarms.ndjson", "--checkpoint", "state")
    found = read(folder / "alarms.ndjson")
    assert found[0] == first
    assert {one["event"] for one in found[1:]} == {"alarm"}


@pytest.mark.parametrize(
    ("config", "options", "words"),
    [
        ("", ["--alarms", "a.ndjson"], "add a section [alarms]"),
        ("", ["--alarm-commands", "commands.ndjson"], "alarms are off"),
        ("", ["--latch", "worn"], "add a section [alarms]"),
        ("[alarms]\non-dely = 3", [], "alarms: unknown key 'on-dely'"),
        ("[alarms]\nnormal = ['idle']", [], "alarms.normal"),
        ("[alarms]", ["--alarms", "a.csv"], ".ndjson"),
        ("[alarms]", ["--alarm-webhook", "http://plant.example/"], "--alarm-secret-file"),
        (
            "[alarms]",
            ["--alarm-webhook", "http://plant.example/", "--alarm-secret-file", "secret"],
            "https",
        ),
        ("[alarms]", ["--alarms", "rows.csv"], "rows.csv is an input"),
        ("alarms = 3", [], "section"),
    ],
)
def test_errors_say_what_to_do(model, folder, config, options, words):
    (folder / "baryflow.toml").write_text(config)
    code = 2 if config == "alarms = 3" else 1
    assert words in " ".join(follow(model, *options, code=code).stderr.split())


def test_delays_in_time_need_times(model, folder):
    found = call("run", model, "rows.csv", "-o", "out.ndjson", code=1)
    assert "--time" in found.stderr


def test_a_class_that_is_not_there_is_a_warning(model, folder):
    (folder / "baryflow.toml").write_text("[alarms.classes.brokn]\npriority = 'low'\n")
    assert "alarms.classes.brokn" in follow(model).stderr
