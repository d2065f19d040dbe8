"""What a long job says of itself, by a clock that the test moves."""

from __future__ import annotations

import pytest

from cli.progress import Progress
from tests.support.manual_clock import ManualClock

GB = 1 << 30


def test_in_a_pipe_a_line_every_ten_seconds_at_most(clock: ManualClock, capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress("checked", "bytes", 12 * GB, now_s=lambda: clock.monotonic_ms() / 1000)
    for _ in range(25):
        clock.advance(1000)
        progress.add(GB // 8, GB // 8)
    progress.done()
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "checked 1.2 GB of 12.0 GB, 128.0 MB/s, 10 %, 10 s",
        "checked 2.5 GB of 12.0 GB, 128.0 MB/s, 21 %, 20 s",
    ]


def test_in_a_pipe_short_work_says_nothing(clock: ManualClock, capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress("read", "records", now_s=lambda: clock.monotonic_ms() / 1000)
    for _ in range(99):
        clock.advance(100)
        progress.add(1)
    progress.done()
    assert capsys.readouterr() == ("", "")


def test_on_a_terminal_the_line_fits(
    clock: ManualClock, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "30")
    progress = Progress("acknowledged", "records", 12 * GB, now_s=lambda: clock.monotonic_ms() / 1000)
    clock.advance(1000)
    progress.add(1000, GB)
    progress.done()
    shown = capsys.readouterr().err
    assert shown == "\r\x1b[Kacknowledged 1,000 records, 1" + "\r\x1b[K"
