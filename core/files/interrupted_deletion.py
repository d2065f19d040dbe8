"""Finishes the deletion of segments that a crash interrupted.

A deletion renames the files of a segment to `.deleted`, its `.log` first, and removes them a minute later. So a
`.log.deleted` without its `.log` is a deletion that nobody takes back: the segment's other files are removed too.

A compaction leaves the same names, and puts new files in the place of the renamed ones. So if an index stands under
both names, the deletion was done with that segment, and somebody else took the new `.log` away.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from core.common.filesystem import FileSystem
from core.files.checkpoint_file import LeaderEpochCache
from core.files.file_names import (
    DELETED_SUFFIX,
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    offset_file_name,
    parse_offset_file_name,
)


def finish_deletions(directory: Path, leader_epochs: LeaderEpochCache, filesystem: FileSystem) -> None:
    """Leaves the `.deleted` files alone, which prove that the segments were deleted: everything else comes before they
    go. The leader epochs of the log's first segments go with them. Raises the disk's OSError.
    """
    logs: dict[str, set[int]] = {"": set(), SWAP_SUFFIX: set(), DELETED_SUFFIX: set()}
    names = {entry.name for entry in os.scandir(directory)}
    for name in names:
        stem, _, suffix = name.partition(LOG_SUFFIX)
        parsed = parse_offset_file_name(stem + LOG_SUFFIX)
        if parsed is not None and suffix in logs:
            logs[suffix].add(parsed[0])
    left = logs[""] | logs[SWAP_SUFFIX]
    deleted = {base for base in logs[DELETED_SUFFIX] - left if not was_replaced(names, base)}
    if left and deleted and min(deleted) < min(left):
        leader_epochs.truncate_from_start(min(left))
        leader_epochs.settle_before_deletion()
    for base_offset in deleted:
        for suffix in (*INDEX_SUFFIXES, SNAPSHOT_SUFFIX):
            filesystem.unlink(directory / offset_file_name(base_offset, suffix))


def was_replaced(names: Collection[str], base_offset: int) -> bool:
    """Says whether a compaction renamed that segment's files, and put others there: an index has both names."""
    indexes = (offset_file_name(base_offset, suffix) for suffix in INDEX_SUFFIXES)
    return any(index in names and index + DELETED_SUFFIX in names for index in indexes)
