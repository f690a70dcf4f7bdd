"""What the README says is what the repository holds."""

import re
from pathlib import Path

import pytest

from benchmarks import harness, pages, report
from experiments import readme
from tests import test_docs_code

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = [
    pytest.param(page, code, id=f"{page.name}-{number}")
    for page in PAGES
    if page not in (test_docs_code.FIRST, *test_docs_code.PAGES)
    for number, code in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL))
    # Others run these, and look at what they print.
    if page != README and page.name != "pipelines.md"
    if not (page.name == "evaluation.md" and "table())" in code)
]


def test_the_performance_page_is_that_of_the_committed_results():
    text = (ROOT / report.PAGE).read_text()
    for name, content in report.tables(harness.read()).items():
        assert pages.filled(text, name, content) == text, name


def test_every_committed_result_says_whether_it_reached_its_bar():
    for outcome in harness.read().values():
        for result in outcome.results:
            reached = result.bar is None or result.ratio >= result.bar
            assert result.ok == (reached and result.quality.get("ok", True))


def test_the_first_screen_names_both_commands_of_a_fresh_clone():
    screen = README.read_text().partition("\n## ")[0]
    lines = re.findall(r"^make (\w+) +# .* minutes", screen, flags=re.MULTILINE)
    assert lines == ["demo", "test"]


@pytest.mark.parametrize(("page", "code"), EXAMPLES)
def test_python_examples_run(page, code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(code, page.name, "exec"), {})  # noqa: S102 - our own text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_it_links_to_exists(page):
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", page.read_text()):
        made = "api" in Path(target).parts  # by the build
        assert made or (page.parent / target).exists(), target


def test_its_results_are_the_committed_ones():
    text = README.read_text()
    assert pages.filled(text, "results", readme.results_table()) == text, "python -m experiments.readme"
    text = (ROOT / "docs" / "guide" / "limits.md").read_text()
    assert pages.filled(text, "limits", readme.limits_table()) == text, "python -m experiments.readme"


@pytest.mark.parametrize(
    "name", re.findall(r"`(test_\w+)`", (ROOT / "docs" / "method" / "numerics.md").read_text())
)
def test_every_test_named_in_the_docs_exists(name):
    assert any(f"def {name}(" in path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))


def test_the_first_example_wins_by_what_the_readme_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = README.read_text()
    code = re.search(r"```python\n(.*?)```", text, flags=re.DOTALL).group(1)
    names = {}
    exec(compile(code, README.name, "exec"), names)  # noqa: S102 - our own text
    found = [100 * names[name] for name in ("source", "standardised", "adapted")]
    assert found[2] > max(found[:2]) + 5
    committee = names["model"].committee_
    dictionary = ["reconstruction" in name or "components" in name for name in committee.experts]
    assert committee.weights[dictionary].sum() > 0.2 * committee.weights.sum()
    shown = re.search(r"```text\n(.*?)\n", text).group(1)
    figures = [float(number) for number in re.findall(r"([\d.]+)%", shown)]
    assert figures == pytest.approx(found, abs=1.0)
