#!/usr/bin/env python3
"""Run every test, and write what came of it into docs/testing.md.

    scripts/test_full.py [--last-failed] [--anew] [--workers N] [--rooms "ROOM ..."]

One command from the first test to the table. What was interrupted or failed goes on where it was:
tests that passed on these very files (every file that git tracks or would track) are not run
again. ROOM is a folder of tests/ ("files" for those that lie in tests/ itself); with rooms named,
with --last-failed, and when a test fails or the run is interrupted, no table is written.

Exit code 0: every test passed. 1: some failed. 2: the run did not come to its end.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import re
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "testing.md"
STATE = ROOT / ".cache" / "test-full"
BEGIN, END = "<!-- test-full: begin -->", "<!-- test-full: end -->"
FILES = "files"
# A hang of one of the long tests shows later than one of CI's.
LIMITS = ("-o", "timeout=1800", "-o", "faulthandler_timeout=2400")
OUTCOMES = PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
PROGRESS_SECONDS = 30.0
# What pytest calls a report, its letter and its word.
Status = tuple[str, str, str | tuple[str, Mapping[str, bool]]]


def git(*words: str) -> str:
    """What git prints; ends the program with its own words when it fails."""
    command = ["git", "-C", str(ROOT), *words]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    if done.returncode:
        sys.exit(f"error: git {words[0]}: {done.stderr.strip()}")
    return done.stdout


def fingerprint() -> str:
    """SHA-256 of the contents of all files, the page that is written here left out, and Python's
    version: what passed on the same one need not be repeated.
    """
    listed = git("ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")
    made = hashlib.sha256(platform.python_version().encode())
    for name in sorted(filter(None, listed)):
        path = ROOT / name
        if path == PAGE or not path.is_file():
            continue
        made.update(name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return made.hexdigest()


def room_of(nodeid: str) -> str:
    """The folder of tests/ that a test is in."""
    parts = nodeid.partition("::")[0].split("/")
    return parts[1] if len(parts) > 2 else FILES


@dataclass
class Result:
    """What came of one test; `reason` is a skip's."""

    outcome: str
    seconds: float
    reason: str = ""
    failed_before: bool = False


@dataclass
class State:
    """Results of all sittings on one state of the files, kept after every test."""

    journal: Path
    sittings: list[dict[str, Any]] = field(default_factory=list)
    results: dict[str, Result] = field(default_factory=dict)

    @classmethod
    def open(cls, folder: Path, files: str, anew: bool) -> State:
        """What is known of these files; what is known of others is put away."""
        state = cls(folder / "journal.jsonl")
        folder.mkdir(parents=True, exist_ok=True)
        lines = list(_lines(state.journal))
        if anew or not lines or lines[0].get("files") != files:
            if lines:
                state.journal.replace(folder / "journal.before.jsonl")
            state._write({"files": files})
        else:
            for line in lines[1:]:
                state._take(line)
        return state

    def begin(self, workers: str) -> None:
        """Take down that a sitting begins."""
        cores = len(os.sched_getaffinity(0))
        self._add({"began": time.time(), "workers": workers, "cores": cores})

    def keep(self, test: str, result: Result) -> None:
        """Take down what came of one test."""
        self._add({"test": test, "at": time.time(), "result": asdict(result)})

    def having(self, outcome: str) -> set[str]:
        """The tests with that outcome."""
        return {test for test, result in self.results.items() if result.outcome == outcome}

    def seconds(self) -> float:
        """Wall time of all sittings; one that was killed lasted to the end of its last test."""
        ends = [float(sitting.get("at", sitting["began"])) for sitting in self.sittings]
        return sum(ends) - sum(float(sitting["began"]) for sitting in self.sittings)

    def _add(self, line: dict[str, Any]) -> None:
        self._take(line)
        self._write(line)

    def _write(self, line: dict[str, Any]) -> None:
        # A line that a kill cut is passed over when the journal is read, and spoils no other one.
        with self.journal.open("a") as file:
            file.write("\n" + json.dumps(line))

    def _take(self, line: dict[str, Any]) -> None:
        if "began" in line:
            self.sittings.append(line)
            return
        self.sittings[-1]["at"] = line["at"]
        result, before = Result(**line["result"]), self.results.get(line["test"])
        if before is not None:
            result.failed_before = before.failed_before or before.outcome == FAILED
        self.results[line["test"]] = result


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    if not path.exists():
        return
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            continue


