"""How long a broker takes to start, beside the version before it.

    git worktree add /tmp/before COMMIT
    .venv/bin/python -m benchmarks.start [--before /tmp/before] [--rounds 3] [--partitions 100] [--segments 1000]
        [--megabytes 4000]

Two directories, whose files are written here as a broker would have left them. One was stopped cleanly, and has many
segments of one batch each. The other is a copy without checkpoints and without metadata, of few large segments, once
served as the owner's and once with `--read-only`. In turns, with the files in the system's cache: seconds until the
server says `ready`, seconds from the start of the process until the first record of one partition was fetched, CPU
seconds up to there, resident memory.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.peers import cpu_seconds, resident_bytes
from benchmarks.shell import text
from core.common.filesystem import FileSystem
from core.common.topic_partition import TopicPartition
from core.log.checkpoint_file import write_offset_checkpoint
from core.log.file_names import HIGH_WATERMARK_CHECKPOINT, LOG_SUFFIX, RECOVERY_POINT_CHECKPOINT
from core.records.record_batch_builder import RecordBatchBuilder
from tests.support.server import PLOG

HERE = Path(__file__).parent.parent
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


class _Serving:
    """`plog serve` of one version, from its process on."""

    def __init__(self, version: Path, directory: Path, *options: str) -> None:
        ready = directory.with_name("ready")
        ready.unlink(missing_ok=True)
        self._started = time.monotonic()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "plog", "serve", "--data-dir", directory, "--listen", "127.0.0.1:0",
             "--ready-file", ready, *options],
            cwd=version, stdout=subprocess.DEVNULL, stderr=directory.with_name("log").open("wb"), env=_ENVIRONMENT,
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
        assert self._process.wait(300) == 0


_ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def measure(version: Path, directory: Path, topic: str, *options: str) -> Start:
    """Starts it, fetches a record of the last partition but one, produces one to the last where that may be done."""
    serving = _Serving(version, directory, *options)
    from confluent_kafka import Consumer, Producer
    from confluent_kafka import TopicPartition as Asked

    consumer = Consumer({"bootstrap.servers": serving.address, "group.id": "g", "enable.auto.commit": False})
    consumer.assign([Asked(topic, 0, 0)])
    message = consumer.poll(600)
    assert message is not None
    assert message.error() is None, message.error()
    consumer.close()
    if "--read-only" not in options:
        producer = Producer({"bootstrap.servers": serving.address, "linger.ms": 0})
        producer.produce(topic, b"another", partition=1)
        assert producer.flush(600) == 0
    first_s = serving.seconds()
    start = Start(serving.ready_s, first_s, sum(cpu_seconds(serving.pid)), resident_bytes(serving.pid) / 1e6)
    serving.stop()
    return start


def batch(record_bytes: int, now_ms: int, epoch: int = 0) -> bytearray:
    builder = RecordBatchBuilder()
    for number in range(_RECORDS):
        builder.append(now_ms, b"k%d" % number, bytes([97 + number]) * record_bytes)
    return bytearray(builder.build(partition_leader_epoch=epoch))


def write_stopped(directory: Path, partitions: int, segments: int) -> None:
    """What a clean stop leaves of a topic with so many segments in each partition."""
    server = _Serving(HERE, directory)
    subprocess.run(
        [PLOG, "topic", "create", _TOPIC, "--partitions", str(partitions), "--bootstrap-server", server.address],
        check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    server.stop()
    now_ms = int(time.time() * 1000)
    one, end = batch(100, now_ms), segments * _RECORDS
    entry = _TIME_ENTRY.pack(now_ms, _RECORDS - 1)
    for number in range(partitions):
        folder = directory / f"{_TOPIC}-{number}"
        for path in folder.glob("0*"):
            path.unlink()
        for base in range(0, end, _RECORDS):
            _BASE_OFFSET.pack_into(one, 0, base)
            (folder / f"{base:020d}.log").write_bytes(one)
            (folder / f"{base:020d}.index").write_bytes(b"")
            (folder / f"{base:020d}.timeindex").write_bytes(entry)
        (folder / f"{end:020d}.snapshot").write_bytes(bytes.fromhex("000148674bc700000000"))
    ends = {TopicPartition(_TOPIC, number): end for number in range(partitions)}
    for name in (RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT):
        write_offset_checkpoint(directory / name, ends, FileSystem())


def write_copy(directory: Path, megabytes: int, partitions: int = 10) -> None:
    """Folders alone, of batches of 16 KB, as a copy of some of a broker's has them."""
    now_ms = int(time.time() * 1000)
    one = batch(1600, now_ms)
    for number in range(partitions):
        folder = directory / f"{_TOPIC}-{number}"
        folder.mkdir(parents=True)
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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--partitions", type=int, default=100)
    parser.add_argument("--segments", type=int, default=1000)
    parser.add_argument("--megabytes", type=int, default=4000)
    parser.add_argument("--directory", type=Path, help="where the folders are made; a temporary one is used without it")
    options = parser.parse_args()
    versions = {"before": options.before, "now": HERE} if options.before else {"now": HERE}
    print("| what | version | ready, s | first fetch and produce, s | CPU, s | memory, MB |")
    print("|---|---|---|---|---|---|")
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
            columns = [text([start[number] for start in starts], 0 if number == 3 else 2) for number in range(4)]
            print("| " + " | ".join([row, name, *columns]) + " |", flush=True)


if __name__ == "__main__":
    main()
