"""What a request's handler may use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from core.broker.fetch_session import FetchSessionCache
from core.broker.group_log import GroupLog
from core.broker.late_checks import LateChecks
from core.broker.log_services import LogServices
from core.broker.membership import Membership
from core.broker.transaction_log import TransactionLog
from core.coordinator.group_coordinator import GroupCoordinator
from core.coordinator.transaction_coordinator import TransactionCoordinator
from core.protocol.api import Api
from core.protocol.message import VersionRange


@dataclass(frozen=True, kw_only=True)
class Services(LogServices):
    """Used in the broker's task."""

    group_log: GroupLog
    transaction_log: TransactionLog
    fetch_sessions: FetchSessionCache
    late_checks: LateChecks
    served_apis: Mapping[Api[Any, Any], VersionRange]
    """What ApiVersions advertises."""
    membership: Membership | None = None
    """The broker's place in a cluster; None if it is alone."""

    @property
    def groups(self) -> GroupCoordinator:
        return self.group_log.coordinator

    @property
    def transactions(self) -> TransactionCoordinator:
        return self.transaction_log.coordinator
