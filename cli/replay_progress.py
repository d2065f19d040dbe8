"""Shows the progress of a replay: a bar for each partition (topic, if many) on a terminal; elsewhere a line every 10 s.

Both say how many offsets are left, and how many a server has after the end of the plan by now. At the end,
`ReplayReport` prints the figures of the replay.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

from cli.output import OutputFormat, write_rows
from cli.progress import Progress as Lines
from core.common.errors import PlogError
from core.common.topic_partition import TopicPartition
from core.spark.offset_range import OffsetRange

if TYPE_CHECKING:
    from core.spark.range_output import Receipt

_MOST_BARS = 20
_LOOK_SECONDS = 5.0


class ReplayProgress:
    """`on_done` is called with every unit that is done."""

    def __init__(self, todo: Sequence[OffsetRange]) -> None:
        self._by_name = {range_.name: range_ for range_ in todo}
        self._bars: dict[str, object] = {}
        self._records: dict[str, int] = {}
        self._left = {range_.name for range_ in todo}
        self._lag = _Lag(todo)
        size = sum(range_.size_bytes for range_ in todo)
        self._lines = Lines("replayed", "records", size, more=lambda: self._find_left(self._by_name.values()))
        self._progress = None
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import (
                BarColumn,
                DownloadColumn,
                Progress,
                TextColumn,
                TimeRemainingColumn,
                TransferSpeedColumn,
            )

            self._progress = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.fields[records]:,} records{task.fields[left]}"),
                DownloadColumn(binary_units=True),
                TransferSpeedColumn(),
                TimeRemainingColumn(),
                console=Console(stderr=True),
                transient=True,
            )

    def __enter__(self) -> ReplayProgress:
        if self._progress is not None:
            sizes: dict[str, int] = {}
            for range_ in self._by_name.values():
                sizes[self._bar(range_)] = sizes.get(self._bar(range_), 0) + range_.size_bytes
            self._bars = {
                name: self._progress.add_task(name, total=size, records=0, left="") for name, size in sizes.items()
            }
            self._progress.start()
        return self

    def _bar(self, range_: OffsetRange) -> str:
        many = len({r.topic_partition for r in self._by_name.values()}) > _MOST_BARS
        return range_.topic if many else str(range_.topic_partition)

    def _find_left(self, ranges: Iterable[OffsetRange]) -> list[str]:
        ranges = list(ranges)
        left = sum(range_.end_offset - range_.start_offset for range_ in ranges if range_.name in self._left)
        later = self._lag.find({range_.topic_partition for range_ in ranges})
        return [f"{left:,} left", *([] if later is None else [f"{later:,} came since"])]

    def on_done(self, receipt: Receipt) -> None:
        range_ = self._by_name.get(receipt.unit)
        if range_ is None:
            return
        self._left.discard(receipt.unit)
        if self._progress is None:
            self._lines.add(max(receipt.records, 0), range_.size_bytes)
            return
        bar = self._bar(range_)
        self._records[bar] = self._records.get(bar, 0) + max(receipt.records, 0)
        left = "".join(
            f", {text}" for text in self._find_left(r for r in self._by_name.values() if self._bar(r) == bar)
        )
        self._progress.update(self._bars[bar], advance=range_.size_bytes, records=self._records[bar], left=left)  # type: ignore[arg-type]

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()


class _Lag:
    """How far the ends of a server's logs are from the ends of a plan; looked up again after some seconds."""

    def __init__(self, todo: Sequence[OffsetRange]) -> None:
        self._first = todo[0] if todo and todo[0].servers else None
        self._ends = {range_.topic_partition: range_.end_offset for range_ in todo}
        self._found: Mapping[TopicPartition, int] = {}
        self._next_s = 0.0

    def find(self, partitions: Iterable[TopicPartition]) -> int | None:
        """Returns how many offsets the logs have after the plan's; None for files, and if the server does not say."""
        if self._first is not None and time.monotonic() >= self._next_s:
            self._found = {}
            with suppress(PlogError):  # the tasks reach the same server, and report the error
                self._found = self._look(self._first)
            self._next_s = time.monotonic() + _LOOK_SECONDS
        if not self._found:
            return None
        return sum(max(self._found.get(tp, 0) - self._ends[tp], 0) for tp in partitions)

    def _look(self, range_: OffsetRange) -> Mapping[TopicPartition, int]:
        from core.client.admin.admin import LATEST, Admin
        from core.client.read.consumer import READ_COMMITTED, READ_UNCOMMITTED
        from core.spark.cluster_access import connect

        level = READ_COMMITTED if range_.read_committed else READ_UNCOMMITTED
        with closing(connect(range_.servers, range_.access)) as client:
            return Admin(client).list_offsets(dict.fromkeys(self._ends, LATEST), isolation_level=level)


class ReplayReport:
    """The figures of a replay as one object on stdout, however the block ends; people are told on stderr alone."""

    def __init__(self, target: str, output: OutputFormat) -> None:
        self._output = output
        self._started_s = time.monotonic()
        names = "plan_id", "ranges", "records", "files", "bytes", "left_out", "seconds", "exit_reason", "error"
        self._fields: dict[str, Any] = {"target": target, **dict.fromkeys(names)}

    def add_receipts(self, plan_id: str, ranges: int, receipts: Sequence[Receipt]) -> None:
        """Takes the figures of a whole replay into files; None for what a receipt does not say."""
        files = [file for receipt in receipts for file in receipt.files]
        records, sizes = [receipt.records for receipt in receipts], [file.size_bytes for file in files]
        self._fields |= {
            "records": sum(records) if min(records, default=0) >= 0 else None,
            "files": len(files),
            "bytes": sum(sizes) if min(sizes, default=0) >= 0 else None,
        }
        self.add(plan_id, ranges, list(dict.fromkeys(text for receipt in receipts for text in receipt.left_out)))

    def add(self, plan_id: str, ranges: int, left_out: Sequence[str]) -> None:
        self._fields |= {"plan_id": plan_id, "ranges": ranges, "left_out": list(left_out)}

    def __enter__(self) -> ReplayReport:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        fields = self._fields
        if error is None:
            fields["exit_reason"] = "left_out" if fields["left_out"] else "done"
        else:
            fields["exit_reason"] = "stopped" if isinstance(error, KeyboardInterrupt) else "failed"
            fields["error"] = str(error) or None
        fields["seconds"] = round(time.monotonic() - self._started_s, 3)
        if self._output is OutputFormat.json:
            print(json.dumps(fields, indent=2), flush=True)
        elif self._output is not OutputFormat.table:
            write_rows([fields], list(fields), self._output)
