"""The brokers that are measured beside each other, and what is read of a process: CPU seconds and resident memory."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Protocol

from tests.support.class_archives import kafka_options, quick_options
from tests.support.kafka_server import KafkaServer
from tests.support.server import PLOG, Server

HERE = Path(__file__).parent.parent
"""The checkout of this version."""

Command = Sequence[str | Path]

_TICKS = os.sysconf("SC_CLK_TCK")


def environment_of(checkout: Path = HERE) -> dict[str, str]:
    """Returns the environment of a Python that imports plog from a checkout, and keeps its compiled modules."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPATH": str(checkout.resolve())}


class Peer(Protocol):
    name: str
    address: str
    pid: int

    def stop(self) -> None: ...


StartPeer = Callable[[Path], Peer]
"""Starts a peer, whose data is in a folder below the given one."""


@contextmanager
def running(directory: Path, *starts: StartPeer) -> Iterator[list[Peer]]:
    """Starts the peers one after the other, and stops them at the end."""
    with ExitStack() as stack:
        peers = []
        for start in starts:
            peers.append(start(directory))
            stack.callback(peers[-1].stop)
        yield peers


@contextmanager
def scratch_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="plog-benchmark-") as folder:
        yield Path(folder)


def in_turns(peers: list[Peer], number: int) -> list[Peer]:
    """Returns the peers in the order of a round: in each round another one goes first."""
    first = number % len(peers)
    return peers[first:] + peers[:first]


def make_topic(address: str, topic: str, partitions: int = 1, /, **configs: str) -> None:
    """`configs` by Kafka's names, with _ for a dot."""
    from confluent_kafka.admin import AdminClient, NewTopic

    settings = {key.replace("_", "."): value for key, value in configs.items()}
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(topic, partitions, 1, config=settings)])[topic].result(60)


class PlogPeer:
    name = "plog"
    command: Sequence[str | Path] = (PLOG, "serve")
    environment: dict[str, str] | None = None

    def __init__(self, directory: Path, settings: Sequence[str] = ()) -> None:
        """`settings` as KEY=VALUE."""
        options = [option for setting in settings for option in ("--set", setting)]
        self._server = Server(directory / self.name, *options, command=self.command, environment=self.environment)
        started = time.monotonic()
        self._server.start()
        self.ready_s = time.monotonic() - started
        self.address = self._server.address
        assert self._server.process is not None
        self.pid = self._server.process.pid

    def stop(self) -> None:
        self._server.stop()


class FloorPeer(PlogPeer):
    """Receives, writes and answers, and no more (`benchmarks.floor`)."""

    name = "floor"
    command = (sys.executable, "-m", "benchmarks.floor")


class SlowDiskPeer(PlogPeer):
    """On a disk whose syncs take so much longer (`benchmarks.slow_disk`)."""

    def __init__(self, directory: Path, milliseconds: int) -> None:
        self.name = f"plog, {milliseconds} ms added to a sync"
        self.command = (sys.executable, "-m", "benchmarks.slow_disk", str(milliseconds))
        super().__init__(directory)


def archive_options(version: str = "") -> tuple[str, ...]:
    """Returns the options for an archive of Kafka's classes, which halves the time of its start and nothing else."""
    return tuple(option for option in kafka_options(version) if option not in quick_options())


KAFKA_JAVA_OPTIONS = (
    "-Xms1G", "-Xmx1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", *archive_options()
)  # fmt: skip
"""The heap and the collector of Kafka's own start script."""


class KafkaPeer:
    """Kafka, broker and controller in one process, with the heap and the collector of its own start script."""

    name = "kafka"

    def __init__(self, directory: Path) -> None:
        self._server = KafkaServer(directory / "kafka", java_options=KAFKA_JAVA_OPTIONS)
        self._server.format()
        self._server.start()
        self.address = self._server.address
        self.pid = self._server.pid

    def stop(self) -> None:
        self._server.stop()


def cpu_seconds(pid: int) -> tuple[float, float]:
    """User and system time of a process, all threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return int(fields[11]) / _TICKS, int(fields[12]) / _TICKS


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


_ISLAND_BYTES = 64 * 1024
_UNTOUCHED_BYTES = 512 << 20
"""Left to the machine while memory is filled."""

_HOLES_BYTES = 8 << 40
"""Of a file with nothing in it, to be read once: page cache without a disk."""

_BALLAST = """
import mmap, sys
size, left, island = map(int, sys.argv[1:])
memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory.madvise(mmap.MADV_NOHUGEPAGE)
block = b"x" * (1 << 20)
for position in range(0, size, len(block)):
    memory[position : position + len(block)] = block
for number in range(left // island):
    memory.madvise(mmap.MADV_DONTNEED, number * size // (left // island) // island * island, island)
print("full", flush=True)
sys.stdin.read()
"""


def _meminfo(name: str) -> int:
    """Bytes."""
    lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return int(lines[name].split()[0]) * 1024


class FullMemory:
    """All but a few GB of the machine's memory taken, and the rest full of page cache: where a broker finds itself that
    has run for a while.

    Without it the first write to each page of a file is to memory that nobody has used yet, or that the hypervisor took
    back while it lay free. On a virtual machine that costs more than the broker's work, and not the same from one
    minute to the next: 0.2 to 3.8 s for a GB that is written. All memory is written to first; what is left then is
    small pieces in between, and page cache, which lies free only for a moment before it is used again.
    """

    def __init__(self, directory: Path, left_bytes: int = 4 << 30) -> None:
        self._directory = directory
        self._left_bytes = left_bytes

    def __enter__(self) -> FullMemory:
        size = max(_meminfo("MemAvailable") - _UNTOUCHED_BYTES, 1 << 20) >> 20 << 20
        left_bytes = min(self._left_bytes, size)
        self._process = subprocess.Popen(
            [sys.executable, "-c", _BALLAST, *map(str, (size, left_bytes, _ISLAND_BYTES))],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        assert self._process.stdout is not None
        self._process.stdout.readline()
        self._open_holes()
        return self

    def _open_holes(self) -> None:
        self._holes = (self._directory / "holes").open("w+b", buffering=0)
        self._holes.truncate(_HOLES_BYTES)
        self.fill()

    def fill(self) -> None:
        """Fills with page cache what lies free by now: to be called before each measurement, as processes that ended
        left their memory.
        """
        block = bytearray(1 << 20)
        for _ in range((_meminfo("MemFree") + _UNTOUCHED_BYTES) // len(block)):
            self._holes.readinto(block)

    def __exit__(self, *exception: object) -> None:
        self._holes.close()
        self._process.kill()
        self._process.wait()


class MemoryAsItIs(FullMemory):
    """Nothing is filled: for a machine where others work."""

    def __enter__(self) -> MemoryAsItIs:
        return self

    def fill(self) -> None: ...

    def __exit__(self, *exception: object) -> None: ...


def memory_of(directory: Path, *, is_full: bool) -> FullMemory:
    return (FullMemory if is_full else MemoryAsItIs)(directory)


class FullCache(FullMemory):
    """Page cache alone takes the memory that lies free: what is written gets pages that were in use a moment ago, and
    nothing is taken from whoever else works on the machine.
    """

    def __enter__(self) -> FullCache:
        self._open_holes()
        return self

    def __exit__(self, *exception: object) -> None:
        self._holes.close()
