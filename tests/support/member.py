"""A member of a cluster, as its controller sees it: requests to broker 5, and the roles that it has by them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from core.broker.config.broker_config import BrokerConfig
from core.cluster.partition.partition import Role
from core.common.error_code import ErrorCode
from core.common.topic_partition import TopicPartition
from core.protocol.schema.control_request import (
    LEADER_AND_ISR,
    STOP_REPLICA,
    UPDATE_METADATA,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from tests.support.broker import SteeredNode, ask
from tests.support.fake_entry import FakeEntry

US, OTHER = 5, 1
BROKER_EPOCH = 40
TOPIC_ID = bytes(range(16))
ANOTHER_ID = bytes(range(1, 17))
T0 = TopicPartition("t", 0)


class Member:
    """Broker 5 of a cluster whose controller is the test."""

    def __init__(self, directory: Path, entry: FakeEntry, **how: Any) -> None:
        """`how` is as for `Node`."""
        config = BrokerConfig.parse({"broker.id": str(US), "log.retention.ms": "-1"})
        self.entry = entry
        self.node = SteeredNode(directory, config, entry=entry, loads_late=True, **how)
        self.membership = self.node.services.membership
        self.membership.on_registered(BROKER_EPOCH)

    def assign(
        self,
        number: int = 0,
        *,
        topic: str = "t",
        topic_id: bytes = TOPIC_ID,
        fence: tuple[int, int] = (1, -1),
        **how: Any,
    ) -> ErrorCode:
        """The error of that partition, or of all."""
        return self.assign_all(self.assignment(number, topic=topic, topic_id=topic_id, fence=fence, **how))

    def assign_all(self, request: LeaderAndIsrRequest) -> ErrorCode:
        """The error of the first partition, or of all."""
        answer = ask(self.node, LEADER_AND_ISR, request)
        return ErrorCode.of(answer.error_code or answer.topics[0].partition_errors[0].error_code)

    def assignment(
        self,
        number: int = 0,
        *,
        topic: str = "t",
        topic_id: bytes = TOPIC_ID,
        fence: tuple[int, int] = (1, -1),
        leader: int = US,
        epoch: int = 0,
        replicas: list[int] | None = None,
        isr: list[int] | None = None,
        recovery: int = 0,
    ) -> LeaderAndIsrRequest:
        replicas = [US, OTHER] if replicas is None else replicas
        state = LeaderAndIsrPartitionState(topic, number, fence[0], leader, epoch, isr or replicas, epoch, replicas)
        state.leader_recovery_state = recovery
        return LeaderAndIsrRequest(
            OTHER, False, *fence, topic_states=[LeaderAndIsrTopicState(topic, topic_id, [state])]
        )

    def stop(
        self, number: int = 0, *, epoch: int = 0, deletes: bool = False, fence: tuple[int, int] = (1, -1)
    ) -> ErrorCode:
        states = [StopReplicaTopicState("t", [StopReplicaPartitionState(number, epoch, deletes)])]
        answer = ask(self.node, STOP_REPLICA, StopReplicaRequest(OTHER, False, *fence, topic_states=states))
        return ErrorCode.of(answer.error_code or answer.partition_errors[0].error_code)

    def update(
        self, leader: int = US, *, topic: str = "t", epoch: int = 0, fence: tuple[int, int] = (1, -1)
    ) -> ErrorCode:
        state = UpdateMetadataPartitionState(topic, 0, fence[0], leader, epoch, [US, OTHER], epoch, [US, OTHER])
        brokers = [
            UpdateMetadataBroker(one, endpoints=[UpdateMetadataEndpoint(9000 + one, "127.0.0.1", "PLAINTEXT", 0)])
            for one in (US, OTHER)
        ]
        request = UpdateMetadataRequest(
            OTHER,
            controller_epoch=fence[0],
            broker_epoch=fence[1],
            topic_states=[UpdateMetadataTopicState(topic, TOPIC_ID, [state])],
            live_brokers=brokers,
        )
        return ErrorCode.of(ask(self.node, UPDATE_METADATA, request).error_code)

    def role(self, name: TopicPartition = T0) -> Role | None:
        partition = self.node.services.replicas.partitions.get(name)
        return None if partition is None else partition.role


@asynccontextmanager
async def playing(directory: Path, **configs: str) -> AsyncIterator[Member]:
    """A member, whose fetchers need a loop; `configs` are those of the topic `t`."""
    entry = FakeEntry()
    entry.configs["t"] = {key.replace("_", "."): value for key, value in configs.items()}
    member = Member(directory, entry)
    try:
        yield member
    finally:
        await member.membership.close()
        member.node.close()
