"""Follow a topic until stopped: ``URL FOLDER [URL of predictions]``; the folder holds a model."""

import json
import signal
import sys
from pathlib import Path

from baryflow import OnlineDaDiL
from baryflow.runtime import Outputs, Runner, SessionConfig, Store
from baryflow.streams import open_sink, open_source

COLUMNS = ["x0", "x1"]


def main(url, folder, out=None):
    folder, ended = Path(folder), []
    signal.signal(signal.SIGTERM, lambda *_: ended.append(1))
    checkpoint = Store(folder / "checkpoint")
    resume = not checkpoint.is_new
    sinks = {
        name: open_sink(folder / f"{name}.ndjson", resume=resume) for name in ("events", "quarantine")
    }
    sinks["predictions"] = open_sink(out or folder / "predictions.ndjson", resume=resume)
    source = open_source(url, columns=COLUMNS, key="@key", idle=0.2)
    model = OnlineDaDiL.from_bytes((folder / "model.bary").read_bytes())
    runner = Runner(SessionConfig(model, 16), source, Outputs(**sinks), 16, 0.1, checkpoint, every=8)
    totals = runner.run(lambda: bool(ended))
    source.close()
    for sink in sinks.values():
        sink.close()
    checkpoint.close()
    print(json.dumps(vars(totals)))


if __name__ == "__main__":
    main(*sys.argv[1:])
