from __future__ import annotations

from pathlib import Path

import pytest

from core.common.errors import CorruptRecordError
from core.common.filesystem import FileSystem
from core.index.transaction_index import AbortedTransaction, TransactionIndex, parse_transaction_index
from tests.support.for_each import for_each

FIRST = AbortedTransaction(7, 10, 20, 15)
SECOND = AbortedTransaction(8, 12, 30, 31)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "00000000000000000000.txnindex"


def test_the_bytes_of_an_entry(path: Path) -> None:
    TransactionIndex(path, FileSystem()).append(FIRST)
    assert path.read_bytes().hex(" ", 2).replace(" ", "") == (
        "00000000000000000007000000000000000a0000000000000014000000000000000f"
    )


def test_each_change_is_in_the_file_at_once(path: Path) -> None:
    index = TransactionIndex(path, FileSystem())
    assert (index.entries(), path.exists()) == ([], False)
    index.append(FIRST)
    index.append(SECOND)
    assert TransactionIndex(path, FileSystem()).entries() == [FIRST, SECOND]
    index.truncate_to(30)  # what ended there goes, too
    assert TransactionIndex(path, FileSystem()).entries() == index.entries() == [FIRST]
    index.reset()
    assert (index.entries(), path.exists()) == ([], False)


@for_each(
    "data, message",
    [
        (bytes(33), "33 bytes, expected a multiple of 34"),
        (b"\x00\x01" + bytes(32), "aborted transaction of version 1"),
        (bytes(10) + (5).to_bytes(8) + (4).to_bytes(8) + bytes(8), "from offset 5 to 4"),
        (2 * (bytes(10) + (5).to_bytes(8) + (6).to_bytes(8) + bytes(8)), "ends at offset 6, the one before at 6"),
    ],
)
def test_what_is_no_index(data: bytes, message: str) -> None:
    with pytest.raises(CorruptRecordError, match=message):
        parse_transaction_index(data, "x.txnindex")
