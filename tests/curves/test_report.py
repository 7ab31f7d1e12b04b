"""The files of a verdict are there, whole, and need no network."""

from __future__ import annotations

import json
import re
import struct
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typer.testing import CliRunner

from curves.runs import REWARD, STEPS, VALIDATION, records, write, write_reference
from reprise.cli import app
from reprise.curves import judge_run, load_reference, write_report
from reprise.curves.result import drawn_windows
from reprise.metrics import read_run

ROOT = Path(__file__).resolve().parents[2]
FILES = {"verdict.json", "curves.png", "report.html"}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(run folder, reference folder)."""
    folder = tmp_path_factory.mktemp("report")
    run = folder / "20260101T000000Z-abc"
    write(run / "metrics" / "attempt-1.jsonl", records(77))
    (run / "run.json").write_text(json.dumps({"model": "toy", "steps": 40, "seed": 77}))
    return run, write_reference(folder / "toy" / "reference", 6)


class Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.open: list[str] = []
        self.text = ""
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    @classmethod
    def read(cls, file: Path) -> Page:
        page = cls()
        page.feed(file.read_text(encoding="utf-8"))
        return page

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [
            value or "" for name, value in attrs if name in ("src", "href", "xlink:href")
        ]
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_report_is_self_contained_and_says_everything(
    tmp_path: Path, inputs: tuple[Path, Path]
) -> None:
    table, reference = read_run(inputs[0]), load_reference(inputs[1])
    judgement = judge_run(table, reference, 40)
    write_report(tmp_path, judgement, table, reference, {"lock": "<b>&", "seed": 77})
    assert {path.name for path in tmp_path.iterdir()} == FILES
    page = Page()
    page.feed((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert page.links == []
    assert page.open == []
    assert "<b>&" in page.text
    assert "a <test> machine" in page.text
    assert judgement.smallest[1:] in page.text
    for check in judgement.checks:
        assert check.message in page.text
    assert "None" not in page.text and "{'" not in page.text and ">nan<" not in page.text.lower()
    assert f"{judgement.false_alarms:.2%}" in page.text
    heads = [found for tag, found in page.tags if tag == "th"]
    assert heads and all(found.get("scope") in ("col", "row") for found in heads)
    charts = [found for tag, found in page.tags if tag == "figure"]
    assert len(charts) >= 5
    assert all(found["tabindex"] == "0" and found["aria-label"] for found in charts)
    assert not re.search(
        r"url\(\s*['\"]?http", (tmp_path / "report.html").read_text(encoding="utf-8")
    )
    png = (tmp_path / "curves.png").read_bytes()
    assert png.startswith(b"\x89PNG\r\n")
    width, height = struct.unpack(">II", png[16:24])
    assert width > 1000
    assert height > 1000
    verdict = json.loads((tmp_path / "verdict.json").read_text(encoding="utf-8"))
    assert verdict["outcome"] == "PASS"
    assert verdict["provenance"]["run"]["seed"] == 77
    assert len(verdict["checks"]) == len(judgement.checks)


def test_report_of_a_run_with_nothing_to_compare(tmp_path: Path, inputs: tuple[Path, Path]) -> None:
    run = write(tmp_path / "x.jsonl", [(1, {"other": 1.0})])
    table, reference = read_run(run), load_reference(inputs[1])
    judgement = judge_run(table, reference, 40)
    out = tmp_path / "out"
    out.mkdir()
    write_report(out, judgement, table, reference, {})
    assert {path.name for path in out.iterdir()} == FILES
    assert judgement.exit_code == 2


def test_compare_prints_one_object_and_writes_the_report(
    tmp_path: Path, inputs: tuple[Path, Path]
) -> None:
    arguments = ["curves", "compare", str(inputs[0]), "--reference", str(inputs[1])]
    out = tmp_path / "new" / "out"
    result = CliRunner().invoke(app, [*arguments, "--json", "--out", str(out)])
    assert result.exit_code == 0, result.output
    data = json.loads(result.stdout)
    assert data["judgement"]["outcome"] == "PASS"
    assert {path.name for path in out.iterdir()} == FILES
    text = CliRunner().invoke(app, arguments)
    assert text.stdout.startswith("PASS: 20260101T000000Z-abc against toy")
    shorter = CliRunner().invoke(app, [*arguments, "--steps", "50"])
    assert shorter.exit_code == 2
    assert "10 of 50 steps are missing" in shorter.stdout


def test_published_hy3_curve_against_itself_is_inconclusive_and_says_why() -> None:
    curves = ROOT / "recipes/hy3/reference/curves.csv"
    result = CliRunner().invoke(app, ["curves", "compare", str(curves), "--reference", "hy3"])
    assert result.exit_code == 2
    assert "15 of 189 steps above 0.015; decays" in result.stdout
    assert "agreement with itself shows nothing" in result.stdout


def test_wrong_paths_are_findings(tmp_path: Path, inputs: tuple[Path, Path]) -> None:
    for arguments in (
        ["curves", "compare", str(tmp_path / "no"), "--reference", str(inputs[1])],
        ["curves", "compare", str(inputs[0]), "--reference", str(tmp_path / "no")],
        ["curves", "show", str(tmp_path / "no")],
        ["curves", "show", str(inputs[0]), "--metric", "no/such"],
    ):
        result = CliRunner().invoke(app, [*arguments, "--json"])
        assert result.exit_code == 1
        assert json.loads(result.stdout)["findings"][0]["fix"]


def test_show_summarises_and_prints_values(inputs: tuple[Path, Path]) -> None:
    result = CliRunner().invoke(app, ["curves", "show", str(inputs[0])])
    assert result.exit_code == 0
    assert VALIDATION in result.stdout
    values = CliRunner().invoke(app, ["curves", "show", str(inputs[0]), "--metric", REWARD])
    assert values.stdout.count(REWARD) == 40
    data = json.loads(CliRunner().invoke(app, ["curves", "show", str(inputs[0]), "--json"]).stdout)
    assert data["metrics"][REWARD]["points"] == 40


def test_several_runs_on_one_page(tmp_path: Path) -> None:
    runs = [str(write(tmp_path / f"run-{seed}.jsonl", records(seed))) for seed in (1, 2, 3)]
    out = tmp_path / "all.html"
    result = CliRunner().invoke(app, ["report", *runs, "--out", str(out)])
    assert result.exit_code == 0, result.output
    page = Page()
    page.feed(out.read_text(encoding="utf-8"))
    assert page.links == [] and page.open == []
    assert "3 runs" in page.text
    lines = [found["class"] for tag, found in page.tags if tag == "polyline"]
    assert {"line run0", "line run1", "line run2"} <= set(lines)


def test_facts_are_for_readers(tmp_path: Path, inputs: tuple[Path, Path]) -> None:
    table, reference = read_run(inputs[0]), load_reference(inputs[1])
    attempt = {"number": 1, "started": 1796038427.7, "ended": None, "resumed_from": None}
    facts = {"created": 1796038321.78, "data_sha256": {"train": "5f"}, "attempts": [attempt]}
    write_report(tmp_path, judge_run(table, reference, 40), table, reference, facts)
    page = Page()
    page.feed((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert "2026-11-30 11:32:01 UTC" in page.text and "1796038" not in page.text
    assert "data_sha256.train" in page.text


def test_what_happened_is_on_the_page(tmp_path: Path, inputs: tuple[Path, Path]) -> None:
    """Events, alarms and the explained failure of a run folder, in the verdict and `report`."""
    run = tmp_path / "20260101T000000Z-def"
    write(run / "metrics" / "attempt-1.jsonl", records(77)[:31])
    state = {"model": "toy", "steps": 40, "seed": 77, "hosts": [{"name": "node-1", "slots": 8}]}
    (run / "run.json").write_text(json.dumps(state))
    alarm = {"severity": "error", "where": "actor/entropy@12", "message": "<entropy> collapsed"}
    events = [
        {"time": 1796038427.7, "event": "submit", "attempt": 1, "job": "job-1", "resumed": None},
        {"time": 1796038500, "event": "alarm", "attempt": 1, "fix": "stop the run", **alarm},
        {"time": None, "event": "ray stopped", "left": [], "waited": {"seconds": 3}},
    ]
    lines = "".join(json.dumps(event) + "\n" for event in events)
    (run / "events.jsonl").write_text(lines + '{"time": 17960')
    root = {"file": "attempt-1.log", "line": 812, "text": "CUDA out of memory", "host": "node-1"}
    cause = {"title": "GPU memory", "attempt": 1, "root": root | {"advice": ["lower the batch"]}}
    (run / "triage.json").write_text(json.dumps(cause))
    out = tmp_path / "out"
    compared = ["curves", "compare", str(run), "--reference", str(inputs[1]), "--out", str(out)]
    CliRunner().invoke(app, compared)
    several = CliRunner().invoke(
        app, ["report", str(run), str(inputs[0]), "--out", str(out / "all.html")]
    )
    assert several.exit_code == 0, several.output
    for name in ("report.html", "all.html"):
        page = Page()
        page.feed((out / name).read_text(encoding="utf-8"))
        for text in (
            "2026-11-30 11:33:47 UTC",
            "job: job-1",
            "alarm: error",
            "<entropy> collapsed",
            "stop the run",
            "waited.seconds: 3",
            "GPU memory",
            "attempt-1.log:812",
            "CUDA out of memory",
            "lower the batch",
        ):
            assert text in page.text, (name, text)
        assert page.open == [] and "None" not in page.text and "1796038" not in page.text
    assert "name=node-1 slots=8" in Page.read(out / "report.html").text


def test_print_is_dark_on_light_whatever_the_screen() -> None:
    """Every colour of the dark theme is set again for print, to the value of the light one."""
    style = (ROOT / "reprise/curves/page.css").read_text(encoding="utf-8")
    dark = re.search(r"prefers-color-scheme: dark\) \{ :root \{(.*?)\}", style, re.DOTALL)
    printed = re.search(r"@media print \{\s*:root \{(.*?)\}", style, re.DOTALL)
    light = re.search(r":root \{(.*?)\}", style, re.DOTALL)
    assert dark and printed and light
    assert style.index("@media print") > style.index("prefers-color-scheme: dark")

    def colours(text: str) -> dict[str, str]:
        return dict(re.findall(r"(--[\w-]+): ([^;\s]+)", text))

    on_paper = colours(printed[1])
    assert colours(dark[1]).keys() <= on_paper.keys()
    own = {"--text", "--soft"}
    assert {k: v for k, v in on_paper.items() if k not in own} == {
        k: v for k, v in colours(light[1]).items() if k not in own
    }


def test_charts_show_the_windows_of_their_metric(tmp_path: Path) -> None:
    """The trend is a difference: drawn on the reward's axis it would be read as a level."""
    reference = load_reference(write_reference(tmp_path / "reference", 5))
    run = read_run(write(tmp_path / "run.jsonl", records(9)))
    reward = judge_run(run, reference, STEPS).check("reward")
    assert len(reward.windows) == 6
    spans = [(w.first, w.last) for w in drawn_windows(reward.windows, REWARD)]
    assert spans == [(1, 10), (11, 20), (21, 30), (31, 40)]
    late = replace(reward.windows[0], first=5)
    kept = drawn_windows(
        [late, reward.windows[1], replace(reward.windows[4], first=5, last=20)], REWARD
    )
    assert [(w.first, w.last) for w in kept] == [(5, 10), (11, 20)]
