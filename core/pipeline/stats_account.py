"""Measures the logs of some places."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from core.common.errors import AccessError
from core.common.topic_partition import TopicPartition
from core.inspector.check.file_kind import skip_unreadable
from core.inspector.check.findings import Finding
from core.inspector.stats.log_stats import LogStats, Sample, SegmentStats, read_stats
from core.pipeline.frontend import Progress
from core.pipeline.log_places import LogPlace, LogPlaces, OnBytes
from core.pipeline.session import Session

if TYPE_CHECKING:
    from core.inspector.stats.server_copy import ServerCopy


class LogChecks(NamedTuple):
    """Facts that only a report has of a log: `gaps` as in `plog gaps`, None for a single `.log` and an unreadable log;
    `findings` as in `plog verify`, for a server's log as far as reading it shows them. `folder` is None for a `.log`,
    and for a copy of a server's.
    """

    partition: TopicPartition | None
    folder: Path | None
    gaps: dict[str, Any] | None
    findings: list[Finding]


@dataclass(frozen=True, slots=True)
class StatsAccount:
    """The figures of each log by its name, findings about the logs, and the errors of unreadable ones.

    A report has `checks` of each log, too, and findings about other files of the places (`beside`).
    """

    figures: dict[str, dict[str, Any]] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    failures: list[AccessError] = field(default_factory=list)
    checks: dict[str, LogChecks] = field(default_factory=dict)
    beside: list[Finding] = field(default_factory=list)


def account_for(
    texts: Sequence[str], session: Session, progress: Progress, *, with_checks: bool = False
) -> StatsAccount:
    """Reads the logs of these places. Raises UsageError for a text that is not a place, and what `LogPlaces` raises."""
    now_ms = time.time_ns() // 1_000_000
    account = StatsAccount()
    logs: list[_Log] = []
    with LogPlaces(session, _copy).opened() as find:
        for log in skip_unreadable(texts, lambda text: _logs(text, find), account.failures):
            stats = read_stats(log.path, now_ms, lambda size: progress.add(size, size))
            account.figures[log.name] = figures_of(stats, is_copy=log.is_copy)
            found = [
                replace(one, path=log.name, position=-1, end_position=-1) if log.is_copy else one
                for one in stats.findings
            ]
            account.findings.extend(found)
            logs.append(log)
        if with_checks:
            _check(texts, logs, account, progress)
    return account


class _Log(NamedTuple):
    """`path` is a partition's folder, or a single `.log` without a place."""

    name: str
    path: Path
    place: LogPlace | None = None
    partition: TopicPartition | None = None

    @property
    def is_copy(self) -> bool:
        return self.place is not None and self.place.client is not None


def _logs(text: str, find: Callable[[str], LogPlace]) -> Iterator[_Log]:
    if Path(text).is_file():
        yield _Log(text, Path(text))
        return
    place = find(text)
    for partition in place.partitions:
        yield _Log(str(partition), place.reader.partitions[partition], place, partition)


def _check(texts: Sequence[str], logs: Sequence[_Log], account: StatsAccount, progress: Progress) -> None:
    left = _verified(texts, logs, account.failures, progress)
    for log in logs:
        is_own = _is_of(log)
        findings = [one for one in left if is_own(one)]
        left = [one for one in left if not is_own(one)]
        if log.is_copy:
            findings = [one for one in account.findings if one.path == log.name]
        folder = log.path if log.place is not None and not log.is_copy else None
        account.checks[log.name] = LogChecks(log.partition, folder, _gaps_of(log), findings)
    account.beside.extend(left)


def _verified(
    texts: Sequence[str], logs: Sequence[_Log], failures: list[AccessError], progress: Progress
) -> list[Finding]:
    """Returns the findings of `plog verify` about the places that are paths, and about the folders of the others."""
    from core.inspector.check.verify import verify

    local = [log for log in logs if not log.is_copy]
    paths = [Path(text) for text in texts if any(_is_within(log.path, Path(text)) for log in local)]
    paths += [log.path for log in local if not any(_is_within(log.path, path) for path in paths)]
    known = {error.where for error in failures}
    new: list[AccessError] = []
    found = list(skip_unreadable(paths, lambda path: verify(path, lambda size: progress.add(size, size)), new))
    failures.extend(error for error in new if error.where not in known)
    return found


