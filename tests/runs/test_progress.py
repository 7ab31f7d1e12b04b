from hypothesis import given
from hypothesis import strategies as st

from reprise.runs.watch.progress import PhaseReader, ProgressWatch


def test_a_job_that_repeats_one_warning_is_stalled() -> None:
    watch = ProgressWatch(limit=180, started=0)
    watch.line("13:00:01 pid=12 no free block for 60 s", now=60)
    watch.line("13:01:01 pid=12 no free block for 120 s", now=120)
    assert not watch.stalled(now=240)
    watch.line("13:03:01 pid=12 no free block for 240 s", now=240)
    assert watch.stalled(now=241)


def test_a_new_record_or_a_new_kind_of_line_is_progress() -> None:
    watch = ProgressWatch(limit=180, started=0)
    watch.line("loading", now=100)
    watch.records(1, now=200)
    watch.records(1, now=300)
    assert not watch.stalled(now=380)
    assert watch.stalled(now=381)


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=30))
def test_numbers_never_make_a_line_new(numbers: list[int]) -> None:
    watch = ProgressWatch(limit=10, started=0)
    watch.line(f"step {numbers[0]} waits", now=1)
    for number in numbers:
        watch.line(f"step {number} waits", now=5)
    assert watch.last == 1


def test_phases_are_told_once_and_never_backwards() -> None:
    reader = PhaseReader()
    lines = [
        "ray init kwargs: {}",
        "(TaskRunnerV1 pid=3) hello",
        "\x1b[36m(WorkerDict pid=4)\x1b[0m loading",
        "(TaskRunnerV1 pid=3) hello again",
        "(vLLMHttpServer pid=5) serve",
        "(WorkerDict pid=4) more",
    ]
    told = [reader.line(line) for line in lines]
    expected = ["driver", "trainer process", "actor and reference model", None, "vLLM server", None]
    assert told == expected
