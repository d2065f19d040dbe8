"""Holds what is there in the end against what clients were told: a model of its own, that knows nothing of plog.

What it asks of every topic: offsets rise, no record is there twice, those of one writer are in its order; what was
acknowledged or seen is at its offset (unless retention, DeleteRecords or a later record of its key took it); what was
refused for good is not there. Transactions are there whole, or not at all; a copy of a topic holds each record once.
What was read meanwhile is held against the end as well, so that nobody was shown what is aborted later; the ledger
itself finds readings that go back or leave something out, and ends that are older than what was acknowledged.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from tests.crash.chaos.ledger import (
    COPIERS,
    COPIES,
    CUT,
    FLUSHED,
    KEPT,
    KEYED,
    PARTITIONS,
    PLAIN,
    READERS,
    TELLS,
    TOPICS,
    TRIMMED,
    Ledger,
    Where,
)

_SHOWN = 5
_OF_TRANSACTIONS = (TELLS, COPIES)


class FoundRecord(NamedTuple):
    offset: int
    key: str | None
    value: str

    @property
    def name(self) -> str:
        return " ".join(self.value.split(" ")[:2])


@dataclass
class Found:
    """What a client reads in the end: `records` with read_committed."""

    starts: dict[Where, int] = field(default_factory=lambda: defaultdict(int))
    records: dict[Where, list[FoundRecord]] = field(default_factory=lambda: defaultdict(list))
    offsets: dict[str, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    """Of groups, by partition of KEPT."""


@dataclass
class Report:
    """What happened in a run, as far as it counts that; `problems` should be empty."""

    seed: int = 0
    rounds: int = 0
    deeds: Counter[str] = field(default_factory=Counter)
    controllers: int = 0
    """How many have been elected."""
    seconds: int = 0
    faults: int = 0
    cuts: int = 0
    acknowledged: int = 0
    seen: int = 0
    transactions: int = 0
    copies: int = 0
    refused: int = 0
    perhaps: int = 0
    stuck: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def count(self, ledger: Ledger, found: Found) -> None:
        """Adds what the clients of a life were told, and what is there in its end."""
        self.acknowledged += sum(map(len, ledger.acknowledged.values()))
        self.seen += sum(map(len, ledger.seen.values()))
        self.refused += sum(map(len, ledger.refused.values()))
        self.perhaps += sum(map(len, ledger.perhaps.values()))
        self.transactions += len(ledger.transactions)
        self.copies += sum(found.offsets[COPIERS].values())


def check(ledger: Ledger, found: Found) -> list[str]:
    """What is wrong, a sentence each."""
    problems = list(ledger.problems)
    made = {(topic, partition) for topic in TOPICS for partition in range(PARTITIONS)}
    for where in sorted(made | found.records.keys() | ledger.acknowledged.keys()):
        problems += (f"{where[0]}-{where[1]}: {problem}" for problem in _wrong_with(where, ledger, found))
    problems += _wrong_with_transactions(ledger, found)
    problems += _wrong_with_copies(found)
    problems += _wrong_with_readers(ledger, found)
    return problems


def _wrong_with(where: Where, ledger: Ledger, found: Found) -> Iterator[str]:
    topic, partition = where
    start, records = found.starts[where], found.records[where]
    offsets = [record.offset for record in records]
    if any(after <= before for before, after in pairwise(offsets)):
        yield "offsets don't rise"
    if topic == CUT:
        least, most = ledger.cuts_done.get(partition, 0), ledger.cuts_asked.get(partition, 0)
        if not least <= start <= most:
            yield f"starts at {start}, cut to {least} for certain and to {most} at most"
    elif topic != TRIMMED and start:
        yield f"starts at {start}"
    at = {record.offset: record for record in records}
    yield from _lost("seen", {o: n for o, n in ledger.seen[where].items() if o >= start}, at, {})
    if topic in _OF_TRANSACTIONS:
        return
    if topic != KEYED and offsets != list(range(start, start + len(offsets))):
        yield "offsets have holes"
    names = Counter(record.name for record in records)
    yield from _list("are there twice", [name for name, count in names.items() if count > 1])
    yield from _list("are there though they were refused", ledger.refused[where] & names.keys())
    late = ledger.perhaps[where] if topic in (PLAIN, FLUSHED) else set()
    yield from _disorder([record for record in records if record.name not in late])
    wanted = {o: n for n, o in ledger.acknowledged[where].items() if o >= start}
    yield from _lost("acknowledged", wanted, at, ledger.keys[where])
    if not start and topic != KEYED:
        unplaced = [n for n, o in ledger.acknowledged[where].items() if o < 0 and n not in names]
        yield from _list("are lost (acknowledged)", unplaced)


def _disorder(records: list[FoundRecord]) -> Iterator[str]:
    """Finds records that come after later ones. Of a producer without idempotence those are left out that nobody has
    acknowledged: a request may lie on the way for long, to a broker that nobody reaches, and arrive in the end.
    """
    last: dict[str, int] = {}
    for record in records:
        who, number = record.name.split(" ")
        if int(number) <= last.get(who, -1):
            yield f"{record.name!r} at {record.offset} comes after number {last[who]}"
        last[who] = int(number)


def _lost(how: str, wanted: dict[int, str], at: dict[int, FoundRecord], keys: dict[int, str]) -> Iterator[str]:
    """Records that are not at their offsets, and no later one of their key is there."""
    latest = {record.key: record.offset for record in at.values()}  # rises
    lost = []
    for offset, name in wanted.items():
        if offset in at:
            if at[offset].name != name:
                lost.append(f"{name} at {offset} (there is {at[offset].name})")
        elif offset not in keys or latest.get(keys[offset], -1) < offset:
            lost.append(f"{name} at {offset}")
    yield from _list(f"are lost ({how})", lost)


def _wrong_with_transactions(ledger: Ledger, found: Found) -> Iterator[str]:
    there: dict[str, Counter[int]] = defaultdict(Counter)
    for partition in range(PARTITIONS):
        for record in found.records[TELLS, partition]:
            there[record.name][partition] += 1
    yield from _list(f"are in {TELLS} and nobody wrote them", there.keys() - ledger.transactions.keys())
    aborted, torn, lost = [], [], []
    for name, transaction in ledger.transactions.items():
        if transaction.outcome == "aborted":
            aborted += [name] if name in there else []
        elif name not in there:
            lost += [name] if transaction.outcome == "committed" else []
        elif there[name] != transaction.counts:
            torn.append(f"{name} {dict(there[name])} of {transaction.counts}")
    yield from _list("are aborted and visible", aborted)
    yield from _list("are torn or doubled", torn)
    yield from _list("are committed and lost", lost)


def _wrong_with_copies(found: Found) -> Iterator[str]:
    """Each record below the group's offset is there once, in its order, on all partitions; none above it is."""
    wanted = {
        partition: [f"{partition}:{r.offset} {r.value}" for r in found.records[KEPT, partition] if r.offset < end]
        for partition, end in found.offsets[COPIERS].items()
    }
    for target in range(PARTITIONS):
        copies: dict[int, list[str]] = defaultdict(list)
        for record in found.records[COPIES, target]:
            copies[int(record.value.split(":")[0])].append(record.value)
        for partition in wanted.keys() | copies.keys():
            if copies[partition] != wanted.get(partition, []):
                yield _difference(
                    f"{COPIES}-{target} of {KEPT}-{partition}", copies[partition], wanted.get(partition, [])
                )


def _difference(what: str, copies: list[str], wanted: list[str]) -> str:
    lost, more = Counter(wanted) - Counter(copies), Counter(copies) - Counter(wanted)
    shown = {"lost": [v[:40] for v in lost][:_SHOWN], "doubled or too early": [v[:40] for v in more][:_SHOWN]}
    return f"{what}: {len(copies)} copies of {len(wanted)}; {shown if lost or more else 'in another order'}"


def _wrong_with_readers(ledger: Ledger, found: Found) -> Iterator[str]:
    for partition, offset in ledger.committed.items():
        end = found.offsets[READERS].get(partition, 0)
        if end < offset:
            yield f"{READERS} of {KEPT}-{partition}: committed {offset}, and {end} is there"
        unseen = set(range(end)) - ledger.seen[KEPT, partition].keys()
        yield from _list(f"of {KEPT}-{partition} are below the offset of {READERS}, and were not seen", unseen)


def _list(what: str, names: object) -> Iterator[str]:
    found = sorted(names, key=str)  # type: ignore[call-overload]
    if found:
        yield f"{len(found)} {what}: {', '.join(map(str, found[:_SHOWN]))}"
