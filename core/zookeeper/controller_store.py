"""The controller's state in ZooKeeper: read when it takes office, and changed by fenced transactions.

Each transaction begins with a check of /controller_epoch: a later controller has raised it, and then ZooKeeper does
nothing of the transaction (KAFKA-6082). Many writes go into one transaction, as one costs 20 times as much alone. If a
write fails, the state of this controller is stale, and it leaves office.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

from core.cluster.controller.controller_context import NO_EPOCH, ControlledTopic, LiveBroker, unwritten_state
from core.cluster.controller.controller_writes import (
    NOT_WRITTEN,
    AssignmentWrite,
    DeletionWrite,
    FeatureWrite,
    ProducerIdWrite,
    StateWrite,
    TopicRemoval,
    Write,
)
from core.cluster.image.metadata_image import PartitionState
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError, MalformedMessageError, PlogError
from core.common.topic_partition import TopicPartition
from core.protocol.schema.control_request import UpdateMetadataBroker, UpdateMetadataEndpoint
from core.zookeeper import znodes
from core.zookeeper.zookeeper_session import ZooKeeperSession, read_or_create
from core.zookeeper.zookeeper_transaction import (
    Answer,
    Check,
    Create,
    Delete,
    Node,
    NodeStat,
    Operation,
    Refusal,
    SetData,
    ZooKeeperError,
)

_log = logging.getLogger("plog.controller")

K = TypeVar("K")

_READ_AT_ONCE = 250
_WRITTEN_AT_ONCE = 100
_MOST_BYTES = 400_000
"""Limit of one transaction, if it has several writes."""
_MOST_BYTES_OF_ONE = 1_000_000
"""Limit of one write: ZooKeeper silently closes a connection on which 1 MiB come at once (jute.maxbuffer)."""
_BYTES_BESIDE = 60
"""Upper bound of the bytes that an operation takes beside its path and its data."""

SECURITY_PROTOCOLS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
"""By name, the numbers of org.apache.kafka.common.security.auth.SecurityProtocol."""


class OutOfOfficeError(PlogError):
    """Another broker is the controller, or this one's state is stale."""


class FoundTopics(NamedTuple):
    """Topics as ZooKeeper has them. If Kafka's controller wrote a partition's state, its holders are the ISR, each with
    the number (zxid) of that write, which is on one scale with epochs: a broker that registered later was not known to
    hold anything. `unreadable` are topics that can't be read: the controller neither decides about them nor reuses
    their names.
    """

    topics: dict[str, ControlledTopic]
    unreadable: set[str]


