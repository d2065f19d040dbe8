"""Rows of more folders than one unit may write to at the same time: they wait in an Arrow file, batch by batch.

The file is mapped when it is read, and each folder's rows are taken from it in the order in which they were added.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc

from core.common.filesystem import FileSystem
from core.common.out_file import open_sink


class SpilledRows:
    """Owned by one task. Makes its file when the first rows are added."""

    def __init__(self, path: Path, schema: Any, filesystem: FileSystem) -> None:  # pyarrow.Schema
        self._path = path
        self._filesystem = filesystem
        self._sink: io.BufferedWriter | None = None
        self._schema = schema
        self._writer: Any = None  # pyarrow.ipc.RecordBatchFileWriter
        self._numbers: dict[str, list[int]] = {}
        self._batches = 0

    def add(self, folder: str, rows: Any) -> None:  # pyarrow.RecordBatch
        """Adds rows; raises the disk's OSError."""
        if self._writer is None:
            self._sink = open_sink(self._filesystem, self._path)
            self._writer = pyarrow.ipc.new_file(self._sink, self._schema)
        self._writer.write_batch(rows)
        self._numbers.setdefault(folder, []).append(self._batches)
        self._batches += 1

    def read(self) -> Iterator[tuple[str, Iterator[Any]]]:
        """Yields each folder with its batches. No rows may be added after that."""
        if self._writer is None:
            return
        self._close()
        with pa.memory_map(str(self._path)) as source:
            reader = pyarrow.ipc.open_file(source)
            for folder, numbers in sorted(self._numbers.items()):
                yield folder, (reader.get_batch(number) for number in numbers)

    def discard(self) -> None:
        """Removes the file."""
        if self._sink is not None:
            with contextlib.suppress(OSError):  # on a full disk the file can't be ended
                self._close()
            self._filesystem.unlink(self._path)

    def _close(self) -> None:
        if self._sink is not None and not self._sink.closed:
            with self._sink:
                self._writer.close()
