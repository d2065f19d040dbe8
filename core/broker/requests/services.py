"""The services that a request's handler may use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from core.broker.config.broker_config import BrokerConfig
from core.broker.config.effective_configs import Configs
from core.broker.coordinators.consumer_offsets_topic import ConsumerOffsetsTopic
from core.broker.coordinators.transaction_state_topic import TransactionStateTopic
from core.broker.node_identity import NodeIdentity
from core.broker.partitions.lazy_index_checks import LazyIndexChecks
from core.broker.partitions.lazy_logs import LazyLogs
from core.broker.partitions.replica_manager import ReplicaManager
from core.broker.partitions.suspected_loss import SuspectedLoss
from core.broker.partitions.topics import Topics
from core.broker.replication.cluster_membership import Membership
from core.broker.replication.replication_quota import ReplicationQuotas
from core.broker.requests.authorizer import Authorizer
from core.broker.requests.fetch_session import FetchSessionCache
from core.broker.requests.runtime import Runtime
from core.broker.requests.stepped_answer import SteppedAnswers
from core.cluster.image.broker_metadata import BrokerMetadata
from core.cluster.image.feature_levels import Feature, is_finalized
from core.cluster.image.metadata_image import MetadataImage
from core.cluster.image.single_node_controller import SingleNodeController
from core.common.error_code import ErrorCode
from core.coordinator.group_coordinator import GroupCoordinator
from core.coordinator.transaction_coordinator import TransactionCoordinator
from core.log.log_manager import LogManager
from core.protocol.message import Api, VersionRange

if TYPE_CHECKING:
    from core.cluster.image.security_store import SecurityStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """Used in the broker's task, by handlers and what they call: any other class gets the few services that it uses."""

    runtime: Runtime
    node: NodeIdentity
    controller: BrokerMetadata
    configs: Configs
    log_manager: LogManager
    replicas: ReplicaManager
    quotas: ReplicationQuotas
    stepped_answers: SteppedAnswers
    late_loads: LazyLogs
    topics: Topics
    group_log: ConsumerOffsetsTopic
    transaction_log: TransactionStateTopic
    fetch_sessions: FetchSessionCache
    late_checks: LazyIndexChecks
    losses: SuspectedLoss
    find_served_apis: Callable[[Mapping[str, int] | None], Mapping[Api[Any, Any], VersionRange]]
    """Returns the APIs that ApiVersions advertises with those finalized features; None stands for a lone broker."""
    membership: Membership | None = None
    """The broker's place in a cluster; None if it is alone."""
    authorizer: Authorizer | None = None
    """Who may do what; None if everybody may do everything."""

    @property
    def image(self) -> MetadataImage:
        return self.controller.image

    @property
    def security(self) -> SecurityStore:
        """The ACLs, and the credentials of users."""
        if self.membership is not None:
            return self.membership.security
        assert isinstance(self.controller, SingleNodeController)
        return self.controller.security

    @property
    def config(self) -> BrokerConfig:
        return self.configs.broker

    @property
    def unknown_topic_id(self) -> ErrorCode:
        """The error for requests with a topic id that the image lacks: clients retry if the topic may exist."""
        return ErrorCode.UNKNOWN_TOPIC_ID if self.controller.is_informed else ErrorCode.NOT_LEADER_OR_FOLLOWER

    @property
    def finalized_of_cluster(self) -> Mapping[str, int] | None:
        """The finalized features of the cluster, by level; None for a lone broker."""
        return None if self.membership is None else self.image.features

    def lacks(self, feature: Feature) -> bool:
        """Returns whether the broker is in a cluster that has not finalized the feature."""
        finalized = self.finalized_of_cluster
        return finalized is not None and not is_finalized(finalized, feature)

    @property
    def served_apis(self) -> Mapping[Api[Any, Any], VersionRange]:
        """The APIs that ApiVersions advertises now."""
        return self.find_served_apis(self.finalized_of_cluster)

    @property
    def groups(self) -> GroupCoordinator:
        return self.group_log.coordinator

    @property
    def transactions(self) -> TransactionCoordinator:
        return self.transaction_log.coordinator
