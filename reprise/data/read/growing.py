"""Arrays of one entry a row, filled while a file is read."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

__all__ = ["Growing"]

_Number = TypeVar("_Number", np.uint64, np.int64, np.int32)


class Growing(Generic[_Number]):
    """One array while it is filled: as long as the file says, or doubled when it is full."""

    def __init__(self, kind: type[_Number], rows: int | None) -> None:
        self._array: npt.NDArray[_Number] = np.empty(rows or 65_536, kind)
        self._used = 0

    def add(self, values: npt.NDArray[Any]) -> None:
        """Append values of this kind, or ones that fit it."""
        end = self._used + len(values)
        if end > len(self._array):
            larger = np.empty(max(end, 2 * len(self._array)), self._array.dtype)
            larger[: self._used] = self._array[: self._used]
            self._array = larger
        self._array[self._used : end] = values
        self._used = end

    def close(self) -> npt.NDArray[_Number]:
        """The values."""
        values: npt.NDArray[_Number] = self._array[: self._used]
        return values
