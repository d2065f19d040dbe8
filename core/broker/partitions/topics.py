"""Creates, grows and deletes topics: the change is submitted to the controller; its effect on the logs arrives as a
delta of the metadata, and takes steps.

The controller tells a member of a cluster which logs to create and to remove (`LeaderAndIsrChanges`).

Subscribers (`on_deleted`) learn of deletions: the coordinators forget the state that belongs to a deleted topic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from core.broker.config.effective_configs import Configs
from core.broker.node_identity import NodeIdentity
from core.broker.partitions.file_deletion import FileDeletion
from core.broker.partitions.replica_manager import ReplicaManager
from core.broker.requests.stepped_answer import SteppedAnswers
from core.cluster.image.broker_metadata import BrokerMetadata, NewTopic
from core.cluster.image.metadata_delta import MetadataDelta
from core.cluster.image.metadata_image import TopicImage
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.task import Task, Yield, finish
from core.common.topic_partition import INTERNAL_TOPICS, TopicPartition


class Topics:
    """Owned by the broker's task."""

    def __init__(
        self,
        node: NodeIdentity,
        controller: BrokerMetadata,
        configs: Configs,
        replicas: ReplicaManager,
        deletion: FileDeletion,
        stepped_answers: SteppedAnswers,
    ) -> None:
        self._node = node
        self._controller = controller
        self._configs = configs
        self._replicas = replicas
        self._deletion = deletion
        self._stepped_answers = stepped_answers
        self.on_wanted: list[Callable[[NewTopic, str], None]] = []
        """In a cluster, called with a topic that its controller should create soon, and who wants it; raises KafkaError
        if the controller has refused.
        """
        self.on_deleted: list[Callable[[TopicImage], None]] = []
        """Called with each deleted topic, while its partitions are still served."""
        self._effects: list[Task[None]] | None = None
        """The effects of the change that is being submitted, or None."""

    def create(self, topic: NewTopic, sender: str = "this broker") -> TopicImage:
        """Creates one topic, at once, for `sender`. Raises KafkaError if it may not be created; in a cluster always
        LEADER_NOT_AVAILABLE, after the controller was asked.
        """
        if self._controller.is_member:
            self.ask_controller(topic, sender)
            raise KafkaError(
                ErrorCode.LEADER_NOT_AVAILABLE, f"this broker has asked the controller to create {topic.name}"
            )
        made = finish(self.create_all([topic], validate_only=False))[topic.name]
        if isinstance(made, KafkaError):
            raise made
        return made

    def ask_controller(self, topic: NewTopic, sender: str = "this broker") -> None:
        """Has the controller of the cluster asked for that topic. Raises KafkaError if it has refused."""
        for on_wanted in self.on_wanted:
            on_wanted(topic, sender)

    def create_all(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> Task[dict[str, TopicImage | KafkaError]]:
        """Returns, by name, the results of `BrokerMetadata.create_topics`. The topics exist after the first step, their
        partitions' logs after the last one: until then clients get LEADER_NOT_AVAILABLE, and retry.
        """
        self._node.ensure_writable()
        config = self._configs.broker
        with self._submitting() as effects:
            made = self._controller.create_topics(
                topics,
                default_partitions=config.num_partitions,
                default_replication=config.default_replication_factor,
                validate_only=validate_only,
            )
        if not validate_only:
            yield Yield.GIVE_WAY
        yield from _one_after_the_other(effects)
        return made

    def create_partitions(
        self, name: str, count: int, assignments: Sequence[Sequence[int]] | None, *, validate_only: bool
    ) -> Task[None]:
        """Grows a topic, after `ensure_few_are_added`. Raises what `BrokerMetadata.create_partitions` raises."""
        self._node.ensure_writable()
        with self._submitting() as effects:
            self._controller.create_partitions(name, count, assignments, validate_only=validate_only)
        yield Yield.GIVE_WAY
        yield from _one_after_the_other(effects)

    def delete_all(self, names: Sequence[str]) -> Task[list[TopicImage]]:
        """Deletes all the topics, or none. They are gone after the first step; their folders are renamed by the last
        one, and deleted after `file.delete.delay.ms`.

        Raises what `BrokerMetadata.delete_topics` raises.
        """
        self._node.ensure_writable()
        with self._submitting() as effects:
            topics = self._controller.delete_topics(names)
        yield from _one_after_the_other(effects)
        return topics

    # --- effects of metadata changes

    def begin(self) -> None:
        """Applies all present topics, at once, and from now on each change."""
        if not self._controller.is_member:
            for starting in self._replicas.apply(MetadataDelta.of_everything(self._controller.image)):
                finish(starting)
        self._controller.subscribe(self._on_metadata)

    def _on_metadata(self, delta: MetadataDelta) -> None:
        """Applies at once the visible part of the change. Work on the disk takes steps: the request that submits the
        change does them, otherwise the broker itself, in turns and before it closes.
        """
        # Internal topics go first: coordinators would write the others' deletion to them, and so create them again.
        for topic in sorted(delta.deleted_topics(), key=lambda topic: topic.name not in INTERNAL_TOPICS):
            for on_deleted in self.on_deleted:
                on_deleted(topic)
        if self._controller.is_member:
            self._replicas.configure(delta)
            return
        effects = self._replicas.apply(delta) + self._remove_logs(delta)
        if self._effects is not None:
            self._effects += effects
        elif effects:
            self._stepped_answers.answer(_one_after_the_other(effects), is_owed=True)

    @contextmanager
    def _submitting(self) -> Iterator[list[Task[None]]]:
        """Yields a list that receives the effects of each change that arrives meanwhile."""
        outer, self._effects = self._effects, []
        try:
            yield self._effects
        finally:
            self._effects = outer

    def _remove_logs(self, delta: MetadataDelta) -> list[Task[None]]:
        """Closes the logs of deleted topics; the returned steps, if any, rename their folders."""
        removed = {
            TopicPartition(topic.name, number): self._configs.of_topic_in(delta.before, topic.name)
            for topic in delta.deleted_topics()
            for number in topic.partitions
        }
        return self._deletion.remove_logs(removed)


def _one_after_the_other(all_steps: Iterable[Task[None]]) -> Task[None]:
    for steps in all_steps:
        yield from steps
