"""Makes topics, grows them, and deletes them: the change is submitted to the controller, its effect on the logs arrives
as a delta of the metadata, and takes steps.

Others learn of it by what they gave to `subscribe`: the coordinators forget what belongs to a topic that is gone.
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
        """A member of a cluster is told by its controller which logs to make and to remove (`LeaderAndIsrChanges`)."""
        self._services = services
        self.is_member = is_member
        self.ask_for: Callable[[NewTopic, str], None] = _ask_nobody
        """Has the controller of the cluster make a topic, some time soon, and logs who wants it; raises KafkaError if
        it has refused to.
        """
        self._on_deleted: list[Callable[[TopicImage], None]] = []
        self._effects: list[Steps[None]] | None = None
        """Those of the change that is being submitted; None if none is."""

    def subscribe(self, on_deleted: Callable[[TopicImage], None]) -> None:
        """Has `on_deleted` called with each topic that is deleted, while its partitions are still served."""
        self._on_deleted.append(on_deleted)

    def create(self, topic: NewTopic, sender: str = "this broker") -> TopicImage:
        """Makes one topic, at once, for `sender`. Raises KafkaError if it may not be made; in a cluster
        LEADER_NOT_AVAILABLE, as the controller is asked to.
        """
        if self.is_member:
            self.ask_for(topic, sender)
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"the controller is asked to make {topic.name}")
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
        """Grows a topic, after `Controller.ensure_few_are_added`. Raises what `Controller.create_partitions` raises."""
        self._services.node.ensure_writable()
        with self._submitting() as effects:
            self._services.controller.create_partitions(name, count, assignments, validate_only=validate_only)
        yield
        yield from _one_after_the_other(effects)

    def delete_all(self, names: Sequence[str]) -> Steps[list[TopicImage]]:
        """Deletes the topics, all of them or none. They are gone after the first step, their folders are renamed when
        the last one is done, and deleted after `file.delete.delay.ms`.

        Raises what `Controller.delete_topics` raises.
        """
        self._services.node.ensure_writable()
        with self._submitting() as effects:
            topics = self._services.controller.delete_topics(names)
        yield from _one_after_the_other(effects)
        return topics

    # --- what changes of the metadata come to

    def begin(self) -> None:
        """Takes up all topics that there are, at once, and from now on each change."""
        if not self.is_member:
            for starting in self._services.replicas.apply(MetadataDelta.of_everything(self._services.image)):
                finish(starting)
        self._services.controller.subscribe(self._on_metadata)

    def _on_metadata(self, delta: MetadataDelta) -> None:
        """Does at once what clients see of the change. What is work for the disk takes steps: they are work of whoever
        submits the change just now, or if nobody does, the broker's own, which it does in turns and before it closes.
        """
        # The coordinators' own go first: they would note there that the others go, which makes such a topic again.
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
        """Gives a list, to which the effects are added of each change that arrives meanwhile."""
        outer, self._effects = self._effects, []
        try:
            yield self._effects
        finally:
            self._effects = outer

    def _remove_logs(self, delta: MetadataDelta) -> list[Steps[None]]:
        """Closes the logs of topics that were deleted; the steps, if there are any, rename their folders."""
        removed = {
            TopicPartition(topic.name, number): self._services.configs.of_topic_in(delta.before, topic.name)
            for topic in delta.deleted_topics()
            for number in topic.partitions
        }
        return self.remove_logs(removed)

    def remove_logs(self, configs: Mapping[TopicPartition, LogConfig]) -> list[Steps[None]]:
        """Closes the logs of those partitions; the steps, if there are any, rename their folders, which are deleted
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
    """A lone broker makes topics itself."""


def _one_after_the_other(all_steps: Iterable[Steps[None]]) -> Steps[None]:
    for steps in all_steps:
        yield from steps
