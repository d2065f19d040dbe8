"""Creates, grows and deletes topics: the change is submitted to the controller; its effect on the logs arrives as a
delta of the metadata, and takes steps.

Subscribers (`subscribe`) learn of deletions: the coordinators forget the state that belongs to a deleted topic.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from core.broker.partitions.storage_services import StorageServices
from core.cluster.image.broker_metadata import NewTopic
from core.cluster.image.metadata_delta import MetadataDelta
from core.cluster.image.metadata_image import TopicImage
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.steps import Steps, finish
from core.common.topic_partition import INTERNAL_TOPICS, TopicPartition
from core.files.log_config import LogConfig


class Topics:
    """Owned by the broker's task."""

    def __init__(self, services: StorageServices, *, is_member: bool = False) -> None:
        """The controller tells a member of a cluster which logs to create and to remove (`LeaderAndIsrChanges`)."""
        self._services = services
        self.is_member = is_member
        self.ask_for: Callable[[NewTopic, str], None] = _ask_nobody
        """Asks the controller of the cluster to create a topic soon, and logs the sender; raises KafkaError if
        the controller has refused.
        """
        self._on_deleted: list[Callable[[TopicImage], None]] = []
        self._effects: list[Steps[None]] | None = None
        """The effects of the change that is being submitted, or None."""

    def subscribe(self, on_deleted: Callable[[TopicImage], None]) -> None:
        """Calls `on_deleted` with each deleted topic, while its partitions are still served."""
        self._on_deleted.append(on_deleted)

    def create(self, topic: NewTopic, sender: str = "this broker") -> TopicImage:
        """Creates one topic, at once, for `sender`. Raises KafkaError if it may not be created; in a cluster always
        LEADER_NOT_AVAILABLE, after the controller was asked.
        """
        if self.is_member:
            self.ask_for(topic, sender)
            raise KafkaError(
                ErrorCode.LEADER_NOT_AVAILABLE, f"this broker has asked the controller to create {topic.name}"
            )
        made = finish(self.create_all([topic], validate_only=False))[topic.name]
        if isinstance(made, KafkaError):
            raise made
        return made

    def create_all(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> Steps[dict[str, TopicImage | KafkaError]]:
        """Returns, by name, the results of `BrokerMetadata.create_topics`. The topics exist after the first step, their
        partitions' logs after the last one: until then clients get LEADER_NOT_AVAILABLE, and retry.
        """
        self._services.node.ensure_writable()
        config = self._services.config
        with self._submitting() as effects:
            made = self._services.controller.create_topics(
                topics,
                default_partitions=config.num_partitions,
                default_replication=config.default_replication_factor,
                validate_only=validate_only,
            )
        if not validate_only:
            yield
        yield from _one_after_the_other(effects)
        return made

    def create_partitions(
        self, name: str, count: int, assignments: Sequence[Sequence[int]] | None, *, validate_only: bool
    ) -> Steps[None]:
        """Grows a topic, after `ensure_few_are_added`. Raises what `BrokerMetadata.create_partitions` raises."""
        self._services.node.ensure_writable()
        with self._submitting() as effects:
            self._services.controller.create_partitions(name, count, assignments, validate_only=validate_only)
        yield
        yield from _one_after_the_other(effects)

    def delete_all(self, names: Sequence[str]) -> Steps[list[TopicImage]]:
        """Deletes all the topics, or none. They are gone after the first step; their folders are renamed by the last
        one, and deleted after `file.delete.delay.ms`.

        Raises what `BrokerMetadata.delete_topics` raises.
        """
        self._services.node.ensure_writable()
        with self._submitting() as effects:
            topics = self._services.controller.delete_topics(names)
        yield from _one_after_the_other(effects)
        return topics

    # --- effects of metadata changes

    def begin(self) -> None:
        """Applies all present topics, at once, and from now on each change."""
        if not self.is_member:
            for starting in self._services.replicas.apply(MetadataDelta.of_everything(self._services.image)):
                finish(starting)
        self._services.controller.subscribe(self._on_metadata)

    def _on_metadata(self, delta: MetadataDelta) -> None:
        """Applies at once the visible part of the change. Work on the disk takes steps: the request that submits the
        change does them, otherwise the broker itself, in turns and before it closes.
        """
        # Internal topics go first: coordinators would write the others' deletion to them, and so create them again.
        for topic in sorted(delta.deleted_topics(), key=lambda topic: topic.name not in INTERNAL_TOPICS):
            for on_deleted in self._on_deleted:
                on_deleted(topic)
        if self.is_member:
            self._services.replicas.configure(delta)
            return
        effects = self._services.replicas.apply(delta) + self._remove_logs(delta)
        if self._effects is not None:
            self._effects += effects
        elif effects:
            self._services.stepped_answers.answer(_one_after_the_other(effects), is_owed=True)

    @contextmanager
    def _submitting(self) -> Iterator[list[Steps[None]]]:
        """Yields a list that receives the effects of each change that arrives meanwhile."""
        outer, self._effects = self._effects, []
        try:
            yield self._effects
        finally:
            self._effects = outer

    def _remove_logs(self, delta: MetadataDelta) -> list[Steps[None]]:
        """Closes the logs of deleted topics; the returned steps, if any, rename their folders."""
        removed = {
            TopicPartition(topic.name, number): self._services.configs.of_topic_in(delta.before, topic.name)
            for topic in delta.deleted_topics()
            for number in topic.partitions
        }
        return self.remove_logs(removed)

    def remove_logs(self, configs: Mapping[TopicPartition, LogConfig]) -> list[Steps[None]]:
        """Closes the logs of those partitions; the returned steps, if any, rename their folders, which are deleted
        after the `file.delete.delay.ms` of each.
        """
        leaving = defaultdict[int, list[TopicPartition]](list)
        for partition, config in configs.items():
            leaving[config.file_delete_delay_ms].append(partition)
        removals = [
            (self._services.log_manager.remove(partitions), delay_ms) for delay_ms, partitions in leaving.items()
        ]
        return [self._rename(removals)] if removals else []

    def _rename(self, removals: Iterable[tuple[Steps[list[Path]], int]]) -> Steps[None]:
        for renaming, delay_ms in removals:
            renamed = yield from renaming
            if renamed:
                self._services.deletion.delete_later(renamed, delay_ms)
        self._services.runtime.run_in_background(self._services.log_manager.sync_names)


def _ask_nobody(_topic: NewTopic, _sender: str) -> None:
    """Does nothing: a lone broker creates topics itself."""


def _one_after_the_other(all_steps: Iterable[Steps[None]]) -> Steps[None]:
    for steps in all_steps:
        yield from steps
