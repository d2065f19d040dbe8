"""What `plog consume` is asked, and how it goes about it: where from, which records, until when, and how written."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cli.consume_range import ensure_in_order, ensure_there, resolve
from cli.options import Commit, GroupProtocol, say
from cli.record_stream import (
    Chunk,
    Chunks,
    Step,
    filtering,
    merge_by_time,
    read_bounded,
    read_following,
    read_group,
    read_latest,
    through,
)
from cli.records_out import PARQUET, PartitionRows, Sink, open_sink
from cli.session import find_server, open_client, open_source
from cli.stop_signals import FINISHING_SECONDS, undivided
from core.client.patience import DAMAGE_HINT, Patience
from core.client.record_source import FindMore, Offsets, RecordSource
from core.client.watermarks import Watermarks
from core.common.errors import PlogError, UsageError
from core.common.topic_partition import TopicPartition
from core.log.directory_reader import DirectoryReader

if TYPE_CHECKING:
    from cli.large_values import Joiner
    from core.client.kafka_client import KafkaClient
    from core.client.subscription import Subscription
    from core.records.record_filter import RecordFilter

_PATIENCE_SECONDS = 30.0
_REGEX_SIGN = "^"
_MOST_NAMED = 10
"""Partitions of which one line tells."""


@dataclass(frozen=True, slots=True)
class ConsumeRequest:
    """The options of `plog consume`."""

    topics: Sequence[str]
    is_regex: bool
    partitions: Sequence[int]
    from_: str
    until: str
    as_of: str | None
    is_latest: bool
    max_messages: int | None
    is_per_partition: bool
    follow: bool
    idle_timeout_ms: int | None
    merge: bool
    filters: Sequence[str]
    grep: str | None
    group: str | None
    group_protocol: GroupProtocol
    group_instance_id: str | None
    commit: Commit
    read_committed: bool
    with_control: bool
    claim_check: Path | None
    join: bool
    schema_registry: str | None
    exits_on_error: bool | None
    format: str
    is_raw: bool
    out: Path | None
    bootstrap_server: str | None
    data_dir: Path | None
    lock_timeout_s: float = 10.0
    watermarks: dict[TopicPartition, Watermarks] = field(default_factory=dict)
    """Those of what is read, while it is read."""
    left_out: list[str] = field(default_factory=list)
    """Which records were passed over because they are damaged, in words."""
    noted: list[str] = field(default_factory=list)
    """What was said about the logs though nothing is wrong with them."""

    def ensure_consistent(self) -> None:
        """UsageError for options that do not go together."""
        for is_wrong, problem in (
            (self.follow and self.until != "end", "--follow has no --until"),
            (self.as_of is not None and self.until != "end", "--as-of and --until: one of them"),
            (
                self.is_latest and (self.follow or self.group is not None),
                "--latest-per-key and --as-of read to an end: not with --follow or --group",
            ),
            (
                self.merge and (self.follow or self.group is not None),
                "--merge puts what is there in order: not with --follow or --group",
            ),
            (
                self.group is not None and (self.partitions or self.until != "end"),
                "--group has neither --partition nor --until: the group says what is read",
            ),
            (
                self.group is None and (self.group_instance_id is not None or self.commit is Commit.before),
                "--group-instance-id and --commit go with --group",
            ),
            (
                self.group is not None and "=" in self.from_,
                "--group begins in one place on all partitions, whoever reads them: --from WHERE, without a partition",
            ),
            (self.is_per_partition and self.max_messages is None, "--per-partition goes with --max-messages"),
            (
                self.is_per_partition and (self.merge or self.follow or self.group is not None),
                "--per-partition does not go with --merge, --follow or --group",
            ),
            (
                self.idle_timeout_ms is not None and not self.follow and self.group is None,
                "--timeout-ms goes with --follow or --group: without them it stops at the end",
            ),
            (
                self.group is not None and self.format == PARQUET,
                "--format parquet does not go with --group: what is committed would not be written yet",
            ),
        ):
            if is_wrong:
                raise UsageError(problem)
        ensure_in_order(self.from_, self.until)
        if self.as_of is not None:
            ensure_in_order(self.from_, self.as_of, ("--from", "--as-of"))

    @property
    def wanted(self) -> RecordFilter | None:
        """All the filters at once."""
        if self.grep is None and not self.filters:
            return None
        from core.records.record_filter import both, grep, parse_filter

        now_ms = time.time_ns() // 1_000_000
        found: RecordFilter | None = grep(self.grep) if self.grep is not None else None
        for text in self.filters:
            parsed = parse_filter(text, now_ms)
            found = parsed if found is None else both(found, parsed)
        return found

    def patience(self) -> Patience:
        """To the end of time with what has none, unless errors are to end it."""
        is_endless = self.follow or self.group is not None
        if self.exits_on_error:
            return Patience(note=self._note, tell_left_out=self._tell_left_out)
        seconds = float("inf") if is_endless else _PATIENCE_SECONDS
        return Patience(
            seconds,
            skips_damage=self.exits_on_error is False,
            tell=lambda problem: say(f"warning: {problem}"),
            note=self._note,
            tell_left_out=self._tell_left_out,
        )

    def _note(self, note: str) -> None:
        """Once, however often the records are read."""
        if note not in self.noted:
            self.noted.append(note)
            say(f"note: {note}")

    def _tell_left_out(self, problem: str) -> None:
        """Once, however often the records are read."""
        if problem not in self.left_out:
            self.left_out.append(problem)
            say(f"warning: {problem}")


def consume(request: ConsumeRequest) -> bool:
    """Until the end of what is asked for. False if records were left out because they are damaged."""
    request.ensure_consistent()
    joiner = _joiner() if request.join else None
    steps = _steps(request, joiner)
    if request.max_messages == 0:
        return True
    with _sink(request) as sink:
        if request.group is not None:
            _consume_group(request, steps, sink)
        else:
            _consume_partitions(request, steps, sink)
    for partition, offset in joiner.incomplete() if joiner is not None else ():
        say(f"warning: {partition}: a value that begins at offset {offset} is not printed: slices of it were not read")
    if request.left_out:
        say("hint: plog verify --deep names all damage of a directory, plog recover shows what can be mended")
    return not request.left_out


def _joiner() -> Joiner:
    from cli.large_values import Joiner

    return Joiner()


def _steps(request: ConsumeRequest, joiner: Joiner | None) -> list[Step]:
    """What is made of records before they are printed, one after the other."""
    steps: list[Step] = []
    if joiner is not None:
        steps.append(joiner.join)
    if request.claim_check is not None:
        from cli.large_values import ClaimCheckRoom

        steps.append(ClaimCheckRoom(request.claim_check).redeem)
    if request.schema_registry is not None:
        from cli.schemas import Schemas

        steps.append(Schemas(request.schema_registry).decoded)
    wanted = request.wanted
    if wanted is not None:
        steps.append(filtering(wanted))
    return steps


@contextlib.contextmanager
def _sink(request: ConsumeRequest) -> Iterator[Sink]:
    """Whole as well where somebody stops what has no end."""
    is_endless = request.follow or request.group is not None
    sink = open_sink(request.format, request.out, request.watermarks, is_raw=request.is_raw, is_endless=is_endless)
    is_whole = False
    try:
        yield sink
        is_whole = True
    except KeyboardInterrupt:
        is_whole = is_endless
        raise
    finally:
        with undivided(FINISHING_SECONDS if request.out is None else float("inf")):
            sink.close(is_whole=is_whole)


# --- as a member of a group


def _consume_group(request: ConsumeRequest, steps: list[Step], sink: Sink) -> None:
    from cli.group_consume import open_group
    from core.client.cluster_source import ClusterSource

    assert request.group is not None
    with open_client(request.bootstrap_server, request.data_dir, lock_timeout_s=request.lock_timeout_s) as client:
        subscription = _subscription(request, client)
        patience = request.patience()
        source = ClusterSource(client, read_committed=request.read_committed, patience=patience)
        has_server = find_server(request.bootstrap_server, request.data_dir) is not None
        ends = {} if has_server else source.ends(subscription.topic_partitions())

        def begin(wanted: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
            there = source.ends(wanted)
            return ensure_there(resolve(request.from_, source, wanted, there), source, there)

        with open_group(
            client,
            request.group,
            subscription,
            begin,
            is_classic=request.group_protocol is GroupProtocol.classic,
            group_instance_id=request.group_instance_id,
            is_alone=not has_server,
            read_committed=request.read_committed,
            with_control=request.with_control,
            commits_first=request.commit is Commit.before,
            patience=patience,
            watermarks=request.watermarks,
        ) as consumer:
            limit = _Limit(request)
            for chunk in through(read_group(consumer), steps):
                if _print(chunk, sink, limit, consumer.done):
                    return
                if chunk is None and ends and all(consumer.positions.get(tp, 0) >= end for tp, end in ends.items()):
                    source.tell_held_back(ends)
                    return


def _subscription(request: ConsumeRequest, client: KafkaClient) -> Subscription:
    from core.client.subscription import Subscription

    pattern = _pattern(request)
    subscription = Subscription(client, [] if pattern else list(dict.fromkeys(request.topics)), pattern)
    if pattern is not None and not subscription.partitions() and not (request.follow or request.group):
        raise UsageError(f"no topic matches {pattern.pattern}", hint="plog topic list")
    return subscription


def _pattern(request: ConsumeRequest) -> re.Pattern[str] | None:
    """Of --regex, or of topics that begin as kcat's patterns do."""
    if not request.is_regex and not all(topic.startswith(_REGEX_SIGN) for topic in request.topics):
        return None
    try:
        return re.compile("|".join(f"(?:{topic})" for topic in request.topics))
    except re.error as error:
        raise UsageError(f"{' '.join(request.topics)}: no regular expression: {error}") from error


