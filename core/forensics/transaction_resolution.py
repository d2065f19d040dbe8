"""Decides how the transactions of a damaged log ended: committed, aborted, open, or unknown.

A transaction's records are visible to read_committed if a commit marker ended it. If that marker can't be read,
something else must prove whether it was a commit. `TransactionEvidence` reads no file: it judges what others found.

Kafka's rules, from which everything follows:

- The transactions of a producer don't overlap: one that its next marker ends began after its last one. A marker may
  also end a transaction without records here.
- A producer's epoch never falls. It does not rise within a transaction: a coordinator that raises it ends that first.
  With transaction.version 2 it rises at every end, and the marker carries the new epoch; with version 1 it stays.
  So if it has risen after offsets that are missing, a marker is among them, even if a cleaner seems to have taken
  them: it takes none of a transaction that still has records.
- A `.txnindex` lists each transaction with records that was aborted by a marker of its segment. It has no checksum: an
  index that contradicts the log, or itself, is not believed.
- A snapshot says which transactions were open at its offset. It has a checksum.

These are proofs:

- If nothing is missing between a transaction's last record and its producer's next marker, that marker decides,
  whatever the index says.
- An index entry that covers the records says that they were aborted, and where.
- An index that lists nothing for a missing marker says that it was a commit, but only if every entry must be in the
  file: it was synced (its segment was sealed, or the log was stopped cleanly), it agrees with all that can be read, and
  it holds an entry, and no recovery rebuilt it from a log that had lost the marker. An index that is absent proves
  nothing: Kafka makes the file at a segment's first abort, but a file that was lost looks the same. Nor does an empty
  one: no file is made for nothing, so that it may have been cut.
- A transaction ended before the next record of its producer with a higher epoch, before a snapshot that does not have
  it open, and before one of its producer that a snapshot or an index has from a later offset on.

A snapshot that still has a transaction open proves nothing: a broker that passed over a damaged marker writes the same.
Missing offsets raise no doubt if no marker can have been there (`MissingRange.may_hold_marker`), nor between two
batches of a producer whose sequence numbers say that all of them were records of its own.

`read_evidence` gathers it from a partition's files: the whole log, its transaction indexes and its snapshots.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from core.common.errors import CorruptRecordError
from core.common.salvaging_file import open_salvaging
from core.files.file_names import CLEAN_SHUTDOWN, TRANSACTION_INDEX_SUFFIX, find_offset_files
from core.files.producer_snapshot import believable_snapshots
from core.forensics.log_scanner import AFTER_ALL_OFFSETS, LogScanner
from core.forensics.missing_offsets import Hole, HoleReason, offsets_text
from core.forensics.recovery_journal import joined_ranges, read_rebuilt
from core.index.transaction_index import AbortedTransaction, iter_transaction_index
from core.records.batches import CURRENT_MAGIC, Batch
from core.records.control_record import LARGEST_MARKER, FateKind, Marker, read_marker
from core.records.record import MAX_SEQUENCE
from core.records.record_batch import HEADER_SIZE, RecordBatch

_END = 1 << 62
_MOST_EPOCHS_OF_AN_END = 2
"""How far above its records' epoch a transaction's marker may be: its end raises it by one, and fencing by one more."""


class TransactionalBatch(NamedTuple):
    """A readable batch of records of a transaction; sequences are -1 if they are not known."""

    producer_id: int
    producer_epoch: int
    base_offset: int
    last_offset: int
    base_sequence: int = -1
    last_sequence: int = -1


class MissingRange(NamedTuple):
    """Offsets [start, end) that can't be read. `may_hold_marker`: False if they are known to be of records only: a
    single batch that is longer than any marker, or offsets that a cleaner took.
    """

    start: int
    end: int
    may_hold_marker: bool = True


class SegmentIndex(NamedTuple):
    """The transaction index of a segment of the offsets [base_offset, end_offset). `entries` is None if the file is
    absent or does not parse; `is_synced`: no entry can have been lost by a power cut. If it `is_rebuilt`, a recovery
    made it from the log: it lists no abort whose marker was missing then.
    """

    base_offset: int
    end_offset: int
    entries: tuple[AbortedTransaction, ...] | None
    is_synced: bool
    name: str = ".txnindex"
    is_rebuilt: bool = False


class ProducerSnapshotAt(NamedTuple):
    """`open_from`: the first offset of each producer's open transaction, -1 if it has none; by producer id."""

    offset: int
    open_from: Mapping[int, int]
    epochs: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class TransactionFate:
    """One transaction, or a part of one that nothing proves to belong to the rest.

    `first_offset` and `last_offset` are of its readable records, which are in `batches` as (base, last offset).
    `possible` are the fates that the evidence allows. `marker` is the readable one that decides. `marker_offset` is
    where the marker is, or was by the index, or None if unknown. `missing`: the missing offsets [start, end) in which
    its marker may lie.
    """

    producer_id: int
    producer_epoch: int
    batches: tuple[tuple[int, int], ...]
    possible: frozenset[FateKind]
    evidence: str
    marker: Marker | None = None
    marker_offset: int | None = None
    missing: tuple[tuple[int, int], ...] = ()
    next_epoch: int | None = None
    """The epoch of whatever is known next of the producer."""

    @property
    def fate(self) -> FateKind:
        return next(iter(self.possible)) if len(self.possible) == 1 else FateKind.UNKNOWN

    @property
    def is_ended(self) -> bool:
        """Whether it is proven to have ended."""
        return FateKind.OPEN not in self.possible

    @property
    def first_offset(self) -> int:
        return self.batches[0][0]

    @property
    def last_offset(self) -> int:
        return self.batches[-1][1]

    @property
    def records_text(self) -> str:
        """Writes `records 53, 55 to 57`."""
        runs = joined_ranges((base, last + 1) for base, last in self.batches)
        is_one = self.first_offset == self.last_offset
        return f"record{'s' * (not is_one)} {_ranges_text(runs)}"


