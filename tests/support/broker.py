"""A broker without sockets, and requests to it as a client encodes them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from core.broker.broker_server import BrokerServer
from core.broker.config.broker_config import BrokerConfig
from core.broker.config.broker_settings import STANDARD_AUTHORIZER
from core.broker.requests.client_session import Session
from core.broker.requests.fair_scheduler import FairScheduler
from core.broker.requests.runtime import ImmediateRuntime
from core.broker.serving.bound_listener import BoundListener
from core.broker.serving.connection import Connection
from core.broker.serving.loop_runtime import LoopRuntime
from core.broker.serving.sasl_authenticator import FrameHandler
from core.broker.serving.socket_server import SocketServer
from core.cluster.image.broker_metadata import NewTopic
from core.cluster.image.metadata_image import TopicImage
from core.cluster.image.single_node_controller import SingleNodeController
from core.common.background import RunInBackground, run_now
from core.common.clock import Clock, SystemClock
from core.common.endpoint import Endpoint
from core.common.pending import Pending, Schedule, TimerHandle
from core.common.task import finish
from core.common.topic_partition import random_uuid
from core.files.file_records import FileRegion
from core.protocol.frame import decode_response, encode_request
from core.protocol.message import Api
from core.protocol.primitives import Piece
from core.protocol.schema.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic, PartitionData
from core.protocol.schema.metadata_records import AccessControlEntryRecord
from core.protocol.schema.produce import (
    PRODUCE,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from core.records.batches import iter_whole_batches
from core.records.record import Record
from core.records.record_batch import RecordBatch
from core.security.acl import CLUSTER_NAME, Acl, AclPermissionType, PatternType, ResourceType, Right
from core.security.principal import ANONYMOUS, Principal
from tests.support.logs import NOW, make_batch
from tests.support.manual_clock import ManualClock

AnyApi = Api[Any, Any]
Req = TypeVar("Req")
Res = TypeVar("Res")

PRODUCE_BY_NAME = 12
"""The last versions of Produce and Fetch that name topics by name."""
PRODUCE_OF_MEMBERS = 11
"""The last version of Produce in a cluster with ZooKeeper."""


class Timers:
    """Stands in for the loop's: what is to be done, by when."""

    def __init__(self) -> None:
        self._due: list[tuple[int, Callable[[], None]]] = []

    def __call__(self, delay_ms: int, function: Callable[[], None]) -> Timer:
        entry = delay_ms, function
        self._due.append(entry)
        return Timer(lambda: self._due.remove(entry) if entry in self._due else None)

    @property
    def delays(self) -> list[int]:
        return [delay_ms for delay_ms, _ in self._due]

    def fire(self, within_ms: int = 1 << 62) -> None:
        """Everything comes due that is waited for no longer than that."""
        due = [entry for entry in self._due if entry[0] <= within_ms]
        self._due = [entry for entry in self._due if entry[0] > within_ms]
        for _, function in due:
            function()


@dataclass
class Timer:
    cancel: Callable[[], None]


class Background:
    """Stands in for a background thread: work is done when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Callable[[], None], Callable[[], None] | None]] = []

    def __call__(self, work: Callable[[], None], then: Callable[[], None] | None = None) -> None:
        self.waiting.append((work, then))

    def run(self) -> None:
        """Does the oldest piece of work that waits."""
        work, then = self.waiting.pop(0)
        work()
        if then is not None:
            then()

    def run_all(self) -> None:
        """Does what waits, and what comes of it."""
        while self.waiting:
            self.run()


class SteeredRuntime:
    """A `Runtime` whose parts a test exchanges while the node is open; what is in force at a call counts."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.turns: FairScheduler | None = None
        self._schedule: Schedule = ImmediateRuntime().schedule
        self._run_in_background: RunInBackground = run_now
        self._run_flush: RunInBackground = run_now
        self._run_cleaning: RunInBackground = run_now
        self._run_loading: RunInBackground = run_now

    def schedule(self, delay_ms: int, function: Callable[[], None], /) -> TimerHandle:
        return self._schedule(delay_ms, function)

    def run_in_background(self, work: Callable[[], None], then: Callable[[], None] | None = None) -> None:
        self._run_in_background(work, then)

    def run_flush(self, work: Callable[[], None], then: Callable[[], None] | None = None) -> None:
        self._run_flush(work, then)

    def run_cleaning(self, work: Callable[[], None], then: Callable[[], None] | None = None) -> None:
        self._run_cleaning(work, then)

    def run_loading(self, work: Callable[[], None], then: Callable[[], None] | None = None) -> None:
        self._run_loading(work, then)

    def follow(self, runtime: LoopRuntime) -> LoopRuntime:
        """Does everything as that one does, for a server of the node."""
        self.turns = runtime.turns
        self.use(
            schedule=runtime.schedule,
            run_in_background=runtime.run_in_background,
            run_flush=runtime.run_flush,
            run_cleaning=runtime.run_cleaning,
            run_loading=runtime.run_loading,
        )
        return runtime

    def use(
        self,
        *,
        schedule: Schedule | None = None,
        run_in_background: RunInBackground | None = None,
        run_flush: RunInBackground | None = None,
        run_cleaning: RunInBackground | None = None,
        run_loading: RunInBackground | None = None,
    ) -> None:
        """Exchanges what is given."""
        self._schedule = schedule or self._schedule
        self._run_in_background = run_in_background or self._run_in_background
        self._run_flush = run_flush or self._run_flush
        self._run_cleaning = run_cleaning or self._run_cleaning
        self._run_loading = run_loading or self._run_loading