class ControllerStore:
    """Owned by the loop's thread; one for each term of office."""

    def __init__(self, session: ZooKeeperSession, epoch: int, epoch_version: int) -> None:
        """`epoch` is the controller epoch; `epoch_version` the version of /controller_epoch while it is in office."""
        self._session = session
        self._epoch = epoch
        self._fence = Check(znodes.CONTROLLER_EPOCH, epoch_version)
        self._complaints: set[str] = set()

    # --- reading

    async def read_brokers(self) -> dict[int, LiveBroker]:
        """Reads all registered brokers. Skips, and logs, one that can't be read."""
        names = await self._session.children(znodes.BROKER_IDS) or []
        ids = []
        for name in names:
            try:
                ids.append(znodes.parse_node_id(name, znodes.BROKER_IDS))
            except MalformedMessageError as error:
                self._complain("a broker whose registration can't be read is ignored: %s", error)
        nodes = await self._session.read_many([znodes.broker_path(broker_id) for broker_id in ids])
        found: dict[int, LiveBroker] = {}
        for broker_id, node in zip(ids, nodes, strict=True):
            if node is None:
                continue
            try:
                broker = znodes.decode_broker(node.data, znodes.broker_path(broker_id))
                epoch = node.stat.czxid
                first = epoch if broker.first_epoch is None else min(broker.first_epoch, epoch)
                found[broker_id] = LiveBroker(
                    epoch,
                    _registration(broker_id, broker),
                    broker.features,
                    first,
                    previous_epoch=NO_EPOCH if broker.previous_epoch is None else broker.previous_epoch,
                    registered_ms=node.stat.created_ms,
                    is_plog=broker.previous_epoch is not None,
                )
            except MalformedMessageError as error:
                self._complain("a broker whose registration can't be read is ignored: %s", error)
        return found

    def _complain(self, text: str, *of: object) -> None:
        """Logs it once in a term of office, however often it is read."""
        complaint = text % of
        if complaint not in self._complaints:
            self._complaints.add(complaint)
            _log.error("%s", complaint)

    async def topic_names(self) -> list[str]:
        return await self._session.children(znodes.TOPICS) or []

    async def deleted_topics(self) -> list[str]:
        """Reads the names of the topics to delete."""
        return await self._session.children(znodes.DELETE_TOPICS) or []

    async def read_topics(self, names: Sequence[str], known: Mapping[bytes, str] = {}) -> FoundTopics:
        """Reads topics and the states of their partitions; `known` are names of other topics, by their ids. Skips a
        topic as a whole, and logs it, if any part can't be read: its assignment is written as one, and a missing
        partition would be lost. Also skips a topic with another topic's id, as a node copied by hand has it: brokers
        refuse requests that repeat an id.
        """
        unreadable: set[str] = set()
        found: dict[str, ControlledTopic] = {}
        made: dict[str, int] = {}
        assigned: dict[TopicPartition, tuple[znodes.TopicNode, int]] = {}
        async for name, node in self._read_each({name: znodes.topic_path(name) for name in names}):
            try:
                topic = znodes.decode_topic(node.data, znodes.topic_path(name))
                _ensure_assigned(topic, znodes.topic_path(name))
            except MalformedMessageError as error:
                self._complain("topic %s is passed over: %s", name, error)
                unreadable.add(name)
                continue
            if topic.topic_id is None:
                unreadable.add(name)
                self._complain(
                    "topic %s is passed over: it has no id, as it was made by a broker older than Kafka 2.8; "
                    "a controller of Kafka 3.9 gives it one",
                    name,
                )
                continue
            found[name] = ControlledTopic(topic.topic_id, node.stat.version)
            made[name] = node.stat.czxid
            for number, replicas in topic.partitions.items():
                assigned[TopicPartition(name, number)] = topic, number
                found[name].partitions[number] = _with_moves(unwritten_state(replicas), topic, number)
        owners = dict(known)
        for name in sorted(found, key=made.__getitem__):
            if (owner := owners.setdefault(found[name].topic_id, name)) != name:
                self._complain("topic %s is passed over: it has the id of topic %s", name, owner)
                unreadable.add(name)
                del found[name]
        async for partition, node in self._read_each({one: znodes.partition_state_path(*one) for one in assigned}):
            try:
                state = znodes.decode_partition_state(node.data, znodes.partition_state_path(*partition))
            except MalformedMessageError as error:
                self._complain("topic %s is passed over: %s", partition.topic, error)
                unreadable.add(partition.topic)
                found.pop(partition.topic, None)
            if partition.topic in unreadable:
                continue
            found[partition.topic].partitions[partition.partition] = _state_of(state, node, *assigned[partition])
        return FoundTopics(found, unreadable)

    async def _read_each(self, paths: Mapping[K, str]) -> AsyncIterator[tuple[K, Node]]:
        """Reads nodes, by their keys; yields those that exist, some in each turn of the loop."""
        keys = list(paths)
        for start in range(0, len(keys), _READ_AT_ONCE):
            some = keys[start : start + _READ_AT_ONCE]
            nodes = await self._session.read_many([paths[key] for key in some])
            for key, node in zip(some, nodes, strict=True):
                if node is not None:
                    yield key, node

    async def _read_all(self, paths: Mapping[K, str]) -> list[tuple[K, Node]]:
        return [found async for found in self._read_each(paths)]

    async def take_disk_events(self) -> list[int]:
        """Reads which brokers have reported a failed disk, and deletes their reports."""
        names = await self._session.children(znodes.LOG_DIR_EVENTS) or []
        found: dict[int, None] = {}
        for path, node in await self._read_all(
            {path: path for path in (f"{znodes.LOG_DIR_EVENTS}/{name}" for name in names)}
        ):
            try:
                found[znodes.decode_log_dir_event(node.data, path)] = None
            except MalformedMessageError as error:
                _log.error("a notice of a failed disk is passed over: %s", error)
            await self._commit([[Delete(one)] for one in await self._find_tree(path)])
        return list(found)

    async def read_producer_ids(self) -> tuple[int, int]:
        """Reads where the next block of producer ids begins, and the version of its node."""
        node = await read_or_create(self._session, znodes.PRODUCER_ID_BLOCK)
        block = znodes.decode_producer_id_block(node.data)
        return (0 if block is None else block.last_producer_id + 1), node.stat.version

    async def read_features(self) -> tuple[Mapping[str, int] | None, int]:
        """Reads the finalized features, by level, and the version of their node; None if there is no node, or features
        are disabled.
        """
        node = await self._session.read(znodes.FEATURE)
        if node is None:
            return None, NOT_WRITTEN
        feature = znodes.decode_feature(node.data)
        return (feature.features if feature.is_enabled else None), node.stat.version

    # --- writing

    async def commit(self, writes: Sequence[Write]) -> list[int]:
        """Makes the writes, in this order; returns the new version for each. Raises OutOfOfficeError if one can't be
        made; then later ones are not made, and earlier ones may be. Raises KafkaError, and writes nothing, if one is
        larger than ZooKeeper accepts.
        """
        missing = await self._find_missing(writes)
        removed = [write.topic for write in writes if isinstance(write, TopicRemoval)]
        remains = dict(zip(removed, await asyncio.gather(*map(self._find_remains, removed)), strict=True))
        parts = [
            [[Delete(path)] for path in remains[write.topic]]
            if isinstance(write, TopicRemoval)
            else [self._operations(write, missing)]
            for write in writes
        ]
        _ensure_small(writes, parts)
        versions: list[int] = []
        for some in _pieces([part for of_one in parts for part in of_one]):
            versions += await self._commit(some)
        given = iter(versions)
        return [[next(given) for _ in of_one][-1] if of_one else 0 for of_one in parts]

    async def _find_remains(self, topic: str) -> list[str]:
        """Finds the remaining nodes of a topic, the request to delete it last: the next controller may need it."""
        paths = (znodes.topic_path(topic), znodes.ConfigEntity("topics", topic).path, znodes.delete_topic_path(topic))
        return [one for path in paths for one in await self._find_tree(path)]

    async def _find_tree(self, path: str) -> list[str]:
        """Finds a node and all below it, the lowest first."""
        found: list[str] = []
        level = [path]
        while level:
            below: list[str] = []
            for start in range(0, len(level), _READ_AT_ONCE):
                some = level[start : start + _READ_AT_ONCE]
                for one, names in zip(some, await asyncio.gather(*map(self._session.children, some)), strict=True):
                    if names is not None:
                        found.append(one)
                        below += [f"{one}/{name}" for name in names]
            level = below
        return found[::-1]

    async def _find_missing(self, writes: Sequence[Write]) -> set[str]:
        paths = dict.fromkeys(path for write in writes for path in _perhaps_there(write))
        if not paths:
            return set()
        found = dict(await self._read_all({path: path for path in paths}))
        return {path for path in paths if path not in found}

    def _operations(self, write: Write, missing: set[str]) -> list[Operation]:
        """Returns the operations of a write; the last operation's answer has its version. Updates `missing`."""
        match write:
            case StateWrite(partition, state):
                path, data = znodes.partition_state_path(*partition), self._encode(state)
                if state.partition_epoch != NOT_WRITTEN:
                    return [SetData(path, data, state.partition_epoch)]
                return [*_created(_above(write), missing), Create(path, data)]
            case AssignmentWrite(topic, topic_id, partitions, version, configs):
                path = znodes.topic_path(topic)
                data = _assignment(topic_id, partitions).encode()
                if version != NOT_WRITTEN:
                    return [SetData(path, data, version)]
                config = znodes.ConfigEntity("topics", topic).path
                settings = znodes.encode_config(configs)
                return [
                    Create(config, settings) if config in missing else SetData(config, settings),
                    Create(path, data),
                ]
            case DeletionWrite(topic):
                return _created([znodes.delete_topic_path(topic)], missing)
            case ProducerIdWrite(broker_id, ids, version):
                block = znodes.ProducerIdBlock(broker_id, znodes.Int64(ids[0]), znodes.Int64(ids[-1]))
                return [SetData(znodes.PRODUCER_ID_BLOCK, block.encode(), version)]
            case FeatureWrite(finalized, version):
                data = znodes.FeatureNode(finalized).encode()
                return [
                    Create(znodes.FEATURE, data) if version == NOT_WRITTEN else SetData(znodes.FEATURE, data, version)
                ]
            case TopicRemoval():
                raise AssertionError("what is left of a topic is removed node by node")

    def _encode(self, state: PartitionState) -> bytes:
        return znodes.PartitionStateNode(
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            isr=state.isr,
            controller_epoch=self._epoch,
            leader_recovery_state=int(state.leader_recovery_state),
            holders=dict(state.holders),
        ).encode()

    async def _commit(self, writes: Sequence[Sequence[Operation]]) -> list[int]:
        operations = [operation for of_one in writes for operation in of_one]
        answers = await self._answers(operations) if operations else []
        given = iter(answers)
        versions = []
        for of_one in writes:
            of_this = [next(given) for _ in of_one]
            last = of_this[-1] if of_this else None
            versions.append(last.version if isinstance(last, NodeStat) else 0)
        return versions

    async def _answers(self, operations: Sequence[Operation]) -> list[Answer]:
        while True:
            try:
                return (await self._session.commit([self._fence, *operations]))[1:]
            except ZooKeeperError as error:
                if error.refusal is not Refusal.CONNECTION_LOST:
                    raise OutOfOfficeError(
                        f"the controller's decision can't be written to ZooKeeper: {error}"
                    ) from error
                if await self._is_done(operations):
                    return [
                        NodeStat(one.version + 1, 0, 0, 0, 0, 0) if isinstance(one, SetData) else None
                        for one in operations
                    ]

    async def _is_done(self, operations: Sequence[Operation]) -> bool:
        """Returns whether a transaction whose answer was lost was done. All operations must look done: a single one may
        because the state was already as it would make it.
        """
        try:
            nodes = await self._session.read_many([operation.path for operation in operations])
        except ZooKeeperError as error:
            raise OutOfOfficeError(
                f"it is not known whether ZooKeeper has the controller's decision: {error}"
            ) from error
        return all(_looks_done(operation, node) for operation, node in zip(operations, nodes, strict=True))


