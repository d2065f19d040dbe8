"""The progress of a replay: a bar for each partition on a terminal; elsewhere a line every 10 s."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from cli.progress import Progress as Lines
from core.spark.offset_range import OffsetRange

if TYPE_CHECKING:
    from core.spark.range_output import Receipt

_MOST_BARS = 20


class ReplayProgress:
    """`on_done` is called with every unit that is done."""

    def __init__(self, todo: Sequence[OffsetRange]) -> None:
        self._by_name = {range_.name: range_ for range_ in todo}
        self._bars: dict[str, object] = {}
        self._records: dict[str, int] = {}
        self._lines = Lines("replayed", "records", sum(range_.size_bytes for range_ in todo))
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
                TextColumn("{task.fields[records]:,} records"),
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
            self._bars = {name: self._progress.add_task(name, total=size, records=0) for name, size in sizes.items()}
            self._progress.start()
        return self

    def _bar(self, range_: OffsetRange) -> str:
        many = len({r.topic_partition for r in self._by_name.values()}) > _MOST_BARS
        return range_.topic if many else str(range_.topic_partition)

    def on_done(self, receipt: Receipt) -> None:
        range_ = self._by_name.get(receipt.unit)
        if range_ is None:
            return
        if self._progress is None:
            self._lines.add(max(receipt.records, 0), range_.size_bytes)
            return
        bar = self._bar(range_)
        self._records[bar] = self._records.get(bar, 0) + max(receipt.records, 0)
        self._progress.update(self._bars[bar], advance=range_.size_bytes, records=self._records[bar])  # type: ignore[arg-type]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()