class SteeredNode(BrokerServer):
    """A node that does its work at once, unless the test says otherwise to its `runtime`."""

    opened: ClassVar[list[SteeredNode] | None] = None
    """Those of a test that leaves it to `close_all` to close them."""

    def __init__(self, directory: Path, config: BrokerConfig, *, clock: Clock | None = None, **how: Any) -> None:
        """`how` is as for `BrokerServer`."""
        self.runtime = SteeredRuntime(clock or SystemClock())
        self.is_closed = False
        super().__init__(directory, config, runtime=self.runtime, **how)
        if SteeredNode.opened is not None:
            SteeredNode.opened.append(self)

    def close(self, *, threads: int = 1) -> None:
        self.is_closed = True
        super().close(threads=threads)

    @classmethod
    @contextmanager
    def close_all(cls) -> Iterator[None]:
        """Closes what was opened meanwhile at the end, but for those that were closed, or have lost their directory."""
        cls.opened = opened = []
        yield
        cls.opened = None
        for node in opened:
            if not node.is_closed and (node.is_read_only or node._lock.descriptor >= 0):
                node.runtime.use(run_in_background=run_now, run_flush=run_now, run_loading=run_now)
                node.close()


class NamingServer(SocketServer):
    """Knows clients that do not say who they are, by the listener's name and their host."""

    principal_of: Callable[[str, str], Principal]

    def _admit(self, bound: BoundListener, connection: Connection, principal: Principal, handler: FrameHandler) -> None:
        if principal == ANONYMOUS:
            principal = self.principal_of(bound.name, connection.client_host)
        super()._admit(bound, connection, principal, handler)


@asynccontextmanager
async def serving(
    broker: SteeredNode, principal_of: Callable[[str, str], Principal] = lambda _listener, _host: ANONYMOUS
) -> AsyncIterator[SocketServer]:
    """A server of the broker, in the loop that runs; `principal_of` names a client by its listener and host."""
    runtime = broker.runtime.follow(LoopRuntime(asyncio.get_running_loop(), broker.directory))
    server = NamingServer(broker, runtime, Endpoint("127.0.0.1", 0))
    server.principal_of = principal_of
    await server.start()
    running = asyncio.create_task(server.run())
    try:
        yield server
    finally:
        server.stop()
        await running


def open_broker(
    directory: Path, clock: Clock | None = None, *, is_read_only: bool = False, **settings: str
) -> SteeredNode:
    """`settings` by Kafka's names, with _ for a dot."""
    config = BrokerConfig.parse({name.replace("_", "."): value for name, value in settings.items()})
    assert not config.unknown
    return SteeredNode(directory, config, clock=clock or ManualClock(NOW), is_read_only=is_read_only)


def open_secured_broker(
    directory: Path, *acls: Acl, super_users: str = "", clock: Clock | None = None, **settings: str
) -> SteeredNode:
    """A broker with a StandardAuthorizer, whose metadata hold the ACLs."""
    broker = open_broker(
        directory, clock, authorizer_class_name=STANDARD_AUTHORIZER, super_users=super_users, **settings
    )
    write_acls(broker, *acls)
    return broker


def write_acls(broker: SteeredNode, *acls: Acl) -> list[bytes]:
    """Adds them to a lone broker's metadata, and gives their ids."""
    assert isinstance(broker.services.controller, SingleNodeController)
    records = [AccessControlEntryRecord(random_uuid(), *acl) for acl in acls]
    broker.services.controller._submit(records)
    return [record.id for record in records]


def allow(right: Right, principal: str, name: str = "t") -> Acl:
    """An ACL that gives the right on the resource of that name, or on the cluster."""
    if right.resource_type is ResourceType.CLUSTER:
        name = CLUSTER_NAME
    return Acl(right.resource_type, name, PatternType.LITERAL, principal, "*", right.operation, AclPermissionType.ALLOW)


