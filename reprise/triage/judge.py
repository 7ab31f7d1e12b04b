"""From the events of all files to one answer: the first root cause, or that there is none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from reprise.triage.model import Clock, Diagnosis, Event, Role, State
from reprise.triage.patterns import Library
from reprise.triage.read.events import FileScan
from reprise.triage.timeline import Timeline, Whole, is_driver

__all__ = ["Question", "judge"]

# A process whose exception is among the last lines of its log ended by it.
_LAST_LINES = 30


@dataclass(frozen=True, slots=True)
class Question:
    """What is known beside the logs.

    `outcome` is succeeded, failed or empty (unknown). `clocks` are those of hosts, by name or
    address; the one without a name is that of the host whose job log has no host.
    """

    outcome: str = ""
    clocks: Mapping[str, Clock] = field(default_factory=dict)


def judge(scans: Sequence[FileScan], library: Library, question: Question) -> Diagnosis:
    """The diagnosis of the files read together."""
    return _Judge(Timeline(scans, question.clocks), library, question.outcome).answer()


class _Judge:
    def __init__(self, time: Timeline, library: Library, outcome: str) -> None:
        self.time = time
        self.library = library
        self.outcome = outcome
        self.seen = {whole.first.pattern for whole in time.wholes}

    def answer(self) -> Diagnosis:
        time = self.time
        success = time.success()
        alive = [whole for whole in time.wholes if not whole.recovered]
        cascade = [w for w in alive if w.chosen.role is Role.CASCADE]
        candidates = self._candidates(alive, cascade)
        made = Diagnosis(State.UNKNOWN, "", None, steps=time.step.step if time.step else None)
        made.success = success
        made.teardown = time.first_stop()
        made.recovered = [
            w.merged()
            for w in time.ordered(time.wholes)
            if w.recovered
            and w.chosen.role is Role.ROOT
            and w.chosen.tier < 3
            and not self._unmet(w)
        ]
        made.confirmations = [
            w.merged() for w in self.time.ordered(alive) if w.chosen.role is Role.CONFIRMATION
        ]
        succeeded = self.outcome == "succeeded" or (
            success is not None and self.outcome != "failed"
        )
        if succeeded:
            made.state = State.NO_FAILURE
            return made
        if candidates:
            self._name_root(made, candidates, alive)
        elif cascade or self.outcome == "failed":
            self._no_primary(made, cascade)
        return made

    def _candidates(self, alive: Sequence[Whole], cascade: Sequence[Whole]) -> list[Whole]:
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
        return found if cascade or self.outcome == "failed" else []

    def _unmet(self, whole: Whole) -> bool:
        """Whether a root counts only with another pattern, which no line matches."""
        pattern = self.library.pattern(whole.chosen.pattern)
        needs = set(pattern.needs) if pattern is not None else set()
        return bool(needs) and not self.seen & needs

    def _settle_tier(self, whole: Whole, linked: bool) -> None:
        """How well an exception that no pattern names is supported as the end of the job."""
        event = whole.chosen
        if not event.exception or event.pattern:
            return
        if linked:
            event.tier = min(event.tier, 1)
        elif whole.first.epoch < event.epoch:
            # The same was caught before, and training went on.
            event.tier = max(event.tier, 2)
        elif not event.announced and self.time.lines[event.file] - event.line > _LAST_LINES:
            event.tier = max(event.tier, 2)

    def _linked(self, whole: Whole, cascade: Iterable[Whole]) -> bool:
        """Whether a caller reports this very exception, or the driver raises it, too."""
        name = whole.chosen.exception.rsplit(".", 1)[-1]
        if not name:
            return False
        processes = {event.process for part in whole.parts for event in (part.first, part.last)}
        if len(processes) > 1 and any(is_driver(process) for process in processes):
            return True
        for other in cascade:
            facts = other.chosen.facts
            if facts.get("cause") != name:
                continue
            pids = {part.first.pid for part in whole.parts}
            if not facts.get("pid") or facts["pid"] in pids or "" in pids:
                return True
        return False

    def _without_consequences(self, strong: Sequence[Whole], found: Sequence[Whole]) -> list[Whole]:
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
        self, made: Diagnosis, candidates: Sequence[Whole], alive: Sequence[Whole]
    ) -> None:
        best = min(w.chosen.tier for w in candidates)
        # What a pattern names and what ended a process compete by time, the rest come after.
        top = [w for w in candidates if w.chosen.tier <= max(best, 1)]
        promoted = [w for w in top if w.chosen.role is Role.CONFIRMATION]
        direct = [w for w in top if w.chosen.role is Role.ROOT]
        if direct and best <= 1:
            top = self._with_early_promoted(direct, promoted)
        top.sort(key=lambda w: self.time.when(w.chosen))
        root = self._nearest(top, alive)
        made.state = State.ROOT
        made.root = root.merged()
        made.category = root.chosen.category or "exception"
        made.rivals = [
            w.merged() for w in top if w is not root and self._as_early(w.chosen, root.chosen)
        ]
        made.certain = not made.rivals
        self._gather(made, root, alive)

    def _with_early_promoted(self, direct: list[Whole], promoted: list[Whole]) -> list[Whole]:
        """A kernel's or a device's line stays evidence where the job itself names its category."""
        named = {w.chosen.category for w in direct}
        return direct + [w for w in promoted if w.chosen.category not in named]

    def _as_early(self, event: Event, root: Event) -> bool:
        """Whether another host's event may be the earlier one, as far as clocks can tell."""
        if event.host == root.host or event.stamp is None or root.stamp is None:
            return False
        if event.category == root.category or event.file == root.file:
            return False
        return abs(event.stamp - root.stamp) <= self.time.tolerance(event, root)

    def _nearest(self, top: Sequence[Whole], alive: Sequence[Whole]) -> Whole:
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

    def _gather(self, made: Diagnosis, root: Whole, alive: Sequence[Whole]) -> None:
        """The cascade of the root, and what other lines know about it."""
        event = root.chosen
        # Ray's head reports the host that it lost.
        event.host = event.facts.get("node") or event.host
        rest = [
            w
            for w in self.time.ordered(alive)
            if w is not root
            and w.chosen.role in {Role.CASCADE, Role.ROOT}
            and w.chosen.tier < 3
            and not self._unmet(w)
        ]
        made.cascade = [w.merged() for w in rest]
        for other in self.time.ordered(alive):
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

    def _no_primary(self, made: Diagnosis, cascade: Sequence[Whole]) -> None:
        """Only consequences are in the logs."""
        made.state = State.NO_PRIMARY_CAUSE
        ordered = self.time.ordered(cascade)
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


def _same_place(other: Event, event: Event) -> bool:
    """Whether two events speak of one host, as far as their names can be compared."""
    if other.host == event.host or not other.host or not event.host:
        return True
    pid = other.facts.get("pid")
    if pid is not None:
        return pid == event.pid
    return other.role is Role.CONFIRMATION and not (_is_address(other.host))


def _is_address(host: str) -> bool:
    return host[:1].isdigit() and host.count(".") == 3
