"""plog's data source and replay beside Spark's own Kafka connector, on one log.

    .venv/bin/python -m benchmarks.spark [--rounds 5] [--warm-up 1] [--records 4000000] [--codec none]
                                         [--start-up | --whole]

Four partitions, records of some 200 bytes in batches of 16 KB, in the page cache. The connector reads
them from a real Kafka that serves the directory, and shares the CPUs with it; plog reads the directory, checksums
checked. One Spark, local[2]. To noop: all columns, headers too. To Parquet, zstd: the connector's DataFrame by Spark's
writer, plog's by a replay's tasks, with digests, receipts and manifest.

`--whole`: each job in processes of its own; the CPU seconds of all of them, Spark's start included, without Kafka's.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.compaction import write_records
from benchmarks.figures import quotients, spread
from benchmarks.options import ensure_kafka, ensure_packages, option_parser
from benchmarks.peers import Command, archive_options, resident_bytes, scratch_folder
from core.common.clock import SystemClock
from core.common.topic_partition import TopicPartition
from core.forensics.partition_reader import DirectoryReader
from core.records.compression import CompressionType
from core.spark.lake_folder import PlainFolder
from core.spark.offset_range import OffsetRange
from core.spark.range_output import OutputFormat
from core.spark.replay import Replay, write_ranges
from core.spark.replay_plan import ReplayPlan
from core.spark.source_options import TARGET_BYTES
from core.spark.spark_session import spark_session
from core.spark.spark_settings import SparkSettings
from plog.spark import register
from tests.support.broker import add_topic, open_broker
from tests.support.kafka_server import KafkaServer
from tests.support.server import PLOG
from tests.support.spark.connector import use_connector

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS = 4
COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")


def write_logs(directory: Path, records: int, codec: str = "none") -> None:
    broker = open_broker(directory, SystemClock())
    add_topic(broker, "t", PARTITIONS, retention_ms="-1", segment_bytes=str(256 * 1024 * 1024))
    for number in range(PARTITIONS):
        log = broker.services.replicas.find("t", number).log
        write_records(log, records // PARTITIONS, 1 << 40, CompressionType[codec.upper()])
    broker.close()


def clock(work: Callable[[], None]) -> float:
    started_s = time.monotonic()
    work()
    return time.monotonic() - started_s


def frame_of(spark: SparkSession, name: str, **options: str) -> DataFrame:
    return spark.read.format(name).options(**options, subscribe="t", includeHeaders="true").load().select(*COLUMNS)


def to_noop(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def to_parquet(frame: DataFrame, out: Path) -> None:
    frame.write.option("compression", "zstd").mode("overwrite").parquet(str(out))


def replay(spark: SparkSession, data_dir: Path, out: Path) -> None:
    from core.spark.source import split_by_index

    reader = DirectoryReader(data_dir)
    ranges: list[OffsetRange] = []
    for number in range(PARTITIONS):
        log = reader.open(TopicPartition("t", number))
        pieces = split_by_index(log, 0, log.end_offset, TARGET_BYTES)
        ranges += (OffsetRange("t", number, *piece, directory=str(log.directory)) for piece in pieces)
        log.close()
    plan = ReplayPlan({}, tuple(ranges), OutputFormat("parquet", "binary", "binary"), COLUMNS)
    shutil.rmtree(out, ignore_errors=True)
    job = Replay(PlainFolder(out))
    with job.locked():
        job.freeze({}, lambda: plan)
        write_ranges(spark, job, plan, lambda _: None)
        job.commit(plan)


_BARE = """
import sys; from pathlib import Path; from core.spark.spark_session import spark_session
from core.spark.spark_settings import SparkSettings
with spark_session(SparkSettings("local[2]"), Path(sys.argv[1])) as spark:
    spark.sparkContext.parallelize(range(4), 4).map(lambda n: n).count()
