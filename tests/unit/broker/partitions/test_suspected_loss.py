"""Damage under a running broker: met by a reader, noted, told."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.common.error_code import ErrorCode
from core.common.filesystem import File
from core.common.topic_partition import TopicPartition
from core.log.damaged_ranges import WRONG_START, WRONG_TAIL
from core.protocol.schema.configs import DESCRIBE_CONFIGS, DescribeConfigsRequest, DescribeConfigsResource
from tests.support.broker import Background, SteeredNode, add_topic, ask, fetch, open_broker, produce_values, values_of
from tests.support.logs import NOW
from tests.support.manual_clock import ManualClock


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


def test_logs_with_a_wrong_start_or_tail_are_named_and_no_others(broker: SteeredNode) -> None:
    for name in ("sound", "t"):
        add_topic(broker, name)
    produce_values(broker, b"a", b"b")
    losses, topics = broker.services.losses, broker.services.image.topics
    logs = losses._log_manager
    for doubted, key in ((logs.with_wrong_start, WRONG_START), (logs.with_wrong_tail, WRONG_TAIL)):
        doubted.add(TopicPartition("t", 0))
        assert losses.doubts_of(topics["t"]) == {key: {0: [(2, 3)]}}
        assert losses.doubts_of(topics["sound"]) == {}
        doubted.clear()


def test_what_is_cut_meanwhile_is_no_damage(tmp_path: Path, clock: ManualClock) -> None:
    """A follower's log, whose leader has other records, which come before the damage is looked at."""
    broker = six_batches(tmp_path, clock)
    damage(tmp_path, 3, where=16)
    background = Background()
    broker.runtime.use(run_in_background=background)
    assert fetch(broker, 4).error_code == ErrorCode.CORRUPT_MESSAGE
    path = tmp_path / "t-0" / f"{0:020d}.log"
    found_then = path.read_bytes()
    broker.services.replicas.find("t", 0).log.truncate_to(1)
    produce_values(broker, *[b"other %d" % number for number in range(5)])
    now = path.read_bytes()
    path.write_bytes(found_then)  # as it was read a moment before the cut
    background.run_all()
    path.write_bytes(now)
    assert damaged_offsets(broker) is None


def test_a_disk_that_refuses_notes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, clock: ManualClock
) -> None:
    broker = six_batches(tmp_path, clock)
    damage(tmp_path, 3, where=16)
    background = Background()
    broker.runtime.use(run_in_background=background)

    def refuse(*_: object) -> None:
        raise OSError(5, "Input/output error")

    assert fetch(broker, 4).error_code == ErrorCode.CORRUPT_MESSAGE
    with monkeypatch.context() as patch:
        patch.setattr(File, "read_at", refuse)
        background.run_all()
    assert "could not read" in caplog.text
    assert damaged_offsets(broker) is None
    assert fetch(broker, 4).error_code == ErrorCode.CORRUPT_MESSAGE
    background.run_all()
    assert damaged_offsets(broker) == "0:3-3", "it is looked at again"


def test_damage_that_a_reader_meets_is_noted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    broker = six_batches(tmp_path, ManualClock(NOW))
    damage(tmp_path, 3, where=16)  # the magic: the way to the fifth batch leads over it
    assert fetch(broker, 4).error_code == ErrorCode.CORRUPT_MESSAGE, "as long as nothing is known"
    assert "t-0: offset 3 is damaged" in caplog.text
    assert values_of(fetch(broker, 4)) == [b"value 4", b"value 5"]
    assert fetch(broker, 3).error_code == ErrorCode.CORRUPT_MESSAGE
    assert values_of(fetch(broker, 1)) == [b"value 1", b"value 2"]
    assert damaged_offsets(broker) == "0:3-3"
    broker.close()
    again = open_broker(tmp_path, ManualClock(NOW), log_retention_ms="-1")
    assert fetch(again, 3).error_code == ErrorCode.CORRUPT_MESSAGE
