"""The files of a partition's folder, and those of the data directory's root about its logs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from core.common.errors import PlogError
from core.common.filesystem import access_error, accessing
from core.common.salvaging_file import open_salvaging
from core.files.file_names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOCK,
    SET_ASIDE,
    SPARSE_INDEXES,
    SWAP_SUFFIX,
    is_folder,
    parse_offset_file_name,
)
from core.files.login_secret import LOGIN_SECRET
from core.files.owner_socket_file import OWNER_SOCKET
from core.files.producer_snapshot import count_producers
from core.forensics.cut_off_tails import CUT_AT
from core.forensics.damage import DamagedRange
from core.index.transaction_index import ENTRY as TRANSACTION_ENTRY
from core.inspector.check.file_kind import FileKind, ensure_regular, is_named_by_kafka, kind_of
from core.inspector.check.segment_check import IndexEntries, OffsetIndexCheck, TimeIndexCheck
from core.view.files.checkpoint_tables import LeaderEpochTable, OffsetCheckpointTable, PartitionMetadataTable
from core.view.files.file_table import FileTable, ListedTable, read_cells
from core.view.files.index_tables import OffsetIndexTable, TimeIndexTable
from core.view.files.producer_tables import SnapshotTable, TransactionIndexTable


class FileEntry(NamedTuple):
    """A file of a folder; `what` describes it, also if it is not one of Kafka's kinds. A file that `is_missing` should
    exist, as its log has batches.
    """

    path: Path
    what: str
    kind: FileKind | None
    size_bytes: int
    is_missing: bool = False


def list_files(folder: Path) -> list[FileEntry]:
    """Lists a folder's files in order of their names, and folders that have the name of a file of Kafka's. Raises
    AccessError if the folder can't be read.
    """
    found = []
    with accessing(folder):
        for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
            path = folder / entry.name
            if not is_folder(entry) or is_named_by_kafka(path):
                kind = kind_of(path)
                found.append(FileEntry(path, what_is(entry.name, kind), kind, _size_of(entry)))
    return sorted([*found, *_missing(found)])


def _missing(files: Sequence[FileEntry]) -> Iterator[FileEntry]:
    paths = {file.path for file in files}
    for file in files:
        if file.kind is FileKind.LOG and file.size_bytes and parse_offset_file_name(file.path.name):
            for suffix in SPARSE_INDEXES:
                path = file.path.with_suffix(suffix)
                if path not in paths:
                    kind = kind_of(path)
                    yield FileEntry(path, f"{what_is(path.name, kind)}, which is missing", kind, 0, is_missing=True)


def _size_of(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat().st_size
    except OSError:  # it went meanwhile, or is a link that leads nowhere
        return 0


def what_is(name: str, kind: FileKind | None) -> str:
    if kind is not None:
        return kind.value
    if SET_ASIDE in name:
        return "set aside by a recovery"
    if CUT_AT in name:
        return "cut off by a start"
    others = {
        LOCK: "lock of the directory",
        OWNER_SOCKET: "socket of the broker",
        LOGIN_SECRET: "secret of the broker's logins",
        DELETED_SUFFIX: "to be deleted",
        SWAP_SUFFIX: "of a compaction that was not finished",
        CLEANED_SUFFIX: "of a compaction that was not finished",
    }
    return next((what for ending, what in others.items() if name.endswith(ending)), "")


class EntryCount(NamedTuple):
    """The number of a file's entries, or None for a log or a file that is not Kafka's. `problem` says why the file
    can't be read, or is "".
    """

    entries: int | None = None
    problem: str = ""


def count_entries(file: FileEntry) -> EntryCount:
    """Counts a file's entries; not a log's batches, as that would read all of it."""
    if file.kind is None or file.kind not in _TABLES:
        return EntryCount()
    if file.is_missing:
        return EntryCount(None, "there is a .log, but not this index")
    try:
        ensure_regular(file.path)
        if file.kind in _COUNTED:
            return EntryCount(_COUNTED[file.kind](file.path))
        rows, problem = read_cells(file.path, file.kind)
        is_empty = not rows and not file.size_bytes
        return EntryCount(len(rows), "" if problem is None or is_empty else problem)
    except PlogError as error:
        return EntryCount(None, error.message)
    except OSError as error:
        return EntryCount(None, access_error(error, file.path, "read").message)


def _count_of(check: type[OffsetIndexCheck | TimeIndexCheck]) -> Callable[[Path], int]:
    def count(path: Path) -> int:
        file = open_salvaging(path)
        try:
            return len(IndexEntries(file, check.ENTRY))
        finally:
            file.close()

    return count


_COUNTED: dict[FileKind | None, Callable[[Path], int]] = {
    FileKind.OFFSET_INDEX: _count_of(OffsetIndexCheck),
    FileKind.TIME_INDEX: _count_of(TimeIndexCheck),
    FileKind.TRANSACTION_INDEX: lambda path: path.stat().st_size // TRANSACTION_ENTRY.size,
    FileKind.PRODUCER_SNAPSHOT: lambda path: count_producers(path.stat().st_size),
}


def has_table(path: Path) -> bool:
    return kind_of(path) in _TABLES


def open_table(path: Path) -> FileTable | None:
    """Opens a file as a table, or returns None for a log or a file that is not Kafka's. Raises AccessError if it can't
    be read.
    """
    if not has_table(path):
        return None
    ensure_regular(path)
    return _TABLES[kind_of(path)](path)


_LISTED: dict[FileKind, Sequence[str]] = {
    FileKind.DAMAGED_RANGES: DamagedRange._fields,
    FileKind.META_PROPERTIES: ("version", "cluster_id", "node_id", "directory_id"),
    FileKind.CLEAN_SHUTDOWN: ("version", "broker_epoch"),
}
"""The columns of files of which there is nothing to compare with the log."""

_TABLES: dict[FileKind | None, Callable[[Path], FileTable]] = {
    FileKind.OFFSET_INDEX: OffsetIndexTable,
    FileKind.TIME_INDEX: TimeIndexTable,
    FileKind.TRANSACTION_INDEX: TransactionIndexTable,
    FileKind.PRODUCER_SNAPSHOT: SnapshotTable,
    FileKind.LEADER_EPOCHS: LeaderEpochTable,
    FileKind.OFFSET_CHECKPOINT: OffsetCheckpointTable,
    FileKind.PARTITION_METADATA: PartitionMetadataTable,
    **{kind: partial(ListedTable, kind=kind, columns=columns) for kind, columns in _LISTED.items()},
}
