"""A member of a group in ZooKeeper, and what the group has committed there, for a consumer that waits for both.

These two are to `GroupConsumer` (core/client) what a group's coordinator is to it otherwise. All work is done by a
`RegisteredConsumer` in the session's thread; here is only the waiting for it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence

from core.common.clock import Clock
from core.common.error_code import ErrorCode
from core.common.errors import AccessError
from core.common.topic_partition import TopicPartition
from core.zookeeper.cluster_view import ClusterView
from core.zookeeper.group_registry import ConsumerNode
from core.zookeeper.registered_consumer import ConsumerState, Partitions, RegisteredConsumer
from core.zookeeper.session_thread import NoAnswerError, SessionThread
from core.zookeeper.zookeeper_session import SessionState
from core.zookeeper.zookeeper_transaction import ZooKeeperError

_ANSWER_SECONDS = 10.0
"""How long an answer is waited for, before reading goes on and it is tried again."""


class RegistryMember:
    """Owned by one task. While ZooKeeper is away it goes on with what it owns."""

    member_id = ""
    epoch = -1
    group_instance_id: str | None = None

    def __init__(
        self, thread: SessionThread, view: ClusterView, group: str, topics: ConsumerNode, clock: Clock
    ) -> None:
        """Raises AccessError if the registries can't be made or read."""
        self._thread = thread
        self._clock = clock
        self._consumer = RegisteredConsumer(thread.session, view, group, topics, clock)
        thread.run(self._consumer.begin())

    # --- membership

    def assignment(self, owned: Partitions) -> Partitions:
        """Gives what is to be read now, by one who reads `owned`: none of it while it has to own something else."""
        consumer = self._consumer
        is_due = consumer.needs_to_look and self._clock.monotonic_ms() >= consumer.next_try_ms
        if is_due and self._is_connected():
            with contextlib.suppress(NoAnswerError):
                return self._thread.run(consumer.advance(is_reading=bool(owned)), seconds=_ANSWER_SECONDS)
        return consumer.owned

    def leave(self) -> None:
        """Gives everything up. If that can't be said now, ZooKeeper finds out when the session is over."""
        with contextlib.suppress(ZooKeeperError, NoAnswerError):
            if self._is_connected():
                self._thread.run(self._consumer.leave(), seconds=_ANSWER_SECONDS)

    # --- what is committed

    def find(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int] | None:
        """Gives the offsets that the group reads next; None if that can't be known now."""
        if self._is_connected():
            with contextlib.suppress(NoAnswerError):
                return self._thread.run(self._consumer.find_offsets(partitions), seconds=_ANSWER_SECONDS)
        return None

    def commit(self, offsets: Mapping[TopicPartition, int]) -> ErrorCode:
        """Writes down the offsets that are read next; UNKNOWN_MEMBER_ID if this consumer is out, and others read its
        partitions; REBALANCE_IN_PROGRESS if it may be tried again.
        """
        with contextlib.suppress(NoAnswerError):
            if self._is_connected() and self._thread.run(self._consumer.commit(offsets), seconds=_ANSWER_SECONDS):
                return ErrorCode.NONE
        is_out = self._consumer.state is ConsumerState.OUT
        return ErrorCode.UNKNOWN_MEMBER_ID if is_out else ErrorCode.REBALANCE_IN_PROGRESS

    def _is_connected(self) -> bool:
        """Raises AccessError if there is no session any more, and will be none."""
        if self._thread.session.state is SessionState.FAILED:
            raise AccessError("the session with ZooKeeper has ended", hint="what it said last is above")
        return self._thread.session.state is SessionState.CONNECTED
