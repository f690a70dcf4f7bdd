import functools
import gc
import inspect
import signal

import hypothesis
from click.testing import CliRunner

# The machines that run this are shared: no deadline, and the same examples every time.
hypothesis.settings.register_profile("baryflow", deadline=None, derandomize=True, max_examples=30)
hypothesis.settings.load_profile("baryflow")

# A shell starts background jobs with SIGINT ignored, and children inherit that: a test that interrupts
# one would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# click 8.1 mixes the output streams by default; later versions always keep them apart.
if "mix_stderr" in inspect.signature(CliRunner).parameters:
    CliRunner.__init__ = functools.partialmethod(CliRunner.__init__, mix_stderr=False)

# Nearly all of the millions of objects stay to the end. To search them for garbage again and again takes
# a tenth of the time of all tests, and half of that of some.
gc.set_threshold(50_000, 20, 50)


def pytest_collection_finish():
    gc.collect()
    gc.freeze()
