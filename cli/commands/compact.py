"""`plog compact`."""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from cli.options import parse_settings
from cli.output import OUTPUT, OutputFormat, Row, write_rows
from cli.plog_command import command, new_app
from cli.progress import Progress, size_text
from cli.terminal import say, say_failures
from core.common.command_option import argument, flag, option
from core.common.errors import PlogError, UsageError
from core.common.time_text import time_text
from core.common.topic_partition import TopicPartition

if TYPE_CHECKING:
    from core.inspector.stats.compaction_explain import Explained
    from core.inspector.stats.offline_compaction import CompactionOptions, CompactionPlan, OfflineCompaction

app = new_app()

_PLAN = ["partition", "what", "records_before", "records_after", "bytes_before", "bytes_after", "superseded",
         "tombstones", "aborted", "markers", "without_key", "clean_up_to", "why"]  # fmt: skip
_PLAN_DROPS = ["clean_up_to", "without_key", "markers", "aborted", "tombstones", "superseded", "bytes_before",
               "records_before"]  # fmt: skip
_EXPLAIN = ["partition", "offset", "timestamp", "key", "tombstone", "fate", "reason", "detail"]
_EXPLAIN_DROPS = ["tombstone", "timestamp", "detail"]
_WHAT_IF = ["partition", "settings", "what", "records_after", "bytes_after", "saved_bytes", "why"]


@command(app, "plog compact sample-data/textbook --set cleanup.policy=compact")
def compact(
    paths: list[Path] = argument("Partition folders or data directories.", metavar="PATH..."),
    apply: bool = flag("Carry out the plan. Without it the plan is only shown."),
    dry_run: bool = flag("Only show the plan, as without --apply."),  # noqa: ARG001
    settings: list[str] | None = option("A topic setting, for this run only.", "--set", metavar="KEY=VALUE"),
    roll: bool = flag("Seal the active segment first, so that it is cleaned too."),
    explain: bool = flag("Say why records are still there; needs --key or --all."),
    key: str | None = option("Explain the records with this key.", metavar="KEY"),
    all_keys: bool = flag("Explain every record.", "--all"),
    what_if: list[str] | None = option(
        "Show what another setting would save; nothing is written.", metavar="KEY=VALUE"
    ),
    dedupe_buffer_size: int = option(
        "How much memory the keys may take.", default=128 * 1024 * 1024, metavar="BYTES", min=1
    ),
    output: OutputFormat = OUTPUT,
) -> None:
    """Compact logs that no broker serves, as the broker's cleaner would: a plan first, then --apply.

    The last record of each key stays. --explain says of every record why it is there, or what will remove it. The exit
    code is 1 if a partition can't be compacted.
    """
    from core.inspector.stats.offline_compaction import CompactionOptions

    if explain != (key is not None or all_keys) or (key is not None and all_keys):
        raise UsageError("--explain goes with --key KEY or with --all, and they with it")
    if sum((apply, explain, bool(what_if))) > 1:
        raise UsageError("--apply, --explain and --what-if: one at a time")
    options = CompactionOptions(parse_settings(settings or ()), roll, dedupe_buffer_size)
    if explain:
        _explain(paths, options, None if key is None else key.encode(), output)
    elif what_if:
        _what_if(paths, options, parse_settings(what_if), output)
    else:
        failures: list[PlogError] = []
        plans = [plan for path in paths for plan in _plans(path, options, failures, apply=apply)]
        rows = [_plan_row(plan, dedupe_buffer_size, is_done=apply) for plan in plans]
        write_rows(rows, _columns(rows, _PLAN, output), output, drops=_PLAN_DROPS)
        _say_summary(plans, is_done=apply)
        is_refused = any(plan.refusal is not None for plan in plans)
        raise typer.Exit(max(say_failures(failures), int(is_refused)))


def _plans(
    path: Path, options: CompactionOptions, failures: list[PlogError], *, apply: bool
) -> Iterator[CompactionPlan]:
    """Yields the plan of each partition, and adds to `failures` the errors of unreadable settings."""
    with _compaction(path, options) as compaction, compaction.locked() if apply else contextlib.nullcontext():
        failures += [] if compaction.settings_error is None else [compaction.settings_error]
        for partition in compaction.partitions():
            yield compaction.apply(partition) if apply else compaction.plan(partition)


@contextlib.contextmanager
def _compaction(path: Path, options: CompactionOptions) -> Iterator[OfflineCompaction]:
    from core.inspector.stats.offline_compaction import OfflineCompaction

    with Progress("read", "bytes") as progress:
        yield OfflineCompaction(path, options, on_bytes=lambda size: progress.add(0, size))


def _columns(rows: Sequence[Row], columns: Sequence[str], output: OutputFormat) -> list[str]:
    if output is not OutputFormat.table or not rows:
        return list(columns)
    return [name for name in columns if any(row[name] for row in rows)]


