"""Logs that are opened on first use, because opening them takes long: much of them has to be read. The start opens
small logs as long as that takes no noticeable time.

A read-only broker has to read all of a log, the owner only the part that was not safely on the disk at its last stop.
Another thread reads one log at a time: first the requested logs, the one with the least to read before the others. The
owner goes on with the other logs, because all of them need work. A request waits for its log, for `MOST_WAIT_MS` at
most, and must be sent again then: it gets NOT_LEADER_OR_FOLLOWER, as Kafka answers for a partition that the broker does
not lead yet. A fetch waits only if none of its partitions is open. Requests for other logs are served meanwhile.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from heapq import heapify, heappop, heappush
from typing import Any

from core.broker.config.effective_configs import Configs
from core.broker.partitions.buffer_copy import keep_records
from core.broker.partitions.log_startup import LogStartup
from core.broker.partitions.replica_manager import ReplicaManager
from core.broker.requests.runtime import Runtime
from core.cluster.image.broker_metadata import BrokerMetadata
from core.cluster.image.metadata_image import MetadataImage
from core.common.errors import PlogError
from core.common.pending import Pending
from core.common.shadow_filesystem import StoppableFileSystem
from core.common.topic_partition import INTERNAL_TOPICS, TopicPartition
from core.log.log_loader import LoadedLog
from core.log.log_manager import LogManager
from core.protocol.schema.fetch import FETCH
from core.protocol.schema.list_offsets import LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH
from core.protocol.schema.produce import PRODUCE
from core.protocol.schema.topic_changes import DELETE_RECORDS
from core.protocol.schema.transaction_states import DESCRIBE_PRODUCERS
from core.protocol.schema.transactions import WRITE_TXN_MARKERS

_log = logging.getLogger("plog.log")

MOST_WAIT_MS = 10_000
"""How long a request waits: less than clients wait for a response."""

AT_ONCE_BYTES = 64 * 1024 * 1024
_BYTES_OF_OPENING = 128 * 1024
"""Bytes that could be read in the time that it takes to open a log, or a segment of it."""


class LazyLogs:
    """Owned by the broker's task, except for the reading itself."""

    def __init__(
        self,
        opening: LogStartup,
        controller: BrokerMetadata,
        configs: Configs,
        log_manager: LogManager,
        replicas: ReplicaManager,
        runtime: Runtime,
    ) -> None:
        self._opening = opening
        self._controller = controller
        self._configs = configs
        self._log_manager = log_manager
        self._replicas = replicas
        self._runtime = runtime
        self._asked: set[TopicPartition] = set()
        self._queue: list[tuple[bool, int, TopicPartition]] = []  # requested ones (False) first, then by bytes to read
        self._loading: TopicPartition | None = None
        self._files: StoppableFileSystem | None = None  # through which `_loading` is read
        self._is_stopped = False
        self._then: dict[TopicPartition, dict[object, Callable[[], None]]] = defaultdict(dict)
        self._waiting: dict[Pending[None], tuple[set[TopicPartition], bool]] = {}
        """The logs that a request waits for, and whether one of them is enough."""
        replicas.on_unloaded.append(self.ask)

    def read_at_once(self) -> Iterator[TopicPartition]:
        """Yields the partitions to open before the broker serves: the owner's internal topics, and the smallest others,
        as long as that takes no noticeable time.
        """
        unloaded, left = self._log_manager.unloaded, AT_ONCE_BYTES
        for name in sorted(
            unloaded, key=lambda name: (name.topic not in INTERNAL_TOPICS, unloaded[name].bytes_to_read)
        ):
            left -= unloaded[name].bytes_to_read + (1 + unloaded[name].segments_to_read) * _BYTES_OF_OPENING
            is_needed = name.topic in INTERNAL_TOPICS and not self._log_manager.is_read_only
            if left >= 0 or is_needed:
                yield name

    def begin(self) -> None:
        """Starts to read logs; the owner reads all of them, requested or not."""
        if not self._log_manager.is_read_only:
            unloaded = self._log_manager.unloaded
            self._queue += [(True, log.bytes_to_read, name) for name, log in unloaded.items()]
            heapify(self._queue)
        self._begin_next()

    def is_loading(self, topic: str) -> bool:
        """Returns whether a log of the topic is being read, so that its folder must not be renamed."""
        return self._loading is not None and self._loading.topic == topic

    def stop(self) -> None:
        """Soon stops the current reading, and starts no other."""
        self._is_stopped = True
        if self._files is not None:
            self._files.stop()

    def ask(self, partition: TopicPartition) -> None:
        """Opens the log, if it is not open yet. Without an event loop it is open when this returns."""
        unloaded = self._log_manager.unloaded.get(partition)
        if unloaded is not None:
            if partition not in self._asked:
                self._asked.add(partition)
                heappush(self._queue, (False, unloaded.bytes_to_read, partition))
            self._begin_next()

    def when_loaded(self, partition: TopicPartition, who: object, work: Callable[[], None]) -> None:
        """Calls `work` once per `who` when the log is open or offline; never if it already is."""
        if partition in self._log_manager.unloaded:
            self._then[partition][who] = work
            self.ask(partition)

    def _begin_next(self) -> None:
        if self._loading is not None or self._is_stopped:
            return
        partition = self._take_next()
        if partition is None:
            return
        self._loading = partition
        found: list[LoadedLog | OSError | PlogError] = []
        files = self._files = StoppableFileSystem(self._log_manager.filesystem)
        config = self._configs.of_topic(partition.topic)
        try:
            self._log_manager.begin_load(partition, config)
        except OSError as error:
            found.append(error.with_traceback(None))

        def work() -> None:
            try:
                if not found:
                    found.append(self._opening.load(partition, config, files))
            except (OSError, PlogError) as error:
                found.append(error.with_traceback(None))  # the traceback would keep the log
            except Exception as error:  # noqa: BLE001 - the door of a background thread
                _log.exception("%s could not be read", partition)
                found.append(PlogError(f"could not be read: {error}"))

        def then() -> None:
            if self._is_stopped:
                return
            self._loading = self._files = None
            self._opening.end_load(partition, found[0])
            self._call_waiters(partition)
            self._begin_next()

        self._runtime.run_loading(work, then)

    def _take_next(self) -> TopicPartition | None:
        unloaded = self._log_manager.unloaded
        while self._queue:
            is_not_asked, bytes_to_read, partition = heappop(self._queue)
            self._asked.discard(partition)
            if partition in unloaded:
                why = "" if is_not_asked else ", because a client asks for it"
                _log.info("%s is read%s: about %d bytes", partition, why, bytes_to_read)
                return partition
        return None

    def _call_waiters(self, partition: TopicPartition) -> None:
        for work in self._then.pop(partition, {}).values():
            work()
        for waiting, (missing, is_one_enough) in list(self._waiting.items()):
            if partition in missing:
                missing.remove(partition)
                if is_one_enough or not missing:
                    waiting.complete_now()
        self._replicas.notify([partition])

    def answer(self, key: int, request: Any, handle: Callable[[], Any], may_touch: Callable[[str], bool]) -> Any:
        """Returns the result of `handle`, or a Pending with it if partitions of the request must be opened first. No
        log is opened for a client that the handler will refuse.
        """
        named = _NAMED.get(key)
        unloaded = self._log_manager.unloaded
        if named is None or not unloaded or (self._log_manager.is_read_only and key in _WRITES):
            return handle()
        names = {name for name in _named_partitions(named(request), self._controller.image) if may_touch(name.topic)}
        missing = {name for name in names if name in unloaded}
        for name in missing:
            self.ask(name)
        missing = {name for name in missing if name in unloaded}
        may_have_others = key == FETCH.key and (request.session_epoch > 0 or len(missing) < len(names))
        if not missing or may_have_others:
            return handle()
        if key == PRODUCE.key:
            keep_records(request)
        is_fetch = key == FETCH.key
        waiting = Pending[None](lambda: None, forget=lambda waiting: self._waiting.pop(waiting, None))
        self._waiting[waiting] = missing, is_fetch
        waiting.limit(self._runtime.schedule, MOST_WAIT_MS)
        # A fetch ends when the client disconnects, as a fetch that waits for records does.
        return waiting.then(lambda _nothing: handle(), is_at_work=not is_fetch)


