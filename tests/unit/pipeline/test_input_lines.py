"""Lines of an input, by whatever ends them and however it comes in pieces."""

from __future__ import annotations

import gzip
from pathlib import Path

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


def test_lines_that_are_compressed_are_refused(tmp_path: Path) -> None:
    """They would be records of binary garbage."""
    (tmp_path / "lines.gz").write_bytes(gzip.compress(b"one\ntwo\n"))
    with pytest.raises(UsageError, match="is compressed by gzip"):
        list(read_lines([tmp_path / "lines.gz"]))
