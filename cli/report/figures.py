"""The part of the report with the figures of `plog stats`, in numbers and pictures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cli.progress import size_text
from cli.report.markup import bars, columns, more, paragraph, section, text, tiles
from core.common.time_text import time_text

_MOST_SEGMENTS = 1000


def summary_tiles(log: Mapping[str, Any]) -> str:
    summary = log["summary"]
    start, end = summary["start_offset"], summary["end_offset"]
    return tiles(
        [
            ("records", f"{summary['records']:,}"),
            ("batches", f"{summary['batches']:,}"),
            ("size", size_text(summary["size_bytes"])),
            ("segments", "not known" if summary["segments"] is None else f"{summary['segments']}"),
            ("offsets", f"{start:,} to {end - 1:,}" if end > start else f"none, the next is {end:,}"),
            ("offsets without a record", f"{summary['offsets_without_record']:,}"),
            ("batch, p50", size_text(summary["batch_bytes_p50"])),
            ("batch, p99", size_text(summary["batch_bytes_p99"])),
            ("batches out of order", f"{summary['out_of_order_batches']:,}"),
            ("batches in the future", f"{summary['future_batches']:,}"),
        ]
    )


def figure_sections(log: Mapping[str, Any]) -> Iterator[str]:
    summary, sample = log["summary"], log["sample"]
    if log["over_time"]:
        first, last = time_text(summary["first_timestamp"]), time_text(summary["last_timestamp"])
        for what in ("records", "bytes"):
            yield section(
                f"{what.capitalize()} over time",
                paragraph(f"{first} to {last}, {log['bucket_ms'] / 1000:g} s a bar"),
                columns([(time_text(bucket["start"]), bucket[what], what) for bucket in log["over_time"]]),
            )
    codecs = [(one["codec"], one["bytes"], f"{one['batches']:,}") for one in log["codecs"]]
    if codecs:
        yield section("Codecs", bars(("codec", "bytes", "batches"), codecs))
    if sample["stored_bytes"]:
        yield section(
            "Compressed again",
            paragraph(f"{sample['batches']} batches, {size_text(sample['stored_bytes'])} as stored"),
            bars(
                ("codec", "bytes", "saves"),
                [(one["codec"], one["bytes"], f"{one['saving']:.1%}") for one in sample["recompressed"]],
            ),
        )
    if sample["records"]:
        keys = (
            f"of {sample['records']:,} records looked into: {sample['distinct_keys']:,} different, "
            f"{sample['null_keys']:,} null; {sample['null_values']:,} null values"
        )
        top = [(one["key"], one["records"]) for one in sample["top_keys"]]
        yield section("Keys", paragraph(keys), bars(("key", "records"), top))
    if log["producers"]:
        producers = [(one["producer_id"], one["records"], one["epoch"]) for one in log["producers"]]
        yield section("Producers", bars(("producer id", "records", "epoch"), producers))
    if any(segment["size_bytes"] for segment in log["segments"]):
        yield section("Segments", _segments(log["segments"]))


def _segments(segments: Sequence[Mapping[str, Any]]) -> str:
    """Draws a bar for each segment, as long as its file; damaged parts have another colour."""
    most = max((one["size_bytes"] for one in segments), default=1) or 1
    names = ("segment", "", "size", "records", "first", "last", "damaged")
    head = "".join(f"<th{'' if number < 2 else ' class=n'}>{name}</th>" for number, name in enumerate(names))
    lines = []
    for segment in segments[:_MOST_SEGMENTS]:
        damaged = segment["damaged_bytes"]
        drawn = f'<i style="width:{100 * segment["size_bytes"] / most:.1f}%"></i>'
        if damaged:
            drawn += f'<i class="bad" style="width:{max(100 * damaged / most, 1):.1f}%"></i>'
        times = [time_text(at) if at >= 0 else "" for at in (segment["first_timestamp"], segment["last_timestamp"])]
        size, records = size_text(segment["size_bytes"]), f"{segment['records']:,}"
        cells = (size, records, *times, size_text(damaged) if damaged else "")
        lines.append(
            f'<tr><td>{text(segment["file"])}</td><td class="bar">{drawn}</td>'
            + "".join(f'<td class="n">{text(cell)}</td>' for cell in cells)
            + "</tr>"
        )
    return f'<div class="scroll"><table><tr>{head}</tr>{"".join(lines)}</table></div>' + more(
        len(segments), _MOST_SEGMENTS
    )
