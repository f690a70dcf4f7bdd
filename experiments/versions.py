"""Run ``python -m experiments.versions``: which version of the code made each results file?

The answers are kept in ``versions.csv``, one line a file:

``content``  a digest of the file's numbers: other words or columns in another order are no new results
``date``     when these numbers were first committed
``version``  that of the package then
``code``     a digest of :data:`CODE` then, all that decides what is predicted; without comments
``command``  what makes the file

A line stays as it is while the file has the same numbers, so the record does not depend on the history
of the repository. New numbers are looked up in that history; if they are not committed yet, they were
made by the present code, or by that of ``--at COMMIT``. Run it after every experiment, and commit what
it writes.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import re
import subprocess
import sys
import tomllib
from datetime import UTC, datetime
from pathlib import Path

from benchmarks import pages
from experiments import results

TABLE = Path(__file__).parent / "versions.csv"
FIELDS = ("file", "content", "date", "version", "code", "command")
PAGE = "docs/benchmarks/index.md"
#: Folders whose code decides what is predicted.
CODE = ("src/baryflow/core", "src/baryflow/estimators", "src/baryflow/features", "src/baryflow/paper")
#: What makes a file, by its path or by the folder that it is in; figures are made with their tables.
COMMANDS = {
    "benchmarks/results.json": "make bench",
    "experiments/alarms/results/endings.csv": "python -m experiments.alarms.endings",
    "experiments/alarms/results/lasting.csv": "python -m experiments.alarms --lasting",
    "experiments/alarms/results/plant.csv": "python -m experiments.alarms",
    "experiments/alarms/results/plant-5h.csv": "python -m experiments.alarms --hours 5",
    "experiments/benchmark/results": "python -m experiments.benchmark --data FOLDER",
    "experiments/certificate/results": "python -m experiments.certificate --data FOLDER",
    "experiments/distributed/results": "python -m experiments.distributed.{stem}",
    "experiments/distributed/results/order.csv": "python -m experiments.distributed.kills order",
    "experiments/distributed/results/pieces.csv": "python -m experiments.distributed.kills pieces",
    "experiments/drift/results/drift.csv": "python -m experiments.drift --data FOLDER",
    "experiments/drift/results/fresh.csv": "python -m experiments.drift --sets made pumps fans "
    "--first-seed 10",
    "experiments/kills/results/damage.csv": "python -m experiments.kills.damage",
    "experiments/kills/results/kills.csv": "python -m experiments.kills --kills 100",
    "experiments/million/results": "python -m experiments.million",
    "experiments/paper/results": "python -m experiments.paper {stem}",
    "experiments/paper/results/plant.csv": "python -m experiments.paper modes",
    "experiments/paper/results/plant-curves.csv": "python -m experiments.paper figure3",
    "experiments/paper/results/toy-nll.png": "python -m experiments.paper toy",
    "experiments/plantfloor/results": "python -m experiments.plantfloor.{stem}",
    "experiments/recommendation/results": "python -m experiments.recommendation --classifier linear",
    "experiments/recommendation/results/cost.csv": "python -m experiments.recommendation.cost",
    "experiments/service/results": "python -m experiments.service {stem}",
    "experiments/service/results/plant.csv": "python -m experiments.service.plant",
    "experiments/streams/results": "python -m experiments.streams --data FOLDER --method {stem}",
    "experiments/streams/results/reference.csv": "python -m experiments.streams --data FOLDER "
    "--reference FILE.py",
    "experiments/streams/results/baseline_rows.csv": "python -m experiments.streams.baseline_rows "
    "--streams FILE.py",
    "experiments/streams/results/units.csv": "python -m experiments.streams.units",
    "experiments/tep/results": "python -m experiments.tep",
    "experiments/tep/results/encoders.csv": "baryflow tep encode tep-data none --validate --runs 15",
    "experiments/tep/results/general.csv": "python -m experiments.tep.general SIGNALS --runs 50",
    "experiments/wide/results": "python -m experiments.wide --data FOLDER",
}
_NUMBER = re.compile(rb"\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--at", metavar="COMMIT", help="the code that made results not committed yet")
    options = parser.parse_args(arguments)
    known = {row["file"]: row for row in results.read(TABLE)}
    rows = [_keep_or_find(path, known.get(path), options.at) for path in files()]
    TABLE.unlink(missing_ok=True)
    results.append(TABLE, FIELDS, rows)
    pages.fill(PAGE, "versions", table(rows))
    now = digest_code(_read_here)
    for row in rows:
        same = "same code" if row["code"] == now else "other code"
        print(f"{row['date']}  {row['version']:12} {same}  {row['file']}")
    return 0


def files():
    """Return the paths of all results, relative to the project."""
    found = pages.ROOT.glob("experiments/*/results/*")
    return ["benchmarks/results.json", *sorted(str(path.relative_to(pages.ROOT)) for path in found)]


def command(path):
    """Return what makes a file."""
    made = COMMANDS.get(path) or COMMANDS[str(Path(path).parent)]
    return made.format(stem=Path(path).stem)


def digest(path, content):
    """Return a digest of the numbers in a file; of all bytes of a picture."""
    if not path.endswith(".png"):
        content = b" ".join(sorted(_NUMBER.findall(content)))
    return hashlib.sha256(content).hexdigest()[:12]


def digest_code(read):
    """Return a digest of the code, given a function from a folder to its files' paths and contents."""
    found = hashlib.sha256()
    for folder in CODE:
        for path, content in sorted(read(folder).items()):
            if path.endswith(".py"):
                found.update(f"{path}\0{_without_words(content)}\0".encode())
    return found.hexdigest()[:12]


