"""A member of a cluster whose disk refuses, at every single operation: the controller is answered, other partitions go
on, what was acknowledged is there at the next start, and what was deleted is not.
"""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest

from core.common.error_code import ErrorCode
from core.common.errors import AccessError
from core.common.filesystem import FileSystem
from core.common.topic_partition import TopicPartition
from tests.support.asking_disk import FailingDisk
from tests.support.broker import fetch, produce, values_of
from tests.support.fake_entry import FakeEntry
from tests.support.fetched import as_leader, joined
from tests.support.logs import cut_as_follower, make_batch
from tests.support.member import OTHER, US, Member

LED, FOLLOWED, DELETED = range(3)


class Life:
    """A member that leads one partition, follows another, and has a third one deleted."""

    def __init__(self, directory: Path, disk: FileSystem) -> None:
        self.directory = directory
        self.disk = disk
        self.acknowledged: list[bytes] = []
        self.is_deleted = False

    def play(self) -> None:
        member = self._open()
        if member is None:
            return
        for number, leader in ((LED, US), (FOLLOWED, OTHER), (DELETED, US)):
            error = member.assign(number, leader=leader, replicas=[US] if leader == US else [US, OTHER])
            assert error in (ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR)
        for value in (b"a", b"b", b"c"):
            self._produce(member, value)
        self._follow(member)
        self.is_deleted = member.stop(DELETED, epoch=-2, deletes=True) is ErrorCode.NONE
        member.node.close()

    def _open(self) -> Member | None:
        """A disk that refuses the start refuses it with words."""
        try:
            return Member(self.directory, FakeEntry(), filesystem=self.disk)
        except AccessError:
            return None

    def _produce(self, member: Member, value: bytes) -> None:
        for number in (LED, DELETED):
            error = ErrorCode.of(produce(member.node, make_batch(value), partition=number).error_code)
            if number == LED and error is ErrorCode.NONE:
                self.acknowledged.append(value)

    def _follow(self, member: Member) -> None:
        """What a fetcher does: it appends, is told that the logs part, cuts, and goes on."""
        replicas, log_manager = member.node.services.replicas, member.node.services.log_manager
        partition = replicas.partitions.get(TopicPartition("t", FOLLOWED))
        if partition is None:
            return
        try:
            for value, offset in ((b"x", 0), (b"y", 1)):
                fetched = joined([as_leader(make_batch(value), offset, 0)])
                replicas.append_as_follower(partition, fetched, 0, high_watermark=1, log_start_offset=0)
            cut_as_follower(log_manager, partition.log.partition, 1)
            fetched = joined([as_leader(make_batch(b"z"), 1, 0)])
            replicas.append_as_follower(partition, fetched, 0, high_watermark=2, log_start_offset=0)
        except OSError as error:
            replicas.take_offline(partition, AccessError(str(error), where=str(partition.log.directory)))

    def ensure_whole(self) -> None:
        """With a sound disk: this broker leads all that it has."""
        member = Member(self.directory, FakeEntry())
        assert member.assign(LED, replicas=[US], epoch=9) is ErrorCode.NONE
        found = values_of(fetch(member.node, 0, partition=LED))
        assert [value for value in found if value in self.acknowledged] == self.acknowledged
        assert member.assign(FOLLOWED, replicas=[US], epoch=9) is ErrorCode.NONE
        assert values_of(fetch(member.node, 0, partition=FOLLOWED)) in ([], [b"x"], [b"x", b"y"], [b"x", b"z"])
        if self.is_deleted:
            assert not [path for path in self.directory.glob(f"t-{DELETED}") if any(path.glob("*.log"))]
        member.node.close()


def play(directory: Path, disk: FailingDisk) -> Life:
    async def run() -> Life:
        life = Life(directory, disk)
        life.play()
        return life

    return asyncio.run(run())


@pytest.mark.parametrize("code", [errno.EIO, pytest.param(errno.ENOSPC, marks=pytest.mark.first)])
def test_a_members_disk_refuses_at_every_operation(scratch: Path, code: int) -> None:
    disk = FailingDisk(code)
    play(scratch / "well", disk)
    assert disk.count > 30
    for number in range(disk.count):
        failing = FailingDisk(code)
        failing.fails_from = number
        life = play(scratch / str(number), failing)

        async def look(life: Life = life) -> None:
            life.ensure_whole()

        asyncio.run(look())
