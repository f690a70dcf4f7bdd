"""Labelled files: the options of ``fit`` and ``evaluate`` that describe them, reading and checks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from baryflow.cli.console import echo
from baryflow.cli.options import (
    Count,
    collect,
    declare,
    existing_file,
    find_class,
    label,
    option,
    plain_time,
)
from baryflow.estimators._sensors import find_counters
from baryflow.exceptions import InvalidInputError
from baryflow.features import OnnxEncoder, SignalFeatures, Windows, windows
from baryflow.features.encoder import import_runtime
from baryflow.features.labelled import find_normal, read_encoder
from baryflow.streams import Table, read_table
from baryflow.streams.decoding import parse_number
from baryflow.validation import count_of

#: Names that a list shows at most.
_LISTED = 12
#: Labels with more distinct fractions than this are taken for a measurement ...
_MANY_FRACTIONS = 50
#: ... and so are more distinct whole numbers than this with few rows each.
_MANY_NUMBERS, _ROWS_EACH = 100, 10
#: More distinct labels than this are taken for row identifiers if most occur once.
_FEW = 10


class LabelledFile(click.ParamType[Path | str]):
    """A file that exists; with --dask also a folder or a URL."""

    name = "file"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Path | str:
        """Return the path, or the URL as text."""
        if ctx is not None and isinstance(ctx.params.get("dask"), str):
            return str(value)
        has_dask = any(option.name == "dask" for option in (ctx.command.params if ctx else ()))
        hint = ", or add --dask local" if has_dask else ""
        if Path(value).is_dir():
            self.fail(f"{value} is a folder: name its files{hint}.", param, ctx)
        if "://" in str(value):
            self.fail(f"{value} is not a local file: name one{hint}.", param, ctx)
        path: Path = existing_file.convert(value, param, ctx)
        return path


@dataclass(frozen=True)
class LabelledFiles:
    """The labelled files named on the command line, and the roles of their columns."""

    files: tuple[Path | str, ...] = declare(
        click.argument("files", nargs=-1, required=True, type=LabelledFile())
    )
    label: str = declare(label)
    domain: str | None = option(
        "--domain", metavar="COLUMN", help="Column that names the domain of a row."
    )
    domain_from_file: bool = option(
        "--domain-from-file", is_flag=True, help="Treat each file as one domain."
    )
    time: str | None = declare(plain_time)
    ignore: tuple[str, ...] = option(
        "--ignore", multiple=True, metavar="COLUMN", help="Leave out a column; repeatable."
    )
    window: int | None = option(
        "--window",
        type=click.IntRange(2),
        metavar="ROWS",
        help="Rows are raw signals in order of time: learn from windows of this many rows.",
    )
    step: int | None = option(
        "--step",
        type=Count("rows"),
        help="Rows from one window to the next.  [default: a quarter of a window]",
    )
    normal_class: str | None = option(
        "--normal-class",
        metavar="CLASS",
        help="Class of normal operation, for baselines; with --window, features are deviations from it.",
    )
    encoder: Path | None = option(
        "--encoder",
        type=existing_file,
        help="ONNX network that makes the features of windows. It is executed: use trusted files only.",
    )

    def check(self) -> None:
        """Refuse options that do not fit together, or need a missing package, before reading."""
        if (self.domain is None) != self.domain_from_file:
            raise InvalidInputError(
                "name the domain of each row: --domain COLUMN, or --domain-from-file if each file is one"
            )
        if self.window is None:
            for name in ("step", "encoder"):
                if getattr(self, name) is not None:
                    option = f"--{name.replace('_', '-')}"
                    raise InvalidInputError(f"{option} is for windows of raw signals: add --window ROWS")
        if self.encoder is not None:
            if self.normal_class is not None:
                raise InvalidInputError("--encoder does not use a baseline: leave out --normal-class")
            import_runtime()

    def read(self) -> tuple[Table, Signals | None]:
        """Return the rows of all files, and the windows cut from them if there is --window."""
        table = read_table(
            self.files,
            label=self.label,
            domain=self.domain,
            domain_from_file=self.domain_from_file,
            time=self.time,
            ignore=list(self.ignore),
        )
        if self.window is None:
            return table, None
        # A window must not span two domains, nor two files.
        codes = np.unique(table.domain, return_inverse=True)[1]
        return table, self._cut(table, table.file * (codes.max() + 1) + codes)

    def _cut(self, table: Table, groups: Any) -> Signals:
        length = int(self.window or 1)
        step = max(1, length // 4) if self.step is None else self.step
        for name in np.unique(table.domain):
            longest = int(np.unique(groups[table.domain == name], return_counts=True)[1].max())
            if longest < length:
                raise InvalidInputError(
                    f"--window {length} is longer than domain {name}, which has {longest:,} consecutive "
                    f"rows: use {longest} or less, or leave {name} out"
                )
        cut = windows(table.X, length, step, by=groups, label=table.y)
        cut = replace(cut, channels=table.columns)
        domain = table.domain[cut.end]
        normal = None
        if self.normal_class is not None:
            normal = find_class(self.normal_class, table.y, "--normal-class")
            find_normal(cut, domain, normal)
        features = SignalFeatures() if self.encoder is None else read_encoder(self.encoder, cut)
        return Signals(cut, domain, step, normal, features)


@dataclass(frozen=True, eq=False)
class Signals:
    """Windows of raw signals, and what makes features of them."""

    cut: Windows
    domain: NDArray[Any]
    step: int
    normal: Any
    features: SignalFeatures | OnnxEncoder

    def describe(self) -> list[str]:
        """Return the number of windows and how they are labelled."""
        n, length, _ = self.cut.shape
        mixed = float(np.mean(self.cut.mixed)) if self.cut.mixed is not None else 0.0
        lines = [f"{count_of(n, 'window')} of {count_of(length, 'row')}, one every {self.step:,}"]
        if mixed:
            lines[0] += f"; in {mixed:.0%} the class changes: they are labelled by their last row"
        if self.normal is not None:
            lines.append(
                f"features are deviations from {self.normal!r}; pass the new target's normal operation "
                "to 'baryflow run --baseline': without it, leave out --normal-class "
                "(docs/howto/raw-signals.md)"
            )
        return lines


labelled_files = collect(LabelledFiles, "labelled")


def parse_class_prior(
    shares: tuple[str, ...], y: Any, option: str = "--class-prior"
) -> dict[Any, float] | None:
    """Return class proportions from texts such as ``normal=0.5``."""
    found: dict[Any, float] = {}
    for text in shares:
        name, _, share = text.rpartition("=")
        try:
            number = float(share)
        except ValueError:
            number = -1.0
        if not name or not 0.0 <= number <= 1.0:
            raise InvalidInputError(
                f"{option} must be CLASS=SHARE, a share of 0 to 1 such as 0.85, got {text!r}"
            )
        found[find_class(name, y, option)] = number
    return found or None


def check_and_describe(table: Table, signals: Signals | None, label: str) -> None:
    """Refuse labels that cannot be classes; print what was read, and warnings."""
    warnings = [*check_labels(table, label), *_describe_counters(table)]
    refuse_empty_columns(table)
    echo(describe(table, signals), err=True)
    for text in warnings:
        echo(f"warning: {text}", err=True)


def check_labels(table: Table, label: str) -> list[str]:
    """Refuse labels that look like a measurement or like row identifiers; return warnings."""
    classes, counts = np.unique(table.y, return_counts=True)
    n_rows, n_classes = len(table.y), len(classes)
    if n_classes < 2:
        raise InvalidInputError(
            f"column {label!r} has only one class ({classes.tolist()[0]!r}); at least two are needed: "
            "add files with other classes, or name another column with --label"
        )
    found = f"{n_classes:,} distinct values in {n_rows:,} rows"
    examples = ", ".join(map(str, classes[:3].tolist()))
    whole = table.y.dtype.kind in "iu"
    fractions = not whole and _are_numbers(classes.tolist())
    many = n_classes > _MANY_NUMBERS and n_rows < _ROWS_EACH * n_classes
    if (fractions and n_classes > _MANY_FRACTIONS) or (whole and many):
        raise InvalidInputError(
            f"column {label!r} looks like a measurement, not like classes: it has {found} ({examples}, "
            "...); name the column of the classes with --label, or bin the values"
        )
    if n_classes > _FEW and n_rows < 2 * n_classes:
        raise InvalidInputError(
            f"column {label!r} does not look like classes: it has {found} ({examples}, ...), so most "
            "occur once; name the column of the classes with --label"
        )
    warnings = []
    if len(np.unique(table.domain)) == 1:
        warnings.append(
            "there is only one domain, and adapting needs two or more: add files, or name the column "
            "that says which machine a row is of (--domain COLUMN)"
        )
    if whole and n_classes > _MANY_NUMBERS:
        warnings.append(
            f"column {label!r} has {found} ({examples}, ...): if it is a measurement, name the column "
            "of the classes with --label"
        )
    alike: dict[str, list[str]] = {}
    for name, count in zip(classes.tolist(), counts.tolist(), strict=True):
        alike.setdefault(" ".join(str(name).split()).casefold(), []).append(f"{name!r} ({count:,})")
    warnings += [
        f"{' and '.join(names)} differ only in case or spaces and count as different classes: correct "
        "the files if they mean the same"
        for names in alike.values()
        if len(names) > 1
    ]
    return warnings


def _describe_counters(table: Table) -> list[str]:
    """Return a warning for each column that looks like a counter or a clock."""
    sources = [table.X[table.domain == domain] for domain in np.unique(table.domain)]
    return [
        f"column {name!r} rises from row to row in every domain: leave it out (--ignore {name}) if it "
        "counts rows or time, which continue in a target"
        for name in (table.columns[j] for j in find_counters(sources).tolist())
    ]


def refuse_empty_columns(table: Table) -> None:
    """Refuse a domain that has no value in a column."""
    for domain in np.unique(table.domain).tolist():
        empty = np.isnan(table.X[table.domain == domain]).all(axis=0)
        if empty.any():
            column = table.columns[int(empty.argmax())]
            raise InvalidInputError(
                f"{domain} has no value in column {column!r}: leave out the column "
                f"(--ignore {column}) or the domain"
            )


def _are_numbers(names: list[Any]) -> bool:
    numbers = [parse_number(str(name), decimal_comma=True) for name in names]
    found = [number for number in numbers if number is not None]
    return len(found) == len(names) and not np.isinf(found).any()  # words such as Bad are NaN


def describe(table: Table, signals: Signals | None = None) -> str:
    """Return what was read and what is left out."""
    lines = describe_counts(
        count_of(len(table.X), "row"),
        table.columns,
        counted(*np.unique(table.domain, return_counts=True)),
        counted(*np.unique(table.y, return_counts=True)),
    )
    lines += [f"left out: {name}: {why}" for name, why in list(table.left_out.items())[:_LISTED]]
    ranges = np.nanmax(table.X, axis=0) - np.nanmin(table.X, axis=0)
    if constant := [table.columns[j] for j in np.flatnonzero(ranges == 0.0)]:
        lines.append(f"constant: {_list_some(constant)}: the same value in all rows")
    if table.counts.get("rejected"):
        file, first = table.rejected[0]
        lines.append(
            f"not used: {count_of(table.counts['rejected'], 'row')} with bad values, the first in "
            f"{file}, row {first.position}: {first.reason}"
        )
    if table.counts.get("unlabelled"):
        lines.append(f"not used: {count_of(table.counts['unlabelled'], 'row')} without a label")
    if signals is not None:
        lines += signals.describe()
        if any(table.counts.get(name) for name in ("rejected", "unlabelled")):
            lines.append("unused rows are skipped: windows continue across them")
    return "\n".join(lines)


def describe_counts(rows: str, columns: list[str], domains: list[str], classes: list[str]) -> list[str]:
    """Return three lines on the rows, the domains and the classes."""
    return [
        f"{rows}, {count_of(len(columns), 'column')}: {_list_some(columns)}",
        f"{count_of(len(domains), 'domain')}: {_list_some(domains)}",
        f"{count_of(len(classes), 'class', 'classes')}: {_list_some(classes)}",
    ]


def counted(names: Any, counts: Any) -> list[str]:
    """Return each name and how often it occurs."""
    return [f"{name} ({int(n):,})" for name, n in zip(names, counts, strict=True)]


def _list_some(names: list[str]) -> str:
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(map(str, names[:_LISTED])) + more
