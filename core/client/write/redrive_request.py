"""Holds the options of `plog redrive`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from core.common.command_option import Argument, Option
from core.common.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveRequest:
    """Holds the options of `plog redrive`; immutable."""

    topic: Annotated[str, Argument("The topic of the dead letters.", metavar="DLQ", completes="topic")]
    to: Annotated[
        str | None, Option("Where records go whose headers name no topic. Default: they stay.", metavar="TOPIC")
    ] = None
    header: Annotated[
        str | None, Option("The header that names the topic. Default: those that frameworks write.", metavar="NAME")
    ] = None
    filters: Annotated[
        Sequence[str], Option("Only records for which this holds; may be repeated (help filter).", "--filter")
    ] = ()
    limit: Annotated[int | None, Option("Send at most N records.", "--limit", "-n", metavar="N", min=0)] = None
    max_tries: Annotated[
        int | None, Option("Records that were sent back N times already stay.", metavar="N", min=1)
    ] = None
    park: Annotated[str | None, Option("Send records that would stay to this topic.", metavar="TOPIC")] = None
    same_partition: Annotated[
        bool, Option("Send each record to the partition that it came from. Default: as its key decides.")
    ] = False
    keep_timestamp: Annotated[bool, Option("Keep the record's timestamp. Default: now.")] = False
    fetch_original: Annotated[
        bool, Option("Read the original where a dead letter is a reference without key and value.")
    ] = False
    internal: Annotated[bool, Option("Send to internal topics of Kafka Streams, too.")] = False
    rate: Annotated[float | None, Option("At most N records a second.", metavar="N")] = None
    group: Annotated[
        str | None,
        Option("The group that keeps what is done, and the transactional id. Default: plog-redrive.DLQ.", metavar="G"),
    ] = None
    again: Annotated[bool, Option("Begin again, with records that were sent back already.")] = False
    dry_run: Annotated[bool, Option("Show what would be sent where, and send nothing.")] = False
    each: Annotated[bool, Option("List each record, instead of sums.")] = False

    @property
    def group_id(self) -> str:
        return self.group or f"plog-redrive.{self.topic}"

    def ensure_consistent(self) -> None:
        """Raises UsageError for options that do not go together."""
        if self.rate is not None and not self.rate > 0:
            raise UsageError(f"--rate {self.rate:g}: expected a number above 0 of records a second")
        if self.group == "":
            raise UsageError("--group is empty")
        for option, name in (("--to", self.to), ("--park", self.park)):
            if name == self.topic:
                raise UsageError(f"{option} {name}: that is the topic of the dead letters itself")
