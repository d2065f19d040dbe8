"""Transaction indexes of Kafka's, as they are and edited, held against the batches of their logs."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

from core.files.file_names import find_offset_files
from core.forensics.shadow_layout import TransactionIndexCheck
from core.index.transaction_index import parse_transaction_index
from core.records.batches import iter_whole_batches
from tests.support.for_each import for_each
from tests.support.golden import GOLDEN, directories


def wrong_indexes(folder: Path, edit: Callable[[bytes], bytes] = lambda data: data) -> list[int]:
    """The base offsets of the segments with one; the first segment's is edited before."""
    follower, found = TransactionIndexCheck(), []
    for number, (base_offset, path) in enumerate(find_offset_files(folder, ".log")):
        for batch in iter_whole_batches(memoryview(path.read_bytes())):
            follower.see(batch)
        index = path.with_suffix(".txnindex")
        data = index.read_bytes() if index.exists() else b""
        if not follower.end_segment(parse_transaction_index(data if number else edit(data))):
            found.append(base_offset)
    return found


def committed_with_an_entry(data: bytes) -> bytes:
    """The commit of producer 42 at offset 64 is called an abort."""
    entries = [data[at : at + 34] for at in range(0, len(data), 34)]
    made = struct.pack(">hqqqq", 0, 42, 35, 64, 65)
    return b"".join(sorted([*entries, made], key=lambda entry: struct.unpack(">hqqqq", entry)[3]))


def begun_before_a_marker(data: bytes) -> bytes:
    """The producer's next aborted transaction begins at offset 35, where one began that was committed."""
    entries = parse_transaction_index(data)
    number = next(n for n, entry in enumerate(entries) if entry.producer_id == 42 and entry.last_offset > 64)
    entries[number] = entries[number]._replace(first_offset=35)
    return b"".join(struct.pack(">hqqqq", 0, *entry) for entry in entries)


def with_first_entry(**fields: int) -> Callable[[bytes], bytes]:
    """The aborted transaction of producer 42 with offsets 9 to 32, changed."""
    return lambda data: struct.pack(">hqqqq", 0, *parse_transaction_index(data)[0]._replace(**fields)) + data[34:]


EDITS: dict[str, Callable[[bytes], bytes]] = {
    "without its first entry": lambda data: data[34:],
    "empty": lambda _: b"",
    "with an entry too many": committed_with_an_entry,
    "with one of nothing": lambda data: struct.pack(">hqqqq", 0, 7, 3, 5, 6) + data,
    "of another producer": with_first_entry(producer_id=43),
    "begun too late": with_first_entry(first_offset=10),
    "more is called stable": with_first_entry(last_stable_offset=34),
    "begun too early": begun_before_a_marker,
}


@for_each("edit", EDITS)
def test_an_index_that_the_log_contradicts(edit: str) -> None:
    assert wrong_indexes(GOLDEN / "txn_multisegment", EDITS[edit]) == [0]


INDEXED = [path for path in directories() if list(path.glob("*.txnindex")) and path.suffix != ".corrupt"]


@for_each("folder", INDEXED, ids=lambda folder: folder.name)
def test_no_transaction_index_of_kafkas_is_wrong(folder: Path) -> None:
    """Compacted ones included."""
    assert not wrong_indexes(folder)
