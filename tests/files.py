"""Saved models that were tampered with."""

import hashlib
import re

_CHECKSUM = re.compile(rb'checksum\\": \\"([0-9a-f]{64})\\"')


def reseal(data):
    """Return the content of a file with the checksum that fits it, if there is one in it."""
    found = _CHECKSUM.search(data)
    if found is None:
        return data
    start, end = found.span(1)
    blank = data[:start] + b"0" * 64 + data[end:]
    return data[:start] + hashlib.sha256(blank).hexdigest().encode() + data[end:]
