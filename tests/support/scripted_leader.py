"""A broker that others fetch from: it answers by logs of its own, or as a script says."""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from core.cluster.partition.divergence import find_divergence
from core.common.endpoint import Endpoint as Address
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.log.partition_log import PartitionLog
from core.protocol.frame import Endpoint, read_request_start
from core.protocol.schema.fetch import (
    FETCH,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from core.protocol.schema.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tests.support.logs import append, make_batch, open_log

_FETCH = Endpoint(FETCH, 17)
_LIST_OFFSETS = Endpoint(LIST_OFFSETS, 9)
_EARLIEST = -2

Reply = FetchResponse | bytes
"""Bytes are sent as they are, and the connection is cut after them."""
Answer = Callable[[FetchRequest], Awaitable[Reply]]


class ScriptedLeader:
    """Leads the partitions of one topic. Fetches are answered by what `script` holds, one after the other, and by the
    logs when that is used up.
    """

    def __init__(self, directory: Path, partitions: int = 1) -> None:
        self.logs: list[PartitionLog] = [open_log(directory / str(number)) for number in range(partitions)]
        self.topic_id = bytes(16)
        self.epochs = [0] * partitions
        self.script: deque[Answer] = deque()
        self.ends_script: deque[ErrorCode] = deque()
        """Errors of ListOffsets for all partitions of a request."""
        self.fetches: list[FetchRequest] = []
        self.connections = 0
        self.open_connections = 0
        self.address: Address | None = None
        self._server: asyncio.Server | None = None
        self._changed = asyncio.Event()
        self.tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> Address:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = Address("127.0.0.1", self._server.sockets[0].getsockname()[1])
        return self.address

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    # --- its logs

    def lead(self, epoch: int, *partitions: int) -> None:
        """Begins a leader epoch, of those partitions or of all."""
        for number in partitions or range(len(self.logs)):
            self.epochs[number] = epoch
            self.logs[number].leader_epochs.assign(epoch, self.logs[number].log_end_offset)

    def write(self, *values: bytes, partition: int = 0, is_committed: bool = True) -> None:
        """A batch of each value."""
        log = self.logs[partition]
        for value in values:
            if is_committed:
                append(log, make_batch(value))
            else:
                log.append_as_leader(make_batch(value), self.epochs[partition])
        self.notify()

    def notify(self) -> None:
        """Has fetches that wait for records look again."""
        self._changed.set()
        self._changed = asyncio.Event()

    # --- its connections

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        self.connections += 1
        self.open_connections += 1
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await self._answer_all(reader, writer)
        finally:
            self.open_connections -= 1
            self.tasks.discard(task)
            writer.close()

    async def _answer_all(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            (size,) = struct.unpack(">i", await reader.readexactly(4))
            frame = memoryview(await reader.readexactly(size))
            key, _, correlation_id = read_request_start(frame)
            if key == LIST_OFFSETS.key:
                ends = self._ends(_LIST_OFFSETS.decode_request(frame)[1])
                pieces = _LIST_OFFSETS.encode_response(correlation_id, ends)
            else:
                request = _FETCH.decode_request(frame)[1]
                self.fetches.append(request)
                reply = await (self.script.popleft() if self.script else self.by_logs)(request)
                if isinstance(reply, bytes):
                    writer.write(reply)
                    return
                pieces = _FETCH.encode_response(correlation_id, reply)
            writer.writelines([bytes(piece) for piece in pieces])  # type: ignore[arg-type]  # no file regions

    async def by_logs(self, request: FetchRequest) -> FetchResponse:
        """Answers when there is something, or the time is up."""
        response = self._read(request)
        with suppress(TimeoutError):
            async with asyncio.timeout(request.max_wait_ms / 1000):
                while not any(_is_news(data) for topic in response.responses for data in topic.partitions):
                    await self._changed.wait()
                    response = self._read(request)
        return response

    def _read(self, request: FetchRequest) -> FetchResponse:
        """Without sessions: every request must name all partitions."""
        return answer_each(request, self._data)

    def _data(self, topic_id: bytes, wanted: FetchPartition) -> PartitionData:
        try:
            self._ensure_known(topic_id, wanted)
            return read_as_leader(self.logs[wanted.partition], wanted, wanted.partition_max_bytes)
        except KafkaError as error:
            return PartitionData(wanted.partition, error.code, -1, records=b"")

    def _ensure_known(self, topic_id: bytes, wanted: FetchPartition) -> None:
        epoch, known = wanted.current_leader_epoch, self.epochs[wanted.partition]
        if topic_id != self.topic_id:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        if epoch != known:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH if epoch < known else ErrorCode.UNKNOWN_LEADER_EPOCH)

    def _ends(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        error = self.ends_script.popleft() if self.ends_script else ErrorCode.NONE
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(topic.name, [self._end(one, error) for one in topic.partitions])
                for topic in request.topics
            ]
        )

    def _end(self, wanted: ListOffsetsPartition, error: ErrorCode) -> ListOffsetsPartitionResponse:
        log = self.logs[wanted.partition_index]
        offset = log.log_start_offset if wanted.timestamp == _EARLIEST else log.log_end_offset
        return ListOffsetsPartitionResponse(wanted.partition_index, error, offset=offset)


def answer_each(request: FetchRequest, answer: Callable[[bytes, FetchPartition], PartitionData]) -> FetchResponse:
    """Answers for each partition of the request what that gives for it, and the id of its topic."""
    return FetchResponse(
        responses=[
            FetchableTopicResponse("", topic.topic_id, [answer(topic.topic_id, one) for one in topic.partitions])
            for topic in request.topics
        ]
    )


def read_as_leader(log: PartitionLog, wanted: FetchPartition, max_bytes: int) -> PartitionData:
    """Gives what a leader with that log answers a replica. Raises KafkaError(OFFSET_OUT_OF_RANGE)."""
    found = PartitionData(wanted.partition, 0, log.high_watermark, -1, log.log_start_offset, records=b"")
    diverging = find_divergence(
        log.leader_epochs,
        log_start=log.log_start_offset,
        log_end=log.log_end_offset,
        last_fetched_epoch=wanted.last_fetched_epoch,
        fetch_offset=wanted.fetch_offset,
    )
    if diverging is not None:
        found.diverging_epoch = diverging
        return found
    read = log.read(wanted.fetch_offset, max_bytes, log.log_end_offset)
    if read.region is not None:
        found.records = read.region.read()
    return found


def _is_news(data: PartitionData) -> bool:
    return bool(data.records or data.error_code or data.diverging_epoch.epoch >= 0)
