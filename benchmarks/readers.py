"""The commands that read a log, beside those of another version of plog.

    git worktree add /tmp/before COMMIT
    .venv/bin/python -m benchmarks.readers --before /tmp/before [--rounds 9] [--warm-up 1] [--megabytes 300]
        [--only plain]

CPU seconds, user and system, of the whole process, start-up and all; both versions in turns on the same files, on
one CPU. Both are compiled, as an installed plog is. The ratio is that of the pairs, this version over the other.
`columns` are Spark's, without Spark: all columns but headers, read in a process of their own.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.figures import quotients, spread
from benchmarks.options import add_only, ensure_programs, option_parser
from benchmarks.peers import HERE, environment_of, scratch_folder
from core.records.control_record import EndTransactionMarker, end_transaction_batch
from core.records.record import encode_record
from core.records.record_batch_builder import build_batch
from tests.support.logs import open_log

NOW = 1_700_000_000_000

_COLUMNS = """
import sys
from core.spark.offset_range import OffsetRange, read_range
columns = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
for _ in read_range(OffsetRange("t", 0, 0, 1 << 40, 0, directory=sys.argv[1]), columns):
    pass
"""


@dataclass(frozen=True)
class Shape:
    """A log: records of 130 bytes in batches of so many bytes, in transactions of so many batches; 0 of none."""

    name: str
    batch_bytes: int
    batches_a_transaction: int = 0

    def batches(self, size_bytes: int) -> Iterator[bytes]:
        count = max(self.batch_bytes // 135, 1)
        offset = number = written = 0
        in_transaction = {"producer_id": 7, "producer_epoch": 0, "is_transactional": True}
        while written < size_bytes:
            records = [encode_record(n, 0, b"key-%010d" % (offset + n), b"%0110d" % (offset + n)) for n in range(count)]
            fields = {"base_offset": offset, "count": count, "base_timestamp": NOW, "max_timestamp": NOW}
            if self.batches_a_transaction:
                fields |= {**in_transaction, "base_sequence": number * count % (1 << 31)}
            data = build_batch(b"".join(records), **fields)
            offset, number = offset + count, number + 1
            yield data
            written += len(data)
            if self.batches_a_transaction and number % self.batches_a_transaction == 0:
                marker = EndTransactionMarker(is_commit=True, coordinator_epoch=0)
                yield end_transaction_batch(marker, producer_id=7, producer_epoch=0, timestamp=NOW, base_offset=offset)
                offset += 1


SHAPES = [
    Shape("one record", 100),
    Shape("plain", 16_000),
    Shape("transactions of one batch", 16_000, 1),
    Shape("transactions of 20 batches", 16_000, 20),
    Shape("transactions of one batch of 2 KB", 2_000, 1),
]


def write(shape: Shape, directory: Path, size_bytes: int) -> Path:
    """A data directory with the log and its indexes, stopped cleanly."""
    folder = directory / shape.name.replace(" ", "-") / "t-0"
    folder.mkdir(parents=True)
    (folder.parent / "meta.properties").write_text("version=0\nbroker.id=1\n")
    with (folder / f"{0:020d}.log").open("wb") as file:
        for batch in shape.batches(1 if shape.name == "one record" else size_bytes):
            file.write(batch)
    open_log(folder, segment_bytes=1 << 30).close()
    return folder


def cpu_seconds(version: Path, arguments: list[str], compiled: Path) -> float:
    """`compiled`: where the code of both versions is kept, compiled; the first run puts it there."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = environment_of(version) | {"PYTHONPYCACHEPREFIX": str(compiled)}
    command = ["taskset", "-c", "0", sys.executable, *arguments]
    quiet = subprocess.DEVNULL
    subprocess.run(command, check=True, stdout=quiet, stderr=quiet, env=environment, cwd=version)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = option_parser(__doc__, rounds=9, warm_up=1, megabytes=300)
    parser.add_argument("--before", type=Path, required=True, help="a checkout of the other version")
    add_only(parser, [shape.name for shape in SHAPES])
    options = parser.parse_args()
    ensure_programs("taskset")
    print("| what | log | before, s | after, s | ratio |\n|---|---|---|---|---|")
    with scratch_folder() as temporary:
        for shape in SHAPES:
            if shape.name not in options.only:
                continue
            folder = write(shape, temporary, options.megabytes * 1_000_000)
            plog = ["-m", "plog"]
            for what, arguments in {
                "consume": [*plog, "consume", "t", "--data-dir", str(folder.parent)],
                "columns": ["-c", _COLUMNS, str(folder)],
                "verify": [*plog, "verify", str(folder)],
                "gaps": [*plog, "gaps", str(folder)],
            }.items():
                befores: list[float] = []
                afters: list[float] = []
                for number in range(-options.warm_up, options.rounds):  # the first compiles
                    for version, found in ((options.before, befores), (HERE, afters)):
                        seconds = cpu_seconds(version, arguments, temporary / "compiled")
                        if number >= 0:
                            found.append(seconds)
                row = map(spread, (befores, afters, quotients(afters, befores)))
                print(f"| {what} | {shape.name} | {' | '.join(row)} |", flush=True)
    print(f"\nload: {os.getloadavg()[2]:.1f} on {os.cpu_count()} CPUs")


if __name__ == "__main__":
    main()
