"""The scorer tried on made-up answers: custom functions here, verl's own in the rehearsal's."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from reprise.core.errors import CannotTell, OperatorError
from reprise.core.findings import Finding, Report, Severity, Verdict
from reprise.data.check.check import Checked, Inputs, check_files
from reprise.data.check.router import find_router
from reprise.data.check.settings import Settings
from reprise.data.reward.answers import answers_to
from reprise.data.reward.answers import tests_of as program_tests
from reprise.data.reward.judge import judge_reward
from reprise.data.reward.run import Scorer, probes, run_scorer
from reprise.data.reward.sandbox import with_sandbox

from .code_sandbox import serving
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
    wanted, arguments = with_sandbox(report, probes(items, chosen, 100), chosen)
    scorer = scorer if scorer.kwargs else replace(scorer, kwargs=arguments)
    _, answers = run_scorer(scorer, wanted)
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
        ("return 1.0", "reward-equal", "does not score more than a wrong one"),
        (
            "return float(solution_str.strip() in (ground_truth, ''))",
            "reward-empty",
            "empty answer",
        ),
        ("return 1 / (ground_truth != '3')", "reward-error", "ZeroDivisionError"),
        ("return float('nan')", "reward-error", "not a finite number"),
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
    assert "ms per call" in found(report, "reward-speed")[0].message


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


@pytest.mark.parametrize("away", [False, True], ids=["in its session", "in one of its own"])
def test_what_a_hanging_scorer_started_is_not_waited_for(
    tmp_path: Path, router: Any, away: bool
) -> None:
    items = checked(tmp_path, router, ROWS[:1])
    pid = tmp_path / "pid"
    body = (
        "import pathlib, subprocess\n"
        f"child = subprocess.Popen(['sleep', '300'], start_new_session={away})\n"
        f"pathlib.Path({str(pid)!r}).write_text(str(child.pid))\n"
        "time.sleep(600)"
    )
    began = time.monotonic()
    with pytest.raises(OperatorError, match="it hangs"):
        scored(items, custom(tmp_path, body, seconds=3.0))
    assert time.monotonic() - began < 150
    if away:
        os.kill(int(pid.read_text(encoding="utf-8")), signal.SIGKILL)
        return
    deadline = time.monotonic() + 60
    while runs(int(pid.read_text(encoding="utf-8"))):
        assert time.monotonic() < deadline, "what the scorer started goes on"
        time.sleep(0.05)


def runs(pid: int) -> bool:
    """Whether it has not ended; an orphan may wait for its new parent to take note of that."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


def test_a_scorer_that_lacks_a_package_is_unknown(tmp_path: Path, router: Any) -> None:
    """Whatever the import misses, the rows are not at fault."""
    body = "import mathruler_of_nowhere" + "\nreturn 1.0"
    report = scored(checked(tmp_path, router, ROWS), custom(tmp_path, body))
    assert report.verdict is Verdict.UNKNOWN
    (finding,) = report.findings
    assert finding.rule == "reward-run"
    assert "could not run: missing mathruler_of_nowhere" in finding.message
    assert "install mathruler_of_nowhere" in finding.fix


def test_a_custom_function_whose_file_lacks_a_package_is_unknown(
    tmp_path: Path, router: Any
) -> None:
    scorer = custom(tmp_path, EXACT)
    assert scorer.path is not None
    scorer.path.write_text(f"import scorer_of_nowhere\n{scorer.path.read_text(encoding='utf-8')}")
    with pytest.raises(CannotTell, match="could not run: missing scorer_of_nowhere"):
        scored(checked(tmp_path, router, ROWS), scorer)


def test_some_sources_lack_a_package_and_others_are_judged(tmp_path: Path, router: Any) -> None:
    rows = [row("a", "1", source="aime_x"), row("b", "2", source="math_dapo")]
    body = f"if data_source == 'aime_x':\n    from json import no_such_name\n{EXACT}"
    report = scored(checked(tmp_path, router, rows), custom(tmp_path, body))
    assert report.verdict is Verdict.UNKNOWN
    (finding,) = found(report, "reward-run")
    assert "cannot import name 'no_such_name'" in finding.message
    assert [item["data_source"] for item in report.data["reward"]] == ["math_dapo"]


