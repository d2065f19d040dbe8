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
"""So many are read sooner one by one than by columns, whose libraries may have to be loaded first."""


class ReadRecord(NamedTuple):
    """A record as the log holds it; a transaction's marker if the key is empty.

    `producer_id`: that of the transaction which it belongs to, -1 if it belongs to none.
    """

    key: bytes
    value: bytes | None
    producer_id: int
    is_commit: bool = False
    offset: int = -1


Fields = tuple[bytes, bytes | None, int, bool, int]
"""A `ReadRecord` as a plain tuple, which the collector of cycles does not look through: hundreds of thousands may wait
to be taken up, and nobody is served meanwhile.
"""


def newest_records(
    batches: Iterable[Batch], on_undecodable: Callable[[Batch, CorruptRecordError], None]
) -> Iterable[Fields]:
    """Gives the records of the batches in their order, but for those whose key has a later one: the log's cleaner may
    take them away at any time, so that nobody may depend on them.

    One that deletes comes with what it deletes, which shows that there was such a group at all. Those of transactions
    and their markers all stay: which of them counts is known at the end only.
    """
    found: dict[object, Fields] = {}
    for group in group_batches(batches):
        for run in _runs(group):
            for read in _records(run, on_undecodable):
                name, value, producer_id = read[:3]
                key = name if name and producer_id == NO_PRODUCER_ID else object()
                earlier = found.pop(key, None)  # for the order, which is that of the last ones
                if value is None and earlier is not None and earlier[1] is not None:
                    found[object()] = earlier
                found[key] = read
    return found.values()


def _runs(batches: Sequence[Batch]) -> Iterator[list[Batch]]:
    """Gives neighbours that belong to no transaction together, each other one alone."""
    for is_plain, neighbours in groupby(batches, _is_plain):
        if is_plain:
            yield list(neighbours)
        else:
            yield from ([batch] for batch in neighbours)


def _is_plain(batch: Batch) -> bool:
    return not (isinstance(batch, RecordBatch) and (batch.is_control or batch.is_transactional))


def _records(batches: list[Batch], on_undecodable: Callable[[Batch, CorruptRecordError], None]) -> Iterator[Fields]:
    """Reads the records of batches that belong to no transaction, or of one that does."""
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
    """Gives the newest record of each key in the batches, in order, and the newest that does not delete: older ones
    cost no object.
    """
    import numpy as np

    from core.records.columns import decode_whole_batches

    for columns in decode_whole_batches(batches, on_undecodable):
        keyed = columns.select(np.flatnonzero(columns.key_lengths > 0))
        if len(keyed):
            codes = keyed.keys().dictionary_encode().indices.to_numpy(zero_copy_only=False)
            last = np.full((2, int(codes.max()) + 1), -1)
            last[0, codes] = np.arange(len(codes))  # of what is assigned to one place several times, the last counts
            kept = np.flatnonzero(keyed.value_lengths >= 0)
            last[1, codes[kept]] = kept
            newest = keyed.select(np.unique(last[last >= 0]))
            fields = newest.keys().to_pylist(), newest.values().to_pylist(), newest.offsets.tolist()
            for key, value, offset in zip(*fields, strict=True):
                yield key, value, NO_PRODUCER_ID, False, offset


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
