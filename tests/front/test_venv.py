"""scripts/venv.sh on a small project: what it makes, keeps, repairs and refuses."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from front.mini import ROOT, Mini, make_mini, write_wheel
from tests.saying import until_said


@pytest.fixture(scope="module")
def mini(tmp_path_factory: pytest.TempPathFactory) -> Mini:
    made = make_mini(tmp_path_factory.mktemp("project") / "a folder")
    done = made.setup()
    assert done.returncode == 0, done.stderr
    return made


def test_makes_what_the_lock_names(mini: Mini) -> None:
    mini.lock(write_wheel(mini.wheels, "alpha", "1.0"))
    assert mini.setup().returncode == 0
    assert mini.version("alpha") == "1.0"
    assert list((mini.root / ".venv").rglob("alpha*.pyc")), "bytecode was not compiled"


def test_unchanged_needs_no_network_and_says_nothing(mini: Mini) -> None:
    assert mini.setup().returncode == 0
    # Any contact with an index would fail.
    again = mini.setup(extra={"REPRISE_WHEELS": "", "REPRISE_INDEX_URL": "http://127.0.0.1:9/"})
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")


def test_a_change_is_installed_and_what_is_no_longer_named_goes(mini: Mini) -> None:
    mini.lock(write_wheel(mini.wheels, "alpha", "1.0"), write_wheel(mini.wheels, "beta", "1.0"))
    assert mini.setup().returncode == 0
    assert mini.version("beta") == "1.0"
    mini.lock(write_wheel(mini.wheels, "alpha", "2.0"))
    assert mini.setup().returncode == 0
    assert (mini.version("alpha"), mini.version("beta")) == ("2.0", None)


def test_a_wheel_with_another_hash_is_refused_and_the_next_call_repairs(mini: Mini) -> None:
    good = write_wheel(mini.wheels, "gamma", "1.0")
    mini.lock(good.replace("sha256:", "sha256:0")[: len(good) - 1] + "\n")
    refused = mini.setup()
    assert refused.returncode == 1
    assert "THESE PACKAGES DO NOT MATCH THE HASHES" in refused.stderr
    assert "fix:" in refused.stderr
    mini.lock(good)
    assert mini.setup().returncode == 0
    assert mini.version("gamma") == "1.0"


def test_the_test_environment_serves_the_operator(mini: Mini) -> None:
    line = write_wheel(mini.wheels, "alpha", "1.0")
    mini.lock(line)
    mini.lock(line, write_wheel(mini.wheels, "beta", "1.0"), kind="dev")
    assert mini.setup("dev").returncode == 0
    again = mini.setup("operator")
    assert (again.returncode, again.stderr) == (0, "")
    assert mini.version("beta") == "1.0"


def test_with_uv_on_the_path(mini: Mini) -> None:
    mini.lock(write_wheel(mini.wheels, "delta", "3.0"))
    done = mini.setup(path=str(Path(sys.executable).parent))
    assert done.returncode == 0, done.stderr
    assert mini.version("delta") == "3.0"
    log = (mini.root / ".cache" / "setup-operator.log").read_text(encoding="utf-8")
    assert "+ delta==3.0" in log, log
    assert "trying pip" not in log


def test_uv_follows_the_settings_of_pip(mini: Mini, tmp_path: Path) -> None:
    """A site that has set up pip alone: its folder of wheels, and no index."""
    config = tmp_path / "pip.conf"
    config.write_text(f"[global]\nno-index = true\nfind-links = {mini.wheels.as_uri()}\n")
    mini.lock(write_wheel(mini.wheels, "zeta", "1.0"))
    done = mini.setup(
        path=str(Path(sys.executable).parent),
        extra={"REPRISE_WHEELS": "", "PIP_CONFIG_FILE": str(config)},
    )
    assert done.returncode == 0, done.stderr
    assert mini.version("zeta") == "1.0"
    log = (mini.root / ".cache" / "setup-operator.log").read_text(encoding="utf-8")
    assert "+ zeta==1.0" in log, log
    assert "trying pip" not in log


def test_where_the_locked_uv_is_not_available_pip_installs(tmp_path: Path) -> None:
    made = make_mini(tmp_path / "project")
    shutil.copy(ROOT / "requirements" / "uv.txt", made.root / "requirements")
    done = made.setup()
    assert done.returncode == 0, done.stderr
    log = (made.root / ".cache" / "setup-operator.log").read_text(encoding="utf-8")
    assert "the locked uv is not available" in log
    assert made.version("alpha") == "1.0"


def test_the_locked_uv_is_installed_first_and_used(tmp_path: Path) -> None:
    """Another program under uv's name, in a wheel with the locked version's number."""
    made = make_mini(tmp_path / "project")
    line = write_wheel(made.wheels, "uv", "9.9.9")
    (made.root / "requirements" / "uv.txt").write_text(line)
    done = made.setup(path=str(Path(sys.executable).parent))
    assert done.returncode == 0, done.stderr
    assert made.version("uv") == "9.9.9"
    assert made.version("alpha") == "1.0"


@pytest.mark.parametrize(
    ("listing", "expected"),
    [
        ("", {}),
        (
            "global.index-url='https://index.example/simple'\n"
            ":env:.extra-index-url='https://a.example/s  https://b.example/s'\n",
            {
                "UV_DEFAULT_INDEX": "https://index.example/simple",
                "UV_INDEX": "https://a.example/s https://b.example/s",
            },
        ),
        (
            "global.find-links='/a\\n/b'\ninstall.find-links='/c\\n/d e'\nlist.format='json'\n",
            {"UV_FIND_LINKS": "/c,/d,e"},
        ),
        ("global.no-index='false'\n:env:.no-cache-dir='1'\n", {"UV_NO_CACHE": "1"}),
        ("global.default-timeout='60'\nglobal.cert='/c.pem'\nglobal.trusted-host='a b:1'\n",
         {"UV_HTTP_TIMEOUT": "60", "SSL_CERT_FILE": "/c.pem", "UV_INSECURE_HOST": "a b:1"}),
    ],
)  # fmt: skip
def test_pip_settings_become_those_of_uv(listing: str, expected: dict[str, str]) -> None:
    spec = importlib.util.spec_from_file_location("pip_settings", ROOT / "scripts/pip_settings.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.variables(module.settings(listing)) == expected


def test_two_at_once_make_one_environment(mini: Mini) -> None:
    mini.lock(write_wheel(mini.wheels, "epsilon", "1.0"))
    both = [
        subprocess.Popen(
            mini.command(), cwd=mini.root, env=mini.environment(), stderr=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    said = [process.communicate()[1] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert sum("ready" in text for text in said) == 1
    assert mini.version("epsilon") == "1.0"


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_set_up_is_repaired(tmp_path: Path, sent: signal.Signals) -> None:
    mini = make_mini(tmp_path / "project")
    process = subprocess.Popen(
        mini.command(),
        cwd=mini.root,
        env=mini.environment(),
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stderr is not None
    until_said(process.stderr, "environment on Python")  # the first step has begun
    marker = str(mini.root)
    if sent is signal.SIGKILL:
        os.killpg(process.pid, sent)
    else:
        process.send_signal(sent)
    process.wait()
    process.stderr.close()
    assert process.returncode == {2: 130, 9: -9}[sent.value]
    _wait_until_gone(marker)
    assert mini.setup().returncode == 0
    assert mini.version("alpha") == "1.0"


def _wait_until_gone(marker: str) -> None:
    """The processes below it were ended too (they need a moment)."""
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        left = [
            line
            for line in subprocess.check_output(["ps", "-eo", "args"], text=True).splitlines()
            if f"{marker}/.venv" in line
        ]
        if not left:
            return
        time.sleep(0.1)
    pytest.fail(f"still running: {left}")


def test_a_copied_checkout_gets_an_environment_of_its_own(mini: Mini, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-a", mini.root, copy], check=True)
    moved = Mini(copy, copy / "wheels")
    done = moved.setup()
    assert done.returncode == 0, done.stderr
    script = (copy / ".venv" / "bin" / "pip").read_text(encoding="utf-8")
    assert str(copy) in script
    assert str(mini.root) not in script


def test_a_checkout_that_cannot_be_written_is_told_as_such(tmp_path: Path) -> None:
    made = make_mini(tmp_path / "a folder")
    # Permissions do not hinder root; where this lies nobody can make a folder.
    (made.root / ".cache").symlink_to("/proc/self/nowhere")
    done = made.setup()
    assert done.returncode == 1
    assert f"cannot write to {made.root}" in done.stderr
    assert "fix: as the owner of the checkout" in done.stderr
    assert not (made.root / ".venv").exists()


def test_a_folder_that_is_no_environment_is_left_alone(tmp_path: Path) -> None:
    mini = make_mini(tmp_path / "project")
    (mini.root / ".venv").mkdir()
    (mini.root / ".venv" / "notes.txt").write_text("mine")
    done = mini.setup()
    assert done.returncode == 1
    assert "mv .venv .venv.old" in done.stderr
    assert (mini.root / ".venv" / "notes.txt").read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "no environment named"),
        (["opertor"], "unknown argument: opertor"),
        (["operator", "--python"], "--python needs a value"),
        (["operator", "--python", "/bin/false"], "expected Python 3.11 or 3.12"),
    ],
)
def test_wrong_usage_says_what_to_type(tmp_path: Path, arguments: list[str], said: str) -> None:
    mini = make_mini(tmp_path / "project")
    done = subprocess.run(
        ["sh", "scripts/venv.sh", *arguments],
        cwd=mini.root,
        env=mini.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert said in done.stderr
    assert "fix:" in done.stderr


@pytest.mark.parametrize("constraint", ["", "torch<=3"])
def test_without_a_cpu_build_the_one_that_there_is_serves(tmp_path: Path, constraint: str) -> None:
    # A site's constraint makes pip report the missing build in other words.
    mini = make_mini(tmp_path / "project")
    alpha = write_wheel(mini.wheels, "alpha", "1.0")
    mini.lock(write_wheel(mini.wheels, "torch", "2.0"), kind="rehearsal")
    mini.lock(alpha, kind="rehearsal-cuda")
    plugins = mini.root / "plugins"
    plugins.mkdir()
    for name in ("pyproject.toml", "backend.py"):
        (plugins / name).write_text((mini.root / name).read_text(encoding="utf-8"))
    limits = tmp_path / "constraints.txt"
    limits.write_text(constraint + "\n")
    done = mini.setup("rehearsal", extra={"PIP_CONSTRAINT": str(limits)})
    assert mini.version("torch", ".venv-rehearsal") == "2.0", done.stderr
    assert mini.version("alpha", ".venv-rehearsal") == "1.0", done.stderr
