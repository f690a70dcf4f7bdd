"""Importing the package is cheap, silent and changes nothing."""

import json
import subprocess
import sys

PROBE = """
import json, logging, os, random, signal, sys, warnings
import numpy as np

def state():
    return {
        "filters": repr(warnings.filters),
        "errors": repr(np.geterr()),
        "print": repr(np.get_printoptions()),
        "random": repr(random.getstate()) + repr(np.random.get_state()),
        "handlers": repr(logging.getLogger().handlers),
        "signals": repr(signal.getsignal(signal.SIGINT)),
        "environment": dict(os.environ),
        "recursion": sys.getrecursionlimit(),
    }

import sklearn.mixture
before = state()
import baryflow
after = state()
changed = [name for name in before if before[name] != after[name]]
import baryflow.streams
modules = sorted(sys.modules)
from baryflow.datasets import load_tep
load_tep(runs=1)
plant = [name for name in sys.modules if name.startswith("baryflow.tep")]
print(json.dumps({"changed": changed, "modules": modules, "plant": plant}))
"""


def probe():
    done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return json.loads(done.stdout)


def test_import_changes_no_global_state_and_pulls_in_nothing_optional():
    found = probe()
    assert found["changed"] == []
    optional = {
        "matplotlib", "ot", "torch", "jax", "numba", "polars", "click", "safetensors", "dask",
        "confluent_kafka", "paho", "asyncua", "httpx", "starlette",
    }  # fmt: skip
    assert optional.isdisjoint(found["modules"])
    assert found["plant"] == []  # its data come without the plant itself


def test_every_public_name_exists_and_is_documented():
    import baryflow

    for name in baryflow.__all__:
        value = getattr(baryflow, name)
        assert name == "__version__" or value.__doc__