class TransactionEvidence(NamedTuple):
    """What is known of a log's transactions.

    `events`: every readable transactional batch and marker, in order of offsets. `missing`: the unreadable offsets, up
    to the log's end. A cleaner takes no marker of a transaction that still has records: the offsets that it took can't
    hold one that matters. `indexes`: of every segment, also of one whose log is gone.
    """

    events: list[TransactionalBatch | Marker]
    missing: list[MissingRange]
    indexes: list[SegmentIndex]
    snapshots: list[ProducerSnapshotAt]

    def fates(self) -> list[TransactionFate]:
        """Returns the fate of every transaction with a readable record, by first offsets."""
        gaps, by_producer = _Gaps(self.missing), self._by_producer()
        index = _Indexes(by_producer, gaps, self.indexes)
        known = sorted(self.snapshots, key=lambda snapshot: snapshot.offset)
        while True:
            producers = [_Producer(*one, gaps, index, known) for one in by_producer.items()]
            found = [fate for producer in producers for fate in producer.fates()]
            certain = {offset: producer.producer_id for producer in producers for offset in producer.certain_ends}
            if not index.add_certain_ends(certain):  # else they leave others less room
                return sorted(found, key=lambda fate: fate.first_offset)

    def proven_aborted(self) -> list[AbortedTransaction]:
        """Returns the entries of the transaction indexes that agree with the log, one for each marker, in order."""
        found = _Indexes(self._by_producer(), _Gaps(self.missing), self.indexes).entries.values()
        entries = sorted((entry for of_producer in found for entry, _ in of_producer), reverse=True)
        return sorted({entry.last_offset: entry for entry in entries}.values(), key=lambda entry: entry.last_offset)

    def _by_producer(self) -> dict[int, list[TransactionalBatch | Marker]]:
        result: dict[int, list[TransactionalBatch | Marker]] = defaultdict(list)
        for event in self.events:
            result[event.producer_id].append(event)
        return result

    def with_mended(self, batches: Sequence[RecordBatch]) -> TransactionEvidence:
        """Adds damaged batches whose contents are known."""
        if not batches:
            return self
        contents = LogContents()
        for batch in batches:
            contents.take(batch)
        known = joined_ranges((batch.base_offset, batch.last_offset + 1) for batch in batches)
        missing = [rest for gap in self.missing for rest in _without(gap, known)]
        mended = [e._replace(is_mended=True) if isinstance(e, Marker) else e for e in contents.events]
        return self._replace(events=sorted([*self.events, *mended], key=_offset), missing=missing)

    def with_appended(self, contents: LogContents, log_end: int) -> TransactionEvidence:
        """Adds batches to be appended to the log, which ends at `log_end`. The indexes do not list those."""
        evidence = self._replace(
            events=self.events + contents.events,
            missing=self.missing + contents.missing,
            indexes=[index._replace(end_offset=min(index.end_offset, log_end)) for index in self.indexes],
        )
        return evidence.with_mended(contents.mended)


