"""The registry of rules against the code that uses it, and its language."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from reprise.core import rules
from reprise.core.errors import CannotTell, OperatorError
from reprise.core.findings import Report, Severity, State
from reprise.core.rules import Text, is_text_name, known_rules, render, text_of

ROOT = Path(__file__).resolve().parents[2]
TEXTS = {
    f"{rule.id}.{name}": text
    for rule in known_rules().values()
    for name, text in rule.texts.items()
}
# The call that uses a text decides what becomes of the rule's state.
SEVERITIES = {
    "failed": "error",
    "bad": "error",
    "error": "error",
    "OperatorError": "error",
    "unknown": "unknown",
    "blank": "unknown",
    "CannotTell": "unknown",
    "warn": "warning",
    "note": "note",
}
# Idioms that ENGLISH.md of the project replaces; each is a pattern, words only.
BANNED = (
    *(r"cards?", r"mend(ed)?", r"tell", r"told", r"brings?", r"brought", r"nobody", r"everybody"),
    *(r"stands? in", r"lies at", r"lie apart", r"is no [a-z]+", r"are no [a-z]+", r"look around"),
    *(r"a Ray of others", r"sign of life", r"gives up", r"out of sight", r"take up", r"taken up"),
    *(r"whole number from", r"stands already", r"beside", r"hinder", r"of everybody"),
)


class Use(NamedTuple):
    place: str
    name: str
    call: str
    values: set[str]


def uses() -> Iterator[Use]:
    """Every call in the package that names a text of the registry."""
    for path in sorted((ROOT / "reprise").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            called = node.func
            call = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            names = [
                part.value
                for part in node.args[:2]
                if isinstance(part, ast.Constant)
                and isinstance(part.value, str)
                and part.value in TEXTS
            ]
            if names and call in SEVERITIES:
                place = f"{path.relative_to(ROOT)}:{node.lineno}"
                yield Use(place, names[0], call, {item.arg or "**" for item in node.keywords})


USES = list(uses())


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_a_text_renders_with_its_sample(name: str) -> None:
    text = TEXTS[name]
    assert set(text.sample) == text.fields()
    message, fix = text.render(text.sample)
    assert message.strip() == message != ""
    assert fix.strip() == fix
    assert fix or text.severity == "note", "only a note needs no fix"
    assert "['" not in message + fix, "a Python list"


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_a_text_is_plain_english(name: str) -> None:
    text = TEXTS[name]
    words = f"{text.message} | {text.fix}"
    found = [word for word in BANNED if re.search(rf"\b{word}\b", words)]
    assert found == []


def test_a_call_gives_what_its_text_needs() -> None:
    wrong = [
        f"{use.place}: {use.name} needs {TEXTS[use.name].fields()}, has {use.values}"
        for use in USES
        if "**" not in use.values and use.values != TEXTS[use.name].fields()
    ]
    assert wrong == []


def test_a_call_has_the_severity_of_its_text() -> None:
    wrong = [
        f"{use.place}: {use.call}({use.name}) is {TEXTS[use.name].severity} in the registry"
        for use in USES
        if SEVERITIES[use.call] != TEXTS[use.name].severity
    ]
    assert wrong == []


def test_every_text_is_used() -> None:
    source = "\n".join(
        path.read_text(encoding="utf-8") for path in (ROOT / "reprise").rglob("*.py")
    )
    assert [name for name in TEXTS if f'"{name}"' not in source] == []


@pytest.mark.parametrize("name", sorted(known_rules()))
def test_a_rule_says_what_it_checks_and_where_to_read_more(name: str) -> None:
    rule = known_rules()[name]
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", rule.id)
    assert rule.about.endswith("."), "one sentence"
    assert rule.doc == "rules.md" or (ROOT / "docs" / rule.doc.partition("#")[0]).is_file()


def test_a_report_takes_a_text_by_name() -> None:
    report = Report("explain")
    report.failed("rule-unknown.name", "gpu-cuont", near=", did you mean gpu-count")
    assert [check.state for check in report.checks] == [State.FAILED]
    assert report.findings[0].rule == "rule-unknown"
    assert report.findings[0].severity is Severity.ERROR
    assert report.findings[0].message == "unknown rule, did you mean gpu-count"


@pytest.mark.parametrize(("kind", "code"), [(OperatorError, 1), (CannotTell, 2)])
def test_an_error_takes_a_text_by_name(kind: type[OperatorError], code: int) -> None:
    error = kind("rule-unknown.name", "here", near="")
    assert (error.rule, error.message) == ("rule-unknown", "unknown rule")
    assert error.report("explain").exit_code == code


def test_a_missing_value_is_an_error_of_the_program() -> None:
    with pytest.raises(KeyError):
        render("rule-unknown.name", {})
    with pytest.raises(KeyError):
        text_of("rule-unknown.none")


def test_fields_are_read_from_the_templates() -> None:
    text = Text("error", "{a.b} of {c[0]} {d:.3f} {{e}}", "{a}", {})
    assert text.fields() == {"a", "c", "d"}


@pytest.mark.parametrize(("text", "named"), [("gpu-count.too-few", True), ("not set. So", False)])
def test_a_name_is_told_from_a_sentence(text: str, named: bool) -> None:
    assert is_text_name(text) is named


def test_a_plain_rule_keeps_its_dots() -> None:
    report = Report("lock verify")
    report.failed("tree.verl", "tree.verl", "is missing", "reprise setup tree.verl")
    assert report.findings[0].rule == report.checks[0].rule == "tree.verl"
    assert OperatorError("tree.verl", "here", "is missing", "fetch it").rule == "tree.verl"


def test_one_text_is_defined_by_one_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = {
        "about": "x",
        "doc": "lock.md",
        "same": {"severity": "note", "message": "m", "fix": "", "sample": {}},
    }
    files = [("lock", {"a-rule": entry}), ("flows", {"a-rule": entry})]
    monkeypatch.setattr(rules, "_files", lambda: iter(files))
    with pytest.raises(ValueError, match=r"lock and flows both define a-rule: \['same'\]"):
        rules.known_rules.__wrapped__()
