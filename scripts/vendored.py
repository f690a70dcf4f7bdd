"""Add the JavaScript that lies in the repository to a CycloneDX file: vendored.py IN OUT."""

import hashlib
import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent

#: File, npm name, licence, and whether it is installed with baryflow or only used by tests.
VENDORED = (
    ("src/baryflow/service/static/uplot/uPlot.iife.min.js", "uplot", "MIT", "required"),
    ("tests/service/axe/axe.min.js", "axe-core", "MPL-2.0", "excluded"),
)


def describe(path: str, name: str, licence: str, scope: str) -> dict[str, object]:
    """Return the CycloneDX component of a file; its version stands in its first line."""
    content = (ROOT / path).read_bytes()
    version = re.search(rb"\bv(\d+\.\d+\.\d+)\b", content.split(b"\n")[0])
    if version is None:
        raise SystemExit(f"{path}: no version like v1.2.3 in its first line")
    number = version[1].decode()
    return {
        "type": "library",
        "bom-ref": f"{name}=={number}",
        "name": name,
        "version": number,
        "scope": scope,
        "purl": f"pkg:npm/{name}@{number}",
        "licenses": [{"license": {"id": licence}}],
        "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(content).hexdigest()}],
        "properties": [{"name": "baryflow:path", "value": path}],
    }


def main() -> None:
    """Read a file, add the components, write another file."""
    source, out = map(Path, sys.argv[1:])
    bom = json.loads(source.read_text())
    bom["components"] += [describe(*entry) for entry in VENDORED]
    out.write_text(json.dumps(bom, indent=2) + "\n")
    print(f"{out}: {len(bom['components'])} components")


if __name__ == "__main__":
    main()
