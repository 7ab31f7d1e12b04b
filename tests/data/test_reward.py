"""The scorer tried on made-up answers: custom functions here, verl's own in the rehearsal's."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from reprise.data.check import Checked, Inputs, check_files
from reprise.data.reward import Scorer, probes, run_scorer
from reprise.data.reward_judge import judge_reward
from reprise.data.router import find_router
from reprise.data.settings import Settings
from reprise.errors import CannotTell, OperatorError
from reprise.findings import Finding, Report, Severity, Verdict

from .inputs import row, verl_tree, write_parquet

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv-rehearsal" / "bin" / "python"


@pytest.fixture(scope="module")
def router(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return find_router([verl_tree(tmp_path_factory.mktemp("tree"))])


def checked(folder: Path, router: Any, rows: list[dict[str, Any]]) -> list[Checked]:
    path = write_parquet(folder / "rows.parquet", rows)
    return check_files("c", [path], [], Inputs(router))[1]


def scored(
    items: list[Checked], scorer: Scorer, settings: Settings | None = None, seconds: float = 60
) -> Report:
    chosen = settings or Settings()
    report = Report("data check")
    _, answers = run_scorer(scorer, probes(items, chosen, 100))
    judge_reward(report, answers, chosen, seconds)
    return report


def custom(folder: Path, body: str, **options: Any) -> Scorer:
    path = folder / "reward.py"
    path.write_text(
        "import asyncio, time\n"
        "def compute_score(data_source, solution_str, ground_truth, extra_info=None, **kw):\n"
        + "".join(f"    {line}\n" for line in body.splitlines())
    )
    return Scorer(Path(sys.executable), None, path, **options)


def found(report: Report, rule: str) -> list[Finding]:
    return [item for item in report.findings if item.rule == rule]


ROWS = [row(f"q{i}", str(i), extra_info={"index": i}) for i in range(5)]
EXACT = "return float(solution_str.strip() == ground_truth)"


def test_a_sound_scorer_passes_and_its_format_is_told(tmp_path: Path, router: Any) -> None:
    items = checked(tmp_path, router, ROWS)
    report = scored(items, custom(tmp_path, f"print('noise')\n{EXACT}"))
    assert report.verdict is Verdict.OK
    (note,) = found(report, "reward-format")
    assert "bare (5 of 5)" in note.message
    (facts,) = report.data["reward"]
    assert facts["calls"] == 5 * 13 and facts["ms_mean"] > 0


@pytest.mark.parametrize(
    "body",
    [
        "return {'score': float(ground_truth in solution_str), 'acc': 1}",
        "return kw['bonus'] * (ground_truth in solution_str)",
        "async def later():\n    return float(ground_truth in solution_str)\nreturn later()",
    ],
)
def test_dicts_arguments_and_coroutines(body: str, tmp_path: Path, router: Any) -> None:
    rows = [row("q", "17", extra_info={"index": 1})]
    scorer = custom(tmp_path, body, kwargs={"bonus": 2.0})
    assert scored(checked(tmp_path, router, rows), scorer).verdict is Verdict.OK


@pytest.mark.parametrize(
    ("body", "rule", "words"),
    [
        ("return 1.0", "reward-equal", "no more than a wrong one"),
        (
            "return float(solution_str.strip() in (ground_truth, ''))",
            "reward-empty",
            "empty answer",
        ),
        ("return 1 / (ground_truth != '3')", "reward-error", "ZeroDivisionError"),
        ("return float('nan')", "reward-error", "no finite number"),
        ("raise NotImplementedError(data_source)", "reward-error", "NotImplementedError"),
    ],
)
def test_unsound_scorers(body: str, rule: str, words: str, tmp_path: Path, router: Any) -> None:
    report = scored(checked(tmp_path, router, ROWS), custom(tmp_path, body))
    (finding,) = found(report, rule)[:1]
    assert finding.severity is Severity.ERROR
    assert words in finding.message
    assert "rows.parquet:row" in finding.where


def test_a_truth_that_the_scorer_never_matches(tmp_path: Path, router: Any) -> None:
    """The rationale in the place of the answer: nothing can ever score."""
    rows = [row("q", "2+1=3\n#### 3"), row("r", "4")]
    body = "return float(solution_str.split('####')[-1].strip() == ground_truth)"
    (finding,) = found(
        scored(checked(tmp_path, router, rows), custom(tmp_path, body)), "reward-equal"
    )
    assert "row 1" in finding.message and "row 2" not in finding.message


def test_slow_scorers(tmp_path: Path, router: Any) -> None:
    items = checked(tmp_path, router, ROWS[:1])
    scorer = custom(tmp_path, f"time.sleep(0.02)\n{EXACT}")
    sizes = Settings(train_batch_size=128, samples=16, reward_workers=8)
    # 2,048 answers of 20 ms on 8 workers need 5 s.
    for seconds, verdict, count in ((1000, Verdict.OK, 0), (40, Verdict.OK, 1)):
        report = scored(items, scorer, sizes, seconds)
        slow = [f for f in found(report, "reward-speed") if f.severity is Severity.WARNING]
        assert (report.verdict, len(slow)) == (verdict, count)
    report = scored(items, scorer, sizes, 2)
    assert report.verdict is Verdict.PROBLEM
    assert "ms a call" in found(report, "reward-speed")[0].message


def test_scorers_that_hang_end_or_cannot_be_loaded(tmp_path: Path, router: Any) -> None:
    items = checked(tmp_path, router, ROWS[:1])
    with pytest.raises(OperatorError, match="it hangs"):
        scored(items, custom(tmp_path, "time.sleep(600)", seconds=1.0))
    with pytest.raises(OperatorError, match="ended its process"):
        scored(items, custom(tmp_path, "import os; os._exit(3)"))
    with pytest.raises(OperatorError, match="cannot be loaded"):
        scored(items, custom(tmp_path, EXACT, name="other"))
    with pytest.raises(CannotTell):
        scored(items, Scorer(tmp_path / "no-python", None))
    with pytest.raises(CannotTell, match="cannot be imported"):
        scored(items, Scorer(Path(sys.executable), tmp_path))


def test_the_rehearsals_own_scorer_and_rows(tmp_path: Path, router: Any) -> None:
    rows = [row("12+3=", "15", source="reprise/arithmetic")]
    scorer = Scorer(Path(sys.executable), None, ROOT / "recipes" / "rehearsal" / "reward.py")
    report = scored(checked(tmp_path, router, rows), scorer)
    assert not found(report, "reward-equal")


@pytest.mark.rehearsal
def test_verls_own_scorers(tmp_path: Path, router: Any) -> None:
    rows = [
        row("a", "34", source="math_dapo"),
        row("b", "1080", source="openai/gsm8k"),
        row("c", "\\frac{1}{2}", source="lighteval/MATH"),
        row("d", "7", source="aime_2025"),
        row("e", "2", source="Math_DAPO"),
    ]
    report = scored(checked(tmp_path, router, rows), Scorer(PYTHON, None))
    formats = {item["data_source"]: set(item["formats"]) for item in report.data["reward"]}
    assert "answer line" in formats["math_dapo"] and "bare" not in formats["math_dapo"]
    assert formats["openai/gsm8k"] == {"####"}
    assert "boxed" in formats["lighteval/MATH"]
    errors = [item.message for item in report.errors()]
    assert len(errors) == 1 and "'Math_DAPO'" in errors[0] and "NotImplementedError" in errors[0]
