"""How long a broker takes to start, beside the version before it.

    git worktree add /tmp/before COMMIT
    .venv/bin/python -m benchmarks.start [--before /tmp/before] [--rounds 3] [--partitions 100] [--segments 1000]
        [--megabytes 4000]

Two directories, whose files are written here as a broker would have left them. One was stopped cleanly, and has many
segments of one batch each. The other is a copy without its checkpoints, of ten partitions of large segments, served as
the owner's and with `--read-only`. In turns, with the files in the system's cache: seconds until the server says that
it is ready; seconds from the start of the process until the first record of a partition was fetched, and, by the owner,
one was produced to another; CPU seconds and resident memory at that time; and the longest that another client waited
for an answer to ApiVersions meanwhile, asked every 2 ms.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.figures import spread
from benchmarks.options import option_parser
from benchmarks.peers import HERE, cpu_seconds, environment_of, resident_bytes
from benchmarks.wire import transport_to
from core.common.filesystem import FileSystem
from core.common.topic_partition import TopicPartition
from core.files.checkpoint_file import write_offset_checkpoint
from core.files.file_names import (
    CLEAN_SHUTDOWN,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_SUFFIX,
    OFFSET_CHECKPOINTS,
    RECOVERY_POINT_CHECKPOINT,
)
from core.protocol.frame import encode_request
from core.protocol.schema.api_versions import API_VERSIONS, ApiVersionsRequest
from core.records.record import Record
from core.records.record_batch_builder import batch_of
from tests.support.server import PLOG
from tests.support.waiting import ANSWER_SECONDS

_RECORDS = 10
_BASE_OFFSET = struct.Struct(">q")
_TIME_ENTRY = struct.Struct(">qi")
_OFFSET_ENTRY = struct.Struct(">ii")
_TOPIC = "many"
_COPIED_SEGMENT_BYTES = 64 << 20


class Start(NamedTuple):
    ready_s: float
    first_s: float
    cpu_s: float
    resident_mb: float
    longest_ms: float


class Serving:
    """`plog serve` of one version, from its process on."""

    def __init__(self, version: Path, directory: Path, *options: str) -> None:
        ready = directory.with_name("ready")
        ready.unlink(missing_ok=True)
        self._started = time.monotonic()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "plog", "serve", "--data-dir", directory, "--listen", "127.0.0.1:0",
             "--ready-file", ready, *options],
            cwd=version, stdout=subprocess.DEVNULL, stderr=directory.with_name("log").open("wb"),
            env=environment_of(version),
        )  # fmt: skip
        while not ready.exists():
            assert self._process.poll() is None, directory.with_name("log").read_text()
            time.sleep(0.002)  # the process says that it is ready by a file
        self.ready_s = self.seconds()
        self.address = ready.read_text().strip()
        self.pid = self._process.pid

    def seconds(self) -> float:
        return time.monotonic() - self._started

    def stop(self) -> None:
        self._process.terminate()
        assert self._process.wait() == 0


def measure(version: Path, directory: Path, topic: str, *options: str) -> Start:
    serving = Serving(version, directory, *options)
    from confluent_kafka import Consumer, Producer
    from confluent_kafka import TopicPartition as Asked

    quiet = {"bootstrap.servers": serving.address, "log_level": 0}
    with _Asking(serving.address) as asking:
        consumer = Consumer({**quiet, "group.id": "g", "enable.auto.commit": False})
        consumer.assign([Asked(topic, 0, 0)])
        message = consumer.poll(ANSWER_SECONDS)
        assert message is not None
        assert message.error() is None, message.error()
        if "--read-only" not in options:
            producer = Producer({**quiet, "linger.ms": 0})
            producer.produce(topic, b"another", partition=1)
            assert producer.flush(ANSWER_SECONDS) == 0
        first_s = serving.seconds()
    consumer.close()
    resident = resident_bytes(serving.pid) / 1e6
    start = Start(serving.ready_s, first_s, sum(cpu_seconds(serving.pid)), resident, asking.longest_s * 1000)
    serving.stop()
    return start


class _Asking:
    """Another client, in a thread: it asks for ApiVersions every 2 ms."""

    def __init__(self, address: str) -> None:
        self._transport = transport_to(address)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._ask)
        self.longest_s = 0.0

    def _ask(self) -> None:
        request = encode_request(API_VERSIONS, 0, 1, "asking", ApiVersionsRequest())
        while not self._is_over.wait(0.002):
            asked = time.monotonic()
            self._transport.send(request)
            self._transport.receive()
            self.longest_s = max(self.longest_s, time.monotonic() - asked)

    def __enter__(self) -> _Asking:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._is_over.set()
        self._thread.join()
        self._transport.close()


def batch(record_bytes: int, now_ms: int, epoch: int = 0) -> bytearray:
    values = [bytes([97 + number]) * record_bytes for number in range(_RECORDS)]
    records = [Record(number, now_ms, b"k%d" % number, value) for number, value in enumerate(values)]
    return bytearray(batch_of(records, partition_leader_epoch=epoch))


def make_topic(directory: Path, partitions: int) -> None:
    """Empty, by a server that was stopped cleanly."""
    server = Serving(HERE, directory)
    subprocess.run(
        [PLOG, "topic", "create", _TOPIC, "--partitions", str(partitions), "--bootstrap-server", server.address],
        check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    from confluent_kafka import Consumer
    from confluent_kafka import TopicPartition as Asked

    consumer = Consumer({"bootstrap.servers": server.address, "group.id": "g"})
    consumer.committed([Asked(_TOPIC, 0)], timeout=ANSWER_SECONDS)  # so that the group's topic is there
    consumer.close()
    server.stop()
    for path in directory.glob(f"{_TOPIC}-*/0*"):
        path.unlink()


def write_stopped(directory: Path, partitions: int, segments: int) -> None:
    """What a clean stop leaves of a topic with so many segments in each partition."""
    make_topic(directory, partitions)
    for number in range(partitions):
        folder = directory / f"{_TOPIC}-{number}"
        end = write_segments(folder, segments)
        (folder / f"{end:020d}.snapshot").write_bytes(bytes.fromhex("000148674bc700000000"))
    ends = {TopicPartition(_TOPIC, number): end for number in range(partitions)}
    for name in (RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT):
        write_offset_checkpoint(directory / name, ends, FileSystem())


def write_segments(folder: Path, count: int) -> int:
    """Writes so many segments of one batch each, and returns the end offset."""
    now_ms = int(time.time() * 1000)
    one, end = batch(100, now_ms), count * _RECORDS
    entry = _TIME_ENTRY.pack(now_ms, _RECORDS - 1)
    for base in range(0, end, _RECORDS):
        _BASE_OFFSET.pack_into(one, 0, base)
        (folder / f"{base:020d}.log").write_bytes(one)
        (folder / f"{base:020d}.index").write_bytes(b"")
        (folder / f"{base:020d}.timeindex").write_bytes(entry)
    return end


def write_copy(directory: Path, megabytes: int, partitions: int = 10) -> None:
    """Of batches of 16 KB, without checkpoints and whatever else says how the last stop was."""
    make_topic(directory, partitions)
    for name in (*OFFSET_CHECKPOINTS, CLEAN_SHUTDOWN):
        (directory / name).unlink(missing_ok=True)
    now_ms = int(time.time() * 1000)
    one = batch(1600, now_ms)
    for number in range(partitions):
        folder = directory / f"{_TOPIC}-{number}"
        base, left = 0, megabytes * 1_000_000 // partitions
        while left > 0:
            data, index, start = bytearray(), bytearray(), base
            while len(data) < min(left, _COPIED_SEGMENT_BYTES):
                _BASE_OFFSET.pack_into(one, 0, base)
                if data:
                    index += _OFFSET_ENTRY.pack(base + _RECORDS - 1 - start, len(data))
                data += one
                base += _RECORDS
            (folder / f"{start:020d}.log").write_bytes(data)
            (folder / f"{start:020d}.index").write_bytes(index)
            (folder / f"{start:020d}.timeindex").write_bytes(_TIME_ENTRY.pack(now_ms, _RECORDS - 1))
            left -= len(data)


@contextlib.contextmanager
def _again(source: Path, directory: Path) -> Iterator[Path]:
    """A copy of the folders: what a start writes stays in it. Logs that nobody writes to share their bytes."""

    def copy(path: str, copied: str) -> None:
        is_full = path.endswith(LOG_SUFFIX) and Path(path).stat().st_size >= _COPIED_SEGMENT_BYTES
        (os.link if is_full else shutil.copyfile)(path, copied)

    shutil.copytree(source, directory, copy_function=copy)
    yield directory
    shutil.rmtree(directory)


def main() -> None:
    parser = option_parser(__doc__, rounds=3, partitions=100, segments=1000, megabytes=4000)
    parser.add_argument("--before", type=Path, help="a checkout of the other version")
    parser.add_argument("--directory", type=Path, help="where the folders are made; a temporary one is used without it")
    options = parser.parse_args()
    versions = {"before": options.before, "now": HERE} if options.before else {"now": HERE}
    print("| what | version | ready, s | first fetch and produce, s | CPU, s | memory, MB | longest wait, ms |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="plog-benchmark-", dir=options.directory) as temporary:
        root = Path(temporary)
        stopped, copied = root / "stopped", root / "copied"
        write_stopped(stopped, options.partitions, options.segments)
        write_copy(copied, options.megabytes)
        what = f"{options.partitions * options.segments:,} segments, stopped cleanly"
        found: dict[tuple[str, str], list[Start]] = {}
        for _ in range(options.rounds):
            for name, version in versions.items():
                found.setdefault((what, name), []).append(measure(version, stopped, _TOPIC))
        for _ in range(options.rounds):
            for name, version in versions.items():
                key = f"a copy of {options.megabytes} MB, --read-only", name
                found.setdefault(key, []).append(measure(version, copied, _TOPIC, "--read-only"))
                with _again(copied, root / "again") as again:
                    key = f"a copy of {options.megabytes} MB", name
                    found.setdefault(key, []).append(measure(version, again, _TOPIC))
        for (row, name), starts in found.items():
            styles = (".2f", ".2f", ".2f", ".0f", ".0f")
            columns = [spread((start[number] for start in starts), style) for number, style in enumerate(styles)]
            print("| " + " | ".join([row, name, *columns]) + " |", flush=True)


if __name__ == "__main__":
    main()
