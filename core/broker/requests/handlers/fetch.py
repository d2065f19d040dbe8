"""Fetch: batches from the log's files to the socket, or a wait until there are enough.

Answers hold `FileRegion`s, which go out by sendfile: no record byte passes through here, unless they are so few that it
costs less to copy them. A request of a fetch session is read as the whole request that it stands for; its answer leaves
out what the client knows.

What a fetch that waits would get is counted by partition (`fetch_count.py`): records that come to one of a thousand
partitions cost a look at that one.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from core.broker.requests.fetch_reader import FIRST_VERSION_WITH_IDS, FetchCount, FetchReader
from core.broker.requests.fetch_session import FetchSession
from core.broker.requests.leader_hints import LeaderHints
from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import Needs, ServedApi
from core.broker.requests.services import Services
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.pending import Pending
from core.common.topic_partition import TopicPartition
from core.protocol.schema.fetch import (
    FETCH,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)

_FIRST_VERSION_WITH_LEADERS = 16  # KIP-951
_ANSWERED_WITH_LEADER = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


def handle(
    services: Services, request: FetchRequest, context: RequestContext
) -> FetchResponse | Pending[FetchResponse]:
    try:
        session = services.fetch_sessions.find(request, uses_topic_ids=context.api_version >= FIRST_VERSION_WITH_IDS)
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
    """A fetch that is answered when `min_bytes` are there, or as many as it may get if those are fewer, when something
    is wrong, or after `max_wait_ms`.
    """

    def __init__(
        self, services: Services, request: FetchRequest, context: RequestContext, session: FetchSession | None
    ) -> None:
        """Takes a `request` with all that is wanted, also by the session."""
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
        self._size_bytes = 0  # of what was read last
        self._watched: dict[TopicPartition, list[tuple[int, FetchPartition]]] = {}  # with numbers in `_count`
        self._count: FetchCount | None = None  # once it waits; None as long as there was nothing

    def read_on_arrival(self) -> FetchResponse:
        """Reads, and notes how far a replica is. By that something may be committed for which somebody waited who
        appends then, to partitions that were read already, as transactions do when they end: it is read again. A
        partition is read after it was noted, so that the first one can't be outdated by its own note.
        """
        reader = self._reader
        response = self.read()
        reader.notes_progress = False
        is_outdated = reader.appends_at_first not in (None, self._services.replicas.appends)
        return self.read() if is_outdated else response

    def wait(self, response: FetchResponse) -> None:
        """Waits; `response` is what there is, which is not enough."""
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
        """Counts what was read; None for nothing."""
        limits = [wanted.partition_max_bytes for topic in self._request.topics for wanted in topic.partitions]
        sizes = [0] * len(limits)
        if response is not None:
            sizes = [len(data.records or b"") for topic in response.responses for data in topic.partitions]
        return FetchCount(limits, sizes)

    def forget(self) -> None:
        self._services.replicas.unwatch(self, self._watched)

    def on_change(self, partition: TopicPartition) -> None:
        """Called when records came to a partition that is watched, or went, or it is served no more. What is read of it
        here is not read again for the answer.
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
        """Makes the client's answer of what was read."""
        leaders = None
        says_leaders = self._version >= _FIRST_VERSION_WITH_LEADERS
        for topic, names in zip(response.responses, self._names, strict=True):
            for data, name in zip(topic.partitions, names, strict=True):
                if data.records:
                    self._count_sent(name, len(data.records))
                elif data.error_code in _ANSWERED_WITH_LEADER and name.topic and says_leaders:
                    leaders = leaders or LeaderHints(self._services, self._context, NodeEndpoint)
                    data.current_leader = LeaderIdAndEpoch(*leaders.find(*name))
                    if not self._reader.is_for_replica:  # it knows its brokers from the controller
                        response.node_endpoints = leaders.node_endpoints
        session = self._session
        if session is not None:
            response.session_id = session.session_id
            if session.epoch == self._session_epoch:
                response.responses = session.without_unchanged(response.responses)
            else:  # the client went on elsewhere
                response.error_code, response.responses = ErrorCode.INVALID_FETCH_SESSION_EPOCH, []
        return response

    def _count_sent(self, name: TopicPartition, size_bytes: int) -> None:
        """Counts what consumers get, and apart from that what goes to replicas, which is no use of the topic."""
        partition = self._services.replicas.partitions.get(name)
        if partition is None:
            return
        if self._reader.is_for_replica:
            self._reader.count_for_replica(partition, size_bytes)
        else:
            partition.bytes_out += size_bytes

    def is_enough(self, response: FetchResponse) -> bool:
        """Says whether the answer, read last, need not wait: enough bytes, an error, or nothing that was requested."""
        if self._size_bytes >= self._min_bytes or not response.responses or self._reader.has_new_high_watermark:
            return True
        for topic, names in zip(response.responses, self._names, strict=True):
            for data, name in zip(topic.partitions, names, strict=True):
                if self._cannot_wait(name, data):
                    return True
        return False

    def _cannot_wait(self, name: TopicPartition, data: PartitionData) -> bool:
        """Says whether the client must hear of the partition now; not if it is being read, and that is done soon."""
        if data.error_code:
            is_led_elsewhere = data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            return not (is_led_elsewhere and self._services.replicas.is_being_read(name))
        return data.diverging_epoch.epoch >= 0 or data.preferred_read_replica >= 0

    def read(self, found: Mapping[int, PartitionData] = MappingProxyType({})) -> FetchResponse:
        """Reads what there is now, of everything that is wanted. `found` is what was just read of some partitions, by
        their number in the request, as if no other had records.
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
        """Gives the names of its partitions, without a topic if no topic has the id that was requested."""
        name = topic.topic
        if self._version >= FIRST_VERSION_WITH_IDS:
            services, topic_id = self._services, topic.topic_id  # the controller may tell of the id after the replicas
            name = services.image.find_name(topic_id) or services.replicas.find_name(topic_id) or ""
        return [TopicPartition(name, wanted.partition) for wanted in topic.partitions]


SERVES = ServedApi(FETCH, handle, Needs.NOTHING)
