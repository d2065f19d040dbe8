from __future__ import annotations

import random

import pytest

from core.broker.observe.request_metrics import TIME_BUCKETS_MS, RequestMetrics, TimeHistogram, error_codes
from core.common.error_code import ErrorCode
from core.protocol.schema.api_versions import ApiVersionsResponse
from core.protocol.schema.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from core.protocol.schema.groups import HeartbeatResponse
from core.protocol.schema.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse


def test_codes_of_an_answer() -> None:
    none, corrupt = ErrorCode.NONE, ErrorCode.CORRUPT_MESSAGE
    assert error_codes(None) == [none]
    assert error_codes(HeartbeatResponse(error_code=25)) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert error_codes(ApiVersionsResponse()) == [none]
    produced = TopicProduceResponse(
        "t", partition_responses=[PartitionProduceResponse(0, 2), PartitionProduceResponse(1)]
    )
    assert error_codes(ProduceResponse([produced])) == [corrupt, none]
    assert error_codes(ProduceResponse([])) == [none]
    fetched = FetchableTopicResponse("t", partitions=[PartitionData(0, 2)])
    assert error_codes(FetchResponse(responses=[fetched])) == [none, corrupt]


def test_times_fall_into_buckets() -> None:
    histogram = TimeHistogram()
    for time_ms in (0.0, 0.1, 0.11, 1.0, 29_999.0, 1e9):
        histogram.add(time_ms)
    assert (histogram.counts[0], histogram.counts[1], histogram.counts[3]) == (2, 1, 1)
    assert histogram.counts[-2:] == [1, 1]
    assert histogram.sum_ms == 0.1 + 0.11 + 1.0 + 29_999.0 + 1e9


def test_requests_by_version() -> None:
    metrics = RequestMetrics()
    for version in (3, 4, 4):
        metrics.add("Heartbeat", version, error_codes(HeartbeatResponse(error_code=25)), 1.0)
    assert metrics.requests == {("Heartbeat", 3): 1, ("Heartbeat", 4): 2}
    assert metrics.errors == {("Heartbeat", ErrorCode.UNKNOWN_MEMBER_ID): 3}
    assert sum(metrics.times["Heartbeat"].counts) == 3


def test_good_requests_that_are_counted_together_are_counted_as_each_alone() -> None:
    """The bounds of the buckets among them, and more of them than are kept."""
    chosen = random.Random(9)
    times_ms = [*TIME_BUCKETS_MS, *(10 ** chosen.uniform(-3, 5) for _ in range(1000))]
    together, alone = RequestMetrics(), RequestMetrics()
    for number, time_ms in enumerate(times_ms):
        version = number % 3
        together.add_good(("Produce", version), time_ms / 1000)
        alone.add("Produce", version, [ErrorCode.NONE], time_ms)
    assert together.requests == alone.requests
    assert together.errors == alone.errors
    assert together.times["Produce"].counts == alone.times["Produce"].counts
    assert together.times["Produce"].sum_ms == pytest.approx(alone.times["Produce"].sum_ms)
