"""What is deleted frees its disk: no file stays open for want of a garbage collection."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from core.common.filesystem import FileSystem
from core.compaction.cleaner import Cleaner
from core.compaction.log_to_clean import find_cleanable_part, log_to_clean
from core.files.file_records import FileRegion
from core.log.log_segment import LogSegment
from core.log.partition_log import PartitionLog
from core.log.segment_swap import begin_swap, settle_swap
from core.protocol.schema.fetch import FETCH
from tests.support.broker import SteeredNode, add_topic, delete_topic, fetch, fetch_request, open_broker, produce, send
from tests.support.logs import NOW, make_batch, read_all

SEGMENTS = 20


@pytest.fixture(autouse=True)
def no_cyclic_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def opened_below(directory: Path) -> list[str]:
    """This process's open files in a folder, mapped and deleted ones included."""
    links = [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    paths = [link.readlink() for link in links]
    return sorted(path.name for path in paths if directory in path.parents)


def log_of(broker: SteeredNode, topic: str = "t") -> PartitionLog:
    return broker.services.replicas.find(topic, 0).log


def filled(broker: SteeredNode, topic: str = "t", value_bytes: int = 2, **configs: str) -> PartitionLog:
    """Segments of a batch each, all flushed, and read."""
    add_topic(broker, topic, internal_segment_bytes=f"{value_bytes + 98}", **configs)
    for number in range(SEGMENTS):
        batch = make_batch(b"%0*d" % (value_bytes, number), key=b"%d" % number)
        assert produce(broker, batch, topic).error_code == 0
    log = log_of(broker, topic)
    log.flush()
    for number in range(SEGMENTS):
        fetch(broker, number, topic)
    assert len(opened_below(log.directory)) >= SEGMENTS
    return log


def test_an_answer_under_way_keeps_its_file(tmp_path: Path) -> None:
    broker = open_broker(tmp_path)
    log = filled(broker, value_bytes=20_000, retention_bytes="20000", file_delete_delay_ms="0")
    pieces = send(broker, FETCH, fetch_request(0), 12)
    regions = [piece for piece in pieces if isinstance(piece, FileRegion)]
    before = [region.read() for region in regions]
    broker.housekeeping.apply_retention()
    assert before
    assert [region.read() for region in regions] == before
    assert "00000000000000000000.log.deleted" in opened_below(log.directory)
    del pieces, regions
    assert "00000000000000000000.log.deleted" not in opened_below(log.directory)
    assert len(log.segments) < 3
    assert len(opened_below(log.directory)) <= 3 * len(log.segments)


def test_after_compaction(tmp_path: Path) -> None:
    broker = open_broker(tmp_path)
    log = filled(broker, cleanup_policy="compact")
    log.configure(replace(log.config, segment_bytes=1 << 20))
    disk = FileSystem()
    cleaner = Cleaner(filesystem=disk, leaves_unchanged=False)
    for segment in cleaner.clean(log_to_clean(log, find_cleanable_part(log, None, NOW)), NOW):
        begin_swap(log.directory, [segment.base_offset], disk)
        deleted = log.replace_segments(segment.base_offset, segment.replaced)
        settle_swap(log.directory, segment.base_offset, disk)
        for path in deleted:
            path.unlink()
    del segment
    assert len(log.segments) < 4
    assert len(read_all(log)) == SEGMENTS
    assert len(opened_below(log.directory)) <= 3 * len(log.segments)


def test_after_truncation(tmp_path: Path) -> None:
    log = filled(open_broker(tmp_path))
    log.truncate_to(2)
    assert len(opened_below(log.directory)) <= 3 * len(log.segments) <= 9
    log.truncate_fully_and_start_at(100)
    assert opened_below(log.directory) == [f"{100:020d}.log"]


def test_after_a_topic_is_deleted(tmp_path: Path) -> None:
    """Though somebody holds the partition still."""
    broker = open_broker(tmp_path)
    log = filled(broker, file_delete_delay_ms="0")
    before = len(opened_below(tmp_path))
    held = broker.services.replicas.find("t", 0)
    delete_topic(broker, "t")
    assert len(opened_below(tmp_path)) <= before - SEGMENTS
    assert not [name for name in opened_below(tmp_path) if "(deleted)" in name]
    assert held.log is log


def test_after_a_flush_that_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The partition is offline; its topic may be deleted to get room."""
    broker = open_broker(tmp_path)
    log = filled(broker)
    directory = log.directory

    def refuse(_self: LogSegment) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(LogSegment, "sync", refuse)
        broker.services.replicas.flush_as_configured(log)
        for _ in range(2):
            produce(broker, make_batch(b"rolls"))  # which asks for a flush
    assert not broker.services.replicas.partitions
    del log
    assert opened_below(directory) == []
