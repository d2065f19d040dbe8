"""The cleaner beside Kafka's, on copies of one log.

    .venv/bin/python -m benchmarks.compaction [--rounds 5] [--records 4000000] [--keys 500000]

Records of some 200 bytes, uncompressed, in batches of 16 KB; keys of 16 bytes at random; everything is dirty, and read
from the page cache. plog's CPU: user and system time of `plog compact --apply`, net of what it takes for a log of 1,000
records; Kafka's: of its cleaner thread, until the cleaner checkpoint names the log's end. Kafka's JIT is unrestrained,
its heap 1 GB.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np

from core.common.clock import SystemClock
from core.common.config_def import ConfigResourceType
from core.common.topic_partition import TopicPartition
from core.log.checkpoint_file import read_offset_checkpoint
from core.log.file_names import CLEANER_CHECKPOINT
from core.log.partition_log import PartitionLog
from core.records.byte_strings import ByteStrings
from core.records.column_encoder import encode_columns
from core.records.compression import CompressionType
from core.records.record_batch import RecordBatch
from core.records.record_batch_builder import build_batch
from tests.support.broker import add_topic, open_broker
from tests.support.kafka_server import KafkaServer
from tests.support.logs import append
from tests.support.server import PLOG

_SEGMENT_BYTES = 100 * 1024 * 1024
_DEDUPE_BUFFER_BYTES = 128 * 1024 * 1024
_CHUNK = 200_000


def write_log(directory: Path, records: int, keys: int, min_cleanable_dirty_ratio: str = "0.01") -> int:
    """Gives the log's bytes."""
    broker = open_broker(directory, SystemClock())
    configs = {
        "min_cleanable_dirty_ratio": min_cleanable_dirty_ratio,
        "segment_bytes": str(_SEGMENT_BYTES),
        "retention_ms": "-1",
    }
    add_topic(broker, "t", 1, **configs)
    log = broker.replicas.find("t", 0).log
    write_records(log, records, keys)
    log.roll()
    size = log.size_bytes
    broker.set_configs(ConfigResourceType.TOPIC, "t", {"cleanup.policy": "compact"})
    broker.close()
    return size


def write_records(
    log: PartitionLog, records: int, keys: int, compression: CompressionType = CompressionType.NONE
) -> None:
    """Of some 200 bytes, in batches of 16 KB before they are compressed."""
    random = np.random.default_rng(7)
    noise = random.bytes(1 << 20)
    now_ms = SystemClock().now_ms() - 1_000_000
    for first in range(0, records, _CHUNK):
        count = min(_CHUNK, records - first)
        key_numbers = random.integers(0, keys, count).tolist()
        starts, sizes = random.integers(0, len(noise) - 200, count).tolist(), random.integers(150, 190, count).tolist()
        timestamps = now_ms + np.arange(first, first + count) // 100
        sections = encode_columns(
            timestamps.astype(np.int64),
            ByteStrings.of_list([b"key-%012d" % number for number in key_numbers]),
            ByteStrings.of_list([noise[start : start + size] for start, size in zip(starts, sizes, strict=True)]),
            batch_bytes=16 * 1024,
        )
        for section in sections:
            data = build_batch(
                section.section,
                count=section.count,
                base_timestamp=section.base_timestamp,
                max_timestamp=section.max_timestamp,
                compression=compression,
            )
            append(log, RecordBatch(memoryview(bytearray(data))))


def clean_by_plog(directory: Path) -> tuple[float, float, float]:
    """CPU seconds, wall seconds, and the most memory, MB."""
    started = time.monotonic()
    process = subprocess.Popen([PLOG, "compact", "--apply", str(directory)], stdout=subprocess.DEVNULL)
    peak = 0
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            break
        for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                peak = int(line.split()[1])
        time.sleep(0.02)
    assert status == 0
    return usage.ru_utime + usage.ru_stime, time.monotonic() - started, peak / 1024


def clean_by_kafka(directory: Path, end_offset: int) -> tuple[float, float]:
    """CPU seconds of its cleaner thread, and wall seconds from when that began."""
    server = KafkaServer(
        directory, java_options=("-Xmx1G",), log_cleaner_backoff_ms="200",
        log_cleaner_dedupe_buffer_size=str(_DEDUPE_BUFFER_BYTES),
    )  # fmt: skip
    with server:
        started = time.monotonic()
        while read_offset_checkpoint(directory / CLEANER_CHECKPOINT).get(TopicPartition("t", 0), 0) < end_offset:
            time.sleep(0.1)
        wall = time.monotonic() - started
        return cleaner_thread_seconds(server.pid), wall


def cleaner_thread_seconds(pid: int) -> float:
    for task in Path(f"/proc/{pid}/task").iterdir():
        name, _, fields = (task / "stat").read_text().partition("(")[2].rpartition(")")
        if "log-clean" in name:
            user, system = fields.split()[11:13]
            return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
    raise AssertionError("no cleaner thread")


def text(figures: list[float], unit: str) -> str:
    return f"{statistics.median(figures):.3g} {unit} ({min(figures):.3g}-{max(figures):.3g})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", type=int, default=4_000_000)
    parser.add_argument("--keys", type=int, default=500_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="plog-benchmark-") as temporary:
        original, small = Path(temporary) / "original", Path(temporary) / "small"
        write_log(small, 1000, 10)
        size = write_log(original, arguments.records, arguments.keys)
        print(f"{arguments.records} records, {arguments.keys} keys, {size / arguments.records:.0f} bytes a record")
        ours, walls, memory, theirs, their_walls = [], [], [], [], []
        for _ in range(arguments.rounds):
            copy = Path(temporary) / "copy"
            shutil.copytree(original, copy)
            cpu, wall, peak = clean_by_plog(copy)
            start_up, _, _ = clean_by_plog(Path(shutil.copytree(small, Path(temporary) / "small-copy")))
            shutil.rmtree(Path(temporary) / "small-copy")
            ours.append(arguments.records / (cpu - start_up) / 1e6)
            walls.append(wall)
            memory.append(peak)
            assert read_offset_checkpoint(copy / CLEANER_CHECKPOINT)[TopicPartition("t", 0)] == arguments.records
            shutil.rmtree(copy)
            shutil.copytree(original, copy)
            cpu, wall = clean_by_kafka(copy, arguments.records)
            theirs.append(arguments.records / cpu / 1e6)
            their_walls.append(wall)
            shutil.rmtree(copy)
        ratio = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
        print("| | plog | Kafka | plog / Kafka |\n|---|---|---|---|")
        unit = "M records/CPU s"
        print(f"| cleaned | {text(ours, unit)} | {text(theirs, unit)} | {ratio:.2f} |")
        print(f"| wall | {text(walls, 's')} | {text(their_walls, 's')} | |")
        print(f"| most memory | {text(memory, 'MB')} | | |")


if __name__ == "__main__":
    main()
