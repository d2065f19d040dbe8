"""How long a person waits, and what an idle server holds.

    .venv/bin/python -m benchmarks.commands [--rounds 7]

Clock seconds, from the start of the process to its end, or to the server's `ready`; of a broker in the test's own
process, from the call to its address, the first of that process and the next.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from benchmarks.figures import spread
from benchmarks.options import option_parser
from benchmarks.peers import PlogPeer, resident_bytes, scratch_folder
from tests.support.server import PLOG


def clock(command: list[str | Path]) -> float:
    started = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.monotonic() - started


def row(what: str, figures: list[float], unit: str) -> None:
    print(f"| {what} | {spread(figures, unit=unit)} |")


def main() -> None:
    rounds = option_parser(__doc__, rounds=7).parse_args().rounds
    print("| what | plog |\n|---|---|")
    row("`plog --help`", [1000 * clock([PLOG, "--help"]) for _ in range(rounds)], "ms")
    with scratch_folder() as directory:
        serve(directory, rounds)
    in_process(rounds)


def serve(directory: Path, rounds: int) -> None:
    ready, resident = [], []
    for number in range(rounds):
        peer = PlogPeer(directory / str(number))
        ready.append(1000 * peer.ready_s)
        resident.append(resident_bytes(peer.pid) / 1e6)
        peer.stop()
    row("`plog serve`, start to ready", ready, "ms")
    row("`plog serve`, resident memory when idle", resident, "MB")


_TWO_BROKERS = """
import time
from plog.testing import running_broker
for _ in range(2):
    started = time.monotonic()
    with running_broker():
        print(time.monotonic() - started)
"""


def in_process(rounds: int) -> None:
    done = [
        subprocess.run([sys.executable, "-c", _TWO_BROKERS], check=True, capture_output=True) for _ in range(rounds)
    ]
    figures = [[1000 * float(line) for line in one.stdout.split()] for one in done]
    row("`running_broker()`, the first of a process", [first for first, _ in figures], "ms")
    row("`running_broker()`, the next", [following for _, following in figures], "ms")


if __name__ == "__main__":
    main()
