"""Where the replicas of new partitions go: fairly to brokers and racks, and as Kafka's AdminUtils puts them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from core.cluster.assignment.replica_assignment import place_replicas
from tests.support.for_each import for_each

places = st.integers(0, 50)


def counts(placed: Mapping[int, tuple[int, ...]], among: list[int]) -> tuple[list[int], list[int]]:
    """How many replicas, and how many leaderships, each broker has."""
    replicas = Counter(one for replicas in placed.values() for one in replicas)
    leaders = Counter(replicas[0] for replicas in placed.values())
    return [replicas[one] for one in among], [leaders[one] for one in among]


@given(st.integers(1, 5), st.integers(1, 4), st.data(), st.integers(0, 40), places, places)
def test_even_racks_are_used_evenly(
    racks: int, brokers_of_each: int, data: st.DataObject, partitions: int, start: int, shift: int
) -> None:
    """All racks have as many brokers: no rack twice before each has one, and leaders are spread."""
    rack_of: dict[int, str | None] = {
        number: f"r{number % racks}" for number in data.draw(st.permutations(range(racks * brokers_of_each)))
    }
    factor = data.draw(st.integers(1, len(rack_of)))
    placed = place_replicas(rack_of, range(partitions), factor, start=start, shift=shift)
    for replicas in placed.values():
        assert len(set(replicas)) == factor
        used = Counter(rack_of[one] for one in replicas)
        assert len(used) == min(racks, factor)
    replicas_of, leaders_of = counts(placed, sorted(rack_of))
    assert max(leaders_of) - min(leaders_of) <= 1
    if factor <= racks and partitions % (len(rack_of) * max(len(rack_of) - 1, 1)) == 0:
        assert max(replicas_of) - min(replicas_of) <= 1


@given(st.dictionaries(st.integers(0, 50), st.sampled_from("abcd"), min_size=1, max_size=12), st.data(), places, places)
def test_uneven_racks_are_all_used(rack_of: Mapping[int, str], data: st.DataObject, start: int, shift: int) -> None:
    factor = data.draw(st.integers(1, len(rack_of)))
    placed = place_replicas(rack_of, range(30), factor, start=start, shift=shift)
    for replicas in placed.values():
        assert len(set(replicas)) == factor
        assert len({rack_of[one] for one in replicas}) == min(len(set(rack_of.values())), factor)


def test_brokers_of_which_some_have_no_rack_count_as_without() -> None:
    some = {1: "a", 2: None, 3: "a"}
    none = dict.fromkeys(some)
    assert place_replicas(some, range(9), 2, start=1) == place_replicas(none, range(9), 2, start=1)


@for_each("brokers", [1, 2, 3, 5, 6])
@for_each("shift", [0, 1, 4])
@for_each("start", [0, 2, 50])
def test_without_racks_it_is_kafkas_algorithm(brokers: int, shift: int, start: int) -> None:
    """AdminUtils.assignReplicasToBrokersRackUnaware, written again from its description."""
    ids = [7 * number + 3 for number in range(brokers)]
    for factor in range(1, brokers + 1):
        expected = {}
        moved = shift
        for partition in range(23):
            if partition > 0 and partition % brokers == 0:
                moved += 1
            first = (partition + start) % brokers
            others = [(first + 1 + (moved + j) % (brokers - 1)) % brokers for j in range(factor - 1)]
            expected[partition] = tuple(ids[place] for place in (first, *others))
        found = place_replicas(dict.fromkeys(reversed(ids)), range(23), factor, start=start, shift=shift)
        assert list(found.items()) == list(expected.items())


def test_the_example_of_kafkas_documentation() -> None:
    """That of AdminUtils: three racks, with the brokers 0 and 5, 3 and 4, 1 and 2, in the order 0, 3, 1, 5, 4, 2."""
    racks: dict[int, str | None] = {0: "rack1", 1: "rack3", 2: "rack3", 3: "rack2", 4: "rack2", 5: "rack1"}
    assert place_replicas(racks, range(7), 3, start=0) == {
        0: (0, 3, 1),
        1: (3, 1, 5),
        2: (1, 5, 4),
        3: (5, 4, 2),
        4: (4, 2, 0),
        5: (2, 0, 3),
        6: (0, 4, 2),
    }


@given(st.integers(1, 8), st.data(), places, places)
def test_what_grows_goes_on_where_it_was(brokers: int, data: st.DataObject, start: int, shift: int) -> None:
    """Partitions that are added are placed as if the topic had begun with them."""
    racks = dict.fromkeys(range(brokers))
    factor = data.draw(st.integers(1, brokers))
    whole = place_replicas(racks, range(20), factor, start=start, shift=shift)
    added = place_replicas(racks, range(7, 20), factor, start=start, shift=shift)
    assert added == {number: replicas for number, replicas in whole.items() if number >= 7}
