"""A consumer of a group that divides its partitions by itself, through the registries of `group_registry.py`.

Its states, by its nodes in ZooKeeper:

    OUT         none of its nodes exist: at the beginning, and after its session has expired
    REGISTERED  its id is among those of the group; it owns nothing
    OWNING      it also owns its whole share, as of its last look

`advance` moves on from each of them, one rebalance at a time (Algorithm 1 of the paper of 2011): read the members,
compute the own share, release the owned partitions, and claim the share. It claims all of the share in one step, or
nothing; then it backs off, and looks again. An unchanged share is kept, and read on.

Each session has another consumer id. So a commit that checks that the id is there, in the same transaction, can't come
from a consumer whose session is over, and whose partitions others read.

`RegistryMember` gives `GroupConsumer` (core/client) its assignment and committed offsets, in place of a group's
coordinator. It only waits: a `RegisteredConsumer` does the work in the session's thread.
"""

from __future__ import annotations

import contextlib
import logging
import platform
import uuid
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import TypeVar

from msgspec import structs

from core.common.clock import Clock
from core.common.error_code import ErrorCode
from core.common.errors import AccessError, MalformedMessageError
from core.common.topic_partition import TopicPartition
from core.zookeeper.cluster_view import ClusterView
from core.zookeeper.group_registry import (
    ConsumerNode,
    RegisteredThread,
    decode_consumer,
    decode_offset,
    encode_offset,
    ids_path,
    offset_path,
    offsets_path,
    owner_path,
    owners_path,
    share_of,
)
from core.zookeeper.session_thread import NoAnswerError, SessionThread
from core.zookeeper.znodes import shown
from core.zookeeper.zookeeper_session import SessionState, ZooKeeperSession
from core.zookeeper.zookeeper_transaction import (
    ANY_VERSION,
    Check,
    Create,
    Delete,
    Node,
    Operation,
    Refusal,
    SetData,
    ZooKeeperError,
)

_log = logging.getLogger("plog.zookeeper")

Partitions = frozenset[TopicPartition]

_Item = TypeVar("_Item")

_BACK_OFF_MS = 500
"""How long it waits before it claims its share again; `rebalance.backoff.ms`, which is 2000 by default in Kafka's
consumers. A waiting consumer reads nothing, so this one asks more often.
"""
_TRIES_BEFORE_WORD = 4
_MOST_OPERATIONS = 500
"""The most changes in one transaction: ZooKeeper refuses a request of more than 1 MB (`jute.maxbuffer`)."""


class ConsumerState(Enum):
    """The states of a consumer; the module's docstring has the table."""

    OUT = "out"
    REGISTERED = "registered"
    OWNING = "owning"


_NEXT = {
    ConsumerState.OUT: frozenset({ConsumerState.REGISTERED}),
    ConsumerState.REGISTERED: frozenset({ConsumerState.OWNING, ConsumerState.OUT}),
    ConsumerState.OWNING: frozenset({ConsumerState.REGISTERED, ConsumerState.OUT}),
}


