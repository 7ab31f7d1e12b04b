"""Where a build takes Python packages from: this machine's own settings, carried as secrets.

A build sees them while it runs; nothing of them, neither an index with a password in its address
nor a site's certificates, is in the image or in its history.
"""

from __future__ import annotations

import ast
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from reprise.core.errors import OperatorError
from reprise.core.pip import find_pip
from reprise.trees.git import without_credentials

__all__ = ["PackageSources", "package_sources"]

CA = "/run/secrets/ca"
_PASSED_ON = ("trusted-host", "timeout", "retries")
# From the least to the most important, as pip reads them.
_SECTIONS = ("global", "install", ":env:")


@dataclass(frozen=True, slots=True)
class PackageSources:
    """`conf` is a pip.conf for the build, `ca` certificates to trust, `wheels` local folders."""

    conf: str
    ca: Path | None
    wheels: tuple[Path, ...]
    nvidia_index: str
    notes: tuple[str, ...]


def package_sources() -> PackageSources:
    """What REPRISE_INDEX_URL, REPRISE_EXTRA_INDEX_URL, REPRISE_WHEELS, REPRISE_CA and
    REPRISE_NVIDIA_INDEX_URL say, and pip's own settings for what they leave open.

    Raises OperatorError when a file or folder named there is not there.
    """
    own = _pip_settings()
    read = os.environ.get
    lines: list[str] = []
    notes: list[str] = []
    named = read("REPRISE_WHEELS")
    folders = [named] if named else own.get("find-links", "").split()
    if named:
        lines.append("no-index = true")
    for key, variable in (
        ("index-url", "REPRISE_INDEX_URL"),
        ("extra-index-url", "REPRISE_EXTRA_INDEX_URL"),
    ):
        urls = (read(variable) or own.get(key, "")).split()
        far = [url for url in urls if url.startswith(("http://", "https://"))]
        near = [without_credentials(url) for url in urls if url not in far]
        notes += [f"{url} lies on this machine: the build cannot use it" for url in near]
        if far and not named:
            lines.append(f"{key} = {' '.join(far)}")
    ca = _file("REPRISE_CA", read("REPRISE_CA") or own.get("cert", ""))
    if ca is not None:
        lines.append(f"cert = {CA}")
    lines += [f"{key} = {own[key]}" for key in _PASSED_ON if key in own]
    return PackageSources(
        "\n".join(["[global]", *lines, ""]),
        ca,
        tuple(
            path for folder in folders if (path := Path(folder.removeprefix("file://"))).is_dir()
        ),
        read("REPRISE_NVIDIA_INDEX_URL") or "",
        tuple(notes),
    )


def _file(variable: str, named: str) -> Path | None:
    if not named:
        return None
    path = Path(named)
    if not path.is_file():
        fix = f"name a file of certificates in {variable}, or unset it"
        raise OperatorError("image-ca", named, "there is no such file of certificates", fix)
    return path


def _pip_settings() -> dict[str, str]:
    """pip's settings on this machine by name, later sources over earlier ones."""
    command = [*find_pip(), "config", "list"]
    done = subprocess.run(
        command, capture_output=True, check=False, encoding="utf-8", errors="replace"
    )
    found: dict[str, dict[str, str]] = {section: {} for section in _SECTIONS}
    for line in done.stdout.splitlines():
        name, _, value = line.partition("=")
        section, _, key = name.partition(".")
        if section in found:
            found[section][key] = str(ast.literal_eval(value))
    return {key: value for section in _SECTIONS for key, value in found[section].items()}
