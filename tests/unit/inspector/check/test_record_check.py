"""Batches that decode, and that Kafka refuses all the same."""

from __future__ import annotations

from pathlib import Path

from core.inspector.check.findings import Code
from core.inspector.check.segment_check import VerifyOptions
from core.inspector.check.verify import verify
from core.records.control_record import EndTransactionMarker, end_transaction_batch
from tests.support.logs import NOW, make_batch, make_marker


def test_a_marker_without_a_producer_id_is_found_where_it_stands(tmp_path: Path) -> None:
    before = make_batch(b"a", b"b")
    marker = end_transaction_batch(
        EndTransactionMarker(is_commit=True, coordinator_epoch=0),
        producer_id=-1,
        producer_epoch=-1,
        timestamp=NOW,
        base_offset=2,
    )
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / f"{0:020d}.log").write_bytes(bytes(before.buffer) + marker)
    findings = verify(tmp_path / "t-0", options=VerifyOptions(is_deep=True))
    found = [one for one in findings if one.code is Code.BAD_BATCH]
    assert [(one.message, one.offset, one.last_offset) for one in found] == [
        ("the marker of a transaction without a producer id", 2, 2)
    ]
    size = before.size_bytes
    assert [(one.position, one.end_position) for one in found] == [(size, size + len(marker))]


def test_a_marker_in_a_batch_that_is_not_transactional_is_found(tmp_path: Path) -> None:
    marker = make_marker(7, is_commit=True)
    record = marker.records()[0]
    batch = make_batch(
        record.value or b"", key=record.key, producer_id=7, producer_epoch=0, is_control=True, is_transactional=False
    )
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / f"{0:020d}.log").write_bytes(bytes(batch.buffer))
    findings = verify(tmp_path / "t-0", options=VerifyOptions(is_deep=True))
    found = [(one.code, one.message) for one in findings if one.offset == 0]
    assert found == [(Code.BAD_BATCH, "the marker of a transaction in a batch that is not transactional")]
