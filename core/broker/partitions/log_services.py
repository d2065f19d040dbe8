"""The services below the coordinators: logs and their topics."""

from __future__ import annotations

from dataclasses import dataclass

from core.broker.partitions.lazy_logs import LazyLogs
from core.broker.partitions.storage_services import StorageServices
from core.broker.partitions.topics import Topics


@dataclass(frozen=True, kw_only=True)
class LogServices(StorageServices):
    """Used in the broker's task."""

    late_loads: LazyLogs
    topics: Topics
