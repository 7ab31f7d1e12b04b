"""The ranks of one host in an all-reduce over torch.distributed: right sums, and bandwidths.

Needs no other file; started on every host at once, one process a GPU. A_SLOTS (GPUs of each host,
as "8 8"), A_HOST (this one, from 0), A_ADDRESS, A_PORT, A_BACKEND (gloo, nccl or mccl),
A_DEVICE (torch's name of it), A_MIB. Prints bus bandwidths in GB/s as defined by nccl-tests,
2 (n - 1) / n * bytes / time: `intra` among the GPUs of this host while the others do the same,
`inter` among all GPUs of all hosts.
"""

import os
import sys
import time
import traceback

SLOTS = [int(word) for word in os.environ["A_SLOTS"].split()]
HOST = int(os.environ["A_HOST"])
DEVICE, MIB = os.environ["A_DEVICE"], int(os.environ["A_MIB"])
FIRST, WORLD = sum(SLOTS[:HOST]), sum(SLOTS)
ROUNDS = 5


def main(local: int) -> None:
    """Join the group as the rank of GPU `local`, and measure; the first one of a host prints."""
    from datetime import timedelta

    import torch
    import torch.distributed as dist

    if DEVICE == "musa":
        import torch_musa  # type: ignore[import-not-found]  # noqa: F401
    device = torch.device(DEVICE if DEVICE == "cpu" else f"{DEVICE}:{local}")
    if DEVICE != "cpu":
        getattr(torch, DEVICE).set_device(device)
    address = os.environ["A_ADDRESS"]
    host = f"[{address}]" if ":" in address else address
    dist.init_process_group(
        os.environ["A_BACKEND"],
        init_method=f"tcp://{host}:{os.environ['A_PORT']}",
        rank=FIRST + local,
        world_size=WORLD,
        timeout=timedelta(seconds=60),
    )
    size = MIB * 2**20 // 4

    def measure(group: object, ranks: list) -> tuple:
        """Whether the sum is right, and the bus bandwidth."""
        values = torch.full((size,), float(FIRST + local + 1), device=device)
        dist.all_reduce(values, group=group)
        right = bool((values == float(sum(rank + 1 for rank in ranks))).all())
        dist.barrier(group=group)
        began = time.perf_counter()
        for _ in range(ROUNDS):
            dist.all_reduce(values, group=group)
        # Reading a value waits for the device.
        right = right and float(values[0]) > 0
        seconds = (time.perf_counter() - began) / ROUNDS
        return right, 2 * (len(ranks) - 1) / len(ranks) * size * 4 / seconds / 1e9

    own, own_ranks = None, []
    for number, slots in enumerate(SLOTS):
        ranks = list(range(sum(SLOTS[:number]), sum(SLOTS[:number]) + slots))
        # Every rank takes part in making every group.
        group = dist.new_group(ranks)
        if number == HOST:
            own, own_ranks = group, ranks
    right, lines = True, []
    if len(own_ranks) > 1:
        right, figure = measure(own, own_ranks)
        lines.append(f"= intra {figure:.4f}")
    dist.barrier()
    if len(SLOTS) > 1:
        also, figure = measure(dist.group.WORLD, list(range(WORLD)))
        right = right and also
        lines.append(f"= inter {figure:.4f}")
    if not right:
        print("= sum wrong", flush=True)
    elif local == 0:
        print("\n".join(["= sum right", *lines]), flush=True)
    dist.destroy_process_group()


def start() -> int:
    """One process a GPU, forked before torch is imported; the number of those that failed."""
    pids = []
    for local in range(SLOTS[HOST]):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                main(local)
                code = 0
            except Exception:
                traceback.print_exc()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        pids.append(pid)
    return sum(os.waitpid(pid, 0)[1] != 0 for pid in pids)


sys.exit(1 if start() else 0)
