"""`plog serve` on a disk whose syncs take longer: so many milliseconds are slept before each one.

    .venv/bin/python -m benchmarks.slow_disk MILLISECONDS --data-dir DIR --listen 127.0.0.1:0

A disk that keeps its promise at a power cut takes 1 ms (a data centre's SSD) to 10 ms (one that turns) for a sync;
a virtual machine's may take a tenth of that.
"""

from __future__ import annotations

import os
import sys
import time
from unittest import mock

from cli.main import run


def main(milliseconds: str, arguments: list[str]) -> int:
    seconds = float(milliseconds) / 1000
    fdatasync = os.fdatasync

    def sync(fd: int) -> None:
        time.sleep(seconds)
        fdatasync(fd)

    with mock.patch("os.fdatasync", sync):
        return run(["serve", *arguments])


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1], sys.argv[2:]))
