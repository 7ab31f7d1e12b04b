"""What a bridge is, and how its assertion is checked."""

from dataclasses import dataclass
from pathlib import Path

from reprise_plugins import source

APPLIES = "applies"
NOT_NEEDED = "not needed"
MISMATCH = "mismatch"
NOT_INSTALLED = "not installed"


class BridgeMismatchError(Exception):
    """A bridged symbol is not what the bridge was written for."""


@dataclass(frozen=True)
class Known:
    """One version of a symbol that was read and run: its digest, its release, what it means."""

    digest: str
    release: str
    state: str = APPLIES


@dataclass(frozen=True)
class Target:
    """A symbol that a bridge replaces, overrides or relies on.

    ``otherwise`` is the state of any digest not listed: ``MISMATCH``, or ``NOT_NEEDED`` where the
    mere existence of the symbol makes the bridge unnecessary. ``gone`` is the state when the whole
    module is missing from an installed package.
    """

    module: str
    symbol: str
    known: tuple[Known, ...]
    otherwise: str = MISMATCH
    gone: str = MISMATCH

    @property
    def package(self) -> str:
        """The top-level package."""
        return self.module.split(".")[0]

    def check(self, tree: Path | None = None) -> tuple[str, str]:
        """Return the state and one sentence that says what was found."""
        where = f"{self.module}:{self.symbol}"
        if source.package_root(self.package, tree) is None:
            return NOT_INSTALLED, f"{self.package} is not installed"
        version = source.version_of(self.package, tree) or "of unknown version"
        digest = source.symbol_digest(self.module, self.symbol, tree)
        if digest is None:
            return self.gone, f"{self.package} {version} has no module {self.module}"
        for known in self.known:
            if known.digest == digest:
                return known.state, f"{where} as in {known.release}"
        releases = " or ".join(dict.fromkeys(known.release for known in self.known))
        return self.otherwise, (
            f"{where} in {self.package} {version} ({source.module_file(self.module, tree)}) has "
            f"source sha256 {digest[:12]}, which is not that of {releases}"
        )


@dataclass(frozen=True)
class Bridge:
    """One difference between what verl or vLLM offer and what a run here needs.

    ``switch`` is what asks for it, ``means`` the extension point that carries it or the symbol that
    is replaced, ``why`` what fails without it, ``proof`` how that was seen, ``install`` what to
    install when the assertion fails.
    """

    id: str
    name: str
    switch: tuple[str, ...]
    means: str
    replaces: bool
    targets: tuple[Target, ...]
    why: str
    proof: str
    install: str

    def check(self, tree: Path | None = None) -> tuple[str, list[str]]:
        """Return the state of the bridge and what was found at each target.

        A mismatch at any target is a mismatch of the bridge; the bridge is not needed where any
        target says so; otherwise it applies.
        """
        results = [target.check(tree) for target in self.targets]
        states = {state for state, _ in results}
        notes = [note for _, note in results]
        for state in (NOT_INSTALLED, MISMATCH, NOT_NEEDED):
            if state in states:
                return state, [note for found, note in results if found == state]
        return APPLIES, notes

    def require(self) -> bool:
        """Return whether the bridge is to be built here.

        Raises ``BridgeMismatchError`` with what was expected, what was found and what to install.
        """
        state, notes = self.check()
        if state in (MISMATCH, NOT_INSTALLED):
            raise BridgeMismatchError(
                f"bridge {self.id} ({self.name}) was not written for what is installed: "
                f"{'; '.join(notes)}. Install {self.install}, or look at docs/plugins.md."
            )
        return state == APPLIES
