"""Holds what one run of a consume request goes by, and what was reported of its records."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from core.client.net.read_options import FAILOVER_SECONDS, ReadOptions
from core.client.read.watermarks import Watermarks
from core.client.schemas.undecoded import UndecodedAccount
from core.common.topic_partition import TopicPartition
from core.pipeline.consume_request import ConsumeRequest
from core.pipeline.session import Session

if TYPE_CHECKING:
    from core.client.net.kafka_client import KafkaClient
    from core.client.read.subscription import Subscription
    from core.records.record_filter import NotJson


@dataclass(slots=True)
class ConsumeRun:
    """Owned by one task."""

    request: ConsumeRequest
    session: Session
    watermarks: dict[TopicPartition, Watermarks] = field(default_factory=dict)
    """Those of what is read, while it is read."""
    left_out: list[str] = field(default_factory=list)
    """Which records were passed over because they are damaged, in words."""
    not_json: NotJson | None = None
    """Counts for the filter, if there is one."""
    undecoded: UndecodedAccount = field(default_factory=UndecodedAccount)
    _noted: list[str] = field(default_factory=list)

    def say(self, text: str) -> None:
        self.session.frontend.say(text)

    def how_to_read(self) -> dict[str, Any]:
        """Gives what a source, or a member of a group, is made with."""
        return {
            "read_committed": self.request.read_committed,
            "with_control": self.request.with_control,
            "patience": self.patience(),
            "watermarks": self.watermarks,
        }

    def patience(self) -> ReadOptions:
        """Lasts to the end of time for what has no end, unless errors are to end it."""
        request = self.request
        if request.exits_on_error:
            return ReadOptions(note=self._note, tell_left_out=self._tell_left_out)
        return ReadOptions(
            float("inf") if request.is_endless else FAILOVER_SECONDS,
            skips_damage=request.exits_on_error is False,
            tell=lambda problem: self.say(f"warning: {problem}"),
            note=self._note,
            tell_left_out=self._tell_left_out,
        )

    def _note(self, note: str) -> None:
        """Says it once, however often the records are read."""
        if note not in self._noted:
            self._noted.append(note)
            self.say(f"note: {note}")

    def _tell_left_out(self, problem: str) -> None:
        """Says it once, however often the records are read."""
        if problem not in self.left_out:
            self.left_out.append(problem)
            self.say(f"warning: {problem}")

    def report_values(self) -> bool:
        """Says of how many records the filter could not see JSON, and how many could not be decoded; returns whether
        there are any of the latter.
        """
        found = self.not_json
        if found is not None and found.count:
            self.say(
                f"note: {found.count:,} of the records that the filter looked into are not JSON: their fields are null "
                f"to it; the first is {found.first}"
            )
        summary = self.undecoded.summary()
        if summary is not None:
            self.say(f"warning: {summary}")
        return summary is not None

    def subscribe(self, client: KafkaClient) -> Subscription:
        """Subscribes to the topics. Raises UsageError for a pattern that matches none, if none is waited for."""
        from core.client.read.subscription import Subscription

        pattern = self.request.find_pattern()
        subscription = Subscription(client, [] if pattern else list(dict.fromkeys(self.request.topics)), pattern)
        if pattern is not None and not subscription.partitions() and not self.request.is_endless:
            raise self.request.no_topic_error()
        return subscription
