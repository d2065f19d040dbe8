"""A disk that refuses, at every single operation: the client is told, others go on, nothing acknowledged is lost."""

from __future__ import annotations

import builtins
import errno
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from core.broker.config.broker_config import BrokerConfig
from core.cluster.image.broker_metadata import NewTopic
from core.common.error_code import ErrorCode
from core.common.errors import AccessError, KafkaError
from core.common.fd_limits import Shares
from core.common.filesystem import Buffer, FileSystem
from core.common.pending import Pending
from core.log import open_files
from core.protocol.primitives import Piece
from core.protocol.schema.produce import PRODUCE, PartitionProduceResponse
from core.records.record_batch import RecordBatch
from tests.support.asking_disk import NEVER, WINDOW, AskingFile, FailingDisk
from tests.support.broker import PRODUCE_BY_NAME, SteeredNode, decode, delete_topic, fetch, produce_request, send
from tests.support.logs import NOW, make_batch, read_all
from tests.support.manual_clock import ManualClock

FIRST = pytest.mark.first
REFUSALS = (
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.REQUEST_TIMED_OUT,  # a sync for which no file could be opened is tried again until then
)


class Life:
    """What was acknowledged, by topic and offset, whatever was refused beside it."""

    def __init__(self, directory: Path, disk: FileSystem) -> None:
        self.directory = directory
        self.disk = disk
        self.clock = ManualClock(NOW)
        self.acknowledged: dict[str, dict[int, bytes]] = {}
        self.refused = 0
        self.broker = self.open()

    def open(self) -> SteeredNode:
        """Again where the disk refuses: a person would do so."""
        while True:
            try:
                return SteeredNode(self.directory, BrokerConfig(), clock=self.clock, filesystem=self.disk)
            except AccessError:
                self.refused += 1

    def create(self, name: str, **configs: str) -> None:
        settings: dict[str, str | None] = {"retention.ms": "-1", "internal.segment.bytes": "250"}
        settings |= {key.replace("_", "."): value for key, value in configs.items()}
        is_perhaps_made = False
        while True:
            try:
                self.broker.services.topics.create(NewTopic(name, 1, configs=settings))
            except KafkaError as error:
                if is_perhaps_made and error.code is ErrorCode.TOPIC_ALREADY_EXISTS:
                    break
                is_perhaps_made |= error.code is ErrorCode.REQUEST_TIMED_OUT
                if error.code not in (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.REQUEST_TIMED_OUT):
                    raise
                self.refused += 1
                if self.refused > 9:
                    self.restart()
            else:
                break
        self.acknowledged[name] = {}

    def produce(self, name: str, count: int) -> None:
        for number in range(count):
            value = b"%b %d" % (name.encode(), number)
            answer = produce_now(self.broker, make_batch(value, b"." * (number * 31 % 90)), name)
            if answer.error_code:
                assert answer.error_code in REFUSALS
                self.refused += 1
            else:
                self.acknowledged[name][answer.base_offset] = value

    def housekeep(self) -> None:
        """What the server's loop does, every second."""
        try:
            self.broker.housekeeping.step()
        except OSError:
            self.refused += 1

    def restart(self) -> None:
        self.broker.close()
        self.broker = self.open()

    def check(self) -> None:
        for name, acknowledged in self.acknowledged.items():
            assert fetch(self.broker, 0, name).error_code == 0
            log = self.broker.services.replicas.find(name, 0).log
            log.check_invariants()
            records = {record.offset: record.value for record in read_all(log, log.log_start_offset)}
            assert {o: records.get(o) for o in acknowledged if o >= log.log_start_offset} == {
                o: v for o, v in acknowledged.items() if o >= log.log_start_offset
            }
            assert sorted(records) == list(range(log.log_start_offset, log.log_end_offset))


def produce_now(broker: SteeredNode, batch: RecordBatch, topic: str) -> PartitionProduceResponse:
    """As `produce`; an answer that waits has its time up."""
    answer = send(broker, PRODUCE, produce_request(batch, topic), PRODUCE_BY_NAME)
    if isinstance(answer, Pending):
        ready: list[list[Piece]] = []
        answer.on_value = ready.append
        answer.complete_now()
        answer = ready.pop()
    return decode(PRODUCE, answer, PRODUCE_BY_NAME).responses[0].partition_responses[0]


def live(life: Life) -> None:
    life.create("a", flush_messages="1")
    life.create("b")
    life.produce("a", 4)
    life.produce("b", 4)
    life.clock.advance(60_000)
    life.housekeep()
    life.produce("b", 3)
    try:
        life.broker.services.topics.create(NewTopic("c", 1))
        delete_topic(life.broker, "c")
    except KafkaError:
        life.refused += 1
    life.restart()
    life.produce("a", 3)
    life.produce("b", 3)


