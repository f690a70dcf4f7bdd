"""Labelled sources and one target each: made here, or read from a folder of the reader's own."""

from __future__ import annotations

import hashlib
import sys
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

import numpy as np

from baryflow.datasets import load_tep, make_domains

#: Seeds were fixed first. One choice was made with these results in view: how explanations are weighed.
MADE = ("fleet 100", "domains 100", "plant", "fleet 101", "domains 101")
#: Rows of all sources and of the target, at most.
SOURCE_ROWS, TARGET_ROWS = 800, 1500
#: Rows of each class in a domain, and of a machine.
_PER_CLASS, _MACHINE_ROWS = 150, 1000
#: Machines of a fleet, conditions, sensors, and hidden states of a machine.
_MACHINES, _CONDITIONS, _SENSORS, _STATES = 6, 5, 12, 4
#: Offsets and gains of recalibrated columns, in units of their spread and as logarithms.
_OFFSET, _GAIN = 0.7, 0.3


@dataclass(frozen=True)
class Known:
    """A set that the benchmark knows; the reader fetches it and writes X, y and domain into a file."""

    what: str
    address: str
    licence: str
    loader: str
    sha256: str


SETS = {
    "cstr7": Known(
        "simulated stirred-tank reactor, 12 faults, 7 settings",
        "https://github.com/eddardd/CrossDomainFaultDiagnosis",
        "MIT",
        "14 features of each run; a domain for each noise and parameter error",
        "02e0a15456f56ccd47a5ad682767da87cb1e64e8a5fa3ababd048578d8300698",
    ),
    "gas_drift8": Known(
        "gas sensors that drift for months, 6 gases",
        "https://archive.ics.uci.edu/dataset/224",
        "CC BY 4.0",
        "128 features as they come; batches 1 to 6, 8 and 9 are the domains",
        "c1d94fffa279e1814d2cce44dcd2d031896808077f73cc97616c13a4437a8421",
    ),
    "mgr": Known(
        "music of 10 genres in 5 kinds of noise",
        "https://github.com/eddardd/WBTransport",
        "none named",
        "57 features of `data/MGR.npy`; a domain for each noise; `song` numbers the recordings",
        "0078226046dc5a6d72915c505116dad83d3168c07f55be9c5e22e30a585bef4f",
    ),
    "digits4": Known(
        "four collections of handwritten digits",
        "https://archive.ics.uci.edu/dataset/80",
        "CC BY 4.0; the others their own",
        "8 × 8 images as rows; one collection is at the address; a domain for each",
        "fb0a162073d21637939c74bff7095728203fbcc44b679a13d547b087b7841449",
    ),
    "cwru4": Known(
        "bearings at four loads, 9 faults",
        "https://engineering.case.edu/bearingdatacenter",
        "none named",
        "36 features of windows of vibration; a domain for each load",
        "13d999e214d036e730c457e1d19c99911740c288045086f532b8592109ade940",
    ),
    "fsdd6": Known(
        "spoken digits of six speakers",
        "https://github.com/Jakobovski/free-spoken-digit-dataset",
        "CC BY-SA 4.0",
        "65 cepstral features of each recording; a domain for each speaker",
        "b55eb770ae79a90b5d9d87d314029237e3fb3fdb0a89b02f6ac48a60ac55fecc",
    ),
    "uestc4": Known(
        "bearings at four speeds, 4 conditions",
        "UESTC bearing data, from their authors",
        "ask them",
        "51 spectral features of windows of vibration; a domain for each speed",
        "5d8861ef3c2c968900b3fd7d41edd55f0723fc75f0a9c68bde5c157478a75117",
    ),
}


@dataclass(frozen=True)
class Problem:
    """Rows of the sources with class numbers and domains from 1; those of a target, shuffled."""

    name: str
    sources: tuple
    X: np.ndarray
    y: np.ndarray


def names(folder=None):
    """Return the names of all problems; those of sets as ``set/domain``, for the sets in a folder."""
    found = list(MADE)
    for path in sorted(Path(folder).rglob("*.npz")) if folder is not None else ():
        data = np.load(path)
        if {"X", "y", "domain"} <= set(data):
            _check(path)
            found += [f"{path.stem}/{name}" for name in _largest(data["domain"])]
    return found


def group(name):
    """Return what a problem is one of: ``domains``, ``fleet``, ``plant``, or its set."""
    return name.partition("/")[0] if "/" in name else name.split()[0]


