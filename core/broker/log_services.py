"""The services below the coordinators: what it takes to keep logs, and to know of which topics they are."""

from __future__ import annotations

from dataclasses import dataclass

from core.broker.broker_config import BrokerConfig
from core.broker.configs import Configs
from core.broker.late_loads import LateLoads
from core.broker.node_identity import NodeIdentity
from core.broker.replica_manager import ReplicaManager
from core.broker.runtime import Runtime
from core.broker.topics import Topics
from core.cluster.controller import Controller
from core.cluster.metadata_image import MetadataImage
from core.log.log_manager import LogManager


@dataclass(frozen=True, kw_only=True)
class LogServices:
    """Used in the broker's task."""

    runtime: Runtime
    node: NodeIdentity
    configs: Configs
    controller: Controller
    log_manager: LogManager
    replicas: ReplicaManager
    late_loads: LateLoads
    topics: Topics

    @property
    def image(self) -> MetadataImage:
        """The metadata as they are now."""
        return self.controller.image

    @property
    def config(self) -> BrokerConfig:
        """The broker's settings that are in force now."""
        return self.configs.broker
