"""Real bash as the oracle of the script reader.

    .venv/bin/python -m tests.recipe.oracle FOLDER|SCRIPT … [--verbose]

Each script runs under bash in namespaces of its own: no network, no processes of the machine, a
root folder that holds bash, a few programs that only work on text, and stubs that record their
arguments and answer nothing; no privileges, and limits on time, memory and file size. What the
stubs recorded is compared with what the reader says, argument by argument. Scripts of others are
run nowhere else.

An argument is *equal*, *unknown* (the reader names what decides it, and bash's text fits the parts
that it knows) or *wrong*. An unknown argument counts as *known to bash* unless every unknown part
of it is a variable of the caller, a folder, or the output of a program.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from reprise.recipe.bash.unknown import MARKS, Unknown
from reprise.recipe.script.reading import Reading, read_text

STUBS = (
    "python3", "python", "python3.10", "python3.11", "ray", "nvidia-smi", "npu-smi", "rocm-smi",
    "srun", "torchrun", "pip", "pip3", "docker", "ssh", "scontrol", "sbatch", "accelerate",
    "deepspeed", "huggingface-cli", "hf", "git", "curl", "wget", "nsys", "uv", "conda", "mpirun",
    "kubectl", "sudo", "ulimit_", "timeout", "nohup", "env", "numactl", "tmux",
)  # fmt: skip
TEXT_PROGRAMS = ("basename", "dirname", "seq", "expr", "tr", "cut", "wc", "cat", "realpath",
                 "readlink", "head", "tail", "tee")  # fmt: skip
QUIET = ("sleep", "mkdir", "touch", "rm", "chmod", "cp", "ln", "mv")
SECONDS = 10
_STUB = """#!/bin/bash
printf '%s\\0' "$#" "${0##*/}" "$@" >> /record/calls
exit 0
"""
_ENVIRONMENT = re.compile(r"\$\w+|\$\{.*\}|`.*`|the files? .*|the folder .*", re.S)


def available() -> bool:
    """Whether this machine lets the tests make namespaces."""
    if shutil.which("unshare") is None or shutil.which("bash") is None:
        return False
    command = [
        "unshare",
        "--user",
        "--map-user=1000",
        "--net",
        "--mount",
        "--pid",
        "--fork",
        "true",
    ]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


class Sandbox:
    """A root folder for bash; scripts are copied into its /w."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in ("bin", "stubs", "record", "w", "home/user", "tmp", "dev", "etc"):
            (root / name).mkdir(parents=True, exist_ok=True)
        self._install("bash", "bin")
        for name in TEXT_PROGRAMS:
            self._install(name, "stubs")
        shutil.copy2(root / "bin/bash", root / "stubs/bash")
        shutil.copy2(root / "bin/bash", root / "stubs/sh")
        for name in (*STUBS, *QUIET):
            stub = root / "stubs" / name
            stub.write_text(_STUB if name in STUBS else "#!/bin/bash\nexit 0\n")
            stub.chmod(0o755)
        (root / "dev/null").touch()

    def _install(self, name: str, folder: str) -> None:
        found = shutil.which(name)
        if found is None:
            return
        shutil.copy2(Path(found).resolve(), self.root / folder / name)
        listing = subprocess.run(["ldd", found], capture_output=True, text=True, check=False).stdout
        for library in re.findall(r"(/\S+) \(0x", listing):
            target = self.root / library.lstrip("/")
            if not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(Path(library).resolve(), target)

    def run(self, place: str) -> list[list[str]]:
        """The commands that the script at /w/<place> starts, each as program and arguments."""
        record = self.root / "record" / "calls"
        record.unlink(missing_ok=True)
        command = [
            str(shutil.which("unshare")), "--user", "--map-user=1000", "--map-group=1000",
            "--net", "--mount", "--pid",
            "--ipc", "--uts", "--fork", "--kill-child", f"--root={self.root}", "--wd=/w",
            "/bin/bash", f"/w/{place}",
        ]  # fmt: skip
        environment = {"PATH": "/stubs", "HOME": "/home/user"}
        # A script that waits for a cluster is compared as far as it came.
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
                timeout=SECONDS,
                preexec_fn=_limits,
            )
        data = record.read_bytes().decode(errors="replace") if record.is_file() else ""
        return list(_calls(data.split("\0")))


def _limits() -> None:
    for kind, most in (
        (resource.RLIMIT_CPU, SECONDS),
        (resource.RLIMIT_FSIZE, 4 << 20),
        (resource.RLIMIT_AS, 1 << 30),
        (resource.RLIMIT_NPROC, 200),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (most, most))


def _calls(parts: Sequence[str]) -> Iterator[list[str]]:
    at = 0
    while at + 1 < len(parts) and parts[at].isdigit():
        count = int(parts[at])
        yield list(parts[at + 1 : at + 2 + count])
        at += 2 + count


@dataclass(slots=True)
class Agreement:
    """What one script gave: counts of arguments, and each difference in words."""

    script: str
    equal: int = 0
    unknown: int = 0
    known_to_bash: int = 0
    wrong: int = 0
    commands: int = 0
    differences: list[str] = field(default_factory=list)

    def add(self, other: Agreement) -> None:
        self.equal += other.equal
        self.unknown += other.unknown
        self.known_to_bash += other.known_to_bash
        self.wrong += other.wrong
        self.commands += other.commands

    @property
    def arguments(self) -> int:
        return self.equal + self.unknown + self.wrong


