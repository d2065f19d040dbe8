"""`plog stats`."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from cli.findings_out import print_findings
from cli.log_places import PLACES_HELP, LogPlace, LogPlaces, OnBytes, split_offset
from cli.options import BootstrapServerOption, DataDirOption, each_of, say, say_failures
from cli.output import OutputFormat, OutputOption, show, write_rows
from cli.table import Row
from cli.terminal import find_width, text_width
from core.common.errors import AccessError, UsageError
from core.common.printable import printable

if TYPE_CHECKING:
    from core.common.topic_partition import TopicPartition
    from core.inspector.findings import Finding
    from core.inspector.log_stats import LogStats
    from core.inspector.server_copy import ServerCopy

app = typer.Typer(rich_markup_mode=None, add_completion=False)

_BLOCKS = " ▁▂▃▄▅▆▇█"
_BAR_WIDTH = 40
_LEAST_BAR = 8
_SPARK_WIDTH = 60
_LISTED = 10


@app.command()
def stats(
    context: typer.Context,
    places: Annotated[list[str], typer.Argument(metavar="PATH|TOPIC[:P]...", help=f"{PLACES_HELP} Or a .log.")],
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write a self-contained report with pictures.")
    ] = None,
    output: OutputOption = OutputFormat.table,
    bootstrap_server: BootstrapServerOption = None,
    data_dir: DataDirOption = None,
) -> None:
    """Show what a log is made of: records over time, batches, codecs and what others would save, keys, producers.

    It counts what readers get, as plog gaps does, and looks into a sample of records. The table is a report with bars;
    json, ndjson and csv have the figures.

    \b
    Example:
      plog stats sample-data/partition
    """
    from cli.progress import Progress
    from core.inspector.log_stats import read_stats

    for place in places:
        if (offset := split_offset(place)[1]) is not None:
            raise UsageError(f"{place}: whole logs are looked at, not one record", hint=f"leave @{offset} out")
    now_ms = time.time_ns() // 1_000_000
    found: dict[str, dict[str, Any]] = {}
    findings = []
    progress = Progress("read", "bytes")
    failures: list[AccessError] = []
    with LogPlaces(context, bootstrap_server, data_dir, _copy).opened() as find:
        for log in each_of(places, lambda text: _logs(text, find), failures):
            stats = read_stats(log.path, now_ms, lambda size: progress.add(size, size))
            found[log.name] = as_json(stats, is_copy=log.is_copy)
            findings += [_without_file(one, log.name) for one in stats.findings] if log.is_copy else stats.findings
    progress.done()
    if html is not None:
        from cli.stats_html import stats_html
        from core.common.out_file import write_whole

        write_whole(html, stats_html(found).encode())
        say(f"report written to {html}")
    elif output is OutputFormat.json:
        print(json.dumps([{"log": name, **log} for name, log in found.items()], indent=2))
    elif output is OutputFormat.table:
        for name, figures in found.items():
            _print(name, figures)
    else:
        rows: list[Row] = [{"log": name, **log["summary"]} for name, log in found.items()]
        write_rows(rows, list(rows[0]) if rows else [], output)
    raise typer.Exit(max(say_failures(failures), print_findings(findings)))


class _Log(NamedTuple):
    """`path` is a partition's folder, or one `.log`."""

    name: str
    path: Path
    is_copy: bool = False


def _logs(text: str, find: Callable[[str], LogPlace]) -> Iterator[_Log]:
    if Path(text).is_file():
        yield _Log(text, Path(text))
        return
    place = find(text)
    for partition in place.partitions:
        yield _Log(str(partition), place.reader.partitions[partition], is_copy=place.client is not None)


def _without_file(finding: Finding, name: str) -> Finding:
    """Of a copy of a server's log, which nobody will see again."""
    return replace(finding, path=name, position=-1, end_position=-1)


def _copy(copy: ServerCopy, partition: TopicPartition, _offset: int | None, on_bytes: OnBytes) -> None:
    copy.add(partition, on_bytes=on_bytes)


def as_json(log: LogStats, *, is_copy: bool = False) -> dict[str, Any]:
    """Every figure; sizes in bytes, times in epoch ms, shares of 1. Where a server's segments begin is not known."""
    sample = log.sample
    return {
        "summary": {
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
        },
        "over_time": [
            {"start": start, "records": records, "bytes": size} for start, records, size in log.over_time.rows()
        ],
        "bucket_ms": log.over_time.width_ms,
        "codecs": [
            {"codec": codec, "batches": batches, "bytes": size} for codec, (batches, size) in sorted(log.codecs.items())
        ],
        "magics": {str(magic): count for magic, count in sorted(log.magics.items())},
        "sample": {
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
        },
        "producers": [
            {
                "producer_id": producer.producer_id,
                "epoch": producer.epoch,
                "batches": producer.batches,
                "records": producer.records,
                "is_transactional": producer.is_transactional,
                "first_timestamp": producer.first_timestamp,
                "last_timestamp": producer.last_timestamp,
            }
            for producer in sorted(log.producers.values(), key=lambda producer: -producer.records)
        ],
        "segments": [
            {
                "file": segment.path.name,
                "base_offset": segment.base_offset,
                "size_bytes": segment.size_bytes,
                "batches": segment.batches,
                "records": segment.records,
                "first_timestamp": segment.first_timestamp,
                "last_timestamp": segment.last_timestamp,
                "damaged_bytes": segment.damaged_bytes,
            }
            for segment in (() if is_copy else log.segments)
        ],
    }


