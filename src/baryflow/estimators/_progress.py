"""How far a fit is, told on standard error."""

from __future__ import annotations

import shutil
import sys


def tell(done: int, total: int, what: str) -> None:
    """Say how far a fit is: on a terminal in one line that overwrites itself, else line by line."""
    words = f"baryflow: {done} of {total}, {what}"
    if not sys.stderr.isatty():
        sys.stderr.write(f"{words}\n")
        return
    width = shutil.get_terminal_size().columns - 1
    ending = "\n" if done == total else ""
    sys.stderr.write(f"\r{words[:width]:<{width}}{ending}")
    sys.stderr.flush()
