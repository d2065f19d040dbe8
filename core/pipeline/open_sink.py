"""Opens the sink of a format: values, patterns (format_pattern.py) or envelopes as text; Arrow and Parquet as columns.

The other formats than values need more libraries, and are imported when they are used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from core.common.errors import PlogError
from core.common.out_file import OutFile
from core.common.topic_partition import TopicPartition
from core.pipeline.record_sink import ARROW, PARQUET, VALUE, ByteSink, Int64s, PartitionRows, Sink, ValueSink

if TYPE_CHECKING:
    from core.client.read.watermarks import Watermarks


class Stdout(NamedTuple):
    """Takes records that go into no file. On a terminal `is_escaped` says that no byte of theirs may drive it."""

    sink: ByteSink
    is_escaped: bool = False


def open_file_sink(
    format_: str,
    path: Path,
    watermarks: Mapping[TopicPartition, Watermarks],
    *,
    is_endless: bool,
    say: Callable[[str], None],
) -> Sink:
    """Opens a sink into a file; `watermarks` are those of the partitions that rows are of. A file that `is_endless` has
    its name from its first record on, for whoever wants to see it grow; but for Parquet, which can't be read before its
    end.

    Raises UsageError for a format that does not exist, AccessError if the file can't be made.
    """
    file = OutFile(path)
    try:
        sink = make_sink(format_, file.file, watermarks)
    except PlogError:
        file.discard()
        raise
    return _FileSink(file, sink, grows=is_endless and format_ != PARQUET, say=say)


def make_sink(
    format_: str, out: Any, watermarks: Mapping[TopicPartition, Watermarks], *, is_escaped: bool = False
) -> Sink:  # `out` is a ByteSink for text, and a file for what PyArrow writes
    """Makes a sink that writes to `out`. Raises UsageError for a format that does not exist."""
    if format_ == VALUE:
        return ValueSink(out)
    if format_ == PARQUET:
        from core.pipeline.arrow_sink import ParquetSink

        return ParquetSink(out)
    if format_ == ARROW:
        from core.pipeline.arrow_sink import ArrowSink

        return ArrowSink(out)
    from core.pipeline.text_sink import TextSink, make_formatter

    return TextSink(out, make_formatter(format_, watermarks, is_escaped=is_escaped))


class _FileSink:
    """Writes into a file by another sink."""

    def __init__(self, file: OutFile, sink: Sink, *, grows: bool, say: Callable[[str], None]) -> None:
        self._file = file
        self._sink = sink
        self._grows = grows
        self._say = say

    def write(self, page: Sequence[PartitionRows], order: Int64s | None = None) -> None:
        self._sink.write(page, order)
        if self._grows:
            self._file.put_in_place()

    def close(self, *, is_whole: bool) -> None:
        try:
            self._sink.close(is_whole=is_whole)
        except OSError:
            self._file.discard()  # nobody can read it without its end
            raise
        kept = self._file.end(is_whole=is_whole)
        if kept is not None:
            self._say(f"what came before is in {kept}")
