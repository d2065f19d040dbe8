"""Damage under a running broker: found by reading, noted, told."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from core.common.clock import ManualClock
from core.common.error_code import ErrorCode
from core.common.filesystem import File
from core.files.file_names import find_offset_files
from core.forensics.transaction_index_check import TransactionIndexCheck
from core.index.transaction_index import parse_transaction_index, read_transaction_index
from core.protocol.schema.describe_configs import DESCRIBE_CONFIGS, DescribeConfigsRequest, DescribeConfigsResource
from core.records.batches import iter_whole_batches
from tests.support.broker import Background, SteeredNode, add_topic, ask, fetch, open_broker, produce_values, values_of
from tests.support.for_each import for_each
from tests.support.golden import GOLDEN, directories
from tests.support.logs import NOW

DAY_MS = 86_400_000


def damage(directory: Path, number: int, where: int = 70, topic: str = "t") -> None:
    """A byte of the batch of that number, all of one size."""
    path = directory / f"{topic}-0" / f"{0:020d}.log"
    size = path.stat().st_size // 6
    with path.open("r+b") as file:
        file.seek(number * size + where)
        byte = file.read(1)[0]
        file.seek(number * size + where)
        file.write(bytes([byte ^ 0x40]))


def damaged_offsets(broker: SteeredNode) -> str | None:
    request = DescribeConfigsRequest([DescribeConfigsResource(2, "t", None)])
    configs = {c.name: c.value for c in ask(broker, DESCRIBE_CONFIGS, request).results[0].configs}
    return configs.get("plog.damaged.offsets")


def six_batches(directory: Path, clock: ManualClock, **settings: str) -> SteeredNode:
    broker = open_broker(directory, clock, log_retention_ms="-1", **settings)
    add_topic(broker)
    produce_values(broker, *(b"value %d" % number for number in range(6)))
    return broker


def test_the_scrubber_finds_damage(tmp_path: Path, caplog: pytest.LogCaptureFixture, clock: ManualClock) -> None:
    broker = six_batches(tmp_path, clock)
    damage(tmp_path, 3)
    broker.housekeeping.step()
    assert len(values_of(fetch(broker, 0))) == 6, "nobody looked yet"
    clock.advance(DAY_MS)
    broker.housekeeping.step()
    broker.housekeeping.step()
    assert caplog.text.count("t-0: offset 3 is damaged") == 1
    assert damaged_offsets(broker) == "0:3-3"
    assert values_of(fetch(broker, 0)) == [b"value 0", b"value 1", b"value 2"]
    assert fetch(broker, 3).error_code == ErrorCode.CORRUPT_MESSAGE
    assert values_of(fetch(broker, 4)) == [b"value 4", b"value 5"]
    broker.close()
    again = open_broker(tmp_path, clock, log_retention_ms="-1")
    assert fetch(again, 3).error_code == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("step_ms", [-3_600_000, DAY_MS])
def test_a_clock_that_is_set_neither_hastens_nor_holds_it_up(tmp_path: Path, step_ms: int, clock: ManualClock) -> None:
    broker = six_batches(tmp_path, clock)
    damage(tmp_path, 3)
    clock.set_wall_by(step_ms)
    broker.housekeeping.step()
    assert damaged_offsets(broker) is None
    clock.advance(DAY_MS)
    broker.housekeeping.step()
    assert damaged_offsets(broker) == "0:3-3"


def test_it_reads_no_more_a_second_than_it_may(tmp_path: Path, clock: ManualClock) -> None:
    broker = six_batches(tmp_path, clock, plog_scrub_bytes_per_second="150")
    damage(tmp_path, 5)
    clock.advance(DAY_MS)
    for _ in range(2):
        broker.housekeeping.step()
        assert damaged_offsets(broker) is None
    for _ in range(4):
        broker.housekeeping.step()
    assert damaged_offsets(broker) == "0:5-5"


def test_it_can_be_switched_off(tmp_path: Path, clock: ManualClock) -> None:
    broker = six_batches(tmp_path, clock, plog_scrub_bytes_per_second="0")
    damage(tmp_path, 5)
    for _ in range(5):
        clock.advance(DAY_MS)
        broker.housekeeping.step()
    assert damaged_offsets(broker) is None


def test_it_waits_for_its_reading(tmp_path: Path, clock: ManualClock) -> None:
    """A slow disk does not pile up work."""
    broker = six_batches(tmp_path, clock)
    background = Background()
    broker.runtime.use(run_in_background=background)
    clock.advance(DAY_MS)
    for _ in range(3):
        broker.housekeeping.step()
    assert sum("_scrub" in repr(work) or "Scrubber" in repr(work) for work, _ in background.waiting) == 1
    background.run_all()


def test_what_is_appended_meanwhile_is_no_damage(tmp_path: Path, clock: ManualClock) -> None:
    """The segment grows between the turn that asks for a read and the thread that does it."""
    broker = six_batches(tmp_path, clock)
    background = Background()
    broker.runtime.use(run_in_background=background)
    clock.advance(DAY_MS)
    broker.housekeeping.step()
    produce_values(broker, b"later")
    while background.waiting:
        background.run()
        broker.housekeeping.step()
    assert damaged_offsets(broker) is None
    assert values_of(fetch(broker, 5)) == [b"value 5", b"later"]


@pytest.mark.parametrize("bytes_per_second", [200, 100_000])
def test_what_is_cut_meanwhile_is_no_damage(tmp_path: Path, bytes_per_second: int, clock: ManualClock) -> None:
    """A follower's log, whose leader has other records, which come then: between two reads, or before a read is done
    that was to go to where the log ended.
    """
    broker = six_batches(tmp_path, clock, plog_scrub_bytes_per_second=str(bytes_per_second))
    log = broker.services.replicas.find("t", 0).log
    background = Background()
    broker.runtime.use(run_in_background=background)
    clock.advance(DAY_MS)
    broker.housekeeping.step()
    while bytes_per_second == 200 and background.waiting:
        background.run()
    log.truncate_to(1)
    produce_values(broker, *[b"other, and longer, %d" % number for number in range(9)])
    for _ in range(20):
        background.run_all()
        broker.housekeeping.step()
    assert damaged_offsets(broker) is None
    assert broker.scrubber._current is None


def test_a_gap_that_a_reader_meets_ends_where_the_log_did(tmp_path: Path) -> None:
    broker = six_batches(tmp_path, ManualClock(NOW))
    damage(tmp_path, 5, where=16)
    background = Background()
    broker.runtime.use(run_in_background=background)
    log = broker.services.replicas.find("t", 0).log
    active = log.segments.active
    active._last_batch = (*active._last_batch[:2], 0)  # as of a log that was just opened
    assert fetch(broker, 5).error_code == ErrorCode.CORRUPT_MESSAGE
    produce_values(broker, b"later")
    background.run()
    assert damaged_offsets(broker) == "0:5-5"
    assert values_of(fetch(broker, 6)) == [b"later"]


def test_it_finds_what_lies_after_damage_that_is_known(tmp_path: Path, clock: ManualClock) -> None:
    broker = six_batches(tmp_path, clock)
    for number, known in ((1, "0:1-1"), (2, "0:1-1,0:2-2"), (4, "0:1-1,0:2-2,0:4-4")):
        damage(tmp_path, number)
        clock.advance(DAY_MS)
        for _ in range(8):
            broker.housekeeping.step()
        assert damaged_offsets(broker) == known


def test_a_disk_that_refuses_does_not_end_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, clock: ManualClock
) -> None:
    broker = six_batches(tmp_path, clock)
    damage(tmp_path, 3)

    def refuse(*_: object) -> None:
        raise OSError(5, "Input/output error")

    clock.advance(DAY_MS)
    with monkeypatch.context() as patch:
        patch.setattr(File, "read_at", refuse)
        broker.housekeeping.step()
    assert "could not read" in caplog.text
    clock.advance(DAY_MS)
    for _ in range(3):
        broker.housekeeping.step()
    assert damaged_offsets(broker) == "0:3-3"


def test_damage_that_a_reader_meets_is_noted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    broker = six_batches(tmp_path, ManualClock(NOW))
    damage(tmp_path, 3, where=16)  # the magic: the way to the fifth batch leads over it
    assert fetch(broker, 4).error_code == ErrorCode.CORRUPT_MESSAGE, "as long as nothing is known"
    assert "t-0: offset 3 is damaged" in caplog.text
    assert values_of(fetch(broker, 4)) == [b"value 4", b"value 5"]
    assert fetch(broker, 3).error_code == ErrorCode.CORRUPT_MESSAGE
    assert values_of(fetch(broker, 1)) == [b"value 1", b"value 2"]


# --- transaction indexes


SEALED = "00000000000000000000.txnindex"
"""Of the first of two segments: its transactions, aborted and committed, are written by real Kafka."""


def with_transactions(directory: Path, edit: Callable[[bytes], bytes | None]) -> SteeredNode:
    """Kafka's own log with its first segment's transaction index edited, or taken away; scrubbed once."""
    shutil.copytree(GOLDEN / "txn_multisegment", directory / "txn_multisegment-0")
    (directory / "txn_multisegment-0" / "partition.metadata").unlink()
    index = directory / "txn_multisegment-0" / SEALED
    edited = edit(index.read_bytes())
    index.unlink()
    if edited is not None:
        index.write_bytes(edited)
    (directory / "meta.properties").write_bytes((GOLDEN / "_root" / "meta.properties").read_bytes())
    (directory / "recovery-point-offset-checkpoint").write_text("0\n1\ntxn_multisegment 0 226\n")
    (directory / ".kafka_cleanshutdown").write_text('{"version":0}')
    clock = ManualClock(NOW)
    broker = open_broker(directory, clock)
    clock.advance(DAY_MS)
    for _ in range(4):
        broker.housekeeping.step()
    return broker


def committed_with_an_entry(data: bytes) -> bytes:
    """The commit of producer 42 at offset 64 is called an abort."""
    entries = [data[at : at + 34] for at in range(0, len(data), 34)]
    made = struct.pack(">hqqqq", 0, 42, 35, 64, 65)
    return b"".join(sorted([*entries, made], key=lambda entry: struct.unpack(">hqqqq", entry)[3]))


def begun_before_a_marker(data: bytes) -> bytes:
    """The producer's next aborted transaction begins at offset 35, where one began that was committed."""
    entries = parse_transaction_index(data)
    number = next(n for n, entry in enumerate(entries) if entry.producer_id == 42 and entry.last_offset > 64)
    entries[number] = entries[number]._replace(first_offset=35)
    return b"".join(struct.pack(">hqqqq", 0, *entry) for entry in entries)


