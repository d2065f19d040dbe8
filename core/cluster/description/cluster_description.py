"""What is known of a cluster, whether from its brokers or from its files."""

from __future__ import annotations

from dataclasses import dataclass, field

from core.cluster.image.feature_levels import Levels
from core.cluster.image.kafka_release import find_release
from core.common.errors import PlogError

_DESCRIBE_QUORUM = 55

VersionRanges = dict[int, tuple[int, int]]
"""API key -> the least and the greatest version that a broker serves."""


@dataclass(frozen=True, slots=True)
class BrokerDescription:
    """`listeners`: name -> address. A broker reports only the one that was used, and not its name: that is ''.

    `versions` is None if the broker was not asked, or could not be, which `failure` explains. So is `features`, the
    levels that it supports, unless the files tell them. `zookeeper_silence_ms`: for how long ZooKeeper has been away,
    as the broker says; 0 while it is there, None of a broker that does not say it, as Kafka's and those of KRaft.
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
        """Of Kafka, which it is or is like; None if that is not known."""
        return find_release(self.features or {})


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """`controller_id` is -1 if it is not known; `voters` are those of the metadata's quorum, empty if not known.

    `has_silent_controller`: a broker asked the controller for us, and got no answer. `features` are the levels that are
    finalized, in `features_epoch`, which is -1 if nobody says it.
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
        """Whether a quorum keeps its metadata, KRaft: brokers with ZooKeeper do not know the request for it."""
        return bool(self.voters) or any(_DESCRIBE_QUORUM in (broker.versions or {}) for broker in self.brokers)

    @property
    def cut_off(self) -> list[BrokerDescription]:
        """The brokers for which ZooKeeper is away."""
        return [broker for broker in self.brokers if broker.zookeeper_silence_ms]

    @property
    def is_cut_off(self) -> bool:
        """Whether ZooKeeper is away for every broker that says how it is: no controller decides anything then."""
        return bool(self.cut_off) and all(broker.zookeeper_silence_ms != 0 for broker in self.brokers)
