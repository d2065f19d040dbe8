"""Holds the options of `plog redrive`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from core.common.command_option import argument, flag, option
from core.common.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveRequest:
    """Holds the options of `plog redrive`; immutable."""

    topic: str = argument("The topic of the dead letters.", metavar="DLQ", completes="topic")
    to: str | None = option("Where records go whose headers name no topic. Default: they stay.", metavar="TOPIC")
    header: str | None = option(
        "The header that names the topic. Default: those that frameworks write.", metavar="NAME"
    )
    filters: Sequence[str] = option(
        "Only records for which this holds; may be repeated (help filter).", "--filter", default=()
    )
    limit: int | None = option("Send at most N records.", "--limit", "-n", metavar="N", min=0)
    max_tries: int | None = option("Records that were sent back N times already stay.", metavar="N", min=1)
    park: str | None = option("Send records that would stay to this topic.", metavar="TOPIC")
    same_partition: bool = flag("Send each record to the partition that it came from. Default: as its key decides.")
    keep_timestamp: bool = flag("Keep the record's timestamp. Default: now.")
    fetch_original: bool = flag("Read the original where a dead letter is a reference without key and value.")
    internal: bool = flag("Send to internal topics of Kafka Streams, too.")
    rate: float | None = option("At most N records a second.", metavar="N")
    group: str | None = option(
        "The group that keeps what is done, and the transactional id. Default: plog-redrive.DLQ.", metavar="G"
    )
    again: bool = flag("Begin again, with records that were sent back already.")
    dry_run: bool = flag("Show what would be sent where, and send nothing.")
    each: bool = flag("List each record, instead of sums.")

    @property
    def group_id(self) -> str:
        return self.group or f"plog-redrive.{self.topic}"

    def ensure_consistent(self) -> None:
        """Raises UsageError for options that do not go together."""
        if self.rate is not None and not self.rate > 0:
            raise UsageError(f"--rate {self.rate:g}: expected a number above 0 of records a second")
        if self.group == "":
            raise UsageError("--group is empty")
        for other, name in (("--to", self.to), ("--park", self.park)):
            if name == self.topic:
                raise UsageError(f"{other} {name}: that is the topic of the dead letters itself")