# --- by itself


def _consume_partitions(request: ConsumeRequest, steps: list[Step], sink: Sink) -> None:
    with open_source(request.bootstrap_server, request.data_dir) as opened:
        if isinstance(opened, DirectoryReader):
            source, find_partitions = _directory(request, opened)
        else:
            source, find_partitions = _cluster(request, opened)
        partitions = _ensure_partitions(request, find_partitions())
        ends = source.ends(partitions)
        starts = ensure_there(resolve(request.from_, source, partitions, ends), source, ends)
        if request.follow:
            find_more = _finder(request, source, find_partitions, set(starts))
            _print_all(through(read_following(source, starts, find_more), steps), request, sink)
            return
        bounds = resolve(request.as_of or request.until, source, partitions, ends)
        bounds = {tp: min(offset, ends[tp]) for tp, offset in bounds.items()}

        unread = dict.fromkeys(tp for tp, start in starts.items() if start < bounds[tp])

        def done(partition: TopicPartition) -> None:
            unread.pop(partition, None)

        def read(some: Offsets) -> Chunks:
            if request.is_latest:
                return through(read_latest(source, some, bounds, say, done), steps)
            return through(read_bounded(source, some, bounds, done), steps)

        try:
            if request.merge:
                _print_merged({tp: read({tp: start}) for tp, start in starts.items()}, request, sink)
            elif request.is_per_partition:
                for tp, start in starts.items():
                    _print_all(read({tp: start}), request, sink)
            else:
                _print_all(read(starts), request, sink)
        except PlogError as error:
            if error.hint == DAMAGE_HINT and len(unread) > 1:
                _tell_unread(list(unread))
            raise


