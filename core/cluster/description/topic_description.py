"""What is known of a topic, whoever reports it: a broker, or the files of a directory."""

from __future__ import annotations

from dataclasses import dataclass, field

from core.cluster.description.replicated_partition import ReplicatedPartition
from core.common.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """`size_bytes`: None if no broker reports it. `damaged`: FIRST-LAST of offsets that can't be read, and why files
    can't be opened."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    start_offset: int
    end_offset: int
    size_bytes: int | None = None
    damaged: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic; `configs` are its own overrides."""

    name: str
    topic_id: bytes
    configs: dict[str, str]
    partitions: list[PartitionDescription] = field(default_factory=list)

    @property
    def placed(self) -> list[ReplicatedPartition]:
        """Where the replicas are, and who leads. Of `min_isr` the topic's own override counts, as nobody is asked for
        defaults.
        """
        min_isr = self.configs.get("min.insync.replicas")
        return [
            ReplicatedPartition(
                TopicPartition(self.name, known.partition),
                known.leader,
                known.leader_epoch,
                known.replicas,
                known.isr,
                min_isr=int(min_isr) if min_isr is not None else None,
            )
            for known in self.partitions
        ]