class _Gaps:
    def __init__(self, missing: Iterable[MissingRange]) -> None:
        self._ranges: list[MissingRange] = []
        for gap in sorted(gap for gap in missing if gap.start < gap.end):
            before = self._ranges[-1] if self._ranges else None
            if before is not None and gap.start < before.end:
                may_hold_marker = before.may_hold_marker or gap.may_hold_marker
                self._ranges[-1] = MissingRange(before.start, max(before.end, gap.end), may_hold_marker)
            else:
                self._ranges.append(gap)
        self._starts = [gap.start for gap in self._ranges]

    def between(self, start: int, end: int) -> Iterator[MissingRange]:
        for number in range(max(bisect_right(self._starts, start) - 1, 0), len(self._ranges)):
            gap = self._ranges[number]
            if gap.start >= end:
                return
            if gap.end > start:
                yield gap._replace(start=max(gap.start, start), end=min(gap.end, end))

    def may_hold_marker(self, start: int, end: int) -> bool:
        return any(gap.may_hold_marker for gap in self.between(start, end))

    def holds(self, offset: int) -> bool:
        return any(True for _ in self.between(offset, offset + 1))


class _Indexes:
    """Decides which entries of the transaction indexes to believe."""

    def __init__(
        self, events: Mapping[int, Sequence[TransactionalBatch | Marker]], gaps: _Gaps, indexes: Iterable[SegmentIndex]
    ) -> None:
        self._events = events
        self._gaps = gaps
        self._log_start = min((_offset(of_producer[0]) for of_producer in events.values()), default=0)
        self._offsets = {p: [_offset(e) for e in of_producer] for p, of_producer in events.items()}
        self.entries: dict[int, list[tuple[AbortedTransaction, str]]] = defaultdict(list)
        """By producer id: the entries that agree with the log, each with its file's name."""
        self._certain: list[tuple[int, int]] = []
        self._complete: list[SegmentIndex] = []
        self._others: list[SegmentIndex] = []
        for index in sorted(indexes):
            believed = [entry for entry in index.entries or () if self._is_believable(entry)]
            for entry in believed:
                self.entries[entry.producer_id].append((entry, index.name))
            is_whole = bool(believed) and len(believed) == len(index.entries or ()) and index.is_synced
            is_whole = is_whole and not index.is_rebuilt
            is_whole = is_whole and all(
                self._is_seen(entry) and index.base_offset <= entry.last_offset < index.end_offset for entry in believed
            )
            if is_whole and self._lists_every_abort(index, {entry.last_offset for entry in believed}):
                self._complete.append(index)
            else:
                self._others.append(index)

    def _is_believable(self, entry: AbortedTransaction) -> bool:
        """Says whether the broker can have written the entry: it ended at an abort marker of its producer or at a
        missing one; it began at a batch of its producer or at a missing one; no other marker is in between. Its file's
        name does not matter: two files may have swapped names.
        """
        if not 0 <= entry.first_offset < entry.last_offset < _END:
            return False
        if not 0 <= entry.last_stable_offset <= entry.last_offset + 1:
            return False
        within = self._between(entry.producer_id, entry.first_offset, entry.last_offset + 1)
        last = within[-1] if within else None
        if isinstance(last, Marker) and last.offset == entry.last_offset:
            if last.is_commit:
                return False
            within = within[:-1]
        elif not self._gaps.holds(entry.last_offset):
            return False
        if any(isinstance(event, Marker) for event in within):
            return False
        if len({event.producer_epoch for event in within}) > 1:
            return False  # two transactions: the end of the first was passed over when the index was made again
        first = within[0] if within else None
        begins = isinstance(first, TransactionalBatch) and first.base_offset == entry.first_offset
        return begins or entry.first_offset < self._log_start or self._gaps.holds(
            entry.first_offset
        )  # fmt: skip

    def _is_seen(self, entry: AbortedTransaction) -> bool:
        """Says whether some of it can be read: the log knows no entry that has a wrong producer id by damage."""
        return bool(self._between(entry.producer_id, entry.first_offset, entry.last_offset + 1))

    def _between(self, producer_id: int, start: int, end: int) -> Sequence[TransactionalBatch | Marker]:
        offsets = self._offsets.get(producer_id, [])
        return self._events.get(producer_id, [])[bisect_left(offsets, start) : bisect_left(offsets, end)]

    def _lists_every_abort(self, index: SegmentIndex, listed: set[int]) -> bool:
        """Says whether every abort that surely ended a transaction with records has its entry."""
        aborts = self._certain_aborts
        within = aborts[bisect_left(aborts, index.base_offset) : bisect_left(aborts, index.end_offset)]
        return listed.issuperset(within)

    @cached_property
    def _certain_aborts(self) -> list[int]:
        """Returns the offsets of the abort markers that surely ended a transaction with records."""
        return sorted(
            event.offset
            for events in self._events.values()
            for before, event in pairwise(events)
            if isinstance(event, Marker) and isinstance(before, TransactionalBatch) and not event.is_commit
            if not self._gaps.may_hold_marker(before.last_offset + 1, event.offset)
        )

    def has_no_entry(self, marker: Marker) -> bool:
        """Says whether the abort marker certainly has no entry: it ended a transaction without records."""
        is_listed = any(entry.last_offset == marker.offset for entry, _ in self.entries.get(marker.producer_id, ()))
        return not is_listed and any(i.base_offset <= marker.offset < i.end_offset for i in self._complete)

    def add_certain_ends(self, ends: Mapping[int, int]) -> bool:
        """Takes missing offsets that can only hold one producer's marker: by offset, its id. Says if any is new."""
        known = dict(self._certain)
        self._certain = sorted({**known, **ends}.items())
        return not ends.keys() <= known.keys()

    def ends_of_others(self, producer_id: int, start: int, end: int) -> list[int]:
        """Returns the offsets in [start, end) at which transactions of other producers ended."""
        return sorted(
            {
                offset
                for ends in (self._listed_ends, self._certain)
                for offset, other in ends[bisect_left(ends, (start,)) : bisect_left(ends, (end,))]
                if other != producer_id
            }
        )

    @cached_property
    def _listed_ends(self) -> list[tuple[int, int]]:
        """Returns (last offset, producer id) of the entries whose transactions can be seen, in order."""
        entries = (entry for of_producer in self.entries.values() for entry, _ in of_producer)
        return sorted((entry.last_offset, entry.producer_id) for entry in entries if self._is_seen(entry))

    def find_cover(self, producer_id: int, first: int, last: int) -> tuple[AbortedTransaction, str] | None:
        """Finds the entry of the aborted transaction that these offsets are in."""
        for entry, name in self.entries.get(producer_id, ()):
            if entry.first_offset <= first and last < entry.last_offset:
                return entry, name
        return None

    def find_next(self, producer_id: int, after: int) -> tuple[AbortedTransaction, str] | None:
        """Finds the first of that producer's that began after that offset."""
        later = [(e, name) for e, name in self.entries.get(producer_id, ()) if e.first_offset > after]
        return min(later, default=None)

    def doubtful(self, start: int, end: int) -> list[str]:
        """Says why an abort in [start, end) may be without an entry; empty if none can be."""
        position, doubts = start, []
        for index in self._complete:
            if index.end_offset <= position or index.base_offset >= end:
                continue
            if index.base_offset > position:
                doubts += self._why_not(position, index.base_offset)
            position = max(position, index.end_offset)
        if position < end:
            doubts += self._why_not(position, end)
        return doubts

    def _why_not(self, start: int, end: int) -> list[str]:
        found = [index for index in self._others if index.base_offset < end and start < index.end_offset]
        doubts = []
        for index in found:
            if index.entries is None:
                doubts.append(f"{index.name} is absent, as if nothing was aborted there, or lost")
            elif not index.entries:
                doubts.append(f"{index.name} is empty")
            elif index.is_rebuilt:
                doubts.append(f"a recovery made {index.name} again from the log")
            elif not index.is_synced:
                doubts.append(f"{index.name} may have lost entries in a crash")
            else:
                doubts.append(f"{index.name} does not agree with the log")
        return doubts or [f"no transaction index of {offsets_text(start, end)}"]

    def names(self, start: int, end: int) -> str:
        return ", ".join(index.name for index in self._complete if index.base_offset < end and start < index.end_offset)


