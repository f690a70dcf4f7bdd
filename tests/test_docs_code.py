"""The code and the commands in Get started, guide and how-to work, and print what the pages show.

Blocks of a page (```sh, ```python, ```toml) run in order, in one folder with the example pumps and the
models that docs/get-started.md makes of them. Of ```sh blocks only lines with `baryflow` run. A
```toml block is the `baryflow.toml` of later commands, a ```text block what the last block prints.
`<!-- not run: REASON -->` before a block leaves it out, `<!-- file: NAME -->` makes a file of it.
"""

import contextlib
import io
import os
import re
import shlex
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from baryflow.cli import main

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PUMPS = ROOT / "examples" / "pumps"
FIRST = DOCS / "get-started.md"
README = ROOT / "README.md"
BLOCK = re.compile(
    r"(?:<!-- (?P<mark>not run|file): (?P<what>[^>]*) -->\n)?```(?P<kind>\w+)\n(?P<code>.*?)```",
    re.DOTALL,
)
NUMBER = r"-?\d[\d,]*\.?\d*"
#: Their examples need a service, a broker or a cluster; tests of these parts run them.
ELSEWHERE = {"serve.md", "dask.md", "evaluation.md", "pipelines.md"}
PAGES = [
    page
    for folder in ("guide", "howto")
    for page in sorted((DOCS / folder).glob("*.md"))
    if page.name not in ELSEWHERE and BLOCK.search(page.read_text(encoding="utf-8"))
]


def blocks(page):
    return BLOCK.finditer(page.read_text(encoding="utf-8"))


def commands(code):
    lines = code.replace("\\\n", " ").splitlines()
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("baryflow ")]


def run_commands(code):
    printed = []
    for arguments in commands(code):
        done = CliRunner().invoke(main, arguments, prog_name="baryflow", catch_exceptions=False)
        assert done.exit_code == 0, (arguments, done.output)
        printed.append(done.output)
    return "".join(printed)


def run_python(code, names, page):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, page.name, "exec"), names)  # noqa: S102 - our own text
    return out.getvalue()


def run_page(page):
    names, printed = {}, ""
    for block in blocks(page):
        mark, what, kind, code = block.group("mark", "what", "kind", "code")
        if mark == "not run":
            printed = None
        elif mark == "file":
            Path(what).write_text(code, encoding="utf-8")
        elif kind == "sh":
            printed = run_commands(code)
        elif kind == "python":
            printed = run_python(code, names, page)
        elif kind == "toml":
            Path("baryflow.toml").write_text(code, encoding="utf-8")
        elif kind == "text" and printed is not None:
            compare(code, printed, page)


def compare(shown, printed, page):
    """Check that the lines shown are among those printed, in order; figures may differ a little."""
    lines = iter([line.split() for line in printed.splitlines()])
    for line in shown.splitlines():
        if line.strip() in ("", "…"):
            continue
        assert any(same(line.split(), other) for other in lines), (page.name, line, printed)


def same(shown, printed):
    shown, printed = " ".join(shown), " ".join(printed)
    if re.sub(NUMBER, "#", shown) != re.sub(NUMBER, "#", printed):
        return False
    pairs = zip(re.findall(NUMBER, shown), re.findall(NUMBER, printed), strict=True)
    return all(
        float(a.replace(",", "")) == pytest.approx(float(b.replace(",", "")), abs=3, rel=0.05)
        for a, b in pairs
    )


@pytest.fixture(scope="module")
def pumps(tmp_path_factory):
    """Return a folder in which docs/get-started.md was followed."""
    folder = tmp_path_factory.mktemp("pumps")
    shutil.copytree(PUMPS, folder, dirs_exist_ok=True)
    before = Path.cwd()
    os.chdir(folder)
    try:
        run_page(FIRST)
    finally:
        os.chdir(before)
    return folder


def test_the_first_steps(pumps):
    assert (pumps / "predictions.csv").stat().st_size > 10_000


def test_the_commands_of_the_readme(pumps, tmp_path, monkeypatch):
    """Those that the first steps do not have: these were run already."""
    shutil.copytree(pumps, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    Path("predictions.csv").unlink()
    shown, done = (
        [one for block in blocks(page) if block["kind"] == "sh" for one in commands(block["code"])]
        for page in (README, FIRST)
    )
    assert [arguments[0] for arguments in shown] == ["fit", "run"]
    for arguments in shown:
        if arguments not in done:
            ran = CliRunner().invoke(main, arguments, prog_name="baryflow", catch_exceptions=False)
            assert ran.exit_code == 0, ran.output
    assert len(Path("predictions.csv").read_text().splitlines()) == 901


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}/{page.stem}")
def test_pages(page, pumps, tmp_path, monkeypatch):
    shutil.copytree(pumps, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    run_page(page)
