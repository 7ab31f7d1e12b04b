"""The site file: settings of one cluster for all recipes (paths, interfaces, mounts, proxies).

It is outside the repository: SITE=, else `reprise/site.toml` in the user's configuration
folder. The file is optional: every value has a default.
"""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

from platformdirs import user_config_path
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError, field_validator

from reprise.core.errors import OperatorError
from reprise.machines.profile import Floors

__all__ = ["Container", "Paths", "Ports", "Site", "SshSettings", "load_site", "site_path"]

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_INTERFACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@:-]{0,31}")


class _Table(BaseModel):
    """One table of the file: unknown keys are errors, values are read-only."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def _absolute(value: str) -> str:
    if not value.startswith("/") or "\n" in value or "\0" in value:
        raise ValueError("expected an absolute path on the nodes, on one line")
    return str(PurePosixPath(value))


class SshSettings(_Table):
    """Settings of SSH to the nodes; all others are in the user's own ssh_config."""

    config: str | None = None
    parallel: Annotated[int, Field(ge=1, le=512)] = 64
    connect_timeout: Annotated[int, Field(ge=1, le=120)] = 10


class Paths(_Table):
    """Paths on the nodes. `python` is the interpreter that has Ray, outside a container.

    `data`, `model`, `checkpoints` and `code` are folders that all nodes share. `recipes` are
    folders of recipes outside the project, on the operator's machine.
    """

    python: str = "/usr/bin/python3"
    temp: str = "/tmp"  # noqa: S108  # Ray's own default: local to the node, and short
    data: str | None = None
    model: str | None = None
    checkpoints: str | None = None
    code: str | None = None
    recipes: tuple[str, ...] = ()

    @field_validator("recipes")
    @classmethod
    def _folders(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if relative := [text for text in value if not text.startswith(("/", "~/"))]:
            raise ValueError(f"expected absolute paths, found {', '.join(relative)}")
        return value

    @field_validator("python", "temp", "data", "model", "checkpoints", "code")
    @classmethod
    def _check(cls, value: str | None) -> str | None:
        return None if value is None else _absolute(value)

    def shared(self) -> dict[str, str]:
        """The folders that all nodes must see alike, by name."""
        names = ("data", "model", "checkpoints", "code")
        return {name: path for name in names if (path := getattr(self, name)) is not None}


class Ports(_Table):
    """Fixed ports of Ray, all below 32768 outside the range of ephemeral ports."""

    gcs: int = 6379
    dashboard: int = 8265
    client: int = 10001
    node_manager: int = 8266
    object_manager: int = 8267
    runtime_env_agent: int = 8268
    agent_grpc: int = 8269
    agent_http: int = 8270
    metrics: int = 8271
    autoscaler_metrics: int = 8273
    dashboard_metrics: int = 8274
    worker_low: int = 10002
    worker_high: int = 19999

    @field_validator("*")
    @classmethod
    def _range(cls, value: int) -> int:
        if not 1024 <= value <= 65535:
            raise ValueError("expected a port from 1024 to 65535")
        return value

    def of_head(self) -> dict[str, int]:
        """Ports on the head, by name."""
        names = ("gcs", "dashboard", "client", "autoscaler_metrics", "dashboard_metrics")
        return {name: getattr(self, name) for name in names} | self.of_worker()

    def of_worker(self) -> dict[str, int]:
        """Ports on every node, by name."""
        names = (
            *("node_manager", "object_manager", "runtime_env_agent"),
            *("agent_grpc", "agent_http", "metrics"),
        )
        return {name: getattr(self, name) for name in names}


class Container(_Table):
    """The container that runs Ray on each host; without an image Ray runs in `paths.python`."""

    engine: Annotated[str, Field(pattern="^(docker|podman)$")] = "docker"
    image: str | None = None
    python: str = "python3"
    mounts: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()

    @field_validator("image", "python")
    @classmethod
    def _word(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"[A-Za-z0-9/][A-Za-z0-9._/:@+-]*", value):
            raise ValueError("expected one plain word that does not begin with a dash")
        return value


class Network(_Table):
    """The network interface of training; by default the one that routes to the head.

    With `tls`, Ray encrypts its gRPC connections (RAY_USE_TLS).
    """

    interface: str | None = None
    tls: bool = False

    @field_validator("interface")
    @classmethod
    def _name(cls, value: str | None) -> str | None:
        if value is not None and not _INTERFACE.fullmatch(value):
            raise ValueError("expected the name of a network interface")
        return value


class Site(_Table):
    """The whole file."""

    machine: Annotated[str, Field(pattern="^[a-z0-9][a-z0-9-]*$")] | None = Field(
        default=None,
        # The former name of the key.
        validation_alias=AliasChoices("machine", "profile"),
    )
    ssh: SshSettings = SshSettings()
    paths: Paths = Paths()
    network: Network = Network()
    ports: Ports = Ports()
    container: Container = Container()
    floors: Floors = Floors()
    variables: dict[str, str] = Field(default_factory=dict)

    @field_validator("variables")
    @classmethod
    def _variables(cls, value: dict[str, str]) -> dict[str, str]:
        for name, text in value.items():
            if not _VARIABLE.fullmatch(name):
                raise ValueError(f"{name!r} is not a valid name of an environment variable")
            if "\0" in text:
                raise ValueError(f"{name} contains a zero byte")
        return value


def site_path() -> Path:
    """The path of the site file: SITE, else in the user's configuration folder."""
    named = os.environ.get("SITE")
    return Path(named) if named else user_config_path("reprise") / "site.toml"


def load_site(path: Path | None = None) -> Site:
    """Read the site file at `path`, by default at `site_path()`.

    Without SITE and `path`, a missing file means the defaults. Raises OperatorError with every
    wrong key at once.
    """
    named = path is not None or bool(os.environ.get("SITE"))
    path = path or site_path()
    if not path.is_file():
        if named:
            raise OperatorError("site.not-found", str(path))
        return Site()
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise OperatorError("site.not-toml", str(path), reason=error) from None
    try:
        return Site.model_validate(values)
    except ValidationError as error:
        problems = "; ".join(_problem(item) for item in error.errors())
        raise OperatorError("site.bad-keys", str(path), problems=problems) from None


def _problem(item: Any) -> str:
    where = ".".join(str(part) for part in item["loc"])
    said = str(item["msg"]).removeprefix("Value error, ")
    return f"{where}: {'unknown key' if item['type'] == 'extra_forbidden' else said}"