class RegisteredConsumer:
    """Owned by the session's loop. `state`, `owned`, `needs_to_look` and `next_try_ms` may be read in any thread."""

    def __init__(
        self, session: ZooKeeperSession, view: ClusterView, group: str, topics: ConsumerNode, clock: Clock
    ) -> None:
        """`topics` are those that it reads; the time is added when it registers."""
        self._session = session
        self._clock = clock
        self._view = view
        self._group = group
        self._topics = topics
        self._consumer_id = ""
        self._registered: list[str] = []  # paths of its ids that may be there, the last one made last
        self._claimed: dict[str, bytes] = {}
        """The owners' nodes that may exist, with the data it wrote: all of them once `state` is OWNING. It recognizes
        its nodes by that data, not by the session: another session may have begun before the news of it arrives.
        """
        self._with_offset: set[TopicPartition] = set()  # whose node of the offset is there
        self._left_out: set[str] = set()  # consumers whose undecodable nodes were logged
        self._refusals = 0
        self.state = ConsumerState.OUT
        self.owned: Partitions = frozenset()
        self.needs_to_look = True
        """Whether the registries may have changed since its last look."""
        self.next_try_ms = 0
        """When it may claim its share again, by the monotonic clock."""

    def _move_to(self, state: ConsumerState, owned: Partitions = frozenset()) -> None:
        if state is not self.state:
            assert state in _NEXT[self.state], (self.state, state)
        self.state, self.owned = state, owned

    # --- life

    async def begin(self) -> None:
        """Follows the registries from now on. It joins the group with `advance`."""
        self._session.subscribe(self._on_session)
        self._view.on_news.append(self._note_news)
        await self._session.ensure_paths([ids_path(self._group)])
        await self._session.watch_children(ids_path(self._group), lambda _names: self._note_news())
        await self._view.follow_topics()

    def _note_news(self) -> None:
        self.needs_to_look = True

    def _on_session(self, state: SessionState) -> None:
        is_over = state in (SessionState.EXPIRED, SessionState.FAILED, SessionState.CLOSED)
        if is_over and self.state is not ConsumerState.OUT:
            self._move_to(ConsumerState.OUT)
        self._note_news()

    async def leave(self) -> None:
        """Releases its partitions, and then its place in the group: others may own the partitions at once. Raises
        ZooKeeperError if that fails; the end of the session does it then.
        """
        if self.state is ConsumerState.OUT:
            return
        await self._release()
        await self._deregister()
        self._move_to(ConsumerState.OUT)

    @property
    def _id_path(self) -> str:
        return f"{ids_path(self._group)}/{self._consumer_id}"

    # --- the rebalance

    async def advance(self, *, is_reading: bool) -> Partitions:
        """Returns the partitions that may be read now. Returns none if the caller is reading and the share has changed:
        the caller must commit, stop reading and call again; also none after a failed try, until `next_try_ms`.
        """
        self.needs_to_look = False  # later changes set it again
        try:
            if self.state is ConsumerState.OUT:
                await self._register()
            share = await self._find_share()
            if self.state is ConsumerState.OWNING and share.keys() == self.owned:
                return self.owned
            if is_reading:
                self.needs_to_look = True
                return frozenset()
            await self._release()
            await self._claim(share)
        except ZooKeeperError as error:
            self.needs_to_look = True
            if not self._may_pass(error):
                raise
            self.next_try_ms = self._clock.monotonic_ms() + _BACK_OFF_MS
            return frozenset()
        except BaseException:
            self.needs_to_look = True
            raise
        return self.owned

    async def _register(self) -> None:
        await self._deregister()  # nodes left by a lost answer, or an expiry noticed late
        now_ms = self._clock.now_ms()
        node = structs.replace(self._topics, timestamp=str(now_ms))
        self._consumer_id = _new_consumer_id(self._group, now_ms)
        self._registered.append(self._id_path)
        await self._session.ensure_paths([ids_path(self._group)])
        await self._session.create_ephemeral(self._id_path, node.encode())
        self._move_to(ConsumerState.REGISTERED)

    async def _deregister(self) -> None:
        nodes = await self._session.read_many(self._registered)
        there = [Delete(path) for path, node in zip(self._registered, nodes, strict=True) if node is not None]
        if there:
            await self._session.commit(there)
        self._registered = []

    async def _find_share(self) -> Mapping[TopicPartition, RegisteredThread]:
        """Reads the group's members and partitions; returns its own partitions, each with the thread's name."""
        names = await self._session.children(ids_path(self._group)) or []
        nodes = await self._session.read_many([f"{ids_path(self._group)}/{name}" for name in names])
        consumers = {}
        for name, node in zip(names, nodes, strict=True):
            if node is not None and (consumer := self._decoded(name, node)) is not None:
                consumers[name] = consumer
        if self._consumer_id not in consumers:  # somebody deleted it, or the session has ended meanwhile
            raise ZooKeeperError(Refusal.NO_NODE, self._id_path)
        known = self._view.topic_names
        partitions = await self._view.partitions(self._topics.threads(known))
        return share_of(self._consumer_id, consumers, partitions)

    def _decoded(self, name: str, node: Node) -> ConsumerNode | None:
        """Returns None for a node that does not decode: others can't assign partitions to that consumer, either."""
        try:
            return decode_consumer(node.data, f"{ids_path(self._group)}/{name}")
        except MalformedMessageError as error:
            if name not in self._left_out:
                self._left_out.add(name)
                _log.warning("%s; that consumer is left out", error.message)
            return None

    async def _claim(self, share: Mapping[TopicPartition, RegisteredThread]) -> None:
        """Claims the whole share, or nothing if others still own some of it."""
        topics = {partition.topic for partition in share}
        await self._session.ensure_paths(owners_path(self._group, topic) for topic in topics)
        creations = [
            Create(owner_path(self._group, partition), str(thread).encode(), is_ephemeral=True)
            for partition, thread in sorted(share.items())
        ]
        self._claimed = {creation.path: creation.data for creation in creations}
        try:
            for some in _slices(creations):
                await self._session.commit([Check(self._id_path, ANY_VERSION), *some])
        except ZooKeeperError as error:
            if error.refusal is Refusal.NODE_EXISTS:
                await self._release()
                await self._note_refusal(error.where)
            raise
        self._refusals = 0
        self._move_to(ConsumerState.OWNING, frozenset(share))

    async def _note_refusal(self, path: str) -> None:
        """Reports the consumer that keeps parts of the share, once this has lasted."""
        self._refusals += 1
        if self._refusals != _TRIES_BEFORE_WORD:
            return
        node = await self._session.read(path)
        if node is None:
            return
        who = shown(node.data.decode("utf-8", "replace"))
        why = (
            "that consumer has not released the partition"
            if node.stat.ephemeral_owner
            else "no session keeps that node: delete it"
        )
        _log.warning("%s still names %s as the owner, and %s; nothing is read until then", path, who, why)

    async def _release(self) -> None:
        """Deletes its own owners' nodes while it is in the group: after that they may be others'."""
        nodes = await self._session.read_many(list(self._claimed))
        own = [
            Delete(path)
            for (path, name), node in zip(self._claimed.items(), nodes, strict=True)
            if node is not None and node.data == name
        ]
        for some in _slices(own):
            await self._session.commit([Check(self._id_path, ANY_VERSION), *some])
        self._claimed = {}
        if self.state is ConsumerState.OWNING:
            self._move_to(ConsumerState.REGISTERED)

    def _may_pass(self, error: ZooKeeperError) -> bool:
        """Returns whether another try may succeed: others hold parts of its share, or nodes have disappeared."""
        if error.refusal is Refusal.NO_NODE and error.where == self._id_path and self.state is not ConsumerState.OUT:
            self._move_to(ConsumerState.OUT)  # it registers again, under another id
        return error.is_lost or error.refusal in (Refusal.NODE_EXISTS, Refusal.NO_NODE)

    # --- offsets

    async def find_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Reads the group's committed offsets. Raises MalformedMessageError for an invalid node: it never guesses."""
        paths = [offset_path(self._group, partition) for partition in partitions]
        found = {}
        for partition, path, node in zip(partitions, paths, await self._session.read_many(paths), strict=True):
            if node is None:
                self._with_offset.discard(partition)
                continue
            self._with_offset.add(partition)
            offset = decode_offset(node.data, path)
            if offset is not None:
                found[partition] = offset
        return found

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """Writes the next offsets; returns False if the caller may try again. Writes nothing unless this very consumer
        is still in the group.
        """
        if self.state is ConsumerState.OUT:
            return False
        try:
            new = {partition.topic for partition in offsets if partition not in self._with_offset}
            await self._session.ensure_paths(offsets_path(self._group, topic) for topic in new)
            for some in _slices(sorted(offsets.items())):
                changes = [self._offset_change(partition, offset) for partition, offset in some]
                await self._session.commit([Check(self._id_path, ANY_VERSION), *changes])
                self._with_offset.update(partition for partition, _ in some)
        except ZooKeeperError as error:
            if not self._may_pass(error):
                raise
            if not error.is_lost and error.where != self._id_path:  # nodes of offsets came or went meanwhile
                await self.find_offsets(list(offsets))
            return False
        return True

    def _offset_change(self, partition: TopicPartition, offset: int) -> Operation:
        change = SetData if partition in self._with_offset else Create
        return change(offset_path(self._group, partition), encode_offset(offset))


