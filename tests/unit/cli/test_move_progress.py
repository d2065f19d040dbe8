"""How far a move is, in a line on terminals of several widths, and in rows; by a clock that the test moves."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from cli.cluster import reassignment_common
from cli.cluster.reassignment_common import MoveProgress, say_progress, watch, write_progress
from cli.output import OutputFormat
from core.client.cluster_admin import cluster_partitions
from core.client.cluster_admin.reassignment_watch import CopiedBytes, MovedSoFar
from core.cluster.assignment.planned_move import PlannedMove
from core.common.topic_partition import TopicPartition

MB = 1 << 20
T0, T1, T2 = (TopicPartition("t", number) for number in range(3))
MOVES = [
    PlannedMove(T0, (1,), (2,), 100 * MB), PlannedMove(T1, (1,), (2, 3), 50 * MB), PlannedMove(T2, (1,), (3,)),
]  # fmt: skip
STATE = MovedSoFar(3, [T1, T2], 120 * MB, 80 * MB, {T1: CopiedBytes(20 * MB, 80 * MB)})


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.mark.parametrize(
    ("width", "line"),
    [
        (100, "1 of 3 partitions are moved, 120.0 MB of 200.0 MB, 1 of unknown size, 2.0 MB/s, 40s left"),
        (80, "1 of 3 moved, 120.0 MB of 200.0 MB, 2.0 MB/s, 40s left"),
        (50, "120.0 MB of 200.0 MB, 2.0 MB/s, 40s left"),
        (40, "120.0 MB of 200.0 MB, 40s left"),
        (20, "120.0 MB of 200.0 M"),
    ],
)
def test_what_matters_less_gives_way_first(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], width: int, line: str
) -> None:
    clock = Clock()
    monkeypatch.setattr(reassignment_common, "time", clock)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(width))
    progress = MoveProgress()
    progress.show(MovedSoFar(3, [T0, T1, T2], 100 * MB, 100 * MB, {}))
    capsys.readouterr()
    clock.now_s = 10.0
    progress.show(STATE)
    assert capsys.readouterr().err == "\r\x1b[K" + line


def test_without_sizes_the_partitions_are_counted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "20")
    MoveProgress().show(MovedSoFar(3, [T1], 0, None, {}))
    assert capsys.readouterr().err == "\r\x1b[K2 of 3 moved"


def test_rows_say_what_is_copied_and_what_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    write_progress(MOVES, STATE, OutputFormat.json)
    rows = {row["partition"]: row for row in json.loads(capsys.readouterr().out)}
    named = ("moved_bytes", "copied_bytes", "left_bytes")
    assert {name: tuple(row[column] for column in named) for name, row in rows.items()} == {
        "t-0": (100 * MB, 100 * MB, 0),
        "t-1": (100 * MB, 20 * MB, 80 * MB),
        "t-2": (None, None, None),
    }
    assert (rows["t-1"]["from"], rows["t-1"]["to"], rows["t-1"]["copies_to"]) == ([1], [2, 3], [2, 3])
    write_progress(MOVES, STATE, OutputFormat.table)
    assert capsys.readouterr().out.splitlines()[0].split() == [
        "partition", "from", "to", "copies_to", "copied_bytes", "left_bytes",
    ]  # fmt: skip


def test_no_plan_is_said_but_what_is_under_way(capsys: pytest.CaptureFixture[str]) -> None:
    say_progress(MOVES, STATE)
    assert capsys.readouterr().err.splitlines() == [
        "3 partitions are being moved, 4 new replicas: 120.0 MB of 200.0 MB copied, 80.0 MB left",
        "note: the sizes of 1 of the partitions are not known",
    ]


def test_where_the_partitions_are_in_the_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cluster_partitions, "read_partitions", lambda *_: [])
    anything: Any = SimpleNamespace(
        has_throttle=False, watch=lambda _moves: [STATE], find_missed=lambda _moves: [MOVES[1]]
    )
    assert watch(anything, anything, MOVES, MoveProgress()) == 1
    assert capsys.readouterr().err.splitlines() == [
        "error: t-1 is not on 2,3: its move was cancelled, or changed by somebody else",
        "2 of 3 partitions are where they should be",
    ]