"""


_BARE_SQL = _BARE.replace(_BARE.splitlines()[-1], "    spark.range(4).write.format('noop').mode('overwrite').save()")
_WHOLE = """
import sys; from pathlib import Path; from core.spark.spark_session import spark_session
from core.spark.spark_settings import SparkSettings
_, scratch, target, name, option, value = sys.argv
with spark_session(SparkSettings("local[2]"), Path(scratch)) as spark:
    if name == "plog":
        from plog.spark import register
        register(spark)
    asked = spark.read.format(name).options(**{option: value, "subscribe": "t", "includeHeaders": "true"})
    writer = asked.load().write.mode("overwrite")
    writer.format("noop").save() if target == "noop" else writer.option("compression", "zstd").parquet(target)
"""
_LOOK_SECONDS = 0.02


def cpu_of(job: list[str]) -> float:
    """Returns the CPU seconds of a command and of all processes that it starts. They are looked at while they live:
    nobody waits for PySpark's workers when its daemon ends, so the system adds their times to no parent's.
    """
    process = subprocess.Popen(job, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    seconds = {process.pid: 0.0}
    alive = {process.pid}
    while alive:
        process.poll()
        found = dict(_processes())
        while new := {pid for pid, (parent, _) in found.items() if parent in seconds and pid not in seconds}:
            seconds |= dict.fromkeys(new, 0.0)
        alive = seconds.keys() & found.keys()
        seconds |= {pid: found[pid][1] for pid in alive}
        time.sleep(_LOOK_SECONDS)
    assert process.returncode == 0
    return sum(seconds.values())


def _processes() -> Iterator[tuple[int, tuple[int, float]]]:
    """Yields the machine's processes: the pid, its parent's, and its own CPU seconds (proc_pid_stat(5))."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            yield int(folder.name), (int(fields[1]), (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"))


def measure_whole(records: int, codec: str, rounds: int) -> None:
    """Everything in turns, and how many times the connector's CPU time is plog's."""
    use_connector()
    with scratch_folder() as directory:
        data_dir, out, scratch = directory / "data", directory / "out", directory / "spark"
        write_logs(data_dir, records, codec)
        frame = [sys.executable, "-c", _WHOLE, str(scratch)]
        replayed = [str(PLOG), "spark-replay", "t", "--master", "local[2]", "--data-dir", str(data_dir), "--to"]
        ours = ["plog", "path", str(data_dir)]
        with KafkaServer(data_dir, java_options=("-Xmx1G", *archive_options()), log_cleaner_enable="false") as kafka:
            theirs = ["kafka", "kafka.bootstrap.servers", kafka.address]
            jobs: dict[str, list[str]] = {
                "bare Spark": [sys.executable, "-c", _BARE, str(scratch)],
                "bare SQL": [sys.executable, "-c", _BARE_SQL, str(scratch)],
                "noop, connector": [*frame, "noop", *theirs],
                "noop, plog": [*frame, "noop", *ours],
                "parquet, connector": [*frame, str(out), *theirs],
                "parquet, plog": [*replayed, f"parquet:{out}"],
                "parquet by URL, plog": [*replayed, f"parquet:file://{out}"],
            }
            figures: dict[str, list[float]] = {name: [] for name in jobs}
            for _ in range(rounds):
                for name, job in jobs.items():
                    shutil.rmtree(out, ignore_errors=True)
                    figures[name].append(cpu_of(job))
        for name, seconds in figures.items():
            print(f"{name:24} {seconds_of(seconds)} of CPU")
        for kind in ("noop", "parquet", "parquet by URL"):
            ratios = quotients(figures[f"{kind.partition(' ')[0]}, connector"], figures[f"{kind}, plog"])
            print(f"{kind}: the connector's CPU time, times plog's: {spread(ratios, '.2f')}")


def command(data_dir: Path, out: Path) -> float:
    shutil.rmtree(out, ignore_errors=True)
    options = ["--master", "local[2]", "--data-dir", str(data_dir)]
    return clock(lambda: run([PLOG, "spark-replay", "t", "--to", f"parquet:{out}", *options]))


def run(command: Command) -> None:
    subprocess.run(command, check=True, capture_output=True)


