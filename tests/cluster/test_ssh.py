"""SSH to real daemons: what can go wrong is told apart, and nothing stays behind."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from reprise.cluster.answer import AnswerKind, classify
from reprise.cluster.hosts.hostfile import Host
from reprise.cluster.site import SshSettings
from reprise.cluster.ssh import Ssh, assignments, run_here
from tests.cluster.bed import Bed


def settings(bed: Bed, **values: int) -> SshSettings:
    return SshSettings(config=str(bed.config), **{"connect_timeout": 6, **values})


def hosts(bed: Bed) -> list[Host]:
    return [Host(host.name, 1, n) for n, host in enumerate(bed.hosts, start=1)]


def test_all_hosts_answer_and_every_connection_is_closed(bed: Bed) -> None:
    with Ssh(settings(bed)) as ssh:
        folder = ssh._folder
        answers = ssh.run([(host, "hostname; cat; exit 0") for host in hosts(bed)], limit=60)
        again = ssh.run([(host, "echo $REMOTE") for host in hosts(bed)], limit=60)
        assert [answer.output.strip() for answer in answers] == ["node1", "node2", "node3", "node4"]
        assert all(answer.ok for answer in again)
        assert len(list(folder.iterdir())) == 4
    assert not folder.exists()
    deadline = time.monotonic() + 90
    while masters(folder) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert masters(folder) == []


def masters(folder: Path) -> list[str]:
    found = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    return [line for line in found.stdout.splitlines() if str(folder) in line]


def test_outcomes_are_told_apart(bed: Bed) -> None:
    first, second, third, fourth = hosts(bed)
    nobody = Host("10.255.255.1", 1, 9)
    with Ssh(settings(bed)) as ssh:
        answers = ssh.run(
            [
                (first, "exit 3"),
                (second, "no-such-command-here"),
                (third, "exit 255"),
                (fourth, "echo before; sleep 1; kill -9 $PPID"),
                (nobody, "true"),
                (Host("node1", 1, 1, port=1), "true"),
                (Host("node1", 1, 1, user="stranger"), "true"),
            ],
            limit=60,
        )
    found = [(answer.outcome, answer.code) for answer in answers]
    assert found[:3] == [
        (AnswerKind.FAILED, 3),
        (AnswerKind.NOT_FOUND, 127),
        (AnswerKind.FAILED, 255),
    ]
    assert [outcome for outcome, _ in found[3:]] == [
        AnswerKind.CUT,
        AnswerKind.UNREACHABLE,
        AnswerKind.UNREACHABLE,
        AnswerKind.DENIED,
    ]
    assert "not found" in answers[1].said and answers[3].output.strip() == "before"


def test_a_host_that_hangs_delays_nobody(bed: Bed) -> None:
    order: list[str] = []
    first, *others = hosts(bed)
    with Ssh(settings(bed, parallel=2)) as ssh:
        jobs = [(first, "echo in; exec sleep 600"), *((host, "true") for host in others)]
        answers = ssh.run(jobs, limit=20, on_answer=lambda answer: order.append(answer.host))
    assert answers[0].outcome is AnswerKind.HUNG and "no answer within 20 s" in answers[0].said
    assert [answer.ok for answer in answers[1:]] == [True, True, True]
    assert order[-1] == "node1"
    for line in bed.hosts[0].processes():
        if "sleep 600" in line:
            bed.hosts[0].run("kill", line.split()[0])


def test_host_keys_are_checked(bed: Bed) -> None:
    first, second, third, _ = hosts(bed)
    lines = bed.known_hosts.read_text(encoding="utf-8").splitlines(keepends=True)
    key = {line.split()[0]: line.split(maxsplit=1)[1] for line in lines}
    changed = "".join([f"node1 {key['node3']}", f"node3 {key['node3']}"])
    bed.known_hosts.write_text(changed)
    try:
        with Ssh(settings(bed)) as ssh:
            answers = ssh.run([(host, "true") for host in (first, second, third)], limit=60)
    finally:
        bed.known_hosts.write_text("".join(lines))
    assert [answer.outcome for answer in answers] == [
        AnswerKind.KEY_CHANGED,
        AnswerKind.KEY_UNKNOWN,
        AnswerKind.OK,
    ]
    assert bed.known_hosts.read_text(encoding="utf-8") == "".join(lines)


def test_values_reach_the_host_as_they_are(bed: Bed, tmp_path: Path) -> None:
    mark = tmp_path / "made"
    nasty = [f"$(touch {mark})", f"`touch {mark}`", f"'; touch {mark}; '", "a\nb\n\n", "-n", "é \\"]
    values = {f"V{n}": text for n, text in enumerate(nasty)}
    script = assignments(values, export=True) + "\n".join(
        f'printf "%s" "$V{n}" | od -An -tx1 | tr -d " \\n"; echo' for n in range(len(nasty))
    )
    first, *_ = hosts(bed)
    with Ssh(settings(bed)) as ssh:
        (answer,) = ssh.run([(first, script)], limit=60)
    assert [bytes.fromhex(line).decode() for line in answer.output.split()] == nasty
    assert not mark.exists()
    assert not (bed.hosts[0].root / str(mark).lstrip("/")).exists()


def test_a_banner_around_the_answer_is_dropped() -> None:
    raw = "*** Welcome, quota 90% ***\n\n@@begin n\n/usr/bin/ray\n\n@@end n 0\nbye\n"
    assert classify(raw, "", 0, "n", True) == (AnswerKind.OK, 0, "/usr/bin/ray\n")
    assert classify("welcome\n", "bash: sh: command not found", 127, "n", True)[0] is (
        AnswerKind.NOT_FOUND
    )
    assert classify("", "ssh: connect to host n4 port 22: Connection timed out", 255, "n", False)[
        0
    ] is (AnswerKind.UNREACHABLE)


def test_a_script_that_was_cut_runs_nothing(tmp_path: Path) -> None:
    from reprise.cluster.ssh import framed

    whole = framed(f"touch {tmp_path}/made\nsleep 0", "n")
    subprocess.run(["sh", "-s"], input=whole[: len(whole) // 2].encode(), check=False)
    assert not (tmp_path / "made").exists()


def test_here_without_ssh() -> None:
    answer = run_here("here", "echo $((6 * 7)); exit 4", limit=10)
    assert (answer.outcome, answer.code, answer.output.strip()) == (AnswerKind.FAILED, 4, "42")


def test_nothing_of_the_bed_is_left(bed: Bed) -> None:
    host = bed.hosts[3]
    pid = host.pid()
    bed.stop(host)
    deadline = time.monotonic() + 90
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path(f"/proc/{pid}").exists()
    bed.start(host)
