"""Rules on software: versions compared between hosts and with the lock, image, checkouts."""

from __future__ import annotations

from reprise.cluster.doctor.context import Context, common
from reprise.cluster.doctor.marks import Marks
from reprise.machines.registry import union

__all__ = ["checkouts", "image", "versions"]

# Ray refuses a node whose Ray or Python version differs in any digit. Other differences fail later
# and less clearly; a difference of _MINOR is only a warning.
_NEEDED = ("python", "ray")
_MINOR = ("torch", "transformers", *union(lambda vendor: vendor.packages))


def versions(context: Context, marks: Marks) -> None:
    """Python, Ray, torch, verl and the engine: the same on all hosts and as in the lock."""
    found: dict[str, dict[str, str]] = {}
    for host, facts in context.answered():
        if (why := facts.why("package")) is not None:
            later = context.site.container.image is not None and "not started" in why
            if later:
                marks.note("versions.not-started", host.name, why=why)
            else:
                marks.blank("versions.unread", host.name, why=why)
            continue
        for name, version in facts.pairs("package").items():
            found.setdefault(name, {})[host.name] = version
        missing = [name for name in _NEEDED if name not in facts.pairs("package")]
        if missing:
            marks.bad(
                "versions.not-installed",
                host.name,
                packages=", ".join(missing),
                python=context.site.paths.python,
            )
    for name, by_host in found.items():
        _compare(name, by_host, context, marks)


def _compare(name: str, by_host: dict[str, str], context: Context, marks: Marks) -> None:
    most = common(by_host, context.head.name)
    locked = context.expected.packages.get(name)
    lacking = [h.name for h, f in context.answered() if f.all("package") and h.name not in by_host]
    for host in lacking if name not in _NEEDED else ():
        marks.warn("versions.missing", host, name=name, most=most)
    for host, version in by_host.items():
        if version != most:
            if name in _MINOR:
                marks.warn("versions.differs-slightly", host, name=name, version=version, most=most)
            else:
                marks.bad("versions.differs", host, name=name, version=version, most=most)
        else:
            marks.good("versions", host)
        if locked is None:
            continue
        if _meets(version, locked):
            marks.good("versions-lock", host)
        else:
            marks.bad("versions-lock.differs", host, name=name, version=version, locked=locked)


def _meets(version: str, locked: str) -> bool:
    """Equal, except for a build's own suffix (+cu129) and digits that the lock omits (3.12)."""
    plain = version.split("+", maxsplit=1)[0]
    return any(
        choice in (version, plain) or version.startswith(f"{choice}.")
        for choice in locked.split(" or ")
    )


def image(context: Context, marks: Marks) -> None:
    """The container image: present, the same id on all hosts, the locked digest; its runtime."""
    name, engine = context.site.container.image, context.site.container.engine
    if name is None:
        return
    found: dict[str, str] = {}
    for host, facts in context.answered():
        value = facts.one("image")
        if value is None:
            why = facts.why("image") or "no answer"
            if "No such image" in why or "not known" in why:
                marks.bad("image.not-pulled", host.name, why=why, engine=engine, image=name)
            else:
                marks.blank("image.unread", host.name, why=why, engine=engine, image=name)
            continue
        found[host.name] = value.split(" ")[0]
        digest = context.expected.image_digest
        if digest is not None and digest not in value:
            marks.bad(
                "image.digest-differs",
                host.name,
                digest=digest,
                engine=engine,
                image=name.partition("@")[0],
            )
        runtime = context.profile.container_runtime
        if runtime is not None and runtime not in (facts.one("engine") or ""):
            marks.bad(
                "container-runtime.unknown",
                host.name,
                engine=engine,
                runtime=runtime,
                install=context.machine.accelerator.install_runtime,
            )
    most = common(found, context.head.name)
    for host_name, value in found.items():
        if value != most:
            marks.bad("image.id-differs", host_name, id=value[:19], most=(most or "")[:19])
        else:
            marks.good("image", host_name)


def checkouts(context: Context, marks: Marks) -> None:
    """Source checkouts on the nodes: at the locked commit, the same on all hosts."""
    found: dict[str, dict[str, str]] = {}
    for host, facts in context.answered():
        for value in facts.all("tree"):
            commit, _, path = value.partition(" ")
            found.setdefault(path, {})[host.name] = commit
        for value in facts.blanks.get("tree", ()):
            marks.blank("checkout.unread", host.name, why=value)
    for path, by_host in found.items():
        wanted = context.expected.trees.get(path) or common(by_host, context.head.name) or ""
        for name, commit in by_host.items():
            if commit == wanted:
                marks.good("checkout", name)
            else:
                marks.bad(
                    "checkout.differs", name, path=path, commit=commit[:12], wanted=wanted[:12]
                )
