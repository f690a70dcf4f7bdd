"""Labelled histories in files: the options that say what is what, reading, and the plan."""

from __future__ import annotations

import functools
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from baryflow.cli.console import WholeNumber
from baryflow.exceptions import InvalidInputError
from baryflow.features import OnnxEncoder, SignalFeatures, Windows, windows
from baryflow.features.encoder import import_runtime
from baryflow.features.labelled import find_normal, read_encoder
from baryflow.streams import Table, read_table
from baryflow.validation import count_of

#: Columns, left out or faulty, and names that are listed at most.
_LISTED = 12
#: Labels with more different fractions than this are a measurement.
_MANY_FRACTIONS = 50
#: Labels with more different whole numbers than this are one, too, if there are few rows of each.
_MANY_NUMBERS, _ROWS_EACH = 100, 10
#: Labels with more different values than this are names of rows if most occur once.
_FEW = 10


class HistoryFile(click.ParamType[Path | str]):
    """A file that is there; workers of a cluster (--dask) also take folders, and what is elsewhere."""

    name = "file"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Path | str:
        """Return its path, or the URL as it is."""
        if ctx is not None and isinstance(ctx.params.get("dask"), str):
            return str(value)
        far = any(option.name == "dask" for option in (ctx.command.params if ctx else ()))
        hint = ", or add --dask local" if far else ""
        if Path(value).is_dir():
            self.fail(f"{value} is a folder: name its files{hint}.", param, ctx)
        if "://" in str(value):
            self.fail(f"{value} is not a file on this machine: name one{hint}.", param, ctx)
        click.Path(exists=True, dir_okay=False).convert(value, param, ctx)
        return Path(value)


