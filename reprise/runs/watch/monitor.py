"""Looks at a run again and again: its files, its job, its cluster."""

from __future__ import annotations

import contextlib
import math
import statistics
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from reprise.core.errors import CannotTell, OperatorError
from reprise.core.findings import Finding, Severity
from reprise.metrics import is_validation
from reprise.models.checkpoints.find import TRACKER, SavedStep, read_step, read_steps, step_folders
from reprise.models.checkpoints.layouts import folder_bytes
from reprise.runs.ray.contact import GONE, Contact, contact_of, last_attempt
from reprise.runs.ray.nodes import list_nodes
from reprise.runs.state.folder import RunFolder
from reprise.runs.state.pulse import supervised
from reprise.runs.state.state import LIVE, Attempt, RunState
from reprise.runs.supervise.resume import checkpoints_of
from reprise.runs.watch import watchers
from reprise.runs.watch.alarms import Alarms, AlarmSettings
from reprise.runs.watch.feed import Feed, Record
from reprise.runs.watch.pending import Waits, pending
from reprise.runs.watch.seen import NUMBERS, Seen, age

__all__ = ["Monitor"]

_STEP_TIMES = ("timing_s/step", "perf/time_per_step")
_SLOW_SECONDS = 30.0
_LOG_SECONDS = 10.0
_RENEW_LOOKS = 15


