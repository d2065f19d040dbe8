"""What lies at a byte of a log is found near it, and is what a walk over the whole file says."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

import core.view.bytes.batch_lookup
from core.common.filesystem import File, FileSystem, open_regular
from core.common.salvaging_file import open_salvaging
from core.files.file_names import base_offset_of, find_following
from core.forensics.batch_scanner import BatchScanner
from core.forensics.damage import Damage
from core.view.bytes.batch_lookup import BatchLookup, LogItem
from tests.support.bad_disk import break_disk
from tests.support.damage import plant, write_log
from tests.support.for_each import for_each
from tests.support.golden import GOLDEN
from tests.support.logs import NOW, append, make_batch, open_log

DAMAGED = sorted((GOLDEN.parent / "damage").glob("*/*-0/*.log"))
LOGS = [path for path in [*DAMAGED, *GOLDEN.glob("c_*/*.log")] if path.is_file() and path.stat().st_size < 1_000_000]
LOGS += [*GOLDEN.glob("mixed_v0_v1_v2/*.log"), *GOLDEN.glob("v1_multisegment/*.log")]


@contextmanager
def items_of(path: Path) -> Iterator[BatchLookup]:
    file = open_salvaging(path)
    items = BatchLookup(path, file, base_offset_of(path))
    try:
        yield items
    finally:
        items.close()
        file.close()


def walked(path: Path) -> list[tuple[int, int, str | None]]:
    """(start, end, message of the damage) of all there is, by a walk from the file's first byte."""
    walk = BatchScanner(path, base_offset_of(path), find_following(path))
    try:
        return [
            (one.position, one.end_position, one.message)
            if isinstance(one, Damage)
            else (one.position, one.position + one.size_bytes, None)
            for one in walk
        ]
    finally:
        walk.close()


def told(item: LogItem) -> tuple[int, int, str | None]:
    return item.start, item.end, None if item.damage is None else item.damage.message


def assert_same_from_anywhere(path: Path, random: Random, count: int = 12) -> None:
    expected = walked(path)
    size_bytes = path.stat().st_size
    positions = [random.randrange(size_bytes) for _ in range(count)] if size_bytes else []
    starts = [start for start, _, message in expected if message is not None][:3]
    for position in positions + starts:
        wanted = next(one for one in expected if one[0] <= position < one[1])
        with items_of(path) as fresh:
            assert told(fresh.at(position)) == wanted
    with items_of(path) as items:
        for position in [*positions, *sorted(positions, reverse=True)]:
            assert told(items.at(position)) == next(one for one in expected if one[0] <= position < one[1])


@for_each("path", LOGS, ids=lambda path: f"{path.parent.parent.name}/{path.parent.name}/{path.name}")
def test_damaged_logs_are_the_same_from_anywhere(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core.view.bytes.batch_lookup, "_FAR_BYTES", 300)
    monkeypatch.setattr(core.view.bytes.batch_lookup, "_HOP_BYTES", 200)
    monkeypatch.setattr(core.view.bytes.batch_lookup, "_READ_BYTES", 512)
    assert_same_from_anywhere(path, Random(path.name))


@for_each("seed", range(12))
def test_random_damage_is_the_same_from_anywhere(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(seed)
    write_log(tmp_path / "t-0", random, 40)
    plant(tmp_path / "t-0", random)
    if seed % 3 == 0:
        for index in tmp_path.rglob("*.index"):
            index.unlink()
    elif seed % 3 == 1:
        for index in tmp_path.rglob("*.index"):
            index.write_bytes(random.randbytes(len(index.read_bytes())))
    monkeypatch.setattr(core.view.bytes.batch_lookup, "_FAR_BYTES", random.choice((100, 1000, 1 << 20)))
    monkeypatch.setattr(core.view.bytes.batch_lookup, "_HOP_BYTES", 100)
    for path in (tmp_path / "t-0").glob("*.log"):
        assert_same_from_anywhere(path, random, 6)


def test_few_are_kept_and_all_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core.view.bytes.batch_lookup, "_MOST_KNOWN", 3)
    path = GOLDEN / "c_bitflip_middle.corrupt" / "00000000000000000000.log"
    assert_same_from_anywhere(path, Random(0))


