from pathlib import Path

import pytest
from ray.runtime_env import RuntimeEnv

from reprise.core.errors import OperatorError
from reprise.core.runtime_env import RAY_FIELDS
from reprise.runs.ray.runtime_env import merge_runtime_env


def test_later_files_and_the_runs_own_variables_win(tmp_path: Path) -> None:
    first, second = tmp_path / "a.yaml", tmp_path / "b.yaml"
    first.write_text("excludes: [/.venv]\nenv_vars: {A: 1, B: two}\n")
    second.write_text("excludes: [/runs]\nenv_vars:\n  B: three\n")
    files = (first, second, tmp_path / "missing.yaml")
    merged = merge_runtime_env(tmp_path, files, {"C": "four"})
    assert merged == {
        "working_dir": str(tmp_path),
        "excludes": ["/.venv", "/runs"],
        "env_vars": {"A": "1", "B": "three", "C": "four"},
    }


@pytest.mark.parametrize(("text", "line"), [("env_vars:\n  A: [1\n", ":3"), ("- a\n", "")])
def test_a_file_that_is_no_mapping_is_named_with_its_line(
    tmp_path: Path, text: str, line: str
) -> None:
    path = tmp_path / "runtime_env.yaml"
    path.write_text(text)
    with pytest.raises(OperatorError) as caught:
        merge_runtime_env(tmp_path, (path,), {})
    assert caught.value.where == f"{path}{line}"


def test_what_would_be_passed_over_is_named(tmp_path: Path) -> None:
    path = tmp_path / "runtime_env.yaml"
    path.write_text("exclude: [a]\nenv_var: {A: b}\nenv_vars: [c]\npip: [torch]\n")
    with pytest.raises(OperatorError) as caught:
        merge_runtime_env(tmp_path, (path,), {})
    assert caught.value.message == (
        "unknown key 'exclude', did you mean excludes; unknown key 'env_var', did you mean "
        "env_vars; unknown key 'pip'; env_vars must be a mapping"
    )
    assert "working_dir, excludes, env_vars" in caught.value.fix


def test_the_keys_of_a_foreign_job_are_those_that_ray_knows() -> None:
    theirs = {name for name in RuntimeEnv.known_fields if name not in RuntimeEnv.extensions_fields}
    assert set(RAY_FIELDS) == theirs