class Monitor:
    """Watches one run from its first attempt on. `contact` None: only its folder."""

    def __init__(
        self,
        folder: RunFolder,
        contact: Contact | None = None,
        settings: AlarmSettings | None = None,
    ) -> None:
        self.folder = folder
        self.contact = contact
        self.unanswered: CannotTell | None = None
        self.unread: list[CannotTell] = []
        self._unlisted: list[CannotTell] = []
        self._feed = Feed(folder)
        self._alarms = Alarms(settings, self._saved)
        self._seen = Seen(folder.name, "", "")
        self._seconds: list[float] = []
        # Attempt and reading time of the last record: another attempt's does not count for silence.
        self._last_record = (0, 0.0)
        self._stamp = (0, 0.0)
        self._stamped = 0.0
        self._stepped = 0
        self._valued = 0
        self._log_at = float("-inf")
        self._looks = 0
        self._slow_at = float("-inf")
        self._around: list[Finding] = []
        self._full: list[str] = []
        # Alarms of the numbers that came since the last look, with the attempt that they are of.
        self._new: list[tuple[int, Finding]] = []
        # By rule, where and severity: the attempt in which it was last shown.
        self._told: dict[tuple[str, str, Severity], float] = {}
        self._saved_at = 0.0
        self._saved_size = 0
        self._saved_key: tuple[object, ...] = ()
        self._began = time.time()

    def look(self, now: float | None = None) -> Seen:
        """Look once; `now` is the time in seconds since the epoch. Raises as RunFolder.read."""
        now = time.time() if now is None else now
        state = self.folder.read()
        attempt = last_attempt(self.folder, state)
        seen = self._seen
        seen.model, seen.state = state.model, state.status
        seen.total = state.steps or 0
        seen.attempt = attempt.number if attempt else 0
        seen.resumed_from = attempt.resumed_from if attempt else None
        seen.job = None
        seen.fresh = []
        self.unanswered = None
        self._renew_contact(state, attempt)
        live = seen.state in LIVE and self.contact is not None
        if live and attempt:
            self._ask_job(seen, attempt.job)
        for record in self._records(state, attempt, live, now):
            self._take(seen, record)
        if seen.state in LIVE and self._stepped != seen.attempt:
            # The steps after the checkpoint will be trained again.
            seen.step = min(seen.step, seen.resumed_from or 0)
        if seen.step != self._valued:
            seen.values = {}  # another step's
        self._times(seen, now, attempt)
        if now - self._slow_at >= _SLOW_SECONDS:
            self._slow_at = now
            self._slow(seen, state, live)
        self.unread = [*self._unlisted, *(_unreadable(*item) for item in self._feed.unread())]
        if self._saved_at:
            seen.checkpoint = (
                (seen.checkpoint[0], age(self._saved_at, now)) if seen.checkpoint else None
            )
        self._tell(seen)
        return seen

    def told_before(self, alarms: Iterable[Mapping[str, Any]]) -> None:
        """Count `alarms` (rule, where, severity, attempt) as shown by an earlier watch."""
        for alarm in alarms:
            key = (str(alarm["rule"]), str(alarm["where"]), Severity(alarm["severity"]))
            self._told[key] = max(self._told.get(key, 0), alarm.get("attempt") or math.inf)

    def _renew_contact(self, state: RunState, attempt: Attempt | None) -> None:
        """A later attempt may have a Ray of its own; one that did not answer may do so now."""
        self._looks += 1
        if self._looks == 1 or attempt is None or not state.live:
            return
        if self.contact is not None and state.address in (None, self.contact.address):
            return
        if self.contact is None and self._looks % _RENEW_LOOKS:
            return
        self.contact = None
        with contextlib.suppress(OperatorError):
            self.contact = contact_of(self.folder)

    def _ask_job(self, seen: Seen, job: str) -> None:
        assert self.contact is not None
        try:
            seen.job = self.contact.jobs.find(job) or GONE
        except CannotTell as error:
            self.unanswered = error

    def _records(
        self, state: RunState, attempt: Attempt | None, live: bool, now: float
    ) -> list[Record]:
        number = attempt.number if attempt else 0
        unseen = not state.visible and not supervised(self.folder, state)
        asked = live and unseen and self.unanswered is None
        if attempt is None or self.contact is None or not asked:
            return self._feed.new(number)
        # No command copies the log, and this machine has no access to the storage of the job.
        records = self._feed.new(number - 1)
        if now - self._log_at < _LOG_SECONDS:
            return records
        self._log_at = now
        try:
            text = self.contact.jobs.log(attempt.job)
        except CannotTell as error:
            self.unanswered = error
            return records
        return records + self._feed.from_log(number, text)

    def _take(self, seen: Seen, record: Record) -> None:
        values = record.values
        core = next((name for name in values if name.startswith("val-core/")), None)
        if core is not None:
            seen.validation = (core, values[core], record.step)
        found = self._alarms.feed(record.step, values)
        self._new += [(record.attempt, finding) for finding in found]
        self._last_record = (record.attempt, time.time())
        if all(is_validation(name) for name in values):
            return
        seen.step = record.step
        self._stepped, self._valued = record.attempt, record.step
        seen.values = {label: values[name] for label, name in NUMBERS.items() if name in values}
        seconds = next((values[name] for name in _STEP_TIMES if name in values), None)
        if seconds is not None:
            self._seconds = [*self._seconds[-9:], seconds]

    def _times(self, seen: Seen, now: float, attempt: Attempt | None) -> None:
        # Single steps stand out when a validation or a checkpoint is due.
        seen.step_seconds = statistics.median(self._seconds[-5:]) if self._seconds else None
        seen.since_step = None
        if seen.state not in LIVE:
            return
        started = (attempt.started if attempt else None) or self._began
        try:
            written = self.folder.metrics_file(seen.attempt).stat().st_mtime
        except OSError:
            number, read = self._last_record
            written = read if number == seen.attempt else started
        else:
            written = self._by_own_clock(seen.attempt, written, now)
        seen.since_step = age(max(written, started), now)

    def _by_own_clock(self, attempt: int, written: float, now: float) -> float:
        """When the metrics were `written`: by this machine's clock if that was seen to happen.

        The storage's may be another; of what was there at the first look it is all there is.
        """
        if (attempt, written) != self._stamp:
            self._stamped = now if self._looks > 1 else written
            self._stamp = (attempt, written)
        return self._stamped

    def _slow(self, seen: Seen, state: RunState, live: bool) -> None:
        """What is asked for less often: the nodes, the checkpoints, the disks, what is pending."""
        self._full += self._feed.full_disk_lines(seen.attempt) if seen.attempt else []
        checkpoints = checkpoints_of(self.folder, state)
        self._unlisted = []
        try:
            self._look_at_checkpoints(seen, checkpoints)
        except OperatorError as error:
            self._unlisted = [_unreadable(checkpoints, error.message)]
        if seen.state not in LIVE:
            self._around = []
            return
        self._around = list(watchers.disks((self.folder.path, checkpoints), self._saved_size))
        if self._full:
            log = self.folder.log_file(seen.attempt)
            self._around.append(watchers.disk_lines(log, self._full))
        waits = None
        if live and self.unanswered is None:
            waits = self._look_at_cluster(seen)
        self._judge_silence(seen, waits)

    def _look_at_checkpoints(self, seen: Seen, folder: Path) -> None:
        # Reading hundreds of files on shared storage each time would be felt; verl writes the
        # tracker when a step is whole.
        key = _folder_key(folder)
        if key == self._saved_key:
            return
        self._saved_key = key
        found = _newest_whole(folder)
        if found is None:
            return
        try:
            self._saved_at = (found.path / "data.pt").stat().st_mtime
        except OSError:
            return
        if seen.checkpoint is None or seen.checkpoint[0] != found.step:
            self._saved_size = folder_bytes(found.path)
        seen.checkpoint = (found.step, 0.0)

    def _look_at_cluster(self, seen: Seen) -> Waits | None:
        """Its nodes and, where it may matter, what it waits for; None if that was not asked."""
        assert self.contact is not None
        address, token = self.contact.address, self.contact.token
        try:
            nodes = list_nodes(address, token)
            alive = [node for node in nodes if node.alive]
            seen.nodes = (len(alive), len(nodes), sum(node.gpus for node in alive))
            since = seen.since_step or 0.0
            if since > watchers.PLACED_SECONDS or watchers.silent(since, self._usual(seen)):
                return pending(address, token, self.folder.job(seen.attempt))
        except CannotTell as error:
            self.unanswered = error
        return None

    def _usual(self, seen: Seen) -> float | None:
        """Seconds a step of the running attempt; None before its first."""
        return seen.step_seconds if self._stepped == seen.attempt else None

    def _judge_silence(self, seen: Seen, waits: Waits | None) -> None:
        since, usual = seen.since_step or 0.0, self._usual(seen)
        early = usual is None and since > watchers.PLACED_SECONDS
        if watchers.silent(since, usual) or (early and waits is not None and waits.stuck):
            lines = None if waits is None else waits.lines
            self._around.append(watchers.silence(seen.run, seen.step, since, usual, lines))

    def _saved(self) -> list[int]:
        folder = checkpoints_of(self.folder, self.folder.read())
        with contextlib.suppress(OperatorError, OSError):
            return [step.step for step in read_steps(folder) if step.complete]
        return []

    def _tell(self, seen: Seen) -> None:
        seen.standing = [*self._alarms.standing(), *self._around]
        # An alarm whose numbers change is the same alarm; one of a step that was trained again in a
        # later attempt is not.
        found = [*self._new, *((0, finding) for finding in self._around)]
        newest = {(item.rule, item.where, item.severity): (number, item) for number, item in found}
        self._new = []
        for key, (number, finding) in newest.items():
            if number > self._told.get(key, -1) and finding in seen.standing:
                self._told[key] = number
                seen.fresh.append(finding)


def _unreadable(path: Path, why: str) -> CannotTell:
    return CannotTell("run-unread.skipped", str(path), reason=why)


def _folder_key(folder: Path) -> tuple[object, ...]:
    """Changes when a step is begun, saved or removed."""
    try:
        written = (folder / TRACKER).stat().st_mtime_ns
    except OSError:
        written = 0
    return (written, *(path.name for path in (step_folders(folder) if folder.is_dir() else [])))


def _newest_whole(folder: Path) -> SavedStep | None:
    """The newest complete step, whatever its number of ranks; None without one."""
    for path in step_folders(folder) if folder.is_dir() else []:
        try:
            step = read_step(path)
        except PermissionError as error:
            raise OperatorError("run-unread.denied", str(path), reason=error.strerror) from None
        except OSError:
            continue
        if step.complete:
            return step
    return None
