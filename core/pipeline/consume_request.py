"""Holds the options of `plog consume`: where from, which records, until when, and how written."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from core.common.errors import UsageError
from core.common.topic_partition import is_valid_topic_name
from core.pipeline.consume_range import ensure_in_order
from core.pipeline.record_sink import PARQUET, VALUE
from core.records.side_format import PLAIN, SideFormats

if TYPE_CHECKING:
    from core.records.record_filter import NotJson, RecordFilter

_REGEX_SIGN = "^"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeRequest:
    """Holds the options of `plog consume`; immutable."""

    topics: Sequence[str]
    is_regex: bool = False
    partitions: Sequence[int] = ()
    from_: str = "beginning"
    until: str = "end"
    as_of: str | None = None
    is_latest: bool = False
    max_messages: int | None = None
    is_per_partition: bool = False
    follow: bool = False
    idle_timeout_ms: int | None = None
    merge: bool = False
    filters: Sequence[str] = ()
    grep: str | None = None
    group: str | None = None
    is_classic: bool | None = None
    """Whether it is a member of the classic protocol; None if that is for the cluster to say."""
    group_instance_id: str | None = None
    is_in_zookeeper: bool = False
    """Whether the group, if there is one, is kept by ZooKeeper."""
    commits_first: bool = False
    read_committed: bool = True
    with_control: bool = False
    claim_check: Path | None = None
    join: bool = False
    formats: SideFormats = PLAIN
    exits_on_error: bool | None = None
    format: str = VALUE
    out: Path | None = None

    @property
    def is_endless(self) -> bool:
        """Says whether nothing but a stop ends it."""
        return self.follow or self.group is not None

    def ensure_consistent(self) -> None:
        """Raises UsageError for options that do not go together, and for a path in the place of a topic."""
        for topic in self.topics if self.find_pattern() is None else ():
            if "/" in topic:
                raise _path_error(topic)
            if not is_valid_topic_name(topic):
                raise UsageError(
                    f"{topic!r} is no name of a topic",
                    hint="--regex takes patterns, as in 'flights.*'; --partition and --from say where to begin",
                )
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
                self.group is None
                and (self.group_instance_id is not None or self.is_classic is not None or self.commits_first),
                "--group-protocol, --group-instance-id and --commit go with --group",
            ),
            (
                self.is_in_zookeeper and (self.is_classic is not None or self.group_instance_id is not None),
                "a group of --zookeeper has no coordinator: not with --group-protocol or --group-instance-id",
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
        if self.is_in_zookeeper and self.group is not None:
            self._ensure_registrable(self.group)
        ensure_in_order(self.from_, self.until)
        if self.as_of is not None:
            ensure_in_order(self.from_, self.as_of, ("--from", "--as-of"))

    def _ensure_registrable(self, group: str) -> None:
        """Raises UsageError for a group, or a pattern of topics, that can't be written down in ZooKeeper."""
        from core.zookeeper.group_registry import ensure_group_name, ensure_registrable_pattern

        ensure_group_name(group)
        if self.find_pattern() is not None:
            for topic in self.topics:
                ensure_registrable_pattern(topic)

    @property
    def has_filter(self) -> bool:
        return self.grep is not None or bool(self.filters)

    def find_filter(self, not_json: NotJson) -> RecordFilter:
        """Makes one filter of all, which counts by `not_json`."""
        from core.records.record_filter import both, grep, parse_filter

        now_ms = time.time_ns() // 1_000_000
        found: RecordFilter | None = grep(self.grep) if self.grep is not None else None
        for text in self.filters:
            parsed = parse_filter(text, now_ms, not_json)
            found = parsed if found is None else both(found, parsed)
        assert found is not None  # `has_filter` says so
        return found

    def no_topic_error(self) -> UsageError:
        """Makes the error for a pattern that matches no topic."""
        return UsageError(
            f"no topic matches {' '.join(self.topics)}",
            hint="an expression must match the whole name, as ^fl.* does flights; plog topic list names the topics",
        )

    def find_pattern(self) -> re.Pattern[str] | None:
        """Gives the pattern of --regex, or of topics that begin as kcat's patterns do; None if they are names."""
        if not self.is_regex and not all(topic.startswith(_REGEX_SIGN) for topic in self.topics):
            return None
        try:
            return re.compile("|".join(f"(?:{topic})" for topic in self.topics))
        except re.error as error:
            raise UsageError(f"{' '.join(self.topics)}: no regular expression: {error}") from error


def _path_error(path: str) -> UsageError:
    from core.files.file_names import parse_partition_directory_name

    partition = parse_partition_directory_name(Path(path).name)
    hint = f"plog consume {partition.topic if partition else 'TOPIC'} --data-dir {path}"
    return UsageError(f"{path} is a path: topics are named, and --data-dir says where their files are", hint=hint)
