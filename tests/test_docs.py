"""The documentation: its pages, links and lists, without building the site."""

import importlib
import re
import sys
from pathlib import Path

import pytest

from baryflow.cli import COMMANDS
from scripts import check_site

DOCS = Path(__file__).parents[1] / "docs"
PAGES = [page for page in sorted(DOCS.rglob("*.md")) if "api" not in page.relative_to(DOCS).parts]
#: Pages that the build makes.
GENERATED = {"gallery/index"}
TOCTREE = re.compile(r"```\{toctree\}\n(.*?)```", re.DOTALL)


def entries(page):
    """Return the pages that the toctrees of a page name."""
    found = set()
    for content in TOCTREE.findall(page.read_text(encoding="utf-8")):
        for line in filter(None, content.splitlines()):
            if not line.startswith(":"):
                name = re.sub(r".*<(.+)>", r"\1", line.strip())
                found.add((page.parent / name).resolve().relative_to(DOCS.resolve()).as_posix())
    return found


def anchors(page):
    """Return the anchors of a page: its headings as GitHub and the site write them, and named ones."""
    text = page.read_text(encoding="utf-8")
    if match := re.fullmatch(r"```\{include\} (\S+)\n```\s*", text):
        return anchors(page.parent / match[1])
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return slugs | set(re.findall(r"^\(([\w-]+)\)=$", text, flags=re.MULTILINE))


def test_every_page_is_in_the_contents():
    listed = set().union(*map(entries, PAGES))
    pages = {page.relative_to(DOCS).with_suffix("").as_posix() for page in PAGES}
    assert pages - {"index"} == listed - GENERATED


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(DOCS).as_posix())
def test_links_between_pages_lead_to_headings(page):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for path, anchor in re.findall(r"\]\((?!\w+:)([^()\s#]*\.md|)#([^()\s]+)\)", text):
        target = (page.parent / path).resolve() if path else page
        assert anchor in anchors(target), f"{path}#{anchor}"


MODULES = """alarms client datasets distributed drift exceptions features metrics model_selection page
paper runtime service streams tep"""


@pytest.mark.parametrize("name", ["", *MODULES.split()])
def test_the_api_lists_every_public_name(name):
    module = importlib.import_module(f"baryflow.{name}".rstrip("."))
    public = set(getattr(module, "__all__", ())) or {
        one for one in vars(module) if one.endswith("Error")
    }
    text = (DOCS / "reference" / "api.md").read_text(encoding="utf-8")
    listed = set()
    for current, content in re.findall(r"currentmodule:: (\S+)\n(.*?)```", text, flags=re.DOTALL):
        if current == module.__name__:
            listed |= set(re.findall(r"^   ([A-Za-z]\w*)$", content, flags=re.MULTILINE))
    mentioned = {one for one in public if re.search(rf"[`.]{one}`", text)}
    assert listed <= public
    assert public - listed - {"__version__"} <= mentioned


def test_the_command_line_page_has_every_command_and_option(monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS / "_extensions"))
    rendering = importlib.import_module("rendering")
    monkeypatch.delitem(sys.modules, "rendering")
    page = (DOCS / "reference" / "cli.md").read_text(encoding="utf-8")
    sections = re.findall(r"^## (.+)\n\n```\{command\} (.+)\n```", page, flags=re.MULTILINE)
    commands = dict(rendering.iterate_commands())
    assert {path.split()[0] for path in commands} == set(COMMANDS)
    assert sorted(sections) == sorted((path, path) for path in commands)
    for path, context in commands.items():
        text = rendering.describe_command(path)
        for option in context.command.params:
            assert option.param_type_name == "argument" or option.opts[-1] in text


def test_a_site_that_loads_something_from_elsewhere_is_found(tmp_path):
    (tmp_path / "index.html").write_text(
        '<link rel="stylesheet" href="a.css"><script src="https://cdn.example/x.js"></script>'
        '<a href="https://example.org">x</a><a href="#there">x</a><a href="gone.html">x</a>'
    )
    (tmp_path / "a.css").write_text("@font-face { src: url(//fonts.example/x.woff2) }")
    assert check_site.check(tmp_path) == [
        "a.css loads //fonts.example/x.woff2",
        "index.html loads https://cdn.example/x.js",
        "index.html leads to #there, which has no such anchor",
        "index.html leads to gone.html, which does not exist",
    ]