@dataclass(frozen=True)
class Histories:
    """What was said of labelled files on the command line.

    Attributes
    ----------
    files, label, domain, domain_from_file, time, ignore
        As in :func:`~baryflow.streams.read_table`.
    window, step : int, optional
        Rows of a window, and from one to the next; rows are taken as they are without them.
    normal : str, optional
        The class that is normal operation.
    encoder : path, optional
        Of a network.
    """

    files: tuple[Path | str, ...]
    label: str
    domain: str | None
    domain_from_file: bool
    time: str | None
    ignore: tuple[str, ...]
    window: int | None
    step: int | None
    normal: str | None
    encoder: Path | None

    def check(self) -> None:
        """Say before any file is read what does not go together, or is not installed."""
        if (self.domain is None) != self.domain_from_file:
            raise InvalidInputError(
                "say where the domains are: --domain COLUMN, or --domain-from-file if each file is one"
            )
        if self.window is None:
            for name in ("step", "normal", "encoder"):
                if getattr(self, name) is not None:
                    raise InvalidInputError(
                        f"--{name} is about windows of raw signals: say how long one is, with --window"
                    )
        if self.encoder is not None:
            if self.normal is not None:
                raise InvalidInputError(
                    "a network (--encoder) takes signals as they are: leave out --normal"
                )
            import_runtime()

    def read(self) -> Table:
        """Return the rows of all files."""
        return read_table(
            self.files,
            label=self.label,
            domain=self.domain,
            domain_from_file=self.domain_from_file,
            time=self.time,
            ignore=self.ignore,
        )

    def read_windows(self) -> tuple[Table, Signals]:
        """Return the rows of all files, and the windows that they are cut into."""
        if self.domain is None or len(self.files) == 1:
            table = self.read()
            return table, self._cut(table, table.domain)
        # No window may begin in one file and end in another: so files are read as if they were the
        # domains, and the column that names these as text beside them, in the place of the time.
        out = [*self.ignore, *([] if self.time is None else [self.time])]
        table = read_table(
            self.files, label=self.label, domain_from_file=True, time=self.domain, ignore=out
        )
        named = np.array([bool(name) for name in table.times])
        counts = {**table.counts, "nowhere": int((~named).sum())}
        if not named.any():
            raise InvalidInputError(f"no row has a domain in column {self.domain!r}")
        files, domain = table.domain[named], np.array(table.times)[named]
        table = replace(table, X=table.X[named], y=table.y[named], domain=domain, counts=counts)
        file_codes, codes = (np.unique(part, return_inverse=True)[1] for part in (files, domain))
        return table, self._cut(table, file_codes * (codes.max() + 1) + codes)

    def _cut(self, table: Table, groups: Any) -> Signals:
        length = int(self.window or 1)
        step = max(1, length // 4) if self.step is None else self.step
        for name in np.unique(table.domain):
            longest = int(np.unique(groups[table.domain == name], return_counts=True)[1].max())
            if longest < length:
                raise InvalidInputError(
                    f"--window {length} is longer than what there is of {name}: {longest:,} rows one "
                    f"after the other; take {longest} or less, or leave {name} out"
                )
        cut = windows(table.X, length, step, by=groups, label=table.y)
        cut = replace(cut, channels=table.columns)
        domain = table.domain[cut.end]
        normal = None if self.normal is None else _as_class(self.normal, table.y, "--normal")
        if normal is not None:
            find_normal(cut, domain, normal)
        features = SignalFeatures() if self.encoder is None else read_encoder(self.encoder, cut)
        return Signals(cut, domain, step, normal, features)


@dataclass(frozen=True, eq=False)
class Signals:
    """Windows of raw signals, and what is to make features of them."""

    cut: Windows
    domain: NDArray[Any]
    step: int
    normal: Any
    features: SignalFeatures | OnnxEncoder

    def describe(self) -> list[str]:
        """Say how many windows there are, and what they count as."""
        n, length, _ = self.cut.shape
        mixed = float(np.mean(self.cut.mixed)) if self.cut.mixed is not None else 0.0
        lines = [f"{count_of(n, 'window')} of {count_of(length, 'row')}, one every {self.step:,}"]
        if mixed:
            lines[0] += f"; in {mixed:.0%} the class changes: they count as what their last row is"
        if self.normal is not None:
            lines.append(
                f"features are deviations from {self.normal!r}; tell what is normal on the new machine "
                "too (docs/features.md): without it they are worse than without --normal"
            )
        return lines


def of_files(command: Any) -> Any:
    """Add the options that say what is what in labelled files; the command gets them as one."""

    @functools.wraps(command)
    def taken(**given: Any) -> Any:
        found = Histories(**{field.name: given.pop(field.name) for field in fields(Histories)})
        return command(found, **given)

    existing = click.Path(exists=True, dir_okay=False, path_type=Path)
    options = [
        click.argument("files", nargs=-1, required=True, type=HistoryFile()),
        click.option("--label", required=True, metavar="COLUMN", help="Holds the classes."),
        click.option("--domain", metavar="COLUMN", help="Holds the machine, plant or mode of a row."),
        click.option("--domain-from-file", is_flag=True, help="Each file is a domain of its own."),
        click.option("--time", metavar="COLUMN", help="Holds the time: not a feature."),
        click.option(
            "--ignore", multiple=True, metavar="COLUMN", help="Leave this column out; repeat it."
        ),
        click.option(
            "--window",
            type=WholeNumber(2),
            metavar="ROWS",
            help="Rows are raw signals, in order of time: learn from windows of so many of them.",
        ),
        click.option(
            "--step",
            type=WholeNumber(1),
            metavar="ROWS",
            help="From one window to the next.  [default: a quarter of a window]",
        ),
        click.option("--normal", metavar="CLASS", help="Normal operation, from which windows deviate."),
        click.option(
            "--encoder",
            type=existing,
            metavar="FILE",
            help="ONNX network that makes features of windows, instead of statistics. It is executed as "
            "trusted code, like a Python package.",
        ),
    ]
    for option in reversed(options):
        taken = option(taken)
    return taken


def as_shares(usual: tuple[str, ...], y: Any) -> dict[Any, float] | None:
    """Return what is known of the mix: 'normal=0.5' for each class that is named."""
    found: dict[Any, float] = {}
    for words in usual:
        name, _, share = words.rpartition("=")
        try:
            number = float(share)
        except ValueError:
            number = -1.0
        if not name or not 0.0 <= number <= 1.0:
            raise InvalidInputError(f"--usual must be CLASS=SHARE with a share of 0 to 1, got {words!r}")
        found[_as_class(name, y, "--usual")] = number
    return found or None


def _as_class(name: str, y: Any, option: str) -> Any:
    """Return the class that was named, a number if classes are."""
    classes = {str(known): known for known in np.unique(y).tolist()}
    if name not in classes:
        known = ", ".join(classes)
        raise InvalidInputError(f"{option} names {name!r}, which is not a class; classes are: {known}")
    return classes[name]


def check_rows(table: Table, label: str) -> list[str]:
    """Refuse labels that cannot be classes; return what is doubtful about the others.

    Parameters
    ----------
    table : Table
    label : str
        The column of the labels.

    Returns
    -------
    list of str
        Warnings.

    Raises
    ------
    InvalidInputError
        If there is one class only, labels look like a measurement or like names of rows, or a domain
        has no value in a column.
    """
    classes, counts = np.unique(table.y, return_counts=True)
    n_rows, n_classes = len(table.y), len(classes)
    if n_classes < 2:
        raise InvalidInputError(
            f"column {label!r} has only one class ({classes.tolist()[0]!r}); at least two are needed: "
            "add files with other classes, or name another column with --label"
        )
    found = f"{n_classes:,} different values in {n_rows:,} rows"
    examples = ", ".join(map(str, classes[:3].tolist()))
    whole = table.y.dtype.kind in "iu"
    fractions = not whole and _are_numbers(classes.tolist())
    many = n_classes > _MANY_NUMBERS and n_rows < _ROWS_EACH * n_classes
    if (fractions and n_classes > _MANY_FRACTIONS) or (whole and many):
        raise InvalidInputError(
            f"column {label!r} looks like a measurement, not like classes: it has {found}, such as "
            f"{examples}; name the column of the classes with --label, or sort the values into classes"
        )
    if n_classes > _FEW and n_rows < 2 * n_classes:
        raise InvalidInputError(
            f"column {label!r} does not look like classes: it has {found}, such as {examples}, so most "
            "occur once; name the column of the classes with --label"
        )
    for domain in np.unique(table.domain).tolist():
        empty = np.isnan(table.X[table.domain == domain]).all(axis=0)
        if empty.any():
            column = table.columns[int(empty.argmax())]
            raise InvalidInputError(
                f"{domain} has no value in column {column!r}: leave out the column (--ignore {column}) "
                "or the domain"
            )
    warned = []
    if whole and n_classes > _MANY_NUMBERS:
        warned.append(
            f"column {label!r} has {found}, such as {examples}: if it is a measurement, name the column "
            "of the classes with --label"
        )
    alike: dict[str, list[str]] = {}
    for name, count in zip(classes.tolist(), counts.tolist(), strict=True):
        alike.setdefault(" ".join(str(name).split()).casefold(), []).append(f"{name!r} ({count:,})")
    warned += [
        f"{' and '.join(names)} differ only in case or blanks, and are different classes: correct the "
        "files if they mean the same"
        for names in alike.values()
        if len(names) > 1
    ]
    return warned


def _are_numbers(names: list[Any]) -> bool:
    try:
        return all(np.isfinite(float(name)) for name in names)
    except ValueError:
        return False


def describe_plan(table: Table, signals: Signals | None = None) -> str:
    """Say what was read, and what is going to be done with it."""
    domains, classes = _counted(table.domain), _counted(table.y)
    n_rows, n_columns = count_of(len(table.X), "row"), count_of(len(table.columns), "column")
    lines = [
        f"{n_rows}, {n_columns}: {list_some(table.columns)}",
        f"{count_of(len(domains), 'domain')}: {list_some(domains)}",
        f"{count_of(len(classes), 'class', 'classes')}: {list_some(classes)}",
    ]
    lines += [f"left out: {name}: {why}" for name, why in list(table.left_out.items())[:_LISTED]]
    if table.counts.get("rejected"):
        file, first = table.rejected[0]
        lines.append(
            f"not used: {count_of(table.counts['rejected'], 'row')} with bad values, the first in "
            f"{file}, row {first.position}: {first.reason}"
        )
    if table.counts.get("unlabelled"):
        lines.append(f"not used: {count_of(table.counts['unlabelled'], 'row')} without a label")
    if table.counts.get("nowhere"):
        lines.append(f"not used: {count_of(table.counts['nowhere'], 'row')} without a domain")
    if signals is not None:
        lines += signals.describe()
        if any(table.counts.get(name) for name in ("rejected", "unlabelled", "nowhere")):
            lines.append("rows that are not used are skipped: windows continue across them")
    return "\n".join(lines)


def _counted(names: Any) -> list[str]:
    """Return each name and how often it occurs."""
    return [f"{n} ({k:,})" for n, k in zip(*np.unique(names, return_counts=True), strict=True)]


def list_some(names: list[str]) -> str:
    """Return some names, and how many more there are."""
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(map(str, names[:_LISTED])) + more
