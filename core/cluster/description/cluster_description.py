"""The description of a cluster and of its topics, reported by brokers or by the files of a directory."""

from __future__ import annotations

from dataclasses import dataclass, field

from core.cluster.description.replicated_partition import ReplicatedPartition
from core.cluster.image.feature_levels import Levels, find_release
from core.common.errors import PlogError
from core.common.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """`size_bytes`: None if no broker reports it. `damaged`: unreadable offsets as FIRST-LAST, and errors of files."""

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
        """Returns the partitions with their replicas and leaders. `min_isr` is the topic's own override alone: the
        defaults are not read.
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


_DESCRIBE_QUORUM = 55

VersionRanges = dict[int, tuple[int, int]]
"""API key -> the least and the greatest version that a broker serves."""


@dataclass(frozen=True, slots=True)
class BrokerDescription:
    """`listeners`: name -> address. A broker reports only the one that was used, and not its name: that is ''.

    `versions` is None if the broker was not asked, or could not be, which `failure` explains. So is `features`, the
    levels that it supports, unless the files tell them. `zookeeper_silence_ms`: for how long ZooKeeper has been away,
    as the broker reports; 0 while it is there, None if the broker does not report it (Kafka's, and those of KRaft).
    """

    broker_id: int
    listeners: dict[str, str]
    rack: str | None = None
    is_fenced: bool = False
    versions: VersionRanges | None = None
    failure: PlogError | None = None
    features: Levels | None = None
    zookeeper_silence_ms: int | None = None

    @property
    def release(self) -> str | None:
        """Returns the Kafka release that the broker has or equals, or None if that is not known."""
        return find_release(self.features or {})


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """`controller_id` is -1 if it is not known; `voters` are those of the metadata's quorum, empty if not known.

    `has_silent_controller`: a broker asked the controller for us, and got no answer. `features` are the finalized
    levels, in `features_epoch`, which is -1 if it is not known.
    """

    cluster_id: str | None
    controller_id: int
    brokers: list[BrokerDescription]
    features: dict[str, int] = field(default_factory=dict)
    voters: tuple[int, ...] = ()
    has_silent_controller: bool = False
    features_epoch: int = -1

    @property
    def has_quorum(self) -> bool:
        """Whether the cluster runs KRaft: brokers with ZooKeeper do not support the request for the quorum."""
        return bool(self.voters) or any(_DESCRIBE_QUORUM in (broker.versions or {}) for broker in self.brokers)

    @property
    def failures(self) -> list[PlogError]:
        """Returns the failure of each broker that could not be asked."""
        return [broker.failure for broker in self.brokers if broker.failure is not None]

    @property
    def cut_off(self) -> list[BrokerDescription]:
        """The brokers for which ZooKeeper is away."""
        return [broker for broker in self.brokers if broker.zookeeper_silence_ms]

    @property
    def is_cut_off(self) -> bool:
        """Whether ZooKeeper is away for every broker that reports it: then no controller decides anything."""
        return bool(self.cut_off) and all(broker.zookeeper_silence_ms != 0 for broker in self.brokers)
