"""Assigns the replicas of new partitions, and their leadership, evenly to brokers and racks.

The first replicas go round the brokers, one partition after the other. The others of a partition are as far from the
first one as its turn says, so that the followers of one broker's partitions are not all on the next broker. With racks,
the brokers are put in an order that changes the rack at each step, and a rack comes twice in a partition only after
all others.

Source: kafka.admin.AdminUtils.assignReplicasToBrokers (KIP-36).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence


def place_replicas(
    racks: Mapping[int, str | None], partitions: Iterable[int], replication_factor: int, *, start: int, shift: int = 0
) -> dict[int, tuple[int, ...]]:
    """Returns the replicas of each partition, the preferred leader first. `racks`: the rack of each broker; racks count
    only if every broker has one. `start`: the index of the broker that leads partition 0, so that topics begin with
    different brokers; `shift`: how far its first follower is from it.
    """
    assert 0 < replication_factor <= len(racks)
    known = {broker: rack for broker, rack in racks.items() if rack is not None}
    is_aware = len(known) == len(racks)
    ring = _alternating(known) if is_aware else sorted(racks)
    of_rack = known if is_aware else {broker: str(broker) for broker in racks}
    further = len(set(known.values())) if is_aware else 1  # a shift of as many racks begins with another broker of each
    return {
        number: _replicas(ring, of_rack, replication_factor, start + number, (shift + number // len(ring)) * further)
        for number in partitions
    }


def _replicas(
    ring: Sequence[int], racks: Mapping[int, str], replication_factor: int, place: int, shift: int
) -> tuple[int, ...]:
    """Goes round the ring, first for brokers of racks without a replica, then for any."""
    size = len(ring)
    count = len(set(racks.values()))
    chosen = [ring[place % size]]
    step = 0
    while len(chosen) < replication_factor:
        broker = ring[(place + 1 + (shift + step) % (size - 1)) % size]
        taken = {racks[one] for one in chosen}
        if broker not in chosen and (racks[broker] not in taken or len(taken) == count):
            chosen.append(broker)
        step += 1
    return tuple(chosen)


def _alternating(racks: Mapping[int, str]) -> list[int]:
    """Returns the brokers in an order in which the rack changes at each step, as long as several racks are left."""
    by_rack = defaultdict[str, list[int]](list)
    for broker in sorted(racks):
        by_rack[racks[broker]].append(broker)
    deepest = max(map(len, by_rack.values()), default=0)
    return [by_rack[rack][turn] for turn in range(deepest) for rack in sorted(by_rack) if turn < len(by_rack[rack])]
