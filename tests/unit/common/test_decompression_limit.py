"""The limit on what a batch decompresses to is one setting, from the environment."""

from __future__ import annotations

import pytest

from core.common.decompression_limit import DEFAULT_EXPANSION_LIMIT, PLOG_MAX_EXPANSION, expansion_limit
from core.common.errors import CorruptRecordError, UsageError
from core.records.columns import decode_columns
from core.records.compression import CompressionType, compress, decompress
from core.records.record import Record, encode_records
from core.records.record_batch import RecordBatch
from core.records.record_batch_builder import build_batch
from tests.support.for_each import for_each


@for_each("text, size", [("134217728", 134217728), ("64K", 65536), ("300m", 300 * 1024 * 1024), ("1G", 1 << 30)])
def test_the_environment_sets_it(text: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PLOG_MAX_EXPANSION, text)
    assert expansion_limit() == size


def test_without_a_setting_forty_megabytes_are_well_below_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PLOG_MAX_EXPANSION, raising=False)
    assert expansion_limit() == DEFAULT_EXPANSION_LIMIT == 128 * 1024 * 1024


@for_each("text", ["many", "-1", "0", "1.5G", "G", "3G", "²"])
def test_what_is_no_size_is_refused_by_name(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PLOG_MAX_EXPANSION, text)
    with pytest.raises(UsageError, match=PLOG_MAX_EXPANSION):
        expansion_limit()


def test_it_holds_wherever_no_other_limit_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    section = encode_records([Record(0, 0, None, bytes(100_000))], 0, 0)
    packed = build_batch(section, count=1, base_timestamp=0, max_timestamp=0, compression=CompressionType.ZSTD)
    batch = RecordBatch(memoryview(packed))
    assert len(decode_columns([batch])) == len(batch.records()) == 1
    monkeypatch.setenv(PLOG_MAX_EXPANSION, "99999")
    for read in (
        lambda: decompress(CompressionType.GZIP, compress(CompressionType.GZIP, bytes(100_000))),
        lambda: decode_columns([batch]),
        batch.records,
    ):
        with pytest.raises(CorruptRecordError, match="99999 bytes, which is the limit"):
            read()


def test_batches_that_are_too_large_together_are_read_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    from core.records.columns import decode_whole_batches

    section = encode_records([Record(0, 0, None, bytes(60_000))], 0, 0)
    packed = [
        build_batch(section, count=1, base_offset=n, base_timestamp=0, max_timestamp=0, compression=CompressionType.LZ4)
        for n in range(3)
    ]
    monkeypatch.setenv(PLOG_MAX_EXPANSION, "100000")

    def refuse(_batch: object, error: CorruptRecordError) -> None:
        raise error

    found = decode_whole_batches([RecordBatch(memoryview(data)) for data in packed], refuse)
    assert [columns.offsets.tolist() for columns in found] == [[0], [1], [2]]