class _Part(NamedTuple):
    """Batches of one transaction for certain, and the next known fact about their producer."""

    batches: list[TransactionalBatch]
    following: TransactionalBatch | Marker | None


class _Producer:
    def __init__(
        self,
        producer_id: int,
        events: Sequence[TransactionalBatch | Marker],
        gaps: _Gaps,
        indexes: _Indexes,
        snapshots: Sequence[ProducerSnapshotAt],
    ) -> None:
        self.producer_id = producer_id
        self.certain_ends: list[int] = []
        """The missing offsets at which its transactions ended for certain; known after `fates`."""
        self._events = events
        self._gaps = gaps
        self._indexes = indexes
        self._snapshots = snapshots

    def fates(self) -> list[TransactionFate]:
        """Judges from the last one back: a part may go on in the next one, and then has its fate."""
        found: list[TransactionFate] = []
        for part in reversed(self._parts()):
            found.append(self._fate_of(part, found[-1] if found else None))
        return found[::-1]

    def _parts(self) -> list[_Part]:
        parts: list[_Part] = []
        batches: list[TransactionalBatch] = []
        for event in self._events:
            if isinstance(event, TransactionalBatch) and batches and not self._may_end_between(batches[-1], event):
                batches.append(event)
                continue
            if batches:
                parts.append(_Part(batches, event))
            batches = [event] if isinstance(event, TransactionalBatch) else []
        if batches:
            parts.append(_Part(batches, None))
        return parts

    def _may_end_between(self, batch: TransactionalBatch, following: TransactionalBatch) -> bool:
        """Says whether a transaction may have ended between two batches that follow one another."""
        missing = list(self._gaps.between(batch.last_offset + 1, following.base_offset))
        if missing and following.producer_epoch > batch.producer_epoch:
            return True  # whatever seems to have taken the missing offsets
        if not any(gap.may_hold_marker for gap in missing):
            return False
        if following.producer_epoch != batch.producer_epoch:
            return True
        if batch.last_sequence < 0 or following.base_sequence < 0:
            return True
        lost_records = (following.base_sequence - batch.last_sequence - 1) & MAX_SEQUENCE
        return lost_records != sum(gap.end - gap.start for gap in missing)  # else they are all this producer's records

    def _fate_of(self, part: _Part, later: TransactionFate | None) -> TransactionFate:
        first, last = part.batches[0].base_offset, part.batches[-1].last_offset
        following = part.following
        next_offset = _END if following is None else _offset(following)
        missing = list(self._without_others(self._gaps.between(last + 1, next_offset)))
        if not missing and isinstance(following, Marker):
            fate = self._describe(part, {_outcome(following)}, f"marker at offset {following.offset}")
            return replace(fate, marker=following, marker_offset=following.offset)
        cover = self._indexes.find_cover(self.producer_id, first, last)
        if cover is None:
            return self._weigh(part, missing, later)
        entry, name = cover
        marker = following if isinstance(following, Marker) and following.offset == entry.last_offset else None
        why = f"{name} has it as aborted at offset {entry.last_offset}"
        within = [gap for gap in missing if gap.start <= entry.last_offset < gap.end]
        fate = self._describe(part, {FateKind.ABORTED}, why, within)
        return replace(fate, marker=marker, marker_offset=entry.last_offset)

    def _weigh(self, part: _Part, missing: Sequence[MissingRange], later: TransactionFate | None) -> TransactionFate:
        """Judges a part whose marker may be missing, and that no index has as aborted; `later` is the next part."""
        following = part.following
        end, proof = self._find_end(part)
        within = [gap._replace(end=min(gap.end, end or _END)) for gap in missing if gap.start < (end or _END)]
        doubts = list(dict.fromkeys(why for gap in within for why in self._indexes.doubtful(gap.start, gap.end)))
        outcomes: set[FateKind] = {FateKind.COMMITTED} if within else set()
        if end is not None and not within:
            outcomes = {FateKind.COMMITTED, FateKind.ABORTED}
            doubts = ["its marker is in none of the files"]
        elif doubts:
            outcomes.add(FateKind.ABORTED)
        if end is None and isinstance(following, Marker):
            outcomes.add(_outcome(following))
        elif end is None:
            outcomes |= {FateKind.OPEN} if later is None else later.possible
        elif sum(gap.end - gap.start for gap in within) == 1:
            self.certain_ends.append(within[0].start)
        if outcomes == {FateKind.OPEN}:
            return self._describe(part, outcomes, "no marker up to the log's end")
        text = "; ".join(_texts(proof, within, doubts, self._names(within)))
        return self._describe(part, outcomes, text or (later.evidence if later else ""), within)

    def _describe(
        self, part: _Part, possible: Set[FateKind], evidence: str, within: Sequence[MissingRange] = ()
    ) -> TransactionFate:
        """Describes its fate; `within`: where its marker is missing."""
        return TransactionFate(
            self.producer_id,
            part.batches[0].producer_epoch,
            tuple((batch.base_offset, batch.last_offset) for batch in part.batches),
            frozenset(possible),
            evidence,
            missing=tuple((gap.start, gap.end) for gap in within),
            next_epoch=self._next_epoch(part.batches[-1].last_offset, part.following),
        )

    def _without_others(self, missing: Iterable[MissingRange]) -> Iterator[MissingRange]:
        """Yields where a marker of this producer may have been: not where an index has another producer's marker."""
        for gap in missing:
            start = gap.start
            for offset in self._indexes.ends_of_others(self.producer_id, gap.start, gap.end):
                if start < offset and gap.may_hold_marker:
                    yield gap._replace(start=start, end=offset)
                start = offset + 1
            if start < gap.end and gap.may_hold_marker:
                yield gap._replace(start=start)

    def _find_end(self, part: _Part) -> tuple[int | None, str]:
        """Finds an offset below which the transaction has ended for certain, though its marker can't be read; with the
        proof. None if its producer's next event may be of the same transaction.
        """
        last, epoch = part.batches[-1].last_offset, part.batches[-1].producer_epoch
        following = part.following
        next_offset = _END if following is None else _offset(following)
        found: list[tuple[int, str]] = []
        if isinstance(following, TransactionalBatch) and following.producer_epoch > epoch:
            why = f"its producer has epoch {following.producer_epoch} at offset {next_offset}, which was {epoch}"
            found.append((next_offset, why))
        elif isinstance(following, Marker) and following.producer_epoch > epoch + _MOST_EPOCHS_OF_AN_END:
            found.append((next_offset, f"the marker at offset {next_offset} is of a later epoch"))
        elif isinstance(following, Marker) and not following.is_commit and self._indexes.has_no_entry(following):
            found.append((next_offset, f"the marker at offset {next_offset} aborted no records, by the index"))
        for snapshot in self._snapshots:
            if snapshot.offset <= last:
                continue
            open_from = snapshot.open_from.get(self.producer_id, -1)
            if open_from < 0 and snapshot.offset <= next_offset:
                found.append((snapshot.offset, f"the snapshot at offset {snapshot.offset} has it ended"))
            elif last < open_from <= snapshot.offset and open_from <= next_offset:
                why = f"the snapshot at offset {snapshot.offset} has the next one open from offset {open_from} on"
                found.append((open_from, why))
        entry = self._indexes.find_next(self.producer_id, last)
        if entry is not None and entry[0].first_offset <= next_offset:
            found.append((entry[0].first_offset, f"{entry[1]} has the next one from offset {entry[0].first_offset} on"))
        return min(found, default=(None, ""))

    def _next_epoch(self, last: int, following: TransactionalBatch | Marker | None) -> int | None:
        if following is not None:
            return following.producer_epoch
        known = (
            s.epochs[self.producer_id] for s in self._snapshots if s.offset > last and self.producer_id in s.epochs
        )
        return next(known, None)

    def _names(self, within: Sequence[MissingRange]) -> str:
        names = (self._indexes.names(gap.start, gap.end) for gap in within)
        return ", ".join(dict.fromkeys(filter(None, names)))


