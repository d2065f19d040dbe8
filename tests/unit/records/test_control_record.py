from __future__ import annotations

import pytest

from core.common.errors import CorruptRecordError
from core.records.control_record import (
    ControlRecordType,
    EndTransactionMarker,
    control_key,
    control_type,
    end_transaction_batch,
    read_end_transaction_marker,
)
from core.records.record import Record
from core.records.record_batch import RecordBatch


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_marker_goes_there_and_back(is_commit: bool) -> None:
    marker = EndTransactionMarker(is_commit, 3)
    data = end_transaction_batch(marker, producer_id=9, producer_epoch=2, timestamp=5, base_offset=17)
    batch = RecordBatch(memoryview(data))
    batch.ensure_valid()
    assert batch.is_control and batch.is_transactional
    assert (batch.base_sequence, batch.producer_id, batch.base_offset) == (-1, 9, 17)
    (record,) = batch.records()
    assert read_end_transaction_marker(record) == marker
    # As DumpLogSegments shows real markers: keySize 4, valueSize 6.
    assert (record.key, record.value) == (b"\0\0\0\1" if is_commit else b"\0\0\0\0", b"\0\0\0\0\0\3")


def test_other_control_records_are_no_markers() -> None:
    key = control_key(ControlRecordType.LEADER_CHANGE)
    assert read_end_transaction_marker(Record(0, 0, key, b"")) is None
    assert control_type(b"\0\0\0\x63") is None


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0", b"\xff\xff\0\0"])
def test_a_key_that_is_none(key: bytes | None) -> None:
    with pytest.raises(CorruptRecordError, match="control record key"):
        control_type(key)


def test_a_marker_that_is_too_short() -> None:
    with pytest.raises(CorruptRecordError, match="too short"):
        read_end_transaction_marker(Record(0, 0, control_key(ControlRecordType.ABORT), b"\0\0"))
