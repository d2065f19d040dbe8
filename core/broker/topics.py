"""Makes topics, grows them, and deletes them: first in the metadata, then their logs, in steps.

Others learn of it by what they gave to `subscribe`: the coordinators forget what belongs to a topic that is gone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from core.broker.configs import Configs
from core.broker.file_deletion import FileDeletion
from core.broker.node_identity import NodeIdentity
from core.broker.replica_manager import ReplicaManager
from core.broker.runtime import Runtime
from core.cluster.controller import Controller, NewTopic
from core.cluster.metadata_image import TopicImage
from core.common.errors import KafkaError
from core.common.steps import Steps, finish
from core.common.topic_partition import TopicPartition
from core.log.log_manager import LogManager


class Topics:
    """Owned by the broker's task."""

    def __init__(
        self,
        *,
        runtime: Runtime,
        node: NodeIdentity,
        configs: Configs,
        controller: Controller,
        log_manager: LogManager,
        replicas: ReplicaManager,
        deletion: FileDeletion,
    ) -> None:
        self._runtime = runtime
        self._node = node
        self._configs = configs
        self._controller = controller
        self._log_manager = log_manager
        self._replicas = replicas
        self._deletion = deletion
        self._on_deleted: list[Callable[[TopicImage], None]] = []
        configs.subscribe(self.configure_logs)

    def subscribe(self, on_deleted: Callable[[TopicImage], None]) -> None:
        """Has `on_deleted` called with each topic that is deleted, while its partitions are still served."""
        self._on_deleted.append(on_deleted)

    def create(self, topic: NewTopic) -> TopicImage:
        """Makes one topic, at once. Raises KafkaError if it may not be made."""
        made = finish(self.create_all([topic], validate_only=False))[topic.name]
        if isinstance(made, KafkaError):
            raise made
        return made

    def create_all(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> Steps[dict[str, TopicImage | KafkaError]]:
        """Gives, by name, what `Controller.create_topics` makes of each. The topics exist after the first step, the
        logs of their partitions when the last one is done: until then clients get LEADER_NOT_AVAILABLE, and ask again.
        """
        self._node.ensure_writable()
        config = self._configs.broker
        made = self._controller.create_topics(
            topics,
            default_partitions=config.num_partitions,
            default_replication=config.default_replication_factor,
            validate_only=validate_only,
        )
        if not validate_only:
            yield
            for topic in made.values():
                if isinstance(topic, TopicImage):
                    yield from self.serve(topic)
        return made

    def create_partitions(
        self, name: str, count: int, assignments: Sequence[Sequence[int]] | None, *, validate_only: bool
    ) -> Steps[None]:
        """Grows a topic, after `Controller.ensure_few_are_added`. Raises what `Controller.create_partitions` raises."""
        self._node.ensure_writable()
        self._controller.create_partitions(name, count, assignments, validate_only=validate_only)
        yield
        topic = self._controller.image.topics.get(name)
        if topic is not None and not validate_only:
            yield from self.serve(topic)

    def serve(self, topic: TopicImage) -> Steps[None]:
        """Makes the logs of the topic's partitions, and stops if somebody deletes it, who may have done so already."""
        if topic.topic_id not in self._controller.image.topics_by_id:
            return
        config = self._configs.of_topic(topic.name)
        for _ in self._replicas.add_topic(topic, config, self._node.node_id):
            yield
            if topic.topic_id not in self._controller.image.topics_by_id:
                return
        if self._configs.of_topic(topic.name) != config:  # somebody altered it meanwhile
            self.configure_logs([topic.name])

    def configure_logs(self, topics: Iterable[str]) -> None:
        """Has the logs of those topics kept by the settings that are in force now."""
        configs = {name: self._configs.of_topic(name) for name in topics}
        expiration_ms = self._configs.broker.producer_id_expiration_ms
        for partition in self._replicas.partitions.values():
            log = partition.log
            if log.partition.topic in configs:
                log.configure(configs[log.partition.topic])
                log.producers.expiration_ms = expiration_ms
                self._replicas.flush_as_configured(log)

    def delete(self, name: str) -> TopicImage:
        """Deletes one topic, at once. Raises what `delete_all` raises."""
        (topic,) = finish(self.delete_all([name]))
        return topic

    def delete_all(self, names: Sequence[str]) -> Steps[list[TopicImage]]:
        """Deletes the topics, all of them or none. They are gone after the first step, their folders are renamed when
        the last one is done, and deleted after `file.delete.delay.ms`.

        Raises what `Controller.delete_topics` raises.
        """
        self._node.ensure_writable()
        known = self._controller.image.topics
        delays_ms = {name: self._configs.of_topic(name).file_delete_delay_ms for name in names if name in known}
        topics = self._controller.delete_topics(names)
        leaving = defaultdict[int, list[TopicPartition]](list)
        for topic in topics:
            for on_deleted in self._on_deleted:
                on_deleted(topic)
            leaving[delays_ms[topic.name]] += self._replicas.remove_topic(topic)
        removals = [(self._log_manager.remove(partitions), delay_ms) for delay_ms, partitions in leaving.items()]
        for renaming, delay_ms in removals:
            renamed = yield from renaming
            if renamed:
                self._deletion.delete_later(renamed, delay_ms)
        self._runtime.run_in_background(self._log_manager.sync_names)
        return topics