def with_first_entry(**fields: int) -> Callable[[bytes], bytes]:
    """The aborted transaction of producer 42 with offsets 9 to 32, changed."""
    return lambda data: struct.pack(">hqqqq", 0, *parse_transaction_index(data)[0]._replace(**fields)) + data[34:]


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (lambda data: data, ""),
        (
            lambda data: data[34:],
            "the aborted transaction of producer 42 with offsets 9 to 32 is not in it, or not all",
        ),
        (
            lambda _: b"",
            "the aborted transaction of producer 42 with offsets 9 to 32 is not in it, or not all of it, and 3 ",
        ),
        (
            lambda _: None,
            "the aborted transaction of producer 42 with offsets 9 to 32 is not in it, or not all of it, and 3 ",
        ),
        (committed_with_an_entry, "it calls the transaction of producer 42 aborted that was committed at offset 64"),
        (
            lambda data: struct.pack(">hqqqq", 0, 7, 3, 5, 6) + data,
            "no marker of producer 7 is at offset 5, where it has an abort",
        ),
        (with_first_entry(last_stable_offset=34), "it calls the log stable up to 34, which it was up to "),
        (begun_before_a_marker, "it has the aborted transaction of producer 42 begin at offset 35, before the marker"),
    ],
    ids=[
        *("sound", "without its first entry", "empty", "missing", "with an entry too many", "with one of nothing"),
        *("more is called stable", "begun too early"),
    ],
)
def test_a_sealed_segment_s_transaction_index_is_held_against_the_log(
    edit: Callable[[bytes], bytes], says: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = with_transactions(tmp_path, edit)
    broker.close()
    assert broker.scrubber.wrong_transaction_indexes == bool(says)
    assert caplog.text.count(f"{SEALED} is wrong") == bool(says)
    assert says in caplog.text


INDEXED = [path for path in directories() if list(path.glob("*.txnindex")) and path.suffix != ".corrupt"]


@for_each("folder", INDEXED, ids=lambda folder: folder.name)
def test_no_transaction_index_of_kafkas_is_wrong(folder: Path) -> None:
    """Compacted ones included; asked of the follower itself, all of their segments."""
    follower = TransactionIndexCheck()
    for base_offset, path in find_offset_files(folder, ".log"):
        for batch in iter_whole_batches(memoryview(path.read_bytes())):
            follower.see(batch)
        index = path.with_suffix(".txnindex")
        problems = list(follower.end_segment(read_transaction_index(index) if index.exists() else []))
        assert not problems, (base_offset, problems)
