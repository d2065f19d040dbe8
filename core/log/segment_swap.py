"""Swaps segments in for others: how cleaned ones come in, and how a start finishes or undoes half a swap.

1. the new segments are written as `<offset>.log.cleaned`, indexes likewise, and brought to the disk
2. they are renamed to `.swap`, the first one's log last: before that a start throws them away, after it a start
   finishes the swap
3. the files that they replace are removed, and `.swap` is removed from their names

The order and the rules are those of Kafka's loader (org.apache.kafka.storage.internals.log.LocalLog .replaceSegments,
LogLoader): Kafka finishes plog's swaps, and plog Kafka's.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path

from core.common.filesystem import FileSystem
from core.files.file_names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    find_offset_files,
    offset_file_name,
    parse_offset_file_name,
)
from core.files.file_records import FileRecords

_LOG_LAST = SEGMENT_SUFFIXES[::-1]


def begin_swap(directory: Path, base_offsets: Sequence[int], filesystem: FileSystem) -> None:
    """Does step 2, for cleaned segments that are on the disk; no other segment may lie between the first and the last
    of them. Raises the disk's OSError: the swap has not begun then.
    """
    names = [offset_file_name(o, suffix) for o in sorted(base_offsets, reverse=True) for suffix in _LOG_LAST]
    paths = [directory / name for name in names]
    *others, first_log = [path for path in paths if _with(path, CLEANED_SUFFIX).exists()]
    filesystem.sync_directory(directory)
    for path in others:
        filesystem.rename(_with(path, CLEANED_SUFFIX), _with(path, SWAP_SUFFIX))
    filesystem.sync_directory(directory)
    filesystem.rename(_with(first_log, CLEANED_SUFFIX), _with(first_log, SWAP_SUFFIX))
    filesystem.sync_directory(directory)


def swap_files(directory: Path, base_offset: int) -> list[tuple[Path, Path]]:
    """Returns a swapped-in segment's `.swap` files, and their final names."""
    paths = [directory / offset_file_name(base_offset, suffix) for suffix in _LOG_LAST]
    return [(_with(path, SWAP_SUFFIX), path) for path in paths if _with(path, SWAP_SUFFIX).exists()]


def settle_swap(directory: Path, base_offset: int, filesystem: FileSystem) -> None:
    """Ends step 3 if the files have their names already, and `.swap` besides: makes that last. Raises the disk's
    OSError.
    """
    filesystem.sync_directory(directory)
    for swap, _ in reversed(swap_files(directory, base_offset)):
        filesystem.unlink(swap)
    filesystem.sync_directory(directory)


def drop_swaps(directory: Path, filesystem: FileSystem) -> None:
    """Removes the files of a cleaning that ended between two steps: a segment that nobody swapped in must not come in
    at the next start, over later records. Raises the disk's OSError.
    """
    swaps = [*directory.glob(f"*{SWAP_SUFFIX}"), *directory.glob(f"*{CLEANED_SUFFIX}")]
    if not swaps:
        return
    filesystem.sync_directory(directory)  # those that have their names already keep them
    for path in sorted(swaps, key=lambda path: not path.name.endswith(LOG_SUFFIX + SWAP_SUFFIX)):
        filesystem.unlink(path)
    filesystem.sync_directory(directory)


def swapped_below(directory: Path, filesystem: FileSystem) -> int:
    """Returns the offset below which `finish_swaps` would put segments in their places, or 0."""
    swaps, _ = _find_begun(directory)
    if not swaps:
        return 0
    end_offset = _end_offset(*swaps[-1], filesystem)
    return min((o for o, _ in find_offset_files(directory, LOG_SUFFIX) if o >= end_offset), default=end_offset)


def finish_swaps(directory: Path, filesystem: FileSystem) -> None:
    """Does step 3 for each swap that a crash left; removes swaps that had not come to step 3, and `.deleted` files."""
    swaps, left_over = _find_begun(directory)
    for path in left_over:
        filesystem.unlink(path)
    ends = [base_offset for base_offset, _ in swaps[1:]]
    if swaps:
        ends.append(_end_offset(*swaps[-1], filesystem))
    for (base_offset, _), end_offset in zip(swaps, ends, strict=True):
        _replace(directory, base_offset, end_offset, filesystem)
    for leftover in directory.glob(f"*{SWAP_SUFFIX}"):
        filesystem.unlink(leftover)


def _find_begun(directory: Path) -> tuple[list[tuple[int, Path]], list[Path]]:
    """Returns the swapped-in logs that came to step 3, in order, and the files that a start removes. A swap from the
    first of the `.cleaned` files on, while some remain, had not begun in earnest.
    """
    names = [entry.name for entry in os.scandir(directory)]
    cleaned = (_offset_with_suffix(name, CLEANED_SUFFIX) for name in names)
    first_uncleaned = min((offset for offset in cleaned if offset is not None), default=math.inf)
    swaps = {name: offset for name in names if (offset := _offset_with_suffix(name, SWAP_SUFFIX)) is not None}
    left_over = {name for name, offset in swaps.items() if offset >= first_uncleaned}
    logs = [name for name in swaps.keys() - left_over if name.endswith(LOG_SUFFIX + SWAP_SUFFIX)]
    left_over.update(name for name in names if name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX)))
    return sorted((swaps[name], directory / name) for name in logs), [directory / name for name in sorted(left_over)]


def _replace(directory: Path, base_offset: int, end_offset: int, filesystem: FileSystem) -> None:
    """Replaces all segments of its offsets by the swapped-in segment."""
    logs = find_offset_files(directory, LOG_SUFFIX)
    following = min((offset for offset, _ in logs if offset >= end_offset), default=end_offset)
    for offset, path in logs:
        if base_offset <= offset < end_offset:
            for suffix in _LOG_LAST:
                filesystem.unlink(path.with_suffix(suffix))
    for offset, path in find_offset_files(directory, SNAPSHOT_SUFFIX):
        if base_offset < offset < following:
            filesystem.unlink(path)
    filesystem.sync_directory(directory)
    for swap, path in reversed(swap_files(directory, base_offset)):
        filesystem.rename(swap, path)
    filesystem.sync_directory(directory)


def _end_offset(base_offset: int, swap: Path, filesystem: FileSystem) -> int:
    end_offset = base_offset + 1
    for batch in FileRecords(swap, filesystem.open_read).iter_headers(0):
        end_offset = batch.next_offset
    return end_offset


def _with(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _offset_with_suffix(name: str, suffix: str) -> int | None:
    """Reads the offset of `<offset>.<kind><suffix>`, as in 00000000000000000000.index.swap."""
    if not name.endswith(suffix):
        return None
    parsed = parse_offset_file_name(name.removesuffix(suffix))
    return parsed[0] if parsed else None
