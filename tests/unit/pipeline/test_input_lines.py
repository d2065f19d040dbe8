"""Lines of an input, by whatever ends them and however it comes in pieces."""

from __future__ import annotations

import bz2
import gzip
import lzma
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from core.common.errors import UsageError
from core.pipeline import input_lines
from core.pipeline.input_lines import read_lines
from tests.support.for_each import for_each

TEXTS = [
    b"",
    b"|",
    b"||",
    b"|||",
    b"a",
    b"a|",
    b"a||",
    b"a|||b",
    b"a||||b|||",
    b"||a|",
    b"one||two|three||",
    b"|a||b" * 9,
]


@for_each("chunk_bytes", [1, 2, 3, 5, 1000])
@for_each("delimiter", [b"|", b"||", b"a||", b"\n"])
@for_each("text", TEXTS)
def test_lines_as_split_has_them(
    text: bytes, delimiter: bytes, chunk_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(input_lines, "_CHUNK_BYTES", chunk_bytes)
    path = tmp_path / "input"
    path.write_bytes(text)
    expected = text.split(delimiter)
    if not expected[-1]:
        del expected[-1]
    found = list(read_lines([path, path], delimiter))
    counts = [lines.count for lines in found]
    assert counts == [len(lines.texts) for lines in found], "without being split"
    assert [line for lines in found for line in lines] == expected * 2
    assert b"".join(lines.text for lines in found) == text * 2
    assert [lines.first_row for lines in found] == [sum(map(len, found[:i])) for i in range(len(found))]
    for lines in found:
        assert [list(lines.head(count)) for count in range(len(lines) + 1)] == [
            list(lines)[:count] for count in range(len(lines) + 1)
        ]


def test_files_without_lines_are_refused(tmp_path: Path) -> None:
    """They would be records of binary garbage."""
    table = pa.table({"a": [1]})
    path = tmp_path / "file"
    pq.write_table(table, path)
    files = {"a Parquet file": path.read_bytes()}
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)
    files["an Arrow file"] = path.read_bytes()
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("lines", "one")
    files["a zip archive"] = path.read_bytes()
    files["gzip"], files["bzip2"], files["xz"] = (module.compress(b"one\n") for module in (gzip, bz2, lzma))
    files["zstd"] = pa.compress(b"one\n", "zstd", asbytes=True)
    files["a container file of Avro"] = b"Obj\x01\x04\x14avro.codec"
    for what, data in files.items():
        path.write_bytes(data)
        with pytest.raises(UsageError, match=f"is .*{what}"):
            list(read_lines([path]))
    path.write_bytes(files["zstd"])
    assert list(read_lines([path], b"\0")), "with another delimiter it may be anything"
