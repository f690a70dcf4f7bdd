"""Alarms of the Tennessee Eastman plant at the default settings.

``python -m experiments.alarms`` follows the plant in mode 1 with the embedded model of modes 2 to 6: ten
days without a fault, then each fault for eight hours (``--hours``), with as many to recover.
``results/plant.csv`` (``plant-5h.csv`` for five hours) has a line for the days without a fault and one
for each fault: whether its own alarm was raised, how often, how many hours after its beginning, and how
many other alarms were raised. With ``--lasting``, fault 14 stays on for 400 hours after 120 without a
fault, and ``results/lasting.csv`` has every change of an alarm until 60 hours after its end.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import numpy as np

from baryflow.alarms import AlarmConfig
from baryflow.live.plant import RunningPlant, class_name, load_plant_model
from baryflow.runtime import Rows, SessionConfig
from baryflow.tep.tables import FAULTS

RESULTS = Path(__file__).parent / "results"
NORMAL, FAULTY = 240.0, 8.0
#: The fault that stays on; hours before, with and after it.
LASTING, PARTS = 14, (120.0, 400.0, 60.0)


def follow(plant, session, hours, kinds=("raised", "repeated")):
    """Return the changes of alarms of these kinds within some hours, each with its hour; None: all."""
    end, raised = plant.hours + hours, []
    while plant.hours < end:
        windows, _ = plant.advance()
        for window in windows:
            time = f"{3600.0 * window.hour:.0f}"
            row = Rows(window.features[None], np.array([session.position + 1]), [time], [""])
            raised += [
                (window.hour, event.details["alarm"], event.details["change"])
                for event in session.apply(row).events
                if event.kind == "alarm" and (kinds is None or event.details["change"] in kinds)
            ]
    return raised


def last():
    """Record the alarms while a fault stays on."""
    model = load_plant_model()
    plant = RunningPlant(model)
    session = SessionConfig(model.model, alarms=AlarmConfig()).begin()
    lines = []
    for fault, hours in zip((0, LASTING, 0), PARTS, strict=True):
        plant.set_fault(fault)
        begin = plant.hours
        for hour, name, change in follow(plant, session, hours, None):
            lines.append((class_name(fault), round(hour - begin, 1), name, change))
            print(*lines[-1], sep="  ", flush=True)
    with (RESULTS / "lasting.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("fault", "hours_since", "alarm", "change"))
        writer.writerows(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=float, default=FAULTY)
    parser.add_argument("--lasting", action="store_true")
    options = parser.parse_args()
    hours = options.hours
    if options.lasting:
        last()
        return
    model = load_plant_model()
    plant = RunningPlant(model)
    session = SessionConfig(model.model, alarms=AlarmConfig()).begin()
    false = follow(plant, session, NORMAL)
    first = min((hour for hour, *_ in false), default=None)
    lines = [("normal", "", len(false), "" if first is None else round(first, 1), "")]
    for fault in range(1, len(FAULTS)):
        plant.set_fault(fault)
        begin, raised = plant.hours, follow(plant, session, hours)
        plant.set_fault(0)
        raised += follow(plant, session, hours)
        own = [hour - begin for hour, name, _ in raised if name == class_name(fault)]
        others = len(raised) - len(own)
        delay = round(own[0], 1) if own else ""
        lines.append((class_name(fault), "yes" if own else "no", len(own), delay, others))
        print(*lines[-1], sep="  ", flush=True)
    name = "plant.csv" if hours == FAULTY else f"plant-{hours:g}h.csv"
    with (RESULTS / name).open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("fault", "found", "alarms", "hours", "other_alarms"))
        writer.writerows(lines)
    found = [line for line in lines[1:] if line[1] == "yes"]
    print(f"{lines[0][2]} false alarms in {NORMAL:g} h; {len(found)} of {len(lines) - 1} faults found")


if __name__ == "__main__":
    main()
