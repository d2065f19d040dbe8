"""The newest record of each key among the batches of an internal topic: all that a coordinator may depend on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from core.common.errors import CorruptRecordError
from core.records.batches import Batch, count_records, group_batches
from core.records.control_record import read_end_transaction_marker
from core.records.record_batch import NO_PRODUCER_ID, RecordBatch

_FEW_RECORDS = 2000
"""Up to so many records are read faster one by one than by columns, whose libraries may have to be loaded first."""


class ReadRecord(NamedTuple):
    """A record as in the log; a transaction's marker if the key is empty.

    `producer_id`: that of the record's transaction, -1 if it is not transactional.
    """

    key: bytes
    value: bytes | None
    producer_id: int
    is_commit: bool = False
    offset: int = -1


Fields = tuple[bytes, bytes | None, int, bool, int]
"""A `ReadRecord` as a plain tuple, which the garbage collector does not track: hundreds of thousands may wait to be
replayed, and a collection of these would stop the broker.
"""


def newest_records(
    batches: Iterable[Batch], on_undecodable: Callable[[Batch, CorruptRecordError], None]
) -> Iterable[Fields]:
    """Returns the records of the batches in order, without those whose key has a later one: the log cleaner may remove
    them at any time, so the coordinator must not depend on them.

    A tombstone comes with the record that it deletes, which shows that there was such a group. All records of
    transactions and all markers stay: only the end shows which of them count.
    """
    found: dict[object, Fields] = {}
    for group in group_batches(batches):
        for run in _runs(group):
            for read in _records(run, on_undecodable):
                name, value, producer_id = read[:3]
                key = name if name and producer_id == NO_PRODUCER_ID else object()
                earlier = found.pop(key, None)  # the order is that of the newest records
                if value is None and earlier is not None and earlier[1] is not None:
                    found[object()] = earlier
                found[key] = read
    return found.values()


def _runs(batches: Sequence[Batch]) -> Iterator[list[Batch]]:
    """Yields neighbouring batches that are not transactional together, and each other batch alone."""
    for is_plain, neighbours in groupby(batches, _is_plain):
        if is_plain:
            yield list(neighbours)
        else:
            yield from ([batch] for batch in neighbours)


def _is_plain(batch: Batch) -> bool:
    return not (isinstance(batch, RecordBatch) and (batch.is_control or batch.is_transactional))


def _records(batches: list[Batch], on_undecodable: Callable[[Batch, CorruptRecordError], None]) -> Iterator[Fields]:
    if count_records(batches) > _FEW_RECORDS:
        yield from _newest_by_columns(batches, on_undecodable)
        return
    for batch in batches:
        try:
            yield from _of_batch(batch)
        except CorruptRecordError as error:
            on_undecodable(batch, error)


def _newest_by_columns(
    batches: list[Batch], on_undecodable: Callable[[Batch, CorruptRecordError], None]
) -> Iterator[Fields]:
    """Yields the newest record of each key in the batches, in order, and the newest that is not a tombstone: older ones
    are not turned into objects.
    """
    import numpy as np

    from core.records.columns import decode_whole_batches

    for columns in decode_whole_batches(batches, on_undecodable):
        keyed = columns.select(np.flatnonzero(columns.key_lengths > 0))
        if len(keyed):
            keys = keyed.keys().to_pylist()
            last = dict(zip(keys, range(len(keys)), strict=True))
            last_kept = {keys[row]: row for row in np.flatnonzero(keyed.value_lengths >= 0).tolist()}
            newest = keyed.select(np.unique([*last.values(), *last_kept.values()]))
            fields = newest.keys().to_pylist(), newest.values().to_pylist(), newest.offsets.tolist()
            for key, value, offset in zip(*fields, strict=True):
                yield key or b"", value, NO_PRODUCER_ID, False, offset


def _of_batch(batch: Batch) -> Iterator[Fields]:
    records = batch.records()
    if isinstance(batch, RecordBatch) and batch.is_control:
        marker = read_end_transaction_marker(records[0]) if records else None
        if marker is not None:
            yield b"", None, batch.producer_id, marker.is_commit, batch.base_offset
        return
    is_open = isinstance(batch, RecordBatch) and batch.is_transactional
    for record in records:
        if record.key:
            yield record.key, record.value, batch.producer_id if is_open else NO_PRODUCER_ID, False, record.offset
