"""The steps of a run as they are written: each attempt's metrics file, or the job's log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from reprise.metrics import parse_console_line, parse_json_line
from reprise.runs.state.folder import RunFolder

__all__ = ["Feed", "Record"]

_FULL = b"% full, available space"


@dataclass(frozen=True, slots=True)
class Record:
    """One line that verl logged: the metrics of a step, or of a validation, of an attempt."""

    attempt: int
    step: int
    values: Mapping[str, float]


@dataclass(slots=True)
class _File:
    """A file that grows, read from where the last reading ended."""

    path: Path
    position: int = 0
    error: str = ""

    def lines(self) -> Iterator[bytes]:
        """New whole lines, without their ends; the last one waits until its end is written."""
        self.error = ""
        try:
            file = self.path.open("rb")
        except FileNotFoundError:
            return
        except OSError as error:
            self.error = error.strerror or str(error)
            return
        with file:
            file.seek(self.position)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self.position += len(line)
                yield line[:-1]


@dataclass(slots=True)
class Feed:
    """What is new since the last look. Files are read from the run folder; nothing is kept."""

    folder: RunFolder
    _metrics: dict[int, _File] = field(default_factory=dict)
    _logs: dict[int, _File] = field(default_factory=dict)
    _logged: set[tuple[int, int]] = field(default_factory=set)

    def new(self, attempts: int) -> list[Record]:
        """New records of the attempts 1..`attempts`, in their order."""
        found = []
        for number in range(1, attempts + 1):
            file = self._metrics.setdefault(number, _File(self.folder.metrics_file(number)))
            parsed = (parse_json_line(line) for line in file.lines())
            found += [Record(number, *item) for item in parsed if item is not None]
        return found

    def unread(self) -> list[tuple[Path, str]]:
        """The files that are there and could not be read at the last look, with the reason."""
        files = (*self._metrics.values(), *self._logs.values())
        return [(file.path, file.error) for file in files if file.error]

    def from_log(self, number: int, text: str) -> list[Record]:
        """New steps from the console lines in `text`, the whole log of an attempt.

        A last line without its end is still being written: its last number may lack digits.
        """
        found = []
        for line in text[: text.rfind("\n") + 1].splitlines():
            parsed = parse_console_line(line)
            if parsed is None or parsed[1] is None or (number, parsed[0]) in self._logged:
                continue
            self._logged.add((number, parsed[0]))
            found.append(Record(number, parsed[0], parsed[1]))
        return found

    def full_disk_lines(self, number: int) -> list[str]:
        """New lines in which Ray says that a disk of a node is nearly full.

        Ray: src/ray/util/filesystem_monitor; at 95 % (local_fs_capacity_threshold), every 10 s.
        """
        file = self._logs.setdefault(number, _File(self.folder.log_file(number)))
        return [line.decode(errors="replace") for line in file.lines() if _FULL in line]