def _looks_done(operation: Operation, node: Node | None) -> bool:
    match operation:
        case SetData(_, data, version):
            return node is not None and node.stat.version > version and node.data == data
        case Create(_, data):
            return node is not None and node.data == data
        case Delete():
            return node is None
        case Check():
            return True


# --- nodes


def _registration(broker_id: int, broker: znodes.BrokerNode) -> UpdateMetadataBroker:
    endpoints = [
        UpdateMetadataEndpoint(one.port, one.host, one.listener, SECURITY_PROTOCOLS.get(one.security_protocol, 0))
        for one in broker.endpoints
    ]
    return UpdateMetadataBroker(id=broker_id, endpoints=endpoints, rack=broker.rack)


def _with_moves(state: PartitionState, topic: znodes.TopicNode, number: int) -> PartitionState:
    return replace(
        state, adding_replicas=topic.adding.get(number, ()), removing_replicas=topic.removing.get(number, ())
    )


def _state_of(state: znodes.PartitionStateNode, node: Node, topic: znodes.TopicNode, number: int) -> PartitionState:
    return PartitionState(
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        isr=state.isr,
        replicas=topic.partitions[number],
        partition_epoch=node.stat.version,
        leader_recovery_state=state.leader_recovery_state,
        adding_replicas=topic.adding.get(number, ()),
        removing_replicas=topic.removing.get(number, ()),
        holders={**dict.fromkeys(state.isr, node.stat.mzxid), **state.holders},
    )


