"""What may be asked of a controller about topics; `tests/interop` compares most of it with Kafka's."""

from __future__ import annotations

from core.cluster.image.topic_rules import ensure_has_no_gaps
from core.common.error_code import ErrorCode
from tests.support.refusals import refused


def test_a_topic_with_a_gap_does_not_grow() -> None:
    """The next number would be that of a partition which has records."""
    ensure_has_no_gaps("t", {1: "b", 0: "a"})
    with refused(ErrorCode.INVALID_PARTITIONS, "has the partitions 0, 2, and lacks one before its last"):
        ensure_has_no_gaps("t", {0: "a", 2: "c"})
