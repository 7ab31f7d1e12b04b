"""From the events of all files to one answer: the first root cause, or that there is none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from reprise.triage.model import Diagnosis, Event, Group, Mark, Role, State, Step
from reprise.triage.patterns import Library
from reprise.triage.read.clock import most_common_year, with_year
from reprise.triage.read.events import FileScan

__all__ = ["CLOCK_SECONDS", "Question", "judge"]

CLOCK_SECONDS = 2.0
"""Clocks of two hosts whose offset is unknown are trusted to this many seconds."""

_DRIVERS = ("TaskRunner", "main_task")
_BACK_AFTER = 5.0
# A process whose exception is among the last lines of its log ended by it.
_LAST_LINES = 30


@dataclass(frozen=True, slots=True)
class Question:
    """What is known beside the logs.

    `outcome` is succeeded, failed or empty (unknown). `offsets` are seconds that a host's clock is
    ahead; `hosts` translates the names of folders to addresses.
    """

    outcome: str = ""
    offsets: Mapping[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class _Whole:
    """Equal events of all files, and what became of them."""

    parts: list[Group]
    chosen: Event
    recovered: bool = False
    torn_down: bool = False

    @property
    def first(self) -> Event:
        return self.parts[0].first

    def merged(self) -> Group:
        """One group of all parts that begins with the chosen event."""
        group = Group(self.chosen, self.chosen, self.parts[-1].last)
        for part in self.parts:
            group.count += part.count
            group.ranks |= part.ranks
            group.hosts |= part.hosts
        if (host := self.chosen.ip or self.chosen.host) and len(self.parts) > 1:
            group.hosts.add(host)
        return group


def judge(scans: Sequence[FileScan], library: Library, question: Question) -> Diagnosis:
    """The diagnosis of the files read together."""
    return _Judge(scans, library, question).answer()


class _Judge:
    def __init__(self, scans: Sequence[FileScan], library: Library, question: Question) -> None:
        self.scans = scans
        self.library = library
        self.question = question
        self.order = {scan.log.name: index for index, scan in enumerate(scans)}
        self.lines = {scan.log.name: scan.lines for scan in scans}
        self.final = {scan.log.name: _epochs(scan) for scan in scans}
        self._prepare()
        self.step = self._last_step()
        self.wholes = self._merge()
        self.seen = {whole.first.pattern for whole in self.wholes}

    # What was read, made comparable.

    def _prepare(self) -> None:
        """Years, offsets and hosts, which only all files together show."""
        events = [
            event for scan in self.scans for group in scan.groups.values() for event in _once(group)
        ]
        years = [event.stamp for event in events if event.stamp is not None and not event.yearless]
        years += [
            step.stamp
            for scan in self.scans
            for step in scan.steps
            if step.stamp is not None and not step.yearless
        ]
        self.year = most_common_year(years)
        for scan in self.scans:
            for group in scan.groups.values():
                for event in _once(group):
                    self._complete(event, scan)

    def _complete(self, event: Event, scan: FileScan) -> None:
        if not event.ip and event.pid:
            event.ip = scan.addresses.get(event.pid, "")
        event.host = event.ip or event.host or scan.log.host
        event.stamp = self._moment(event.stamp, event.yearless, event.host, scan.log.host)
        event.yearless = False

    def _moment(self, stamp: float | None, yearless: bool, *hosts: str) -> float | None:
        if stamp is None:
            return None
        moment = with_year(stamp, self.year) if yearless else stamp
        offset = next(
            (self.question.offsets[host] for host in hosts if host in self.question.offsets), 0.0
        )
        return moment - offset

    def _last_step(self) -> Step | None:
        steps = [scan.steps[-1] for scan in self.scans if scan.steps]
        return max(steps, key=lambda step: step.step) if steps else None

    def _merge(self) -> list[_Whole]:
        groups: dict[tuple[str, str], list[Group]] = {}
        for scan in self.scans:
            for key, group in scan.groups.items():
                groups.setdefault(key, []).append(group)
        wholes = []
        for parts in groups.values():
            parts.sort(key=lambda part: self._when(part.first))
            wholes.append(_Whole(parts, parts[0].first))
        for whole in wholes:
            self._decide_recovery(whole)
        return wholes

    def _when(self, event: Event) -> tuple[float, int, int]:
        """Time first; files without any clock come after those with one, in their order."""
        stamp = event.stamp if event.stamp is not None else float("inf")
        return (stamp, self.order[event.file], event.line)

    # Recovered, torn down.

    def _decide_recovery(self, whole: _Whole) -> None:
        """An event after which training went on did not end the job; a later equal one may have."""
        late = [part.late for part in whole.parts if not self._went_on(part.late)]
        if not late:
            whole.recovered = True
            return
        late.sort(key=self._when)
        whole.chosen = late[0]

    def _went_on(self, event: Event) -> bool:
        """Whether a training step was recorded after `event`."""
        if self.final[event.file] > 0:
            return event.epoch < self.final[event.file]
        step = self.step
        if step is None or step.stamp is None or event.stamp is None or not event.exact:
            return False
        moment = self._moment(step.stamp, step.yearless)
        return moment is not None and event.stamp < moment - _BACK_AFTER

    def _stops(self) -> list[Mark]:
        """Stops from outside after which no training step came."""
        return [
            mark
            for scan in self.scans
            for mark in scan.teardown
            if mark.epoch == self.final[mark.file]
        ]

    def _is_teardown(self, event: Event, stops: Sequence[Mark]) -> bool:
        for mark in stops:
            whole_job = _is_driver(mark.process)
            if mark.file == event.file:
                if event.line > mark.line and (whole_job or mark.process == event.process):
                    return True
            elif whole_job and mark.stamp is not None and event.stamp is not None:
                moment = self._moment(mark.stamp, mark.yearless)
                if moment is not None and event.stamp > moment + CLOCK_SECONDS:
                    return True
        return False

    # The answer.

    def answer(self) -> Diagnosis:
        stops = self._stops()
        for whole in self.wholes:
            whole.torn_down = self._is_teardown(whole.chosen, stops)
        success = self._success()
        alive = [whole for whole in self.wholes if not whole.recovered]
        cascade = [w for w in alive if w.chosen.role is Role.CASCADE]
        candidates = self._candidates(alive, cascade)
        made = Diagnosis(State.UNKNOWN, "", None, steps=self.step.step if self.step else None)
        made.success = success
        made.teardown = min(stops, key=lambda m: (self.order[m.file], m.line), default=None)
        made.recovered = [
            w.merged()
            for w in self._sorted(self.wholes)
            if w.recovered
            and w.chosen.role is Role.ROOT
            and w.chosen.tier < 3
            and not self._unmet(w)
        ]
        made.confirmations = [
            w.merged() for w in self._sorted(alive) if w.chosen.role is Role.CONFIRMATION
        ]
        succeeded = self.question.outcome == "succeeded" or (
            success is not None and self.question.outcome != "failed"
        )
        if succeeded:
            made.state = State.NO_FAILURE
            return made
        if candidates:
            self._name_root(made, candidates, alive)
        elif cascade or self.question.outcome == "failed":
            self._no_primary(made, cascade)
        return made

    def _success(self) -> Mark | None:
        """The mark of success after which the same file shows no failure."""
        for scan in self.scans:
            for mark in scan.success:
                if mark.epoch < self.final[scan.log.name]:
                    continue
                after = [
                    w
                    for w in self.wholes
                    for part in w.parts
                    if part.last.file == mark.file
                    and part.last.line > mark.line
                    and w.chosen.role is Role.CASCADE
                    and not w.torn_down
                    and w.chosen.category == "job_failed"
                ]
                if not after:
                    return mark
        return None

    def _candidates(self, alive: Sequence[_Whole], cascade: Sequence[_Whole]) -> list[_Whole]:
        """What may be the root, with the tier of each settled."""
        found = []
        for whole in alive:
            event = whole.chosen
            pattern = self.library.pattern(event.pattern) if event.pattern else None
            if event.role is Role.CONFIRMATION and pattern is not None and pattern.promote:
                pass
            elif event.role is not Role.ROOT or whole.torn_down:
                continue
            if self._unmet(whole):
                continue
            linked = self._linked(whole, cascade)
            if event.handled and not linked:
                continue
            self._settle_tier(whole, linked)
            found.append(whole)
        strong = [w for w in found if w.chosen.tier < 3]
        if strong:
            return self._without_consequences(strong, found)
        # A bare line counts only where something failed.
        return found if cascade or self.question.outcome == "failed" else []

    def _unmet(self, whole: _Whole) -> bool:
        """Whether a root counts only with another pattern, which no line matches."""
        pattern = self.library.pattern(whole.chosen.pattern)
        needs = set(pattern.needs) if pattern is not None else set()
        return bool(needs) and not self.seen & needs

    def _settle_tier(self, whole: _Whole, linked: bool) -> None:
        """How well an exception that no pattern names is supported as the end of the job."""
        event = whole.chosen
        if not event.exception or event.pattern:
            return
        if linked:
            event.tier = min(event.tier, 1)
        elif whole.first.epoch < event.epoch:
            # The same was caught before, and training went on.
            event.tier = max(event.tier, 2)
        elif not event.announced and self.lines[event.file] - event.line > _LAST_LINES:
            event.tier = max(event.tier, 2)

    def _linked(self, whole: _Whole, cascade: Iterable[_Whole]) -> bool:
        """Whether a caller reports this very exception, or the driver raises it, too."""
        name = whole.chosen.exception.rsplit(".", 1)[-1]
        if not name:
            return False
        processes = {event.process for part in whole.parts for event in (part.first, part.last)}
        if len(processes) > 1 and any(_is_driver(process) for process in processes):
            return True
        for other in cascade:
            facts = other.chosen.facts
            if facts.get("cause") != name:
                continue
            pids = {part.first.pid for part in whole.parts}
            if not facts.get("pid") or facts["pid"] in pids or "" in pids:
                return True
        return False

    def _without_consequences(
        self, strong: Sequence[_Whole], found: Sequence[_Whole]
    ) -> list[_Whole]:
        """Leave out exceptions that a chain shows to follow another candidate."""
        heads = {
            (w.chosen.file, w.chosen.chain): w.chosen
            for w in found
            if w.chosen.chain and not w.chosen.links
        }
        kept = []
        for whole in strong:
            event = whole.chosen
            head = heads.get((event.file, event.chain)) if event.links else None
            if head is not None and (event.direct or head.tier <= event.tier):
                continue
            kept.append(whole)
        return kept or list(strong)

    def _name_root(
        self, made: Diagnosis, candidates: Sequence[_Whole], alive: Sequence[_Whole]
    ) -> None:
        best = min(w.chosen.tier for w in candidates)
        # What a pattern names and what ended a process compete by time, the rest come after.
        top = [w for w in candidates if w.chosen.tier <= max(best, 1)]
        promoted = [w for w in top if w.chosen.role is Role.CONFIRMATION]
        direct = [w for w in top if w.chosen.role is Role.ROOT]
        if direct and best <= 1:
            top = self._with_early_promoted(direct, promoted)
        top.sort(key=lambda w: self._when(w.chosen))
        root = self._nearest(top, alive)
        made.state = State.ROOT
        made.root = root.merged()
        made.category = root.chosen.category or "exception"
        made.rivals = [
            w.merged() for w in top if w is not root and self._as_early(w.chosen, root.chosen)
        ]
        made.certain = not made.rivals
        self._gather(made, root, alive)

    def _with_early_promoted(self, direct: list[_Whole], promoted: list[_Whole]) -> list[_Whole]:
        """A kernel's or a device's line stays evidence where the job itself names its category."""
        named = {w.chosen.category for w in direct}
        return direct + [w for w in promoted if w.chosen.category not in named]

    def _as_early(self, event: Event, root: Event) -> bool:
        """Whether another host's event may be the earlier one, as far as clocks can tell."""
        if event.host == root.host or event.stamp is None or root.stamp is None:
            return False
        if event.category == root.category or event.file == root.file:
            return False
        known = event.host in self.question.offsets and root.host in self.question.offsets
        return abs(event.stamp - root.stamp) <= (0.05 if known else CLOCK_SECONDS)

    def _nearest(self, top: Sequence[_Whole], alive: Sequence[_Whole]) -> _Whole:
        """The earliest; among those that clocks cannot order, the one that others point to."""
        first = top[0]
        close = [w for w in top if w is first or self._as_early(w.chosen, first.chosen)]
        if len(close) == 1:
            return first
        named = {
            w.chosen.facts.get("peer") or w.chosen.facts.get("ip") or ""
            for w in alive
            if w.chosen.role is Role.CASCADE
        } - {""}
        return next((w for w in close if w.chosen.host in named), first)

    def _gather(self, made: Diagnosis, root: _Whole, alive: Sequence[_Whole]) -> None:
        """The cascade of the root, and what other lines know about it."""
        event = root.chosen
        rest = [
            w
            for w in self._sorted(alive)
            if w is not root
            and w.chosen.role in {Role.CASCADE, Role.ROOT}
            and w.chosen.tier < 3
            and not self._unmet(w)
        ]
        made.cascade = [w.merged() for w in rest]
        for other in self._sorted(alive):
            theirs = other.chosen
            if theirs.category != event.category and not self._explains(theirs, event.category):
                continue
            if _same_place(theirs, event):
                event.facts = theirs.facts | event.facts
            if not event.host and theirs.host and theirs.role is not Role.ROOT:
                event.host = theirs.host
        if not event.host:
            event.host = next(
                (
                    w.chosen.facts["ip"]
                    for w in rest
                    if w.chosen.facts.get("ip") and w.chosen.facts.get("pid") == event.pid
                ),
                "",
            )
        event.phase = event.phase or next(
            (
                w.chosen.phase
                for w in rest
                if w.chosen.phase and w.chosen.pattern in {"ray-task-error"}
            ),
            "",
        )
        made.missing_ranks = ()

    def _explains(self, event: Event, category: str) -> bool:
        pattern = self.library.pattern(event.pattern) if event.pattern else None
        return pattern is not None and category in pattern.explains

    def _no_primary(self, made: Diagnosis, cascade: Sequence[_Whole]) -> None:
        """Only consequences are in the logs."""
        made.state = State.NO_PRIMARY_CAUSE
        ordered = self._sorted(cascade)
        made.cascade = [w.merged() for w in ordered]
        made.category = next(
            (w.chosen.category for w in ordered if w.chosen.category != "job_failed"),
            "job_failed" if ordered else "",
        )
        seen: set[int] = set()
        for whole in ordered:
            if whole.chosen.category == "collective_timeout":
                for part in whole.parts:
                    seen |= part.ranks
        if len(seen) > 1:
            top = max(seen)
            made.missing_ranks = tuple(sorted(set(range(top + 1)) - seen))

    def _sorted(self, wholes: Iterable[_Whole]) -> list[_Whole]:
        return sorted(wholes, key=lambda w: self._when(w.chosen))


def _same_place(other: Event, event: Event) -> bool:
    """Whether two events speak of one host, as far as their names can be compared."""
    if other.host == event.host or not other.host or not event.host:
        return True
    pid = other.facts.get("pid")
    if pid is not None:
        return pid == event.pid
    return other.role is Role.CONFIRMATION and not (_is_address(other.host))


def _is_driver(process: str) -> bool:
    return not process or any(name in process for name in _DRIVERS)


def _is_address(host: str) -> bool:
    return host[:1].isdigit() and host.count(".") == 3


def _epochs(scan: FileScan) -> int:
    """How often the file records that training went on."""
    marks = [mark.epoch for mark in (*scan.success, *scan.teardown)]
    events = [group.late.epoch for group in scan.groups.values()]
    return max([scan.epoch, *marks, *events], default=0)


def _once(group: Group) -> list[Event]:
    """The events of a group, each once."""
    found = {id(event): event for event in (group.first, group.late, group.last)}
    return list(found.values())
