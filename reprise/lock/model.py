"""What versions.lock may say: one frozen model a kind of entry.

An entry names what a human wants (`want`) and what is locked. Identity is what `identity` returns:
the values that decide which bytes a machine gets. Notes, licences, mirrors and comments are not
part of it, so they can be improved without changing a machine's hash.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    model_validator,
)

from reprise.core.errors import OperatorError
from reprise.machines.registry import lock_keys, machine_named

__all__ = [
    "KINDS",
    "MACHINES",
    "Contradiction",
    "Data",
    "Entry",
    "Environment",
    "Image",
    "Lock",
    "Machine",
    "Model",
    "Package",
    "Shipped",
    "Submodule",
    "Tree",
]

MACHINES = lock_keys()


def _lock_key(value: str) -> str:
    """Translate any name of a machine to the one that this file uses."""
    if value in MACHINES:
        return value
    try:
        return machine_named(value).lock
    except OperatorError as error:
        raise ValueError(f"{error.message}; expected one of {', '.join(MACHINES)}") from None


Machine = Annotated[str, AfterValidator(_lock_key)]
"""A machine's key in this file (`lock` of reprise.machines.registry.Machine)."""

Text = Annotated[str, StringConstraints(min_length=1)]
Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]*$")]


def _lower(value: object) -> object:
    """Git itself reads upper-case hex: it is taken as its lower case (`lock check` says so)."""
    return value.lower() if isinstance(value, str) else value


GitHash = Annotated[str, BeforeValidator(_lower), StringConstraints(pattern=r"^[0-9a-f]{40}$")]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Digest = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]
Platform = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+/[a-z0-9]+(/[a-z0-9]+)?$")]


def _stays_inside(path: str) -> str:
    """These values become paths below the project's root: they must not lead out of it."""
    if any(part in ("", ".", "..") for part in path.split("/")):
        raise ValueError("must be a relative path without empty parts, '.' or '..'")
    return path


RelativePath = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9._/+-]+$"), AfterValidator(_stays_inside)
]
# An option of git in the place of a URL would be run: nothing may begin with a dash.
Url = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9/.][^\s]*$")]
# A registry's host may carry a port; what follows the last slash carries neither tag nor digest.
Repository = Annotated[
    str,
    StringConstraints(
        pattern=r"^([A-Za-z0-9][A-Za-z0-9.-]*(:[0-9]+)?/)?[a-z0-9]+([._/-]+[a-z0-9]+)*$"
    ),
]
Tag = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$")]
HubRepo = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]+/[A-Za-z0-9._-]+$")]
Count = Annotated[int, Field(gt=0)]


