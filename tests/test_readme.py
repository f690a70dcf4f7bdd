"""What the README says is what the repository holds."""

import re
from pathlib import Path

import pytest

from benchmarks import harness

README = Path(__file__).parent.parent / "README.md"


def test_the_benchmark_table_is_that_of_the_committed_results():
    text = README.read_text()
    assert harness.with_table(text, harness.read()) == text


def test_every_committed_result_says_whether_it_reached_its_bar():
    for result in harness.read():
        quality_ok = result.quality.get("ok", True)
        assert result.ok == (result.ratio >= result.bar and quality_ok)


@pytest.mark.parametrize("number", range(len(re.findall("```python", README.read_text()))))
def test_python_examples_run(number, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    example = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)[number]
    exec(compile(example, f"README example {number}", "exec"), {})  # noqa: S102 - our own text


def test_every_file_it_links_to_exists():
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", README.read_text()):
        assert (README.parent / target).exists(), target
