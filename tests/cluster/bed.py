"""Four hosts on one machine: each with its own network, processes, /tmp, /dev/shm, name and sshd.

Each host is a network namespace on a bridge and a private PID, mount and UTS namespace in it,
held by one `unshare` process: ending that process ends every process of the host, by the kernel.
Needs root on Linux with iproute2, util-linux and openssh-server.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shlex
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/bin") or "/usr/sbin/sshd"
IP = shutil.which("ip", path="/usr/sbin:/usr/bin:/sbin:/bin") or "ip"

CHECKOUT = Path(__file__).resolve().parents[2]
CHECKOUT_IN_TMP = CHECKOUT.relative_to("/tmp") if CHECKOUT.is_relative_to("/tmp") else None


def sh(*words: str, check: bool = True) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if check and done.returncode:
        raise AssertionError(f"{' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


@dataclass
class BedHost:
    """One host. `root` is a folder of the test's that holds its /tmp, configuration and log."""

    name: str
    ip: str
    namespace: str
    root: Path
    shm: str = "1g"
    path: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    @property
    def tmp(self) -> Path:
        """The host's /tmp, seen from outside."""
        return self.root / "tmp"

    @property
    def bin(self) -> Path:
        """A folder at the front of the host's PATH."""
        return self.root / "bin"

    def command(self, name: str, text: str) -> None:
        """Put a command on the host's PATH that prints what a real one printed, or does more."""
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def pid(self) -> int:
        """The pid, outside, of the host's first process (sshd)."""
        assert self.process is not None
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return int(children.read_text(encoding="utf-8").split()[0])

    def run(self, *words: str, check: bool = True) -> str:
        """Run a command in the host's namespaces, without SSH."""
        inside = ("nsenter", "-t", str(self.pid()), "-n", "-m", "-p", "-u", "--", *words)
        return sh(*inside, check=check)

    def spawn(self, *words: str) -> subprocess.Popen[bytes]:
        """Start a command in the host's namespaces; the caller ends it."""
        inside = ("nsenter", "-t", str(self.pid()), "-n", "-m", "-p", "-u", "--", *words)
        return subprocess.Popen(inside, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)

    def wait_for_listener(self, port: int, seconds: float = 90) -> None:
        """Wait until something on the host listens on `port`."""
        deadline = time.monotonic() + seconds
        while not self.run("ss", "-Hltn", f"sport = :{port}").strip():
            assert time.monotonic() < deadline, f"nothing listens on {port}"
            time.sleep(0.1)

    def processes(self) -> list[str]:
        """Command lines of all processes of the host."""
        return self.run("ps", "-ww", "-eo", "pid,args", "--no-headers").splitlines()


