"""Fetch: sends batches from the log's files to the socket, or waits until there are enough.

Answers hold `FileRegion`s, which the connection sends by sendfile or TLS: this module copies records only if they are
so few that a copy costs less. A request of a fetch session names changes alone, and is completed first; its answer
leaves out partitions that did not change. A `DelayedFetch` waits until there is enough, or until its time is up.

`FetchReader` reads one partition. The fetcher decides how far it reads, and whether this broker must lead:

    a consumer       what is committed, as its isolation level says, from version 11 on also where this broker follows
    another replica  all that the leader has, whatever is committed; the leader notes how far the replica is by it

The checks come in Kafka's order (Partition.fetchRecords): the leader epoch, who leads, whether the replica is one (and
came to the listener of the brokers, which Kafka does not ask), where the logs part ways, and last whether the offset is
in the log. A replica that is not in sync may have to wait for the records, if it is throttled (`replication_quota.py`).
`find_preferred_replica` sends a consumer to a replica in its own rack (KIP-392, RackAwareReplicaSelector).

`FetchCount` is how many bytes a waiting fetch would get: counted once by partition, and kept, so that an append counts
its own partition again and no other. A fetch gets one batch whole of the first partition that has records, however
large it is, and of each other one at most its `partition_max_bytes`. What it may get of all together does not matter
while it waits: it waits for less. It matters once, if that one batch left no room for others, and is not the first any
more: then all are counted again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from types import MappingProxyType

from core.broker.config.broker_settings import RACK_AWARE_SELECTOR
from core.broker.replication.replication_quota import ReplicationQuota, leads_throttled
from core.broker.requests.fetch_session import FetchSession
from core.broker.requests.leader_hints import LeaderHints
from core.broker.requests.metadata_brokers import find_broker
from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import serves
from core.broker.requests.services import Services
from core.cluster.partition.divergence import find_divergence
from core.cluster.partition.partition import READ_COMMITTED, READ_UNCOMMITTED, Partition
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.pending import Pending
from core.common.topic_partition import TopicPartition
from core.protocol.schema.fetch import (
    FETCH,
    AbortedTransaction,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from core.records.compression import CompressionType
from core.security.acl import CLUSTER_ACTION, READ_TOPIC


def find_preferred_replica(
    services: Services, context: RequestContext, partition: Partition, rack: str, offset: int
) -> int | None:
    """Returns the most advanced in-sync follower in that rack that has the records at `offset` and that the client can
    reach; None without such a follower, or if the leader, this broker, is in that rack.
    """
    if rack == services.config.broker_rack:
        return None
    for node_id in partition.followers_in_sync_with(offset):
        broker = find_broker(services, context, node_id)
        if broker is not None and broker.rack == rack:
            return node_id
    return None


class FetchCount:
    """Owned by its fetch. Partitions are numbered as in the request."""

    def __init__(self, limits: Sequence[int], sizes: Sequence[int]) -> None:
        """`limits`: each partition's `partition_max_bytes`. `sizes`: the bytes that were read of each."""
        self._limits = limits
        self._counts = list(map(min, limits, sizes))
        self._first = next((number for number, size in enumerate(sizes) if size), len(sizes))
        self._sum = sum(self._counts)
        self._above_limit = sum(sizes) - self._sum  # bytes of the first one's batch
        self.is_outdated = False
        """Whether other partitions may get more than was counted."""

    @property
    def size_bytes(self) -> int:
        """The bytes that the fetch would get now."""
        return self._sum + self._above_limit

    def update(self, number: int, size: int) -> None:
        """Notes the present `size` of that partition's data, read as if no other partition had records."""
        count = min(self._limits[number], size)
        self._sum += count - self._counts[number]
        self._counts[number] = count
        if size and number <= self._first:
            self.is_outdated |= number < self._first and self._above_limit > 0
            self._first, self._above_limit = number, size - count


_FIRST_VERSION_WITH_ZSTD = 10  # KIP-110
_FIRST_VERSION_THAT_FOLLOWERS_ANSWER = 11  # KIP-392
FIRST_VERSION_WITH_IDS = 13  # KIP-516
_CONSUMER = -1
_NO_REPLICA = -1


