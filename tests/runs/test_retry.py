"""Which failures are tried again, and how long it waits."""

from typing import Any

import pytest

from reprise.runs.supervise.retry import BadHost, Failure, Policy, why_not_again, why_repeated
from reprise.runs.supervise.supervise import _Failed

WORTH_IT = [
    "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.",
    "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.",
    "torch.distributed.DistBackendError: NCCL error, remote process exited",
    "RuntimeError: CUDA error: uncorrectable ECC error encountered",
    "no step and no new kind of log line for 180 s",
    "",
]


@pytest.mark.parametrize("text", WORTH_IT)
@pytest.mark.parametrize("reached", [None, 12])
def test_what_may_pass_is_tried_again(text: str, reached: int | None) -> None:
    assert why_not_again(Failure(text, reached)) is None


REPEATS = {
    "omegaconf.errors.ConfigAttributeError: Key 'x' is not in struct": "configuration",
    "hydra.errors.OverrideParseException: no viable alternative": "configuration",
    # How Hydra ends by itself, with no name of an exception.
    "Could not override 'trainer.nodes'.": "configuration",
    "Error merging override trainer.nnodes=two": "configuration",
    "In 'ppo_trainer': ValidationError raised while composing config:": "configuration",
    "Key 'nnode' is not in struct": "configuration",
    "ModuleNotFoundError: No module named 'transfer_queue'": "configuration",
    "AssertionError: only support equal chunk": "configuration",
    # How two real jobs began to fail: weights that the engine could not take.
    "AttributeError: 'Parameter' object has no attribute 'weight_loader'": "configuration",
    "KeyError: 'layers.1.mlp.e_score_correction_bias'": "configuration",
    "FileNotFoundError: [Errno 2] No such file or directory: 'x.parquet'": "data",
    "pyarrow.lib.ArrowInvalid: Parquet magic bytes not found in footer.": "data",
    "safetensors_rust.SafetensorError: Error while deserializing header": "data",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB": "memory",
    "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low": "memory",
}


@pytest.mark.parametrize("text", REPEATS)
def test_what_will_repeat_before_the_first_step_is_not(text: str) -> None:
    why = why_not_again(Failure(text, None))
    assert why is not None and REPEATS[text] in why
    # The same words after steps were trained, or from a checkpoint, may have another reason.
    assert why_not_again(Failure(text, 40)) is None
    assert why_not_again(Failure(text, None, resumed_from=20)) is None


@pytest.mark.parametrize(
    "text",
    [
        "OSError: [Errno 28] No space left on device: '/shared/runs'",
        "OSError: [Errno 30] Read-only file system: '/shared/runs'",
        "PermissionError: [Errno 13] Permission denied: '/shared/runs'",
    ],
)
def test_storage_is_never_tried_again(text: str) -> None:
    assert why_not_again(Failure(text, 40)) is not None


def test_the_same_error_at_the_same_step_ends_it() -> None:
    first = Failure("RuntimeError: shape [128, 7] is invalid at 0x7f01", 40)
    again = Failure("RuntimeError: shape [128, 9] is invalid at 0x7f02", 40, resumed_from=40)
    assert why_repeated(again, first) is not None
    assert why_repeated(Failure(again.error, 41, 40), first) is None
    gone = Failure("ray.exceptions.ActorDiedError: The actor died", 40)
    assert why_repeated(gone, gone) is None


def test_a_lost_job_is_never_the_same_failure() -> None:
    said = "Ray's Jobs API gave no answer for 90 s"
    assert why_repeated(Failure(said, 40), Failure(said, 40)) is not None
    lost = Failure(said, 40, lost=True)
    assert why_repeated(lost, lost) is None


def test_waits_grow_up_to_a_limit() -> None:
    policy = Policy(first_wait=15, longest_wait=100)
    assert [policy.wait(number) for number in (1, 2, 3, 4, 9)] == [15, 30, 60, 100, 100]


class Replacing:
    """Answers `replace` with what it is given, and counts the questions."""

    def __init__(self, *answers: BadHost | None) -> None:
        self.answers = list(answers)

    def replace(self, number: int, failure: Failure) -> BadHost | None:
        return self.answers.pop(0)


def failed(*answers: BadHost | None, attempts: int = 9) -> tuple[_Failed, Any]:
    return _Failed(Policy(attempts)), Replacing(*answers)


CUDA = "RuntimeError: CUDA error: uncorrectable ECC error encountered"


def test_a_replaced_host_starts_the_comparison_again_and_needs_no_wait() -> None:
    evicted = BadHost("node3", "ECC")
    count, hands = failed(None, evicted, None, None)
    assert count.add(1, Failure(CUDA, 40), hands) is None and count.wait == 15.0
    assert count.add(2, Failure(CUDA, 40), hands) is None and count.wait == 0.0
    # The same failure on other hosts is another one; once more on the same ones, it is not.
    assert count.add(3, Failure(CUDA, 40), hands) is None and count.wait == 60.0
    why = count.add(4, Failure(CUDA, 40), hands)
    assert why is not None and "same way" in why


def test_a_bad_host_that_cannot_be_replaced_ends_the_run() -> None:
    count, hands = failed(BadHost("node3", "ECC", "no spare is left"))
    assert count.add(1, Failure(CUDA, 40), hands) == "ECC on node3: no spare is left"


@pytest.mark.parametrize(
    ("failure", "attempts", "said"),
    [
        (Failure("OSError: [Errno 28] No space left on device", 40), 9, "full"),
        (Failure("hydra.errors.OverrideParseException: x", None), 9, "configuration"),
        (Failure(CUDA, 40), 1, "maximum"),
    ],
)
def test_no_host_is_taken_out_for_nothing(failure: Failure, attempts: int, said: str) -> None:
    """A full disk, a user's error, the last attempt: the hosts are not asked."""
    count, hands = failed(attempts=attempts)
    why = count.add(1, failure, hands)
    assert why is not None and said in why
