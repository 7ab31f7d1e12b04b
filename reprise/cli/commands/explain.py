"""`reprise explain`."""

from __future__ import annotations

from typing import Annotated

import typer

from reprise.cli.render import JsonFlag, finish, guard

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command()(explain)


@guard("explain")
def explain(
    rule: Annotated[
        str | None, typer.Argument(help="A rule's name, as a finding shows it; else all.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Explain a rule: what it checks, what it can report, how to fix each, and its page.

    Example: reprise explain gpu-count
    """
    from reprise.core.findings import Report
    from reprise.core.nearby import did_you_mean, nearest_words
    from reprise.core.rules import known_rules

    rules = known_rules()
    report = Report("explain")
    if rule is None:
        report.data["rules"] = {name: known.about for name, known in rules.items()}
    elif (known := rules.get(rule.partition(".")[0])) is None:
        near = did_you_mean(nearest_words(rule, rules))
        report.failed("rule-unknown.name", rule, near=near)
        finish(report, as_json)
    else:
        report.data |= {"rule": known.id, "layer": known.layer, "about": known.about}
        report.data["doc"] = f"docs/{known.doc}"
        report.data["texts"] = {
            name: {"severity": text.severity, "message": text.message, "fix": text.shown_fix}
            for name, text in known.texts.items()
        }
    report.passed("rule-unknown")
    if not as_json:
        _print(report.data)
    finish(report, as_json)


def _print(data: dict[str, object]) -> None:
    names = data.get("rules")
    if isinstance(names, dict):
        width = max(map(len, names), default=0)
        for name, about in names.items():
            typer.echo(f"{name:<{width}}  {about}")
        return
    typer.echo(f"{data['rule']}: {data['about']}\nmore: {data['doc']}")
    texts = data["texts"]
    for text in texts.values() if isinstance(texts, dict) else ():
        typer.echo(f"\n{text['severity']}: {text['message']}")
        if text["fix"]:
            typer.echo(f"    fix: {text['fix']}")
