"""Reads input as it comes: stdin or files, by the megabyte, and split into lines."""

from __future__ import annotations

import codecs
import re
import select
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from core.common.errors import PlogError, UsageError
from core.common.filesystem import access_error
from core.pipeline.pipe_capacity import widen
from core.records.byte_strings import ByteStrings

Input = Path | BinaryIO
"""A file to open, or the stream that is called stdin."""

_CHUNK_BYTES = 960 * 1024  # two of the usual batches, with the envelope of each line
_CR = 13
_GZIP = b"\x1f\x8b\x08"
_NO_LINES = {
    _GZIP: ("compressed by gzip", "zcat"), b"\x28\xb5\x2f\xfd": ("compressed by zstd", "zstdcat"),
    b"BZh91AY&SY": ("compressed by bzip2", "bzcat"), b"\xfd7zXZ\0": ("compressed by xz", "xzcat"),
    b"PK\3\4": ("a zip archive", "unzip -p"), b"PAR1\x15": ("a Parquet file", None),
    b"ARROW1\0\0": ("an Arrow file", None), b"Obj\1": ("a container file of Avro", None),
}  # fmt: skip
"""The first bytes of files of other kinds, and the command that turns them into lines."""
_GATHER_SECONDS = 0.005  # in which pieces of input are joined
_BRIEF_SECONDS = 0.001
_LONG_SECONDS = 0.05


class Quiet(IntEnum):
    """How long the input has been silent."""

    NOT = 0
    BRIEF = 1
    LONG = 2


class BadLineError(PlogError):
    """Raised for a line that is not a record; `row` counts lines over all inputs, from 0."""

    def __init__(self, row: int, problem: str, *, thing: str = "line") -> None:
        super().__init__(f"{thing} {row + 1}: {problem}")
        self.row = row
        self.problem = problem
        self.thing = thing


