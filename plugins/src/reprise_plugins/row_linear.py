"""A linear layer whose rows do not depend on how many others are in the batch.

A matrix product library chooses its kernel by shape, and kernels add in different orders: the same
token then gets other last bits in a batch of 5 than in one of 100, and a sampled sequence can turn
out differently. Here the rows are padded to whole blocks of a fixed height and each block is one
product of one shape, so one kernel computes every row. What holds, and where it was measured, is
in docs/plugins.md.
"""

import torch
from torch.nn import functional

#: Rows of one product. Any fixed value will do; small ones waste less on a decode step.
BLOCK_ROWS = 16


def whole_blocks(rows: torch.Tensor, height: int) -> torch.Tensor:
    """Return rows [n, ...] with rows of zeros below, so that n is a multiple of ``height``."""
    missing = -rows.shape[0] % height
    if not missing:
        return rows
    return torch.cat([rows, rows.new_zeros(missing, *rows.shape[1:])])


def row_linear(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """Return ``x @ weight.T + bias``: x [..., in], weight [out, in], result [..., out]."""
    rows = x.reshape(-1, x.shape[-1])
    count = rows.shape[0]
    if count == 0:
        return functional.linear(x, weight, bias)
    blocks = whole_blocks(rows, BLOCK_ROWS).split(BLOCK_ROWS)
    result = torch.cat([functional.linear(block, weight, bias) for block in blocks])
    return result[:count].reshape(*x.shape[:-1], weight.shape[0])
