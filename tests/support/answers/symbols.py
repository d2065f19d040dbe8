"""What differs from run to run, replaced by symbols: two answers that mean the same become the same value."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from typing import Any

from tests.support.answers.record_batches import comparable_batches

_BROKERS = {
    "NodeId", "LeaderId", "BrokerId", "ControllerId", "ReplicaNode", "IsrNode", "ReplicaNodes", "IsrNodes", "ReplicaId",
}  # fmt: skip
_GIVEN_BY_THE_BROKER = {"ClusterId", "LogDir", "DirectoryId", "ReplicaDirectoryId"}
_LENGTH_OF_A_MEMBER_ID = 20
_LEFT_OUT = {"ThrottleTimeMs"}
_TIME = re.compile(r"Timestamp|TimeMs|StartTime")
_NOW_MS = 2 * 3600_000
"""A time that is nearer than this to the start of the scenario came from a clock."""


class Symbols:
    """Of one broker in one scenario: ids are numbered in the order in which they are met.

    `first_group_epoch` is where the broker begins to count the epochs of a group of the consumer protocol.
    """

    def __init__(self, first_group_epoch: int) -> None:
        self._first_group_epoch = first_group_epoch
        self._started_ms = int(time.time() * 1000)
        self._ids: dict[tuple[str, Any], str] = {}
        self._met: Counter[str] = Counter()

    def name_topic(self, topic_id: str, name: str) -> None:
        self._ids["topic", topic_id] = f"<id of {name}>"

    def comparable(self, value: Any, field: str = "") -> Any:
        """The value of a field, whatever it holds. Lists are in an order of their own: Kafka's has no meaning."""
        if isinstance(value, dict):
            return {
                str(name): self.comparable(each, str(name)) for name, each in value.items() if name not in _LEFT_OUT
            }
        if isinstance(value, list):
            each_field = field.removesuffix("s")
            return sorted((self.comparable(each, each_field) for each in value), key=json.dumps)
        if isinstance(value, str):
            return self._comparable_text(value, field)
        if isinstance(value, int) and not isinstance(value, bool):
            return self._comparable_number(value, field)
        return value

    def _comparable_text(self, text: str, field: str) -> Any:
        if field.endswith("Message") and text:
            return "<message>"  # null, empty and some text are three things; the words are each broker's own
        if field == "Documentation" and text:
            return "<documentation>"
        if field == "TopicId" and not _is_made_up(text):
            return self._symbol("topic", text)
        if field in ("MemberId", "LeaderMember", "Leader") and len(text) >= _LENGTH_OF_A_MEMBER_ID:
            return self._symbol("member", text)
        if field in _GIVEN_BY_THE_BROKER and text not in ("", "0" * 32):
            return f"<{field}>"
        if field == "Records" and text:
            return self.comparable(comparable_batches(text))
        return text

    def _comparable_number(self, number: int, field: str) -> Any:
        if field in _BROKERS and number > 0:
            return "<broker>"
        if field == "Port":
            return "<port>"
        if field == "ProducerId" and number >= 0:
            return self._symbol("producer", number)
        if field in ("MemberEpoch", "GroupEpoch", "AssignmentEpoch") and number >= self._first_group_epoch:
            return number - self._first_group_epoch + 1
        if _TIME.search(field) and abs(number - self._started_ms) < _NOW_MS:
            return "<now>"
        return number

    def _symbol(self, kind: str, value: Any) -> str:
        if (kind, value) not in self._ids:
            self._met[kind] += 1
            self._ids[kind, value] = f"<{kind} {self._met[kind]}>"
        return self._ids[kind, value]


def _is_made_up(topic_id: str) -> bool:
    """Whether it is one of a scenario's, such as aaaa..., and not one that a broker gave."""
    return len(set(topic_id)) <= 2
