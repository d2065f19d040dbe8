"""Every read, every opening and every listing fails once, in turn, under each model of `plog inspect`: it says so in an
error that a screen shows, or gives what it knows.
"""

from __future__ import annotations

import errno
import inspect
import os
import shutil
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import settings

from core.common.errors import PlogError
from core.common.filesystem import File, FileSystem
from core.common.topic_partition import TopicPartition
from core.inspector.check.segment_check import VerifyOptions
from core.inspector.recover.recovery_plan import RecoveryOptions
from core.pipeline.session import Session
from core.view.bytes.field_bytes import FieldBytes
from core.view.figures import partition_map
from core.view.figures.topic_figures import TopicFigures
from core.view.files.partition_files import count_entries, list_files, open_table
from core.view.files.verification import RecoveryPlan, Verification
from core.view.groups.known_groups import KnownGroups
from core.view.groups.known_transactions import KnownTransactions
from core.view.records.log_rows import RowKind
from core.view.target.inspect_target import InspectTarget, open_places
from tests.support.for_each import for_each
from tests.support.golden import GOLDEN

PARTITION = TopicPartition("txn_multisegment", 0)
OFFSETS = 226
"""Of the log; none of them is without a record or a marker."""

EVERY_CALL_OF = settings().max_examples
"""A model that makes at most so many calls is tried with each of them, which are all models in scripts/torture. Of
another one the last call of each place in the code fails.
"""


def inspected(root: Path) -> InspectTarget:
    return open_places([str(root)], Session(directory=root), lambda _: True).inspected


def read_rows(root: Path) -> None:
    """Whatever is not there, something is said of it."""
    looked_at = inspected(root)
    rows = looked_at.rows(PARTITION)
    found = [row for row in rows.rows_from(rows.start_offset) if row is not None]
    there = sum(row.end - row.offset for row in found if row.kind is not RowKind.GAP)
    assert there == OFFSETS or any(row.is_loss for row in found) or rows.notes or looked_at.notes
    list(rows.rows_before(rows.end_offset, 5))
    rows.refresh()
    for row in found[:1]:
        rows.file_of(row)


def read_bytes(root: Path) -> None:
    for path in sorted((root / str(PARTITION)).iterdir()):
        with closing(FieldBytes(path)) as of:
            of.fields_in(0, min(of.size_bytes, 400))
            of.field_at(max(of.size_bytes - 1, 0))
            of.following("item", 0)


def read_map(root: Path) -> None:
    of = partition_map.read_map(root / str(PARTITION)).find_open()
    of.facts(0)
    of.offset_at(1, of.size_bytes - 1)


def read_tables(root: Path) -> None:
    for file in list_files(root / str(PARTITION)) + list_files(root):
        count_entries(file)
        table = open_table(file.path)
        if table is not None:
            with closing(table):
                table.rows(0, min(table.count, 5))


def read_groups(root: Path) -> None:
    with closing(KnownGroups(inspected(root))) as groups:
        for group in groups.list_groups().groups:
            groups.describe(group.group_id)


MODELS: dict[str, Callable[[Path], object]] = {
    "rows": read_rows,
    "partitions": lambda root: inspected(root).describe(PARTITION.topic),
    "bytes": read_bytes,
    "map": read_map,
    "tables": read_tables,
    "groups": read_groups,
    "transactions": lambda root: list(KnownTransactions(inspected(root)).steps())[-1],
    "topics": lambda root: list(TopicFigures(inspected(root)).steps())[-1],
    "verify": lambda root: Verification(root, VerifyOptions()).run(),
    "plan": lambda root: RecoveryPlan(root, RecoveryOptions()).run(),
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with a transactional log, groups and transactions."""
    folder = tmp_path_factory.mktemp("reads") / "data"
    shutil.copytree(GOLDEN / "_root", folder)
    shutil.copytree(GOLDEN / "txn_multisegment", folder / str(PARTITION))
    for name in ("__consumer_offsets-0", "__consumer_offsets-1", "__transaction_state-0"):
        shutil.copytree(GOLDEN / name, folder / name)
    return folder


@contextmanager
def failing(number: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[object]]:
    """Lets the call of that number fail, of those that read a file, open it, or list a folder; -1 is none. Gives where
    the calls come from, in the order in which they are made.
    """
    calls: list[object] = []

    def counted(call: Callable[..., object]) -> Callable[..., object]:
        def run(*arguments: object, **named: object) -> object:
            callers = islice(traceback.walk_stack(inspect.currentframe()), 1, 4)
            calls.append(tuple((frame.f_code, line) for frame, line in callers))
            if len(calls) - 1 == number:
                raise OSError(errno.EIO, "Input/output error", str(arguments[0]))
            return call(*arguments, **named)

        return run

    with monkeypatch.context() as patch:
        patch.setattr(File, "read_at", counted(File.read_at))
        patch.setattr(FileSystem, "open_read", counted(FileSystem.open_read))
        patch.setattr(os, "scandir", counted(os.scandir))
        yield calls


@for_each("model", MODELS)
def test_a_read_that_fails_is_an_error_that_a_screen_shows(
    model: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with failing(-1, monkeypatch) as calls:
        MODELS[model](root)
    assert len(calls) > 1
    last_of_places = {place: number for number, place in enumerate(calls)}.values()
    for number in range(len(calls)) if len(calls) <= EVERY_CALL_OF else last_of_places:
        with failing(number, monkeypatch), suppress(PlogError, OSError):
            MODELS[model](root)
