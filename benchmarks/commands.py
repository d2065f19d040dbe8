"""How long a person waits, and the inspector beside Kafka's DumpLogSegments.

    .venv/bin/python -m benchmarks.commands [--rounds 7] [--megabytes 256]

Clock seconds for what a person waits for (help, a ready server), CPU seconds for the inspector: the log is one segment
of `megabytes` of 200-byte records in batches of 16 KB, in the page cache. Kafka's tool is timed on the whole log and on
one batch, in turns with plog's; the difference is net of its start-up, as is plog's.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.peers import PlogPeer, resident_bytes
from tests.support.oracle import java_command
from tests.support.server import PLOG

RECORD_BYTES = 200


def clock(command: list[str | Path]) -> float:
    started = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.monotonic() - started


def cpu(command: list[str | Path]) -> float:
    """User and system seconds of a command, all its threads."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    clock(command)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def make_log(directory: Path, megabytes: int) -> tuple[Path, Path, int]:
    """(a log of many records, a log of one batch, how many records the first has)."""
    lines = b"".join(os.urandom(RECORD_BYTES // 2).hex().encode() + b"\n" for _ in range(10_000))
    count = megabytes * 1_000_000 // RECORD_BYTES
    for topic, repeat in (("large", count // 10_000), ("small", 0)):
        data_dir = directory / topic
        command = [PLOG, "produce", "t", "--data-dir", data_dir, "--batch-size", "16384", "--partition", "0"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as producer:
            assert producer.stdin is not None
            for _ in range(repeat):
                producer.stdin.write(lines)
            if not repeat:
                producer.stdin.write(lines[:2010])
        assert producer.returncode == 0
    name = "t-0/00000000000000000000.log"
    return directory / "large" / name, directory / "small" / name, count // 10_000 * 10_000


def text(figures: list[float], unit: str) -> str:
    return f"{statistics.median(figures):.3g} {unit} ({min(figures):.3g}-{max(figures):.3g})"


def row(what: str, figures: list[float], unit: str, beside: str = "") -> None:
    print(f"| {what} | {text(figures, unit)} | {beside} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--megabytes", type=int, default=256)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="plog-benchmark-") as temporary:
        directory = Path(temporary)
        print("| what | plog | Kafka |\n|---|---|---|")
        row("`plog --help`", [1000 * clock([PLOG, "--help"]) for _ in range(arguments.rounds)], "ms")
        serve(directory, arguments.rounds)
        inspect(directory, arguments.rounds, arguments.megabytes)


def serve(directory: Path, rounds: int) -> None:
    ready, resident = [], []
    for number in range(rounds):
        peer = PlogPeer(directory / str(number))
        ready.append(1000 * peer.ready_s)
        resident.append(resident_bytes(peer.pid) / 1e6)
        peer.stop()
    row("`plog serve`, start to ready", ready, "ms")
    row("`plog serve`, resident memory when idle", resident, "MB")


def inspect(directory: Path, rounds: int, megabytes: int) -> None:
    large, small, count = make_log(directory, megabytes)
    size = large.stat().st_size
    verify_: list[float] = []
    dump: list[float] = []
    kafka: list[float] = []

    def net(command: Callable[[Path], list[str | Path]], measure: Callable[[list[str | Path]], float]) -> float:
        return measure(command(large)) - measure(command(small))

    def dump_log_segments(path: Path) -> list[str | Path]:
        command = java_command("org.apache.kafka.tools.DumpLogSegments", "--print-data-log", "--files", str(path))
        command.remove("-XX:TieredStopAtLevel=1")
        return list(command)

    for _ in range(rounds):
        verify_.append(size / 1e9 / net(lambda path: [PLOG, "verify", path], clock))
        dump.append(
            count / 1e6 / net(lambda path: [PLOG, "dump-segment", "--print-data-log", "--format", "kafka", path], cpu)
        )
        kafka.append(count / 1e6 / net(dump_log_segments, cpu))
    row("`plog verify`, net of start-up", verify_, "GB/s")
    ratio = statistics.median(p / k for p, k in zip(dump, kafka, strict=True))
    row(
        "`plog dump-segment --print-data-log`, net of start-up", dump, "M records/CPU s",
        f"{text(kafka, 'M records/CPU s')}; plog / Kafka {ratio:.1f}",
    )  # fmt: skip


if __name__ == "__main__":
    main()
