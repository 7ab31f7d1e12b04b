"""One task on each of four nodes; prints their names. Run by `make demo-cluster` as a Ray job."""

import socket

import ray

NODES = 4


@ray.remote(num_gpus=1)
class Node:
    """Holds a node's one logical GPU, so that no two of these share a node."""

    def name(self) -> str:
        """The node's host name."""
        return socket.gethostname()


ray.init()
nodes = [Node.remote() for _ in range(NODES)]
print("nodes:", " ".join(sorted(ray.get([node.name.remote() for node in nodes]))))