def _assignment(topic_id: bytes, partitions: Mapping[int, PartitionState]) -> znodes.TopicNode:
    return znodes.TopicNode(
        partitions={number: state.replicas for number, state in partitions.items()},
        topic_id=znodes.Uuid(topic_id),
        adding={number: state.adding_replicas for number, state in partitions.items() if state.adding_replicas},
        removing={number: state.removing_replicas for number, state in partitions.items() if state.removing_replicas},
    )


def _above(write: StateWrite) -> list[str]:
    partitions = f"{znodes.topic_path(write.partition.topic)}/partitions"
    return [partitions, f"{partitions}/{write.partition.partition}"]


def _perhaps_there(write: Write) -> Iterable[str]:
    """Returns the nodes of which a write must know whether they exist."""
    match write:
        case StateWrite(_, state) if state.partition_epoch == NOT_WRITTEN:
            return _above(write)
        case AssignmentWrite(topic, version=version) if version == NOT_WRITTEN:
            return [znodes.ConfigEntity("topics", topic).path]
        case DeletionWrite(topic):
            return [znodes.delete_topic_path(topic)]
        case _:
            return ()


def _created(paths: Iterable[str], missing: set[str]) -> list[Operation]:
    """Returns operations that create the missing nodes, and removes these from `missing`."""
    made = [path for path in paths if path in missing]
    missing.difference_update(made)
    return [Create(path) for path in made]