@dataclass(frozen=True)
class Lines:
    """Whole lines with their ends; the last of an input may have none. `quiet`: how long the input was silent after
    them. Immutable.
    """

    text: memoryview
    first_row: int
    quiet: Quiet = Quiet.NOT
    delimiter: bytes = b"\n"
    drops_cr: bool = False
    """Whether a carriage return before a line's end is part of that end."""
    thing: str = "line"
    """The name of one in errors."""
    bad: BadLineError | None = None
    """The error after them, or None."""

    @cached_property
    def count(self) -> int:
        if len(self.delimiter) > 1 or "texts" in vars(self):
            return len(self.texts)
        ended = int(np.count_nonzero(np.frombuffer(self.text, np.uint8) == self.delimiter[0]))
        return ended + (len(self.text) > 0 and self.text[-1] != self.delimiter[0])

    @cached_property
    def texts(self) -> ByteStrings:
        """Splits it into lines without their ends."""
        if len(self.delimiter) == 1:
            ends = np.flatnonzero(np.frombuffer(self.text, np.uint8) == self.delimiter[0])
        else:
            ends = np.array([match.start() for match in re.finditer(re.escape(self.delimiter), self.text)], np.int64)
        starts = np.append(0, ends + len(self.delimiter))
        if starts[-1] == len(self.text):
            starts = starts[:-1]
        else:
            ends = np.append(ends, len(self.text))
        lengths = ends - starts
        return ByteStrings(self.text, starts, lengths - self._ends_in_cr(ends, lengths) if self.drops_cr else lengths)

    def _ends_in_cr(self, ends: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        found: npt.NDArray[np.bool_] = (np.frombuffer(self.text, np.uint8)[ends - 1] == _CR) & (lengths > 0)
        return found

    @property
    def numbers(self) -> npt.NDArray[np.int64]:
        """Numbers the lines, over all inputs, from 0."""
        return np.arange(self.first_row, self.first_row + len(self), dtype=np.int64)

    @property
    def has_cr(self) -> bool:
        """Returns whether one of the lines, as in `texts`, ends in a carriage return."""
        starts, lengths = self.texts.positions, self.texts.lengths
        return bool(len(starts)) and bool(self._ends_in_cr(starts + lengths, lengths).any())

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[bytes]:
        data = bytes(self.text)
        for start, length in zip(self.texts.positions.tolist(), self.texts.lengths.tolist(), strict=True):
            yield data[start : start + length]

    def head(self, count: int) -> Lines:
        end = int(self.texts.positions[count]) if count < len(self) else len(self.text)
        return replace(self, text=self.text[:end])


def open_inputs(inputs: Sequence[Input]) -> Iterator[tuple[str, BinaryIO]]:
    """Yields (name, stream) of each input. Raises AccessError if a file can't be opened."""
    for path in inputs:
        if not isinstance(path, Path):
            yield "stdin", path
            continue
        try:
            stream = path.open("rb")
        except OSError as error:
            raise access_error(error, path, "read") from error
        with stream:
            yield str(path), stream


@dataclass(slots=True)
class Chunk:
    """Holds the bytes read, after the rest of the chunk before. The consumer begins at `used`, and sets it to the end
    of what it took; the others come again. `is_end`: the input has ended, and nothing comes again.
    """

    data: bytearray
    quiet: Quiet
    is_end: bool
    used: int = 0


def read_chunks(
    inputs: Sequence[Input], linger_s: float = 0.0, *, is_text: bool = False, drops_bom: bool = False
) -> Iterator[Chunk]:
    """Yields the contents of all inputs, a megabyte at a time, or less if the input is slow and silent for
    `linger_s`; nothing, if it is quiet for long. With `drops_bom`, what is used begins after a byte order mark of
    UTF-8. Raises AccessError if it can't be read, UsageError if it is gzipped, or `is_text` and begins as UTF-16 or as
    files of other kinds do.
    """
    for name, stream in open_inputs(inputs):
        widen(stream)
        is_first = True
        chunk = Chunk(bytearray(), Quiet.NOT, is_end=False)
        while not chunk.is_end:
            try:
                chunk = _read_chunk(stream, chunk.data[chunk.used :], linger_s)
            except OSError as error:
                raise access_error(error, name, "read") from error
            if is_first:
                _ensure_lines(name, chunk.data, is_text=is_text)
                chunk.used = len(codecs.BOM_UTF8) if drops_bom and chunk.data.startswith(codecs.BOM_UTF8) else 0
            yield chunk
            is_first = is_first and not chunk.used
            if chunk.quiet and not _has_more(stream, _LONG_SECONDS):
                yield Chunk(bytearray(), Quiet.LONG, is_end=False)


def _ensure_lines(name: str, data: bytearray, *, is_text: bool) -> None:
    for begin, (what, command) in _NO_LINES.items():
        if data.startswith(begin) and (is_text or begin == _GZIP):
            lines = f"{command} FILE | plog produce TOPIC; " if command is not None else ""
            raise UsageError(f"{name} is {what}", hint=f"{lines}--format raw makes one record of a file")
    if is_text and data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise utf16_error(name)


def utf16_error(name: str) -> UsageError:
    return UsageError(f"{name} is UTF-16, expected UTF-8", hint="iconv -f UTF-16 -t UTF-8 FILE | plog produce TOPIC")


def _read_chunk(stream: BinaryIO, rest: bytearray, linger_s: float) -> Chunk:
    data = bytearray(len(rest) + max(_CHUNK_BYTES, len(rest)))  # so that a long line is not copied each time
    data[: len(rest)] = rest
    count = _fill(stream, data, len(rest))
    size = len(rest) + count
    deadline = time.monotonic() + max(linger_s, _GATHER_SECONDS)
    while count and size < len(data) and (left := deadline - time.monotonic()) > 0:
        if not _has_more(stream, left if linger_s else min(left, _BRIEF_SECONDS)):
            is_quiet = True
            break
        count = _fill(stream, data, size)
        size += count
    else:
        is_quiet = bool(count) and (linger_s > 0 or not _has_more(stream, 0))
    del data[size:]
    return Chunk(data, Quiet.BRIEF if is_quiet else Quiet.NOT, is_end=size == len(rest))


def _fill(stream: BinaryIO, data: bytearray, start: int) -> int:
    """Reads the available bytes into `data` from `start` on; returns their number, 0 at the end."""
    with memoryview(data) as view, view[start:] as room:
        count: int = stream.readinto1(room)  # type: ignore[attr-defined]  # every buffered reader has it
        return count


def _has_more(stream: BinaryIO, seconds: float) -> bool:
    """Returns whether the input has more, or has ended; waits so long at most."""
    try:
        return bool(select.select([stream], [], [], seconds)[0])
    except (OSError, ValueError):
        return True  # a stream without a descriptor is in memory, and does not wait


def read_lines(inputs: Sequence[Input], delimiter: bytes = b"\n", linger_s: float = 0.0) -> Iterator[Lines]:
    """Yields the lines of all inputs, chunk by chunk. Delimiters are not part of a line; the last line of an input need
    not have one.
    """
    row = 0
    for chunk in read_chunks(inputs, linger_s, is_text=delimiter == b"\n"):
        chunk.used = len(chunk.data) if chunk.is_end else _end_of_lines(chunk.data, delimiter)
        if chunk.used or chunk.quiet is Quiet.LONG:
            lines = Lines(memoryview(chunk.data)[: chunk.used], row, chunk.quiet, delimiter)
            yield lines
            row += len(lines)


def dropping_cr(chunks: Iterator[Lines]) -> Iterator[Lines]:
    """Yields the same lines, without the carriage returns before their ends."""
    for lines in chunks:
        yield replace(lines, drops_cr=True)


def warning_of_begin(chunks: Iterator[Lines], tell: Callable[[str], None]) -> Iterator[Lines]:
    """Yields the same lines; warns if the first begins with UTF-8's byte order mark, or begins a JSON value that goes
    on in the next ones.
    """
    for lines in chunks:
        begin = bytes(lines.text[:8]) if lines.first_row == 0 else b""
        if begin.startswith(codecs.BOM_UTF8):
            tell("note: the input begins with a byte order mark (BOM), and its first record keeps it")
        if begin.partition(b"\n")[0].strip() in (b"{", b"["):
            tell(
                "note: the input looks like JSON values of several lines, and each line becomes a record; "
                "--value-format json makes a record of each value"
            )
        yield lines


def warning_of_cr(chunks: Iterator[Lines], tell: Callable[[str], None]) -> Iterator[Lines]:
    """Yields the same lines; warns, once, if some end in CRLF."""
    has_warned = False
    for lines in chunks:
        if not has_warned and lines.text and lines.has_cr:
            tell("note: the lines end in CRLF; the records keep the \\r; --crlf removes it")
            has_warned = True
        yield lines


def _end_of_lines(data: bytearray, delimiter: bytes) -> int:
    """Returns the end of the last delimiter, searched from the left: in `a|||`, `||` ends before the last byte."""
    if len(delimiter) == 1:
        return data.rfind(delimiter) + 1
    return max((match.end() for match in re.finditer(re.escape(delimiter), data)), default=0)
