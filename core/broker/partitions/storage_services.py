"""The services that all other parts of a broker use, to keep logs."""

from __future__ import annotations

from dataclasses import dataclass

from core.broker.config.broker_config import BrokerConfig
from core.broker.config.effective_configs import Configs
from core.broker.node_identity import NodeIdentity
from core.broker.partitions.file_deletion import FileDeletion
from core.broker.partitions.replica_manager import ReplicaManager
from core.broker.replication.replication_quota import ReplicationQuotas
from core.broker.requests.runtime import Runtime
from core.broker.requests.stepped_answer import SteppedAnswers
from core.cluster.image.broker_metadata import BrokerMetadata
from core.cluster.image.metadata_image import MetadataImage
from core.common.error_code import ErrorCode
from core.common.filesystem import FileSystem
from core.log.log_manager import LogManager


@dataclass(frozen=True, kw_only=True)
class StorageServices:
    """Used in the broker's task."""

    runtime: Runtime
    filesystem: FileSystem
    node: NodeIdentity
    controller: BrokerMetadata
    configs: Configs
    log_manager: LogManager
    replicas: ReplicaManager
    quotas: ReplicationQuotas
    deletion: FileDeletion
    stepped_answers: SteppedAnswers

    @property
    def image(self) -> MetadataImage:
        """The present metadata."""
        return self.controller.image

    @property
    def unknown_topic_id(self) -> ErrorCode:
        """The error for a produce or fetch request with a topic id that the image lacks: clients retry if the topic may
        exist.
        """
        return ErrorCode.UNKNOWN_TOPIC_ID if self.controller.is_informed else ErrorCode.NOT_LEADER_OR_FOLLOWER

    @property
    def config(self) -> BrokerConfig:
        """The broker's present settings."""
        return self.configs.broker