def _new_consumer_id(group: str, now_ms: int) -> str:
    """Names a consumer as Kafka's old ones do: GROUP_HOST-MS-8DIGITS."""
    host = platform.node().replace("/", "-") or "localhost"
    return f"{group}_{host}-{now_ms}-{uuid.uuid4().hex[:8]}"


def _slices(items: Sequence[_Item]) -> Iterator[Sequence[_Item]]:
    for start in range(0, len(items), _MOST_OPERATIONS):
        yield items[start : start + _MOST_OPERATIONS]


_ANSWER_SECONDS = 10.0
"""How long to wait for an answer, before reading goes on and the next try."""


class RegistryMember:
    """Owned by one task. While ZooKeeper is away it keeps its partitions."""

    member_id = ""
    epoch = -1
    group_instance_id: str | None = None

    def __init__(
        self, thread: SessionThread, view: ClusterView, group: str, topics: ConsumerNode, clock: Clock
    ) -> None:
        """Raises AccessError if the registries can't be created or read."""
        self._thread = thread
        self._clock = clock
        self._consumer = RegisteredConsumer(thread.session, view, group, topics, clock)
        thread.run(self._consumer.begin())

    # --- membership

    def assignment(self, owned: Partitions) -> Partitions:
        """Returns the partitions to read now, for a member that reads `owned`: none if its share has changed."""
        consumer = self._consumer
        is_due = consumer.needs_to_look and self._clock.monotonic_ms() >= consumer.next_try_ms
        if is_due and self._is_connected():
            with contextlib.suppress(NoAnswerError):
                return self._thread.run(consumer.advance(is_reading=bool(owned)), seconds=_ANSWER_SECONDS)
        return consumer.owned

    def leave(self) -> None:
        """Releases everything. If ZooKeeper can't be told now, the end of the session does it."""
        with contextlib.suppress(ZooKeeperError, NoAnswerError):
            if self._is_connected():
                self._thread.run(self._consumer.leave(), seconds=_ANSWER_SECONDS)

    # --- committed offsets

    def find(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int] | None:
        """Returns the offsets that the group reads next, or None if they can't be known now."""
        if self._is_connected():
            with contextlib.suppress(NoAnswerError):
                return self._thread.run(self._consumer.find_offsets(partitions), seconds=_ANSWER_SECONDS)
        return None

    def commit(self, offsets: Mapping[TopicPartition, int]) -> ErrorCode:
        """Writes the next offsets. Returns UNKNOWN_MEMBER_ID if this consumer is out, and others read its partitions;
        REBALANCE_IN_PROGRESS if the caller may try again.
        """
        with contextlib.suppress(NoAnswerError):
            if self._is_connected() and self._thread.run(self._consumer.commit(offsets), seconds=_ANSWER_SECONDS):
                return ErrorCode.NONE
        is_out = self._consumer.state is ConsumerState.OUT
        return ErrorCode.UNKNOWN_MEMBER_ID if is_out else ErrorCode.REBALANCE_IN_PROGRESS

    def _is_connected(self) -> bool:
        """Raises AccessError if the session has ended for good."""
        if self._thread.session.state is SessionState.FAILED:
            raise AccessError("the session with ZooKeeper has ended", hint="its last message is above")
        return self._thread.session.state is SessionState.CONNECTED