def _texts(proof: str, within: Sequence[MissingRange], doubts: Sequence[str], names: str) -> Iterator[str]:
    if within:
        offsets = _ranges_text((gap.start, gap.end) for gap in within)
        yield f"its marker {'was' if proof else 'may have been'} among the missing offsets {offsets}"
    if proof:
        yield proof
    if doubts:
        yield from doubts
    elif names:
        yield f"{names} has no abort there"


def _ranges_text(ranges: Iterable[tuple[int, int]]) -> str:
    """Writes `53, 55 to 57` for ranges [start, end)."""
    return ", ".join(str(start) if end == start + 1 else f"{start} to {end - 1}" for start, end in ranges)


def _offset(event: TransactionalBatch | Marker) -> int:
    return event.offset if isinstance(event, Marker) else event.base_offset


def _outcome(marker: Marker) -> FateKind:
    return FateKind.COMMITTED if marker.is_commit else FateKind.ABORTED


@dataclass(slots=True)
class LogContents:
    """Collects the transactions of a log, or part of one: it gets batches and holes in order of offsets."""

    events: list[TransactionalBatch | Marker] = field(default_factory=list)
    missing: list[MissingRange] = field(default_factory=list)
    mended: list[RecordBatch] = field(default_factory=list)
    """Damaged batches whose contents are known."""

    def take(self, batch: Batch) -> None:
        if not isinstance(batch, RecordBatch) or not batch.is_transactional or not batch.has_producer_id:
            return
        if batch.is_control:
            try:
                marker = read_marker(batch)
            except CorruptRecordError:
                self.missing.append(MissingRange(batch.base_offset, batch.last_offset + 1))
            else:
                self.events += [] if marker is None else [marker]
            return
        last_sequence = batch.last_sequence if batch.base_sequence >= 0 else -1
        self.events.append(
            TransactionalBatch(
                batch.producer_id,
                batch.producer_epoch,
                batch.base_offset,
                batch.last_offset,
                batch.base_sequence,
                last_sequence,
            )
        )

    def pass_over(self, hole: Hole) -> None:
        self.missing.append(_missing_range(hole))
        self.mended += _mended(hole)