STDIN = {"inputs": ["1 2\n", "3 4\n5"], "outputs": ["3\n", "12\nok 'quoted'"]}
LISTS = {"inputs": [["1 2"], ["3 4", "5"]], "outputs": [["3"], ["12", "ok 'quoted'"]]}
CALL = {"fn_name": "joined", "inputs": ["1\n2", '"a"\n"b"'], "outputs": ["3", '"ab"']}


@pytest.mark.parametrize("tests", [STDIN, LISTS])
def test_programs_that_pass_and_fail_their_tests(tests: dict[str, Any]) -> None:
    answers = answers_to(json.dumps(tests))
    assert set(answers) == {"empty", "right bare", "wrong bare", "right code block",
                            "wrong code block"}  # fmt: skip
    for given, wanted in (("1 2\n", "3\n"), ("3 4\n5", "12\nok 'quoted'")):
        for label, same in (("right bare", True), ("wrong bare", False)):
            command = [sys.executable, "-c", answers[label]]
            said = subprocess.run(command, input=given, capture_output=True, text=True, check=True)
            assert (said.stdout.strip() == wanted.strip()) is same


def test_functions_that_pass_their_tests() -> None:
    names: dict[str, Any] = {}
    exec(answers_to(CALL)["right bare"], names)
    assert names["joined"](1, 2) == 3 and names["joined"]("a", "b") == "ab"
    for no_tests in ("{1}", "34", {"target": ["x"]}, {"inputs": ["1"], "outputs": []}, "{", None):
        assert program_tests(no_tests) is None


def test_assertions_are_told_as_unknown(tmp_path: Path, router: Any) -> None:
    rows = [row("q", {"assert_case": ["assert f(1) == 2"]}, source="codecontests")]
    report = scored(checked(tmp_path, router, rows), custom(tmp_path, "return 0.0"))
    assert report.verdict is Verdict.UNKNOWN
    assert "cannot make a right answer" in found(report, "reward-equal")[0].message


def test_a_sandbox_that_does_not_answer(tmp_path: Path, router: Any) -> None:
    rows = [row("a", json.dumps(STDIN), source="apps"), row("b", "2")]
    settings = Settings(sandbox_url="http://127.0.0.1:1/run_code")
    report = Report("data check")
    wanted = probes(checked(tmp_path, router, rows), settings, 10)
    kept, arguments = with_sandbox(report, wanted, settings)
    assert [probe.row for probe in kept] == [2] and arguments == {}
    assert report.verdict is Verdict.UNKNOWN
    (finding,) = report.findings
    assert (finding.rule, finding.where) == ("reward-sandbox", "http://127.0.0.1:1/run_code")
    own = replace(settings, custom_reward="reward.py")
    assert len(with_sandbox(Report("x"), wanted, own)[0]) == 2


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


@pytest.mark.rehearsal
def test_verls_scorers_that_need_more_than_verl(tmp_path: Path, router: Any) -> None:
    """prime_math and prime_code run in the rehearsal's environment; geo3k lacks a package."""
    rows = [
        row("a", "34", source="numina_cn_k12"),
        row("b", json.dumps(STDIN), source="codecontests"),
        row("c", json.dumps(CALL), source="taco"),
        row("d", "7", source="hiyouga/geometry3k"),
    ]
    report = scored(checked(tmp_path, router, rows), Scorer(PYTHON, None))
    assert report.verdict is Verdict.UNKNOWN
    formats = {item["data_source"]: set(item["formats"]) for item in report.data["reward"]}
    assert "boxed" in formats.pop("numina_cn_k12")
    assert formats == {key: {"bare", "code block"} for key in ("codecontests", "taco")}
    (finding,) = found(report, "reward-run")
    assert "'hiyouga/geometry3k'" in finding.message and "missing mathruler" in finding.message


@pytest.mark.rehearsal
def test_verls_scorer_with_a_sandbox(tmp_path: Path, router: Any) -> None:
    rows = [row("a", json.dumps(STDIN), source="apps"), row("b", json.dumps(CALL), source="taco")]
    items = checked(tmp_path, router, rows)
    with serving() as (url, ran):
        report = scored(items, Scorer(PYTHON, None), Settings(sandbox_url=url))
    assert report.verdict is Verdict.OK, report.findings
    assert len(ran) == 8, "two tests each for two programs of two rows"
    formats = {item["data_source"]: set(item["formats"]) for item in report.data["reward"]}
    assert formats == {key: {"code block"} for key in ("apps", "taco")}
