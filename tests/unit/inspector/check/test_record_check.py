"""Batches that decode, and that Kafka refuses all the same."""

from __future__ import annotations

from pathlib import Path

from core.inspector.check.findings import Code
from core.inspector.check.segment_check import VerifyOptions
from core.inspector.check.verify import verify
from core.records.control_record import EndTransactionMarker, end_transaction_batch
from tests.support.logs import NOW, make_batch


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
