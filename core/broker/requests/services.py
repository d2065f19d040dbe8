"""The services that a request's handler may use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from core.broker.coordinators.consumer_offsets_topic import ConsumerOffsetsTopic
from core.broker.coordinators.transaction_state_topic import TransactionStateTopic
from core.broker.partitions.lazy_index_checks import LazyIndexChecks
from core.broker.partitions.log_services import LogServices
from core.broker.partitions.suspected_loss import SuspectedLoss
from core.broker.replication.cluster_membership import Membership
from core.broker.requests.fetch_session import FetchSessionCache
from core.cluster.image.feature_levels import Feature, is_finalized
from core.coordinator.group_coordinator import GroupCoordinator
from core.coordinator.transaction_coordinator import TransactionCoordinator
from core.protocol.message import Api, VersionRange


@dataclass(frozen=True, kw_only=True)
class Services(LogServices):
    """Used in the broker's task."""

    group_log: ConsumerOffsetsTopic
    transaction_log: TransactionStateTopic
    fetch_sessions: FetchSessionCache
    late_checks: LazyIndexChecks
    losses: SuspectedLoss
    find_served_apis: Callable[[Mapping[str, int] | None], Mapping[Api[Any, Any], VersionRange]]
    """Returns the APIs that ApiVersions advertises with those finalized features; None stands for a lone broker."""
    membership: Membership | None = None
    """The broker's place in a cluster; None if it is alone."""

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
