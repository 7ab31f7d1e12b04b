from __future__ import annotations

from pathlib import Path

import pytest
from lock.registry import Registry, TokenServer, registry

from reprise.core.errors import CannotTell, OperatorError
from reprise.core.findings import Verdict
from reprise.flows.lock.update import lock_images, update_entry
from reprise.hub.registry import Reference, resolve_tag
from reprise.lock import read_lock


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> object:
    with registry(tmp_path_factory.mktemp("registry")) as found:
        yield found


def lock_with(folder: Path, host: str, more: str = "") -> Path:
    path = folder / "versions.lock"
    path.write_text(
        "# kept\nschema = 1\n\n[image.site]\n"
        f'machines = ["h20"]\nrepository = "{host}/verl"  # with a port\nwant = "v1"\n{more}'
        '\n[image.site.contents]\npython = "3.12"\n'
    )
    return path


def test_a_tag_is_resolved_and_written(served: Registry, tmp_path: Path) -> None:
    digest, image_id = served.push("verl", "v1", "one")
    path = lock_with(tmp_path, served.host, 'unpinned = "not resolved yet"\n')
    seen = lock_images(path, [], write=False)
    assert seen.verdict is Verdict.OK
    assert "not written" in seen.findings[0].message
    assert read_lock(path).image["site"].digest is None
    assert lock_images(path, ["site"], write=True).verdict is Verdict.OK
    image = read_lock(path).image["site"]
    assert (image.digest, image.image_id, image.unpinned) == (digest, image_id, "")
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# kept\n") and "# with a port\n" in text
    assert text.endswith('\n[image.site.contents]\npython = "3.12"\n')


def test_a_tag_that_moved_is_refused(served: Registry, tmp_path: Path) -> None:
    old, _ = served.push("verl", "v1", "one")
    path = lock_with(tmp_path, served.host, f'digest = "{old}"\n')
    assert lock_images(path, [], write=True).verdict is Verdict.OK
    new, _ = served.push("verl", "v1", "two")
    before = path.read_bytes()
    report = lock_images(path, [], write=True)
    assert report.verdict is Verdict.PROBLEM
    (finding,) = report.errors()
    assert old in finding.message and new in finding.message
    assert "lock update image.site --to v1" in finding.fix
    assert path.read_bytes() == before
    moved = update_entry(path, "image.site", "v1")
    assert {row["key"] for row in moved.data["moved"]} == {"digest", "image_id"}
    assert read_lock(path).image["site"].digest == new


def test_a_list_of_platforms_keeps_its_own_digest(served: Registry) -> None:
    amd, amd_id = served.push("many", "amd", "x")
    arm, arm_id = served.push("many", "arm", "x", arch="arm64")
    digest = served.push_index("many", "v1", {"linux/amd64": amd, "linux/arm64": arm})
    found = resolve_tag(f"{served.host}/many", "v1", "linux/arm64")
    assert (found.digest, found.image_id) == (digest, arm_id)
    assert resolve_tag(f"{served.host}/many", "v1", "linux/amd64").image_id == amd_id
    with pytest.raises(
        OperatorError, match="linux/s390x is missing; the tag has linux/amd64, linux/arm64"
    ):
        resolve_tag(f"{served.host}/many", "v1", "linux/s390x")
    with pytest.raises(OperatorError, match="is for linux/amd64"):
        resolve_tag(f"{served.host}/many", "amd", "linux/arm64")


def test_what_is_not_there_and_who_cannot_be_asked(served: Registry, tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match="has no verl") as caught:
        resolve_tag(f"{served.host}/verl", "nothing", "linux/amd64")
    assert not isinstance(caught.value, CannotTell)
    with pytest.raises(CannotTell):
        resolve_tag("127.0.0.1:1/verl", "v1", "linux/amd64")
    report = lock_images(lock_with(tmp_path, "127.0.0.1:1"), [], write=True)
    assert report.verdict is Verdict.UNKNOWN
    assert "not verified" in report.findings[0].message


def test_a_manifest_that_is_not_what_it_claims_is_refused(served: Registry) -> None:
    digest, _ = served.push("bad", "v1", "to be damaged")
    served.damage(digest)
    with pytest.raises(OperatorError):
        resolve_tag(f"{served.host}/bad", "v1", "linux/amd64")


def test_the_token_flow_of_docker_hub(tmp_path: Path) -> None:
    tokens = TokenServer(tmp_path / "tokens")
    with registry(tmp_path / "r") as plain:
        digest, image_id = plain.push("org/verl", "v1", "x")
    with tokens.serve() as auth, registry(tmp_path / "r", auth) as closed:
        found = resolve_tag(f"{closed.host}/org/verl", "v1", "linux/amd64")
    assert (found.digest, found.image_id) == (digest, image_id)
    (asked,) = tokens.asked
    assert asked["scope"] == ["repository:org/verl:pull"]
    assert asked["service"] == ["registry"]


def test_a_mirror_is_asked_first(served: Registry, tmp_path: Path) -> None:
    digest, _ = served.push("mirror/verl", "v1", "x")
    more = f'mirrors = ["{served.host}/mirror/verl"]\n'
    path = lock_with(tmp_path, "127.0.0.1:1", more)
    report = lock_images(path, [], write=True)
    assert report.data["images"][0]["from"] == f"{served.host}/mirror/verl"
    assert read_lock(path).image["site"].digest == digest


@pytest.mark.parametrize(
    ("repository", "host", "name"),
    [
        ("verlai/verl", "registry-1.docker.io", "verlai/verl"),
        ("debian", "registry-1.docker.io", "library/debian"),
        ("docker.io/verlai/verl", "registry-1.docker.io", "verlai/verl"),
        ("host:5000/verl", "host:5000", "verl"),
        ("localhost/verl", "localhost", "verl"),
        ("registry.example/a/b", "registry.example", "a/b"),
    ],
)
def test_where_a_repository_lies(repository: str, host: str, name: str) -> None:
    assert Reference.parse(repository) == Reference(host, name)