class Bed:
    """The hosts, a bridge and an ssh configuration that reaches them with strict host keys."""

    def __init__(self, folder: Path, count: int = 4) -> None:
        self.folder = folder
        self.tag = secrets.token_hex(2)
        self.net = f"10.{200 + os.getpid() % 50}.{secrets.randbelow(200)}"
        self.bridge = f"rpb{self.tag}"
        self.hosts = [
            BedHost(f"node{n}", f"{self.net}.{n}", f"rp{self.tag}n{n}", folder / f"node{n}")
            for n in range(1, count + 1)
        ]

    @property
    def config(self) -> Path:
        """The ssh_config to give to the client."""
        return self.folder / "ssh_config"

    @property
    def known_hosts(self) -> Path:
        """The known_hosts that it names."""
        return self.folder / "known_hosts"

    def host(self, name: str) -> BedHost:
        return next(host for host in self.hosts if host.name == name)

    def hostfile(self, slots: int = 1, names: Sequence[str] = ()) -> Path:
        path = self.folder / "hostfile"
        chosen = [host for host in self.hosts if not names or host.name in names]
        path.write_text("".join(f"{host.name} slots={slots}\n" for host in chosen))
        return path

    def up(self) -> None:
        """Make the network and start every host's sshd."""
        self.folder.chmod(0o755)
        self._keys()
        sh(IP, "link", "add", self.bridge, "type", "bridge")
        sh(IP, "addr", "add", f"{self.net}.254/24", "dev", self.bridge)
        sh(IP, "link", "set", self.bridge, "up")
        for host in self.hosts:
            self._wire(host)
            self.start(host)
        for host in self.hosts:
            self.wait(host)

    def wait(self, host: BedHost) -> None:
        """Wait until the host's sshd answers."""
        try:
            wait_for_port(host.ip, 22)
        except AssertionError as error:
            log = (host.root / "sshd.log").read_text(encoding="utf-8")
            raise AssertionError(f"{error}; its log: {log}") from None

    def down(self) -> None:
        """End every host and remove the network; safe to call twice."""
        for host in self.hosts:
            self.stop(host)
            sh(IP, "netns", "del", host.namespace, check=False)
        sh(IP, "link", "del", self.bridge, check=False)

    def start(self, host: BedHost) -> None:
        """Start the host's namespaces and its sshd."""
        for folder in (host.tmp, host.bin, host.root / "run"):
            folder.mkdir(parents=True, exist_ok=True)
        host.tmp.chmod(0o1777)
        self._sshd_config(host)
        script = f"""
            hostname {host.name}
            {self._checkout_below_tmp(host)}
            mount --rbind {host.tmp} /tmp
            mount -t tmpfs -o size={host.shm},mode=1777 shm /dev/shm
            mount -t tmpfs run /run
            mkdir -p /run/sshd
            mount --bind {self.folder}/hosts /etc/hosts
            exec {SSHD} -D -e -f {host.root}/sshd_config
        """
        with (host.root / "sshd.log").open("ab") as log:
            host.process = subprocess.Popen(
                [
                    *("nsenter", f"--net=/run/netns/{host.namespace}", "unshare", "-u", "-m"),
                    *("-p", "-f", "--kill-child", "--mount-proc", "sh", "-ec", script),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
            )

    @staticmethod
    def _checkout_below_tmp(host: BedHost) -> str:
        """Shell text that keeps the checkout visible where it lies in the /tmp that is hidden."""
        if CHECKOUT_IN_TMP is None:
            return ":"
        inside = host.tmp / CHECKOUT_IN_TMP
        inside.mkdir(parents=True, exist_ok=True)
        return shlex.join(["mount", "--bind", str(CHECKOUT), str(inside)])

    def stop(self, host: BedHost) -> None:
        """End the host, all of its processes with it."""
        if host.process is not None:
            host.process.kill()
            host.process.wait()
            host.process = None

    def restart(self, host: BedHost) -> None:
        """Stop and start with what was changed (`shm`, `env`, `path`)."""
        self.stop(host)
        self.start(host)
        self.wait(host)

    def cut(self, host: BedHost) -> None:
        """Take the host off the network: its packets vanish."""
        sh(IP, "link", "set", f"v{self.tag}{host.name[-1]}", "down")

    def join(self, host: BedHost) -> None:
        """Put it back."""
        sh(IP, "link", "set", f"v{self.tag}{host.name[-1]}", "up")

    def _wire(self, host: BedHost) -> None:
        outer, space = f"v{self.tag}{host.name[-1]}", host.namespace
        sh(IP, "netns", "add", space)
        sh(IP, "link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", space)
        sh(IP, "link", "set", outer, "master", self.bridge, "up")
        for words in (
            ("addr", "add", f"{host.ip}/24", "dev", "eth0"),
            ("link", "set", "eth0", "up"),
            ("link", "set", "lo", "up"),
        ):
            sh(IP, "-n", space, *words)

    def _keys(self) -> None:
        lines = ["127.0.0.1 localhost\n"] + [f"{host.ip} {host.name}\n" for host in self.hosts]
        (self.folder / "hosts").write_text("".join(lines))
        self._key("id")
        (self.folder / "authorized_keys").write_text(
            (self.folder / "id.pub").read_text(encoding="utf-8")
        )
        known = []
        for host in self.hosts:
            host.root.mkdir()
            self._key(f"{host.name}/host_key")
            known.append(f"{host.name} {(host.root / 'host_key.pub').read_text(encoding='utf-8')}")
        self.known_hosts.write_text("".join(known))
        self.config.write_text(
            f"Host *\n  User root\n  IdentityFile {self.folder}/id\n  IdentitiesOnly yes\n"
            f"  UserKnownHostsFile {self.known_hosts}\n  GlobalKnownHostsFile none\n"
            + "".join(
                f"Host {host.name}\n  HostName {host.ip}\n  HostKeyAlias {host.name}\n"
                for host in self.hosts
            )
        )

    def _key(self, name: str) -> None:
        sh("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / name))

    def _sshd_config(self, host: BedHost) -> None:
        path = ":".join([str(host.bin), *host.path, "/usr/sbin:/usr/bin:/sbin:/bin"])
        variables = {"PATH": path, **host.env}
        settings = " ".join(f'"{name}={value}"' for name, value in variables.items())
        (host.root / "sshd_config").write_text(
            f"ListenAddress {host.ip}\nHostKey {host.root}/host_key\nUsePAM no\nStrictModes no\n"
            f"AuthorizedKeysFile {self.folder}/authorized_keys\nPidFile none\n"
            "MaxStartups 64:30:128\nPermitRootLogin yes\nPermitUserRC no\n"
            f"SetEnv {settings}\n"
        )


def wait_for_port(address: str, port: int, seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while True:
        with contextlib.suppress(OSError), socket.create_connection((address, port), 1):
            return
        assert time.monotonic() < deadline, f"{address}:{port} does not answer"
        time.sleep(0.05)


@contextlib.contextmanager
def standing_bed(count: int = 4) -> Iterator[Bed]:
    """A bed while the block runs; its folder is not below /tmp, which each host hides."""
    folder = Path(tempfile.mkdtemp(prefix="bed-", dir="/var/tmp"))
    bed = Bed(folder, count)
    try:
        bed.up()
        yield bed
    finally:
        bed.down()
        shutil.rmtree(folder, ignore_errors=True)