def _size_of(operations: Sequence[Operation]) -> int:
    """Returns an upper bound of the bytes of the operations in a transaction."""
    return sum(len(one.path) + len(getattr(one, "data", b"")) + _BYTES_BESIDE for one in operations)


def _ensure_small(writes: Sequence[Write], parts: Sequence[Sequence[Sequence[Operation]]]) -> None:
    for write, of_one in zip(writes, parts, strict=True):
        size = max(map(_size_of, of_one), default=0)
        if size > _MOST_BYTES_OF_ONE:
            name = getattr(write, "topic", "") or getattr(write, "partition", "")
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"What the controller has to write of topic '{name}' has {size} bytes, and ZooKeeper takes no more "
                f"than {_MOST_BYTES_OF_ONE} at once. Does the topic have many partitions, or long settings?",
            )


def _ensure_assigned(topic: znodes.TopicNode, path: str) -> None:
    """Raises MalformedMessageError unless the topic has partitions, each with replicas on different brokers."""
    if not topic.partitions:
        raise znodes.malformed(path, "no partition is assigned")
    for number, replicas in topic.partitions.items():
        if not replicas or len(set(replicas)) < len(replicas):
            raise znodes.malformed(path, f"partition {number} has the replicas {list(replicas)}")


def _pieces(writes: Sequence[Sequence[Operation]]) -> Iterator[list[Sequence[Operation]]]:
    """Yields the writes in as few pieces as ZooKeeper's limits allow."""
    some: list[Sequence[Operation]] = []
    size = count = 0
    for of_one in writes:
        added = _size_of(of_one)
        if some and (count + len(of_one) > _WRITTEN_AT_ONCE or size + added > _MOST_BYTES):
            yield some
            some, size, count = [], 0, 0
        some.append(of_one)
        size, count = size + added, count + len(of_one)
    if some:
        yield some