def open_session(broker: SteeredNode, principal: str, host: str = "127.0.0.1") -> Session:
    """The session of a client that a listener would take for that principal."""
    return Session(Principal.parse(principal), "PLAINTEXT", host, "127.0.0.1", broker.authorizer)


def add_topic(broker: SteeredNode, name: str = "t", partitions: int = 1, **configs: str) -> bytes:
    """Gives the topic's id."""
    settings: dict[str, str | None] = {key.replace("_", "."): value for key, value in configs.items()}
    return broker.services.topics.create(NewTopic(name, partitions, configs=settings)).topic_id


def delete_topic(broker: BrokerServer, name: str) -> TopicImage:
    """Deletes it at once, its folders too."""
    (topic,) = finish(broker.services.topics.delete_all([name]))
    return topic


def send(
    broker: SteeredNode, api: Api[Req, Res], request: Req, version: int, session: Session | None = None
) -> Any:  # pieces, Pending or None
    frame = encode_request(api, version, 77, "test", request)
    return broker.dispatcher.handle(memoryview(bytearray(frame))[4:], session)


def ask(
    broker: SteeredNode, api: Api[Req, Res], request: Req, version: int | None = None, session: Session | None = None
) -> Res:
    """The answer; in the latest version where none is given, and to the owner where no session is."""
    version = api.versions.last if version is None else version
    answer = send(broker, api, request, version, session)
    assert not isinstance(answer, Pending), "the answer waits"
    assert answer is not None
    return decode(api, answer, version)


def ask_later(broker: SteeredNode, api: Api[Any, Res], request: Any, version: int) -> list[Res]:
    """The answer, which waits: once it is there."""
    pending = send(broker, api, request, version)
    assert isinstance(pending, Pending), "the answer is there at once"
    answers: list[Res] = []
    pending.on_value = lambda pieces: answers.append(decode(api, pieces, version))
    return answers


def completed(answer: Any) -> Any:
    """The pieces of what `send` returned: of an answer that waits, as it is when its time is over."""
    if not isinstance(answer, Pending):
        return answer
    arrived: list[Any] = []
    answer.on_value = arrived.append
    answer.complete_now()
    return arrived[0]


def joined(pieces: Sequence[Piece] | None) -> bytes:
    return b"".join(p.read() if isinstance(p, FileRegion) else bytes(p) for p in pieces or ())


def decode(api: Api[Any, Res], pieces: Sequence[Piece], version: int) -> Res:
    whole = joined(pieces)
    assert int.from_bytes(whole[:4], "big") == len(whole) - 4
    correlation_id, response = decode_response(api, version, memoryview(whole)[4:])
    assert correlation_id == 77
    return response


def produce_request(batch: RecordBatch | bytes, topic: str = "t", partition: int = 0, acks: int = -1) -> ProduceRequest:
    data = batch if isinstance(batch, bytes) else bytes(batch.buffer)
    topics = [TopicProduceData(topic, partition_data=[PartitionProduceData(partition, data)])]
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=topics)


def produce(
    broker: SteeredNode, batch: RecordBatch | bytes, topic: str = "t", partition: int = 0, acks: int = -1
) -> PartitionProduceResponse:
    version = PRODUCE_BY_NAME if broker.services.membership is None else PRODUCE_OF_MEMBERS
    response = ask(broker, PRODUCE, produce_request(batch, topic, partition, acks), version)
    return response.responses[0].partition_responses[0]


def produce_values(broker: SteeredNode, *values: bytes, topic: str = "t", partition: int = 0) -> None:
    """A batch of each value."""
    for value in values:
        assert produce(broker, make_batch(value), topic, partition).error_code == 0


def fetch_request(
    offset: int, topic: str = "t", partition: int = 0, *, partition_max_bytes: int = 1 << 20, **fields: Any
) -> FetchRequest:
    """`fields` of the request."""
    wanted = FetchPartition(partition, fetch_offset=offset, partition_max_bytes=partition_max_bytes)
    fields = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, **fields}
    return FetchRequest(topics=[FetchTopic(topic, partitions=[wanted])], **fields)


def fetch(broker: SteeredNode, offset: int, topic: str = "t", partition: int = 0, **fields: Any) -> PartitionData:
    response = ask(broker, FETCH, fetch_request(offset, topic, partition, **fields), PRODUCE_BY_NAME)
    assert response.error_code == 0
    return response.responses[0].partitions[0]


def records_of(data: PartitionData) -> list[Record]:
    return [r for batch in iter_whole_batches(memoryview(bytes(data.records or b""))) for r in batch.records()]  # type: ignore[arg-type]


def values_of(data: PartitionData) -> list[bytes | None]:
    return [record.value for record in records_of(data)]
