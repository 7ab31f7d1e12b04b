"""Check a composed recipe: every rule in one pass, as one report."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from reprise.core.findings import Check, Finding, Report, Severity, State
from reprise.core.nearby import did_you_mean
from reprise.recipe.config.changes import Changes
from reprise.recipe.config.compose import Composition
from reprise.recipe.config.meaning import Keys
from reprise.recipe.config.origin import VERLS_OWN, Origins
from reprise.recipe.config.overrides import Fault
from reprise.recipe.config.schema import schema_of, unknown_keys
from reprise.recipe.fixes import checked, first_settings
from reprise.recipe.model import Model
from reprise.recipe.rules.base import Judgement, NotApplicable, Problem, Rule, Undecided
from reprise.recipe.ruleset import ALL_RULES
from reprise.recipe.setup import Known, Setup
from reprise.recipe.unknowns import ValueUnknown
from reprise.recipe.values import wrong_values

_MOST_KEYS = 50
# Sizes that another trainer than verl's synchronous one may want to be 0.
_TRAINERS_OWN = frozenset(
    (
        "data.train_batch_size",
        "trainer.total_training_steps",
        "trainer.nnodes",
        "trainer.total_epochs",
    )
)

__all__ = ["check", "check_faults", "check_values"]

_OVERRIDE_RULES = (
    "recipe-override-syntax",
    "recipe-override-group",
    "recipe-override-plus",
    "recipe-override-missing-plus",
    "recipe-override-unknown-key",
    "recipe-override-value",
    "recipe-override-repeated",
)


def check(
    composition: Composition,
    known: Known,
    model: Model | None = None,
    recipes: Path | None = None,
    rules: Sequence[Rule] = ALL_RULES,
) -> Report:
    """Check `composition`; `data["rules"]` has the formula and the source of every rule.

    A rule that does not apply to the recipe counts as passed, with the reason; a rule that lacks
    a fact is unknown.
    """
    report = Report("recipe check")
    tree = composition.tree
    origins = Origins(composition, recipes)
    report.data["verl"] = {"version": tree.version, "commit": tree.commit, "origin": tree.origin}
    report.data["rules"] = []
    if known.locked_verl:
        report.note(
            "recipe-verl-tree.not-locked",
            tree.label(),
            locked=known.locked_verl,
            name=known.locked_entry,
        )
    check_faults(report, composition.faults)
    _unknown_keys(report, composition, origins)
    own = known.entry not in ("", "verl.trainer.main_ppo")
    check_values(report, composition, recipes, _TRAINERS_OWN if own else frozenset())
    judged = _Judged(composition, model, known, rules)
    _report(report, judged, origins)
    return report


@dataclass(slots=True)
class _Result:
    """What one rule says of one config."""

    rule: Rule
    judgement: Judgement
    state: str = "passed"
    reason: str = ""
    fix: str = ""


class _Judged:
    """The rules on a composition, and on what its suggested fixes would make of it."""

    def __init__(
        self, composition: Composition, model: Model | None, known: Known, rules: Sequence[Rule]
    ) -> None:
        self.composition, self.model, self.known, self.rules = composition, model, known, rules
        self.setup = self._setup(composition.values)
        open_by = composition.open_by
        if open_by is None:
            self.results = [_judge(rule, self.setup) for rule in rules]
        else:
            reason = f"the config is set by {open_by.decided_by} ({open_by.where})"
            self.results = [
                _Result(rule, Judgement(), "unknown", reason, open_by.fix) for rule in rules
            ]
        self._before = _problems(self.results)
        self._tried: dict[tuple[tuple[str, str], ...], Mapping[tuple[str, str], int]] = {}

    def _setup(self, values: dict[str, Any]) -> Setup:
        return Setup(values, self.composition.tree, self.model, self.known)

    @cached_property
    def _changes(self) -> Changes:
        return Changes(self.composition)

    def left(self, result: _Result, problem: Problem, settings: Mapping[str, str]) -> int | None:
        """The problems that are left with these settings; None if `problem` is, or a worse one.

        Where one setting needs others, those that the rule suggests for its other problems count.
        """
        mine = (result.rule.id, problem.key)
        alone = self._without(mine, settings)
        if alone is not None or len(result.judgement.problems) < 2:
            return alone
        joint: dict[str, str] = {}
        for other in result.judgement.problems:
            joint |= first_settings(other.fix)
        return self._without(mine, {**joint, **settings})

    def _without(self, mine: tuple[str, str], settings: Mapping[str, str]) -> int | None:
        key = tuple(sorted(settings.items()))
        if key not in self._tried:
            self._tried[key] = self._after(settings)
        after = self._tried[key]
        worse = any(rank > self._before.get(one, 0) for one, rank in after.items())
        return None if mine in after or worse else len(after)

    def _after(self, settings: Mapping[str, str]) -> Mapping[tuple[str, str], int]:
        values = self._changes.values(settings)
        if values is None:
            return {("hydra", ""): 3}
        setup = self._setup(values)
        return _problems([_judge(rule, setup) for rule in self.rules])


def _problems(results: Sequence[_Result]) -> Mapping[tuple[str, str], int]:
    """Errors (2) and warnings (1) by rule and key."""
    found: dict[tuple[str, str], int] = {}
    for result in results:
        for problem in result.judgement.problems:
            rank = {Severity.ERROR: 2, Severity.WARNING: 1}.get(problem.severity, 0)
            key = (result.rule.id, problem.key)
            if rank:
                found[key] = max(rank, found.get(key, 0))
    return found


def check_faults(report: Report, faults: Sequence[Fault]) -> None:
    """Add the faults of the override lines."""
    for fault in faults:
        where = f"{fault.line.where} ({fault.line.shown})"
        if fault.fatal:
            report.failed(fault.rule, where, fault.message, fault.fix)
        else:
            report.warn(fault.rule, where, fault.message, fault.fix)
    for rule in _OVERRIDE_RULES:
        report.settle(rule)


def check_values(
    report: Report,
    composition: Composition,
    recipes: Path | None,
    exempt: Collection[str] = (),
) -> None:
    """Add the values that a rule cannot compute with; `exempt` keys may have any value."""
    rule, origins = "recipe-config-value", Origins(composition, recipes)
    for wrong in wrong_values(composition.values, composition.base):
        where = origins.where(wrong.key)
        if wrong.key in exempt or (recipes is not None and where.startswith(VERLS_OWN)):
            # It follows another key, which is reported.
            continue
        found: dict[str, object] = {
            "expected": wrong.expected,
            "found": wrong.found,
            "fix": wrong.fix,
        }
        if wrong.sure:
            report.failed("recipe-config-value.wrong", where, **found)
        else:
            report.warn("recipe-config-value.other-type", where, **found)
    report.settle(rule)


def _unknown_keys(report: Report, composition: Composition, origins: Origins) -> None:
    rule = "recipe-config-unknown-key"
    schema, keys = schema_of(composition.tree), Keys(composition.base)
    for number, key in enumerate(unknown_keys(composition.values, composition.base, schema)):
        if number == _MOST_KEYS:
            report.unknown(
                rule,
                composition.name,
                f"more than {_MOST_KEYS} keys that verl's config does not have: the rest is not "
                "checked",
                "correct those that are reported, and repeat the command",
            )
            break
        close = keys.meant(key)
        where = origins.where(key)
        if close:
            report.failed(
                "recipe-config-unknown-key.misspelt",
                where,
                setting=key,
                near=did_you_mean(close),
                nearest=close[0],
            )
        else:
            # Hydra accepts it, and nothing reads it: no close key that may have been meant.
            report.warn("recipe-config-unknown-key.unread", where, setting=key)
    report.settle(rule)


def _missing(setup: Setup) -> str:
    """The fix for a fact that a rule lacks."""
    if setup.model is None and setup.known.gpu_memory is None:
        return "name the recipe of this model, data and machine: --model MODEL"
    return "give the missing fact, or remove the setting"


def _not_evaluated(report: Report, missing: dict[tuple[str, str], list[tuple[str, str]]]) -> None:
    """One finding for each missing fact, with the rules that need it."""
    for (reason, fix), rules in missing.items():
        first, source = rules[0]
        others = ", ".join(rule for rule, _ in rules[1:])
        report.findings.append(
            Finding(
                first,
                Severity.WARNING,
                source,
                f"not evaluated: {reason}" + (f" (nor {others})" if others else ""),
                fix,
            )
        )


def _judge(rule: Rule, setup: Setup) -> _Result:
    """One rule on one config."""
    judgement = Judgement()
    try:
        rule.judge(setup, judgement)
    except NotApplicable as error:
        return _Result(rule, judgement, "not applicable", str(error))
    except Undecided as error:
        fix = _missing(setup)
        if isinstance(error, ValueUnknown):
            fix = error.value.fix or f"--set {error.key}=VALUE"
        return _Result(rule, judgement, "unknown", str(error), fix)
    except (TypeError, ValueError, AttributeError, ArithmeticError) as error:
        # A value that the config of verl does not allow: a finding, never a traceback.
        reason = f"a value is not numeric: {error}"
        return _Result(rule, judgement, "unknown", reason, _missing(setup))
    return _Result(rule, judgement)


def _report(report: Report, judged: _Judged, origins: Origins) -> None:
    """Add the results of all rules; what could not be evaluated comes last, by its reason."""
    missing: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for result in judged.results:
        rule, state = result.rule, result.state
        source = rule.source.cite(judged.composition.tree)
        for problem in result.judgement.problems:
            where, message = origins.where(problem.key), f"{problem.message} ({source})"
            fix = checked(problem.fix, rule.id, partial(judged.left, result, problem))
            if problem.severity is Severity.ERROR:
                state = "failed"
                report.failed(rule.id, where, message, fix)
            elif problem.severity is Severity.WARNING:
                report.warn(rule.id, where, message, fix)
            else:
                report.note(rule.id, where, problem.message, problem.fix)
        if state == "unknown":
            report.checks.append(Check(rule.id, State.UNKNOWN))
            missing.setdefault((result.reason, result.fix), []).append((rule.id, source))
        elif state != "failed":
            report.passed(rule.id)
        report.data["rules"].append(
            {
                "id": rule.id,
                "state": state,
                "formula": result.judgement.formula,
                "reason": result.reason,
                "source": source,
            }
        )
    _not_evaluated(report, missing)
