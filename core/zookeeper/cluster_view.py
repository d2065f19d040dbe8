"""The live brokers, topics and partition leaders of a cluster, as the nodes in ZooKeeper have them just now.

    /brokers/ids, /brokers/ids/N           `addresses`
    /brokers/topics                        `topic_names`
    /brokers/topics/T                      `partitions`
    /brokers/topics/T/partitions/P/state   `metadata`

After the first request for a node, watches follow it, so that its value is known without another request, even while
ZooKeeper is away. Clients found brokers in this way before brokers answered Metadata.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TypeVar

from core.common.error_code import ErrorCode
from core.common.errors import AccessError, MalformedMessageError
from core.common.topic_partition import is_valid_topic_name
from core.protocol.schema.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from core.zookeeper import znodes
from core.zookeeper.group_registry import INTERNAL_TOPICS
from core.zookeeper.zookeeper_session import Watch, ZooKeeperSession
from core.zookeeper.zookeeper_transaction import Node

_log = logging.getLogger("plog.zookeeper")

_NO_TOPIC_ID = bytes(16)  # a broker older than 2.8 made the topic

_Value = TypeVar("_Value")


class _FollowedTopic:
    """The last known nodes of a topic; owned by the view."""

    def __init__(self) -> None:
        self.node: znodes.TopicNode | None = None
        self.states: dict[int, znodes.PartitionStateNode | None] = {}
        self.watches: dict[int, Watch] = {}
        """Watches of the partitions' states, by partition."""