def _without(gap: MissingRange, known: Sequence[tuple[int, int]]) -> Iterator[MissingRange]:
    """Yields the parts of a missing range outside the ranges [start, end), which are in order, with gaps between."""
    first = bisect_right(known, gap.start, key=itemgetter(1))
    for start, end in known[first : bisect_left(known, (gap.end,))]:
        if gap.start < start:
            yield gap._replace(end=start)
        gap = gap._replace(start=max(gap.start, end))
    if gap.start < gap.end:
        yield gap


def read_evidence(
    directory: Path, reading: LogScanner, index_paths: Mapping[int, Path], *, limit: int = AFTER_ALL_OFFSETS
) -> TransactionEvidence:
    """Reads the evidence of a partition. Every batch is read and checked. `index_paths` are the transaction indexes of
    the log's segments, by base offset; they need not exist. Batches at `limit` or above are ignored.
    """
    if not index_paths:
        return TransactionEvidence([], [], [], [])
    contents = LogContents()
    given_up: list[MissingRange] = []
    holes_without_bytes: list[tuple[int, int]] = []
    for item in reading.items(reading.start_offset):
        if isinstance(item, Hole):
            if item.reason not in (HoleReason.COMPACTED, HoleReason.DAMAGED):
                holes_without_bytes.append((item.start, item.end))
            if item.reason is HoleReason.TRUNCATED:
                given_up.append(_missing_range(item))
            else:
                contents.pass_over(item)
        elif item.base_offset >= limit:
            break
        else:
            contents.take(item)
    tail = reading.tail
    if tail is not None and tail.damage.end_offset is not None and tail.damage.offset >= reading.end_offset:
        # a cut batch was not written whole, and counts for nothing
        contents.missing.append(MissingRange(tail.damage.offset, tail.damage.end_offset))
    snapshots = _read_snapshots(directory, limit)
    newest = max((snapshot.offset for snapshot in snapshots), default=0)
    is_clean = newest == reading.sound_end or (directory.resolve().parent / CLEAN_SHUTDOWN).exists()
    indexes = [
        index._replace(end_offset=_end_of_index(index, holes_without_bytes, reading.end_offset))
        for index in _read_indexes(directory, index_paths, is_clean=is_clean)
    ]
    missing = [*contents.missing, *_without_doubt(given_up, indexes)]
    return TransactionEvidence(contents.events, missing, indexes, snapshots).with_mended(contents.mended)


