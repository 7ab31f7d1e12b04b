"""Addresses that are taken for the Jobs API's."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from reprise.cluster.address import jobs_address
from reprise.cluster.doctor import doctor
from reprise.cluster.hosts.hostfile import Host
from reprise.cluster.site import SshSettings
from reprise.cluster.ssh import Ssh
from reprise.core.errors import OperatorError
from tests.cluster.make import base, judged, of


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("http://10.8.0.11:6379", "6379 is the cluster's own port"),
        ("ray://10.8.0.11:10001", "ray:// is not the Jobs API's protocol"),
        ("http://127.0.0.1:8265", "not the head"),
        ("http://fd00::12:8265", "needs brackets"),
        ("http://me:secret@head:8265", "contains a login"),
        ("https://secret@head:8265", "contains a login"),
        ("http://10.8.0.11", "port is missing"),
        ("http://10.8.0.11:99999", "range"),
        ("", "host or port is missing"),
    ],
)
def test_what_is_not_the_jobs_api(text: str, said: str) -> None:
    with pytest.raises(OperatorError) as caught:
        jobs_address(text)
    assert said in caught.value.message


def test_what_is() -> None:
    assert jobs_address("10.8.0.11:8265") == ("http://10.8.0.11:8265", "http:// was added")
    assert jobs_address("http://10.8.0.11:8265/") == ("http://10.8.0.11:8265", None)
    assert jobs_address("http://127.0.0.1:8265", on_head=True) == ("http://127.0.0.1:8265", None)
    assert jobs_address("http://[FD00::12]:8265")[0] == "http://[fd00::12]:8265"


def test_the_doctor_tells_a_wrong_one() -> None:
    texts = {"n1": base("n1"), "n2": base("n2") + "= env RAY_ADDRESS 10.8.0.11:6379 \n"}
    (finding,) = of(judged(texts), "ray-address")
    assert finding.where == "n2" and "8265" in finding.fix


def test_an_ssh_config_that_hangs_does_not_keep_the_name_from_being_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "config"
    config.write_text('Match exec "sleep 300"\n  HostName elsewhere.invalid\n')
    monkeypatch.setattr(doctor, "_NAME_SECONDS", 0.5)
    began = time.monotonic()
    with Ssh(SshSettings(config=str(config))) as ssh:
        assert doctor.head_address(Host("192.0.2.7", 1, 1), ssh) == "192.0.2.7"
    assert time.monotonic() - began < 100
