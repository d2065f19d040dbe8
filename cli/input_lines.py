"""Input as it comes: stdin or files, by the megabyte, and split into lines."""

from __future__ import annotations

import io
import re
import select
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from cli.pipes import widen
from core.common.errors import PlogError
from core.common.filesystem import access_error
from core.records.byte_strings import ByteStrings

_CHUNK_BYTES = 1024 * 1024
_GATHER_SECONDS = 0.005  # for which what comes in pieces is put together
_BRIEF_SECONDS = 0.001
_LONG_SECONDS = 0.05


class Quiet(IntEnum):
    """For how long the input has had no more."""

    NOT = 0
    BRIEF = 1
    LONG = 2


class BadLineError(PlogError):
    """A line that can't be made into a record; `row` counts lines over all inputs, from 0."""

    def __init__(self, row: int, problem: str, *, thing: str = "line") -> None:
        super().__init__(f"{thing} {row + 1}: {problem}")
        self.row = row
        self.problem = problem
        self.thing = thing


@dataclass(frozen=True, slots=True)
class Lines:
    """Whole lines without their ends: byte positions in `buffer`. `quiet`: whether the input had more at once."""

    buffer: bytes
    starts: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]
    first_row: int
    quiet: Quiet
    delimiter: bytes = b"\n"

    def __len__(self) -> int:
        return len(self.starts)

    def __iter__(self) -> Iterator[bytes]:
        for start, length in zip(self.starts.tolist(), self.lengths.tolist(), strict=True):
            yield self.buffer[start : start + length]

    @property
    def texts(self) -> ByteStrings:
        return ByteStrings(self.buffer, self.starts, self.lengths)

    def head(self, count: int) -> Lines:
        return replace(self, starts=self.starts[:count], lengths=self.lengths[:count])

    @property
    def text(self) -> memoryview:
        """As it was read, ends and all."""
        if not len(self):
            return memoryview(b"")
        end = int(self.starts[-1] + self.lengths[-1]) + len(self.delimiter)
        return memoryview(self.buffer)[int(self.starts[0]) : end]


def open_inputs(paths: Sequence[Path]) -> Iterator[tuple[str, BinaryIO]]:
    """(name, stream) of each file, or of stdin where there is none. AccessError where a file can't be opened."""
    if not paths:
        yield "stdin", sys.stdin.buffer
        return
    for path in paths:
        try:
            stream = path.open("rb", buffering=0)
        except OSError as error:
            raise access_error(error, path, "read") from error
        with stream:
            yield str(path), io.BufferedReader(stream)


def read_chunks(paths: Sequence[Path], linger_s: float = 0.0) -> Iterator[tuple[bytes, Quiet, bool]]:
    """What all inputs hold, a megabyte at a time, or less where the input is slow, and no more has come for `linger_s`;
    whether the input had more at once, and whether this is the end of it. Nothing, where it is quiet for long.
    AccessError where it can't be read.
    """
    for name, stream in open_inputs(paths):
        widen(stream)
        while True:
            try:
                chunk, quiet = _read_chunk(stream, linger_s)
            except OSError as error:
                raise access_error(error, name, "read") from error
            if not chunk:
                break
            yield chunk, quiet, False
            if quiet and not _has_more(stream, _LONG_SECONDS):
                yield b"", Quiet.LONG, False
        yield b"", Quiet.NOT, True


def _read_chunk(stream: BinaryIO, linger_s: float) -> tuple[bytes, Quiet]:
    chunk: bytes = stream.read1(_CHUNK_BYTES)  # type: ignore[attr-defined]  # every buffered reader has it
    parts, size = [chunk], len(chunk)
    deadline = time.monotonic() + max(linger_s, _GATHER_SECONDS)
    while chunk and size < _CHUNK_BYTES and (left := deadline - time.monotonic()) > 0:
        if not _has_more(stream, left if linger_s else min(left, _BRIEF_SECONDS)):
            return b"".join(parts), Quiet.BRIEF
        chunk = stream.read1(_CHUNK_BYTES - size)  # type: ignore[attr-defined]
        parts.append(chunk)
        size += len(chunk)
    is_quiet = bool(chunk) and (linger_s > 0 or not _has_more(stream, 0))
    return b"".join(parts), Quiet.BRIEF if is_quiet else Quiet.NOT


def _has_more(stream: BinaryIO, seconds: float) -> bool:
    """Or has ended; waits so long at most."""
    try:
        return bool(select.select([stream], [], [], seconds)[0])
    except (OSError, ValueError):
        return True  # what can't be asked does not wait: it is in memory


def read_lines(paths: Sequence[Path], delimiter: bytes = b"\n", linger_s: float = 0.0) -> Iterator[Lines]:
    """The lines of all inputs, chunk by chunk. Delimiters are not part of a line; the last line of an input need not
    have one."""
    row = 0
    rest = b""
    for chunk, quiet, is_end in read_chunks(paths, linger_s):
        if quiet is Quiet.LONG:
            yield Lines(b"", np.empty(0, np.int64), np.empty(0, np.int64), row, quiet, delimiter)
            continue
        if is_end:
            whole, rest = (rest + delimiter if rest else b""), b""
        elif len(delimiter) == 1:
            end = chunk.rfind(delimiter) + 1
            if not end:
                rest += chunk
                continue
            whole, rest = b"".join((rest, memoryview(chunk)[:end])), chunk[end:]
        else:  # it may stand across two chunks
            rest += chunk
            end = rest.rfind(delimiter) + len(delimiter)
            if end < len(delimiter):
                continue
            whole, rest = rest[:end], rest[end:]
        if whole:
            lines = split_lines(whole, row, quiet=quiet, delimiter=delimiter)
            row += len(lines)
            yield lines


def split_lines(buffer: bytes, first_row: int, *, quiet: Quiet = Quiet.NOT, delimiter: bytes = b"\n") -> Lines:
    """`buffer` ends with the delimiter."""
    if len(delimiter) == 1:
        ends = np.flatnonzero(np.frombuffer(buffer, np.uint8) == delimiter[0]).astype(np.int64)
    else:
        ends = np.array([match.start() for match in re.finditer(re.escape(delimiter), buffer)], np.int64)
    starts = np.concatenate((np.zeros(1, np.int64), ends[:-1] + len(delimiter)))
    return Lines(buffer, starts, ends - starts, first_row, quiet, delimiter)
