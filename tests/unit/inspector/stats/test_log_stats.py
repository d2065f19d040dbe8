"""Figures against what was written."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.stats_html import stats_html
from core.forensics.known_offsets_of_directory import KnownOffsetsOfDirectory
from core.inspector.stats import log_stats
from core.inspector.stats.log_stats import Spread, StoredLog, TimeBuckets, collect_stats, find_log, read_stats
from core.pipeline.stats_account import figures_of
from core.records.compression import CompressionType
from tests.support.damage import places, write_log
from tests.support.golden import directories
from tests.support.logs import NOW, append, make_batch, open_log


def test_counts_are_those_of_what_was_written(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    records = write_log(directory, Random(3), 30)
    stats = collect_stats(find_log(directory), NOW)
    found = places(directory)
    assert (stats.records, stats.batches) == (len(records), len(found))
    assert stats.size_bytes == sum(path.stat().st_size for path in directory.glob("*.log"))
    assert (stats.start_offset, stats.end_offset) == (0, found[-1].end_offset)
    assert stats.missing_offsets == found[-1].end_offset - len(records)
    assert sum(stats.over_time.records.values()) == len(records)
    assert sum(batches for batches, _ in stats.codecs.values()) == len(found)
    assert sum(size for _, size in stats.codecs.values()) == stats.size_bytes
    assert stats.batch_bytes.most == max(place.end - place.position for place in found)
    assert stats.sample.records == len(records), "so few are all looked into"
    assert stats.sample.keys == Counter(key for key, _ in records.values())
    assert stats.sample.value_sizes.most == max(len(value or b"") for _, value in records.values())
    assert sum(p.records for p in stats.producers.values()) <= len(records)
    assert {p.producer_id: p.is_transactional for p in stats.producers.values()} == {7: False, 8: True, 9: True}


def test_a_segment_that_retention_takes_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the listing and the opening: the others are counted, as a moment later."""
    log = open_log(tmp_path / "t-0", segment_bytes=150)
    for _ in range(5):
        append(log, make_batch(b"x" * 50))
    find = log_stats.find_log

    def find_and_delete(path: Path, known: KnownOffsetsOfDirectory | None = None) -> StoredLog:
        found = find(path, known)
        if len(log.segments) > 1:
            log.delete_oldest([log.segments.first])
        return found

    monkeypatch.setattr(log_stats, "find_log", find_and_delete)
    stats = read_stats(tmp_path / "t-0", NOW)
    assert (stats.records, stats.start_offset, stats.findings) == (1, 4, [])


def test_savings_are_those_of_the_codecs(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    for _ in range(20):
        append(log, make_batch(b"the same again " * 100, compression=CompressionType.NONE))
    log.close()
    sample = collect_stats(find_log(tmp_path / "t-0"), NOW).sample
    assert sample.saving("none") == 0
    assert all(sample.saving(codec) > 0.9 for codec in ("gzip", "zstd", "lz4"))
    assert sample.plain_bytes == sample.stored_bytes


def test_times_out_of_order_and_ahead(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", message_timestamp_after_max_ms=1 << 60)
    for timestamp in (NOW, NOW + 5000, NOW + 2000, NOW + 10 * 3_600_000):
        append(log, make_batch(b"x", timestamp=timestamp))
    log.close()
    stats = collect_stats(find_log(tmp_path / "t-0"), NOW)
    assert (stats.out_of_order_batches, stats.most_late_ms, stats.future_batches) == (1, 3000, 1)
    assert (stats.first_timestamp, stats.last_timestamp) == (NOW, NOW + 10 * 3_600_000)


@given(values=st.lists(st.integers(0, 1 << 30), min_size=1, max_size=300), share=st.sampled_from([0.5, 0.9, 0.99, 1.0]))
def test_a_quantile_is_near_the_true_one(values: list[int], share: float) -> None:
    spread = Spread()
    for value in values:
        spread.add(value)
    true = sorted(values)[max(-(-int(len(values) * share * 1000) // 1000) - 1, 0)]
    assert spread.quantile(share) <= spread.most == max(values)
    assert any(abs(spread.quantile(share) - near) <= near / 16 for near in (true, *values))


@given(times=st.lists(st.integers(0, 1 << 42), min_size=1, max_size=200))
def test_no_record_is_lost_between_buckets(times: list[int]) -> None:
    buckets = TimeBuckets()
    for time in times:
        buckets.add(time, 1, 10)
    rows = buckets.rows()
    assert len(rows) <= 120
    assert sum(records for _, records, _ in rows) == len(times)
    assert sum(size for _, _, size in rows) == 10 * len(times)
    for start, records, _ in rows:
        assert records == sum(start <= time < start + buckets.width_ms for time in times)


def test_a_report_of_every_fixture_is_a_page() -> None:
    logs = {}
    for directory in directories():
        found = find_log(directory)
        if found.files:
            logs[directory.name] = figures_of(collect_stats(found, NOW))
    page = stats_html(logs)
    assert page.startswith("<!doctype html>")
    assert all(f"<h1>{name}</h1>" in page for name in logs)
    assert page.count("<table>") == page.count("</table>")
    assert "src=" not in page, "it needs nothing from elsewhere"
    assert "href=" not in page
