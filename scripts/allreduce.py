"""One rank of an all-reduce over torch.distributed: checks the sum, measures the bandwidth.

Needs no other file; started on every host at once. A_RANK, A_WORLD, A_ADDRESS, A_PORT, A_BACKEND
(gloo, nccl or mccl), A_DEVICE (torch's name of it), A_MIB. Prints the bus bandwidth as defined by
nccl-tests: 2 (n - 1) / n * bytes / time.
"""

import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist

RANK, WORLD = int(os.environ["A_RANK"]), int(os.environ["A_WORLD"])
BACKEND, MIB = os.environ["A_BACKEND"], int(os.environ["A_MIB"])
ROUNDS = 5


def main() -> None:
    """Join the group, reduce once to warm up, then time the rounds."""
    device = os.environ["A_DEVICE"]
    if device == "musa":
        import torch_musa  # type: ignore[import-not-found]  # noqa: F401
    address = os.environ["A_ADDRESS"]
    host = f"[{address}]" if ":" in address else address
    dist.init_process_group(
        BACKEND,
        init_method=f"tcp://{host}:{os.environ['A_PORT']}",
        rank=RANK,
        world_size=WORLD,
        timeout=timedelta(seconds=60),
    )
    size = MIB * 2**20 // 4
    values = torch.full((size,), float(RANK + 1), device=device)
    dist.all_reduce(values)
    expected = WORLD * (WORLD + 1) / 2
    right = bool((values == expected).all())
    began = time.perf_counter()
    for _ in range(ROUNDS):
        dist.all_reduce(values)
    last = float(values[0])
    seconds = (time.perf_counter() - began) / ROUNDS
    bus = 2 * (WORLD - 1) / WORLD * size * 4 / seconds
    print(f"= sum {'right' if right and last > 0 else 'wrong'}")
    print(f"= bandwidth {bus * 8 / 1e9:.3f}")
    dist.destroy_process_group()


main()
