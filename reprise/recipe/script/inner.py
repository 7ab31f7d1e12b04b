"""Programs that start another one: srun, docker exec, ssh, ray job submit, timeout, …."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass

__all__ = ["Inner", "inner_shell", "wrappers"]

_SHELLS = ("bash", "sh", "zsh", "dash")
_REMOTE = ("ssh", "pdsh", "docker", "podman", "nerdctl", "kubectl", "singularity", "apptainer",
           "enroot", "srun", "mpirun", "mpiexec", "sbatch", "ray", "su", "sudo", "env", "nohup",
           "timeout", "nice", "numactl", "stdbuf", "tmux", "screen", "setsid", "conda", "uv",
           "nsys", "xargs", "script", "time", "parallel", "clush", "salloc", "poetry",
           "exec")  # fmt: skip
_KEEPS = ("srun", "mpirun", "mpiexec", "sbatch", "salloc", "su", "sudo", "env", "nohup", "timeout",
          "nice", "numactl", "stdbuf", "setsid", "conda", "uv", "nsys", "script", "time", "poetry",
          "exec", "tmux", "screen")  # fmt: skip
_SSH_WITH_VALUE = re.compile(r"-[bcDEeFIiJLlmOopQRSWw]")


@dataclass(frozen=True, slots=True)
class Inner:
    """What is handed to another shell: text, or a script file, or (both None) the input.

    `keeps`: the other shell inherits the exported variables.
    """

    program: str
    text: str | None
    arguments: tuple[str, ...] = ()
    script: str | None = None
    keeps: bool = True


def inner_shell(words: list[str]) -> Inner | None:
    """The shell that a command line starts through another program; None where it starts none."""
    name = posixpath.basename(words[0])
    if name not in _REMOTE:
        return None
    keeps = name in _KEEPS
    for at, word in enumerate(words[1:], 1):
        if posixpath.basename(word) in _SHELLS:
            found = _shell(name, words[at:], keeps)
            if found is not None:
                return found
    if name == "ssh":
        return _ssh(words)
    if name == "sbatch":
        return _sbatch(words)
    if name in ("tmux", "screen", "su", "sbatch", "script"):
        text = next((word for word in reversed(words) if " " in word), None)
        return Inner(name, text) if text else None
    return None


def _shell(name: str, words: list[str], keeps: bool) -> Inner | None:
    at = 1
    while at < len(words) and words[at].startswith("-"):
        if re.fullmatch(r"-[a-zA-Z]*c[a-zA-Z]*", words[at]) and at + 1 < len(words):
            return Inner(name, words[at + 1], tuple(words[at + 3 :]), keeps=keeps)
        if words[at] == "-s":
            return Inner(name, None, keeps=keeps)
        at += 1
    if at < len(words):
        return Inner(name, None, tuple(words[at + 1 :]), words[at], keeps)
    return Inner(name, None, keeps=keeps)


def _ssh(words: list[str]) -> Inner | None:
    """ssh joins its words with blanks, and the other host's shell reads them again."""
    at = 1
    while at < len(words) and words[at].startswith("-"):
        at += 2 if _SSH_WITH_VALUE.fullmatch(words[at]) else 1
    rest = words[at + 1 :]
    if not rest:
        return Inner("ssh", None, keeps=False) if at < len(words) else None
    return Inner("ssh", " ".join(rest), keeps=False)


def _sbatch(words: list[str]) -> Inner:
    for at, word in enumerate(words[1:], 1):
        if word.startswith("--wrap"):
            text = word.partition("=")[2] or (words[at + 1] if at + 1 < len(words) else "")
            return Inner("sbatch", text)
    at = 1
    while at < len(words) and words[at].startswith("-"):
        at += 2 if re.fullmatch(r"-[a-zA-Z]", words[at]) else 1
    if at < len(words):
        return Inner("sbatch", None, tuple(words[at + 1 :]), words[at])
    return Inner("sbatch", None)


def wrappers(words: list[str]) -> tuple[str, ...]:
    """The programs that a command line goes through before what it starts."""
    found = []
    for at, word in enumerate(words):
        name = posixpath.basename(word)
        if name == "ray" and words[at + 1 : at + 3] == ["job", "submit"]:
            found.append("ray job submit")
        elif name in ("torchrun", "accelerate", "deepspeed") or (name in _REMOTE and name != "ray"):
            found.append(name)
    return tuple(found)
