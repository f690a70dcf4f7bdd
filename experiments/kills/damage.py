"""Damage the store of a killed run at random places, and compare what a restart makes of it.

``python -m experiments.kills.damage [--places 1000]`` kills ``baryflow run`` by SIGKILL after a number
of transactions drawn at random, many times, and each time damages copies of its checkpoint folder: one
of the files is cut off, continued with zeros, overwritten with zeros for a while, or has one bit
flipped, at a place drawn at random. The same command is then called again. Either it ends as if nothing
had happened, and the outputs are byte for byte those of an undisturbed run; or it says what is damaged,
and leaves the folder as it is. Anything else is a failure. A line for every place is appended to
``results/damage.csv``; a second call continues.

The model is small, so that most of the bytes are batches and sessions.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import hashlib
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from click.testing import CliRunner

from baryflow.cli import main as baryflow
from experiments import results
from experiments.kills.__main__ import ENVIRONMENT, FILES, RESULTS, command, state
from experiments.service.process import prepare as prepare_model

TABLE = RESULTS / "damage.csv"
FIELDS = ("place", "kill", "file", "damage", "offset", "size", "result")
KINDS = ("flip", "cut", "continue", "zeros")
#: Places for each kill.
PLACES = 20
#: Batches of the stream, and their rows; sessions are committed after 64.
N_BATCHES, BATCH_SIZE = 90, 4


def prepare(folder):
    _, rows = prepare_model(folder, 3, 8)
    with (folder / "rows.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([f"x{column}" for column in range(rows.shape[1])])
        writer.writerows(rows[number % len(rows)] for number in range(N_BATCHES * BATCH_SIZE))


def arguments_of(folder, name):
    """Return the arguments of the run."""
    out = folder / name
    out.mkdir(exist_ok=True)
    pairs = zip(("-o", "--events", "--quarantine"), FILES, strict=True)
    outputs = [value for option, file in pairs for value in (option, out / file)]
    inputs = [folder / "model.bary", folder / "rows.csv", "--batch-size", BATCH_SIZE]
    return list(map(str, ["run", *inputs, *outputs, "--checkpoint", out / "checkpoint"]))


def kill(folder, rng):
    """Start the run in an empty folder, and kill it."""
    shutil.rmtree(folder / "killed", ignore_errors=True)
    # A transaction for each batch, four at the start, and one for each commit.
    last = rng.randrange(6, 6 + N_BATCHES)
    process = subprocess.Popen(
        command(*arguments_of(folder, "killed")), env=ENVIRONMENT, stderr=subprocess.DEVNULL
    )
    while process.poll() is None and state(folder / "killed") < last:
        time.sleep(0.001)
    process.kill()
    process.wait()


def damage(path, kind, rng):
    """Damage a file, and return where."""
    content = bytearray(path.read_bytes())
    place = rng.randrange(len(content))
    if kind == "flip":
        content[place] ^= 1 << rng.randrange(8)
    elif kind == "cut":
        del content[place:]
    elif kind == "continue":
        content += bytes(rng.randrange(1, 20_000))
    else:
        length = min(rng.randrange(1, 20_000), len(content) - place)
        content[place : place + length] = bytes(length)
    path.write_bytes(content)
    return place


def digest(folder):
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return [(path.name, hashlib.sha256(path.read_bytes()).hexdigest()) for path in files]


def outputs(folder):
    return [(folder / name).read_bytes() for name in FILES]


def try_again(folder, name):
    """Call the command again, and return whether it has ended well, and its messages."""
    done = CliRunner().invoke(baryflow, arguments_of(folder, name))
    if done.exit_code not in (0, 1) or (done.exception and not isinstance(done.exception, SystemExit)):
        raise done.exception or RuntimeError(done.output)
    return done.exit_code == 0, done.stderr


def judge(folder, name, expected):
    """Return what a restart makes of a damaged folder."""
    before = digest(folder / name)
    is_well, words = try_again(folder, name)
    if is_well:
        return "recovered" if outputs(folder / name) == expected else "WRONG"
    if "cannot resume" not in words:
        return "UNCLEAR"
    changed = sorted({path for path, _ in set(digest(folder / name)) ^ set(before)})
    return "reported" if not changed else f"CHANGED {' '.join(changed)}"


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--places", type=int, default=1000)
    options = parser.parse_args(arguments)
    done = len(results.read(TABLE)) if TABLE.exists() else 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        prepare(folder)
        if not try_again(folder, "undisturbed")[0]:
            raise SystemExit("the undisturbed run failed")
        expected = outputs(folder / "undisturbed")
        while done < options.places:
            number = done // PLACES
            rng = random.Random(number)
            kill(folder, rng)
            rows = []
            for _ in range(min(PLACES, options.places - done)):
                shutil.rmtree(folder / "copy", ignore_errors=True)
                shutil.copytree(folder / "killed", folder / "copy")
                files = sorted((folder / "copy" / "checkpoint").iterdir())
                # The mark is small: most damage hits the other files.
                path = rng.choice([*files, *(one for one in files if one.suffix != ".mark")])
                kind, size = rng.choice(KINDS), path.stat().st_size
                if not size:
                    continue
                offset = damage(path, kind, rng)
                result = judge(folder, "copy", expected)
                done += 1
                rows.append((done, number, path.name, kind, offset, size, result))
                print(*rows[-1], file=sys.stderr, flush=True)
            results.append(TABLE, FIELDS, [dict(zip(FIELDS, row, strict=True)) for row in rows])
    found = [row["result"] for row in results.read(TABLE)]
    counts = {one: found.count(one) for one in sorted(set(found))}
    print(", ".join(f"{n} {one}" for one, n in counts.items()))
    return 0 if counts.keys() <= {"recovered", "reported"} else 1


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
