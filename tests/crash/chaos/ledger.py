"""What clients were told, a JSON line each, written by the process that was told it, before it does anything else.

Records carry their own names: the value is `<who> <number> ..`, and of one `who` the numbers rise within a partition.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

PARTITIONS = 2
"""Of each topic, when it is made; KEPT may get more."""
KEPT, TRIMMED, CUT, KEYED, PLAIN, FLUSHED = "kept", "trimmed", "cut", "keyed", "plain", "flushed"
TELLS, COPIES = "tells", "copies"
FOREVER = {"retention.ms": "-1", "retention.bytes": "-1"}
TOPICS = {
    KEPT: {**FOREVER, "internal.segment.bytes": "60000"},
    TRIMMED: {"retention.ms": "-1", "internal.segment.bytes": "20000", "retention.bytes": "60000"},
    CUT: {**FOREVER, "internal.segment.bytes": "20000"},
    KEYED: {
        **FOREVER, "internal.segment.bytes": "20000", "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01",
    },
    PLAIN: {**FOREVER, "internal.segment.bytes": "40000"},
    FLUSHED: {**FOREVER, "internal.segment.bytes": "40000", "flush.messages": "1"},
    TELLS: {**FOREVER, "internal.segment.bytes": "20000"},
    COPIES: {**FOREVER, "internal.segment.bytes": "40000"},
}  # fmt: skip
"""What becomes of each topic's records: TRIMMED by retention, CUT by DeleteRecords, KEYED by compaction."""

READERS, COPIERS = "readers", "copiers"
"""Consumer groups, both of KEPT."""

Where = tuple[str, int]


class Notes:
    """Writes a ledger."""

    def __init__(self, path: Path) -> None:
        self._file: TextIO = path.open("a", encoding="utf-8", buffering=1)

    def note(self, what: str, **fields: Any) -> None:
        self._file.write(json.dumps({"what": what, **fields}) + "\n")


@dataclass
class Transaction:
    """Of a number; `counts` are its records by partition of TELLS. `outcome` is None where nobody knows it."""

    counts: dict[int, int]
    outcome: str | None = None


@dataclass
class Ledger:
    """All that all clients were told."""

    acknowledged: dict[Where, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))
    """Offsets by the record's name; -1 where the answer did not say (it was there already)."""
    refused: dict[Where, set[str]] = field(default_factory=lambda: defaultdict(set))
    perhaps: dict[Where, set[str]] = field(default_factory=lambda: defaultdict(set))
    keys: dict[Where, dict[int, str]] = field(default_factory=lambda: defaultdict(dict))
    """Of acknowledged records that have one, by offset."""
    seen: dict[Where, dict[int, str]] = field(default_factory=lambda: defaultdict(dict))
    read_to: dict[tuple[str, Where], int] = field(default_factory=lambda: defaultdict(int))
    """The offset after the last one that a reading from the beginning on was shown."""
    committed: dict[int, int] = field(default_factory=dict)
    """The highest offset by partition that READERS committed."""
    transactions: dict[str, Transaction] = field(default_factory=dict)
    cuts_asked: dict[int, int] = field(default_factory=dict)
    cuts_done: dict[int, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def add(self, path: Path) -> None:
        """A file of `Notes`; a last line that a kill cut is passed over."""
        for line in path.read_text(encoding="utf-8").split("\n")[:-1]:
            fields = json.loads(line)
            getattr(self, "_on_" + fields.pop("what"))(**fields)

    def _on_acknowledged(
        self, topic: str, partition: int, offset: int | None, name: str, key: str | None = None
    ) -> None:
        """librdkafka gives no offset if a broker of Kafka answers DUPLICATE_SEQUENCE_NUMBER."""
        offset = -1 if offset is None else offset
        if name in self.acknowledged[topic, partition]:
            self.problems.append(f"{topic}-{partition}: {name!r} was acknowledged twice")
        self.acknowledged[topic, partition][name] = offset
        if key is not None and offset >= 0:
            self.keys[topic, partition][offset] = key

    def _on_refused(self, topic: str, partition: int, name: str, code: str) -> None:
        self.refused[topic, partition].add(name)

    def _on_perhaps(self, topic: str, partition: int, name: str, code: str) -> None:
        self.perhaps[topic, partition].add(name)

    def _on_seen(self, topic: str, records: list[tuple[int, int, str]], reading: str | None = None) -> None:
        """`reading` names one that goes on from the first record to the next; in TELLS it passes over markers."""
        for partition, offset, name in records:
            if reading is not None:
                wanted = self.read_to[reading, (topic, partition)]
                if offset < wanted or (offset > wanted and topic != TELLS):
                    self.problems.append(f"{topic}-{partition}: {reading} was shown {offset} where {wanted} comes next")
                self.read_to[reading, (topic, partition)] = offset + 1
            before = self.seen[topic, partition].setdefault(offset, name)
            if before != name:
                self.problems.append(f"{topic}-{partition} offset {offset} was given twice: {before!r}, {name!r}")

    def _on_end(self, topic: str, partition: int, offset: int, acknowledged: int) -> None:
        """Where the partition ends, as its leader says later than that it was told that a record is acknowledged."""
        if offset <= acknowledged:
            self.problems.append(f"{topic}-{partition}: ends at {offset}, and {acknowledged} was acknowledged before")

    def _on_committed(self, offsets: dict[str, int]) -> None:
        for partition, offset in offsets.items():
            self.committed[int(partition)] = max(self.committed.get(int(partition), 0), offset)

    def _on_begun(self, name: str, counts: dict[str, int]) -> None:
        self.transactions[name] = Transaction({int(p): count for p, count in counts.items()})

    def _on_ended(self, name: str, outcome: str) -> None:
        self.transactions[name].outcome = outcome

    def _on_cut_asked(self, partition: int, offset: int) -> None:
        self.cuts_asked[partition] = max(self.cuts_asked.get(partition, 0), offset)

    def _on_cut_done(self, partition: int, offset: int) -> None:
        self.cuts_done[partition] = max(self.cuts_done.get(partition, 0), offset)

    def _on_wrong(self, text: str) -> None:
        self.problems.append(text)

    def _on_moved(self, **_: Any) -> None:
        """A client says that it works."""
