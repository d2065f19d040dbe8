"""What Linux says of processes that a test has not started itself."""

from __future__ import annotations

from pathlib import Path


def is_running(pid: int) -> bool:
    """False for a dead process too that waits for somebody to ask for it, as it may if its parent died first."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def name_of(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


def children_of(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
