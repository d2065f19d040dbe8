"""A time in office of a controller, with models of ZooKeeper and of brokers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from core.broker.controller.active_controller import ActiveController
from core.broker.controller.controller_sender import ControllerSender
from core.cluster.controller.controller_context import ControlledTopic, LiveBroker
from core.cluster.controller.controller_requests import ControllerRequest
from core.cluster.controller.controller_writes import StateWrite, Write
from core.cluster.controller.elections import DEFAULT_POLICY
from core.cluster.image.metadata_image import PartitionState
from core.common.topic_partition import TopicPartition
from core.protocol.schema.control_request import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
)
from core.protocol.schema.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from core.zookeeper.controller_store import ControllerStore, FoundTopics
from core.zookeeper.zookeeper_session import Watch, ZooKeeperSession
from core.zookeeper.zookeeper_transaction import Refusal, ZooKeeperError
from tests.support.manual_clock import ManualClock

T0 = TopicPartition("t", 0)


class FakeWatch(Watch):
    def __init__(self) -> None:
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class FakeSession(ZooKeeperSession):
    """Calls those who watch when a test says so."""

    def __init__(self) -> None:
        self.watched: dict[str, Callable[[Any], None]] = {}
        self.watches: list[FakeWatch] = []
        self.refuses: str | None = None
        """The path of a node that can't be watched; that is known long before others are answered."""

    async def watch_children(self, path: str, on_change: Callable[[Any], None]) -> Watch:
        return await self._watch(path, on_change, [])

    async def watch_data(self, path: str, on_change: Callable[[Any], None]) -> Watch:
        return await self._watch(path, on_change, None)

    async def _watch(self, path: str, on_change: Callable[[Any], None], found: Any) -> Watch:
        if path == self.refuses:
            raise ZooKeeperError(Refusal.NO_AUTH, path)
        for _ in range(1 if self.refuses is None else 20):
            await asyncio.sleep(0)
        self.watched[path] = on_change
        on_change(found)
        self.watches.append(FakeWatch())
        return self.watches[-1]


class FakeStore(ControllerStore):
    """What is in ZooKeeper. `gate` holds up what is written; `failure` is raised instead of the next write."""

    def __init__(self) -> None:
        self.brokers: dict[int, LiveBroker] = {}
        self.topics: dict[str, ControlledTopic] = {}
        self.deleted: list[str] = []
        self.disks: list[int] = []
        self.written: list[Write] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.failure: Exception | None = None
        self.read_failure: Exception | None = None
        self.feature_failure: Exception | None = None
        self.while_reading: Callable[[], None] = lambda: None
        self.reads = 0

    async def read_brokers(self) -> dict[int, LiveBroker]:
        self.reads += 1
        if self.read_failure is not None:
            raise self.read_failure
        found = dict(self.brokers)
        while_reading, self.while_reading = self.while_reading, lambda: None
        while_reading()
        await asyncio.sleep(0)
        return found

    async def topic_names(self) -> list[str]:
        return list(self.topics)

    async def deleted_topics(self) -> list[str]:
        return list(self.deleted)

    async def read_topics(self, names: Sequence[str], known: Mapping[bytes, str] = {}) -> FoundTopics:
        found = {name: self.topics[name] for name in names}
        copies = {name: ControlledTopic(one.topic_id, one.version, dict(one.partitions)) for name, one in found.items()}
        for one in copies.values():
            for number, state in one.partitions.items():
                one.partitions[number] = replace(state, holders=dict.fromkeys(state.isr, 500))
        return FoundTopics(copies, set())

    async def take_disk_events(self) -> list[int]:
        taken, self.disks = self.disks, []
        return taken

    async def read_features(self) -> tuple[Mapping[str, int] | None, int]:
        if self.feature_failure is not None:
            raise self.feature_failure
        return {}, 0

    async def read_producer_ids(self) -> tuple[int, int]:
        if self.read_failure is not None:
            raise self.read_failure
        return 0, 0

    async def commit(self, writes: Sequence[Write]) -> list[int]:
        await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        self.written += writes
        return [
            write.state.partition_epoch + 1 if isinstance(write, StateWrite) else getattr(write, "version", -1) + 1
            for write in writes
        ]


class FakeQueue(ControllerSender):
    """Keeps what is to be sent to a life of a broker."""

    def __init__(self, on_answer: Callable[[ControllerRequest, Any], None], on_mistake: Callable[[], None]) -> None:
        self.sent: list[ControllerRequest] = []
        self.on_answer = on_answer
        self.on_mistake = on_mistake
        self.is_closed = False

    def __len__(self) -> int:
        return len(self.sent)

    def put(self, request: ControllerRequest) -> None:
        assert not self.is_closed
        self.sent.append(request)

    def close(self) -> list[ControllerRequest]:
        self.is_closed = True
        return self.sent


def live(broker_id: int, epoch: int, port: int = 9092) -> LiveBroker:
    endpoints = [UpdateMetadataEndpoint(port, "127.0.0.1", "PLAINTEXT", 0)]
    return LiveBroker(epoch, UpdateMetadataBroker(id=broker_id, endpoints=endpoints), {}, epoch)


class Office:
    """A term of broker 1, with brokers 1 and 2 and the topic t of one partition, which 1 leads."""

    def __init__(self) -> None:
        self.session = FakeSession()
        self.store = FakeStore()
        self.store.brokers = {1: live(1, 11), 2: live(2, 12)}
        self.store.topics = {"t": ControlledTopic(bytes(16), 0, {0: PartitionState(1, 3, (1, 2), (1, 2), 7)})}
        self.queues: list[tuple[int, int, FakeQueue]] = []
        self.overs = 0
        self.clock = ManualClock()
        self.asked: list[tuple[int, ListOffsetsRequest]] = []
        self.min_isr = 1
        self.unread_min_isr: int | None = None
        """What `min_isr` becomes when settings are read."""
        self.term: ActiveController

    def begin(self) -> None:
        self.term = ActiveController(
            self.session,
            self.store,
            node_id=1,
            epoch=5,
            make_queue=self._make_queue,
            ask=self.ask,
            policy=DEFAULT_POLICY._replace(min_isr=lambda _topic: self.min_isr),
            clock=self.clock,
            read_settings=self._read_settings,
            on_over=self._on_over,
        )

    async def _read_settings(self) -> None:
        self.min_isr = self.min_isr if self.unread_min_isr is None else self.unread_min_isr

    async def ask(self, broker_id: int, _api: object, _version: int, request: ListOffsetsRequest) -> Any:
        self.asked.append((broker_id, request))
        return ListOffsetsResponse()

    def _make_queue(
        self,
        broker_id: int,
        broker: LiveBroker,
        on_answer: Callable[[ControllerRequest, Any], None],
        on_mistake: Callable[[], None],
    ) -> ControllerSender:
        queue = FakeQueue(on_answer, on_mistake)
        self.queues.append((broker_id, broker.epoch, queue))
        return queue

    def _on_over(self) -> None:
        self.overs += 1

    async def settle(self) -> None:
        """Returns when nothing is left to do."""
        for _ in range(200):
            await asyncio.sleep(0)

    def sent(self, broker_id: int) -> list[ControllerRequest]:
        return [one for number, _, queue in self.queues if number == broker_id for one in queue.sent]

    def change(self, path: str) -> None:
        self.session.watched[path]([])


@asynccontextmanager
async def office(feature_failure: Exception | None = None) -> AsyncIterator[Office]:
    """In office, with nothing left to do."""
    made = Office()
    made.store.feature_failure = feature_failure
    made.begin()
    await made.settle()
    try:
        yield made
    finally:
        made.term.close()
