"""`plog doctor`."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from cli.output import OUTPUT, OutputFormat, Row, fields, write_rows
from cli.plog_command import command, new_app
from cli.progress import Progress, size_text
from cli.terminal import fill, find_width, say_failures, wrapped
from core.cluster.image.feature_levels import METADATA_VERSION_FEATURE, find_release
from core.common.command_option import argument, option
from core.common.printable import printable
from core.common.time_text import time_text

if TYPE_CHECKING:
    from core.view.figures.diagnosis import Advice, Diagnosis

app = new_app()

_LINES = 24
_MOST_NAMES = 3


@command(app, "plog doctor sample-data/damaged")
def doctor(
    path: Path = argument("A data directory, a partition's folder, or a file of it.", metavar="PATH"),
    whole: bool | None = option(
        "Read all of the logs, or only the newest segments. Default: all, up to 10 GB.", "--whole/--quick"
    ),
    output: OutputFormat = OUTPUT,
) -> None:
    """Say on one screen what a directory is, how it is, and what to do about it.

    It says who wrote it and who serves it, and in a line each what plog verify, plog gaps and plog stats find there;
    then the three things that are most worth doing, as commands to paste. It only reads, and shows no value of a
    record. The exit code is 1 if one of the three finds something.
    """
    from core.view.figures.diagnosis import examine

    with Progress("checked", "bytes") as progress:
        examined = examine(path, progress, whole=whole)
    if output is OutputFormat.table:
        _print(examined.diagnosis)
    else:
        write_rows([_row(examined.diagnosis, output)], [*asdict(examined.diagnosis)], output)
    raise typer.Exit(say_failures(examined.failures) or (0 if examined.is_well else 1))


def _row(found: Diagnosis, output: OutputFormat) -> Row:
    advice = [{"why": one.why, "command": shlex.join(one.command)} for one in found.advice]
    transactions = [one._asdict() for one in found.open_transactions]
    if output is OutputFormat.csv:
        return {
            **asdict(found),
            "advice": [one["command"] for one in advice],
            "open_transactions": [f"{one.partition}@{one.offset}" for one in found.open_transactions],
        }
    return {**asdict(found), "advice": advice, "open_transactions": transactions}


# --- the screen


def _print(found: Diagnosis) -> None:
    """Prints as many lines as a terminal has, if nothing in them is long; what does not fit is said more briefly."""
    width = find_width(sys.stdout)
    advice: list[str] = []
    for number, one in enumerate(found.advice, start=1):
        advice += [*wrapped(f"{number}. {printable(one.why)}:", width).split("\n"), *_command_lines(one, width)]
    lines = list(fields(_fields(found), width))
    if width is not None and len(lines) + 1 + len(advice) > _LINES:
        lines = list(fields(_fields(found, is_brief=True), width))
    print("\n".join([*lines, *([""] if advice else []), *advice]))


def _command_lines(advice: Advice, width: int | None) -> Iterator[str]:
    """Returns the command so that it can be pasted as it stands there, also if it takes more than one line."""
    words = [shlex.quote(printable(word, keeps="")) for word in advice.command]
    if width is None:
        return iter([f"   {' '.join(words)}"])
    lines = fill(words, " ", width - len(" \\"), first="   ", indent="     ")
    return iter([*(f"{line} \\" for line in lines[:-1]), lines[-1]])


def _fields(found: Diagnosis, *, is_brief: bool = False) -> list[tuple[str, str]]:
    """Returns the lines; the brief ones without what is in parentheses, and with one name of many."""
    most = 1 if is_brief else _MOST_NAMES
    texts = [
        ("written by", _writer_text(found)),
        ("served by", _server_text(found)),
        ("holds", _contents_text(found, most)),
        ("beside", _beside_text(found, most)),
        ("read", _partial_text(found)),
        ("verify", _verify_text(found)),
        ("gaps", _gaps_text(found)),
        ("stats", _stats_text(found)),
    ]
    shown = [(name, re.sub(r" \([^)]*\)", "", text) if is_brief else text) for name, text in texts if text]
    return [("path", f"{found.path}: {_kind_text(found)}"), *shown]


def _kind_text(found: Diagnosis) -> str:
    owner = f"of node {found.node_id}, cluster {found.cluster_id or 'without an id'}"
    match found.kind:
        case "data directory":
            return f"the data directory {owner if found.node_id is not None else '(of a broken meta.properties)'}"
        case "folder of partitions":
            return f"a folder of {_counted(found.partitions, 'partition')}, no broker's: it has no meta.properties"
        case kind:
            return f"a {kind}" if found.node_id is None else f"a {kind} {owner}"


def _writer_text(found: Diagnosis) -> str:
    if found.written_by is None:
        return ""
    texts = [found.written_by]
    if found.metadata_version is not None:
        release = find_release({METADATA_VERSION_FEATURE: (0, found.metadata_version)})
        since = f"Kafka before {release} does not start on it" if release else "of a newer Kafka than plog knows"
        texts.append(f"metadata.version {found.metadata_version} ({since})")
    if found.security is not None:
        texts.append(f"security: {found.security}" if found.security else "no security in its metadata")
    return "; ".join(texts)


def _server_text(found: Diagnosis) -> str:
    if found.served_by is not None:
        is_named = found.server is None or found.server in found.served_by
        return found.served_by if is_named else f"{found.served_by}, at {found.server}"
    if found.was_stopped_cleanly is None:
        return ""
    return f"nobody; {'stopped cleanly' if found.was_stopped_cleanly else 'not stopped cleanly, or copied as it ran'}"


def _contents_text(found: Diagnosis, most: int) -> str:
    texts = [f"{size_text(found.size_bytes)} of log in {_counted(found.segments, 'segment')}"]
    if found.kind in ("data directory", "folder of partitions"):
        topics = [f"{topic} {size_text(size)}" for topic, size in found.topic_bytes.items()]
        counts = f"{_counted(found.topics, 'topic')}, {_counted(found.partitions, 'partition')}"
        texts = [f"{counts}, {texts[0]}: {_names(topics, most)}" if topics else f"no partition, {texts[0]}"]
    for names, what in (
        (found.absent_partitions, "no folder of"),
        (found.unknown_partitions, "not in the metadata:"),
        (found.partitions_elsewhere, "in another of its log.dirs:"),
        (found.elsewhere, "more of the same broker in"),
    ):
        if names:
            texts.append(f"{what} {_names(names, most)}")
    return "; ".join(texts)


def _beside_text(found: Diagnosis, most: int) -> str:
    kinds = [(what.partition(" "), count) for what, count in found.beside.items()]
    texts = [f"{_counted(count, noun)} {names}" for (noun, _, names), count in kinds]
    if found.unchecked:
        why = " (Kafka does not start beside such a folder)" if found.kind == "data directory" else ""
        texts.insert(0, f"no partition's, and not checked: {_names(found.unchecked, most)}{why}")
    return _names(texts, most if most < _MOST_NAMES else len(texts), "; ")


def _partial_text(found: Diagnosis) -> str:
    if not found.is_partial:
        return ""
    minutes = found.seconds / max(found.seen_bytes, 1) * found.size_bytes / 60
    share = f"{size_text(found.seen_bytes)} of {size_text(found.size_bytes)}"
    takes = f"about {minutes:,.0f} min" if minutes >= 1 else "less than a minute"
    return f"only the newest segments, {share}; all of it takes {takes} (--whole)"


def _verify_text(found: Diagnosis) -> str:
    if not found.findings:
        return "clean; records were not decoded, --deep does that" if found.seen_bytes else "clean"
    kinds = ", ".join(f"{code} {count}" if count > 1 else code for code, count in found.findings.items())
    at_stake = f"; {_counted(found.records_at_stake, 'record')} at stake" if found.records_at_stake else ""
    return f"{_counted(sum(found.findings.values()), 'finding')}: {kinds}{at_stake}"


def _gaps_text(found: Diagnosis) -> str:
    if found.records is None:
        return "a single file has none; its folder has"
    texts = [f"{_counted(found.records, 'record')}, {_counted(found.offsets_without_record, 'offset')} without one"]
    texts.append(f"{found.lost:,} of them lost or unexplained")
    if found.hidden_records:
        texts.append(f"{found.hidden_records:,} records hidden by transactions")
    waits = [
        f"readers of committed records wait at {one.partition}, offset {one.offset}, since {time_text(one.since_ms)}"
        for one in found.open_transactions[:1]
    ]
    return "; ".join([", ".join(texts), *waits])


def _stats_text(found: Diagnosis) -> str:
    texts = [_counted(found.batches, "batch", "es")]
    if found.first_timestamp >= 0:
        texts.append(f"{time_text(found.first_timestamp)} to {time_text(found.last_timestamp)}")
    if found.future_batches:
        texts.append(f"{_counted(found.future_batches, 'batch', 'es')} ahead of this clock")
    return ", ".join(texts)


def _counted(count: int, what: str, plural: str = "s") -> str:
    return f"{count:,} {what}{'' if count == 1 else plural}"


def _names(names: list[str], most: int, glue: str = ", ") -> str:
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return glue.join(names[:most]) + more
