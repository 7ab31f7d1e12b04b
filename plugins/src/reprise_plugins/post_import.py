"""Run a function right after a module is first imported.

For the one case in which a module is too slow to import in every process (all of vLLM) and cannot
be reached in any other way. A finder in front of the others recognises the name, lets them find
the module, and wraps its loader; nothing else changes hands.
"""

import importlib.util
import sys
from collections.abc import Callable
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class _Loader(Loader):
    def __init__(self, inner: Any, then: Callable[[ModuleType], None]) -> None:
        self.inner, self.then = inner, then

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.inner.create_module(spec)  # type: ignore[no-any-return]

    def exec_module(self, module: ModuleType) -> None:
        self.inner.exec_module(module)
        self.then(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class _Finder(MetaPathFinder):
    def __init__(self, name: str, then: Callable[[ModuleType], None]) -> None:
        self.name, self.then, self.searching = name, then, False

    def find_spec(self, name: str, *_args: Any, **_kwargs: Any) -> ModuleSpec | None:
        if name != self.name or self.searching:
            return None
        self.searching = True  # the search below comes back here
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self.searching = False
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self.then)
        return spec


def after_import(name: str, then: Callable[[ModuleType], None]) -> None:
    """Call ``then(module)`` when ``name`` has been imported: now if it is already, else then."""
    module = sys.modules.get(name)
    if module is not None:
        then(module)
    else:
        sys.meta_path.insert(0, _Finder(name, then))
