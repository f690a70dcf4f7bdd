"""Kill ``baryflow run`` at random moments, again and again, and compare what it has written in the end.

``python -m experiments.kills [--kills 100]`` follows the fifth pump of examples/ (its rows, many times
over), once undisturbed and once killed by SIGKILL at moments drawn at random, and writes a line for
every life to ``results/kills.csv``. One in twenty rows gets its label, from a file in no order, and half
of the normal ones are a baseline. Predictions raise alarms, one of them is shelved and one suppressed,
and each change is sent to a webhook.

In the end predictions, events, quarantined rows and the model must be byte for byte those of the
undisturbed run, the state of the alarms the same, and each change must have arrived.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from baryflow import container, load
from baryflow.runtime import Store
from tests.runtime.ends import transactions
from tests.runtime.receiver import SECRET, Receiver

ROOT = Path(__file__).parents[2]
PUMPS = ROOT / "examples" / "pumps"
RESULTS = Path(__file__).parent / "results"
MODEL = "model.bary"
FILES = ("predictions.ndjson", "events.ndjson", "quarantine.ndjson")
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def command(*arguments):
    return [sys.executable, "-m", "baryflow", *map(str, arguments)]


def prepare(folder, times):
    labelled = [PUMPS / f"pump_{name}.csv" for name in "abcd"]
    how = ["--label", "condition", "--domain-from-file", "--time", "time", "-o", folder / "pumps.bary"]
    subprocess.run(command("fit", *labelled, *how), check=True, capture_output=True, env=ENVIRONMENT)
    header, *rows = (PUMPS / "pump_e.csv").read_text(encoding="utf-8").splitlines()
    rows = rows * times
    for number in range(100, len(rows), 333):
        rows[number] = rows[number][:20]  # cut off: a bad row
    (folder / "rows.csv").write_text("\n".join([header, *rows, ""]), encoding="utf-8")
    truth = (PUMPS / "pump_e_labels.csv").read_text(encoding="utf-8").splitlines()[1:]
    numbers = random.Random(0).sample(range(len(rows)), len(rows) // 20)
    labels = [(number, truth[number % len(truth)].split(",")[1]) for number in numbers]
    lines = [f"{n + 1},{label},{str(label == 'normal' and n % 2 == 0).lower()}" for n, label in labels]
    text = "\n".join(["position,label,baseline", *lines, ""])
    (folder / "labels.csv").write_text(text, encoding="utf-8")


def prepare_alarms(folder):
    lines = ["[alarms]", "on-delay = '4h'  # of rows every two hours", "off-delay = 3", ""]
    (folder / "baryflow.toml").write_text("\n".join(lines), encoding="utf-8")
    (folder / "secret").write_text(SECRET, encoding="utf-8")
    commands = [
        {"action": "shelve", "alarm": "cavitation", "for": "60 rows", "by": "ada"},
        {"action": "suppress", "alarm": "misalignment", "comment": "the coupling is replaced"},
    ]
    text = "".join(json.dumps(one) + "\n" for one in commands)
    (folder / "commands.ndjson").write_text(text, encoding="utf-8")


def alarms_at_the_end(out):
    """Return the saved state of the alarms."""
    with contextlib.closing(Store(out / "checkpoint")) as store:
        session = container.from_bytes(store.read_session(""))
    return session.values["fields"]["state"]["fields"]["alarms"]


def follow(folder, name, receiver):
    out = folder / name
    out.mkdir(exist_ok=True)
    outputs = [option for pair in zip(("-o", "--events", "--quarantine"), FILES, strict=True)
               for option in (pair[0], out / pair[1])]  # fmt: skip
    arguments = [
        folder / "pumps.bary",
        folder / "rows.csv",
        "--time",
        "time",
        "--batch-size",
        8,
        *outputs,
    ]
    arguments += ["--labels", folder / "labels.csv", "--labels-certify", "--save", out / MODEL]
    arguments += ["--alarm-webhook", receiver.url, "--alarm-secret-file", folder / "secret"]
    arguments += ["--alarm-commands", folder / "commands.ndjson", "--checkpoint", out / "checkpoint"]
    start = ["--config", folder / "baryflow.toml", "run"]
    return subprocess.Popen(command(*start, *arguments), env=ENVIRONMENT, stderr=subprocess.DEVNULL)


def state(folder):
    """Return the transactions of the store; all but the first few belong to a run at work."""
    return max(5, transactions(folder / "checkpoint"))


def size(folder):
    return (folder / FILES[0]).stat().st_size if (folder / FILES[0]).exists() else 0


def content(path):
    """Return the bytes of a file, of a model without the date of the file."""
    return load(path).to_bytes() if path.name == MODEL else path.read_bytes()


def compare_alarms(folder, messages):
    """Return what differs: the state at the end, or what a webhook has received."""
    lines = (folder / "undisturbed" / FILES[1]).read_text(encoding="utf-8").splitlines()
    expected = [one for one in map(json.loads, lines) if one["event"] == "alarm"]
    found = {one["sequence"]: one for one in messages}
    print(f"{len(expected)} changes of alarms, {len(messages)} messages", file=sys.stderr)
    states = [alarms_at_the_end(folder / name) for name in ("undisturbed", "killed")]
    differ = [] if states[0] == states[1] else ["state"]
    return differ + ([] if [found[n] for n in sorted(found)] == expected else ["webhook"])


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    rng, lives = random.Random(options.seed), []
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        receiver = stack.enter_context(Receiver())
        prepare_alarms(folder)
        prepare(folder, 1 + options.kills // 6)
        if follow(folder, "undisturbed", receiver).wait() != 0:
            raise SystemExit("the undisturbed run failed")
        receiver.messages.clear()
        while True:
            began, process = time.monotonic(), follow(folder, "killed", receiver)
            # Most lives end at work: wait until it has begun, then up to a second. Some end before.
            before, early = state(folder / "killed"), rng.random() < 0.1
            while process.poll() is None and not early and state(folder / "killed") == before:
                time.sleep(0.002)
            worked = time.monotonic()
            delay = (rng.random() if len(lives) < options.kills else 1e9) + early * rng.random()
            while process.poll() is None and time.monotonic() - worked < delay:
                time.sleep(0.002)
            ended = process.poll() is not None
            process.kill()
            process.wait()
            if ended and process.returncode == 0:
                break
            lives.append((len(lives) + 1, round(time.monotonic() - began, 3), size(folder / "killed")))
            print(*lives[-1], file=sys.stderr, flush=True)
        differ = [
            file
            for file in (*FILES, MODEL)
            if content(folder / "killed" / file) != content(folder / "undisturbed" / file)
        ]
        differ += compare_alarms(folder, receiver.messages)
    RESULTS.mkdir(exist_ok=True)
    with (RESULTS / "kills.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("kill", "seconds", "bytes_of_predictions"))
        writer.writerows(lives)
        writer.writerow(("identical", "no" if differ else "yes", ""))
    print(f"{len(lives)} kills; {f'{differ} DIFFER' if differ else 'outputs are identical'}")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
