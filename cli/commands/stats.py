"""`plog stats`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.findings_out import print_findings
from cli.options import each_of, say, say_failures
from cli.output import OutputFormat, OutputOption, Row, write_rows
from core.common.errors import AccessError

if TYPE_CHECKING:
    from core.inspector.log_stats import LogStats

app = typer.Typer(rich_markup_mode=None, add_completion=False)

_BLOCKS = " ▁▂▃▄▅▆▇█"
_BAR_WIDTH = 40
_SPARK_WIDTH = 60
_LISTED = 10


@app.command()
def stats(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH...", help="Partition folders, data directories, .logs.")],
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write a self-contained report with pictures.")
    ] = None,
    output: OutputOption = OutputFormat.table,
) -> None:
    """What a log is made of: records over time, batches, codecs and what others would save, keys, producers.

    Reads every batch's header and a spread sample of records. table is a report with bars; json, ndjson and csv have
    the figures.

    \b
    Example:
      plog stats sample-data/partition
    """
    from cli.progress import Progress
    from core.inspector.log_stats import read_stats

    now_ms = time.time_ns() // 1_000_000
    found: dict[str, LogStats] = {}
    findings = []
    progress = Progress("read", "bytes")
    failures: list[AccessError] = []
    for name, path in each_of(paths, _logs, failures):
        found[name] = read_stats(path, now_ms, lambda size: progress.add(size, size))
        findings += found[name].findings
    progress.done()
    if html is not None:
        from cli.stats_html import stats_html
        from core.common.out_file import write_whole

        write_whole(html, stats_html({name: as_json(log) for name, log in found.items()}).encode())
        say(f"report written to {html}")
    elif output is OutputFormat.json:
        print(json.dumps([{"log": name, **as_json(log)} for name, log in found.items()], indent=2))
    elif output is OutputFormat.table:
        for name, log in found.items():
            _print(name, as_json(log))
    else:
        rows: list[Row] = [{"log": name, **as_json(log)["summary"]} for name, log in found.items()]
        write_rows(rows, list(rows[0]) if rows else [], output)
    raise typer.Exit(max(say_failures(failures), print_findings(findings)))


def _logs(path: Path) -> Iterator[tuple[str, Path]]:
    """The name of each, and its folder. AccessError where there is none."""
    from core.inspector.file_kind import ensure_there
    from core.inspector.verify import nothing_there
    from core.log.directory_reader import DirectoryReader

    if path.is_file():
        yield str(path), path
        return
    ensure_there(path)
    partitions = DirectoryReader(path, hint="name partition folders, data directories, or .logs").partitions
    if not partitions:
        raise nothing_there(path)
    for partition, folder in sorted(partitions.items()):
        yield str(partition), folder


def as_json(log: LogStats) -> dict[str, Any]:
    """Every figure; sizes in bytes, times in epoch ms, shares of 1."""
    sample = log.sample
    return {
        "summary": {
            "records": log.records,
            "batches": log.batches,
            "size_bytes": log.size_bytes,
            "segments": len(log.segments),
            "start_offset": max(log.start_offset, 0),
            "end_offset": log.end_offset,
            "offsets_without_record": log.missing_offsets,
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
            for segment in log.segments
        ],
    }


# --- the report


def _print(name: str, log: dict[str, Any]) -> None:
    from cli.progress import size_text
    from core.common.time_text import time_text
    from core.log.hole import offsets_text

    summary, sample = log["summary"], log["sample"]
    print(f"{name}: {summary['records']:,} records in {summary['batches']:,} batches, "
          f"{size_text(summary['size_bytes'])} in {summary['segments']} segments")  # fmt: skip
    start, end = summary["start_offset"], summary["end_offset"]
    print(f"  {offsets_text(start, end) if end > start else f'no offsets, the next is {end}'}, "
          f"{summary['offsets_without_record']} without a record (plog gaps says why)")  # fmt: skip
    if summary["last_timestamp"] >= 0:
        print(f"  time    {time_text(summary['first_timestamp'])} to {time_text(summary['last_timestamp'])}")
        print(f"  records {_sparkline([bucket['records'] for bucket in log['over_time']])}")
        print(f"  bytes   {_sparkline([bucket['bytes'] for bucket in log['over_time']])}")
    if summary["out_of_order_batches"]:
        late = f"by {summary['most_late_ms']} ms at most"
        print(f"  {summary['out_of_order_batches']} batches older than one before, {late}")
    if summary["future_batches"]:
        print(f"  {summary['future_batches']} batches more than an hour ahead of this clock")
    print(f"  a batch: {size_text(summary['batch_bytes_p50'])} (p50), {size_text(summary['batch_bytes_p99'])} (p99), "
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
        print(f"  stored at {ratio:.2f} to 1; by {sample['batches']} batches compressed again:")
        for row in sample["recompressed"]:
            saving = row["saving"]
            text = f"would save {saving:.0%}" if saving >= 0.005 else f"would cost {-saving:.0%} more"
            print(f"    {row['codec']:<8} {'as it is' if abs(saving) < 0.005 else text}")
    if sample["records"]:
        print(f"  keys, of {sample['records']} records looked into: {sample['distinct_keys']} different, "
              f"{sample['null_keys']} null; {sample['null_values']} null values, "
              f"{sample['with_headers']} with headers")  # fmt: skip
        keyed = sample["records"] - sample["null_keys"]
        if keyed > sample["distinct_keys"]:
            _bars(
                "most frequent keys",
                [(k["key"], k["records"], f"{k['records'] / keyed:.1%}") for k in sample["top_keys"]],
            )


def _sparkline(values: list[int]) -> str:
    """One character for each value; neighbours are added up where there are more than fit."""
    step = -(-len(values) // _SPARK_WIDTH)
    sums = [sum(values[start : start + step]) for start in range(0, len(values), max(step, 1))]
    most = max(sums, default=0) or 1
    return "".join(_BLOCKS[-(-value * (len(_BLOCKS) - 1) // most)] for value in sums)


def _bars(title: str, rows: list[tuple[str, int, str]]) -> None:
    """A bar for each, as long as its share of the largest."""
    if not rows:
        return
    print(f"  {title}:")
    most = max(value for _, value, _ in rows) or 1
    width = max(len(name) for name, _, _ in rows[:_LISTED])
    for name, value, note in rows[:_LISTED]:
        bar = "█" * max(round(value / most * _BAR_WIDTH), 1 if value else 0)
        print(f"    {name:<{width}} {bar} {value:,} ({note})")
    if len(rows) > _LISTED:
        print(f"    and {len(rows) - _LISTED} more")