class Base(BaseModel):
    """Unknown keys are refused: a misspelt key must not pass for an absent one."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=False)


class Entry(Base):
    """What every entry has. `unpinned` says why the locked values are not known."""

    identity_keys: ClassVar[tuple[str, ...]] = ()
    pinning_keys: ClassVar[tuple[str, ...]] = ()

    machines: Annotated[tuple[Machine, ...], Field(min_length=1)]
    want: str = ""
    licence: str = ""
    mirrors: tuple[Url, ...] = ()
    note: str = ""
    unpinned: str = ""

    @property
    def missing(self) -> tuple[str, ...]:
        """The keys without which this entry is not pinned, and which it lacks."""
        return tuple(key for key in self.pinning_keys if not getattr(self, key))

    def identity(self) -> dict[str, Any]:
        """The values that decide which bytes a machine gets (JSON values; None where unknown)."""
        return self.model_dump(mode="json", include=set(self.identity_keys))


class Submodule(Base):
    """A submodule as its superproject records it. `fetch` says whether setup initialises it."""

    url: Url
    commit: GitHash
    tree: GitHash | None = None
    fetch: bool = False
    note: str = ""


class Tree(Entry):
    """A source tree: a git repository at one commit, checked out at `path`.

    `import_root` is what belongs on PYTHONPATH, relative to `path`; `import_package` is the folder
    that must be directly below it. `distribution` is what Python's metadata would call it.
    `from_image` says that the tree comes inside the image and is not checked out.
    """

    identity_keys = ("commit", "tree")
    pinning_keys = ("commit",)

    url: Url
    path: RelativePath | None = None
    commit: GitHash | None = None
    tree: GitHash | None = None
    version: str = ""
    import_root: RelativePath | Literal["", "."] = ""
    import_package: RelativePath | None = None
    distribution: str = ""
    from_image: str = ""
    submodule: dict[RelativePath, Submodule] = Field(default_factory=dict)

    def identity(self) -> dict[str, Any]:
        """The commit, the tree and the submodules that are fetched."""
        fetched = {path: sub.commit for path, sub in self.submodule.items() if sub.fetch}
        return super().identity() | {"submodules": fetched}

    @model_validator(mode="after")
    def _has_a_place(self) -> Tree:
        if not self.path and not self.from_image:
            raise ValueError("needs `path` (where it is checked out) or `from_image`")
        return self


class Image(Entry):
    """A container image: `repository` and a tag (`want`), locked by digest and platform.

    `digest` is that of what the tag names (a manifest, or a list of them for several platforms),
    `image_id` the classic store's name for the same image once it is loaded, which is all that an
    engine knows of an image that came from an archive. `layers_sha256` is a digest of its unpacked
    layers, which every store has in common.
    """

    identity_keys = ("repository", "digest", "platform")
    pinning_keys = ("digest",)

    repository: Repository
    want: Tag
    digest: Digest | None = None
    image_id: Digest | None = None
    layers_sha256: Digest | None = None
    platform: Platform = "linux/amd64"
    contents: dict[str, str] = Field(default_factory=dict)


class Package(Entry):
    """A Python package that an environment or image must hold; `sha256` lists its files' hashes."""

    identity_keys = ("name", "version", "sha256")
    pinning_keys = ("sha256",)

    name: Text
    version: Text
    sha256: tuple[Sha256, ...] = ()
    source: str = ""


class Data(Entry):
    """A data file: of a Hugging Face dataset repository at one revision, or one's own.

    One's own has no `repo`: its `sha256` alone locks it, and `file` is its name.
    """

    identity_keys = ("repo", "revision", "file", "sha256")
    pinning_keys = ("revision", "sha256")

    repo: HubRepo | None = None
    revision: GitHash | None = None
    file: RelativePath
    path: RelativePath
    bytes: Count | None = None
    sha256: Sha256 | None = None
    rows: Count | None = None
    unique_prompts: Count | None = None

    @property
    def missing(self) -> tuple[str, ...]:
        """Without a repository there is no revision to pin."""
        return tuple(key for key in super().missing if self.repo or key != "revision")


class Model(Entry):
    """A model: a repository of the Hugging Face Hub, locked by revision, or a folder of one's own.

    A folder has no `repo`: `files` gives the sha256 of each of its files, by relative path.
    """

    identity_keys = ("repo", "revision", "config_sha256", "index_sha256")
    pinning_keys = ("revision",)

    repo: HubRepo | None = None
    revision: GitHash | None = None
    config_sha256: Sha256 | None = None
    index_sha256: Sha256 | None = None
    bytes: Count | None = None
    tensors: Count | None = None
    files: dict[RelativePath, Sha256] = Field(default_factory=dict)
    also_seen: tuple[GitHash, ...] = ()

    @property
    def missing(self) -> tuple[str, ...]:
        """A repository is pinned by its revision, a folder by its files."""
        if self.repo:
            return super().missing
        return () if self.files else ("files",)

    def identity(self) -> dict[str, Any]:
        """As of every entry; a folder's files on top."""
        return super().identity() | ({"files": dict(self.files)} if self.files else {})


