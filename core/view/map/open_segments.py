"""The segments of a map that are open: those that were looked at last."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path

from core.view.map.map_segments import Anchors, MapSegment, SegmentFiles

_MOST_OPEN = 32


class OpenSegments:
    """Keeps the files open that were asked for last; owned by one task."""

    def __init__(self) -> None:
        self._open: OrderedDict[Path, SegmentFiles] = OrderedDict()
        self._closed_headers = 0
        self.anchors: dict[Path, Anchors] = {}
        """What is known of segments without an index; whoever adds to it calls `close`."""

    def of(self, segment: MapSegment) -> SegmentFiles | None:
        """Opens the segment; None if it can't be read, or another file has its name by now."""
        files = self._open.get(segment.path)
        if files is not None and files.segment == segment:
            self._open.move_to_end(segment.path)
            return files
        if files is not None:
            self._close(segment.path)
        if segment.problem:
            return None
        try:
            files = SegmentFiles(segment, self.anchors.get(segment.path, ()))
        except OSError:
            return None
        if not files.is_current:
            files.close()
            return None
        self._open[segment.path] = files
        if len(self._open) > _MOST_OPEN:
            self._close(next(iter(self._open)))
        return files

    def _close(self, path: Path) -> None:
        files = self._open.pop(path)
        self._closed_headers += files.headers_read
        files.close()

    @property
    def headers_read(self) -> int:
        """Counts the headers that were read so far."""
        return self._closed_headers + sum(files.headers_read for files in self._open.values())

    def close(self) -> None:
        for path in list(self._open):
            self._close(path)
