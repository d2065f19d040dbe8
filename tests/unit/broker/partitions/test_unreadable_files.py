"""A disk that refuses to be read: a broker whose partition others lead, or could, leaves it to them; one that is alone
goes on.
"""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path

import pytest

from core.common.error_code import ErrorCode
from core.common.filesystem import File
from core.files.file_names import LOG_SUFFIX
from tests.support.broker import fetch, produce_values, serving, values_of
from tests.support.member import OTHER, T0, US, Member
from tests.unit.broker.serving.test_connection import connect, fetch_frame

VALUES = [b"%d" % number * 50 for number in range(100)]


class BadDisk:
    """Refuses to read segments while there is a `code`, but for fewer bytes than `granted`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.code = self.granted = 0
        read_at, sendfile = File.read_at, os.sendfile

        def read(file: File, size: int, position: int) -> bytes:
            self._ask(file.path, size)
            return read_at(file, size, position)

        def send(out: int, file: int, position: int, size: int) -> int:
            self._ask(Path(f"/proc/self/fd/{file}").readlink(), size)
            return sendfile(out, file, position, size)

        monkeypatch.setattr(File, "read_at", read)
        monkeypatch.setattr(os, "sendfile", send)

    def _ask(self, path: Path, size: int) -> None:
        if self.code and size >= self.granted and path.suffix == LOG_SUFFIX:
            raise OSError(self.code, os.strerror(self.code), str(path))


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> BadDisk:
    return BadDisk(monkeypatch)


def read(member: Member, offset: int = 50) -> ErrorCode:
    """One batch in the middle: where it is must be read from the segment."""
    return ErrorCode.of(fetch(member.node, offset, partition_max_bytes=1).error_code)


@pytest.mark.parametrize(
    ("code", "how", "is_left"),
    [
        (errno.EIO, {}, True),
        (errno.EIO, {"leader": OTHER}, True),
        (errno.EIO, {"isr": [US]}, False),
        (errno.EIO, {"replicas": [US]}, False),
        (errno.EMFILE, {}, False),
    ],
)
async def test_a_partition_is_left_to_others(
    member: Member, disk: BadDisk, code: int, how: dict[str, object], is_left: bool
) -> None:
    for number in (0, 1):
        member.assign(number, replicas=[US])
        produce_values(member.node, *VALUES, partition=number)
    assert member.assign(epoch=1, **how) is ErrorCode.NONE
    disk.code = code
    assert read(member) is ErrorCode.KAFKA_STORAGE_ERROR
    disk.code = 0
    offline = member.node.services.log_manager.offline
    assert list(offline) == [T0] * is_left
    assert read(member) is (ErrorCode.KAFKA_STORAGE_ERROR if is_left else ErrorCode.NONE)
    if is_left:
        assert "could not read" in str(offline[T0])
        assert member.assign(epoch=2) is ErrorCode.KAFKA_STORAGE_ERROR
    assert values_of(fetch(member.node, 0, partition=1)) == VALUES


@pytest.mark.parametrize("replicas", [[US], [US, OTHER]])
async def test_an_answer_whose_file_can_not_be_read_is_cut_off_and_said(
    member: Member, disk: BadDisk, caplog: pytest.LogCaptureFixture, replicas: list[int]
) -> None:
    member.assign(replicas=[US])
    produce_values(member.node, b"a" * 9000)
    assert member.assign(replicas=replicas, epoch=1) is ErrorCode.NONE
    async with serving(member.node) as server:
        reader, writer = await connect(server)
        disk.code, disk.granted = errno.EIO, 8000  # headers are read, and records are not
        writer.write(fetch_frame(1, 0))
        with pytest.raises(asyncio.IncompleteReadError):
            await reader.readexactly(1000)
        disk.code = 0
        writer.close()
    assert "input/output error; the answer that was to hold it is cut off" in caplog.text
    is_left = len(replicas) > 1
    assert list(member.node.services.log_manager.offline) == [T0] * is_left
    assert read(member, 0) is (ErrorCode.KAFKA_STORAGE_ERROR if is_left else ErrorCode.NONE)
