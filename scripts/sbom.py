"""Write `dist/interlock-VERSION.cdx.json`: a CycloneDX list of everything that `interlock` and its extras may install.

Versions and digests come from the lock file; what the development environment adds is left out.
"""

import json
import re
import sys
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from typing import Any

import interlock

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements" / "dev.txt"
_PINNED = re.compile(r"^([\w.-]+)==([\w.+!-]+)(.*?)(?=^\S|\Z)", re.MULTILINE | re.DOTALL)
_NAME = re.compile(r"[\w.-]+")


def find_dependencies(name: str) -> set[str]:
    """Return everything that a distribution and its extras may install, as far as it is installed here."""
    found: set[str] = set()
    pending = [name]
    while pending:
        try:
            wanted = requires(pending.pop()) or []
        except PackageNotFoundError:  # for another platform or Python
            continue
        # The extras of dependencies are not ours: only those of `interlock` itself are followed.
        names = [_NAME.findall(each)[0] for each in wanted if not found or "extra ==" not in each]
        new = {re.sub(r"[-_.]+", "-", each).lower() for each in names} - found - {name}
        found |= new
        pending += new
    return found


def build_sbom(lock: str, names: set[str]) -> dict[str, Any]:
    """Return the document for the named packages of a lock file."""
    components = [
        {
            "type": "library",
            "bom-ref": f"pkg:pypi/{name}@{version}",
            "name": name,
            "version": version,
            "purl": f"pkg:pypi/{name}@{version}",
            "hashes": [{"alg": "SHA-256", "content": digest} for digest in re.findall(r"sha256:([0-9a-f]{64})", rest)],
        }
        for name, version, rest in _PINNED.findall(lock)
        if re.sub(r"[-_.]+", "-", name).lower() in names
    ]
    version = interlock.__version__
    itself = {"type": "library", "bom-ref": "interlock", "name": "interlock", "version": version}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": itself | {"purl": f"pkg:pypi/interlock@{version}"}},
        "components": components,
    }


def main() -> int:
    """Write the file next to the wheel."""
    target = ROOT / "dist" / f"interlock-{interlock.__version__}.cdx.json"
    document = build_sbom(LOCK.read_text("utf-8"), find_dependencies("interlock"))
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps(document, indent=2) + "\n", "utf-8")
    print(f"wrote {target.relative_to(ROOT)}: {len(document['components'])} components")
    return 0


if __name__ == "__main__":
    sys.exit(main())