def count_operations(directory: Path) -> int:
    disk = FailingDisk()
    life = Life(directory, disk)
    live(life)
    life.check()
    assert not life.refused
    life.broker.close()
    return disk.count


@pytest.mark.parametrize("code", [errno.EIO, pytest.param(errno.ENOSPC, marks=FIRST), errno.EMFILE, errno.EACCES])
def test_a_fault_at_every_operation(scratch: Path, code: int, caplog: pytest.LogCaptureFixture) -> None:
    total = count_operations(scratch / "none")
    step = 5 if code == errno.EIO else 11
    for number in range(0, total, step):
        disk = FailingDisk(code)
        disk.fails_from = number
        life = Life(scratch / f"{number}", disk)
        live(life)
        disk.fails_from = NEVER
        life.restart()
        life.check()
        life.produce("a", 2)
        life.produce("b", 2)
        life.check()
        life.broker.close()
        caplog.clear()


class Opens(FailingDisk):
    """Counts what takes a descriptor, files and folders, below a directory; of those that fail none is left."""

    def __init__(self, directory: Path) -> None:
        super().__init__(errno.EMFILE)
        self._directory = str(directory)

    def patch(self, patched: pytest.MonkeyPatch) -> None:
        for module, name in ((os, "open"), (os, "scandir"), (os, "listdir"), (io, "open"), (builtins, "open")):
            patched.setattr(module, name, self._asking(getattr(module, name)))

    def _asking(self, opens: Callable[..., Any]) -> Callable[..., Any]:
        def open_it(path: Any = ".", *arguments: Any, **options: Any) -> Any:
            if not isinstance(path, int) and os.fsdecode(path).startswith(self._directory):
                self.ask(Path(os.fsdecode(path)))
            return opens(path, *arguments, **options)

        return open_it


def test_no_descriptor_is_left_at_any_open(
    scratch: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """While so few files are open at once that they are opened again and again."""
    monkeypatch.setattr(open_files, "share", lambda: Shares(6, 6))
    plain = FileSystem()

    def lived(number: int) -> tuple[Life, int]:
        directory = scratch / str(number)
        opens = Opens(directory)
        with monkeypatch.context() as patched:
            opens.patch(patched)
            opens.fails_from = number
            life = Life(directory, plain)
            live(life)
            opens.fails_from = NEVER
            return life, opens.count

    life, total = lived(NEVER)
    life.check()
    life.broker.close()
    assert not life.refused
    for number in range(0, total, WINDOW):
        life, count = lived(number)
        assert count > number
        served = life.broker.services.replicas.partitions
        assert {name.topic for name in served} >= {"a", "b"}, (number, "none goes offline for it")
        life.check()
        life.restart()
        life.check()
        life.produce("a", 2)
        life.produce("b", 2)
        life.check()
        life.broker.close()
        caplog.clear()


@FIRST
def test_a_full_disk_is_over_when_there_is_room_again(scratch: Path) -> None:
    """No restart needed; and the other topic, whose disk has room, was not held up."""
    disk = FailingDisk(errno.ENOSPC)
    life = Life(scratch, disk)
    life.create("a")
    life.create("b")
    life.produce("a", 1)
    write_at: Callable[..., None] = AskingFile.write_at

    def full(self: AskingFile, data: Buffer, position: int) -> None:
        if "/a-0/" in str(self.path):
            raise OSError(errno.ENOSPC, "No space left on device", str(self.path))
        write_at(self, data, position)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AskingFile, "write_at", full)
        life.produce("a", 3)
        life.produce("b", 3)
    assert (life.refused, len(life.acknowledged["b"])) == (3, 3)
    life.produce("a", 2)
    assert sorted(life.acknowledged["a"]) == [0, 2, 4], "batches of two"
    life.check()
    life.broker.close()


@FIRST
def test_a_folder_that_is_removed_under_a_broker(scratch: Path) -> None:
    life = Life(scratch, FailingDisk())
    life.create("a")
    life.create("b")
    life.produce("a", 2)
    life.produce("b", 2)
    for path in (scratch / "a-0").iterdir():
        path.unlink()
    (scratch / "a-0").rmdir()
    life.produce("a", 6)  # until it rolls
    assert life.refused
    life.produce("b", 6)
    assert len(life.acknowledged["b"]) == 8
    life.broker.housekeeping.apply_retention()
    life.broker.close()