def _missing_range(hole: Hole) -> MissingRange:
    may_hold_marker = hole.reason is not HoleReason.COMPACTED and not _is_of_records(hole)
    return MissingRange(hole.start, hole.end, may_hold_marker)


def _without_doubt(given_up: Iterable[MissingRange], indexes: Iterable[SegmentIndex]) -> Iterator[MissingRange]:
    """Yields the offsets that a recovery gave up, which hold a marker that matters only if an index lists one. The
    recovery wrote each other marker again, unless the producer's next marker stands for it.
    """
    ends = sorted(entry.last_offset for index in indexes for entry in index.entries or ())
    for gap in given_up:
        yield gap._replace(may_hold_marker=bisect_left(ends, gap.start) < bisect_left(ends, gap.end))


def _mended(hole: Hole) -> Iterator[RecordBatch]:
    """Yields the original of a damaged batch, if the wrong bytes in it are known. No checksum is of its base offset: a
    batch that names other offsets than those that are missing tells nothing about them.
    """
    damage = hole.damage
    if damage is None or damage.fix is None:
        return
    fixes = list(filter(None, (damage.fix, damage.base_offset_fix)))
    try:
        with contextlib.closing(open_salvaging(hole.path)) as file:
            data = bytearray(file.read_at(hole.end_position - hole.position, hole.position))
    except OSError:
        return
    places = [fix.position - hole.position for fix in fixes]
    if 0 <= min(places) <= max(places) < len(data) >= HEADER_SIZE:
        for at, fix in zip(places, fixes, strict=True):
            data[at] = fix.expected
        batch = RecordBatch(memoryview(data), 0, hole.position)
        is_sound = batch.magic == CURRENT_MAGIC and batch.size_bytes == len(data) and batch.computed_crc() == batch.crc
        if is_sound and (hole.start == hole.end or hole.start <= batch.base_offset < hole.end):
            yield batch


