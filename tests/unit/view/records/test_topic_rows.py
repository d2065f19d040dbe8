"""The rows of several partitions by time, against a list of all of them that is sorted."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path

import pytest

from core.common.topic_partition import TopicPartition
from core.pipeline.session import Session
from core.records.record_filter import parse_filter
from core.view.records import topic_rows
from core.view.records.log_rows import RowKind
from core.view.records.topic_rows import TopicRows
from core.view.target.inspect_target import InspectTarget, open_places
from tests.support.server import call_plog


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """300 records in three partitions, many of one time, some out of order; transactions, and an empty partition."""
    made = tmp_path_factory.mktemp("topic-rows") / "data"
    place = ["--data-dir", str(made)]
    assert call_plog("topic", "create", "t", "--partitions", "4", "--set", "retention.ms=-1", *place).returncode == 0
    chance = random.Random(5)
    for number in range(6):
        lines = [
            json.dumps({"partition": chance.randrange(3), "timestamp": at, "value": str(chance.randrange(9))})
            for at in sorted(chance.randrange(1000 * number, 1000 * number + 1500, 100) for _ in range(50))
        ]
        within = ["--transactional-id", "i"] if number % 2 else []
        done = call_plog("produce", "t", "--format", "envelope", *within, *place, stdin="\n".join(lines).encode())
        assert done.returncode == 0, done.stderr
    return made


def opened(directory: Path) -> TopicRows:
    target = open_places([], Session(directory=directory), lambda _: False).inspected
    return TopicRows([target.rows(TopicPartition("t", number)) for number in range(4)], target.source.offsets_at)


def expected(target: InspectTarget, value: bytes | None = None) -> list[tuple[int, int]]:
    """Partition and offset of each row, sorted by the latest time so far, the partition and the offset."""
    found = []
    for number in range(4):
        rows, latest = target.rows(TopicPartition("t", number)), -1
        for row in rows.rows_from(0):
            if row is not None and value in (None, row.value):
                latest = max(latest, row.timestamp or 0)
                found.append((latest, number, row.offset))
    return [(number, offset) for _, number, offset in sorted(found)]


def test_rows_are_in_order_of_time_from_wherever_they_are_read(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_rows, "_NEAR", 5)
    whole = [row for row in opened(directory).rows_from(0) if row is not None]
    target = open_places([], Session(directory=directory), lambda _: False).inspected
    origins = [(row.origin[0].partition, row.origin[1]) for row in whole if row.origin is not None]
    assert origins == expected(target)
    assert sum(row.kind is RowKind.MARKER for row in whole) > 5
    places = [row.offset for row in whole]
    assert places == [0, *itertools.accumulate(row.end - row.offset for row in whole)][:-1]
    assert opened(directory).end_offset == whole[-1].end
    known = opened(directory)
    for start in range(0, len(places), 7):
        for rows in opened(directory), known:
            found = [row for row in rows.rows_from(places[start]) if row is not None]
            assert [(row.offset, row.origin) for row in found] == [(row.offset, row.origin) for row in whole[start:]]
            *_, before = rows.rows_before(places[start], 20)
            assert [row.origin for row in before or ()] == [row.origin for row in whole[max(start - 20, 0) : start]]


def test_a_filter_goes_on_where_it_was(directory: Path) -> None:
    wanted = parse_filter('value == "7"', 0)
    whole = [row for row in opened(directory).rows_from(0, wanted) if row is not None]
    assert {row.value for row in whole} == {b"7"}
    target = open_places([], Session(directory=directory), lambda _: False).inspected
    origins = [(row.origin[0].partition, row.origin[1]) for row in whole if row.origin is not None]
    assert origins == expected(target, b"7")
    rows = opened(directory)
    found = []
    place = 0
    while True:  # one row, then on from its end, or from where the search was
        row = next((row for row in rows.rows_from(place, wanted) if row is not None), None)
        if row is None:
            break
        found.append(row.origin)
        place = max(row.end, rows.position)
    assert found == [row.origin for row in whole]


def test_a_time_and_a_record_have_a_place(directory: Path) -> None:
    rows = opened(directory)
    whole = [row for row in rows.rows_from(0) if row is not None]
    for row in whole[::11]:
        if row.kind is RowKind.RECORD and row.origin is not None and row.timestamp is not None:
            *_, place = rows.find_place(*row.origin, row.timestamp)
            assert place == row.offset
    assert rows.place_at(1 << 42) == rows.end_offset
    assert rows.place_at(0) == 0
