"""The commands that read a log, beside those of another version of plog.

    git worktree add /tmp/before COMMIT
    .venv/bin/python -m benchmarks.readers --before /tmp/before [--rounds 9] [--megabytes 300]

CPU seconds, user and system, of the whole process, start-up and all; both versions in turns on the same files, on
one CPU. Both are compiled, as an installed plog is. The ratio is that of the pairs, this version over the other.
`columns` are Spark's, without Spark: all columns but headers, read in a process of their own.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from core.records.control_record import EndTransactionMarker, end_transaction_batch
from core.records.record import encode_record
from core.records.record_batch_builder import build_batch
from tests.support.logs import open_log

HERE = Path(__file__).parent.parent
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
    environment = os.environ | {"PYTHONPATH": str(version), "PYTHONPYCACHEPREFIX": str(compiled)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = ["taskset", "-c", "0", sys.executable, *arguments]
    subprocess.run(
        command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment, cwd=version
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def text(figures: list[float]) -> str:
    return f"{statistics.median(figures):.3g} ({min(figures):.3g}-{max(figures):.3g})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, required=True, help="a checkout of the other version")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--megabytes", type=int, default=300)
    options = parser.parse_args()
    print("| what | log | before, s | after, s | ratio |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="plog-benchmark-") as temporary:
        compiled = Path(temporary, "compiled")
        for shape in SHAPES:
            folder = write(shape, Path(temporary), options.megabytes * 1_000_000)
            plog = ["-m", "plog"]
            for what, arguments in {
                "consume": [*plog, "consume", "t", "--data-dir", str(folder.parent)],
                "columns": ["-c", _COLUMNS, str(folder)],
                "verify": [*plog, "verify", str(folder)],
                "gaps": [*plog, "gaps", str(folder)],
            }.items():
                pairs = [
                    (cpu_seconds(options.before, arguments, compiled), cpu_seconds(HERE, arguments, compiled))
                    for _ in range(options.rounds + 1)
                ][1:]
                ratios = [after / before for before, after in pairs]
                befores, afters = ([pair[number] for pair in pairs] for number in (0, 1))
                print(f"| {what} | {shape.name} | {text(befores)} | {text(afters)} | {text(ratios)} |", flush=True)
    print(f"\nload: {os.getloadavg()[2]:.1f} on {os.cpu_count()} CPUs")


if __name__ == "__main__":
    main()