# --- no more is read than it takes


class CountingFile(File):
    """Counts the bytes that are read."""

    __slots__ = ()
    read = 0

    def read_at(self, size: int, position: int) -> bytes:
        data = super().read_at(size, position)
        CountingFile.read += len(data)
        return data


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """A segment of 6 MB, with its indexes."""
    log = open_log(tmp_path / "t-0", segment_bytes=1 << 30)
    for number in range(300):
        append(log, make_batch(bytes(20_000), timestamp=NOW + number))
    log.close()
    (path,) = (tmp_path / "t-0").glob("*.log")
    return path


@pytest.mark.parametrize(("has_index", "most"), [(True, 300_000), (False, 2_500_000)])
def test_a_jump_reads_what_is_near(large: Path, has_index: bool, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if not has_index:
        large.with_suffix(".index").unlink()
    expected = walked(large)
    monkeypatch.setattr(FileSystem, "open_read", lambda _, path: CountingFile(path, open_regular(path, os.O_RDONLY)))
    CountingFile.read = 0
    with items_of(large) as items:
        assert told(items.at(large.stat().st_size - 1)) == expected[-1]
        assert CountingFile.read < most
        before = CountingFile.read
        assert told(items.at(large.stat().st_size // 2)) in expected
        assert CountingFile.read - before < 300_000, "the places that were come by are known"
        before = CountingFile.read
        (found,) = [one for one in items.find_offset(150) if isinstance(one, LogItem)]
        assert told(found) == expected[150]
        assert CountingFile.read - before < (300_000 if has_index else 1_500_000)


def test_steps_come_before_a_far_byte_is_found(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    large.with_suffix(".index").unlink()
    monkeypatch.setattr(core.view.bytes.batch_lookup, "_REPORT_HEADERS", 10)
    with items_of(large) as items:
        steps = list(items.find(large.stat().st_size - 1))
        assert len(steps) > 20
        assert steps == sorted(steps)
        assert list(items.find(large.stat().st_size - 1)) == []


# --- files that change


def test_what_was_appended_is_there_after_another_look(tmp_path: Path) -> None:
    source = GOLDEN / "multisegment_zstd" / "00000000000000000000.log"
    path = tmp_path / source.name
    ends = [end for _, end, _ in walked(source)]
    whole = source.read_bytes()
    path.write_bytes(whole[: ends[2] + 30])
    with items_of(path) as items:
        torn = items.at(ends[2] + 3)
        assert torn.damage is not None
        assert torn.end == ends[2] + 30
        path.write_bytes(whole)
        items.look_again()
        assert told(items.at(ends[2] + 3)) == (ends[2], ends[3], None)
        assert told(items.at(len(whole) - 1))[1] == len(whole)
        os.truncate(path, ends[1])
        items.look_again()
        assert items.size_bytes == ends[1]
        assert told(items.at(ends[1] - 1)) == (ends[0], ends[1], None)
        with pytest.raises(IndexError):
            items.at(ends[1])


def test_a_bad_sector_is_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = GOLDEN / "multisegment" / "00000000000000000000.log"
    path = tmp_path / source.name
    shutil.copy(source, path)
    break_disk(monkeypatch, {path: [5000]})
    expected = walked(path)
    with items_of(path) as items:
        item = items.at(5000)
        assert told(item) in expected
        assert item.damage is not None
        assert "could not be read: input/output error" in item.damage.message


def test_damage_that_held_an_offset_is_found_by_it() -> None:
    path = GOLDEN / "c_bitflip_middle.corrupt" / "00000000000000000000.log"
    (damage,) = [one for one in walked(path) if one[2] is not None]
    (first,) = struct.unpack_from(">q", path.read_bytes(), damage[0])
    with items_of(path) as items:
        (found,) = [one for one in items.find_offset(first) if isinstance(one, LogItem)]
        assert told(found) == damage
        (after,) = [one for one in items.find_offset(found.damage.end_offset) if isinstance(one, LogItem)]  # type: ignore[union-attr, arg-type]
        assert after.start == damage[1]
        assert [one for one in items.find_offset(10**6) if isinstance(one, LogItem)] == []
