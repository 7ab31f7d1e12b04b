"""Caps of the processor's instruction set: they change the bits of a training curve."""

from __future__ import annotations

import os

__all__ = ["CAPS", "caps"]

CAPS = (
    *("ATEN_CPU_CAPABILITY", "DNNL_MAX_CPU_ISA", "ONEDNN_MAX_CPU_ISA"),
    *("OPENBLAS_CORETYPE", "MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS"),
)
"""Variables that cap what torch, oneDNN (two names), OpenBLAS and MKL (two names) use."""


def caps() -> dict[str, str]:
    """The caps that are set in this environment."""
    return {name: os.environ[name] for name in CAPS if os.environ.get(name)}