class Recorder:
    """A plug-in of the process that hands out the tests: keeps each result, shows how far it is."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.parts: dict[str, list[pytest.TestReport]] = defaultdict(list)
        self.began = self.said = time.monotonic()
        self.wanted: set[str] = set()
        self.counts: dict[str, int] = defaultdict(int)

    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        """Every worker collects the same tests: those that are left."""
        if not self.wanted:
            self.wanted = set(ids)
            self.say(f"{len(ids)} tests to run")

    @pytest.hookimpl(wrapper=True)
    def pytest_report_teststatus(self) -> Generator[None, Status, Status]:
        """No dots between the lines of progress."""
        category, _, _ = yield
        return category, "", ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test whose worker died has a single report, of no phase."""
        parts = self.parts[report.nodeid]
        parts.append(report)
        if report.when in ("setup", "call"):
            return
        del self.parts[report.nodeid]
        result = result_of(parts)
        self.state.keep(report.nodeid, result)
        self.counts[result.outcome] += 1
        if result.outcome == FAILED:
            self.say(f"FAILED {report.nodeid}")
        elif time.monotonic() - self.said > PROGRESS_SECONDS:
            counted = ", ".join(f"{self.counts[word]} {word}" for word in OUTCOMES)
            self.say(f"{counted}, of {len(self.wanted)}; last {report.nodeid}")

    def say(self, text: str) -> None:
        """One line with the time since the beginning."""
        self.said = time.monotonic()
        print(f"{self.said - self.began:6.0f} s  {text}", flush=True)


def result_of(parts: Sequence[pytest.TestReport]) -> Result:
    """One result of the reports on a test's set-up, call and tidying up."""
    seconds = round(sum(part.duration for part in parts), 2)
    if any(part.failed for part in parts):
        return Result(FAILED, seconds)
    for part in parts:
        if part.skipped:
            told = part.longrepr
            reason = str(told[2] if isinstance(told, tuple) else told)
            return Result(SKIPPED, seconds, reason.removeprefix("Skipped: "))
    return Result(PASSED, seconds)


def processor() -> str:
    """The processor's model as the kernel names it, or "unknown processor"."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return "unknown processor"
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found.group(1).strip() if found else "unknown processor"


def table(state: State) -> str:
    """The page's part: by room, what came of its tests, then what must be known with it."""
    rooms: dict[str, list[Result]] = defaultdict(list)
    for test, result in state.results.items():
        rooms[room_of(test)].append(result)
    rows = ["| room | tests | passed | failed | skipped | seconds |", "|---|---|---|---|---|---|"]
    rows += [_row(f"`tests/{room}`", rooms[room]) for room in sorted(rooms)]
    rows.append(_row("all", list(state.results.values())))
    commit = git("rev-parse", "--short=10", "HEAD").strip()
    # The page itself is written here.
    others = [n for n in git("status", "--porcelain").splitlines() if not n.endswith(PAGE.name)]
    first = state.sittings[0]
    notes = [
        f"`make test-full` of {time.strftime('%Y-%m-%d', time.gmtime(first['began']))}, commit "
        f"{commit}{' with uncommitted changes' if others else ''}: {state.seconds() / 60:.0f} "
        f"minutes, {first['cores']} cores of {processor()}, Python {platform.python_version()}. "
        "Tests run side by side; a room's seconds are those of its tests added up."
    ]
    if len(state.sittings) > 1:
        notes.append(f"The run was interrupted and resumed: {len(state.sittings)} sittings.")
    again = sorted(test for test, result in state.results.items() if result.failed_before)
    if again:
        named = ", ".join(f"`{test}`" for test in again)
        notes.append(f"Failed at first, passed when repeated: {named}.")
    notes += skips(state)
    return "\n\n".join(["\n".join(rows), *notes])


