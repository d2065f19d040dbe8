"""What a replay says of itself: on its way, and as one object at its end."""

from __future__ import annotations

import contextlib
import csv
import json
from io import StringIO

import pytest

from cli.output import OutputFormat
from cli.replay_progress import ReplayProgress, ReplayReport
from core.common.errors import AccessError
from core.common.topic_partition import TopicPartition
from core.spark.offset_range import OffsetRange
from core.spark.range_output import Receipt, WrittenFile
from tests.support.for_each import for_each

RECEIPTS = [
    Receipt("a", (WrittenFile("a.parquet", 30, "", 5),), 30, left_out=("t-0: 3 offsets",)),
    Receipt("b", (WrittenFile("b.parquet", 40, "", 6),), 40, left_out=("t-0: 3 offsets",)),
]


def test_a_line_has_what_is_left_and_what_came_since(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now, ends = [100.0], {TopicPartition("t", 0): 30, TopicPartition("t", 1): 10}
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    monkeypatch.setattr("cli.replay_progress._Lag._look", lambda *_: dict(ends))
    ranges = [OffsetRange("t", 0, 0, 20, 2048, servers="a:1"), OffsetRange("t", 1, 0, 10, 2048, servers="a:1")]
    with ReplayProgress(ranges) as progress:
        progress._lines._now_s = lambda: now[0]
        progress._lines._started_s = progress._lines._shown_s = now[0]
        now[0] += 11
        progress.on_done(Receipt(ranges[1].name, (), 10))
        ends[TopicPartition("t", 1)] = 15
        now[0] += 11
        progress.on_done(Receipt(ranges[0].name, (), 19))
    assert capsys.readouterr().err.splitlines() == [
        "replayed 10 records, 1/s, 2.0 KB of 4.0 KB, 186 B/s, 50 %, 20 left, 10 came since, 11 s",
        "replayed 29 records, 1/s, 4.0 KB of 4.0 KB, 186 B/s, 100 %, 0 left, 15 came since, 22 s",
    ]


@for_each(
    "raised, reason",
    [(None, "left_out"), (KeyboardInterrupt(), "stopped"), (AccessError("disk full"), "failed")],
)
def test_the_figures_of_a_replay(raised: BaseException | None, reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = {}
    for output in OutputFormat:
        expected = contextlib.nullcontext() if raised is None else pytest.raises(type(raised))
        with expected, ReplayReport("parquet:out", output) as report:
            if raised is not None:
                raise raised
            report.add_receipts("9f", 2, RECEIPTS)
        found[output] = capsys.readouterr().out
    assert found[OutputFormat.table] == ""
    fields = json.loads(found[OutputFormat.json])
    assert fields.pop("seconds") >= 0
    failed = raised is not None
    assert fields == {
        "target": "parquet:out",
        "plan_id": None if failed else "9f",
        "ranges": None if failed else 2,
        "records": None if failed else 70,
        "files": None if failed else 2,
        "bytes": None if failed else 11,
        "left_out": None if failed else ["t-0: 3 offsets"],
        "exit_reason": reason,
        "error": "disk full" if reason == "failed" else None,
    }
    (line,) = found[OutputFormat.ndjson].splitlines()
    (row,) = csv.DictReader(StringIO(found[OutputFormat.csv]))
    assert list(json.loads(line)) == list(row)
    assert row["exit_reason"] == reason


def test_a_replay_that_left_nothing_out(capsys: pytest.CaptureFixture[str]) -> None:
    with ReplayReport("topic:u", OutputFormat.json) as report:
        report.add("9f", 2, [])
    fields = json.loads(capsys.readouterr().out)
    assert (fields["exit_reason"], fields["left_out"], fields["records"]) == ("done", [], None)


def test_figures_that_receipts_do_not_know(capsys: pytest.CaptureFixture[str]) -> None:
    """Older receipts have no sizes, and those of servers' logs no counts."""
    with ReplayReport("parquet:out", OutputFormat.json) as report:
        report.add_receipts("9f", 1, [Receipt("a", (WrittenFile("a.parquet", 30, ""),), -1)])
    fields = json.loads(capsys.readouterr().out)
    assert (fields["records"], fields["files"], fields["bytes"]) == (None, 1, None)
