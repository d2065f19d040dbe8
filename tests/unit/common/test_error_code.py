from __future__ import annotations

from core.common.error_code import ErrorCode


def test_codes_have_kafkas_numbers() -> None:
    assert (ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.CORRUPT_MESSAGE, ErrorCode.NOT_LEADER_OR_FOLLOWER) == (1, 2, 6)
    assert ErrorCode(133).name == "SHARE_SESSION_LIMIT_REACHED"
    assert sorted(ErrorCode) == list(range(-1, 134))


def test_a_number_of_a_newer_kafka_is_an_unknown_error() -> None:
    assert ErrorCode.of(9999) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert ErrorCode.of(3) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
