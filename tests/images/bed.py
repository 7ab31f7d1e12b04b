"""A container engine of the tests' own with its own network, and bases that are made here."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCKER = "/usr/bin/docker"
SBIN = f"{os.environ['PATH']}:/usr/sbin:/sbin"


def sh(*words: str, check: bool = True, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, env={**os.environ, **(env or {})}
    )
    if check and done.returncode:
        raise AssertionError(f"{' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


@dataclass
class Engine:
    """dockerd with a folder, a socket and a bridge of its own; `gateway` is this machine's
    address there."""

    folder: Path
    bridge: str
    gateway: str
    rules: list[tuple[str, ...]] = field(default_factory=list)
    process: subprocess.Popen[bytes] | None = None

    @property
    def env(self) -> dict[str, str]:
        """What a command needs to use this engine and no other."""
        return {
            "DOCKER_HOST": f"unix://{self.folder}/s",
            "DOCKER_CONFIG": str(self.folder / "config"),
            "REPRISE_ENGINE": DOCKER,
        }

    def docker(self, *words: str, check: bool = True) -> str:
        return sh(DOCKER, *words, check=check, env=self.env).strip()

    def inside(self, image: str, script: str, *options: str) -> str:
        """What a shell script prints in a container of `image`, which is removed."""
        run = ("run", "--rm", "--network", "none", "--entrypoint", "sh", *options, image)
        return self.docker(*run, "-euc", script)

    def up(self) -> None:
        subnet = f"{self.gateway.rpartition('.')[0]}.0/24"
        sh("ip", "link", "add", self.bridge, "type", "bridge", env={"PATH": SBIN})
        sh("ip", "addr", "add", f"{self.gateway}/24", "dev", self.bridge, env={"PATH": SBIN})
        sh("ip", "link", "set", self.bridge, "up", env={"PATH": SBIN})
        # Its own two kinds of rule instead of docker's chains: all of them go when it stops.
        self._rule(
            "POSTROUTING", "-t", "nat", "-s", subnet, "!", "-o", self.bridge, "-j", "MASQUERADE"
        )
        self._rule("FORWARD", "-i", self.bridge, "-j", "ACCEPT")
        self._rule("FORWARD", "-o", self.bridge, "-j", "ACCEPT")
        command = ["dockerd", "--data-root", f"{self.folder}/root", "--exec-root"]
        command += [f"{self.folder}/exec", "-H", f"unix://{self.folder}/s", "-p"]
        command += [f"{self.folder}/pid", "--bridge", self.bridge, "--iptables=false"]
        with (self.folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, env={**os.environ, "PATH": SBIN}
            )
        deadline = time.monotonic() + 60
        while not self.docker("version", check=False):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError((self.folder / "log").read_text(encoding="utf-8")[-2000:])
            time.sleep(0.1)

    def _rule(self, chain: str, *words: str) -> None:
        table = words[:2] if words[0] == "-t" else ()
        rule = words[len(table) :]
        sh("iptables", *table, "-I", chain, *rule, env={"PATH": SBIN})
        self.rules.append((*table, "-D", chain, *rule))

    def down(self) -> None:
        """Stop the engine and whatever still runs in it; remove its network."""
        if self.process is not None:
            for one in self.docker("ps", "--quiet", check=False).split():
                self.docker("kill", one, check=False)
            self.process.terminate()
            self.process.wait(60)
        for rule in self.rules:
            sh("iptables", *rule, check=False, env={"PATH": SBIN})
        sh("ip", "link", "del", self.bridge, check=False, env={"PATH": SBIN})


@contextlib.contextmanager
def standing_engine() -> Iterator[Engine]:
    """An engine while the block runs. Its folder lies on the disk and has a short path."""
    tag = secrets.token_hex(2)
    folder = Path(tempfile.mkdtemp(prefix="eng-", dir="/var/tmp"))
    (folder / "config").mkdir()
    engine = Engine(folder, f"rpi{tag}", f"172.31.{secrets.randbelow(200)}.1")
    try:
        engine.up()
        yield engine
    finally:
        engine.down()
        shutil.rmtree(folder, ignore_errors=True)


def make_debian(engine: Engine, host: str) -> str:
    """A Debian from packages, pushed to the registry at `host`; its name by digest."""
    name = f"{host}/debian:bookworm"
    script = str(ROOT / "scripts" / "image_base.sh")
    sh("sh", script, name, env={**engine.env, "PATH": SBIN})
    return push(engine, name)


def push(engine: Engine, name: str) -> str:
    """Push a tagged image; the name by the digest that the registry gave it."""
    engine.docker("push", "--quiet", name)
    digests = engine.docker("image", "inspect", "--format", '{{join .RepoDigests "\\n"}}', name)
    repository = name.rpartition(":")[0]
    return next(line for line in digests.splitlines() if line.startswith(f"{repository}@"))


@dataclass
class Project:
    """A copy of this checkout at its present state, to build from."""

    root: Path
    engine: Engine
    more: dict[str, str] = field(default_factory=dict)

    def reprise(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run this checkout's `reprise` on the copy; no setting of this machine's pip counts."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PIP_", "REPRISE_"))}
        env = {**kept, "PIP_CONFIG_FILE": os.devnull, **self.engine.env, **self.more}
        command = [str(ROOT / ".venv" / "bin" / "python"), "-m", "reprise", *words]
        return subprocess.run(
            command,
            cwd=self.root,
            env={**env, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )


def copy_project(folder: Path, places: Sequence[str], lock: str) -> Path:
    """Copy what git tracks below `places` (the working tree's state) into a new repository.

    `lock` is its versions.lock.
    """
    listed = sh("git", "-C", str(ROOT), "ls-files", "-z", "--", *places).split("\0")
    for path in filter(None, listed):
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / path, target)
    (folder / "versions.lock").write_text(lock)
    commit(folder)
    return folder


def commit(folder: Path) -> str:
    """Make `folder` a repository with everything in it; the commit."""
    git = ("git", "-C", str(folder), "-c", "user.name=t", "-c", "user.email=t@example.org")
    sh(*git, "init", "-q")
    sh(*git, "add", "-A")
    sh(*git, "commit", "-q", "-m", "all")
    return sh(*git, "rev-parse", "HEAD").strip()


def interpreter(version: str) -> Path | None:
    """The folder of a CPython of that version on this machine, or None: PATH, then pyenv's."""
    found = shutil.which(f"python{version}")
    homes = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*"))
    candidates = [str(home / "bin" / f"python{version}") for home in homes]
    for candidate in [*candidates, *([found] if found else [])]:
        code = "import sys, sysconfig; print(sys.base_prefix, '%d.%d' % sys.version_info[:2])"
        done = subprocess.run([candidate, "-c", code], capture_output=True, text=True, check=False)
        prefix, _, told = done.stdout.strip().rpartition(" ")
        if done.returncode == 0 and told == version and (Path(prefix) / "bin").is_dir():
            return Path(prefix)
    return None