# --- the report


def _print(name: str, log: dict[str, Any]) -> None:
    from cli.progress import size_text
    from core.common.time_text import time_text
    from core.log.hole import offsets_text

    summary, sample = log["summary"], log["sample"]
    segments = (
        "" if summary["segments"] is None else f" in {summary['segments']} segment{'s' * (summary['segments'] != 1)}"
    )
    show(f"{name}: {summary['records']:,} records in {summary['batches']:,} batches, "
         f"{size_text(summary['size_bytes'])}{segments}")  # fmt: skip
    start, end = summary["start_offset"], summary["end_offset"]
    show(
        f"  {offsets_text(start, end) if end > start else f'no offsets, the next is {end}'}, "
        f"{summary['offsets_without_record']} without a record (plog gaps says why)"
    )
    if summary["hidden_records"]:
        show(f"  {summary['hidden_records']:,} of the records aborted or in open transactions")
    if summary["last_timestamp"] >= 0:
        show(f"  time    {time_text(summary['first_timestamp'])} to {time_text(summary['last_timestamp'])}")
        show(f"  records {_sparkline([bucket['records'] for bucket in log['over_time']])}")
        show(f"  bytes   {_sparkline([bucket['bytes'] for bucket in log['over_time']])}")
    if summary["out_of_order_batches"]:
        late = f"by {summary['most_late_ms']} ms at most"
        show(f"  {summary['out_of_order_batches']} batches older than one before, {late}")
    if summary["future_batches"]:
        show(f"  {summary['future_batches']} batches more than an hour ahead of this clock")
    show(f"  a batch: {size_text(summary['batch_bytes_p50'])} (p50), {size_text(summary['batch_bytes_p99'])} (p99), "
         f"{size_text(summary['batch_bytes_max'])} at most; {summary['batch_records_p50']} records (p50), "
         f"{summary['batch_records_max']} at most")  # fmt: skip
    _bars("codecs", [(c["codec"], c["bytes"], f"{c['batches']} batches") for c in log["codecs"]])
    _print_sample(sample)
    _bars("producers", [(str(p["producer_id"]), p["records"], f"epoch {p['epoch']}") for p in log["producers"]])
    if len(log["segments"]) > 1:
        _bars("segments", [(s["file"], s["size_bytes"], f"{s['records']} records") for s in log["segments"]])


def _print_sample(sample: dict[str, Any]) -> None:
    if sample["uncompressed_bytes"]:
        ratio = sample["uncompressed_bytes"] / sample["stored_bytes"]
        show(f"  stored at {ratio:.2f} to 1; by {sample['batches']} batches compressed again:")
        for row in sample["recompressed"]:
            saving = row["saving"]
            text = f"would save {saving:.0%}" if saving >= 0.005 else f"would cost {-saving:.0%} more"
            show(f"    {row['codec']:<8} {'as it is' if abs(saving) < 0.005 else text}")
    if sample["records"]:
        show(f"  keys, of {sample['records']} records looked into: {sample['distinct_keys']} different, "
             f"{sample['null_keys']} null; {sample['null_values']} null values, "
             f"{sample['with_headers']} with headers")  # fmt: skip
        keyed = sample["records"] - sample["null_keys"]
        if keyed > sample["distinct_keys"]:
            _bars(
                "most frequent keys",
                [(k["key"], k["records"], f"{k['records'] / keyed:.1%}") for k in sample["top_keys"]],
            )


def _sparkline(values: list[int]) -> str:
    """One character for each value; neighbours are added up if there are more than fit."""
    width = find_width(sys.stdout)
    step = -(-len(values) // (_SPARK_WIDTH if width is None else min(_SPARK_WIDTH, width - len("  records "))))
    sums = [sum(values[start : start + step]) for start in range(0, len(values), max(step, 1))]
    most = max(sums, default=0) or 1
    return "".join(_BLOCKS[-(-value * (len(_BLOCKS) - 1) // most)] for value in sums)


def _bars(title: str, rows: list[tuple[str, int, str]]) -> None:
    """A bar for each, as long as its share of the largest; none if there is no room for bars."""
    if not rows:
        return
    show(f"  {title}:")
    most = max(value for _, value, _ in rows) or 1
    listed = [(printable(name, keeps=""), value, f"{value:,} ({note})") for name, value, note in rows[:_LISTED]]
    name_width = max(text_width(name) for name, _, _ in listed)
    width = find_width(sys.stdout)
    room = _BAR_WIDTH if width is None else width - name_width - max(len(note) for _, _, note in listed) - 6
    for name, value, note in listed:
        bar = "█" * max(round(value / most * min(room, _BAR_WIDTH)), 1 if value else 0) + " "
        show(f"    {name}{' ' * (name_width - text_width(name))} {bar if room >= _LEAST_BAR else ''}{note}")
    if len(rows) > _LISTED:
        show(f"    and {len(rows) - _LISTED} more")
