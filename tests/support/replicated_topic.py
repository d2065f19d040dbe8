"""A topic of a broker without sockets, of which other brokers hold replicas, and a controller that others are."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from core.broker.partitions.replica_manager import ReplicaManager
from core.cluster.image.metadata_record import MetadataRecord
from core.cluster.image.single_node_controller import SingleNodeController
from core.cluster.partition.leadership import IsrProposal
from core.cluster.partition.partition import Partition
from core.common.topic_partition import TopicPartition
from core.protocol.schema.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic, PartitionData, ReplicaState
from core.protocol.schema.metadata_records import BrokerEndpoint, PartitionChangeRecord, RegisterBrokerRecord
from tests.support.broker import SteeredNode, add_topic, ask

OTHER = 8
THIRD = 9


class ReplicatedTopic:
    """A topic "t" that this broker leads, with a replica in sync at another one."""

    def __init__(self, broker: SteeredNode, **configs: str) -> None:
        self.broker = broker
        self.node_id = broker.services.node.node_id
        self.replicas: ReplicaManager = broker.services.replicas
        self.proposals: list[IsrProposal] = []
        self.replicas.on_proposal.append(lambda _, proposal: self.proposals.append(proposal))
        self.topic_id = add_topic(broker, **configs)
        self.decide([self.node_id, OTHER], isr=[self.node_id, OTHER], leader=self.node_id)

    def decide(self, replicas: list[int] | None = None, isr: list[int] | None = None, leader: int = -2) -> None:
        self.submit(PartitionChangeRecord(0, self.topic_id, isr=isr, leader=leader, replicas=replicas))

    def submit(self, record: MetadataRecord) -> None:
        cast(SingleNodeController, self.broker.services.controller)._submit([record])

    def register(self, node_id: int, rack: str | None = None) -> None:
        """Another broker is there, and listens; so this one is a member of a cluster."""
        membership = SimpleNamespace(
            controller=SimpleNamespace(),
            control=SimpleNamespace(term=None, can_decide=False),
            find_right_listener=lambda _: None,
        )
        object.__setattr__(self.broker.services, "membership", membership)
        endpoint = BrokerEndpoint("PLAINTEXT", f"broker-{node_id}", 9000 + node_id, 0)
        record = RegisterBrokerRecord(
            node_id, broker_epoch=100 + node_id, end_points=[endpoint], rack=rack, fenced=False
        )
        self.submit(record)

    @property
    def partition(self) -> Partition:
        return self.replicas.partitions[TopicPartition("t", 0)]

    def fetched(self, offset: int, replica: int = OTHER, *, log_start_offset: int = 0) -> None:
        """A replica fetched."""
        epoch = 100 + replica
        self.replicas.note_fetch(self.partition, replica, offset, log_start_offset=log_start_offset, broker_epoch=epoch)

    def replica_request(self, offset: int, replica: int = OTHER, version: int = 17, **fields: int) -> FetchRequest:
        """What a replica asks for, which waits if there is nothing; `fields` are the partition's."""
        how = {"current_leader_epoch": self.partition.leader_epoch, "log_start_offset": 0, **fields}
        wanted = FetchPartition(0, fetch_offset=offset, partition_max_bytes=1 << 20, **how)
        request = FetchRequest(
            max_wait_ms=500, min_bytes=1, max_bytes=1 << 20, topics=[FetchTopic("t", self.topic_id, [wanted])]
        )
        if version >= 15:
            request.replica_state = ReplicaState(replica, 100 + replica)
        else:
            request.replica_id = replica
        return request

    def fetch_as(self, replica: int, offset: int, version: int = 17, **fields: int) -> PartitionData:
        """Gives what a replica is answered that does not wait."""
        request = self.replica_request(offset, replica, version, **fields)
        request.max_wait_ms = 0
        (data,) = ask(self.broker, FETCH, request, version).responses[0].partitions
        return data
