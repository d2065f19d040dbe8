"""A client in a process of its own that produces one small record after the other, and says how long it waited.

    with Bystander() as bystander:
        bystander.begin(address, topic)
        ...                       # something that costs the broker much
        waits = bystander.waits()

It is what one client's work costs all others. The process is `python -m benchmarks.bystander`: the first line that it
reads says where to produce (`["127.0.0.1:9092", "topic"]`), each later one has it print the waits since the one before.
"""

from __future__ import annotations

import io
import json
import select
import subprocess
import sys
import time
from types import TracebackType
from typing import NamedTuple

from benchmarks.options import option_parser
from benchmarks.wire import connect
from core.common.errors import ConnectionFailedError
from core.protocol.schema.produce import PRODUCE
from core.records.record import Record
from core.records.record_batch_builder import batch_of
from tests.support.broker import PRODUCE_BY_NAME, produce_request

PAUSE_SECONDS = 0.001


class Waits(NamedTuple):
    """Of so many requests, in milliseconds."""

    requests: int
    median_ms: float
    p99_ms: float
    longest_ms: float

    def __str__(self) -> str:
        return f"p50 {self.median_ms:.2g}, p99 {self.p99_ms:.3g}, worst {self.longest_ms:.3g} ms"


class Bystander:
    """Its process is ready when `with` begins, so that nothing is missed of what a broker does after its start."""

    def __enter__(self) -> Bystander:
        command = [sys.executable, "-m", "benchmarks.bystander"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._receive()
        return self

    def begin(self, address: str, topic: str) -> None:
        """Produces from now on; the topic must be there."""
        self._send(json.dumps([address, topic]))

    def waits(self) -> Waits:
        """Since the last time."""
        self._send("")
        return Waits(*json.loads(self._receive()))

    def _send(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()

    def _receive(self) -> bytes:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()


def main() -> None:
    option_parser(__doc__).parse_args()
    print("ready", flush=True)
    lines = io.FileIO(sys.stdin.fileno(), closefd=False)  # what is read ahead, `select` would not see
    address, topic = json.loads(lines.readline())
    connection = connect(address)
    batch = batch_of([Record(0, int(time.time() * 1000), None, b"x" * 50)])
    waits: list[float] = []
    while True:
        started = time.perf_counter()
        try:
            connection.call(PRODUCE, produce_request(batch, topic), at_most=PRODUCE_BY_NAME)
        except ConnectionFailedError:  # the broker was stopped
            return
        waits.append((time.perf_counter() - started) * 1000)
        asked, _, _ = select.select([lines], [], [], PAUSE_SECONDS)
        if asked:
            if not lines.readline():
                return
            waits.sort()
            print(
                json.dumps([len(waits), waits[len(waits) // 2], waits[len(waits) * 99 // 100], waits[-1]]), flush=True
            )
            waits = []


if __name__ == "__main__":
    main()
