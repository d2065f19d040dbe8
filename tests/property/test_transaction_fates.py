"""The fates of transactions in a damaged log against the history that wrote it: random transactions of both versions of
Kafka's protocol, random damage, files that are lost or unsynced.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from core.forensics.transaction_resolution import (
    MissingRange,
    ProducerSnapshotAt,
    SegmentIndex,
    TransactionalBatch,
    TransactionEvidence,
    TransactionFate,
)
from core.index.transaction_index import AbortedTransaction
from core.records.control_record import FateKind, Marker
from tests.support.for_each import for_each


@dataclass
class Item:
    """A batch of the history: of records, a marker, or (producer -1) somebody's who writes no transactions."""

    base: int
    end: int
    producer: int
    epoch: int = 0
    sequence: int = -1
    is_commit: bool | None = None
    """None for a batch of records."""
    transaction: int = -1


@dataclass
class History:
    """What a broker wrote. `ends`: how each transaction ended (None: it is open), and at which offset."""

    items: list[Item] = field(default_factory=list)
    ends: list[tuple[bool | None, int]] = field(default_factory=list)
    segments: list[int] = field(default_factory=list)
    snapshots: list[ProducerSnapshotAt] = field(default_factory=list)
    aborted: list[AbortedTransaction] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.items[-1].end


class _State:
    def __init__(self) -> None:
        self.epoch = 0
        self.sequence = 0
        self.open: int | None = None
        self.first = -1


def write_history(random: Random) -> History:
    history = History(segments=[0])
    version = random.choice((1, 2))
    states = {p: _State() for p in range(random.randint(1, 3))}
    offset = 0

    def write(count: int, producer: int, **fields: int | bool) -> None:
        nonlocal offset
        history.items.append(Item(offset, offset + count, producer, **fields))  # type: ignore[arg-type]
        offset += count

    def snapshot() -> None:
        known = {p: s for p, s in states.items() if any(i.producer == p for i in history.items)}
        history.snapshots.append(
            ProducerSnapshotAt(
                offset,
                {p: -1 if s.open is None else s.first for p, s in known.items()},
                {p: s.epoch for p, s in known.items()},
            )
        )

    for _ in range(random.randint(5, 45)):
        producer = random.randrange(-1, len(states))
        if history.items and random.random() < 0.12:
            snapshot()
            history.segments.append(offset)
        if producer < 0:
            write(random.randint(1, 3), -1)
            continue
        state = states[producer]
        if state.open is None and random.random() < 0.1:  # a marker of a transaction without records here
            state.epoch += version == 2
            state.sequence = state.sequence if version == 1 else 0
            write(1, producer, epoch=state.epoch, is_commit=random.random() < 0.5)
        elif state.open is not None and random.random() < 0.45:
            is_commit = random.random() < 0.5
            is_fenced = not is_commit and random.random() < 0.3
            if version == 2 or is_fenced:
                state.epoch += 1
                state.sequence = 0
            history.ends[state.open] = is_commit, offset
            if not is_commit:
                others = [s.first for s in states.values() if s.open is not None and s is not state]
                history.aborted.append(
                    AbortedTransaction(producer, state.first, offset, min(others, default=offset + 1))
                )
            write(1, producer, epoch=state.epoch, is_commit=is_commit, transaction=state.open)
            state.open = None
        else:
            if state.open is None:
                state.open, state.first = len(history.ends), offset
                history.ends.append((None, -1))
            count = random.randint(1, 3)
            write(count, producer, epoch=state.epoch, sequence=state.sequence, transaction=state.open)
            state.sequence += count
    if not history.items:
        write(1, -1)
    snapshot()
    return history


@dataclass
class Evidence:
    """What is left of it."""

    visible: list[Item]
    missing: list[MissingRange]
    indexes: list[SegmentIndex]
    snapshots: list[ProducerSnapshotAt]
    has_all_files: bool

    def fates(self) -> list[TransactionFate]:
        events: list[TransactionalBatch | Marker] = []
        for item in self.visible:
            if item.producer < 0:
                continue
            if item.is_commit is not None:
                events.append(Marker(item.producer, item.epoch, item.base, item.is_commit))
            else:
                last = item.sequence + item.end - item.base - 1
                events.append(
                    TransactionalBatch(item.producer, item.epoch, item.base, item.end - 1, item.sequence, last)
                )
        return TransactionEvidence(events, self.missing, self.indexes, self.snapshots).fates()


def damage(history: History, random: Random, *, ranges: int, flips: bool = False) -> Evidence:
    gone: set[int] = set()
    missing = []
    for _ in range(ranges):
        first = random.randrange(len(history.items))
        last = min(first + random.choice((0, 0, 0, 1, 3)), len(history.items) - 1)
        gone |= set(range(first, last + 1))
        only = history.items[first]
        holds_records = first == last and only.is_commit is None and random.random() < 0.5
        missing.append(MissingRange(only.base, history.items[last].end, may_hold_marker=not holds_records))
    plain = [gap for gap in missing if gap.may_hold_marker]
    missing = plain + [g for g in missing if not g.may_hold_marker and not any(_overlap(g, p) for p in plain)]
    has_clean_end = random.random() < 0.7
    keeps = random.choice((0.0, 0.6, 1.0))
    indexes, has_all = [], has_clean_end
    for number, base in enumerate(history.segments):
        is_last = number == len(history.segments) - 1
        end = history.end if is_last else history.segments[number + 1]
        entries: tuple[AbortedTransaction, ...] | None
        entries = tuple(entry for entry in history.aborted if base <= entry.last_offset < end)
        is_synced = not is_last or has_clean_end
        if not is_synced:
            entries = entries[: random.randint(0, len(entries))]
        if not entries or random.random() >= keeps:
            has_all = has_all and not entries and False
            entries = None
        elif flips:
            entries = _flip(entries, random)
        indexes.append(SegmentIndex(base, end, entries, is_synced, f"{base}.txnindex"))
    snapshots = [s for s in history.snapshots[:-1] if random.random() < keeps]
    if has_clean_end and random.random() < max(keeps, 0.5):
        snapshots.append(history.snapshots[-1])
    else:
        has_all = False
    visible = [item for number, item in enumerate(history.items) if number not in gone]
    return Evidence(visible, missing, indexes, snapshots, has_all)