class Shipped(Entry):
    """A file that was computed once and is part of the project: its bytes are locked, not the way.

    `path` is the file, `sha256` and `bytes` are its own; `files` gives the sha256 of what belongs
    to it in the same folder, by name. `made_by` says how it was computed and `made_on` where. It
    is not part of a machine's hash: what uses it has its sha256 in a key of its own.
    """

    pinning_keys = ("sha256", "bytes")

    path: RelativePath
    sha256: Sha256 | None = None
    bytes: Count | None = None
    files: dict[RelativePath, Sha256] = Field(default_factory=dict)
    made_by: Text
    made_on: Text

    def digests(self) -> dict[str, str]:
        """The sha256 of each file of the folder, by name; without those that are not locked."""
        own = {self.path.rpartition("/")[2]: self.sha256} if self.sha256 else {}
        return own | self.files


class Environment(Entry):
    """A Python environment: a requirements file in which every wheel has its hashes.

    `sha256` is that of the file, `pins_sha256` that of its pins alone (see requirements.py), which
    does not move with the file's comments and layout; `pins` counts them. `extra` gives the sha256
    of further requirements files that only some machines need and that change no result.

    With `trim` the environment is a site tree (site.py) for a machine with its own Python and
    torch: the file says what is left out of it, `provided` the packages that the
    machine was seen to have, by distribution.
    """

    identity_keys = ("python", "pins_sha256")
    pinning_keys = ("sha256", "pins_sha256")

    requirements: RelativePath
    python: Text
    folder: RelativePath
    sha256: Sha256 | None = None
    pins_sha256: Sha256 | None = None
    pins: Count | None = None
    extra: dict[RelativePath, Sha256] = Field(default_factory=dict)
    trim: RelativePath | None = None
    provided: dict[str, str] = Field(default_factory=dict)


class Contradiction(Base):
    """A statement that the lock knowingly does not follow.

    `declared` means that a locked thing declares a requirement (PEP 508, in `declares`) which the
    locked set does not meet: `lock verify` finds it again or reports that it is gone. `guide` means
    that the lock departs from what the guide says, which no file declares and nothing re-reads.
    `declared_by` names the entry whose files declare it (or the guide), `in_file` the file within,
    `locked` the entry that conflicts with it (`python` for the interpreter, `absent` for a
    distribution left out on purpose). `not_when` says when the lock would be wrong after all, and
    `tripped_by` is that condition as a fact about a recipe (see contradict.py).
    """

    kind: Literal["declared", "guide"] = "declared"
    machines: Annotated[tuple[Machine, ...], Field(min_length=1)]
    declared_by: Text
    in_file: str = ""
    declares: Text
    locked: Text
    verified_with: Text
    why_right: Text
    not_when: Text
    tripped_by: str = ""
    source: str = ""


class Lock(Base):
    """The whole of versions.lock, by kind and name."""

    schema_version: Annotated[Literal[1], Field(alias="schema")]
    tree: dict[Name, Tree] = Field(default_factory=dict)
    image: dict[Name, Image] = Field(default_factory=dict)
    package: dict[Name, Package] = Field(default_factory=dict)
    data: dict[Name, Data] = Field(default_factory=dict)
    model: dict[Name, Model] = Field(default_factory=dict)
    shipped: dict[Name, Shipped] = Field(default_factory=dict)
    environment: dict[Name, Environment] = Field(default_factory=dict)
    contradiction: dict[Name, Contradiction] = Field(default_factory=dict)

    def entries(self, machine: Machine | None = None) -> Iterator[tuple[str, Entry]]:
        """Each entry as (`kind.name`, entry), for one machine or for all, in the lock's order."""
        for kind in KINDS:
            entries: dict[str, Entry] = getattr(self, kind)
            for name, entry in entries.items():
                if machine is None or machine in entry.machines:
                    yield f"{kind}.{name}", entry

    def entry(self, name: str) -> Entry | None:
        """The entry called `kind.name`, or None."""
        return dict(self.entries()).get(name)


KINDS = ("tree", "image", "package", "data", "model", "shipped", "environment")