def _is_within(path: Path, folder: Path) -> bool:
    return path == folder or folder in path.parents


def _is_of(log: _Log) -> Callable[[Finding], bool]:
    """Returns whether a finding is of a log's folder, or of a single `.log` and the files beside it."""
    if log.place is None:
        stem = str(log.path.with_suffix(""))
        return lambda finding: finding.path.startswith(f"{stem}.")
    return lambda finding: _is_within(Path(finding.path), log.path)


def _gaps_of(log: _Log) -> dict[str, Any] | None:
    from core.pipeline.gap_account import accounts_of

    if log.place is None or log.partition is None:
        return None
    place = replace(log.place, partitions=[log.partition])
    return next(accounts_of(place, 0, None, [], read_committed=True), None)


def _copy(copy: ServerCopy, partition: TopicPartition, _offset: int | None, on_bytes: OnBytes) -> None:
    copy.add(partition, on_bytes=on_bytes)


def figures_of(log: LogStats, *, is_copy: bool = False) -> dict[str, Any]:
    """Returns every figure; sizes in bytes, times in epoch ms, shares of 1. A server's segments are unknown."""
    return {
        "summary": _summary(log, is_copy=is_copy),
        "over_time": [
            {"start": start, "records": records, "bytes": size} for start, records, size in log.over_time.rows()
        ],
        "bucket_ms": log.over_time.width_ms,
        "codecs": [
            {"codec": codec, "batches": batches, "bytes": size} for codec, (batches, size) in sorted(log.codecs.items())
        ],
        "magics": {str(magic): count for magic, count in sorted(log.magics.items())},
        "sample": _sample_figures(log.sample),
        "producers": [asdict(one) for one in sorted(log.producers.values(), key=lambda producer: -producer.records)],
        "segments": [] if is_copy else [_segment_figures(segment) for segment in log.segments],
    }


def _summary(log: LogStats, *, is_copy: bool) -> dict[str, Any]:
    return {
        "records": log.records,
        "batches": log.batches,
        "size_bytes": log.size_bytes,
        "segments": None if is_copy else len(log.segments),
        "start_offset": max(log.start_offset, 0),
        "end_offset": log.end_offset,
        "offsets_without_record": log.missing_offsets,
        "hidden_records": log.hidden_records,
        "first_timestamp": log.first_timestamp,
        "last_timestamp": log.last_timestamp,
        "out_of_order_batches": log.out_of_order_batches,
        "most_late_ms": log.most_late_ms,
        "future_batches": log.future_batches,
        "control_batches": log.control_batches,
        "transactional_batches": log.transactional_batches,
        "batch_bytes_p50": log.batch_bytes.quantile(0.5),
        "batch_bytes_p99": log.batch_bytes.quantile(0.99),
        "batch_bytes_max": log.batch_bytes.most,
        "batch_records_p50": log.batch_records.quantile(0.5),
        "batch_records_p99": log.batch_records.quantile(0.99),
        "batch_records_max": log.batch_records.most,
    }


def _sample_figures(sample: Sample) -> dict[str, Any]:
    return {
        "batches": sample.batches,
        "records": sample.records,
        "stored_bytes": sample.stored_bytes,
        "uncompressed_bytes": sample.plain_bytes,
        "recompressed": [
            {"codec": codec, "bytes": size, "saving": round(sample.saving(codec), 4)}
            for codec, size in sample.as_codec.items()
        ],
        "null_keys": sample.null_keys,
        "null_values": sample.null_values,
        "with_headers": sample.with_headers,
        "distinct_keys": len(sample.keys),
        "top_keys": [
            {"key": key.decode("utf-8", "backslashreplace"), "records": count} for key, count in sample.top_keys()
        ],
        "key_bytes_p50": sample.key_sizes.quantile(0.5),
        "key_bytes_max": sample.key_sizes.most,
        "value_bytes_p50": sample.value_sizes.quantile(0.5),
        "value_bytes_max": sample.value_sizes.most,
    }


def _segment_figures(segment: SegmentStats) -> dict[str, Any]:
    figures = asdict(segment)
    return {"file": figures.pop("path").name, **figures}
