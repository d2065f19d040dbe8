"""The settings in force: those of the broker, and those of topics' logs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping

from core.broker.config.broker_config import BrokerConfig
from core.broker.config.broker_settings import BROKER_CONFIG
from core.broker.node_identity import NodeIdentity
from core.cluster.image.broker_metadata import BrokerMetadata
from core.cluster.image.metadata_delta import MetadataDelta
from core.cluster.image.metadata_image import MetadataImage
from core.common.config_def import KEPT_ONLY, ConfigDef
from core.common.errors import KafkaError
from core.common.pending import Pending
from core.files.log_config import LogConfig, stored_topic_values

_log = logging.getLogger("plog.config")


class Configs:
    """Owned by the broker's task. The metadata have the settings that were made while the broker ran."""

    def __init__(self, static: BrokerConfig, controller: BrokerMetadata, node: NodeIdentity) -> None:
        """`static` is the configuration that the broker was started with."""
        self._controller = controller
        self._node = node
        self._logged: set[str] = set()
        self.checks: list[Callable[[BrokerConfig], None]] = []
        """Each raises UsageError if the broker can't run with a configuration that somebody wants to set."""
        self.on_changed: list[Callable[[BrokerConfig], None]] = []
        """Each is called with the configuration of the broker when somebody has set another one."""
        self._of_topics: dict[str, LogConfig] = {}
        """A cache since the last change of the metadata: a start needs it for each partition."""
        self.log_kept_only(BROKER_CONFIG, static.static)
        self.broker = static
        self._take_dynamic()
        controller.subscribe(self._on_metadata)

    def of_topic(self, name: str) -> LogConfig:
        config = self._of_topics.get(name)
        if config is None:
            config = self._of_topics[name] = self.of_topic_in(self._controller.image, name)
        return config

    def of_topic_in(self, image: MetadataImage, name: str) -> LogConfig:
        values = self.broker.topic_defaults() | stored_topic_values(image.topic_configs(name))
        return LogConfig.from_values(values)

    def producer_id_expiration_ms(self) -> int:
        return self.broker.producer_id_expiration_ms

    def set(
        self, resource_type: int, name: str, changes: Mapping[str, str | None]
    ) -> Pending[KafkaError | None] | None:
        """Calls `BrokerMetadata.set_configs`; `ConfigResource.alter` has checked the keys. Raises
        KafkaError(POLICY_VIOLATION) if the broker is read-only.
        """
        self._node.ensure_writable()
        return self._controller.set_configs(resource_type, name, changes)

    def log_kept_only(self, keys: ConfigDef, given: Iterable[str]) -> None:
        """Logs which of the configured keys have no effect, once for each of them."""
        for name in keys.kept_only(given):
            if name not in self._logged:
                self._logged.add(name)
                _log.info("%s is set: %s", name, KEPT_ONLY.removesuffix("."))

    def _on_metadata(self, delta: MetadataDelta) -> None:
        self._of_topics.clear()
        if delta.changes_brokers_configs():
            self._take_dynamic()
            for take in self.on_changed:
                take(self.broker)

    def _take_dynamic(self) -> None:
        image = self._controller.image
        self.broker = self.broker.with_dynamic(image.broker_configs(), image.broker_configs(self._node.node_id))