def _is_of_records(hole: Hole) -> bool:
    """Says whether one damaged batch, larger than any marker, held all of these offsets."""
    damage = hole.damage
    return (
        damage is not None
        and damage.batch is not None
        and (damage.offset, damage.end_offset) == (hole.start, hole.end)
        and damage.batch.size_bytes > LARGEST_MARKER
    )


# --- the files beside it


def _read_indexes(directory: Path, index_paths: Mapping[int, Path], *, is_clean: bool) -> Iterator[SegmentIndex]:
    paths = dict(index_paths)
    paths |= {base: path for base, path in find_offset_files(directory, TRANSACTION_INDEX_SUFFIX) if base not in paths}
    bases = sorted(paths)
    last_log, rebuilt = max(index_paths), read_rebuilt(directory)
    for base, end in zip(bases, [*bases[1:], AFTER_ALL_OFFSETS], strict=True):
        entries = None
        with contextlib.suppress(CorruptRecordError, OSError):
            entries = tuple(iter_transaction_index(paths[base]))
        name = paths[base].name
        yield SegmentIndex(base, end, entries, base < last_log or is_clean, name, is_rebuilt=name in rebuilt)


def _end_of_index(index: SegmentIndex, holes: Iterable[tuple[int, int]], log_end: int) -> int:
    """Returns the offset from which the index can't be relied on: offsets missing before the next segment or the log's
    end, without a damaged byte, may be a whole segment with an index of its own.
    """
    ends = (index.end_offset, log_end if index.end_offset == AFTER_ALL_OFFSETS else index.end_offset)
    return min((start for start, end in holes if index.base_offset < end and end in ends), default=index.end_offset)


def _read_snapshots(directory: Path, limit: int) -> list[ProducerSnapshotAt]:
    found = []
    for offset, entries in believable_snapshots(directory, limit):
        open_from = {entry.producer_id: entry.current_txn_first_offset for entry in entries}
        epochs = {entry.producer_id: entry.producer_epoch for entry in entries}
        found.append(ProducerSnapshotAt(offset, open_from, epochs))
    return found[::-1]
