"""Reading what verl, its console and trackers write."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reprise.core.errors import OperatorError
from reprise.metrics import parse_console_line, read_run, spans

REWARD = "critic/rewards/mean"


def lines(path: Path, *records: tuple[int, dict[str, object]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"step": s, "data": d}) + "\n" for s, d in records))
    return path


def rules(path: Path) -> list[str]:
    return [finding.rule for finding in read_run(path).findings]


CONSOLE = (
    "\x1b[36m(TaskRunnerV1 pid=77, ip=10.1.2.3)\x1b[0m step:0 - "
    "val-core/openai/gsm8k/acc/mean@1:np.float64(0.41) - val-aux/num_turns/min:np.int64(2)\n"
    "Training Progress:   0%|          | 0/9 [00:00<?, ?it/s]\n"
    "(TaskRunnerV1 pid=77) step:1 - actor/pg_loss:-0.000 - actor/lr:1e-06 - actor/x:np.float32(nan)"
    " - actor/flag:True - critic/rewards/mean:0.5\n"
    "a print of the user: step: 2 - looks like one\n"
    "(WorkerDict pid=78) INFO step:2 done in 3.1s\n"
    "Training Progress:  22%|##        | 2/9 [00:31<01:40]\r(TaskRunnerV1 pid=77) "
    "step:2 - actor/pg_loss:0.01 - critic/rewards/mean:-inf [repeated 2x across cluster]\n"
    "(TaskRunnerV1 pid=77) step:3 - actor/pg_loss:0.0(WorkerDict pid=78) hello - critic/rewa\n"
    "(TaskRunnerV1 pid=77) step:4 - actor/pg_loss:0.02 - critic/rewards/mean:0.6"
)


def test_console_lines_among_noise(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_text(CONSOLE)
    table = read_run(log)
    assert table.training_steps().tolist() == [1, 2]
    assert table.series("val-core/openai/gsm8k/acc/mean@1").values.tolist() == [0.41]
    assert math.copysign(1, table.series("actor/pg_loss").values[0]) == -1
    assert table.series("actor/lr").values.tolist() == [1e-6]
    assert math.isnan(table.series("actor/x").values[0])
    assert table.series("actor/flag").values.tolist() == [1.0]
    assert table.series(REWARD).values.tolist() == [0.5, -math.inf]
    (finding,) = table.findings
    assert "2 cut or mixed step lines" in finding.message
    assert finding.where == f"{log}:7"


def test_compressed_log(tmp_path: Path) -> None:
    log = tmp_path / "job.log.gz"
    log.write_bytes(gzip.compress((CONSOLE + "\n").encode()))
    assert read_run(log).training_steps().tolist() == [1, 2, 4]


@settings(deadline=None)
@given(
    st.integers(0, 10**6),
    st.dictionaries(
        st.from_regex(r"[a-z]+(/[a-z0-9_@]+){1,3}", fullmatch=True),
        st.floats(allow_nan=True, allow_infinity=True),
        min_size=1,
    ),
)
def test_console_round_trip(step: int, values: dict[str, float]) -> None:
    text = f"step:{step} - " + " - ".join(f"{key}:{value!r}" for key, value in values.items())
    parsed = parse_console_line(f"(TaskRunner pid=1) {text}")
    assert parsed is not None
    assert parsed[0] == step
    assert repr(parsed[1]) == repr(values)


def test_json_lines_keep_nan_in_every_spelling(tmp_path: Path) -> None:
    file = tmp_path / "m.jsonl"
    file.write_text(
        '{"step": 1, "data": {"a/b": NaN, "c": 1}}\n'
        '{"step": 2, "data": {"a/b": null, "c": "NaN", "text": "word"}}\n'
        '{"step": 3, "data": {"a/b": Infinity, "c": true}}\n'
        '{"step": 4, "data": {"a/'
    )
    table = read_run(file)
    assert [math.isnan(v) for v in table.series("a/b").values] == [True, True, False]
    assert table.series("a/b").values[2] == math.inf
    assert "text" not in table
    assert rules(file) == ["metrics-line"]


def attempts(tmp_path: Path) -> Path:
    run = tmp_path / "run"
    lines(run / "metrics/attempt-1.jsonl", *[(s, {REWARD: s / 100}) for s in range(1, 13)])
    second = [(10, {"val-core/a/acc/mean@1": 0.5}), *[(s, {REWARD: 1.0}) for s in range(11, 16)]]
    lines(run / "metrics/attempt-2.jsonl", *second)
    return run


def test_later_attempt_wins_and_the_overlap_is_told(tmp_path: Path) -> None:
    run = attempts(tmp_path)
    series = read_run(run).series(REWARD)
    assert series.steps.tolist() == list(range(1, 16))
    assert series.values[9:12].tolist() == [0.10, 1.0, 1.0]
    (finding,) = read_run(run).findings
    assert "steps 11-12 were trained more than once" in finding.message


def test_one_file_with_two_attempts_reads_the_same(tmp_path: Path) -> None:
    run = attempts(tmp_path)
    merged = tmp_path / "merged.jsonl"
    parts = sorted((run / "metrics").iterdir())
    merged.write_bytes(b"".join(part.read_bytes() for part in parts))
    one, two = read_run(merged), read_run(run)
    assert one.series(REWARD).values.tolist() == two.series(REWARD).values.tolist()
    assert [f.message for f in one.findings] == [f.message for f in two.findings]


def test_tenth_attempt_comes_after_the_ninth(tmp_path: Path) -> None:
    for number in range(1, 11):
        lines(tmp_path / f"metrics/attempt-{number}.jsonl", (1, {REWARD: float(number)}))
    assert read_run(tmp_path).series(REWARD).values.tolist() == [10.0]


def test_steps_of_an_abandoned_attempt_do_not_survive(tmp_path: Path) -> None:
    lines(tmp_path / "metrics/attempt-1.jsonl", *[(s, {REWARD: 0.1}) for s in range(1, 21)])
    lines(tmp_path / "metrics/attempt-2.jsonl", (11, {REWARD: 0.2}))
    table = read_run(tmp_path)
    assert table.series(REWARD).steps.tolist() == list(range(1, 12))
    assert "steps 12-20 of an abandoned attempt" in table.findings[0].message
    assert len(table.step) == 21, "superseded rows stay in the table"


def test_erased_history_is_a_warning(tmp_path: Path) -> None:
    file = lines(tmp_path / "m.jsonl", *[(s, {REWARD: 0.1}) for s in range(11, 16)])
    (finding,) = read_run(file).findings
    assert finding.rule == "metrics-history"
    assert "starts at step 11" in finding.message


def test_two_lines_of_one_step_with_different_keys_are_one_attempt(tmp_path: Path) -> None:
    file = lines(tmp_path / "m.jsonl", (1, {REWARD: 0.1}), (1, {"val-core/a/acc/mean@1": 0.5}))
    assert read_run(file).attempt.tolist() == [1, 1]
    assert rules(file) == []


def test_sampled_history_is_recognised(tmp_path: Path) -> None:
    file = tmp_path / "history.csv"
    steps = [step for step in range(3, 1000, 2) if step % 5]
    file.write_text(f"_step,{REWARD}\n" + "".join(f"{s},{s / 1000}\n" for s in steps))
    assert rules(file) == ["metrics-sampled"]


def test_one_missing_step_or_validation_alone_is_not_sampled(tmp_path: Path) -> None:
    body = "".join(f"{s},0.5\n" for s in range(1, 100) if s != 50)
    (tmp_path / "hole.csv").write_text(f"step,{REWARD}\n{body}")
    assert rules(tmp_path / "hole.csv") == []
    body = "".join(f"{s},0.5\n" for s in range(0, 400, 10))
    (tmp_path / "val.csv").write_text(f"step,val-core/a/acc/mean@1\n{body}")
    assert rules(tmp_path / "val.csv") == []


def test_long_csv_with_errors_and_a_bad_row(tmp_path: Path) -> None:
    file = tmp_path / "curves.csv"
    file.write_text(
        f"\ufeffmetric,step,value,uncertainty\r\n{REWARD},1,0.5,0.01\r\n{REWARD},2,oops,\r\n"
        f"{REWARD},3,nan,\r\n{REWARD},1,0.6,\r\n",
        encoding="utf-8",
    )
    table = read_run(file)
    series = table.series(REWARD)
    assert series.steps.tolist() == [1, 3]
    assert series.values[0] == 0.6
    assert math.isnan(series.values[1])
    assert [f.rule for f in table.findings] == ["metrics-cell", "metrics-repeated"]
    assert table.findings[0].where == f"{file}:3"
    assert table.error[0] == 0.01


def test_wide_csv_of_a_tracker_page(tmp_path: Path) -> None:
    file = tmp_path / "export.csv"
    file.write_text(
        f'"Step","mine - {REWARD}","mine - {REWARD}__MIN","mine - {REWARD}__MAX"\n'
        "1,0.5,0.4,0.6\n2,,,\n3,0.7,0.7,0.7\n"
    )
    table = read_run(file)
    assert table.names == (REWARD,)
    assert table.series(REWARD).steps.tolist() == [1, 3]


@pytest.mark.parametrize(
    ("make", "rule"),
    [
        (lambda p: None, "metrics-missing"),
        (lambda p: p.mkdir(), "metrics-missing"),
        (lambda p: p.write_text(""), "metrics-empty"),
        (lambda p: p.write_text("no step here\n"), "metrics-empty"),
    ],
)
def test_nothing_to_read_names_what_to_give(tmp_path: Path, make: object, rule: str) -> None:
    path = tmp_path / "x"
    make(path)  # type: ignore[operator]
    with pytest.raises(OperatorError) as raised:
        read_run(path)
    assert raised.value.rule == rule
    assert raised.value.fix


@pytest.mark.parametrize("step", ["1e30", "-5", "4.5", "99999999999999999999999"])
def test_a_step_that_no_run_counts_to_is_left_out(tmp_path: Path, step: str) -> None:
    lines = f'{{"step":{step},"data":{{"a":1}}}}\n{{"step":1,"data":{{"a":2}}}}\n'
    (tmp_path / "a.jsonl").write_text(lines)
    (tmp_path / "a.csv").write_text(f"step,a\n{step},1\ninf,1\n1,2\n")
    (tmp_path / "long.csv").write_text(f"metric,step,value\na,{step},1\na,1,2\n")
    (tmp_path / "a.log").write_text(f"step:{step} - a:1\nstep:1 - a:2\n")
    for name in ("a.jsonl", "a.csv", "long.csv", "a.log"):
        table = read_run(tmp_path / name)
        assert table.series("a").steps.tolist() == [1]
        assert table.series("a").values.tolist() == [2.0]
        told = [finding.rule for finding in table.findings]
        assert told == ([] if name == "a.log" else ["metrics-line"])


def test_csv_without_a_step_column(tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    file.write_text("time,reward\n1,2\n")
    with pytest.raises(OperatorError, match="no column named step in time, reward"):
        read_run(file)


@settings(deadline=None)
@given(st.lists(st.integers(0, 60)))
def test_spans_name_every_step(steps: list[int]) -> None:
    text = spans(steps)
    if "more ranges" in text:
        return
    named: set[int] = set()
    for part in filter(None, text.split(", ")):
        first, _, last = part.partition("-")
        named |= set(range(int(first), int(last or first) + 1))
    assert named == set(steps)