_Topics = Iterable[tuple[str, bytes, Iterable[int]]]
"""Topics by name, or by id if the name is empty, and partitions of each."""


def _named_partitions(topics: _Topics, image: MetadataImage) -> Iterator[TopicPartition]:
    for topic, topic_id, numbers in topics:
        name = topic or image.find_name(topic_id) or ""
        yield from (TopicPartition(name, number) for number in numbers)


_NO_ID = b""
_NAMED: dict[int, Callable[[Any], _Topics]] = {
    PRODUCE.key: lambda r: ((t.name, t.topic_id, [one.index for one in t.partition_data]) for t in r.topic_data),
    FETCH.key: lambda r: ((t.topic, t.topic_id, [one.partition for one in t.partitions]) for t in r.topics),
    LIST_OFFSETS.key: lambda r: ((t.name, _NO_ID, [one.partition_index for one in t.partitions]) for t in r.topics),
    OFFSET_FOR_LEADER_EPOCH.key: lambda r: ((t.topic, _NO_ID, [p.partition for p in t.partitions]) for t in r.topics),
    DELETE_RECORDS.key: lambda r: ((t.name, _NO_ID, [one.partition_index for one in t.partitions]) for t in r.topics),
    DESCRIBE_PRODUCERS.key: lambda r: ((t.name, _NO_ID, t.partition_indexes) for t in r.topics),
    WRITE_TXN_MARKERS.key: lambda r: ((t.name, _NO_ID, t.partition_indexes) for m in r.markers for t in m.topics),
}
"""What a request names, by API key."""

_WRITES = (PRODUCE.key, DELETE_RECORDS.key, WRITE_TXN_MARKERS.key)
"""The APIs that write: a read-only broker refuses them, whether the log is open or not."""
