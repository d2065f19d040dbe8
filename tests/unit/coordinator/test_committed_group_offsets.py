"""The offsets of a group, packed: they are what a dict would hold, and take little memory."""

from __future__ import annotations

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from core.common.topic_partition import TopicPartition
from core.coordinator.group_coordinator import CommittedGroupOffsets, GroupCoordinator
from core.coordinator.group_record_values import offset_commit_record
from core.protocol.schema.group_records import OffsetCommitValue
from tests.support.groups import GroupWorld
from tests.support.logs import NOW

PARTITIONS = st.builds(TopicPartition, st.sampled_from(["t", "u"]), st.sampled_from([0, 1, (1 << 31) - 1]))
LONGS = st.integers(-(1 << 63), (1 << 63) - 1)
OFFSETS = st.builds(
    OffsetCommitValue,
    LONGS,
    st.integers(-(1 << 31), (1 << 31) - 1),
    st.text(max_size=5),
    LONGS,
    LONGS,
    st.binary(min_size=16, max_size=16),
)


@given(st.lists(st.tuples(PARTITIONS, st.none() | OFFSETS)))
def test_it_holds_what_a_dict_would(changes: list[tuple[TopicPartition, OffsetCommitValue | None]]) -> None:
    model: dict[TopicPartition, OffsetCommitValue] = {}
    packed = CommittedGroupOffsets()
    for partition, committed in changes:
        if committed is None:
            assert packed.pop(partition, None) == model.pop(partition, None)
        else:
            model[partition] = packed[partition] = committed
        packed._check_invariants()
        assert dict(packed) == model
        assert len(packed) == len(model)
        assert bool(packed) == bool(model)
        assert set(packed.partitions_of("t")) == {p for p in model if p.topic == "t"}
        assert packed.get(partition) == model.get(partition)


def test_an_offset_takes_less_than_150_bytes() -> None:
    groups, partitions = 20, 1000
    records = [
        offset_commit_record(
            f"g{group}", TopicPartition("t", number), OffsetCommitValue(number + (group << 40), 3, "", NOW)
        )
        for group in range(groups)
        for number in range(partitions)
    ]
    coordinator = GroupCoordinator(GroupWorld())
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for key, value in records:
            coordinator.replay(key, value)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert coordinator.offset_count == groups * partitions
    assert (after - before) / coordinator.offset_count < 150
