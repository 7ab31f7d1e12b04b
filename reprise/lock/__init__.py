"""versions.lock: read, check, verify against reality, update one entry, bundle."""

from reprise.lock.model import Lock, Machine
from reprise.lock.read import LockError, machine_hash, parse_lock, read_lock

__all__ = ["Lock", "LockError", "Machine", "machine_hash", "parse_lock", "read_lock"]