def _without_words(content):
    """Return code without comments, docstrings and layout, which change no result."""
    tree = ast.parse(content)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            first = body[0].value
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                body[0] = ast.Pass()
    return ast.unparse(tree)


def table(rows):
    """Return the table of the page: one line a command, version and date."""
    groups = {}
    for row in rows:
        if not row["file"].endswith((".png", ".md")):  # made from the other files
            groups.setdefault((row["command"], row["version"], row["date"]), []).append(row["file"])
    lines = ["| command | files | version | date |", "|---|---|---|---|"]
    for (made, version, date), paths in groups.items():
        links = ", ".join(f"[{Path(path).name}](../../{path})" for path in paths)
        shown = f"`{made}`" if made.startswith(("python", "make ", "baryflow")) else made
        lines.append(f"| {shown} | {links} | {version} | {date} |")
    return "\n".join(lines)


# -- now and in the history --------------------------------------------------------------------------


def _keep_or_find(path, known, at):
    content = digest(path, (pages.ROOT / path).read_bytes())
    if known is not None and known["content"] == content:
        return known | {"command": command(path)}
    date, commit = datetime.now(UTC).date().isoformat(), at
    if (first := _first_with(path, content)) is not None:
        date, commit = _git("show", "-s", "--format=%cs", first).decode().strip(), first
    if commit is None:
        read, project = _read_here, (pages.ROOT / "pyproject.toml").read_bytes()
    else:
        read, project = _read_at(commit), _git("show", f"{commit}:pyproject.toml")
    return {
        "file": path,
        "content": content,
        "date": date,
        "version": tomllib.loads(project.decode())["project"]["version"],
        "code": digest_code(read),
        "command": command(path),
    }


def _first_with(path, content):
    """Return the commit that brought a file to these numbers; None if it is not committed."""
    found = None
    for commit in _git("log", "--format=%H", "--", path).decode().split():
        try:
            there = _git("show", f"{commit}:{path}")
        except subprocess.CalledProcessError:  # it was deleted or moved here
            break
        if digest(path, there) != content:
            break
        found = commit
    return found


def _read_here(folder):
    root = pages.ROOT / folder
    return {str(path.relative_to(pages.ROOT)): path.read_bytes() for path in root.rglob("*.py")}


def _read_at(commit):
    def read(folder):
        names = _git("ls-tree", "-r", "--name-only", commit, folder).decode().splitlines()
        return {name: _git("show", f"{commit}:{name}") for name in names}

    return read


def _git(*arguments):
    return subprocess.run(
        ["git", *arguments],  # noqa: S607
        cwd=pages.ROOT,
        check=True,
        capture_output=True,
    ).stdout


if __name__ == "__main__":
    sys.exit(main())
