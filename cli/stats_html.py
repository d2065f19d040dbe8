"""The report of `plog stats --html`: one page that needs nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from cli.progress import size_text
from core.common.time_text import time_text

_CSS = """
:root { color-scheme: light dark; --ink: #1d2733; --dim: #5d6b7a; --line: #dde3ea; --fill: #2f6fb3; --bad: #b3372f;
  --ground: #ffffff; --card: #f5f7fa; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6ebf1; --dim: #9aa7b5; --line: #303a46; --fill: #6aa7e8;
  --bad: #ef7d74; --ground: #14191f; --card: #1c232c; } }
body { margin: 2rem auto; max-width: 62rem; padding: 0 1rem; font: 15px/1.5 system-ui, sans-serif; color: var(--ink);
  background: var(--ground); }
h1 { font-size: 1.5rem; margin: 2.5rem 0 .5rem; } h2 { font-size: 1rem; margin: 1.8rem 0 .4rem; }
.tiles { display: flex; flex-wrap: wrap; gap: .6rem; }
.tile { background: var(--card); border-radius: .4rem; padding: .5rem .9rem; min-width: 7rem; }
.tile b { display: block; font-size: 1.15rem; font-variant-numeric: tabular-nums; } .tile span { color: var(--dim); }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th { text-align: left; font-weight: 600; color: var(--dim); } td, th { padding: .15rem .8rem .15rem 0; }
td.n, th.n { text-align: right; white-space: nowrap; } tr + tr td { border-top: 1px solid var(--line); }
td.bar { width: 40%; } td.bar i { display: block; height: .7rem; border-radius: 2px; background: var(--fill); }
td.bar i.bad { background: var(--bad); } svg { width: 100%; height: 9rem; display: block; }
svg rect { fill: var(--fill); } svg line { stroke: var(--line); } p { color: var(--dim); margin: .3rem 0; }
.scroll { overflow-x: auto; }
"""

_LISTED = 50


def stats_html(logs: Mapping[str, Mapping[str, Any]]) -> str:
    """Makes the page. `logs`: name -> what `plog stats --output json` has of a log."""
    body = "".join(_log(name, log) for name, log in logs.items())
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>plog stats</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_CSS}</style></head><body>{body}</body></html>\n'
    )


def _log(name: str, log: Mapping[str, Any]) -> str:
    summary, sample = log["summary"], log["sample"]
    tiles = [
        ("records", f"{summary['records']:,}"),
        ("batches", f"{summary['batches']:,}"),
        ("size", size_text(summary["size_bytes"])),
        ("segments", "not known" if summary["segments"] is None else f"{summary['segments']}"),
        ("offsets", f"{summary['start_offset']:,} to {summary['end_offset'] - 1:,}"),
        ("offsets without a record", f"{summary['offsets_without_record']:,}"),
        ("batch, p50", size_text(summary["batch_bytes_p50"])),
        ("batch, p99", size_text(summary["batch_bytes_p99"])),
        ("batches out of order", f"{summary['out_of_order_batches']:,}"),
        ("batches in the future", f"{summary['future_batches']:,}"),
    ]
    parts = [f"<h1>{escape(name)}</h1>", _tiles(tiles)]
    if log["over_time"]:
        first, last = time_text(summary["first_timestamp"]), time_text(summary["last_timestamp"])
        parts += [
            f"<h2>Records over time</h2><p>{first} to {last}, {log['bucket_ms'] / 1000:g} s a bar</p>",
            _columns([(time_text(b["start"]), b["records"], "records") for b in log["over_time"]]),
            "<h2>Bytes over time</h2>",
            _columns([(time_text(b["start"]), b["bytes"], "bytes") for b in log["over_time"]]),
        ]
    parts += [
        "<h2>Codecs</h2>",
        _bars(("codec", "bytes", "batches"), [(c["codec"], c["bytes"], f"{c['batches']:,}") for c in log["codecs"]]),
    ]
    if sample["stored_bytes"]:
        parts += [
            "<h2>Compressed again</h2>",
            f"<p>{sample['batches']} batches, {size_text(sample['stored_bytes'])} as stored</p>",
            _bars(
                ("codec", "bytes", "saves"),
                [(r["codec"], r["bytes"], f"{r['saving']:.1%}") for r in sample["recompressed"]],
            ),
        ]
    if sample["records"]:
        parts.append(
            f"<h2>Keys</h2><p>of {sample['records']:,} records looked into: {sample['distinct_keys']:,} different, "
            f"{sample['null_keys']:,} null; {sample['null_values']:,} null values</p>"
        )
        parts.append(_bars(("key", "records"), [(k["key"], k["records"]) for k in sample["top_keys"]]))
    if log["producers"]:
        producers = [(str(p["producer_id"]), p["records"], f"{p['epoch']}") for p in log["producers"]]
        parts += ["<h2>Producers</h2>", _bars(("producer id", "records", "epoch"), producers)]
    if log["segments"]:
        parts += ["<h2>Segments</h2>", _segment_map(log["segments"])]
    return "".join(parts)


def _tiles(tiles: Iterable[tuple[str, str]]) -> str:
    cells = (f'<div class="tile"><b>{escape(value)}</b><span>{escape(name)}</span></div>' for name, value in tiles)
    return f'<div class="tiles">{"".join(cells)}</div>'


def _columns(values: Sequence[tuple[str, int, str]]) -> str:
    """Draws a column chart; each column shows its time and value when the pointer rests on it."""
    most = max(value for _, value, _ in values) or 1
    rects = "".join(
        f'<rect x="{10 * number + 1}" y="{100 - 100 * value / most:.2f}" width="8" height="{100 * value / most:.2f}">'
        f"<title>{escape(label)}: {value:,} {unit}</title></rect>"
        for number, (label, value, unit) in enumerate(values)
    )
    width = 10 * len(values)
    return (
        f'<svg viewBox="0 0 {width} 101" preserveAspectRatio="none" role="img">{rects}'
        f'<line x1="0" y1="100.5" x2="{width}" y2="100.5"/></svg>'
    )


def _bars(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Draws for each its name, a bar as long as its share of the largest, the value, and what else there is."""
    most = max((row[1] for row in rows), default=1) or 1
    head = f"<th>{header[0]}</th><th></th>" + "".join(f'<th class="n">{name}</th>' for name in header[1:])
    lines = "".join(
        f'<tr><td>{escape(str(row[0]))}</td><td class="bar"><i style="width:{100 * row[1] / most:.1f}%"></i></td>'
        f'<td class="n">{row[1]:,}</td>'
        + "".join(f'<td class="n">{escape(str(cell))}</td>' for cell in row[2:])
        + "</tr>"
        for row in rows[:_LISTED]
    )
    more = f"<p>and {len(rows) - _LISTED} more</p>" if len(rows) > _LISTED else ""
    return f'<div class="scroll"><table><tr>{head}</tr>{lines}</table>{more}</div>'


def _segment_map(segments: Sequence[Mapping[str, Any]]) -> str:
    """Draws a bar for each segment, as long as its file; what is damaged of it has another colour."""
    most = max((s["size_bytes"] for s in segments), default=1) or 1
    names = ("segment", "", "size", "records", "first", "last", "damaged")
    head = "".join(f"<th{'' if number < 2 else ' class=n'}>{name}</th>" for number, name in enumerate(names))
    lines = []
    for segment in segments:
        damaged = segment["damaged_bytes"]
        bars = f'<i style="width:{100 * segment["size_bytes"] / most:.1f}%"></i>'
        if damaged:
            bars += f'<i class="bad" style="width:{max(100 * damaged / most, 1):.1f}%"></i>'
        times = [time_text(t) if t >= 0 else "" for t in (segment["first_timestamp"], segment["last_timestamp"])]
        cells = (
            size_text(segment["size_bytes"]),
            f"{segment['records']:,}",
            *times,
            size_text(damaged) if damaged else "",
        )
        lines.append(
            f'<tr><td>{segment["file"]}</td><td class="bar">{bars}</td>'
            + "".join(f'<td class="n">{cell}</td>' for cell in cells)
            + "</tr>"
        )
    return f'<div class="scroll"><table><tr>{head}</tr>{"".join(lines)}</table></div>'
