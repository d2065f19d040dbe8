"""Accounts for every offset without a record in the logs of some places."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from core.common.errors import AccessError, UnreadableFileError
from core.common.topic_partition import TopicPartition
from core.forensics.gap_ledger import Gap, GapLedger
from core.forensics.missing_offsets import TailKind
from core.forensics.partition_reader import DirectoryReader
from core.inspector.check.cut_off_tail_check import cut_off_findings
from core.inspector.check.file_kind import skip_unreadable
from core.inspector.check.findings import Finding, damage_finding, unreadable_finding, wrong_start_finding
from core.pipeline.log_places import Copy, LogPlace, LogPlaces, OnBytes, without_file
from core.pipeline.session import Session

if TYPE_CHECKING:
    from core.inspector.stats.server_copy import ServerCopy


@dataclass(frozen=True, slots=True)
class GapAccount:
    """The account of each partition, other findings about the logs, and the errors of unreadable ones."""

    partitions: list[dict[str, Any]] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    failures: list[AccessError] = field(default_factory=list)


def account_for(
    texts: Sequence[str], session: Session, *, start: int, end: int | None, read_committed: bool
) -> GapAccount:
    """Accounts for the offsets from `start` (below 0: so many before the end) to `end` (None: all), or for the one that
    a place names. Raises UsageError for a text that is not a place, AccessError and KafkaError as `LogPlaces` does.
    """
    found = GapAccount()
    with LogPlaces(session, _copy_from(start)).opened() as find:
        for place in skip_unreadable(texts, lambda text: [find(text)], found.failures):
            first, last = (start, end) if place.offset is None else (place.offset, place.offset + 1)
            found.partitions.extend(accounts_of(place, first, last, found.findings, read_committed=read_committed))
    return found


def _copy_from(start: int) -> Copy:
    """Copies all of a server's partition from `start`, or from the place's offset: markers follow their records."""

    def copy(copy: ServerCopy, partition: TopicPartition, offset: int | None, on_bytes: OnBytes) -> None:
        first = start if offset is None else offset
        copy.add(partition, lambda _start, end: first if first >= 0 else end + first, on_bytes=on_bytes)

    return copy


def _without_files(account: dict[str, Any]) -> dict[str, Any]:
    """Removes positions in the file from the account of a copied log."""
    gaps = [{**row, "evidence": without_file(row["evidence"])} for row in account["gaps"]]
    return {**account, "gaps": gaps}


OnGap = Callable[[TopicPartition, Gap], None]


def accounts_of(
    place: LogPlace,
    start: int,
    end: int | None,
    beside: list[Finding],
    *,
    read_committed: bool,
    on_gap: OnGap | None = None,
) -> Iterator[dict[str, Any]]:
    """Accounts for each partition of the place; those that can't be read go to `beside`. If the gaps go to `on_gap`,
    the accounts have none: a log may have millions.
    """
    for partition in place.partitions:
        try:
            account = _account(place.reader, partition, start, end, beside, on_gap, read_committed=read_committed)
        except UnreadableFileError as error:
            beside.append(unreadable_finding(error))
        else:
            yield account if place.client is None else _without_files(account)


def _account(
    reader: DirectoryReader,
    partition: TopicPartition,
    start: int,
    end: int | None,
    beside: list[Finding],
    on_gap: OnGap | None,
    *,
    read_committed: bool,
) -> dict[str, Any]:
    """Accounts for one partition: each offset from `start_offset` to below `end_offset` is in `records` or in a gap.
    Files that can't be opened, and data after the end, go to `beside`.
    """
    log = reader.open(partition)
    beside += map(unreadable_finding, log.unreadable)
    last = log.end_offset if end is None else end
    try:
        ledger = GapLedger(
            log,
            start if start >= 0 else max(log.start_offset, log.end_offset + start),
            last,
            read_committed=read_committed,
        )
        rows: list[dict[str, Any]] = []
        for gap in ledger:
            if on_gap is not None:
                on_gap(partition, gap)
            else:
                rows.append(_row(partition, gap))
        reading = log.reading
        tail = reading.tail if reading.sound_end == reading.end_offset and end is None else None
        if tail is not None and tail.kind is TailKind.WRONG:
            beside += [damage_finding(tail.damage, tail.path, reading.sound_end)]
        beside += cut_off_findings(log)
        if log.wrong_start is not None:
            beside += [wrong_start_finding(log.wrong_start)]
    finally:
        log.close()
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "start_offset": ledger.start,
        "end_offset": ledger.end,
        "records": ledger.records,
        "hidden_records": ledger.hidden_records,
        "gaps": rows,
    }


def _row(partition: TopicPartition, gap: Gap) -> dict[str, Any]:
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "start_offset": gap.start,
        "end_offset": gap.end,
        "count": gap.end - gap.start,
        "reason": gap.reason.value,
        "evidence": gap.evidence,
    }
