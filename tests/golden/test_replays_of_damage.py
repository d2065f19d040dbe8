"""The damaged directories of test_damage.py as a replay reads them: with `--allow-loss` all that is sound, and without
it nothing that the log has lost goes unnoticed. `CASES` says what is right.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest

from core.common.errors import CorruptRecordError, PlogError
from core.spark.offset_range import OffsetRange, read_columns
from core.spark.range_output import OutputFormat, Receipt
from core.spark.replay import account, write_range
from core.spark.replay_plan import ReplayPlan, ensure_source_is_the_same
from core.spark.source import Source, find_partitions, open_source, plan_ranges
from core.spark.source_options import SourceOptions
from tests.golden.test_damage import CASES, UNDECODABLE, Case, copy_of
from tests.support.for_each import for_each
from tests.support.server import Server
from tests.support.spark.placed_files import make_beside, place

PARQUET = OutputFormat("parquet", "binary", "binary")
SMALL = 3000
"""Bytes of a range: damage lies within some, between others, and across the borders of some."""

ON_SERVERS = (
    "00-one-bit-of-length-silent-loss", "04-gaps-says-compacted", "05-abort-marker-cut", "08-missing-middle-log",
    "09-swapped-batches", "21-fifo-log", "22-null-header-key",
)  # fmt: skip
"""One of each kind: what a server refuses, a hole, a lost marker, a missing segment, nothing, a segment after the end
that can't be opened, undecodable batches.
"""


def planned(options: dict[str, str], topic: str, range_bytes: int = SMALL) -> list[OffsetRange]:
    """With `failOnDataLoss=false`, from the log's start to its end."""
    others = {"subscribe": topic, "failOnDataLoss": "false", "rangeBytes": str(range_bytes)}
    parsed = SourceOptions.parse(options | others)
    source: Source = open_source(parsed)
    try:
        partitions = find_partitions(source, parsed)
        starts, ends = source.records.starts(partitions), source.records.ends(partitions)
        return plan_ranges(source, parsed, starts, ends)
    finally:
        source.close()


def replay(ranges: list[OffsetRange], out: Path) -> tuple[list[int], list[Receipt]]:
    """The offsets that are written, and the receipts."""
    plan = ReplayPlan({}, tuple(ranges), PARQUET, columns=("offset",))
    ensure_source_is_the_same(plan, ranges)
    receipts = [write_range(make_beside(out), range_, plan) for range_ in ranges]
    for receipt in receipts:
        place(out, receipt.files)
    return [n for path in sorted(out.glob("*.parquet")) for n in pq.read_table(path)["offset"].to_pylist()], receipts


@for_each("name", CASES)
def test_all_that_is_sound_is_replayed_and_what_is_lost_is_told_or_fails_its_range(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    options = {"path": str(copy_of(name, tmp_path))}
    ranges = planned(options, case.topic)
    found, receipts = replay(ranges, tmp_path / "out")
    assert found == case.records
    told = [text for receipt in receipts for text in receipt.left_out]
    assert bool(told) == bool(case.exit_code)
    assert all(text.startswith(f"{case.topic}-0: ") for text in told)
    assert case.says.removeprefix("warning: ") in "\n".join(told)
    for receipt, range_ in zip(receipts, ranges, strict=True):
        assert msgspec.json.decode(msgspec.json.encode(receipt), type=Receipt) == receipt
        if receipt.left_out:
            assert account(range_) == (receipt.records, receipt.gaps, receipt.left_out)
    strict = [replace(range_, fails_if_gone=True) for range_ in planned(options, case.topic, 1 << 30)]
    fails_if_lost(case, strict, tmp_path / "strict")


def fails_if_lost(case: Case, ranges: list[OffsetRange], out: Path) -> None:
    if case.exit_code:
        with pytest.raises(PlogError):
            replay(ranges, out)
    else:
        assert replay(ranges, out)[0] == case.records


@pytest.mark.longer
@for_each("name", ON_SERVERS)
def test_the_same_from_a_server(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    with Server(copy_of(name, tmp_path), "--read-only") as server:
        ranges = planned({"kafka.bootstrap.servers": server.address}, case.topic)
        found, receipts = replay(ranges, tmp_path / "out")
        fails_if_lost(case, [replace(range_, fails_if_gone=True) for range_ in ranges], tmp_path / "strict")
    assert found == case.records
    told = [text for receipt in receipts for text in receipt.left_out]
    assert bool(told) == bool(case.exit_code)
    if name in UNDECODABLE:
        assert case.says in "\n".join(told)


@pytest.mark.longer
def test_a_segment_after_the_end_that_cant_be_opened_fails_a_reading_too(tmp_path: Path) -> None:
    """As the data source does it, from the files and from servers."""
    directory = copy_of("21-fifo-log", tmp_path)
    with Server(directory, "--read-only") as server:
        places = {"path": str(directory)}, {"kafka.bootstrap.servers": server.address}
        for options, said in zip(places, ("could not be read", "after the log's end lie bytes"), strict=True):
            ranges = [replace(range_, fails_if_gone=True) for range_ in planned(options, "multisegment", 1 << 30)]
            with pytest.raises(CorruptRecordError, match=said):
                list(map(list, map(read_columns, ranges)))
