"""Keeps values that are too large for a log, two ways.

A claim check: the value is in a file named by its SHA-256, and the record holds a reference to it:

    DIR/ab/abcdef..
    header plog-claim-check = sha256:abcdef..      value {"claim_check": "sha256:abcdef..", "size": N}

Slices: the value goes as several records of one key to one partition, each with the header

    plog-chunk = ID/INDEX/COUNT sha256:abcdef..    ID: 16 hex digits, one for each value; the digest is the value's

The reader joins the slices, and returns the value in the place of its last slice. Slices of several values may be
mixed, and a slice that was sent twice counts once.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from core.client.schemas.undecoded import MARKS_HINT, SchemaError, is_fatal, not_decoded_text
from core.common.errors import PlogError
from core.common.filesystem import FileSystem, access_error
from core.common.topic_partition import TopicPartition
from core.records.byte_strings import ByteStrings
from core.records.record import encode_headers, read_headers

if TYPE_CHECKING:
    from core.pipeline.line_parsers import Rows
    from core.pipeline.record_stream import Chunk
    from core.records.columns import RecordColumns

CLAIM_CHECK_HEADER = b"plog-claim-check"
CHUNK_HEADER = b"plog-chunk"

_CLAIM_CHECK = re.compile(rb"sha256:([0-9a-f]{64})")
_CHUNK = re.compile(rb"([0-9a-f]{16})/(\d+)/(\d+) sha256:([0-9a-f]{64})")
_NO_HEADERS = encode_headers(())


def with_header(section: bytes | None, name: bytes, value: bytes) -> bytes:
    headers = read_headers(section, 0)[0] if section is not None else ()
    return encode_headers((*headers, (name, value)))


# --- claim checks


class ClaimCheckRoom:
    """Keeps values of more than `above` bytes; owned by one task. A value is on the disk before its record is sent, and
    is stored once, however many producers send it.
    """

    def __init__(self, directory: Path, above: int = 0) -> None:
        self._directory = directory
        self._above = above
        self._filesystem = FileSystem()

    def leave(self, rows: Rows) -> Rows:
        """Replaces large values in the rows by references. Raises AccessError if a value can't be kept."""
        is_large = rows.values.sizes > self._above
        if not is_large.any():
            return rows
        values = rows.values.to_pylist()
        headers: list[bytes | None] = [None] * len(values) if rows.headers is None else rows.headers.to_pylist()
        for row in np.flatnonzero(is_large).tolist():
            value = values[row] or b""
            digest = hashlib.sha256(value).hexdigest()
            self._keep(digest, value)
            name = f"sha256:{digest}"
            headers[row] = with_header(headers[row], CLAIM_CHECK_HEADER, name.encode())
            values[row] = json.dumps({"claim_check": name, "size": len(value)}).encode()
        sections = ByteStrings.of_list([_NO_HEADERS if section is None else section for section in headers])
        return rows.with_columns(values=ByteStrings.of_list(values), headers=sections)

    def _path(self, digest: str) -> Path:
        return self._directory / digest[:2] / digest

    def _keep(self, digest: str, value: bytes) -> None:
        path = self._path(digest)
        try:
            if path.exists() and path.stat().st_size == len(value):
                return
            if not path.parent.exists():
                path.parent.mkdir(parents=True)
                self._filesystem.sync_directory(self._directory)
            self._filesystem.write_atomic(path, value)
        except OSError as error:
            raise access_error(error, path, "write") from error

    def redeem(self, chunk: Chunk) -> Chunk:
        """Replaces references in the records by their values, and marks records whose value is missing or differs."""
        rows = rows_with_header(chunk.columns, CLAIM_CHECK_HEADER)
        if not rows:
            return chunk
        values = chunk.columns.values().to_pylist()
        failures: dict[int, PlogError] = {}
        for row, header in rows.items():
            try:
                values[row] = self._fetch(header, chunk, row)
            except PlogError as error:
                values[row], failures[row] = not_decoded_text(values[row] or b"", error), error
                if is_fatal(error):
                    break
        columns = chunk.columns.with_undecoded("value", failures)
        return chunk._replace(columns=columns.with_values(ByteStrings.of_list(values)))

    def _fetch(self, header: bytes, chunk: Chunk, row: int) -> bytes:
        match = _CLAIM_CHECK.fullmatch(header)
        if match is None:
            raise _wrong(chunk, row, f"its header plog-claim-check is {header[:80]!r}")
        digest = match[1].decode()
        path = self._path(digest)
        try:
            value = path.read_bytes()
        except FileNotFoundError:
            hint = f"--claim-check takes the DIR that the record was produced with; {MARKS_HINT}"
            raise _wrong(chunk, row, f"its value is not in {path}", hint) from None
        except OSError as error:
            raise access_error(error, path, "read") from error
        if hashlib.sha256(value).hexdigest() != digest:
            raise _wrong(chunk, row, f"{path} is not the value that was stored there: its SHA-256 differs")
        return value


