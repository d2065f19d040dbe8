"""Ports that are chosen some time before anybody listens on them, as those of a JVM that takes its time to start.

What the system gives for port 0 would not do: the next process that asks for one may be given the same. These lie below
those that the system gives, and each worker of pytest-xdist has its own.
"""

from __future__ import annotations

import itertools
import os
import random
import re
import socket

FIRST, LAST = 20_000, 31_999
"""The system gives 32768 and above; tests/cli/test_runbook.py takes its own below these."""
_SLICES = 16


def ports_of(worker: str) -> range:
    """Gives those of a worker, by the name that pytest-xdist gives it: gw0 and so on."""
    count = (LAST + 1 - FIRST) // _SLICES
    first = FIRST + int(re.sub(r"\D", "", worker)) % _SLICES * count
    return range(first, first + count)


_own = ports_of(os.environ.get("PYTEST_XDIST_WORKER", "0"))
_start = random.randrange(len(_own))  # a run beside this one most likely is elsewhere
_ports = itertools.cycle([*_own[_start:], *_own[:_start]])


def free_ports(count: int = 2) -> list[int]:
    """Gives so many that nobody listens on just now, and that this process gave to nobody for long."""
    return list(itertools.islice(filter(_is_free, _ports), count))


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("0.0.0.0", port))
        except OSError:
            return False
    return True
