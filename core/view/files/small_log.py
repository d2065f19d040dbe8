"""What only the whole log tells, as far as it is small: what `plog verify` finds in a partition's folder, and what its
batches show of the producers.
"""

from __future__ import annotations

from collections import deque
from functools import cached_property
from pathlib import Path

from core.common.errors import PlogError
from core.files.file_names import LOG_SUFFIX, find_offset_files
from core.inspector.check.findings import Finding
from core.inspector.check.producer_check import ProducerCheck
from core.inspector.check.segment_check import OddLogError, SegmentCheck, VerifyOptions
from core.inspector.check.verify import verify

MOST_BYTES = 16 * 1024 * 1024
"""The most bytes of logs that are read: a tenth of a second, if the batches are small."""


class SmallLog:
    """Owned by one task. Raises OSError as the disk says."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.logs = find_offset_files(folder, LOG_SUFFIX)

    @cached_property
    def why_not_read(self) -> str:
        """Says why the log is not read; nothing if it is."""
        total = sum(path.stat().st_size for _, path in self.logs)
        if total <= MOST_BYTES:
            return ""
        return f"the log has more than {MOST_BYTES // 1024 // 1024} MB, plog verify reads it all"

    @cached_property
    def findings(self) -> list[Finding]:
        """What `plog verify` says of the folder; nothing if the log is not read."""
        if self.why_not_read:
            return []
        try:
            return list(verify(self.folder))
        except PlogError:
            return []  # whoever opens the files says so

    def findings_of(self, path: Path) -> list[Finding]:
        return [finding for finding in self.findings if finding.path == str(path)]

    def producers_at(self, offset: int) -> ProducerCheck | str:
        """Gives what the log shows of its producers up to an offset; or why that is not known, in words."""
        if self.why_not_read:
            return self.why_not_read
        producers, end_offset = ProducerCheck(), self.logs[0][0] if self.logs else 0
        for number, (base_offset, path) in enumerate(self.logs):
            if base_offset >= offset:
                break
            if base_offset > end_offset:
                producers.meet_hole()
            following = self.logs[number + 1][0] if number + 1 < len(self.logs) else None
            check = SegmentCheck(
                path, base_offset, VerifyOptions(), producers, has_indexes=False, limit_offset=following
            )
            try:
                deque(check.run(lambda _size: None), maxlen=0)
            except OddLogError:
                return "the log is damaged before that"
            except PlogError as error:
                return error.message
            end_offset = check.end_offset
        following_bases = {base_offset for base_offset, _ in self.logs}
        if offset == end_offset or (offset in following_bases and end_offset <= offset):
            return producers
        return f"no segment begins at offset {offset}, and the log ends at {end_offset}"