def compare(name: str, calls: list[list[str]], reading: Reading, home: str) -> Agreement:
    """bash's calls against the reader's; `home` is the folder that /w is outside."""
    result = Agreement(name)
    runs = [
        ([word.text.replace(home, "/w") for word in run.words],
         [word.loose == "words" for word in run.words], run.branch is not None)
        for run in reading.runs
        if not run.via and run.words[0].text.rpartition("/")[2] in STUBS
    ]  # fmt: skip
    at = 0
    for call in calls:
        result.commands += 1
        chosen = None
        for place in range(at, len(runs)):
            argv, wide, optional = runs[place]
            if argv[0].rpartition("/")[2] == call[0] and _fits(
                argv[1:], wide[1:], call[1:], reading
            ):
                chosen = place
                break
            if not optional:
                chosen = place if argv[0].rpartition("/")[2] == call[0] else None
                break
        if chosen is None:
            result.wrong += len(call)
            result.differences.append(f"bash starts {call[:6]}, the reader does not")
            continue
        at = chosen + 1 if not reading.loops else at
        argv, wide, _ = runs[chosen]
        _arguments(argv[1:], wide[1:], call[1:], reading, result)
    if not calls and any(not optional for _, _, optional in runs):
        result.differences.append(f"the reader starts {runs[0][0][:6]}, bash does not")
    return result


def _expression(text: str) -> str:
    return ".*".join(re.escape(part) for part in MARKS.split(text))


def _fits(argv: list[str], wide: list[bool], call: list[str], reading: Reading) -> bool:
    parts = [
        "(?:[^\0]*\0)*" if loose or MARKS.fullmatch(text) else _expression(text) + "\0"
        for text, loose in zip(argv, wide, strict=True)
    ]
    return re.fullmatch("".join(parts), "".join(word + "\0" for word in call), re.S) is not None


def _arguments(
    argv: list[str], wide: list[bool], call: list[str], reading: Reading, result: Agreement
) -> None:
    """Count the arguments of one command; words of an unknown number take what is left."""
    if not _fits(argv, wide, call, reading):
        theirs = set(call)
        for word in argv:
            if word not in theirs:
                result.differences.append(f"the reader says {reading.shown(word)!r}")
        missing = [word for word in call if word not in argv]
        result.differences += [f"bash says {word!r}" for word in missing]
        result.wrong += max(len(missing), 1)
        result.equal += len(call) - len(missing)
        return
    for text in argv:
        if not MARKS.search(text):
            result.equal += 1
            continue
        result.unknown += 1
        names = list(reading.unknowns.of(text))
        if not all(_of_environment(unknown) for unknown in names):
            result.known_to_bash += 1
            shown = ", ".join(f"{unknown.name} (line {unknown.row})" for unknown in names)
            result.differences.append(
                f"unknown though bash knows it: {reading.shown(text)!r}: {shown}"
            )


def _of_environment(unknown: Unknown) -> bool:
    if unknown.absolute or unknown.unset:
        return True
    cause = unknown.cause.rpartition("which depends on ")[2]
    return _ENVIRONMENT.fullmatch(cause or unknown.name) is not None


def agreement(script: Path, place: str, sandbox: Sandbox, home: Path) -> Agreement:
    """Compare one script that lies below `home` and was copied into the sandbox."""
    calls = sandbox.run(place)
    reading = read_text(script.read_text(encoding="utf-8", errors="replace"), script)
    return compare(str(script), calls, reading, str(home))


def scripts_of(arguments: Sequence[Path]) -> Iterator[tuple[Path, Path]]:
    """(script, its home) for files and folders."""
    for argument in map(Path.resolve, arguments):
        if argument.is_file():
            yield argument, argument.parent
        else:
            for path in sorted(argument.rglob("*.sh")):
                yield path, argument


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    total, count, launched = Agreement("total"), 0, 0
    with tempfile.TemporaryDirectory() as folder:
        sandbox = Sandbox(Path(folder))
        pairs = list(scripts_of(options.paths))
        for script, home in pairs:
            target = sandbox.root / "w" / script.relative_to(home)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(script, target)
        for script, home in pairs:
            found = agreement(script, str(script.relative_to(home)), sandbox, home)
            total.add(found)
            count += 1
            launched += found.commands > 0
            if found.differences and (options.verbose or found.wrong):
                sys.stdout.write(f"{script}\n")
                for text in found.differences:
                    sys.stdout.write(f"    {text[:300]}\n")
    share = 100 / max(total.arguments, 1)
    sys.stdout.write(
        f"{count} scripts, {launched} start a program of the stubs: {total.commands} commands, "
        f"{total.arguments} arguments: {total.equal} equal, {total.unknown} unknown "
        f"({total.unknown * share:.2f} %), of them {total.known_to_bash} known to bash "
        f"({total.known_to_bash * share:.2f} %), {total.wrong} wrong\n"
    )


if __name__ == "__main__":
    main()
