import re
import runpy
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
VENDORED = runpy.run_path(str(ROOT / "scripts" / "vendored.py"))


def test_the_version_is_the_same_everywhere():
    assert re.search(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)[1] == VERSION
    assert re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[1] == VERSION


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