def _overlap(one: MissingRange, other: MissingRange) -> bool:
    return one.start < other.end and other.start < one.end


def _flip(entries: tuple[AbortedTransaction, ...], random: Random) -> tuple[AbortedTransaction, ...]:
    number = random.randrange(len(entries))
    bit = 1 << random.randrange(3, 40)
    return (
        *entries[:number],
        entries[number]._replace(producer_id=entries[number].producer_id ^ bit),
        *entries[number + 1 :],
    )


def truth_of(history: History, offset: int) -> FateKind:
    item = next(item for item in history.items if item.base <= offset < item.end)
    is_commit, _ = history.ends[item.transaction]
    return FateKind.OPEN if is_commit is None else FateKind.COMMITTED if is_commit else FateKind.ABORTED


def check(history: History, evidence: Evidence) -> None:
    fates = evidence.fates()
    told = [batch for fate in fates for batch in fate.batches]
    expected = [(i.base, i.end - 1) for i in evidence.visible if i.producer >= 0 and i.is_commit is None]
    assert sorted(told) == expected
    for fate in fates:
        for base, _ in fate.batches:
            truth = truth_of(history, base)
            assert fate.fate in (truth, FateKind.UNKNOWN), (fate, truth)
            assert not fate.is_ended or truth is not FateKind.OPEN, fate
        if fate.marker is not None:
            assert (fate.fate is FateKind.COMMITTED) == fate.marker.is_commit
        if fate.fate is FateKind.UNKNOWN:
            check_doubt(history, evidence, fate)


def check_doubt(history: History, evidence: Evidence, fate: TransactionFate) -> None:
    """What can be known must not be left open."""
    item = next(i for i in history.items if i.base == fate.last_offset or i.base <= fate.last_offset < i.end)
    is_commit, at = history.ends[item.transaction]
    until = history.end if is_commit is None else at + 1
    between = [g for g in evidence.missing if g.start < until and g.end > fate.last_offset and g.may_hold_marker]
    assert between, f"no damage up to the end: {fate}"
    if is_commit is False:
        first = min(i.base for i in history.items if i.transaction == item.transaction)
        has_entry = any(
            e.first_offset == first and e.last_offset == at for x in evidence.indexes for e in x.entries or ()
        )
        assert not has_entry, f"the index has it: {fate}"


@for_each("seed", range(3000), first=600)
def test_nothing_false_is_said(seed: int) -> None:
    random = Random(seed)
    history = write_history(random)
    check(history, damage(history, random, ranges=random.randint(0, 3)))


def test_a_wrong_entry_of_the_index_misleads_nobody() -> None:
    for seed in range(1000):
        random = Random(seed)
        history = write_history(random)
        evidence = damage(history, random, ranges=1, flips=True)
        for fate in evidence.fates():
            for base, _ in fate.batches:
                assert fate.fate in (truth_of(history, base), FateKind.UNKNOWN), (seed, fate)


def test_without_damage_everything_is_known() -> None:
    for seed in range(300):
        random = Random(seed)
        history = write_history(random)
        evidence = damage(history, random, ranges=0)
        assert all(fate.fate is not FateKind.UNKNOWN for fate in evidence.fates())


def test_most_is_decided_where_every_file_is_there() -> None:
    """A marker is gone, the index of its segment lists others, the log was stopped cleanly: nothing is in doubt."""
    decided = 0
    for seed in range(1500):
        random = Random(seed)
        history = write_history(random)
        markers = [i for i in history.items if i.is_commit is not None and i.transaction >= 0]
        if not markers:
            continue
        gone = random.choice(markers)
        indexes = []
        for base, end in zip(history.segments, [*history.segments[1:], history.end], strict=True):
            entries = tuple(entry for entry in history.aborted if base <= entry.last_offset < end)
            indexes.append(SegmentIndex(base, end, entries or None, is_synced=True))
        of_marker = next(i for i in indexes if i.base_offset <= gone.base < i.end_offset)
        if of_marker.entries is None:
            continue
        visible = [item for item in history.items if item is not gone]
        missing = [MissingRange(gone.base, gone.end)]
        snapshots = history.snapshots
        evidence = Evidence(visible, missing, indexes, snapshots, has_all_files=True)
        check(history, evidence)
        for fate in evidence.fates():
            truth = truth_of(history, fate.first_offset)
            if truth is FateKind.OPEN:  # the marker may have been its commit, for all that the index says
                assert fate.fate in (FateKind.OPEN, FateKind.UNKNOWN), (seed, fate)
            else:
                assert fate.fate is truth, (seed, fate)
            decided += 1
    assert decided > 1000