def _what(plan: CompactionPlan, *, is_done: bool = False) -> str:
    if plan.refusal is not None:
        return "refused"
    if plan.stats is None:
        return "waits"
    return "compacted" if is_done else "compact"


def _plan_row(plan: CompactionPlan, dedupe_buffer_size: int, *, is_done: bool) -> Row:
    row: dict[str, Any] = {"partition": str(plan.partition), "what": _what(plan, is_done=is_done)}
    if plan.stats is not None:
        row |= {name: getattr(plan.stats, name) for name in _PLAN if hasattr(plan.stats, name)}
        row["clean_up_to"] = plan.end_offset
    row["why"] = plan.refusal or plan.waits or (None if is_done else _more_rounds(plan, dedupe_buffer_size))
    return {name: row.get(name) for name in _PLAN}


def _more_rounds(plan: CompactionPlan, dedupe_buffer_size: int) -> str | None:
    if plan.part is None or plan.end_offset >= plan.part.first_uncleanable_offset:
        return None
    return (
        f"this is the first round of about {math.ceil(plan.fillings)}, as the keys up to offset "
        f"{plan.part.first_uncleanable_offset} don't fit --dedupe-buffer-size; --apply does all rounds, and "
        f"{math.ceil(plan.fillings * dedupe_buffer_size)} bytes would do it in one"
    )


def _say_summary(plans: Sequence[CompactionPlan], *, is_done: bool) -> None:
    found = [plan.stats for plan in plans if plan.stats is not None]
    if not plans:
        say("no compacted topic there; --set cleanup.policy=compact takes any for one")
    elif not found:
        say("nothing to compact")
    else:
        records = sum(stats.records_before - stats.records_after for stats in found)
        saved = sum(stats.bytes_before - stats.bytes_after for stats in found)
        would = "are gone" if is_done else "would be removed; --apply does it"
        larger = f"{size_text(-saved)} more {'are' if is_done else 'would be'} taken, for new headers; "
        say(f"{larger if saved < 0 else ''}{records:,} records and {size_text(max(saved, 0))} {would}")


def _explain(paths: Sequence[Path], options: CompactionOptions, key: bytes | None, output: OutputFormat) -> None:
    from core.inspector.dump.value_format import as_utf8, format_text
    from core.inspector.stats.compaction_explain import CompactionExplainer

    def row(partition: TopicPartition, found: Explained) -> Row:
        return {
            **found._asdict(),
            "partition": str(partition),
            "timestamp": time_text(found.timestamp) if found.timestamp >= 0 else None,
            "key": None if found.key is None else _printable(format_text(as_utf8(found.key))),
            "tombstone": found.is_tombstone,
            "fate": "goes" if found.goes else "stays",
            "reason": found.reason.value,
        }

    rows: list[Row] = []
    now_ms = time.time_ns() // 1_000_000
    for path in paths:
        with _compaction(path, options) as compaction:
            if compaction.settings_error is not None:
                raise compaction.settings_error
            for partition in compaction.partitions():
                with compaction.opened(partition) as opened:
                    rows += [row(partition, found) for found in CompactionExplainer(opened, now_ms).explain(key)]
    write_rows(rows, _columns(rows, _EXPLAIN, output), output, drops=_EXPLAIN_DROPS)
    if key is not None and not rows:
        say(f"no record with key {key.decode()!r}")
        raise typer.Exit(1)


def _printable(text: str) -> str:
    """Escapes text that is not for terminals, as keys of internal topics."""
    return text if text.isprintable() else json.dumps(text, ensure_ascii=False)


def _what_if(paths: Sequence[Path], options: CompactionOptions, changes: dict[str, str], output: OutputFormat) -> None:
    rows: list[Row] = []
    is_refused = False
    failures: list[PlogError] = []
    changed = replace(options, overrides={**options.overrides, **changes})
    for path in paths:
        now = {plan.partition: plan for plan in _plans(path, options, [], apply=False)}
        for plan in _plans(path, changed, failures, apply=False):
            is_refused |= plan.refusal is not None
            if plan.partition in now:
                rows.append(_what_if_row(now[plan.partition], "now", None))
            rows.append(_what_if_row(plan, ", ".join(f"{k}={v}" for k, v in changes.items()), now.get(plan.partition)))
    write_rows(rows, _WHAT_IF, output, drops=["records_after", "bytes_after"])
    raise typer.Exit(max(say_failures(failures), int(is_refused)))


def _what_if_row(plan: CompactionPlan, settings: str, now: CompactionPlan | None) -> Row:
    stats = plan.stats
    saved = stats.bytes_before - stats.bytes_after if stats is not None else 0
    before = now.stats.bytes_before - now.stats.bytes_after if now is not None and now.stats is not None else 0
    return {
        "partition": str(plan.partition),
        "settings": settings,
        "what": _what(plan),
        "records_after": None if stats is None else stats.records_after,
        "bytes_after": None if stats is None else stats.bytes_after,
        "saved_bytes": saved if settings == "now" else saved - before,
        "why": plan.refusal or plan.waits,
    }
