"""Remove from the running environment what a requirements file does not name.

Only packages that came from a wheel or an index: what was installed from a folder (the project
itself, the plug-ins) and the installers stay. Standard library only.
"""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import Distribution, distributions
from pathlib import Path

INSTALLERS = {"pip", "uv", "setuptools", "wheel"}


def normal(name: str) -> str:
    """A package's name as indexes compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def from_folder(distribution: Distribution) -> bool:
    """Whether pip recorded that it was installed from a folder (PEP 610)."""
    return '"dir_info"' in (distribution.read_text("direct_url.json") or "")


def main() -> None:
    """Uninstall the rest; prints what was removed."""
    wanted = set(INSTALLERS)
    for path in [Path(name) for name in sys.argv[1:] if name.endswith(".txt")]:
        wanted |= {
            normal(name)
            for name in re.findall(r"^([\w.-]+)==", path.read_text(encoding="utf-8"), re.M)
        }
    found = {normal(dist.metadata["Name"]) for dist in distributions() if not from_folder(dist)}
    rest = sorted(found - wanted)
    if rest:
        subprocess.run([sys.executable, "-m", "pip", "uninstall", "--yes", *rest], check=True)


if __name__ == "__main__":
    main()
