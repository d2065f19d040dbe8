"""Every offset without a record is accounted for, against what real consumers got of real Kafka's logs."""

from __future__ import annotations

import contextlib
import json
from itertools import pairwise
from pathlib import Path

import pytest

from core.forensics.gap_ledger import Gap, GapLedger, GapReason
from core.forensics.partition_reader import PartitionReader
from core.inspector.recover.recovery import Recovery
from core.inspector.recover.recovery_plan import RecoveryOptions
from core.inspector.recover.recovery_planner import plan_recovery
from tests.support import crafted
from tests.support.damage import places
from tests.support.given_log_start import GivenLogStart
from tests.support.golden import GOLDEN
from tests.support.logs import append, append_marker, make_batch, open_log

CASES = [
    path.with_suffix("").name
    for path in sorted(GOLDEN.glob("*.json"))
    if "read_committed_offsets" in path.read_text()
    and "high_watermark" in path.read_text()
    and path.with_suffix("").is_dir()
]


def ledger(directory: Path, start: int = 0, end: int | None = None, **options: bool) -> tuple[list[Gap], int]:
    reader = PartitionReader(directory)
    found = GapLedger(reader, start, reader.end_offset if end is None else end, **options)
    gaps = list(found)
    reader.close()
    assert found.records + sum(gap.end - gap.start for gap in gaps) == found.end - found.start
    return gaps, found.records


@pytest.mark.parametrize("read_committed", [False, True])
def test_what_a_consumer_did_not_get_is_accounted_for(*, read_committed: bool) -> None:
    assert len(CASES) > 80
    for name in CASES:
        truth = json.loads((GOLDEN / f"{name}.json").read_text())
        uncommitted = [record["offset"] for record in truth["read_uncommitted"]]
        got = truth["read_committed_offsets"] if read_committed else uncommitted
        with contextlib.closing(
            PartitionReader(GOLDEN / name, evidence=GivenLogStart(GOLDEN / name, truth["begin_offset"]))
        ) as reader:
            found = GapLedger(reader, 0, truth["high_watermark"], read_committed=read_committed)
            gaps = list(found)
        missing = {offset for gap in gaps for offset in range(gap.start, gap.end)}
        assert missing == set(range(found.end)) - set(got), name
        assert found.records == len(got), name
        reasons = {gap.reason for gap in gaps}
        assert not {GapReason.DAMAGED, GapReason.TRUNCATED, GapReason.MISSING, GapReason.UNKNOWN} & reasons, name
        assert all(a.end <= b.start for a, b in pairwise(gaps)), name


def test_each_reason(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", segment_bytes=100_000)
    transactional = {"producer_id": 7, "producer_epoch": 0, "is_transactional": True}
    append(log, make_batch(b"a", b"b"))  # 0, 1
    append(log, make_batch(b"c", base_sequence=0, **transactional))  # 2
    append_marker(log, 7, is_commit=False)  # 3
    append(log, make_batch(b"d"))  # 4
    append(log, make_batch(b"e", base_sequence=1, **transactional))  # 5, open
    append(log, make_batch(b"f"))  # 6
    log.close()
    gaps, records = ledger(tmp_path / "t-0")
    assert [gap[:3] for gap in gaps] == [
        (2, 3, GapReason.ABORTED),
        (3, 4, GapReason.CONTROL),
        (5, 7, GapReason.OPEN),
    ]
    assert records == 3
    assert "aborted by the marker at offset 3" in gaps[0].evidence
    assert "ABORT marker of producer 7" in gaps[1].evidence
    gaps, records = ledger(tmp_path / "t-0", read_committed=False)
    assert [gap[:3] for gap in gaps] == [(3, 4, GapReason.CONTROL)]
    assert ledger(tmp_path / "t-0", 4, 5) == ([], 1)
    assert ledger(tmp_path / "t-0", 6, 9)[0][-1][:3] == (7, 9, GapReason.UNKNOWN), "nothing is there yet"


def test_damage_and_what_a_recovery_gave_up(tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    log = open_log(folder)
    for _ in range(5):
        append(log, make_batch(b"a" * 50, b"b"))
    log.close()
    place = places(folder)[2]
    with place.path.open("r+b") as file:
        file.seek(place.end - 30)
        file.write(b"?!#" * 5)
    gaps, _ = ledger(folder)
    assert [gap[:3] for gap in gaps] == [(4, 6, GapReason.DAMAGED)]
    assert f"position {place.position}: crc-mismatch" in gaps[0].evidence
    with Recovery(tmp_path) as recovery:
        recovery.apply(list(plan_recovery(folder, RecoveryOptions())))
    assert [gap[:3] for gap in ledger(folder)[0]] == [(4, 6, GapReason.TRUNCATED)]


def test_what_a_recovery_gave_up_between_offsets_of_the_cleaners_is_named_alone(tmp_path: Path) -> None:
    directory = crafted.write_partition(
        tmp_path / "t-0",
        {
            0: b"".join(crafted.batch(offset, [(b"k", b"v")], last_offset_delta=1) for offset in (0, 6, 14)),
            20: crafted.batch(20, [(b"k", b"w")]),
        },
    )
    place = places(directory)[1]
    with place.path.open("r+b") as file:
        file.seek(place.end - 3)
        file.write(b"?!#")
    with Recovery(tmp_path) as recovery:
        recovery.apply(list(plan_recovery(directory, RecoveryOptions())))
    given_up = Gap(6, 8, GapReason.TRUNCATED, "")
    for read_committed in (False, True):
        gaps = ledger(directory, read_committed=read_committed)[0]
        assert [gap[:3] for gap in gaps if gap.reason is not GapReason.COMPACTED] == [given_up[:3]]
    assert [gap[:2] for gap in ledger(directory, 7)[0]][:2] == [(7, 8), (8, 14)]
    with contextlib.closing(PartitionReader(directory)) as reader:
        by_map = [(hole.start, hole.end, hole.reason.value) for hole in reader.reading.map.holes]
    assert by_map == [(2, 6, "compacted"), (6, 8, "truncated"), (8, 14, "compacted"), (16, 20, "compacted")]


def test_an_empty_file_whose_messages_stand_in_another_is_no_work_of_the_cleaner(tmp_path: Path) -> None:
    """A cleaner leaves an empty file in a log of old messages; the holes are its work then, and no loss."""

    def messages(*offsets: int) -> bytes:
        return b"".join(crafted.message(offset, b"k", b"v", 1) for offset in offsets)

    for name, moved, reason in (("t-0", (), GapReason.COMPACTED), ("t-1", (10, 11), GapReason.UNKNOWN)):
        segments = {0: messages(0, 1), 10: b"", 20: messages(*moved, 20, 21), 30: messages(30)}
        gaps, _ = ledger(crafted.write_partition(tmp_path / name, segments))
        assert {gap.reason for gap in gaps} == {reason}


def test_an_old_message_with_fewer_records_than_offsets_shows_the_cleaner(tmp_path: Path) -> None:
    wrapper = crafted.wrapper([0, 2], [(b"a", b"v"), (b"b", b"v")], 1)
    folder = crafted.write_partition(tmp_path / "t-0", {0: wrapper, 10: crafted.message(10, b"c", b"v", 1)})
    assert {gap.reason for gap in ledger(folder)[0]} == {GapReason.COMPACTED}
    with contextlib.closing(PartitionReader(folder)) as reader:
        assert {hole.reason.value for hole in reader.reading.map.holes} == {"compacted"}
        assert reader.unexplained(0, reader.end_offset, most_batches=None).count == 0
