"""Rules on software: versions equal on all hosts and to the lock, container image, checkouts."""

from __future__ import annotations

from reprise.cluster.doctor.context import Context, common
from reprise.cluster.doctor.marks import Marks
from reprise.machines.registry import union

__all__ = ["checkouts", "image", "versions"]

# Ray refuses a node whose own version or Python's differs, to the last digit. The others break
# later and less plainly; builds of torch that differ in their local part alone are only told.
_NEEDED = ("python", "ray")
_TOLD = ("torch", "transformers", *union(lambda vendor: vendor.packages))


def versions(context: Context, marks: Marks) -> None:
    """Python, Ray, torch, verl and the engine: the same everywhere, and as the lock says."""
    found: dict[str, dict[str, str]] = {}
    for host, facts in context.answered():
        if (why := facts.why("package")) is not None:
            later = context.site.container.image is not None and "not started" in why
            tell = marks.note if later else marks.blank
            fix = "set paths.python in the site file to the interpreter that has Ray"
            tell("versions", host.name, why, "" if later else fix)
            continue
        for name, version in facts.pairs("package").items():
            found.setdefault(name, {})[host.name] = version
        missing = [name for name in _NEEDED if name not in facts.pairs("package")]
        if missing:
            marks.bad(
                "versions.installed",
                host.name,
                missings=", ".join(missing),
                python=context.site.paths.python,
            )
    for name, by_host in found.items():
        _compare(name, by_host, context, marks)


def _compare(name: str, by_host: dict[str, str], context: Context, marks: Marks) -> None:
    most = common(by_host, context.head.name)
    locked = context.expected.packages.get(name)
    lacking = [h.name for h, f in context.answered() if f.all("package") and h.name not in by_host]
    for host in lacking if name not in _NEEDED else ():
        marks.warn("versions", host, f"{name} is missing, the others have {most}", _same(name))
    for host, version in by_host.items():
        if version != most:
            tell = marks.warn if name in _TOLD else marks.bad
            tell("versions", host, f"{name} {version}, the others have {most}", _same(name))
        else:
            marks.good("versions", host)
        if locked is None:
            continue
        if _meets(version, locked):
            marks.good("versions-lock", host)
        else:
            marks.bad(
                "versions-lock", host, f"{name} {version}, the lock has {locked}", _same(name)
            )


def _same(name: str) -> str:
    return f"use the locked image or environment on all hosts, which brings the same {name}"


def _meets(version: str, locked: str) -> bool:
    """Equal, but for a build's own suffix (+cu129) and for what the lock leaves open (3.12)."""
    plain = version.split("+", maxsplit=1)[0]
    return any(
        choice in (version, plain) or version.startswith(f"{choice}.")
        for choice in locked.split(" or ")
    )


def image(context: Context, marks: Marks) -> None:
    """The container image: there, the same id everywhere, the locked digest; the runtime too."""
    if context.site.container.image is None:
        return
    found: dict[str, str] = {}
    for host, facts in context.answered():
        value = facts.one("image")
        if value is None:
            why = facts.why("image") or "the image was not looked at"
            tell = marks.bad if "No such image" in why or "not known" in why else marks.blank
            engine = context.site.container.engine
            tell("image", host.name, why, f"{engine} pull {context.site.container.image}")
            continue
        found[host.name] = value.split(" ")[0]
        digest = context.expected.image_digest
        if digest is not None and digest not in value:
            marks.bad(
                "image.image-locked-digest",
                host.name,
                digest=digest,
                engine=context.site.container.engine,
            )
        runtime = context.profile.container_runtime
        if runtime is not None and runtime not in (facts.one("engine") or ""):
            marks.bad(
                "container-runtime",
                host.name,
                f"the engine does not know the runtime {runtime}",
                context.machine.accelerator.install_runtime,
            )
    most = common(found, context.head.name)
    for name, value in found.items():
        if value != most:
            marks.bad("image.image-id-others", name, value=value[:19], most=(most or "")[:19])
        else:
            marks.good("image", name)


def checkouts(context: Context, marks: Marks) -> None:
    """Source checkouts on the nodes: the locked commit, the same everywhere."""
    found: dict[str, dict[str, str]] = {}
    for host, facts in context.answered():
        for value in facts.all("tree"):
            commit, _, path = value.partition(" ")
            found.setdefault(path, {})[host.name] = commit
        for value in facts.blanks.get("tree", ()):
            marks.blank("checkout", host.name, value, "is the checkout there? paths.code names it")
    for path, by_host in found.items():
        wanted = context.expected.trees.get(path) or common(by_host, context.head.name) or ""
        for name, commit in by_host.items():
            if commit == wanted:
                marks.good("checkout", name)
            else:
                marks.bad(
                    "checkout.expected", name, path=path, commit=commit[:12], wanted=wanted[:12]
                )
