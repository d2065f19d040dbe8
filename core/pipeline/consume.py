"""Reads the records that a request asks for, and writes them to where it says: source, steps, sink.

A sink writes values, patterns (format_pattern.py) or envelopes as text, Arrow or Parquet as columns. All but values
need more libraries, which are imported with the first record sink that uses them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy  # noqa: F401 - imported after the log's modules, it costs a short command 15 ms more

from core.client.read.record_source import DAMAGE_HINT, FindMore, Offsets, RecordSource
from core.client.schemas.undecoded import SchemaError
from core.common.errors import PlogError, UsageError
from core.common.out_file import OutFile
from core.common.topic_partition import INTERNAL_TOPICS, TopicPartition
from core.forensics.partition_reader import DirectoryReader
from core.pipeline.consume_request import ConsumeRequest, ensure_there, resolve
from core.pipeline.record_printer import (
    ARROW,
    CSV,
    PARQUET,
    VALUE,
    ByteSink,
    ConsumeRun,
    Int64s,
    PartitionRows,
    RecordPrinter,
    Sink,
    ValueSink,
)
from core.pipeline.record_stream import Chunks, Step, filtering, read_bounded, read_following, read_latest, through
from core.pipeline.session import Session

if TYPE_CHECKING:
    from core.client.net.kafka_client import KafkaClient
    from core.pipeline.large_values import Joiner


class Stdout(NamedTuple):
    """Where records go without `out`. On a terminal `is_escaped` means that their bytes may not control it."""

    sink: ByteSink
    is_escaped: bool = False


def _open_file_sink(run: ConsumeRun, path: Path) -> Sink:
    """Opens a sink into a file. With an endless request the file gets its name with its first record, so that people
    can watch it grow; except Parquet, which can't be read before its end.

    Raises UsageError for a format that does not exist, AccessError if the file can't be created.
    """
    file = OutFile(path)
    try:
        sink = _make_sink(run, file.file)
    except PlogError:
        file.discard()
        raise
    return _FileSink(file, sink, grows=run.request.is_endless and run.request.format != PARQUET, say=run.say)


def _make_sink(run: ConsumeRun, out: Any, *, is_escaped: bool = False) -> Sink:
    """Returns a sink that writes to `out`, a ByteSink for text, and a file for what PyArrow writes. Raises UsageError
    for an unknown format.
    """
    format_ = run.request.format
    if format_ == VALUE:
        return ValueSink(out)
    if format_ == CSV:
        from core.pipeline.consuming.flat_sink import CsvSink

        return CsvSink(out, run)
    if format_ in (ARROW, PARQUET):
        from core.pipeline.consuming.typed_sink import open_columns

        return open_columns(run, out)
    from core.pipeline.text_sink import TextSink, make_formatter

    return TextSink(out, make_formatter(format_, run.watermarks, is_escaped=is_escaped))


class _FileSink:
    def __init__(self, file: OutFile, sink: Sink, *, grows: bool, say: Callable[[str], None]) -> None:
        self._file = file
        self._sink = sink
        self._grows = grows
        self._say = say
        self._has_records = False

    def write(self, page: Sequence[PartitionRows], order: Int64s | None = None) -> None:
        self._has_records = True
        self._sink.write(page, order)
        if self._grows:
            self._file.put_in_place()

    def close(self, *, is_whole: bool) -> None:
        try:
            self._sink.close(is_whole=is_whole)
        except (OSError, PlogError):  # the last records may have no place in it
            self._file.discard()  # nobody can read it without its end
            raise
        if not (is_whole or self._has_records):
            self._file.discard()  # a Parquet or Arrow file without records has its columns
            return
        kept = self._file.end(is_whole=is_whole)
        if kept is not None:
            self._say(f"the records so far are in {kept}")


_MOST_NAMED = 10
"""The most partitions that one line names."""


def consume(request: ConsumeRequest, session: Session, open_stdout: Callable[[], Stdout]) -> bool:
    """Writes the records up to the end of the request. Returns False if damaged records were left out.

    `open_stdout` is called if the request has no `out`. Raises UsageError for options that do not go together,
    AccessError and KafkaError for logs that can't be read.
    """
    request.ensure_consistent()
    run = ConsumeRun(request, session)
    joiner = None
    if request.join:
        from core.pipeline.large_values import Joiner

        joiner = Joiner()
    steps = _steps(run, joiner)
    if request.max_messages == 0:
        return True
    try:
        with _sink(run, open_stdout) as sink:
            if request.group is not None:
                from core.pipeline.consume_group import consume_group

                consume_group(run, steps, sink)
            else:
                _consume_partitions(run, steps, sink)
    finally:
        has_undecoded = run.report_values()
    for partition, offset in joiner.incomplete() if joiner is not None else ():
        run.say(
            f"warning: {partition}: a value that begins at offset {offset} is not printed: slices of it were not read"
        )
    if run.left_out:
        run.say("hint: plog verify --deep names all damage of a directory, plog recover shows what can be mended")
    return not run.left_out and not has_undecoded


def _steps(run: ConsumeRun, joiner: Joiner | None) -> list[Step]:
    """Returns the steps that records go through before they are printed, in order."""
    request = run.request
    steps: list[Step] = []
    if joiner is not None:
        steps.append(joiner.join)
    if request.claim_check is not None:
        from core.pipeline.large_values import ClaimCheckRoom

        steps.append(ClaimCheckRoom(request.claim_check).redeem)
    decode: Step | None = None
    if not request.formats.are_plain:
        from core.pipeline.key_value_text import Schemas

        schemas = Schemas(request.formats, run.session.find_settings(), run.say)
        decode = partial(schemas.decoded, is_typed=bool(request.filters))
        run.value_types = schemas.value_types
    if request.reads_internal:
        from core.pipeline.consuming.internal_text import decoding_internal

        decode = decoding_internal(decode, run.say)
    steps += [decode] if decode is not None else []
    if request.has_filter:
        from core.records.record_filter import NotJson

        run.not_json = NotJson()
        steps.append(filtering(request.find_filter(run.not_json), run.not_json))
    if "{unpack[" in request.format:
        from core.pipeline.format_pattern import size_check

        check = size_check(request.format)
        steps += [check] if check is not None else []
    return steps


@contextlib.contextmanager
def _sink(run: ConsumeRun, open_stdout: Callable[[], Stdout]) -> Iterator[Sink]:
    """Opens the sink, and closes it as complete also if the user stops an endless one."""
    request, undivided = run.request, run.session.frontend.undivided
    sink = _open_sink(run, open_stdout)
    is_whole = False
    try:
        yield sink
        is_whole = True
    except KeyboardInterrupt:
        is_whole = request.is_endless
        raise
    finally:
        with undivided() if request.out is None else undivided(float("inf")):
            sink.close(is_whole=is_whole)


def _open_sink(run: ConsumeRun, open_stdout: Callable[[], Stdout]) -> Sink:
    request = run.request
    if request.format in (ARROW, PARQUET):
        from core.records.arrow_strings import ensure_arrow

        ensure_arrow(f"--format {request.format}")
    if request.out is not None:
        return _open_file_sink(run, request.out)
    if request.format == PARQUET:
        raise UsageError("--format parquet goes into a file", hint="--out FILE")
    stdout = open_stdout()
    return _make_sink(run, stdout.sink, is_escaped=stdout.is_escaped)


# --- by itself, without a group


def _consume_partitions(run: ConsumeRun, steps: list[Step], sink: Sink) -> None:
    request = run.request
    with run.session.open_source() as opened:
        if isinstance(opened, DirectoryReader):
            source, find_partitions = _directory(run, opened)
        else:
            source, find_partitions = _cluster(run, opened)
        present = partitions = _ensure_partitions(request, find_partitions())
        ends = source.ends(partitions)
        one_key = None
        if request.key is not None:
            from core.pipeline.consuming.one_key import OneKey

            one_key = OneKey(request, run.session, run.say)
            partitions = one_key.choose(source, present, ends)
            steps.insert(int(request.join), one_key.step)  # after values are joined, before keys are decoded
        starts = ensure_there(resolve(request.from_, source, partitions, ends), source, ends, run.say)
        if request.follow:
            find_more = _finder(request, source, find_partitions, set(present))
            RecordPrinter(run, sink).print_all(through(read_following(source, starts, find_more), steps))
            return
        bounds = resolve(request.as_of or request.until, source, partitions, ends)
        bounds = {tp: min(offset, ends[tp]) for tp, offset in bounds.items()}
        may_hold = None if one_key is None or request.join else one_key.may_hold
        read = partial(read_bounded, source, may_hold=may_hold)
        _print_bounded(run, sink, source, read=read, starts=starts, bounds=bounds, steps=steps)
        if one_key is not None:
            one_key.report(run.undecoded.shown)


def _print_bounded(
    run: ConsumeRun,
    sink: Sink,
    source: RecordSource,
    *,
    read: Callable[..., Chunks],
    starts: Offsets,
    bounds: Offsets,
    steps: list[Step],
) -> None:
    """Prints [start, bound) of each partition, which `read` reads from the source, in the order of the request."""
    request, printer = run.request, RecordPrinter(run, sink)
    if request.last is not None:
        from core.pipeline.last_records import read_last

        def read_span(some: Offsets, ends: Offsets) -> Chunks:
            return through(read(some, ends), steps)

        newest_first = request.newest_first
        printer.print_pages(read_last(read_span, starts, bounds, request.last, newest_first=newest_first))
        return
    unread = dict.fromkeys(tp for tp, start in starts.items() if start < bounds[tp])

    def done(partition: TopicPartition) -> None:
        unread.pop(partition, None)

    def read_from(some: Offsets) -> Chunks:
        if request.is_latest:
            return through(read_latest(source, some, bounds, tell=run.say, done=done), steps)
        return through(read(some, bounds, done), steps)

    try:
        if request.merge:
            from core.pipeline.time_merge import merge_by_time

            printer.print_pages(merge_by_time({tp: read_from({tp: start}) for tp, start in starts.items()}))
        elif request.per_partition:
            for tp, start in starts.items():
                RecordPrinter(run, sink).print_all(read_from({tp: start}))
        else:
            printer.print_all(read_from(starts))
    except PlogError as error:
        if (error.hint == DAMAGE_HINT or isinstance(error, SchemaError)) and len(unread) > 1:
            _report_unread(list(unread), error, run.say)
        raise


def _report_unread(partitions: list[TopicPartition], error: PlogError, say: Callable[[str], None]) -> None:
    """Reports the partitions in which an error leaves records unread, its own included."""
    names = ", ".join(map(str, partitions[:_MOST_NAMED]))
    more = f" and {len(partitions) - _MOST_NAMED} more" * (len(partitions) > _MOST_NAMED)
    what = "damage" if error.hint == DAMAGE_HINT else "a record that can't be decoded"
    say(f"warning: {what} ends the reading; not read to their ends: {names}{more}")


FindPartitions = Callable[[], list[TopicPartition]]


def _cluster(run: ConsumeRun, client: KafkaClient) -> tuple[RecordSource, FindPartitions]:
    from core.client.read.cluster_source import ClusterSource  # a directory is read without it, and the protocol

    subscription = run.subscribe(client)
    return ClusterSource(client, run.read_options(), watermarks=run.watermarks), subscription.topic_partitions


def _directory(run: ConsumeRun, reader: DirectoryReader) -> tuple[RecordSource, FindPartitions]:
    from core.client.read.directory_source import DirectorySource

    source = DirectorySource(reader, options=run.read_options(), watermarks=run.watermarks)
    pattern = run.request.find_pattern()
    topics = list(dict.fromkeys(run.request.topics))
    if pattern is not None:
        own = {*INTERNAL_TOPICS, "__cluster_metadata"}  # no pattern takes them, as in Kafka's consumer
        topics = [topic for topic in source.topics() if topic not in own and pattern.fullmatch(topic)]
        if not topics:
            raise run.request.no_topic_error()
    found = [TopicPartition(topic, number) for topic in topics for number in source.partitions(topic)]
    return source, lambda: found


def _ensure_partitions(request: ConsumeRequest, present: list[TopicPartition]) -> list[TopicPartition]:
    """Picks the requested partitions. Raises UsageError if a topic lacks one."""
    if not request.partitions:
        return present
    for topic in dict.fromkeys(tp.topic for tp in present):
        numbers = [tp.partition for tp in present if tp.topic == topic]
        missing = sorted(set(request.partitions) - set(numbers))
        if missing:
            there = f"{numbers[0]} to {numbers[-1]}" if len(numbers) > 1 else f"partition {numbers[0]}"
            raise UsageError(f"topic {topic} has no partition {missing[0]}, only {there}")
    return [tp for tp in present if tp.partition in request.partitions]


def _finder(
    request: ConsumeRequest, source: RecordSource, find_partitions: FindPartitions, known: set[TopicPartition]
) -> FindMore:
    """Returns a finder of new partitions, from their beginnings: all their records are new."""

    def find_more() -> Offsets:
        new = [tp for tp in find_partitions() if tp not in known]
        if request.partitions:
            new = [tp for tp in new if tp.partition in request.partitions]
        starts = source.starts(new) if new else {}
        known.update(new)  # now: a caller without an answer asks again
        return starts

    return find_more
