import os
import re
import runpy
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
VENDORED = runpy.run_path(str(ROOT / "scripts" / "vendored.py"))


def test_the_version_is_the_same_everywhere():
    assert re.search(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)[1] == VERSION
    assert re.search(r"^## (\d\S*)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[1] == VERSION


def test_every_vendored_script_is_in_the_bill_of_materials():
    found = [path for folder in ("src", "tests") for path in (ROOT / folder).rglob("*.min.js")]
    files = {str(path.relative_to(ROOT)) for path in found}
    assert files == {path for path, *_ in VENDORED["VENDORED"]}


@pytest.mark.parametrize("entry", VENDORED["VENDORED"], ids=lambda entry: entry[1])
def test_vendored_scripts_have_a_version_and_a_licence(entry):
    assert VENDORED["describe"](*entry)["version"]
    assert (ROOT / entry[0]).with_name("LICENSE").is_file()


def test_workflows_use_actions_by_hash_and_targets_that_exist():
    makefile = (ROOT / "Makefile").read_text()
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        text = path.read_text()
        actions = re.findall(r"uses: (\S+)", text)
        assert all(re.fullmatch(r"\S+@[0-9a-f]{40}", action) for action in actions)
        for line in re.findall(r"run: make (.*)", text):
            assert all(f"\n{target}:" in makefile for target in line.split())


@pytest.mark.parametrize("name", ["baryflow", "another name"])
@pytest.mark.parametrize("code", [0, 3])
def test_ci_runs_the_tests_in_a_folder_called_like_the_package(tmp_path, name, code):
    checkout, programs, scratch = tmp_path / name, tmp_path / "bin", tmp_path / "scratch"
    for folder in (checkout, programs, scratch):
        folder.mkdir()
    shutil.copytree(ROOT / ".ci", checkout / ".ci")
    (checkout / "Makefile").touch()
    make = programs / "make"  # instead of the real one
    lines = ["#!/bin/sh", '[ "$1" = test ] || exit 0', 'ls "../${PWD##*/}/Makefile"', f"exit {code}", ""]
    make.write_text("\n".join(lines))
    make.chmod(0o755)
    env = os.environ | {"PATH": f"{programs}:{os.environ['PATH']}", "TMPDIR": str(scratch)}
    done = subprocess.run([checkout / ".ci/run"], env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (code, "../baryflow/Makefile\n"), done.stderr
    assert not list(scratch.iterdir())
