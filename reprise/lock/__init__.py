"""versions.lock as typed entries: read it, check that it is sound, find a line, rewrite one value.

Nothing here asks a network, a git repository or an engine; `reprise.flows.lock` does.
"""

from reprise.lock.model import Lock, Machine
from reprise.lock.read import LockError, machine_hash, parse_lock, read_lock

__all__ = ["Lock", "LockError", "Machine", "machine_hash", "parse_lock", "read_lock"]
