"""Opens the logs of a data directory: at the start, or at the first request for one that was left out."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path

from core.broker.config.effective_configs import Configs
from core.broker.node_identity import NodeIdentity
from core.broker.partitions.lazy_index_checks import LazyIndexChecks
from core.broker.partitions.post_recovery_flush import PostRecoveryFlush
from core.broker.partitions.replica_manager import ReplicaManager
from core.broker.partitions.suspected_loss import Doubts, SuspectedLoss
from core.cluster.image.metadata_log import METADATA_PARTITION
from core.cluster.image.single_node_controller import SingleNodeController
from core.cluster.image.topics_from_folders import find_topics
from core.common.errors import KafkaError, PlogError
from core.common.filesystem import FileSystem
from core.common.shadow_filesystem import link_tree
from core.common.topic_partition import TopicPartition
from core.files.directory_lock import find_lock_holder
from core.files.file_names import WAS_MEMBER, partition_directory_name
from core.files.log_config import LogConfig
from core.log.log_loader import LoadedLog
from core.log.log_manager import LogManager

_log = logging.getLogger("plog.broker")


class LogStartup:
    """Owned by the broker's task, except for `load`."""

    def __init__(
        self,
        controller: SingleNodeController | None,
        *,
        node: NodeIdentity,
        configs: Configs,
        log_manager: LogManager,
        replicas: ReplicaManager,
        late_checks: LazyIndexChecks,
        doubts: SuspectedLoss,
        recovered_flush: PostRecoveryFlush,
        unreadable: list[Path],
    ) -> None:
        """`controller` is that of a lone broker; for a member of a cluster it is None: a member neither adopts topics
        nor starts leader epochs. `unreadable` are the files that a read-only broker skipped.
        """
        self._controller = controller
        self._node = node
        self._configs = configs
        self._log_manager = log_manager
        self._replicas = replicas
        self._late_checks = late_checks
        self._doubts = doubts
        self._recovered_flush = recovered_flush
        self._unreadable = unreadable
        self._found: dict[TopicPartition, Doubts] = {}  # for logs that were just read
        self.has_adopted = False
        """Whether there were folders without metadata."""

    # --- at the start

    def find_known(self) -> Mapping[TopicPartition, Path]:
        """Finds the folders of the topics in the metadata. Folders of other topics are adopted if the metadata are
        missing or incomplete; otherwise they are set aside. A member of a cluster opens all folders; the controller
        tells it later which replicas it has.
        """
        if self._controller is None:
            self._note_member()
            return self._log_manager.as_found()
        was_member = self._was_member
        is_new = not self._controller.image.has_known_topics
        if is_new:
            self._adopt(self._controller, self._log_manager.find_partitions())
        elif self._controller.lacks_records or was_member:
            folders = self._log_manager.find_partitions()
            known_topics = self._controller.image.topics
            missing = {tp: path for tp, path in folders.items() if tp.topic not in known_topics}
            self._adopt(self._controller, missing)
        if was_member and not self._log_manager.is_read_only:
            self._log_manager.filesystem.unlink(self._member_file)
        topic_ids = {
            TopicPartition(topic.name, number): topic.topic_id
            for topic in self._controller.image.topics.values()
            for number, registration in topic.partitions.items()
            if self._node.node_id in registration.replicas
        }
        if topic_ids and not is_new:
            return self._log_manager.set_aside_strays(topic_ids)
        known = self._log_manager.known(topic_ids)
        for partition, path in self._log_manager.find_partitions().items():
            if partition not in known:
                _log.warning("%s belongs to no topic of the metadata; it is left alone", path)
        return known

    @property
    def _member_file(self) -> Path:
        return self._log_manager.directory / WAS_MEMBER

    @property
    def _was_member(self) -> bool:
        """Whether the directory was in a cluster, so that its topics may be adopted."""
        return self._member_file.exists()

    def _note_member(self) -> None:
        """Marks a directory with metadata of its own: a later start without the cluster adopts the folders that it
        finds, and sets none aside.
        """
        directory = self._log_manager.directory
        if (directory / partition_directory_name(METADATA_PARTITION)).is_dir() and not self._was_member:
            self._log_manager.filesystem.write_atomic(self._member_file, b"")

    def _adopt(self, controller: SingleNodeController, folders: Mapping[TopicPartition, Path]) -> None:
        """Adopts the topics of folders that came without metadata: a copy, or a ZooKeeper-mode broker's.

        Their configuration is not known: nothing is deleted or compacted until the user sets it.
        """
        self.has_adopted = bool(folders)
        found = find_topics(folders, goes_by_name=self._log_manager.is_read_only)
        self._log_manager.checkpoints.note_unknown_recovery_points(folders)
        controller.adopt_topics(found)
        for topic, partitions in found.items() if not self._log_manager.is_read_only else ():
            _log.warning(
                "topic %s came without metadata: %d partition%s; its configuration is not known, so retention and "
                "compaction are off until they are set, for example: plog topic alter %s --set "
                "retention.ms=604800000",
                topic.name,
                len(partitions),
                "s" * (len(partitions) != 1),
                topic.name,
            )

    def open_all(self, folders: Mapping[TopicPartition, Path]) -> None:
        opened = self._log_manager.open_existing(folders, self._configs.of_topic)
        self._raise_leader_epochs(opened)
        evidence = self._log_manager.read_evidence()
        for loaded in opened:
            self._note_doubts(loaded, self._doubts.find(loaded, evidence) if self._log_manager.is_read_only else None)
        if not self._log_manager.unloaded:
            self._log_manager.forget_clean_shutdown()

    def _raise_leader_epochs(self, opened: Iterable[LoadedLog]) -> None:
        """Raises the leader epochs of logs that were truncated, and of logs with later epochs than the metadata. In a
        cluster the controller does that: it elected another leader when this one went down.
        """
        if self._controller is None:
            return
        was_cut = [loaded.log.partition for loaded in opened if loaded.was_cut]
        if was_cut:
            self._controller.start_new_leader_epochs(was_cut)
        for log in (loaded.log for loaded in opened):
            registration = self._controller.image.topics[log.partition.topic].partitions[log.partition.partition]
            if log.leader_epochs.latest_epoch > registration.leader_epoch:
                self._controller.raise_leader_epoch(log.partition, above=log.leader_epochs.latest_epoch)

    def _note_doubts(self, loaded: LoadedLog, doubts: Doubts | None) -> None:
        """Passes on the doubts of a read-only broker; None for a log that this broker owns."""
        if doubts is None:
            self._doubts.note_unexplained(loaded.log, loaded.unexplained or ())
        else:
            self._doubts.note(loaded.log, doubts, self._unreadable)

    # --- after the start

    def load(self, partition: TopicPartition, config: LogConfig, filesystem: FileSystem) -> LoadedLog:
        """Reads the partition's log through that file system; in any thread. Raises OSError and CorruptRecordError. The
        caller then calls `end_load`.
        """
        if self._log_manager.is_read_only and find_lock_holder(self._node.directory) is not None:
            self._link_again(partition)
        loaded = self._log_manager.load(partition, config, filesystem)
        if self._log_manager.is_read_only:
            self._found[partition] = self._doubts.find(loaded, self._log_manager.read_evidence())
        return loaded

    def _link_again(self, partition: TopicPartition) -> None:
        """Links the folder's present files: the writing process created and deleted segments since the start. Raises
        OSError if the folder can't be read.
        """
        name = partition_directory_name(partition)
        shadow = self._log_manager.directory / name
        if shadow.is_symlink():
            return
        self._log_manager.filesystem.remove_tree(shadow)
        shadow.mkdir()
        link_tree(
            self._node.directory / name,
            shadow,
            on_unreadable=lambda _error, path: self._unreadable.append(path),
            depth=0,
        )

    def end_load(self, partition: TopicPartition, found: LoadedLog | OSError | PlogError) -> None:
        """Serves the partition, unless its log could not be read or was deleted."""
        found_doubts = self._found.pop(partition, None)
        loaded = self._log_manager.end_load(partition, found)
        if loaded is None:
            return
        self._note_doubts(loaded, found_doubts)
        try:
            self._raise_leader_epochs([loaded])
        except KafkaError as error:  # an epoch that is not in the metadata log could be used twice
            self._log_manager.set_offline(partition, error)
            return
        self._replicas.serve_loaded(loaded.log)
        self._late_checks.add(loaded.log)
        self._recovered_flush.begin([loaded.log])
