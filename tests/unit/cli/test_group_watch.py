"""What `plog group describe --watch` shows from one look to the next."""

from __future__ import annotations

import time

import pytest

from cli.commands.group import _watched


def test_the_second_look_has_the_records_read_per_second_since_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "sleep", sleep)
    looks = iter([[("t", 10)], [("t", 17), ("u", 3)], [("t", 17), ("u", 4)]])

    def look() -> tuple[list[str], list[dict[str, object]]]:
        return ["g: Stable"], [
            {"group": "g", "topic": topic, "partition": 0, "offset": at} for topic, at in next(looks)
        ]

    watching = _watched(look, 2)
    seen = [next(watching) for _ in range(3)]
    assert [headlines for headlines, _ in seen] == [["g: Stable"]] * 3
    assert [[row["read_per_s"] for row in rows] for _, rows in seen] == [[None], [3.5, None], [0.0, 0.5]]
