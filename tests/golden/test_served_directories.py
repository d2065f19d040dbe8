"""Directories that Apache Kafka wrote, as a broker serves them to a client."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.broker.config.broker_config import BrokerConfig
from core.common.error_code import ErrorCode
from core.records.batches import iter_whole_batches
from core.records.record import Record
from tests.golden.test_kafka_directories import UNDAMAGED
from tests.support.broker import SteeredNode, add_topic, fetch, open_broker
from tests.support.for_each import for_each
from tests.support.golden import GOLDEN, GoldenRecord, case, directories
from tests.support.logs import NOW, fingerprint
from tests.support.manual_clock import ManualClock

DAY_MS = 86_400_000


def served(broker: SteeredNode, topic: str, start: int, end: int) -> tuple[list[Record], int | None]:
    """What a client gets of offsets [start, end); and the offset where it is told of damage, if it is."""
    records: list[Record] = []
    offset = start
    while offset < end:
        data = fetch(broker, offset, topic)
        if data.error_code == ErrorCode.CORRUPT_MESSAGE:
            return records, offset
        assert data.error_code == 0
        batches = list(iter_whole_batches(memoryview(bytes(data.records or b""))))  # type: ignore[arg-type]
        if not batches:  # what is left was compacted away
            return records, None
        records += [r for b in batches if not b.is_control for r in b.records() if r.offset >= offset]
        offset = batches[-1].next_offset
    return records, None


def assert_same(records: list[Record], expected: list[GoldenRecord]) -> None:
    assert [r.offset for r in records] == [e.offset for e in expected]
    for record, wanted in zip(records, expected, strict=True):
        assert (record.timestamp, record.key, record.headers) == (wanted.timestamp, wanted.key, wanted.headers)
        assert wanted.has_value(record.value)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every undamaged partition's folder, as a ZooKeeper-mode broker's data directory: no metadata at all."""
    directory = tmp_path_factory.mktemp("folders") / "data"
    directory.mkdir()
    shutil.copy(GOLDEN / "_root3" / "meta.properties", directory)
    starts = []
    for golden in UNDAMAGED:
        shutil.copytree(golden.directory, directory / f"{golden.name}-0")
        (directory / f"{golden.name}-0" / "partition.metadata").unlink(missing_ok=True)
        if golden.truth["begin_offset"]:
            starts.append(f"{golden.name} 0 {golden.truth['begin_offset']}\n")
    (directory / "log-start-offset-checkpoint").write_text(f"0\n{len(starts)}\n" + "".join(starts))
    return directory


@pytest.fixture(params=["read-only", "for good"])
def broker(folders: Path, request: pytest.FixtureRequest) -> Iterator[SteeredNode]:
    """Years later, by a server whose own retention is a day."""
    config = BrokerConfig.parse({"log.retention.ms": str(DAY_MS)})
    is_read_only = request.param == "read-only"
    opened = SteeredNode(folders, config, clock=ManualClock(NOW + 9999 * DAY_MS), is_read_only=is_read_only)
    yield opened
    opened.close()


def test_every_folder_without_metadata(broker: SteeredNode, folders: Path) -> None:
    before = fingerprint(folders)
    broker.housekeeping.apply_retention()
    for golden in UNDAMAGED:
        truth = golden.truth
        log = broker.services.replicas.find(golden.name, 0).log
        assert (log.log_start_offset, log.log_end_offset) == (truth["begin_offset"], truth["high_watermark"])
        records, damaged = served(broker, golden.name, truth["begin_offset"], truth["high_watermark"])
        assert damaged is None
        assert_same(records, golden.records())
    if broker.is_read_only:
        assert fingerprint(folders) == before
    else:
        assert "cluster.id" in (folders / "meta.properties").read_text()


@for_each("directory", directories("c_*.corrupt"), ids=lambda d: d.name)
def test_a_damaged_folder_after_a_crash(directory: Path, tmp_path: Path) -> None:
    """Equal to Kafka's own recovery, but where that lets a wrong magic pass, of which consumers die."""
    name = directory.name.removesuffix(".corrupt")
    broker = open_broker(tmp_path)
    add_topic(broker, name, retention_ms="-1")
    broker._lock.release()  # as a crash leaves it
    for path in directory.iterdir():
        if path.name != "partition.metadata":
            shutil.copy(path, tmp_path / f"{name}-0")
    again = open_broker(tmp_path)
    log = again.services.replicas.find(name, 0).log
    if name == "c_bad_magic":
        end_offset, expected = 17, [record for record in case(name).records() if record.offset < 17]
    else:
        recovered = case(f"{name}.recovered")
        end_offset, expected = recovered.truth["high_watermark"], recovered.records()
    assert log.log_end_offset == end_offset
    records, damaged = served(again, name, log.log_start_offset, log.log_end_offset)
    assert damaged is None
    assert_same(records, expected)
    again.close()
