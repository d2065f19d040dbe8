from __future__ import annotations

from core.common.error_code import ErrorCode
from core.common.errors import KafkaError


def test_a_long_message_is_cut_once() -> None:
    """Who is told it by a broker makes an error of it again."""
    told = KafkaError(ErrorCode.INVALID_CONFIG, "x" * 32_700).message
    assert told.endswith(" ... (30700 more characters)")
    assert KafkaError(ErrorCode.INVALID_CONFIG, told).message == told
    assert KafkaError(ErrorCode.INVALID_CONFIG, "x" * 2000).message == "x" * 2000
