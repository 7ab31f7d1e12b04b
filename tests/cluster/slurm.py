"""Debian's own Slurm on a bed: munged, slurmd on every host, slurmctld on the first."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.cluster.bed import Bed, BedHost

PACKAGES = "munge slurmctld slurmd slurm-client"
COMMANDS = ("munged", "slurmctld", "slurmd", "sbatch", "scancel", "squeue")
_SBIN = "/usr/sbin:/usr/bin:/sbin:/bin"


def missing() -> list[str]:
    """Commands of Slurm that this machine does not have."""
    return [name for name in COMMANDS if shutil.which(name, path=_SBIN) is None]


@dataclass
class Slurm:
    """One partition with all hosts of the bed but the first, which is the login node.

    Every host has its own slurmd and munged; `cpus` is what Slurm is to believe of each.
    """

    bed: Bed
    cpus: int = 2
    kill_wait: int = 30
    daemons: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def login(self) -> BedHost:
        return self.bed.hosts[0]

    @property
    def nodes(self) -> list[BedHost]:
        return self.bed.hosts[1:]

    @property
    def config(self) -> Path:
        return self.bed.folder / "slurm.conf"

    def up(self) -> None:
        """Start every daemon and wait until all nodes are idle."""
        key = self.bed.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        self._configure()
        for host in self.bed.hosts:
            host.run("mkdir", "-p", "/run/munge", "/run/slurm")
            files = [f"--{name}-file=/run/munge/{name}" for name in ("pid", "seed")]
            self._start(
                host, "munged", "--foreground", "--force", f"--key-file={key}",
                f"--log-file={host.root}/munged.log", *files,
            )  # fmt: skip
        (self.bed.folder / "ctld").mkdir()
        self._start(self.login, "slurmctld", "-D", "-c")
        for host in self.nodes:
            self._start(host, "slurmd", "-D", "-N", host.name)
        self.wait(lambda: self.run("sinfo", "-h", "-o", "%T").split() == ["idle"], 90)

    def down(self) -> None:
        """End the daemons; the hosts' own processes end with the bed."""
        for daemon in self.daemons:
            daemon.kill()
            daemon.wait()

    def run(self, *words: str, env: Mapping[str, str] | None = None) -> str:
        """A command of Slurm on the login node."""
        given = [f"{name}={value}" for name, value in (env or {}).items()]
        path = f"PATH={self.bed.hosts[0].bin}:{_SBIN}"
        return self.login.run(
            "env", "-i", path, f"SLURM_CONF={self.config}", "HOME=/root", *given, *words
        )

    def state(self, job: str) -> str:
        """The state of a job in one word: PENDING, RUNNING, COMPLETING, CANCELLED ..."""
        shown = self.run("scontrol", "show", "job", "-o", job)
        return shown.partition(" JobState=")[2].split()[0]

    def wait(self, found, seconds: float) -> None:  # type: ignore[no-untyped-def]
        deadline = time.monotonic() + seconds
        while not found():
            assert time.monotonic() < deadline, self.logs()
            time.sleep(0.5)

    def logs(self) -> str:
        """The ends of all logs, for a test that failed."""
        paths = sorted([*self.bed.folder.glob("*.log"), *self.bed.folder.glob("*/*.log")])
        return "\n".join(
            f"== {path}\n{path.read_text(encoding='utf-8', errors='replace')[-1500:]}"
            for path in paths
        )

    def _start(self, host: BedHost, name: str, *words: str) -> None:
        inside = ("nsenter", "-t", str(host.pid()), "-n", "-m", "-p", "-u", "--")
        environment = {"PATH": _SBIN, "SLURM_CONF": str(self.config)}
        with (host.root / f"{name}.log").open("ab") as log:
            command = [*inside, name, *words]
            self.daemons.append(
                subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment
                )
            )

    def _configure(self) -> None:
        folder = self.bed.folder
        lines = [
            "ClusterName=bed",
            f"SlurmctldHost={self.login.name}({self.login.ip})",
            "SlurmUser=root",
            "SlurmdUser=root",
            "AuthType=auth/munge",
            # The hosts are namespaces without control groups of their own.
            "ProctrackType=proctrack/linuxproc",
            "TaskPlugin=task/none",
            "JobAcctGatherType=jobacct_gather/none",
            "SelectType=select/cons_tres",
            "SelectTypeParameters=CR_Core",
            "MailProg=/bin/true",
            "GresTypes=gpu",
            "SwitchType=switch/none",
            "MpiDefault=none",
            "ReturnToService=2",
            f"KillWait={self.kill_wait}",
            f"StateSaveLocation={folder}/ctld",
            f"SlurmdSpoolDir={folder}/%n/slurmd",
            "SlurmctldPidFile=/run/slurm/slurmctld.pid",
            "SlurmdPidFile=/run/slurm/slurmd.pid",
            *(
                f"NodeName={host.name} NodeAddr={host.ip} CPUs={self.cpus} Gres=gpu:2 State=UNKNOWN"
                for host in self.nodes
            ),
            f"PartitionName=train Nodes={','.join(h.name for h in self.nodes)} Default=YES "
            "MaxTime=INFINITE State=UP",
        ]
        self.config.write_text("\n".join(lines) + "\n")
        for number in (0, 1):
            (folder / f"gpu{number}").touch()
        (folder / "gres.conf").write_text(f"Name=gpu File={folder}/gpu[0-1]\n")
