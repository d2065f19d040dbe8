"""A disk that refuses what a leader is to append: another replica leads if one can, else it is asked again."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from core.cluster.partition.partition import Role
from core.common.error_code import ErrorCode
from core.common.filesystem import Buffer, File
from tests.support.broker import produce, produce_values
from tests.support.logs import make_batch
from tests.support.member import OTHER, T0, US, playing


@pytest.mark.parametrize(
    ("code", "isr", "stays"),
    [
        (errno.EIO, [US, OTHER], False),
        (errno.ENOSPC, [US, OTHER], False),
        (errno.EMFILE, [US, OTHER], True),
        (errno.EIO, [US], True),
        (errno.ENOSPC, [US], True),
    ],
)
async def test_a_leader_whose_disk_refuses_leaves_office_if_another_is_in_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, isr: Sequence[int], *, stays: bool
) -> None:
    """Clients would ask it for ever, while the others have a sound disk. The controller is told, and asks which
    partition it is. The last one in sync may have room again soon, and nobody could take its place.
    """
    async with playing(tmp_path) as member:
        told: list[None] = []
        member.node.services.log_manager.on_offline.append(lambda: told.append(None))
        request = member.assignment()
        request.topic_states[0].partition_states[0].isr = list(isr)
        assert member.assign_all(request) is ErrorCode.NONE
        with monkeypatch.context() as patch:
            patch.setattr(File, "write_at", refuse(code))
            assert produce(member.node, make_batch(b"a"), acks=1).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (member.role(), len(told)) == ((Role.LEADING, 0) if stays else (None, 1))
        error = ErrorCode.NONE if stays else ErrorCode.KAFKA_STORAGE_ERROR
        assert produce(member.node, make_batch(b"b"), acks=1).error_code == error
        assert member.assign(epoch=1) is error
    if stays:
        return
    async with playing(tmp_path) as member:
        assert member.assign(epoch=2, replicas=[US]) is ErrorCode.NONE
        produce_values(member.node, b"c")
        assert member.role(T0) is Role.ALONE


def refuse(code: int) -> object:
    def write_at(file: File, _data: Buffer, _position: int) -> None:
        raise OSError(code, os.strerror(code), str(file.path))

    return write_at