def _row(name: str, results: Sequence[Result]) -> str:
    counts = [sum(result.outcome == word for result in results) for word in OUTCOMES]
    seconds = sum(result.seconds for result in results)
    return f"| {name} | {len(results)} | {' | '.join(map(str, counts))} | {seconds:.0f} |"


def skips(state: State) -> list[str]:
    """One line for each reason that tests were skipped for."""
    reasons: dict[str, list[str]] = defaultdict(list)
    for test in sorted(state.having(SKIPPED)):
        reasons[state.results[test].reason].append(test)
    return [
        f"Skipped, {len(tests)}: {reason} (`{tests[0]}`{', ...' if len(tests) > 1 else ''})."
        for reason, tests in sorted(reasons.items())
    ]


def put_into(page: Path, text: str) -> None:
    """Replace what stands between the page's two markers."""
    whole = page.read_text(encoding="utf-8")
    before, begin, rest = whole.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        sys.exit(f"error: {page}: expected the lines {BEGIN} and {END}")
    part = page.with_suffix(".part")
    part.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")
    part.replace(page)


def words_of(args: argparse.Namespace, state: State) -> list[str]:
    """The arguments of pytest."""
    words = ["-m", "not regression", "-n", args.workers, *LIMITS, "--color=no"]
    words.append("--hypothesis-profile=searching")
    if args.last_failed:
        return [*words, *sorted(state.having(FAILED))]
    done = state.journal.with_name("passed.txt")
    done.write_text("".join(f"{test}\n" for test in sorted(state.having(PASSED))))
    places = [f"tests/{room}" for room in args.rooms if room != FILES]
    if FILES in args.rooms:
        places += sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("tests/test_*.py"))
    return [*words, "--but", str(done), *(places or ["tests"])]


def options() -> argparse.Namespace:
    """The command line; an unknown room ends the program."""
    text = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        description=text[0], epilog=text[2], formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rooms", default=[], type=str.split, help="only these folders of tests/")
    parser.add_argument("--last-failed", action="store_true", help="only those that failed")
    parser.add_argument("--anew", action="store_true", help="repeat what has passed already")
    parser.add_argument("--workers", default="auto", help="tests side by side")
    args = parser.parse_args()
    known = {path.name for path in ROOT.glob("tests/*") if any(path.glob("test_*.py"))} | {FILES}
    unknown = [room for room in args.rooms if room not in known]
    if unknown:
        parser.error(f"unknown room {', '.join(unknown)}; known: {', '.join(sorted(known))}")
    return args


def main() -> int:
    """Run what is left, keep what came of it, and write the table when nothing is left."""
    os.chdir(ROOT)
    # As `python -m pytest` would: tests import from tests/.
    sys.path.insert(0, str(ROOT))
    args = options()
    files = fingerprint()
    state = State.open(STATE, files, args.anew)
    if args.last_failed and not state.having(FAILED):
        print("no test has failed on these files")
        return 0
    if state.results:
        passed, failed = len(state.having(PASSED)), len(state.having(FAILED))
        print(f"resumed: on these files {passed} tests have passed and {failed} failed", flush=True)
    state.begin(args.workers)
    code = pytest.main(words_of(args, state), plugins=[Recorder(state)])
    if fingerprint() != files:
        print("not finished: files were changed meanwhile; start again with: make test-full")
        return 2
    return closing(state, code, whole=not (args.rooms or args.last_failed))


def closing(state: State, code: int, whole: bool) -> int:
    """Say what came of the run, write the table when it is whole; the exit code."""
    print(f"\n{table(state)}\n")
    if code == pytest.ExitCode.TESTS_FAILED:
        print("failed; no table was written. Repeat these tests: make test-full LAST_FAILED=1")
        return 1
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        print("not finished; no table was written. Resume: make test-full")
        return 2
    if not whole:
        print("a part of the tests; no table was written. The others: make test-full")
        return 0
    put_into(PAGE, table(state))
    print(f"the table is in {PAGE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