def start_up(directory: Path, records: int, rounds: int) -> None:
    """The command on 1,000 records beside a Spark that starts, runs four tasks and stops; and what the command's
    process takes at most, for a tenth of the records and for all.
    """
    few, tenth, many = directory / "few", directory / "tenth", directory / "many"
    for where, count in ((few, 1000), (tenth, records // 10), (many, records)):
        write_logs(where, count)
    bare, ours = [], []
    for _ in range(rounds):
        bare.append(clock(lambda: run([sys.executable, "-c", _BARE, str(directory / "spark")])))
        ours.append(command(few, directory / "out"))
    print(f"a bare Spark             {seconds_of(bare)}")
    print(f"plog spark-replay        {seconds_of(ours)}")
    for where, count in ((tenth, records // 10), (many, records)):
        sizes = []
        for _ in range(3):
            shutil.rmtree(directory / "out", ignore_errors=True)
            process = subprocess.Popen(
                [PLOG, "spark-replay", "t", "--to", f"parquet:{directory / 'out'}", "--master", "local[2]",
                 "--data-dir", str(where)], stderr=subprocess.DEVNULL,
            )  # fmt: skip
            sizes.append(peak_of_driver(process))
        print(f"driver, {count:>9,} records: {sorted(sizes)[1] / 1e6:.0f} MB in Python, at most")


def peak_of_driver(process: subprocess.Popen[bytes]) -> int:
    """Resident bytes of the command's own process."""
    peak = 0
    while process.poll() is None:
        with contextlib.suppress(OSError, IndexError):
            peak = max(peak, resident_bytes(process.pid))
        time.sleep(0.02)
    assert process.returncode == 0
    return peak


def seconds_of(figures: list[float]) -> str:
    return spread(figures, ".2f", "s")


def main() -> None:
    parser = option_parser(__doc__, rounds=5, warm_up=1, records=4_000_000)
    parser.add_argument("--codec", default="none", help="none, gzip, snappy, lz4 or zstd")
    parser.add_argument("--start-up", action="store_true", help="the command's start and memory instead")
    parser.add_argument("--whole", action="store_true", help="the CPU time of each job with Spark's start instead")
    options = parser.parse_args()
    ensure_packages("pyspark", extra="spark")
    if options.start_up:
        with scratch_folder() as directory:
            start_up(directory, options.records, options.rounds)
        return
    ensure_kafka()
    if options.whole:
        measure_whole(options.records, options.codec, options.rounds)
        return
    measure(options.records, options.codec, options.rounds, options.warm_up)


def measure(records: int, codec: str, rounds: int, warm_up: int) -> None:
    use_connector()
    with scratch_folder() as directory:
        data_dir, out = directory / "data", directory / "out"
        write_logs(data_dir, records, codec)
        figures: dict[str, list[float]] = {}
        kafka = KafkaServer(data_dir, java_options=("-Xmx1G", *archive_options()), log_cleaner_enable="false")
        with kafka, spark_session(SparkSettings("local[2]"), directory / "spark") as spark:
            register(spark)
            connector = {"kafka.bootstrap.servers": kafka.address}
            works: dict[str, Callable[[], None]] = {
                "noop, connector": lambda: to_noop(frame_of(spark, "kafka", **connector)),
                "noop, plog": lambda: to_noop(frame_of(spark, "plog", path=str(data_dir))),
                "parquet, connector": lambda: to_parquet(frame_of(spark, "kafka", **connector), out / "connector"),
                "parquet, plog replay": lambda: replay(spark, data_dir, out / "replay"),
                "noop, plog from servers": lambda: to_noop(frame_of(spark, "plog", **connector)),
            }
            assert frame_of(spark, "plog", path=str(data_dir)).count() == records
            for turn in range(-warm_up, rounds):  # those for the JVM to warm up are not counted
                for name, work in works.items():
                    seconds = clock(work)
                    if turn >= 0:
                        figures.setdefault(name, []).append(seconds)
        for name, seconds_ in figures.items():
            rate = records / statistics.median(seconds_) / 1e6
            print(f"{name:24} {seconds_of(seconds_):32} {rate:.2f} M records/s")
        for kind, ours in (("noop", "noop, plog"), ("parquet", "parquet, plog replay")):
            ratios = quotients(figures[f"{kind}, connector"], figures[ours])
            print(f"{kind}: as fast as the connector, times: {spread(ratios, '.2f')}")


if __name__ == "__main__":
    main()
