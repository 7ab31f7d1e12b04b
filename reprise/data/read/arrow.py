"""PyArrow's compute functions without its third-party stubs, which know few of the overloads."""

from __future__ import annotations

from typing import Any, TypeAlias

import pyarrow.compute

__all__ = ["Column", "pc"]

Column: TypeAlias = Any  # an Array whose element type is known only when it runs
pc: Any = pyarrow.compute