class FetchReader:
    """Reads for one request; owned by its fetch."""

    def __init__(self, services: Services, request: FetchRequest, context: RequestContext) -> None:
        self._services = services
        self._request = request
        self._context = context
        self._replica_id = request.replica_id if request.replica_id != _CONSUMER else request.replica_state.replica_id
        self.is_for_replica = is_for_replica = self._replica_id >= 0
        """False also for -2, a debugging consumer: only replicas read above the high watermark."""
        self._refused: Set[str] = frozenset()
        self._right_listener: str | None = None
        config = services.config
        if is_for_replica and services.membership is not None:
            self._right_listener = services.membership.find_right_listener(context.session)
        """The listener that a replica must use, if this request came to another one, else None. Clients reach the
        others, and could claim to be replicas."""
        self.notes_progress = is_for_replica
        """Whether reading notes the replica's position: when the request arrives, and not again, because
        records sent later say nothing about the records that the replica has."""
        self.appends_at_first: int | None = None
        """`ReplicaManager.appends` between the first partition's note and its reading."""
        self._isolation_level = READ_UNCOMMITTED if is_for_replica else request.isolation_level
        self._needs_leader = is_for_replica or context.api_version < _FIRST_VERSION_THAT_FOLLOWERS_ANSWER
        is_by_rack = config.replica_selector_class == RACK_AWARE_SELECTOR
        self._goes_by_racks = is_by_rack and (is_for_replica or request.rack_id != "")
        """Whether consumers read from replicas in their racks, and this request is of such a consumer or replica."""
        self._quota = services.quotas.leader if is_for_replica and services.quotas.leader.is_limited else None
        """The quota for throttled partitions of replicas outside the ISR; None without a limit."""
        self.has_new_high_watermark = False
        """Whether the high watermark is above the one that the replica knows."""

    def read(self, name: TopicPartition, wanted: FetchPartition, left: int, *, min_one_batch: bool) -> PartitionData:
        """Reads at most `left` bytes, but one batch whole if `min_one_batch`. Errors are in the result. The topic in
        the name is empty if no topic has the requested id.
        """
        replicas = self._services.replicas
        try:
            if not name.topic and self._context.api_version >= FIRST_VERSION_WITH_IDS:
                raise KafkaError(self._services.unknown_topic_id)
            if name.topic in self._refused:
                raise KafkaError(READ_TOPIC.refusal)
            partition = replicas.partitions.get(name) or replicas.find_replica(*name)
            return self._read(partition, wanted, left, min_one_batch=min_one_batch)
        except KafkaError as error:
            return PartitionData(wanted.partition, error.code, -1, records=b"")

    def ask_for_rights(self, names: Sequence[Sequence[TopicPartition]]) -> None:
        """Asks for the right to read each topic of these partitions, once, when the request arrives. If a right goes
        while the fetch waits, that holds from the next request.
        """
        context, is_for_replica = self._context, self.is_for_replica
        if is_for_replica and context.may(CLUSTER_ACTION):
            return
        is_by_name = context.api_version < FIRST_VERSION_WITH_IDS
        refused = set()
        for some in names:
            topic = some[0].topic if some else ""
            is_known = some and (topic or is_by_name)
            if is_known and (is_for_replica or not context.may(READ_TOPIC, topic, count=len(some))):
                refused.add(topic)
        self._refused = refused

    def _read(self, partition: Partition, wanted: FetchPartition, left: int, *, min_one_batch: bool) -> PartitionData:
        self._ensure_may_read(partition, wanted)
        log = partition.log
        offset, diverging = wanted.fetch_offset, None
        if wanted.last_fetched_epoch != log.leader_epochs.latest_epoch or offset > log.log_end_offset:
            diverging = find_divergence(
                log.leader_epochs,
                log_start=log.log_start_offset,
                log_end=log.log_end_offset,
                last_fetched_epoch=wanted.last_fetched_epoch,
                fetch_offset=offset,
            )
        if diverging is None:
            if not log.log_start_offset <= offset <= log.log_end_offset:
                log.ensure_in_range(offset)
            if self.notes_progress:
                self._note(partition, wanted)
        data = PartitionData(
            wanted.partition,
            ErrorCode.NONE,
            log.high_watermark,
            log.last_stable_offset,
            log.log_start_offset,
            aborted_transactions=[] if self._isolation_level == READ_COMMITTED else None,
            preferred_read_replica=_NO_REPLICA,
            records=b"",
        )
        if diverging is not None:
            data.diverging_epoch = diverging
            return data
        if self._goes_by_racks and self._is_sent_elsewhere(partition, wanted, data):
            return data
        if self._quota is not None and self._must_wait(partition, self._quota):
            return data
        room = min(wanted.partition_max_bytes, left)
        if offset < log.log_end_offset and (room > 0 or min_one_batch):
            self._read_records(partition, wanted, room, data, min_one_batch=min_one_batch)
        return data

    def _read_records(
        self, partition: Partition, wanted: FetchPartition, room: int, data: PartitionData, *, min_one_batch: bool
    ) -> None:
        """Puts the records into `data`, and for READ_COMMITTED the aborted transactions among them."""
        isolation_level = self._isolation_level
        result = self._services.replicas.read(
            partition,
            lambda log: log.read(
                wanted.fetch_offset,
                room,
                partition.end_offset(isolation_level, is_for_replica=self.is_for_replica),
                min_one_batch=min_one_batch,
                with_aborted=isolation_level == READ_COMMITTED,
            ),
        )
        if result.region is not None:
            data.records = result.region.piece
            if result.aborted:
                data.aborted_transactions = [
                    AbortedTransaction(aborted.producer_id, aborted.first_offset) for aborted in result.aborted
                ]

    def _ensure_may_read(self, partition: Partition, wanted: FetchPartition) -> None:
        """Raises KafkaError if the fetcher must not read here, now, or in that version."""
        if wanted.current_leader_epoch >= 0:  # -2 means no epoch as well, unlike in ListOffsets
            partition.ensure_leader_epoch(wanted.current_leader_epoch)
        if self._needs_leader and not partition.is_leading:
            partition.ensure_leading()
        if self._right_listener is not None:
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"replicas fetch from {self._right_listener}")
        if self.is_for_replica:
            partition.ensure_replica(self._replica_id, knows_epoch=wanted.current_leader_epoch >= 0)
        knows_zstd = self._context.api_version >= _FIRST_VERSION_WITH_ZSTD
        if not knows_zstd and partition.log.config.target_compression is CompressionType.ZSTD:
            raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)

    def _note(self, partition: Partition, wanted: FetchPartition) -> None:
        self._services.replicas.note_fetch(
            partition,
            self._replica_id,
            wanted.fetch_offset,
            log_start_offset=wanted.log_start_offset,
            broker_epoch=self._request.replica_state.replica_epoch,
        )
        if self.appends_at_first is None:
            self.appends_at_first = self._services.replicas.appends

    def _must_wait(self, partition: Partition, quota: ReplicationQuota) -> bool:
        """Returns whether the replica is throttled, and gets no records of the partition for now (KIP-73)."""
        is_in_sync = partition.has_in_sync(self._replica_id)
        return not is_in_sync and self._is_throttled(partition) and quota.is_exceeded

    def _is_throttled(self, partition: Partition) -> bool:
        log = partition.log
        return leads_throttled(log.config, log.partition.partition, self._services.node.node_id)

    def count_for_replica(self, partition: Partition, size_bytes: int) -> None:
        """Counts the bytes of a partition's records that go to a replica."""
        is_added = self._replica_id in partition.state.adding_replicas
        self._services.replicas.counts.note_out(size_bytes, is_added=is_added)
        if self._quota is not None and self._is_throttled(partition):
            self._quota.record(size_bytes)

    def _is_sent_elsewhere(self, partition: Partition, wanted: FetchPartition, data: PartitionData) -> bool:
        """Returns whether the answer names a replica in the consumer's rack instead of holding records. A replica
        learns at once that the high watermark rose: consumers may wait for that there.
        """
        if self.is_for_replica:
            self.has_new_high_watermark |= wanted.high_watermark < data.high_watermark
            return False
        rack = self._request.rack_id
        found = find_preferred_replica(self._services, self._context, partition, rack, wanted.fetch_offset)
        if found is not None:
            data.preferred_read_replica = found
        return found is not None


