"""A file that is written from its beginning to its end by whoever wants a Python file, such as Arrow, through the seam
that tests put another disk into.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

from core.common.filesystem import File, FileSystem

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_BUFFER_BYTES = 1024 * 1024


def open_sink(filesystem: FileSystem, path: Path) -> io.BufferedWriter:
    """Makes a file for writing, which nobody else has. Closing it writes what is left, and syncs nothing. Raises
    FileExistsError if something has the name, and the disk's OSError.
    """
    filesystem.make_file(path)
    return io.BufferedWriter(_FileSink(filesystem.open_append(path, creates=False)), _BUFFER_BYTES)


class _FileSink(io.RawIOBase):
    """Owned by one task."""

    def __init__(self, file: File) -> None:
        super().__init__()
        self._file = file
        self._position = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def write(self, data: ReadableBuffer, /) -> int:
        view = memoryview(data).cast("B")
        self._file.write_at(view, self._position)
        self._position += len(view)
        return len(view)

    def close(self) -> None:
        super().close()
        self._file.close()
