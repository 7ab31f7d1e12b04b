#!/usr/bin/env python3
"""Make .venv from the folder `operator` that a bundle for a bare machine put beside the project.

    scripts/gpu/operator_env.py

Called by scripts/venv.sh where that folder is; neither an index nor pip is needed. Safe to repeat:
when nothing changed it returns at once. GPU_PYTHON names another interpreter than python3.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
REQUIREMENTS = "requirements/operator.txt"


class Problem(Exception):
    """What is wrong, and what to do about it."""

    def __init__(self, message: str, fix: str) -> None:
        super().__init__(message)
        self.fix = fix


def find_python(wanted: str) -> tuple[str, str]:
    """The machine's interpreter, of the version `wanted` ("3.12"), and its full version."""
    python = os.environ.get("GPU_PYTHON") or shutil.which("python3") or sys.executable
    code = "import sys; print('%d.%d.%d' % sys.version_info[:3])"
    done = subprocess.run(
        [python, "-c", code], capture_output=True, encoding="utf-8", errors="replace", check=False
    )
    version = done.stdout.strip()
    if not version.startswith(f"{wanted}."):
        found = f"is Python {version}" if version else "does not run"
        message = f"{python} {found}; the packages of the bundle are for {wanted}"
        raise Problem(message, f"name another: GPU_PYTHON=/path/to/python{wanted}")
    return python, version


def make(root: Path) -> bool:
    """Make or repair `root`/.venv; False when it was current. Raises Problem."""
    site, venv = root.parent / "operator", root / ".venv"
    record = json.loads((site / "reprise-site.json").read_text(encoding="utf-8"))
    digest = hashlib.sha256((root / REQUIREMENTS).read_bytes()).hexdigest()
    if record["requirements_sha256"] != digest:
        message = f"{site} was made from another {REQUIREMENTS} than this project's"
        raise Problem(message, "bring the bundle of this very project: make bundle MACHINE=gpu")
    python, version = find_python(record["python"])
    mark = venv / ".reprise" / "bare"
    content = f"{root}\n{version}\n{digest}\n"
    if mark.is_file() and mark.read_text(encoding="utf-8") == content:
        return False
    if venv.exists() and not mark.is_file():
        message = f"{venv} is there, out of date, and was not made from {site}"
        raise Problem(message, f"move it away: mv {venv} {venv}.old")
    mark.parent.mkdir(parents=True, exist_ok=True)
    mark.write_text("being made\n")
    subprocess.run([python, "-m", "venv", "--without-pip", str(venv)], check=True)
    own = next(venv.glob("lib/python3*/site-packages"))
    (own / "reprise_bare.pth").write_text(f"{site}\n{root}\n")
    command = venv / "bin" / "reprise"
    interpreter = venv / "bin" / "python"
    command.write_text(
        f"#!{interpreter}\nimport sys\n\nfrom reprise.cli import main\n\nsys.exit(main())\n"
    )
    command.chmod(0o755)
    # What an installer would do: otherwise every first command of a user does it again.
    compileall = [str(interpreter), "-m", "compileall", "-q", "-j", "0", str(site)]
    subprocess.run(compileall, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    mark.write_text(content)
    return True


def main() -> int:
    """Make the environment; one line says what it is, when it was not there before."""
    try:
        if make(ROOT):
            print(f".venv: made from {ROOT.parent / 'operator'}", file=sys.stderr)
    except Problem as problem:
        print(f"error: {problem}\n    fix: {problem.fix}", file=sys.stderr)
        return 2
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"error: .venv was not made: {error}", file=sys.stderr)
        print("    fix: mend that and repeat the command", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