def _tell_unread(partitions: list[TopicPartition]) -> None:
    """Of damage that ends the reading: in which partitions, the damaged one too, records may be left."""
    names = ", ".join(map(str, partitions[:_MOST_NAMED]))
    more = f" and {len(partitions) - _MOST_NAMED} more" * (len(partitions) > _MOST_NAMED)
    say(f"warning: damage ends the reading; not read to their ends: {names}{more}")


FindPartitions = Callable[[], list[TopicPartition]]


def _cluster(request: ConsumeRequest, client: KafkaClient) -> tuple[RecordSource, FindPartitions]:
    from core.client.cluster_source import ClusterSource  # a directory is read without it, and the protocol

    subscription = _subscription(request, client)
    source = ClusterSource(
        client,
        read_committed=request.read_committed,
        with_control=request.with_control,
        patience=request.patience(),
        watermarks=request.watermarks,
    )
    return source, subscription.topic_partitions


def _directory(request: ConsumeRequest, reader: DirectoryReader) -> tuple[RecordSource, FindPartitions]:
    from core.client.directory_source import DirectorySource

    source = DirectorySource(
        reader,
        read_committed=request.read_committed,
        with_control=request.with_control,
        patience=request.patience(),
        watermarks=request.watermarks,
    )
    pattern = _pattern(request)
    topics = list(dict.fromkeys(request.topics))
    if pattern is not None:
        topics = [topic for topic in source.topics() if not topic.startswith("__") and pattern.fullmatch(topic)]
        if not topics:
            raise UsageError(f"no topic matches {pattern.pattern}", hint="plog topic list")
    found = [TopicPartition(topic, number) for topic in topics for number in source.partitions(topic)]
    return source, lambda: found


