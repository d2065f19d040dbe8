from __future__ import annotations

import contextlib

import pytest

from core.common.errors import CorruptRecordError
from core.forensics.batch_scanner import claims_marker
from core.records.control_record import (
    ControlRecordType,
    EndTransactionMarker,
    control_key,
    control_type,
    end_transaction_batch,
    find_plain_marker,
    is_plain_commit,
    read_end_transaction_marker,
)
from core.records.record import Record
from core.records.record_batch import ATTRIBUTES_POSITION, HEADER_SIZE, RecordBatch
from core.records.record_batch_builder import build_batch


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_marker_goes_there_and_back(is_commit: bool) -> None:
    marker = EndTransactionMarker(is_commit, 3)
    data = end_transaction_batch(marker, producer_id=0, producer_epoch=2, timestamp=5, base_offset=17)
    batch = RecordBatch(memoryview(data))
    batch.ensure_valid()
    assert batch.is_control and batch.is_transactional and claims_marker(batch)
    assert (batch.base_sequence, batch.producer_id, batch.base_offset) == (-1, 0, 17)
    (record,) = batch.records()
    assert read_end_transaction_marker(record) == marker
    # As DumpLogSegments shows real markers: keySize 4, valueSize 6.
    assert (record.key, record.value) == (b"\0\0\0\1" if is_commit else b"\0\0\0\0", b"\0\0\0\0\0\3")


def test_a_key_or_a_marker_that_is_too_short_is_refused_and_later_versions_are_read_as_this_one() -> None:
    """As Kafka reads them."""
    for key in (None, b"", b"\0\0\0", b"\xff\xff\0\0"):
        with pytest.raises(CorruptRecordError, match="control record key"):
            control_type(key)
    for size in range(6):
        with pytest.raises(CorruptRecordError, match="too short"):
            read_end_transaction_marker(Record(0, 0, control_key(ControlRecordType.ABORT), bytes(size)))
    for version in (1, 0x7FFF):
        value = version.to_bytes(2) + (4).to_bytes(4) + b"more"
        found = read_end_transaction_marker(Record(0, 0, control_key(ControlRecordType.COMMIT), value))
        assert found == EndTransactionMarker(is_commit=True, coordinator_epoch=4)


def test_other_control_records_are_no_markers() -> None:
    key = control_key(ControlRecordType.LEADER_CHANGE)
    assert read_end_transaction_marker(Record(0, 0, key, b"")) is None
    assert control_type(b"\0\0\0\x63") is None


def test_a_marker_as_brokers_write_it_is_read_at_once_and_any_other_is_left_to_its_record() -> None:
    """Every bit of the section flipped in turn: the short way says what the record says, or nothing."""
    markers = [EndTransactionMarker(is_commit, epoch) for is_commit in (True, False) for epoch in (0, 3, -1, 1 << 30)]
    agreed = 0
    for marker in markers:
        section = end_transaction_batch(marker, producer_id=9, producer_epoch=2, timestamp=5)[HEADER_SIZE:]
        assert find_plain_marker(section) == marker
        for bit in range(len(section) * 8):
            changed = bytearray(section)
            changed[bit // 8] ^= 1 << bit % 8
            quick = find_plain_marker(bytes(changed))
            if quick is not None:
                assert quick == _by_record(bytes(changed))
                agreed += 1
        for cut in range(len(section)):
            assert find_plain_marker(section[:cut]) is None
        assert find_plain_marker(section + b"\0") is None
    assert agreed >= len(markers) * 32, "the coordinator's epoch may be anything"


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_plain_commit_is_one_by_its_record_too(is_commit: bool) -> None:
    """Every bit of the batch but those of its frame flipped in turn."""
    marker = EndTransactionMarker(is_commit, 3)
    data = end_transaction_batch(marker, producer_id=9, producer_epoch=2, timestamp=5)
    assert is_plain_commit(RecordBatch(memoryview(data))) == is_commit
    for bit in range(ATTRIBUTES_POSITION * 8, len(data) * 8):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        batch = RecordBatch(memoryview(changed))
        if is_plain_commit(batch):
            (record,) = batch.records()
            found = read_end_transaction_marker(record)
            assert found is not None and found.is_commit


def _by_record(section: bytes) -> EndTransactionMarker | None:
    batch = RecordBatch(memoryview(build_batch(section, count=1, base_timestamp=5, max_timestamp=5, is_control=True)))
    with contextlib.suppress(CorruptRecordError):
        (record,) = batch.records()
        return read_end_transaction_marker(record)
    return None
