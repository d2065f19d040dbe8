"""What clients are told of segments that nobody used since the start."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.broker.config.broker_config import BrokerConfig
from core.log.damaged_ranges import UNEXPLAINED_OFFSETS
from core.protocol.schema.configs import DESCRIBE_CONFIGS, DescribeConfigsRequest, DescribeConfigsResource
from tests.support.broker import Background, SteeredNode, add_topic, ask, open_broker, produce_values
from tests.support.logs import NOW
from tests.support.manual_clock import ManualClock

TOPIC = 2


def told_of(broker: SteeredNode, *keys: str) -> dict[str, str | None]:
    request = DescribeConfigsRequest([DescribeConfigsResource(TOPIC, "t", list(keys))])
    return {config.name: config.value for config in ask(broker, DESCRIBE_CONFIGS, request).results[0].configs}


@pytest.mark.parametrize(("policy", "was_compacted"), [("delete", False), ("compact", False), ("delete", True)])
def test_who_asks_for_what_is_missing_has_the_segments_checked_first(
    tmp_path: Path, policy: str, *, was_compacted: bool
) -> None:
    """The middle one of three is gone, and nobody read from the one before it. That a cleaner of before explains it is
    found later than the hole.
    """
    broker = open_broker(tmp_path)
    add_topic(broker, cleanup_policy=policy, internal_segment_bytes="200", retention_ms="-1")
    for number in range(9):
        produce_values(broker, b"%d" % number)
    log = broker.services.log_manager.logs[next(iter(broker.services.log_manager.logs))]
    lost = list(log.segments)[1]
    start, end = lost.base_offset, lost.next_offset()
    broker.close()
    for path in (tmp_path / "t-0").glob(f"{start:020d}.*"):
        path.unlink()
    if was_compacted:
        (tmp_path / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 9\n")
    broker = SteeredNode(tmp_path, BrokerConfig(), clock=ManualClock(NOW), loads_late=True)
    background = Background()
    broker.runtime.use(run_in_background=background)
    assert any(segment.is_unchecked for segment in broker.services.log_manager.logs[log.partition].segments)
    assert UNEXPLAINED_OFFSETS not in told_of(broker)
    missing = {} if policy == "compact" else {UNEXPLAINED_OFFSETS: f"0:{start}-{end - 1}"}
    assert told_of(broker, UNEXPLAINED_OFFSETS) == missing
    background.run()
    assert told_of(broker, UNEXPLAINED_OFFSETS) == ({} if was_compacted else missing)
