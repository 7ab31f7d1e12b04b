"""`reprise init`, and the site file that it writes or reads."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from reprise.cli import app
from reprise.cluster.doctor.facts import parse_facts
from reprise.cluster.hosts.hostfile import read_hostfile
from reprise.cluster.init import allocation, hostfile_text, site_text
from reprise.cluster.site import load_site
from reprise.core.errors import OperatorError
from tests.cluster.make import base


def test_what_it_writes_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site, hostfile = tmp_path / "conf" / "site.toml", tmp_path / "hostfile"
    monkeypatch.setenv("SITE", str(site))
    monkeypatch.setenv("http_proxy", "http://me:secret@proxy.example:3128")
    monkeypatch.setenv("no_proxy", "localhost")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "node[01-03],head")
    monkeypatch.setenv("SLURM_GPUS_ON_NODE", "4")
    result = CliRunner().invoke(app, ["init", str(hostfile)])
    assert result.exit_code == 0, result.output
    assert load_site().variables == {"no_proxy": "localhost"}
    assert "secret" not in site.read_text(
        encoding="utf-8"
    ) and "***@proxy.example" in site.read_text(encoding="utf-8")
    _, found = read_hostfile(hostfile)
    assert found is not None
    assert [(host.name, host.slots) for host in found.hosts] == [
        ("node01", 4),
        ("node02", 4),
        ("node03", 4),
        ("head", 4),
    ]
    site.write_text('profile = "h20"\n')
    again = CliRunner().invoke(app, ["init", str(hostfile)])
    assert again.exit_code == 0 and site.read_text(encoding="utf-8") == 'profile = "h20"\n'
    assert "left as it is" in again.output


def test_every_line_has_its_reason(tmp_path: Path) -> None:
    text = base("n2") + "= mount /mnt/$(id) nfs4\n= interface eth0 up 200000\n"
    written = site_text(parse_facts("n2", text), "h20", "GPUs found", "/opt/it's here/python")
    path = tmp_path / "site.toml"
    path.write_text(written)
    assert load_site(path).paths.python == "/opt/it's here/python"
    assert "200 Gbit/s" in written and "mount of nfs4" in written
    assert all("#" in line for line in written.splitlines() if "=" in line)


def test_allocations(tmp_path: Path) -> None:
    pbs, mpi = tmp_path / "pbs", tmp_path / "mpi"
    pbs.write_text("n1\nn1\nn2\n")
    mpi.write_text("w-0.job slots=8\nw-1.job slots=8\n")
    nowhere = tmp_path / "none"
    found = allocation({"PBS_NODEFILE": str(pbs)}, nowhere)
    assert found is not None and found.hosts == ("n1", "n2")
    found = allocation({"VC_WORKER_HOSTS": "a.svc,b.svc"}, nowhere)
    assert found is not None and found.hosts == ("a.svc", "b.svc")
    found = allocation({}, mpi)
    assert found is not None and (found.hosts, found.slots) == (("w-0.job", "w-1.job"), 8)
    assert allocation({}, nowhere) is None
    assert "here slots=8" in hostfile_text(None, "here", 8)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[paths]\npython = 'ray'\n", "paths.python: expected an absolute path"),
        ("[pahts]\n", "pahts: unknown key"),
        ("[variables]\n'a b' = 'x'\n", "is not a valid name of an environment variable"),
        ("[container]\nimage = '--privileged'\n", "container.image: expected one plain word"),
        ("[network]\ninterface = 'eth0; reboot'\n", "network.interface: expected the name"),
        ("[ports]\ngcs = 80\n", "ports.gcs: expected a port"),
        ("profile = '../x'\n", "profile: "),
        ("[ssh\n", "not valid TOML"),
    ],
)
def test_a_wrong_site_file_is_told(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "site.toml"
    path.write_text(text)
    with pytest.raises(OperatorError) as caught:
        load_site(path)
    assert said in caught.value.message


def test_a_site_file_that_is_named_must_be_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SITE", str(tmp_path / "none.toml"))
    with pytest.raises(OperatorError):
        load_site()
    monkeypatch.delenv("SITE")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert load_site().machine is None
