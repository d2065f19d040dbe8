"""What stands in for ZooKeeper where a broker without sockets is a member of a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast
from unittest.mock import Mock

from core.broker.config.broker_config import BrokerConfig
from core.broker.config.client_quotas import ClientQuotas
from core.broker.replication.unenforced_security import UnenforcedSecurity
from core.broker.serving.loop_tasks import LoopTasks
from core.cluster.image.cluster_member_metadata import ClusterMemberMetadata
from core.common.clock import SystemClock
from core.common.config_def import ConfigResourceType
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.pending import Pending
from core.zookeeper.znodes import ConfigEntity
from core.zookeeper.zookeeper_session import SessionFigures, SessionState, ZooKeeperSession
from tests.support.fake_zookeeper import FakeZooKeeper


class FakeEntry:
    """Has settings of topics, which are there at once, or when the test says so."""

    cluster_id = "a-cluster-of-the-tests"
    session_figures = SessionFigures(SessionState.CONNECTED, 0, {})

    def __init__(self) -> None:
        self.configs: dict[str, dict[str, str]] = {}
        self.counts: dict[str, int] = {}
        """Of partitions, by topic, as ZooKeeper has them."""
        self.has_untold_topics = False
        """Whether ZooKeeper lists topics of which the controller has yet to tell."""
        self.reading: Pending[None] | None = None
        self.controller: ClusterMemberMetadata | None = None
        self.written: list[tuple[ConfigEntity, Mapping[str, str | None]]] = []
        self.quotas = ClientQuotas(self._write)
        self.security = UnenforcedSecurity(
            cast(ZooKeeperSession, FakeZooKeeper().session()),
            self.quotas,
            BrokerConfig(),
            (),
            clock=SystemClock(),
            write=Mock(),
            tasks=LoopTasks(),
        )

    def _write(self, entity: ConfigEntity, changes: Mapping[str, str | None]) -> Pending[KafkaError | None]:
        """Is done when the test completes it."""
        self.written.append((entity, changes))
        self.writing = Pending[KafkaError | None]()
        return self.writing

    def attach(self, controller: ClusterMemberMetadata) -> None:
        self.controller = controller
        controller.subscribe(lambda _delta: self._inform(controller))

    def write_configs(self, _type: int, _name: str, _changes: Mapping[str, str | None]) -> Pending[KafkaError | None]:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the cluster can't be reached")

    def _inform(self, controller: ClusterMemberMetadata) -> None:
        image = controller.image
        controller.is_informed = not self.has_untold_topics and bool(image.brokers or image.topics)

    def read_configs(self, topics: list[str]) -> Pending[None] | None:
        assert self.controller is not None
        for topic in topics:
            self.controller.take_configs(ConfigResourceType.TOPIC, topic, self.configs.get(topic, {}))
            if topic in self.counts:
                self.controller.note_count(topic, self.counts[topic])
        return self.reading if topics else None
