"""The container image and the systemd units: they lint, and they use options that exist."""

import re
import shlex
import shutil
import subprocess
import tomllib
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner

from baryflow.cli import main

ROOT = Path(__file__).parent.parent
DOCKERFILE = ROOT / "Dockerfile"
UNITS = sorted((ROOT / "deploy").glob("*.service"))
DOCS = ROOT / "docs" / "howto" / "deployment.md"


@cache
def help_of(command):
    return CliRunner().invoke(main, [command, "--help"]).stdout


def exec_start(unit):
    return re.search(r"^ExecStart=(.*)$", unit.read_text(), re.MULTILINE)[1]


def command_lines():
    """Yield where a command line of baryflow stands, and its arguments from the command on."""
    for unit in UNITS:
        yield unit.name, shlex.split(exec_start(unit))[1:]
    default = re.search(r"^CMD (\[.*\])$", DOCKERFILE.read_text(), re.MULTILINE)[1]
    yield DOCKERFILE.name, shlex.split(default.strip("[]").replace(",", " "))
    code = "\n".join(re.findall(r"```sh\n(.*?)```", DOCS.read_text(), re.DOTALL)).replace("\\\n", " ")
    for number, line in enumerate(re.findall(r"\bbaryflow ((?:serve|run) .*)", code)):
        yield f"{DOCS.name}-{number}", shlex.split(line)


def settings(unit):
    """Return the settings of a unit; one that is repeated keeps its last value."""
    return dict(re.findall(r"^(\w+)=(.*)$", unit.read_text(), re.MULTILINE))


def test_there_are_command_lines_to_check():
    assert [arguments[0] for _, arguments in command_lines()] == [
        "run",
        "serve",
        "serve",
        "serve",
        "run",
    ]


@pytest.mark.parametrize(
    "arguments", [pytest.param(arguments, id=name) for name, arguments in command_lines()]
)
def test_every_option_exists(arguments):
    command, *rest = arguments
    options = {part for part in rest if part.startswith("--")}
    assert options
    assert options <= set(re.findall(r"--[\w-]+", help_of(command)))


@pytest.mark.parametrize(("name", "command"), [("SERVE_OPTIONS", "serve"), ("RUN_OPTIONS", "run")])
def test_every_option_in_an_environment_variable_exists(name, command):
    values = re.findall(rf"\b{name}=([^\"`\n]+)", DOCS.read_text())
    options = {part for value in values for part in value.split() if part.startswith("--")}
    assert options
    assert options <= set(re.findall(r"--[\w-]+", help_of(command)))


def test_the_default_command_of_the_image_listens_on_loopback_only():
    arguments = dict(command_lines())[DOCKERFILE.name]
    assert arguments[arguments.index("--host") + 1] == "127.0.0.1"


def test_the_image_is_built_in_two_stages_from_extras_that_exist_and_runs_without_root():
    text = DOCKERFILE.read_text()
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(re.search(r"^ARG EXTRAS=(.*)$", text, re.MULTILINE)[1].split(",")) <= set(known)
    assert len(re.findall("^FROM ", text, re.MULTILINE)) == 2
    final = text.split("\nFROM ")[-1]
    assert int(re.search(r"^USER (\d+)", final, re.MULTILINE)[1]) > 0
    assert "HEALTHCHECK" in final


def test_the_build_context_holds_what_the_image_copies():
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE.read_text(), re.MULTILINE)
    admitted = re.findall(r"^!(.*)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE)
    assert sorted(name for line in copied for name in line.split()) == sorted(admitted)
    assert all((ROOT / name).exists() for name in admitted)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_units_are_sandboxed_and_restart_on_failure_only(unit):
    found = settings(unit)
    assert found["DynamicUser"] == found["NoNewPrivileges"] == "yes"
    assert found["ProtectSystem"] == "strict"
    assert found["StateDirectory"] == unit.stem
    assert found["Restart"] == "on-failure"
    assert found["RestartPreventExitStatus"] == "2"


@pytest.mark.skipif(not shutil.which("hadolint"), reason="hadolint is not installed")
def test_hadolint_accepts_the_dockerfile():
    done = subprocess.run(["hadolint", str(DOCKERFILE)], capture_output=True, text=True, check=False)  # noqa: S607
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is not installed")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_accepts_the_units(unit, tmp_path):
    # The program need not be installed for this: any other will do, at a path without spaces.
    program = exec_start(unit).split()[0]
    copy = tmp_path / unit.name
    copy.write_text(unit.read_text().replace(f"ExecStart={program}", f"ExecStart={shutil.which('sh')}"))
    for check in (["verify", "--man=no"], ["security", "--offline=true", "--threshold=20"]):
        call = ["systemd-analyze", *check, str(copy)]
        done = subprocess.run(call, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "Unknown key" not in done.stderr  # a misspelt setting is only a warning
