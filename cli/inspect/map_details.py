"""Says in lines all that is known of a cell of a partition's map."""

from __future__ import annotations

from collections.abc import Iterator

from rich.style import Style

from cli.findings_out import finding_text
from cli.inspect.line_view import BAD
from cli.inspect.text_view import TextLine
from core.common.time_text import time_text
from core.forensics.gap_ledger import LOSING_REASONS
from core.forensics.missing_offsets import offsets_text
from core.inspector.check.findings import Severity
from core.records.batches import Batch
from core.records.record_batch import RecordBatch
from core.view.map.map_cell import Cell, CellDetails, GapRun, codec_text
from core.view.map.map_strips import STRIPS

_MILD = Style(color="yellow")
_IN_WORDS = ("transactions", "compaction", "index", "gaps", "damage")


def detail_lines(details: CellDetails) -> Iterator[TextLine]:
    """Gives what is wrong first."""
    cell = details.cell
    for finding in details.findings:
        yield TextLine(finding_text(finding), "damage", style=BAD if finding.severity is Severity.ERROR else _MILD)
    for run in details.runs:
        yield TextLine(gap_text(run), "gap", style=BAD if run.reason in LOSING_REASONS else None)
    for text in details.transactions:
        yield TextLine(text, "transaction")
    if details.left_out:
        yield TextLine(f"and {details.left_out:,} more", "")
    yield TextLine(_bytes_text(details), "bytes")
    yield TextLine("none is found at its first byte" if details.batch is None else batch_text(details.batch), "batch")
    for strip in STRIPS:
        sign = strip.sign(cell)
        is_said = {"gaps": details.runs, "damage": details.findings, "transactions": details.transactions}
        if strip.name in _IN_WORDS and not is_said.get(strip.name):
            yield TextLine(sign.meaning, strip.name)


def gap_text(run: GapRun) -> str:
    """Says it as `plog gaps` does."""
    if run.gaps == 1:
        return f"{offsets_text(run.start, run.end)} {run.reason.value}: {run.evidence}"
    return (
        f"{run.gaps:,} gaps of {run.offsets:,} offsets in {offsets_text(run.start, run.end)} {run.reason.value}; the "
        f"first: {run.evidence}"
    )


def _bytes_text(details: CellDetails) -> str:
    cell, first = details.cell, details.segments[0]
    where = f"{first.name} from position {cell.start - first.start:,}"
    if len(details.segments) > 1:
        where += f" on, up to {details.segments[-1].name}"
    return f"{cell.start:,} to {cell.end - 1:,}: {where}{_count_text(cell)}"


def _count_text(cell: Cell) -> str:
    if cell.batches is None:
        return ""
    return f"; {cell.batches} batch{'es' * (cell.batches != 1)} begin{'s' * (cell.batches == 1)} there"


def batch_text(batch: Batch) -> str:
    """Says what the header of a batch says."""
    if not isinstance(batch, RecordBatch):
        end = f"up to offset {batch.last_offset}"
        return f"format {batch.magic}, {end}, {codec_text(batch)}, {batch.size_bytes:,} bytes"
    parts = [
        offsets_text(batch.base_offset, batch.next_offset),
        f"{batch.count} record{'s' * (batch.count != 1)}",
        codec_text(batch),
        f"{batch.size_bytes:,} bytes",
    ]
    if batch.max_timestamp >= 0:
        parts.append(time_text(batch.max_timestamp))
    if batch.has_producer_id:
        parts.append(f"producer {batch.producer_id} epoch {batch.producer_epoch}")
    if batch.is_control:
        parts.append("a marker")
    elif batch.is_transactional:
        parts.append("transactional")
    return ", ".join(parts)
