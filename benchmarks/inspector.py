"""The inspector beside Kafka's DumpLogSegments, on the same files, in turns.

    .venv/bin/python -m benchmarks.inspector [--rounds 5] [--megabytes 256] [--records 2000000] [--codecs lz4 zstd]

A tiny file is timed whole, start-up and all. Larger ones net of start-up: less the time for a file of one batch. The
logs: 200-byte records in batches of 16 KB, uncompressed; and small JSON records compressed with lz4 and zstd. Kafka's
JIT is unrestrained. Everything is read from the page cache and printed to /dev/null. "A core": user and system time of
all processes, when they may run on one CPU only; "wall": the clock's, on all of them.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.figures import quotients, spread
from benchmarks.options import ensure_kafka, ensure_programs, option_parser
from benchmarks.peers import Command, scratch_folder
from tests.support.oracle import java_command
from tests.support.server import PLOG

_TIMES = 5
"""How often verify is given its log: once takes no longer than its start-up."""

_READ_ALONE = """
import sys
from core.records.checksum import crc32c
for path in sys.argv[1:]:
    with open(path, "rb", buffering=0) as file:
        while data := file.read(1024 * 1024):
            crc32c(data)
"""

LOG = "t-0/00000000000000000000.log"


_LEAST_SECONDS = 1e-3
"""What is left of a command without its start-up, at least: a small file takes no longer than a tiny one."""


class Cost(NamedTuple):
    wall: float
    cpu: float

    def less(self, other: Cost) -> Cost:
        return Cost(max(self.wall - other.wall, _LEAST_SECONDS), max(self.cpu - other.cpu, _LEAST_SECONDS))


def cost(command: Command, *, on_one_cpu: bool = False) -> Cost:
    if on_one_cpu:
        command = ["taskset", "-c", "0", *command]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wall = time.monotonic() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Cost(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def dump(path: Path) -> Command:
    return [PLOG, "dump-segment", "--print-data-log", "--format", "kafka", path]


def verify(*paths: Path) -> Command:
    return [PLOG, "verify", *paths]


def verify_deep(*paths: Path) -> Command:
    return [PLOG, "verify", "--deep", *paths]


def read_alone(*paths: Path) -> Command:
    """What verify can't do without."""
    return [sys.executable, "-c", _READ_ALONE, *paths]


def kafka_dump(path: Path) -> Command:
    command = java_command("org.apache.kafka.tools.DumpLogSegments", "--print-data-log", "--files", str(path))
    command.remove("-XX:TieredStopAtLevel=1")
    return command


def peak_bytes(command: Command) -> int:
    """Of the command's largest process."""
    script = "import resource, subprocess, sys; subprocess.run(sys.argv[1:], stdout=-3, stderr=-3, check=True); "
    script += "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    done = subprocess.run([sys.executable, "-c", script, *map(str, command)], check=True, stdout=subprocess.PIPE)
    return int(done.stdout) * 1024


def plain_lines(count: int) -> Iterator[bytes]:
    block = [os.urandom(100).hex().encode() + b"\n" for _ in range(10_000)]
    for start in range(0, count, len(block)):
        yield b"".join(block[: count - start])


def json_lines(count: int) -> Iterator[bytes]:
    for start in range(0, count, 10_000):
        numbers = range(min(10_000, count - start))
        rows = ({"id": n, "name": f"user-{n % 977}", "score": n * 7919 % 1000, "ok": n % 3 == 0} for n in numbers)
        yield b"".join(json.dumps({**row, "at": start}).encode() + b"\n" for row in rows)


def write(directory: Path, lines: Iterator[bytes], codec: str) -> Path:
    command: Command
    command = [PLOG, "produce", "t", "--data-dir", directory, "--batch-size", "16384", "--partition", "0",
               "--compression", codec]  # fmt: skip
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as producer:
        assert producer.stdin is not None
        for block in lines:
            producer.stdin.write(block)
    assert producer.returncode == 0
    return directory / LOG