_FIRST_VERSION_WITH_LEADERS = 16  # KIP-951
_ANSWERED_WITH_LEADER = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


@serves(FETCH, READ_TOPIC, CLUSTER_ACTION)
def handle(
    services: Services, request: FetchRequest, context: RequestContext
) -> FetchResponse | Pending[FetchResponse]:
    try:
        uses_ids = context.api_version >= FIRST_VERSION_WITH_IDS
        session = services.fetch_sessions.find(request, context.session.principal, uses_topic_ids=uses_ids)
    except KafkaError as error:
        return FetchResponse(error_code=error.code)
    if session is not None:
        request.topics = session.topics()
    fetch = DelayedFetch(services, request, context, session)
    response = fetch.read_on_arrival()
    if request.max_wait_ms <= 0 or fetch.is_enough(response):
        return fetch.answer(response)
    fetch.wait(response)
    return fetch


class DelayedFetch(Pending[FetchResponse]):
    """A fetch that is answered when it gets `min_bytes`, or the most that it may get if that is less, at an error, or
    after `max_wait_ms`.
    """

    def __init__(
        self, services: Services, request: FetchRequest, context: RequestContext, session: FetchSession | None
    ) -> None:
        """`request` names all wanted partitions, including those of the session."""
        self._services = services
        self._request = request
        self._context = context
        self._version = context.api_version
        self._reader = FetchReader(services, request, context)
        self._session = session
        self._session_epoch = session.epoch if session is not None else 0
        self._max_bytes = min(request.max_bytes, services.config.fetch_max_bytes)
        self._min_bytes = min(request.min_bytes, self._max_bytes)
        self._names = [self._names_of(topic) for topic in request.topics]
        if context.session.authorizer is not None:
            self._reader.ask_for_rights(self._names)
        self._size_bytes = 0  # of the last `read`
        self._watched: dict[TopicPartition, list[tuple[int, FetchPartition]]] = {}  # with their numbers in `_count`
        self._count: FetchCount | None = None  # while it waits; None as long as there are no records

    def read_on_arrival(self) -> FetchResponse:
        """Reads, and notes the replica's position. That may commit records, and a request that waited for this may
        append to partitions that were read already, as transactions do when they end: then all is read again. A
        partition is read after its note, so that its own note can't outdate the first one.
        """
        reader = self._reader
        response = self.read()
        reader.notes_progress = False
        is_outdated = reader.appends_at_first not in (None, self._services.replicas.appends)
        return self.read() if is_outdated else response

    def wait(self, response: FetchResponse) -> None:
        """Waits; `response` has what was read, which is not enough."""
        number = 0
        for topic, names in zip(self._request.topics, self._names, strict=True):
            for wanted, name in zip(topic.partitions, names, strict=True):
                self._watched.setdefault(name, []).append((number, wanted))
                number += 1
        if self._size_bytes:
            self._count = self._counted(response)
        self._services.replicas.watch(self, self._watched)
        self.limit(self._services.runtime.schedule, self._request.max_wait_ms)

    def _counted(self, response: FetchResponse | None) -> FetchCount:
        limits = [wanted.partition_max_bytes for topic in self._request.topics for wanted in topic.partitions]
        sizes = [0] * len(limits)
        if response is not None:
            sizes = [len(data.records or b"") for topic in response.responses for data in topic.partitions]
        return FetchCount(limits, sizes)

    def forget(self) -> None:
        self._services.replicas.unwatch(self, self._watched)

    def on_change(self, partition: TopicPartition) -> None:
        """Called when a watched partition gets or loses records, or is no longer served. Data that is read here is not
        read again for the answer.
        """
        found: dict[int, PartitionData] = {}
        size_bytes = 0
        for number, wanted in self._watched[partition]:
            found[number] = data = self._reader.read(partition, wanted, self._max_bytes, min_one_batch=True)
            if self._cannot_wait(partition, data) or self._reader.has_new_high_watermark:
                self._complete(self.read(found))
                return
            size_bytes += len(data.records or b"")
        if size_bytes < self._min_bytes:
            count = self._count = self._count or self._counted(None)
            for number, data in found.items():
                count.update(number, len(data.records or b""))
            if count.size_bytes < self._min_bytes and not count.is_outdated:
                return
        response = self.read(found)
        if self.is_enough(response):
            self._complete(response)
        else:
            self._count = self._counted(response)

    def _complete(self, response: FetchResponse) -> None:
        if not self.is_over:
            self.complete_with(self.answer(response))

    def value_now(self) -> FetchResponse:
        return self.answer(self.read())

    def answer(self, response: FetchResponse) -> FetchResponse:
        """Completes the response for the client."""
        leaders = None
        says_leaders = self._version >= _FIRST_VERSION_WITH_LEADERS
        for topic, names in zip(response.responses, self._names, strict=True):
            for data, name in zip(topic.partitions, names, strict=True):
                if data.records:
                    self._count_sent(name, len(data.records))
                elif data.error_code in _ANSWERED_WITH_LEADER and name.topic and says_leaders:
                    leaders = leaders or LeaderHints(self._services, self._context)
                    data.current_leader = leaders.find(*name)
                    if not self._reader.is_for_replica:  # a replica knows the brokers from the controller
                        response.node_endpoints = leaders.node_endpoints
        session = self._session
        if session is not None:
            response.session_id = session.session_id
            if session.epoch == self._session_epoch:
                response.responses = session.without_unchanged(response.responses)
            else:  # a later request has used the session
                response.error_code, response.responses = ErrorCode.INVALID_FETCH_SESSION_EPOCH, []
        return response

    def _count_sent(self, name: TopicPartition, size_bytes: int) -> None:
        """Counts the bytes sent to consumers, and separately those sent to replicas, which are no use of the topic."""
        partition = self._services.replicas.partitions.get(name)
        if partition is None:
            return
        if self._reader.is_for_replica:
            self._reader.count_for_replica(partition, size_bytes)
        else:
            partition.bytes_out += size_bytes

    def is_enough(self, response: FetchResponse) -> bool:
        """Returns whether the response just read need not wait: enough bytes, an error, or no partition requested."""
        if self._size_bytes >= self._min_bytes or not response.responses or self._reader.has_new_high_watermark:
            return True
        for topic, names in zip(response.responses, self._names, strict=True):
            for data, name in zip(topic.partitions, names, strict=True):
                if self._cannot_wait(name, data):
                    return True
        return False

    def _cannot_wait(self, name: TopicPartition, data: PartitionData) -> bool:
        """Returns whether the client must get the partition's result now; not so while its log is being opened."""
        if data.error_code:
            is_led_elsewhere = data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            return not (is_led_elsewhere and self._services.replicas.is_being_read(name))
        return data.diverging_epoch.epoch >= 0 or data.preferred_read_replica >= 0

    def read(self, found: Mapping[int, PartitionData] = MappingProxyType({})) -> FetchResponse:
        """Reads all partitions. `found` has data that was just read of some partitions, by their number in the request,
        as if no other partition had records.
        """
        left = self._max_bytes
        is_first = True
        topics = []
        number = 0
        for topic, names in zip(self._request.topics, self._names, strict=True):
            partitions = []
            for wanted, name in zip(topic.partitions, names, strict=True):
                data = found.get(number)
                if data is None or not (is_first or len(data.records or b"") <= min(left, wanted.partition_max_bytes)):
                    data = self._reader.read(name, wanted, left, min_one_batch=is_first)
                if size := len(data.records or b""):
                    left -= size
                    is_first = False
                number += 1
                partitions.append(data)
            topics.append(FetchableTopicResponse(topic.topic, topic.topic_id, partitions))
        self._size_bytes = self._max_bytes - left
        return FetchResponse(responses=topics)

    def _names_of(self, topic: FetchTopic) -> list[TopicPartition]:
        """Returns the names of its partitions, with an empty topic if no topic has the requested id."""
        name = topic.topic
        if self._version >= FIRST_VERSION_WITH_IDS:
            services, topic_id = self._services, topic.topic_id  # replicas may learn the id before the image
            name = services.image.find_name(topic_id) or services.replicas.find_name(topic_id) or ""
        return [TopicPartition(name, wanted.partition) for wanted in topic.partitions]
