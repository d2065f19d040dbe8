"""Opens the `.log` files of one log, in whatever folder they lie, for reading."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from core.common.filesystem import FileSystem, access_error
from core.files.directory_lock import find_lock_holder
from core.files.file_names import locate_partition
from core.forensics.known_offsets import KnownOffsets
from core.forensics.log_scanner import LogScanner
from core.forensics.segment_reader import SegmentReader


@contextlib.contextmanager
def open_reading(
    files: Sequence[tuple[int, Path]],
    evidence: KnownOffsets,
    given_up: Sequence[tuple[int, int]] = (),
    *,
    is_locked: bool = False,
) -> Iterator[LogScanner]:
    """Opens the log that these `.log` files with their base offsets are, in whatever folder they lie. With `is_locked`
    nobody writes to it. Raises AccessError if one can't be opened.
    """
    with contextlib.ExitStack() as opened:
        segments = []
        for base_offset, path in files:
            try:
                segments.append(SegmentReader(path, base_offset, FileSystem()))
            except OSError as error:
                raise access_error(error, path, "read") from error
            opened.callback(segments[-1].close)

        def is_live() -> bool:
            if is_locked or not segments:
                return False
            return is_written_to(locate_partition(segments[-1].path.parent)[1], segments[-1:])

        yield LogScanner(segments, evidence, given_up, is_live=is_live)


def is_written_to(root: Path, last: Sequence[SegmentReader]) -> bool:
    """Says whether somebody writes to a log that ends with this segment, if it has one: the lock of its data directory
    is held, or the file is not as large as it was when it was opened.
    """
    if find_lock_holder(root) is not None:
        return True
    try:
        return any(segment.path.stat().st_size != segment.records.size_bytes for segment in last)
    except OSError:
        return True