def _wrong(chunk: Chunk, row: int, problem: str, hint: str = MARKS_HINT) -> SchemaError:
    where = f"{chunk.partition} offset {chunk.columns.offsets[row]}"
    return SchemaError(f"{where}: {problem}", hint=hint, why="without their large value")


def rows_with_header(columns: RecordColumns, name: bytes) -> dict[int, bytes]:
    """Returns, by row, the last value of the header of that name."""
    if not columns.header_counts.any():
        return {}
    headers = columns.header_columns()
    is_it = headers.names().equal(name)
    of_rows = np.repeat(np.arange(len(columns)), headers.counts)[is_it].tolist()
    values = headers.values().take(is_it).to_pylist()
    return {row: value or b"" for row, value in zip(of_rows, values, strict=True)}


# --- slices


def slice_values(rows: Rows, size: int) -> Rows:
    """Splits each larger value into several rows. Line numbers stay those of the input."""
    lengths = rows.values.sizes
    if not (lengths > size).any():
        return rows
    counts = np.maximum(-(-lengths // size), 1)
    values = rows.values.to_pylist()
    headers = [None] * len(values) if rows.headers is None else rows.headers.to_pylist()
    sliced_values: list[bytes | None] = []
    sliced_headers: list[bytes] = []
    for value, header, count in zip(values, headers, counts.tolist(), strict=True):
        if value is None or count == 1:
            sliced_values.append(value)
            sliced_headers.append(_NO_HEADERS if header is None else header)
            continue
        chunk_id, digest = os.urandom(8).hex(), hashlib.sha256(value).hexdigest()
        for index in range(count):
            sliced_values.append(value[index * size : (index + 1) * size])
            mark = f"{chunk_id}/{index}/{count} sha256:{digest}"
            sliced_headers.append(with_header(header, CHUNK_HEADER, mark.encode()))
    repeated = np.repeat(np.arange(len(values)), counts)
    return rows.take(repeated).with_columns(
        values=ByteStrings.of_list(sliced_values), headers=ByteStrings.of_list(sliced_headers)
    )


class _Slices(NamedTuple):
    first_offset: int
    parts: dict[int, bytes]


class Joiner:
    """Joins sliced values; owned by one task."""

    def __init__(self) -> None:
        self._waiting: dict[TopicPartition, dict[bytes, _Slices]] = {}

    def join(self, chunk: Chunk) -> Chunk:
        """Puts whole values in the places of their last slices. Values with missing slices stay open. Marks a value if
        its SHA-256 differs from that in its slices.
        """
        marks = rows_with_header(chunk.columns, CHUNK_HEADER)
        if marks:
            chunk = chunk._replace(columns=self._joined(chunk, marks))
        waiting = self._waiting.get(chunk.partition)
        if not waiting:
            return chunk
        return chunk._replace(next_offset=min(chunk.next_offset, *(s.first_offset for s in waiting.values())))

    def _joined(self, chunk: Chunk, marks: dict[int, bytes]) -> RecordColumns:
        values = chunk.columns.values().to_pylist()
        headers = [chunk.columns.headers(row) for row in range(len(values))]
        is_whole = np.ones(len(values), np.bool_)
        failures: dict[int, PlogError] = {}
        for row, mark in marks.items():
            try:
                values[row] = self._add(chunk, row, mark, values[row] or b"")
            except SchemaError as error:
                values[row], failures[row] = not_decoded_text(values[row] or b"", error), error
            headers[row] = tuple(pair for pair in headers[row] if pair[0] != CHUNK_HEADER)
            is_whole[row] = values[row] is not None
        rows = np.flatnonzero(is_whole).tolist()
        whole = ByteStrings.of_list(values[row] for row in rows)
        return (
            chunk.columns.with_undecoded("value", failures)
            .select(is_whole)
            .with_values(whole)
            .with_headers([headers[row] for row in rows])
        )

    def _add(self, chunk: Chunk, row: int, mark: bytes, part: bytes) -> bytes | None:
        """Returns the value if this was the last missing slice, or None."""
        match = _CHUNK.fullmatch(mark)
        if match is None:
            raise _wrong(chunk, row, f"its header plog-chunk is {mark[:120]!r}")
        chunk_id, index, count = match[1], int(match[2]), int(match[3])
        waiting = self._waiting.setdefault(chunk.partition, {})
        slices = waiting.setdefault(chunk_id, _Slices(int(chunk.columns.offsets[row]), {}))
        slices.parts.setdefault(index, part)
        if len(slices.parts) < count:
            return None
        del waiting[chunk_id]
        value = b"".join(part for _, part in sorted(slices.parts.items()))
        if hashlib.sha256(value).hexdigest().encode() != match[4]:
            raise _wrong(chunk, row, "the slices do not make the value that was sliced: its SHA-256 differs")
        return value

    def incomplete(self) -> list[tuple[TopicPartition, int]]:
        """Lists the beginnings of values with missing slices: (partition, offset of the first known slice)."""
        return sorted((tp, s.first_offset) for tp, waiting in self._waiting.items() for s in waiting.values())