def _ensure_partitions(request: ConsumeRequest, present: list[TopicPartition]) -> list[TopicPartition]:
    """Those that are wanted; UsageError where a topic has not got one."""
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
    """Partitions that were not there before, from their beginnings: whatever is in them has come since."""

    def find_more() -> Offsets:
        new = [tp for tp in find_partitions() if tp not in known]
        if request.partitions:
            new = [tp for tp in new if tp.partition in request.partitions]
        starts = source.starts(new) if new else {}
        known.update(new)  # now: who is not answered asks for them again
        return starts

    return find_more


# --- printing


class _Limit:
    """How many more, and for how long; owned by one task."""

    def __init__(self, request: ConsumeRequest) -> None:
        self.left = request.max_messages
        self._idle_seconds = None if request.idle_timeout_ms is None else request.idle_timeout_ms / 1000
        self._last_s = time.monotonic()

    def cut(self, chunk: Chunk) -> Chunk:
        """As many of it as may be printed; the next offset is then behind the last of those."""
        if self.left is None or len(chunk.columns) <= self.left:
            return chunk
        columns = chunk.columns.select(slice(0, self.left))
        return Chunk(chunk.partition, columns, int(columns.offsets[-1]) + 1)

    def count(self, printed: int) -> bool:
        """Whether that was the last."""
        if printed:
            self._last_s = time.monotonic()
        if self.left is not None:
            self.left -= printed
        return self.left == 0

    def is_idle_for_too_long(self) -> bool:
        return self._idle_seconds is not None and time.monotonic() - self._last_s >= self._idle_seconds


def _print(chunk: Chunk | None, sink: Sink, limit: _Limit, done: Callable[[TopicPartition, int], None]) -> bool:
    """Whether it is over."""
    if chunk is None:
        return limit.is_idle_for_too_long()
    chunk = limit.cut(chunk)
    with undivided():  # what is out counts as printed, and the other way round
        if len(chunk.columns):
            sink.write([PartitionRows(chunk.partition, chunk.columns)])
        done(chunk.partition, chunk.next_offset)
    return limit.count(len(chunk.columns))


def _print_all(chunks: Chunks, request: ConsumeRequest, sink: Sink) -> None:
    limit = _Limit(request)
    for chunk in chunks:
        if _print(chunk, sink, limit, lambda _partition, _offset: None):
            return


def _print_merged(of_partitions: Mapping[TopicPartition, Chunks], request: ConsumeRequest, sink: Sink) -> None:
    limit = _Limit(request)
    for page, order in merge_by_time(of_partitions):
        rows = order if limit.left is None else order[: limit.left]
        sink.write(page, np.asarray(rows, np.int64))
        if limit.count(len(rows)):
            return
