"""What a task reads of its range, if the log has changed since the range was planned."""

from __future__ import annotations

from pathlib import Path

from core.spark.offset_range import OffsetRange, read_columns
from tests.support.logs import append, make_batch, open_log


def test_what_was_deleted_since_the_plan_is_left_out_and_no_more(tmp_path: Path) -> None:
    """The batch that holds the log's new start is read, without its records before it."""
    log = open_log(tmp_path / "t-0")
    append(log, make_batch(b"0", b"1", b"2", b"3"))
    append(log, make_batch(b"4"))
    log.close()
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\nt 0 2\n")
    range_ = OffsetRange("t", 0, 0, 5, 1, directory=str(tmp_path / "t-0"), fails_if_gone=False)
    left_out: list[str] = []
    found = [offset for columns in read_columns(range_, left_out.append) for offset in columns.offsets.tolist()]
    assert found == [2, 3, 4]
    assert left_out == ["t-0: offsets 0 to 1 are gone, deleted since the reading was planned"]
