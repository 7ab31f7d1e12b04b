"""How much faster the doctor is than a serial loop over SSH, and what it costs in CPU time.

    .venv/bin/python benchmarks/cluster/doctor.py [--hosts 64] [--out FILE]

One sshd on loopback aliases stands for the hosts; an `nvidia-smi` that takes two seconds makes
each probe as slow as a real one. The serial loop runs the same probe by the bare client, in the
same run. CPU time is that of this process and the clients it started, not of sshd.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from reprise.cluster.doctor.context import Expected  # noqa: E402
from reprise.cluster.doctor.doctor import Look, Scripts, diagnose, look, probe_script  # noqa: E402
from reprise.cluster.hosts.hostfile import Host  # noqa: E402
from reprise.cluster.site import Site, SshSettings  # noqa: E402
from reprise.cluster.ssh import Ssh, framed  # noqa: E402
from reprise.machines.registry import machine_named  # noqa: E402
from tests.cluster.bed import SSHD, sh, wait_for_port  # noqa: E402

PORT = 22922
SMI = """#!/bin/sh
case "$*" in *query-gpu*) sleep 2; echo "0, NVIDIA H20, 97871, 0, 570.1, 08:00.0, GPU-0" ;; esac
"""


def cpu() -> float:
    """Seconds of CPU time of this process and of the children that it has waited for."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def make(folder: Path, count: int) -> tuple[subprocess.Popen[bytes], SshSettings, list[Host]]:
    """Keys, an ssh_config for the aliases and the daemon."""
    for name in ("id", "host_key"):
        sh("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name))
    bin_folder = folder / "bin"
    bin_folder.mkdir()
    (bin_folder / "nvidia-smi").write_text(SMI)
    (bin_folder / "nvidia-smi").chmod(0o755)
    hosts = [Host(f"n{n:03d}", 1, n, port=PORT) for n in range(1, count + 1)]
    key = (folder / "host_key.pub").read_text()
    (folder / "known").write_text("".join(f"{host.name} {key}" for host in hosts))
    (folder / "config").write_text(
        f"Host *\n  User root\n  IdentityFile {folder}/id\n  IdentitiesOnly yes\n"
        f"  UserKnownHostsFile {folder}/known\n  GlobalKnownHostsFile none\n"
        + "".join(
            f"Host {host.name}\n  HostName 127.77.{host.line // 250}.{host.line % 250 + 1}\n"
            f"  HostKeyAlias {host.name}\n"
            for host in hosts
        )
    )
    (folder / "sshd_config").write_text(
        f"ListenAddress 0.0.0.0:{PORT}\nHostKey {folder}/host_key\nUsePAM no\nStrictModes no\n"
        f"AuthorizedKeysFile {folder}/id.pub\nPidFile none\nPermitRootLogin yes\n"
        f"MaxStartups 256:30:512\nSetEnv PATH={bin_folder}:/usr/sbin:/usr/bin:/sbin:/bin\n"
    )
    Path("/run/sshd").mkdir(exist_ok=True)
    daemon = subprocess.Popen(
        [SSHD, "-D", "-f", str(folder / "sshd_config")], stderr=subprocess.DEVNULL
    )
    wait_for_port("127.0.0.1", PORT)
    return daemon, SshSettings(config=str(folder / "config"), parallel=min(count, 128)), hosts


def bare(folder: Path, host: Host, words: list[str], text: str) -> None:
    """One call of the client, as by hand."""
    command = ["ssh", "-F", str(folder / "config"), "-p", str(PORT), "--", host.name, *words]
    done = subprocess.run(command, input=text.encode(), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def main() -> None:
    """Measure and print one JSON object."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--hosts", type=int, default=64)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        folder = Path(name)
        daemon, settings, hosts = make(folder, options.hosts)
        try:
            result = measure(folder, settings, hosts)
        finally:
            daemon.terminate()
            daemon.wait()
    text = json.dumps(result, indent=2) + "\n"
    sys.stdout.write(text)
    if options.out:
        options.out.write_text(text)


def measure(folder: Path, settings: SshSettings, hosts: list[Host]) -> dict[str, object]:
    """Wall and CPU seconds of the doctor, of the serial loop, and of bare calls."""
    site = Site(ssh=settings)
    machine = machine_named("cpu")
    what = Look(hosts, machine, site, Expected(), Scripts(ROOT / "scripts"))
    load = os.getloadavg()[0]

    began, used = time.monotonic(), cpu()
    with Ssh(settings) as ssh:
        context = look(what, ssh)
    diagnose(context)
    doctor, doctor_cpu = time.monotonic() - began, cpu() - used
    assert all(facts.complete for facts in context.facts.values()), "a probe did not end"
    assert len(context.facts) == len(hosts), [a.said for a in context.answers.values() if not a.ok]

    began, used = time.monotonic(), cpu()
    for host in hosts:
        script = framed(probe_script(what, None, "0", False), "n")
        bare(folder, host, ["sh", "-s"], script)
    serial, serial_cpu = time.monotonic() - began, cpu() - used

    used = cpu()
    for host in hosts:
        bare(folder, host, ["true"], "")
    bare_cpu = cpu() - used

    count = len(hosts)
    return {
        "hosts": count,
        "cores": os.cpu_count(),
        "load_before": round(load, 1),
        "doctor_s": round(doctor, 2),
        "serial_s": round(serial, 2),
        "times_faster": round(serial / doctor, 1),
        "doctor_cpu_ms_per_host": round(1000 * doctor_cpu / count, 1),
        "serial_cpu_ms_per_host": round(1000 * serial_cpu / count, 1),
        "bare_call_cpu_ms_per_host": round(1000 * bare_cpu / count, 1),
        "doctor_cpu_over_bare_call": round(doctor_cpu / bare_cpu, 2),
    }


if __name__ == "__main__":
    main()
