"""What assignors promise, whatever the group."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from core.coordinator.assignors import ASSIGNORS, MemberSpec, Partitions, assign_range, assign_uniform

T, U, V = (bytes([n]) * 16 for n in range(3))
TOPICS = (T, U, V)


@st.composite
def groups(draw: st.DrawFn) -> tuple[dict[str, MemberSpec], dict[bytes, int]]:
    """Members with what they wish, and what they had: which may be of topics that are gone, and no partition twice."""
    topics = draw(st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 9)))
    names = draw(st.lists(st.sampled_from("abcdef"), unique=True))
    owners = {(t, n): draw(st.sampled_from([*names, ""])) for t in TOPICS for n in range(9)}
    members = {}
    for name in names:
        had: Partitions = {}
        for topic in TOPICS:
            numbers = frozenset(n for n in range(9) if owners[topic, n] == name)
            if numbers:
                had[topic] = numbers
        wishes = draw(st.frozensets(st.sampled_from(TOPICS)))
        members[name] = MemberSpec("i" + name if draw(st.booleans()) else "", wishes, had)
    return members, topics


@given(groups())
def test_every_partition_that_is_wished_for_is_read_by_one(
    group: tuple[dict[str, MemberSpec], dict[bytes, int]],
) -> None:
    members, topics = group
    wished = {t for spec in members.values() for t in spec.topics}
    for name, assign in ASSIGNORS.items():
        result = assign(members, topics)
        assert result.keys() == members.keys()
        read = [(t, n) for partitions in result.values() for t, numbers in partitions.items() for n in numbers]
        assert sorted(read) == sorted((t, n) for t, count in topics.items() if t in wished for n in range(count)), name
        for member_id, partitions in result.items():
            assert partitions.keys() <= members[member_id].topics
            assert all(partitions.values()), f"{name}: no topic without partitions"
            for numbers in partitions.values() if name == "range" else ():
                assert max(numbers) - min(numbers) == len(numbers) - 1, "neighbours"


@given(groups())
def test_uniform_gives_all_the_same_and_moves_little(group: tuple[dict[str, MemberSpec], dict[bytes, int]]) -> None:
    members, topics = group
    members = {name: spec._replace(topics=frozenset(topics)) for name, spec in members.items()}
    result = assign_uniform(members, topics)
    sizes = [sum(map(len, partitions.values())) for partitions in result.values()]
    assert max(sizes, default=0) - min(sizes, default=0) <= 1
    again = assign_uniform({n: spec._replace(assigned=result[n]) for n, spec in members.items()}, topics)
    assert again == result, "who has its share keeps it"


def test_one_that_comes_takes_from_all_alike() -> None:
    had = {"a": MemberSpec("", frozenset([T]), {T: frozenset(range(6))}), "b": MemberSpec("", frozenset([T]), {})}
    assert assign_uniform(had, {T: 6}) == {"a": {T: frozenset({0, 1, 2})}, "b": {T: frozenset({3, 4, 5})}}


def test_range_reads_the_same_numbers_of_all_topics() -> None:
    """Of a topic with fewer partitions than members the last members have none."""
    members = {name: MemberSpec("", frozenset(TOPICS), {}) for name in "ab"}
    result = assign_range(members, {T: 3, U: 3, V: 1})
    assert result["a"] == {T: frozenset({0, 1}), U: frozenset({0, 1}), V: frozenset({0})}
    assert result["b"] == {T: frozenset({2}), U: frozenset({2})}