def load(name, folder=None):
    """Return a problem by its name."""
    if "/" in name:
        return _read(name, folder)
    if name == "plant":
        found = load_tep()
        X, own = found.X.astype(np.float64), found.is_target
        return _cut(name, X[~own], found.y[~own], found.domain[~own], X[own], found.y[own])
    kind, seed = name.split()
    if kind == "domains":
        p = make_domains(n_per_class=_PER_CLASS, random_state=int(seed))
        return _cut(name, p.X, p.y, p.domain, p.X_target, p.y_target)
    X, y, domain = make_fleet(int(seed), _MACHINE_ROWS)
    own = domain == _MACHINES - 1
    return _cut(name, X[~own], y[~own], domain[~own], X[own], y[own])


def make_fleet(seed, rows=300):
    """Return machines of one kind: sensors see hidden states, which depend on the condition.

    `rows` are those of each machine. Every machine has its own offset and gain of each sensor and its
    own load, which sensors see, too. The first condition is normal: no state is off its usual value.
    """
    rng = np.random.default_rng([seed, _MACHINES])
    mixing = rng.normal(size=(_STATES, _SENSORS)) / np.sqrt(_STATES)
    centres = np.vstack([np.zeros(_STATES), 1.3 * rng.normal(size=(_CONDITIONS - 1, _STATES))])
    response = rng.normal(size=_SENSORS)
    found, labels = [], []
    for _ in range(_MACHINES):
        y = rng.integers(_CONDITIONS, size=rows)
        severity = rng.uniform(0.6, 1.4, size=(rows, 1))
        states = severity * centres[y] + 0.45 * rng.normal(size=(rows, _STATES))
        load = rng.normal() + 0.5 * rng.normal(size=(rows, 1))
        seen = states @ mixing + 0.6 * load * response + 0.15 * load**2 * np.abs(response)
        seen += 0.25 * rng.normal(size=seen.shape)
        offset, gain = 2.0 * rng.normal(size=_SENSORS), np.exp(0.4 * rng.normal(size=_SENSORS))
        found.append(offset + gain * seen)
        labels.append(y)
    return np.concatenate(found), np.concatenate(labels), np.repeat(np.arange(_MACHINES), rows)


def recalibrate(X, rng):
    """Return rows with another offset and gain of every column."""
    gain = np.exp(_GAIN * rng.normal(size=X.shape[1]))
    return X.std(axis=0) * _OFFSET * rng.normal(size=X.shape[1]) + gain * X


def _read(name, folder):
    stem, _, target = name.partition("/")
    data = np.load(next(Path(folder).rglob(f"{stem}.npz")))
    X, domain = data["X"].astype(np.float64), data["domain"]
    X = np.where(np.isnan(X), np.nanmean(X, axis=0), X)
    y = np.unique(data["y"], return_inverse=True)[1]
    own = domain == int(target)
    as_source, as_target = ~own, own
    if "song" in data:  # the same songs are in every domain: half of them for sources, half for targets
        songs = np.random.default_rng(0).permutation(np.unique(data["song"]))
        of_sources = np.isin(data["song"], songs[: len(songs) // 2])
        as_source, as_target = as_source & of_sources, as_target & ~of_sources
    return _cut(name, X[as_source], y[as_source], domain[as_source] + 1, X[as_target], y[as_target])


def _largest(domain, n=2):
    """Return the largest domains; of equal ones the last."""
    found, counts = np.unique(domain, return_counts=True)
    return found[::-1][np.argsort(-counts[::-1], kind="stable")[:n]].tolist()


def _check(path):
    """Say if a known set is not the one that was measured."""
    known = SETS.get(path.stem)
    if known is not None and hashlib.sha256(path.read_bytes()).hexdigest() != known.sha256:
        print(f"{path.name} is not the file of the committed results", file=sys.stderr)


def _cut(name, Xs, ys, domain, X, y):
    """Return the problem with no more rows than are wanted, all in random order."""
    rng = np.random.default_rng(crc32(name.encode()))
    taught, rows = rng.permutation(len(ys))[:SOURCE_ROWS], rng.permutation(len(y))[:TARGET_ROWS]
    _, domain = np.unique(domain, return_inverse=True)
    return Problem(name, (Xs[taught], ys[taught], domain[taught] + 1), X[rows], y[rows])
