"""The cleaner beside Kafka's, on copies of one log.

    .venv/bin/python -m benchmarks.compaction [--rounds 5] [--records 4000000] [--keys 500000]

Records of some 200 bytes, uncompressed, in batches of 16 KB; keys of 16 bytes at random; everything is dirty, and read
from the page cache. plog's CPU: user and system time of `plog compact --apply`, net of what it takes for a log of 1,000
records; Kafka's: of its cleaner thread, until the cleaner checkpoint names the log's end. Kafka's JIT is unrestrained,
its heap 1 GB.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import numpy as np

from benchmarks.figures import quotients, ratio, spread
from benchmarks.options import ensure_kafka, option_parser
from benchmarks.peers import archive_options, scratch_folder
from core.common.clock import SystemClock
from core.common.config_def import ConfigResourceType
from core.common.topic_partition import TopicPartition
from core.files.checkpoint_file import read_offset_checkpoint
from core.files.file_names import CLEANER_CHECKPOINT
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
    log = broker.services.replicas.find("t", 0).log
    write_records(log, records, keys)
    log.roll()
    size = log.size_bytes
    broker.services.configs.set(ConfigResourceType.TOPIC, "t", {"cleanup.policy": "compact"})
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
        directory, java_options=("-Xmx1G", *archive_options()), log_cleaner_backoff_ms="200",
        log_cleaner_dedupe_buffer_size=str(_DEDUPE_BUFFER_BYTES),
    )  # fmt: skip
    with server:
        started = time.monotonic()
        while read_offset_checkpoint(directory / CLEANER_CHECKPOINT).get(TopicPartition("t", 0), 0) < end_offset:
            assert server.process is not None
            assert server.process.poll() is None, server.log.read_text()
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


def main() -> None:
    options = option_parser(__doc__, rounds=5, records=4_000_000, keys=500_000).parse_args()
    ensure_kafka()
    millions = [options.records / 1e6] * options.rounds
    with scratch_folder() as temporary:
        original, small, copy = (temporary / name for name in ("original", "small", "copy"))
        write_log(small, 1000, 10)
        size = write_log(original, options.records, options.keys)
        print(f"{options.records} records, {options.keys} keys, {size / options.records:.0f} bytes a record")
        cpus, walls, memory, their_cpus, their_walls = [], [], [], [], []
        for _ in range(options.rounds):
            shutil.copytree(original, copy)
            cpu, wall, peak = clean_by_plog(copy)
            start_up, _, _ = clean_by_plog(Path(shutil.copytree(small, temporary / "small-copy")))
            shutil.rmtree(temporary / "small-copy")
            cpus.append(cpu - start_up)
            walls.append(wall)
            memory.append(peak)
            assert read_offset_checkpoint(copy / CLEANER_CHECKPOINT)[TopicPartition("t", 0)] == options.records
            shutil.rmtree(copy)
            shutil.copytree(original, copy)
            cpu, wall = clean_by_kafka(copy, options.records)
            their_cpus.append(cpu)
            their_walls.append(wall)
            shutil.rmtree(copy)
        ours, theirs = quotients(millions, cpus), quotients(millions, their_cpus)
        print("| | plog | Kafka | plog / Kafka |\n|---|---|---|---|")
        unit = "M records/CPU s"
        print(f"| cleaned | {spread(ours, unit=unit)} | {spread(theirs, unit=unit)} | {ratio(ours, theirs)} |")
        print(f"| wall | {spread(walls, unit='s')} | {spread(their_walls, unit='s')} | |")
        print(f"| most memory | {spread(memory, unit='MB')} | | |")


if __name__ == "__main__":
    main()