def pairs(rounds: int, ours: Command, theirs: Command, less: tuple[Command, Command]) -> tuple[list[Cost], list[Cost]]:
    found: tuple[list[Cost], list[Cost]] = ([], [])
    for _ in range(rounds):
        for number, command in enumerate((ours, theirs)):
            free = cost(command).less(cost(less[number]))
            pinned = cost(command, on_one_cpu=True).less(cost(less[number], on_one_cpu=True))
            found[number].append(Cost(free.wall, pinned.cpu))
    return found


def ratios(ours: list[Cost], theirs: list[Cost], field: str) -> str:
    return spread(quotients([getattr(c, field) for c in theirs], [getattr(c, field) for c in ours]), ".1f")


def row(what: str, plog: str, kafka: str = "", ratio: str = "") -> None:
    print(f"| {what} | {plog} | {kafka} | {ratio} |", flush=True)


def main() -> None:
    parser = option_parser(__doc__, rounds=5, megabytes=256, records=2_000_000)
    parser.add_argument("--codecs", nargs="*", default=["lz4", "zstd"], help="of the JSON records")
    options = parser.parse_args()
    ensure_kafka()
    ensure_programs("taskset")
    rounds = options.rounds
    print("| what | plog | Kafka | times faster |\n|---|---|---|---|")
    with scratch_folder() as directory:
        tiny = write(directory / "tiny", plain_lines_few(), "none")
        ours, theirs = [cost(dump(tiny)) for _ in range(rounds)], [cost(kafka_dump(tiny)) for _ in range(rounds)]
        for field in ("wall", "cpu"):
            row(f"tiny file, {field}", seconds(ours, field), seconds(theirs, field), ratios(ours, theirs, field))
        count = options.megabytes * 1_000_000 // 200
        large = write(directory / "large", plain_lines(count), "none")
        less = dump(tiny), kafka_dump(tiny)
        rate(f"{options.megabytes} MB, none", count, *pairs(rounds, dump(large), kafka_dump(large), less))
        for codec in options.codecs:
            log = write(directory / codec, json_lines(options.records), codec)
            found = pairs(rounds, dump(log), kafka_dump(log), less)
            rate(f"{options.records / 1e6:g} M records, {codec}", options.records, *found)
        index = large.with_suffix(".timeindex")
        ours, theirs = pairs(rounds, dump(index), kafka_dump(index), less)
        row(".timeindex, wall", seconds(ours, "wall"), seconds(theirs, "wall"), ratios(ours, theirs, "wall"))
        whole = [cost(dump(index)) for _ in range(rounds)]
        row(".timeindex, wall, start-up and all", seconds(whole, "wall"))
        size = large.stat().st_size
        checks: tuple[tuple[str, Callable[..., Command]], ...] = (
            ("read and checksum alone", read_alone),
            ("`verify`", verify),
            ("`verify --deep`", verify_deep),
        )
        speeds: dict[str, list[float]] = {name: [] for name, _ in checks}
        for _ in range(rounds):
            for name, check in checks:
                net = cost(check(*[large] * _TIMES), on_one_cpu=True).less(cost(check(tiny), on_one_cpu=True))
                speeds[name].append(_TIMES * size / 1e9 / net.cpu)
        for name, values in speeds.items():
            row(f"{name}, a core", spread(values, unit="GB/s"))
        for name, command in (("dump", dump(large)), ("verify", verify(large)), ("verify --deep", verify_deep(large))):
            row(f"{name}, peak memory", f"{peak_bytes(command) / 1e6:.0f} MB")


def plain_lines_few() -> Iterator[bytes]:
    yield b"".join(b"%d\n" % n for n in range(10))


def seconds(costs: list[Cost], field: str) -> str:
    return spread([getattr(c, field) for c in costs], unit="s")


def rate(what: str, count: int, ours: list[Cost], theirs: list[Cost]) -> None:
    for field, name, unit in (("cpu", "a core", "M records/s"), ("wall", "wall", "M records/s")):
        plog, kafka = (spread([count / 1e6 / getattr(c, field) for c in costs], unit=unit) for costs in (ours, theirs))
        row(f"{what}, {name}", plog, kafka, ratios(ours, theirs, field))


if __name__ == "__main__":
    main()
