"""Cuts the logs of partitions that are followed, where their leader has other records.

What must be on the disk before (`LogManager.forget_safety`) is written in the background thread, for all logs that one
answer of the leader cuts. The partition's role may change meanwhile: nothing is cut then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from core.broker.partitions.replica_manager import ReplicaManager
from core.broker.replication.followed_partition import FollowedPartition
from core.broker.requests.runtime import Runtime
from core.common.filesystem import access_error
from core.log.log_manager import LogManager, Write


class Cut(NamedTuple):
    """Where a log is to end; without any record, if it `begins_again` there."""

    offset: int
    begins_again: bool = False


class FollowerTruncation:
    """Owned by the loop's task."""

    def __init__(self, replicas: ReplicaManager, log_manager: LogManager, runtime: Runtime) -> None:
        self._replicas = replicas
        self._log_manager = log_manager
        self._runtime = runtime

    async def cut(self, cuts: Mapping[FollowedPartition, Cut]) -> None:
        """Cuts the logs. One that the disk refuses to cut is offline then. Raises AccessError if the disk takes no
        checkpoint: nothing was cut then, or a little more than the checkpoints say.
        """
        for followed in await self._forget_safety({followed: cut.offset for followed, cut in cuts.items()}):
            self._cut_now(followed, cuts[followed])
        await self._forget_safety({followed: followed.log.log_end_offset for followed in cuts if followed.is_current})

    def _cut_now(self, followed: FollowedPartition, cut: Cut) -> None:
        log = followed.log
        try:
            if cut.begins_again:
                log.truncate_fully_and_start_at(cut.offset)
            else:
                log.truncate_to(cut.offset)
        except OSError as error:
            self._replicas.take_offline(followed.partition, access_error(error, log.directory, "cut"))
        else:
            self._replicas.notify([followed.name])

    async def _forget_safety(self, offsets: Mapping[FollowedPartition, int]) -> Sequence[FollowedPartition]:
        """Gives those that may be cut there now."""
        while True:
            current = [followed for followed in offsets if followed.is_current]
            writes = self._log_manager.forget_safety({followed.name: offsets[followed] for followed in current})
            if not writes:
                return current
            await self._in_background(writes)

    async def _in_background(self, writes: Iterable[Write]) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        failures: list[Exception] = []

        def work() -> None:
            try:
                for write in writes:
                    write()
            except Exception as error:  # noqa: BLE001 - the door of the other thread: who waits must be told
                failures.append(error)

        def then() -> None:
            if not done.done():  # else it was cancelled
                done.set_result(None)

        self._runtime.run_in_background(work, then)
        await done
        for error in failures:
            if isinstance(error, OSError):
                raise access_error(error, error.filename or self._log_manager.directory, "write to") from error
            raise error
