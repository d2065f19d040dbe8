"""`plog serve` on a disk whose syncs take longer: so many milliseconds are slept before each one.

    .venv/bin/python -m benchmarks.slow_disk 5 --data-dir DIR --listen 127.0.0.1:0    (then as `plog serve`)

A disk that keeps its promise at a power cut takes 1 ms (a data centre's SSD) to 10 ms (one that turns) for a sync;
a virtual machine's may take a tenth of that.
"""

from __future__ import annotations

import os
import time
from unittest import mock

from benchmarks.options import option_parser
from cli.main import run


def main() -> int:
    parser = option_parser(__doc__)
    parser.add_argument("milliseconds", type=float)
    options, others = parser.parse_known_args()
    fdatasync = os.fdatasync

    def sync(fd: int) -> None:
        time.sleep(options.milliseconds / 1000)
        fdatasync(fd)

    with mock.patch("os.fdatasync", sync):
        return run(["serve", *others])


if __name__ == "__main__":
    raise SystemExit(main())
