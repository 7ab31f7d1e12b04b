"""The Debian that is made where no registry is reached, from a snapshot."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.images.bed import ROOT, SBIN, Engine, sh
from tests.images.mirror import Mirror, own_mirror

pytestmark = [pytest.mark.containers, pytest.mark.full]


def test_a_snapshot_gives_the_same_base_again(engine: Engine, tmp_path: Path) -> None:
    mirror = Mirror(tmp_path, own_mirror())
    layers = []
    with mirror.serve(engine.gateway) as url:
        env = {**engine.env, "PATH": SBIN, "APT_SOURCES": f"{url} bookworm main"}
        for mirror.frozen in (False, True):
            name = f"snapshot/debian:{mirror.frozen}"
            sh("sh", str(ROOT / "scripts" / "image_base.sh"), name, env=env)
            told = engine.docker("image", "inspect", "--format", "{{json .RootFS.Layers}}", name)
            layers.append(json.loads(told))
    assert layers[0] == layers[1] and len(layers[0]) == 1
    assert any("/libc6_" in path for path in mirror.asked)
    lists = engine.inside(name, "cat /etc/apt/sources.list.d/*")
    assert lists == f"deb [check-valid-until=no] {url} bookworm main"