class ClusterView:
    """Owned by the session's loop, except `addresses`, which any thread may read."""

    def __init__(self, session: ZooKeeperSession, *, security_protocol: str = "PLAINTEXT") -> None:
        """Addresses brokers by their first listener of that protocol."""
        self._session = session
        self._security_protocol = security_protocol
        self.on_news: list[Callable[[], None]] = []
        """Called in the loop when brokers, topics or partitions come or go; whoever wants to know appends itself."""
        self._brokers: dict[int, znodes.BrokerNode] = {}
        self._reading_brokers = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._topics: dict[str, _FollowedTopic] = {}
        self.topic_names: tuple[str, ...] = ()
        self.addresses: list[tuple[str, int]] = []
        """The addresses of the live brokers; kept up to date in place."""

    def _tell_news(self) -> None:
        for on_news in self.on_news:
            on_news()

    # --- brokers

    async def follow_brokers(self) -> None:
        """Raises AccessError if no live broker has a listener of the protocol."""
        names: list[str] = []
        await self._session.watch_children(znodes.BROKER_IDS, lambda found: self._on_brokers(names, found))
        await self._read_brokers(names)
        if self.addresses:
            return
        if not self._brokers:
            raise AccessError(
                "no broker is registered in ZooKeeper, below /brokers/ids",
                where=znodes.BROKER_IDS,
                hint="are Kafka's brokers running, and is the path after ZooKeeper's address the zookeeper.connect of "
                "theirs?",
            )
        theirs = {one.security_protocol for node in self._brokers.values() for one in node.endpoints}
        raise AccessError(
            f"the brokers have no listener of {self._security_protocol}, only of {', '.join(sorted(theirs))}",
            where=znodes.BROKER_IDS,
            hint="security.protocol in --command-config FILE says which to use",
        )

    def _on_brokers(self, names: list[str], found: list[str] | None) -> None:
        is_first = not self._brokers and not names
        names[:] = found or []
        if not is_first:
            task = asyncio.get_running_loop().create_task(self._read_brokers(names))
            self._tasks.add(task)
            task.add_done_callback(self._on_read)

    def _on_read(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:  # the session has ended
            _log.debug("the brokers could not be read again: %s", error)

    async def _read_brokers(self, names: list[str]) -> None:
        """Reads those in `names` when its turn has come: a broker that came back may have another address."""
        async with self._reading_brokers:
            ids = [
                number
                for name in names
                if (number := _sound(partial(znodes.parse_node_id, name, znodes.BROKER_IDS))) is not None
            ]
            nodes = await self._session.read_many([znodes.broker_path(number) for number in ids])
            self._brokers = {
                number: broker
                for number, node in zip(ids, nodes, strict=True)
                if node is not None
                and (broker := _sound(partial(znodes.decode_broker, node.data, znodes.broker_path(number)))) is not None
            }
        self.addresses[:] = [(one.host, one.port) for one in self._endpoints().values()]
        self._tell_news()

    def _endpoints(self) -> dict[int, znodes.BrokerEndpoint]:
        found = {}
        for number, broker in self._brokers.items():
            usable = (one for one in broker.endpoints if one.security_protocol == self._security_protocol)
            if (endpoint := next(usable, None)) is not None:
                found[number] = endpoint
        return found

    # --- topics

    async def follow_topics(self) -> None:
        """Keeps `topic_names` up to date."""
        await self._session.watch_children(znodes.TOPICS, self._on_topics)

    def _on_topics(self, found: list[str] | None) -> None:
        self.topic_names = tuple(found or ())
        self._tell_news()

    async def partitions(self, topics: Collection[str]) -> Mapping[str, Collection[int]]:
        """Returns the numbers of each topic's partitions; missing topics are left out."""
        await asyncio.gather(*(self._follow(topic) for topic in topics if topic not in self._topics))
        found = {topic: self._topics[topic].node for topic in topics}
        return {topic: node.partitions.keys() for topic, node in found.items() if node is not None}

    async def _follow(self, topic: str) -> None:
        followed = _FollowedTopic()
        await self._session.watch_data(znodes.topic_path(topic), partial(self._on_topic, topic, followed))
        self._topics.setdefault(topic, followed)

    def _on_topic(self, topic: str, followed: _FollowedTopic, node: Node | None) -> None:
        before = followed.node
        if node is None:
            followed.node = None
        else:  # an unreadable node does not replace the known one
            followed.node = _sound(partial(znodes.decode_topic, node.data, znodes.topic_path(topic))) or before
        if (before and before.partitions.keys()) != (followed.node and followed.node.partitions.keys()):
            self._tell_news()

    # --- who leads

    async def metadata(self, topics: Sequence[str]) -> MetadataResponse:
        """Returns what a broker would answer about these topics."""
        legal = [topic for topic in topics if is_valid_topic_name(topic)]
        await self.partitions(legal)
        await asyncio.gather(*(self._follow_states(topic) for topic in legal))
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(number, one.host, one.port, self._brokers[number].rack)
                for number, one in self._endpoints().items()
            ],
            topics=[
                self._topic(topic)
                if topic in legal
                else MetadataResponseTopic(ErrorCode.INVALID_TOPIC_EXCEPTION, topic, _NO_TOPIC_ID)
                for topic in topics
            ],
        )

    async def _follow_states(self, topic: str) -> None:
        followed = self._topics[topic]
        if followed.node is None:
            for watch in followed.watches.values():
                watch.cancel()
            followed.watches, followed.states = {}, {}
            return
        new = [number for number in followed.node.partitions if number not in followed.watches]

        async def follow(number: int) -> None:
            path = znodes.partition_state_path(topic, number)
            on_change = partial(self._on_state, followed, number, path)
            followed.watches[number] = await self._session.watch_data(path, on_change)

        await asyncio.gather(*map(follow, new))

    def _on_state(self, followed: _FollowedTopic, number: int, path: str, node: Node | None) -> None:
        state = None if node is None else _sound(partial(znodes.decode_partition_state, node.data, path))
        followed.states[number] = state

    def _topic(self, topic: str) -> MetadataResponseTopic:
        followed = self._topics[topic]
        if followed.node is None:
            return MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic, _NO_TOPIC_ID)
        partitions = []
        for number, replicas in sorted(followed.node.partitions.items()):
            state = followed.states.get(number)
            leader = znodes.NO_LEADER if state is None or state.leader not in self._brokers else state.leader
            partitions.append(
                MetadataResponsePartition(
                    error_code=ErrorCode.LEADER_NOT_AVAILABLE if leader == znodes.NO_LEADER else ErrorCode.NONE,
                    partition_index=number,
                    leader_id=leader,
                    leader_epoch=-1 if state is None else state.leader_epoch,
                    replica_nodes=list(replicas),
                    isr_nodes=[] if state is None else list(state.isr),
                    offline_replicas=[replica for replica in replicas if replica not in self._brokers],
                )
            )
        topic_id = followed.node.topic_id or _NO_TOPIC_ID
        return MetadataResponseTopic(ErrorCode.NONE, topic, topic_id, topic in INTERNAL_TOPICS, partitions)


def _sound(decode: Callable[[], _Value]) -> _Value | None:
    """Returns None for a node that does not decode, and logs it: the caller leaves it out."""
    try:
        return decode()
    except MalformedMessageError as error:
        _log.warning("%s; it is left out", error.message)
        return None
