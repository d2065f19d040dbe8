"""Reads the facts in a data directory's root about its partitions: checkpoints and the metadata log. Reads only."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from core.common.errors import AccessError, PlogError, UnreadableFileError
from core.common.topic_partition import INTERNAL_TOPICS, TopicPartition
from core.files.file_names import CLUSTER_METADATA_TOPIC, META_PROPERTIES, find_unreadable_files
from core.forensics.known_offsets_of_directory import KnownOffsetsOfDirectory
from core.inspector.check.partition_check import Surroundings

if TYPE_CHECKING:
    from core.cluster.image.metadata_image import MetadataImage


class DataDirectoryMetadata:
    """Reads one root once, before its logs, which only grow. Files that don't parse are findings of their own.
    `is_locked`: the caller holds the directory's lock.
    """

    def __init__(self, root: Path, *, is_locked: bool = False) -> None:
        self._root = root
        self._is_locked = is_locked
        self._evidence = KnownOffsetsOfDirectory(root)
        self._is_root = (root / META_PROPERTIES).exists()

    @property
    def image(self) -> MetadataImage | None:
        """Returns the image that the metadata log adds up to, or None if there is no log, or it can't be read."""
        return None if isinstance(self._image_or_error, PlogError) else self._image_or_error

    @property
    def image_error(self) -> PlogError | None:
        """Returns why the metadata log can't be read, or None: AccessError if the system refuses it."""
        return self._image_or_error if isinstance(self._image_or_error, PlogError) else None

    @property
    def why_no_image(self) -> str:
        """Says why there is no `image`, in words."""
        error = self.image_error
        return "the directory has no metadata log" if error is None else error.message

    @cached_property
    def _image_or_error(self) -> MetadataImage | PlogError | None:
        folder = self._root / f"{CLUSTER_METADATA_TOPIC}-0"
        if not os.path.lexists(folder):
            return None
        what = "the metadata log can't be read"
        if not folder.is_dir():
            return AccessError(f"{what}: {folder} is no folder", where=str(folder))
        from core.cluster.image.metadata_log import read_metadata_image

        try:
            return read_metadata_image(self._root, is_locked=self._is_locked)
        except (AccessError, UnreadableFileError, OSError) as error:
            return AccessError(f"{what}: {error}", where=str(folder))
        except PlogError as error:
            return PlogError(f"{what}: {error}")

    @property
    def topic_ids(self) -> dict[str, bytes]:
        return {} if self.image is None else {name: topic.topic_id for name, topic in self.image.topics.items()}

    def of(self, partition: TopicPartition | None, directory: Path) -> Surroundings:
        """Returns the facts about the partition in that folder. Raises OSError if the folder can't be read."""
        unreadable = tuple(file.error for file in find_unreadable_files(directory))
        evidence = replace(self._evidence.of(directory, partition), unreadable=unreadable)
        return Surroundings(evidence, None if partition is None else self._is_compacted(partition))

    def _is_compacted(self, partition: TopicPartition) -> bool | None:
        """Says whether compaction may have been at work, as in each internal topic, where Kafka's coordinators do not
        number their records, either; None if that is not known.
        """
        if partition in self._evidence.cleaned or partition.topic in INTERNAL_TOPICS:
            return True
        if self.image is not None and "compact" in self.image.topic_configs(partition.topic).get("cleanup.policy", ""):
            return True
        return False if self._is_root else None
