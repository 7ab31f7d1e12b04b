"""Recipe, site file and the hosts' own facts agree on the kind of machine, or it is an error."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from reprise.cli import app
from reprise.cluster.doctor.doctor import diagnose
from reprise.cluster.site import load_site
from reprise.core.findings import Report, Severity, State
from tests.cluster.bed import Bed
from tests.cluster.conftest import Operator
from tests.cluster.make import base, context, judged, of

H20S = "".join(f"= pci 0x10de 0000:{n}8:00.0 nvidia\n" for n in range(8))
S5000S = "".join(f"= device 0x1ed5 /dev/mtgpu.{n}\n" for n in range(8))


def of_hosts(text: str, machine: str, named: bool) -> Report:
    what = context({"n1": base("n1", 0) + text, "n2": base("n2", 0) + text}, machine=machine)
    what.named = named
    return diagnose(what)[0]


@pytest.mark.parametrize(("text", "maker"), [(H20S, "NVIDIA"), (S5000S, "Moore Threads")])
def test_gpus_that_no_rule_checks_are_an_error(text: str, maker: str) -> None:
    report = of_hosts(text, "cpu", named=False)
    (finding,) = of(report, "accelerator")
    assert finding.severity is Severity.ERROR and report.exit_code == 1
    assert finding.where == "n[1-2]" and f"8 {maker} GPUs" in finding.message
    assert ("h20" in finding.fix) is (maker == "NVIDIA")
    assert ("s5000 (musa)" in finding.fix) is (maker == "Moore Threads")


def test_a_machine_that_was_named_leaves_the_gpus_unused() -> None:
    (finding,) = of(of_hosts(H20S, "cpu", named=True), "accelerator")
    assert finding.severity is Severity.WARNING and "--machine cpu" in finding.message


def test_the_gpus_of_another_vendor() -> None:
    (finding,) = of(of_hosts(S5000S, "h20", named=True), "accelerator")
    assert finding.severity is Severity.ERROR and "machine h20 does not have" in finding.message


@pytest.mark.parametrize(
    "text",
    [
        "",
        "= pci 0x1ed5 0000:01:00.0 mtgpu\n" + H20S,  # a display adapter among the H20s
        "= pci 0x1ed5 0000:01:00.0 vfio-pci\n",  # of a virtual machine
    ],
)
def test_no_contradiction(text: str) -> None:
    report = judged({"n1": base("n1") + text})
    assert not of(report, "accelerator")
    assert ("accelerator", State.PASSED) in [(c.rule, c.state) for c in report.checks]


def test_a_bus_that_was_not_read_is_unknown() -> None:
    text = base("n1", 0).replace("= pci.read yes\n", "? pci.read /sys is not mounted\n")
    report = judged({"n1": text}, machine="cpu")
    assert of(report, "accelerator")[0].message.endswith("/sys is not mounted")
    assert report.exit_code == 2


def test_the_bus_shows_whether_a_gpu_fell_off_the_driver() -> None:
    (finding,) = of(judged({"n1": base("n1", 7) + H20S}), "gpu-count")
    assert finding.message == "7 of 8 GPUs (slots=8); the PCI bus has 8"


def test_init_on_a_login_node_names_no_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if list(Path("/dev").glob("nvidia[0-9]*")) or list(Path("/dev").glob("mtgpu.*")):
        pytest.skip("this machine has GPUs")
    site = tmp_path / "site.toml"
    monkeypatch.setenv("SITE", str(site))
    done = CliRunner().invoke(app, ["init", str(tmp_path / "hosts")])
    assert done.exit_code == 0 and "kind of your training hosts is unknown" in done.output
    assert load_site().machine is None and '# machine = "h20"' in site.read_text(encoding="utf-8")
    monkeypatch.setenv("SITE", str(tmp_path / "named.toml"))
    CliRunner().invoke(app, ["init", str(tmp_path / "hosts"), "--machine", "s5000"])
    assert load_site().machine == "s5000"


def test_a_recipe_for_gpus_and_a_site_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, hosts = tmp_path / "site.toml", tmp_path / "hosts"
    site.write_text('machine = "cpu"\n')
    hosts.write_text("nowhere.invalid slots=8\n")
    monkeypatch.setenv("SITE", str(site))
    done = CliRunner().invoke(app, ["train", "hy3", str(hosts), "--dry-run"])
    said = " ".join(done.output.split())
    assert done.exit_code == 1
    assert "the site file names machine cpu, which has no GPU; recipe hy3 is for h20" in said


@pytest.fixture
def gpu_host(bed: Bed) -> Iterator[Bed]:
    """node2 has eight GPUs on its PCI bus, and a driver that is not loaded."""
    host = bed.host("node2")
    host.run("mount", "-t", "tmpfs", "pci", "/sys/bus/pci/devices")
    script = (
        "for n in 0 1 2 3 4 5 6 7; do d=/sys/bus/pci/devices/0000:${n}8:00.0; mkdir $d; "
        "echo 0x10de >$d/vendor; echo 0x030200 >$d/class; done"
    )
    host.run("sh", "-c", script)
    yield bed
    host.run("umount", "/sys/bus/pci/devices")


@pytest.mark.rehearsal
def test_a_site_file_of_a_login_node(gpu_host: Bed, operator: Operator) -> None:
    """The machine of the site file has no GPU, a host has eight: never fine."""
    hostfile = str(gpu_host.hostfile())
    wrong = operator.run("doctor", hostfile)
    ((where, message),) = wrong.of("accelerator")
    assert wrong.code == 1 and where == "node2" and "8 NVIDIA GPUs" in message
    started = operator.run("cluster", "up", hostfile)
    assert started.code == 1 and not list(operator.state.rglob("cluster.json"))
    named = operator.run("doctor", hostfile, "--machine", "cpu")
    assert named.code == 0, named.json["findings"]
