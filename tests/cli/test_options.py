"""The group of commands: fast start, help, and options from the environment and from a file."""

import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from baryflow.cli import COMMANDS, main
from baryflow.cli.options import Size

ROOT = Path(__file__).parents[2]


def call(*arguments, code=0, **env):
    result = CliRunner().invoke(main, [str(a) for a in arguments], env=env)
    assert result.exit_code == code, result.output
    return result


def commands(group=main, path=()):
    """Yield the path and the command, also of the commands in groups."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_and_version_import_neither_numpy_nor_a_command(option):
    program = (
        "import sys\nfrom baryflow.cli import main\n"
        f"main(['{option}'], standalone_mode=False)\n"
        "loaded = {'numpy', 'sklearn', 'scipy', 'baryflow.cli.run'} & set(sys.modules)\n"
        "sys.exit(str(loaded) if loaded else 0)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.DEVNULL)


def test_an_unknown_command_is_refused():
    assert "follow" in call("follow", code=2).stderr


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (["fits"], "fit"),
        (["addsource"], "add-source"),
        (["tep", "simulte"], "simulate"),
        (["run", "--checkpont", "x"], "--checkpoint"),
    ],
)
def test_what_was_probably_meant_is_suggested(typed, meant):
    assert f"mean '{meant}'" in call(*typed, code=2).stderr


@pytest.mark.parametrize("path", [path for path, _ in commands()], ids=" ".join)
def test_help_ends_with_an_example_and_a_page_that_exists(path):
    text = call(*path, "--help").stdout
    example, page = re.search(r"Example:\n +(.*)\n\nDocumentation:\n +(.*)\n$", text).groups()
    assert example.startswith(f"baryflow {' '.join(path)} ")
    assert (ROOT / page).is_file()


def test_every_option_has_a_help_text_and_no_python_name():
    for path, command in commands():
        for option in command.params:
            if isinstance(option, click.Option):
                assert option.help, (path, option.name)
                assert "_" not in option.opts[-1]


def test_every_example_is_understood(monkeypatch):
    """Parse the options of each example; files need not exist."""
    monkeypatch.setattr(click.Path, "convert", lambda _, value, *__: Path(value))
    for path, command in commands():
        arguments = command.example.split()[1 + len(path) :]
        command.make_context(path[-1], arguments).close()


def test_the_list_has_every_command_once():
    text = call("--help").stdout
    assert [re.search(rf"^  {name} ", text, re.M) is not None for name in COMMANDS] == [True] * len(
        COMMANDS
    )


# -- where options come from -------------------------------------------------------------------------


@pytest.fixture
def given(monkeypatch):
    """Return what a command would get, without running it."""

    def ask(*arguments, code=0, **env):
        found = {}
        context = click.Context(main)
        command = main.get_command(context, arguments[0] if arguments[0] in COMMANDS else arguments[2])
        monkeypatch.setattr(command, "callback", lambda **options: found.update(options))
        result = call(*arguments, code=code, **env)
        return found if code == 0 else result.output

    return ask


@pytest.fixture
def config(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.bary").touch()

    def write(text, name="baryflow.toml"):
        (tmp_path / name).write_text(text)
        return tmp_path / name

    return write


def test_the_command_line_wins_over_the_environment_and_that_over_the_file(given, config):
    run = ["run", "m.bary", "rows.csv"]
    assert given(*run)["batch_size"] is None  # depends on the input
    config('[run]\nbatch-size = 8\nmax-latency = "3min"\ntail = true\nsave = "a.bary"\n')
    found = given(*run)
    assert (found["batch_size"], found["max_latency"], found["tail"]) == (8, 180.0, True)
    assert found["save"] == "a.bary"
    assert given(*run, BARYFLOW_RUN_BATCH_SIZE="16")["batch_size"] == 16
    assert given(*run, "--batch-size", "64", BARYFLOW_RUN_BATCH_SIZE="16")["batch_size"] == 64


@pytest.mark.parametrize("path", [path for path, _ in commands()], ids=" ".join)
def test_the_variable_of_an_option_has_its_name(path, monkeypatch):
    command = dict(commands())[path]
    prefix = "_".join(["BARYFLOW", *path]).upper().replace("-", "_")
    options = [option for option in command.params if isinstance(option, click.Option)]
    for option in options:
        name = option.opts[-1].removeprefix("--").upper().replace("-", "_")
        monkeypatch.setenv(f"{prefix}_{name}", "1")
    with click.Context(command, auto_envvar_prefix=prefix, resilient_parsing=True) as context:
        for option in options:
            assert option.resolve_envvar_value(context) == "1", option.name


def test_an_unknown_variable_is_ignored_with_a_warning():
    found = call("inspect", "none.bary", code=1, BARYFLOW_INSPECT_FILE="x", BARYFLOW_RUN_BATCHSIZE="8")
    assert "warning: BARYFLOW_INSPECT_FILE is ignored" in found.stderr
    assert "BATCHSIZE" not in found.stderr  # of another command
    found = call("run", "none.bary", "rows.csv", code=2, BARYFLOW_RUN_BATCHSIZE="8")
    assert "did you mean BARYFLOW_RUN_BATCH_SIZE?" in found.stderr


def test_an_error_names_the_origin_of_a_wrong_value(config):
    config("")
    run = ["run", "m.bary", "rows.csv"]
    wrong = "'many' is not a whole number"
    found = call(*run, "--batch-size", "many", code=2).stderr
    assert f"'--batch-size': {wrong}" in found
    found = call(*run, code=2, BARYFLOW_RUN_BATCH_SIZE="many").stderr
    assert f"'--batch-size' (from BARYFLOW_RUN_BATCH_SIZE): {wrong}" in found
    config('[run]\nbatch-size = "many"\n')
    assert f"'--batch-size' (from the configuration file): {wrong}" in call(*run, code=2).stderr


def test_another_file_can_be_named(given, config):
    path = config("[serve]\nport = 9000\n", "other.toml")
    assert given("serve", "m.bary")["port"] == 8000
    assert given("--config", path, "serve", "m.bary")["port"] == 9000
    assert given("serve", "m.bary", BARYFLOW_CONFIG=str(path))["port"] == 9000
    assert "none.toml" in call("--config", "none.toml", "serve", "m.bary", code=2).stderr


def test_required_and_repeated_options_can_come_from_a_file(given, config):
    config('[fit]\nlabel = "y"\noutput = "m2.bary"\nignore = ["a", "b"]\nclass-prior = "normal=0.5"\n')
    found = given("fit", "m.bary")
    assert (found["label"], found["ignore"]) == ("y", ("a", "b"))
    assert found["class_prior"] == ("normal=0.5",)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("[run]\nbatch = 8\n", "'batch'"),
        ("[run]\nbatch_size = 8\n", "'batch_size'"),
        ("[run]\nmodel = 'm.bary'\n", "'model'"),
        ("[runn]\nbatch-size = 8\n", "'runn'"),
        ("batch-size = 8\n", "'batch-size'"),
        ("[run]\nbatch-size = true\n", "'batch-size'"),
        ("[run]\ntail = 1\n", "'tail'"),
        ("[run]\nbatch-size = [1, 2]\n", "'batch-size'"),
        ("[run]\nbatch-size = 'many'\n", "--batch-size"),
        ("[run\n", "TOML"),
        ("[run]\nbatch-size = " + "[" * 100_000, "baryflow.toml"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(config, text, word):
    config(text)
    assert word in call("run", "m.bary", "rows.csv", code=2).stderr
    assert call("run", "--help").exit_code == 0  # help is there also if the file is wrong


def test_groups_have_sections_of_their_own(config):
    config("[tep.publish]\nspeeed = 3\n")
    assert "'speeed'" in call("tep", "publish", code=2).stderr
    config("[tep]\npublish = 3\n")
    assert "'publish'" in call("tep", "publish", code=2).stderr


def test_a_version_in_the_environment_is_no_request_for_the_version():
    assert "Commands:" in call("--help", BARYFLOW_VERSION="1.2").stdout


@pytest.mark.parametrize(
    ("text", "size"), [("500", 500), ("500MB", 500_000_000), ("2 GiB", 2**31), ("64kb", 64_000)]
)
def test_sizes(text, size):
    assert Size().convert(text, None, None) == size


@pytest.mark.parametrize("text", ["", "0", "-1", "many", "3TB"])
def test_sizes_that_are_none(text):
    with pytest.raises(click.BadParameter):
        Size().convert(text, None, None)
