"""Chooses brokers for many things at once: evenly, and with as little change as that allows.

A thing (a partition that needs replicas, or a first replica) takes `count` of the brokers allowed for it. The aims, the
earlier before the later:

1. each thing's brokers are spread over the racks, as evenly as the racks can;
2. each of the `loads` is even over the brokers: the sum of the squares of what they hold is as small as can be;
3. what the things have is kept: each broker that a thing does not have yet costs the thing's `cost`;
4. the `others`, loads that matter least, are even.

This is a flow of least cost, from things over brokers to loads whose cost is convex. It begins with a good choice, and
makes a cycle of moves as long as one makes it better; when no cycle does, the choice is optimal (Klein, 1967). The
search for a cycle looks at brokers alone: from one broker to another goes the thing whose move costs least.

Cost: memory for things x count x brokers moves, and for each cycle some looks at brokers x brokers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

Load = dict[int, int]
"""Broker -> how much it holds."""

_OUTSIDE = -1
"""Stands in a cycle for the outside: no broker. A load ends or begins there."""

Move = tuple[int, int, int]
"""The number of a thing, the broker that it leaves, and the one that it takes."""


@dataclass(frozen=True, slots=True)
class Thing:
    """`has` are the brokers that it has now, `stays` those of the choice that it must keep."""

    allowed: frozenset[int]
    count: int
    has: frozenset[int]
    cost: int = 1
    stays: frozenset[int] = frozenset()


def choose_evenly(
    things: Sequence[Thing], racks: Mapping[int, str | None], *, loads: Sequence[Load] = (), others: Sequence[Load] = ()
) -> list[set[int]]:
    """Returns the brokers of each thing, and adds them to all loads. Each broker without a rack is a rack of its own.
    Each thing needs as many allowed brokers as it takes.
    """
    choice = _Choice(things, racks, loads, others)
    while (moves := choice.find_better()) is not None:
        for move in moves:
            choice.apply(move)
    for load in (*loads, *others):
        for chosen in choice.chosen:
            for broker in chosen:
                load[broker] = load.get(broker, 0) + 1
    return choice.chosen


class _Choice:
    """The current choice, and the moves that can be made; owned by one task."""

    def __init__(
        self, things: Sequence[Thing], racks: Mapping[int, str | None], loads: Sequence[Load], others: Sequence[Load]
    ) -> None:
        self._things = things
        self._brokers = sorted({broker for thing in things for broker in thing.allowed | thing.stays})
        named = {broker: racks.get(broker) for broker in self._brokers}
        self._rack = {broker: rack if rack is not None else broker for broker, rack in named.items()}
        self._held = dict.fromkeys(self._brokers, 0)
        self._set_weights(loads, others)
        self.chosen: list[set[int]] = [set() for _ in things]
        for number in sorted(range(len(things)), key=lambda n: (-things[n].cost, n)):
            self._begin(number)
        self._versions = [0] * len(things)
        self._moves: dict[tuple[int, int], list[tuple[int, int, int, int, int]]] = {}
        for number in range(len(things)):
            self._offer(number)

    def _set_weights(self, loads: Sequence[Load], others: Sequence[Load]) -> None:
        """Combines all costs into one number; the sum of lesser costs never outweighs a greater one."""
        total = sum(thing.count for thing in self._things)
        weight, self._load_terms = 1, list[tuple[int, Load]]()
        for load in reversed(others):
            self._load_terms.append((weight, load))
            weight *= 2 * self._most(load, total)
        self._cost_weight = weight
        weight *= 2 * (sum(thing.cost * thing.count for thing in self._things) + 1)
        for load in reversed(loads):
            self._load_terms.append((weight, load))
            weight *= 2 * self._most(load, total)
        self._rack_weight = weight

    @staticmethod
    def _most(load: Load, total: int) -> int:
        """Returns more than the squares of a load can differ by."""
        return (sum(load.values()) + total + 1) ** 2

    # --- the beginning

    def _begin(self, number: int) -> None:
        """Keeps the thing's brokers if there is room, and takes the cheapest ones for the rest."""
        thing, chosen = self._things[number], self.chosen[number]
        for broker in thing.stays:
            self._take(chosen, broker)
        kept = sorted((thing.has & thing.allowed) - thing.stays, key=lambda b: (self._one_more(b), b))
        in_racks = {self._rack[broker] for broker in chosen}
        for one_to_a_rack in (True, False):
            for broker in kept:
                if len(chosen) == thing.count or broker in chosen or (one_to_a_rack and self._rack[broker] in in_racks):
                    continue
                in_racks.add(self._rack[broker])
                self._take(chosen, broker)
        while len(chosen) < thing.count:
            free = thing.allowed - chosen
            self._take(chosen, min(free, key=lambda b: (self._in_rack(chosen, b), self._one_more(b), b)))

    def _take(self, chosen: set[int], broker: int) -> None:
        chosen.add(broker)
        self._held[broker] += 1

    def _in_rack(self, chosen: set[int], broker: int) -> int:
        return sum(self._rack[one] == self._rack[broker] for one in chosen)

    # --- moves

    def _offer(self, number: int) -> None:
        thing, chosen = self._things[number], self.chosen[number]
        in_racks: dict[object, int] = {}
        for broker in chosen:
            in_racks[self._rack[broker]] = in_racks.get(self._rack[broker], 0) + 1
        for a in chosen - thing.stays:
            for b in thing.allowed - chosen:
                cost = self._cost_weight * thing.cost * ((b not in thing.has) - (a not in thing.has))
                if self._rack[a] != self._rack[b]:
                    more = in_racks.get(self._rack[b], 0) + 1 - in_racks[self._rack[a]]
                    cost += self._rack_weight * 2 * more
                heappush(self._moves.setdefault((a, b), []), (cost, number, self._versions[number], a, b))

    def _cheapest(self, a: int, b: int) -> tuple[int, int] | None:
        """Returns the cost of the cheapest move, and the number of its thing, or None."""
        heap = self._moves.get((a, b))
        while heap and heap[0][2] != self._versions[heap[0][1]]:
            heappop(heap)
        return (heap[0][0], heap[0][1]) if heap else None

    def apply(self, move: Move) -> None:
        number, a, b = move
        self.chosen[number].remove(a)
        self.chosen[number].add(b)
        self._held[a] -= 1
        self._held[b] += 1
        self._versions[number] += 1
        self._offer(number)

    def _one_more(self, broker: int) -> int:
        """Returns the cost of putting one more on the broker; negative of `_one_less` for a broker with one more."""
        return sum(weight * (2 * (load.get(broker, 0) + self._held[broker]) + 1) for weight, load in self._load_terms)

    def _one_less(self, broker: int) -> int:
        return sum(weight * (1 - 2 * (load.get(broker, 0) + self._held[broker])) for weight, load in self._load_terms)

    # --- cycles

    def find_better(self) -> list[Move] | None:
        edges = self._edges()
        moves = _as_moves(_find_cycle([_OUTSIDE, *self._brokers], edges), edges)
        if moves is None or len({number for number, _, _ in moves}) == len(moves):
            return moves
        return _as_moves(_find_shortest_cycle([_OUTSIDE, *self._brokers], edges), edges)

    def _edges(self) -> dict[tuple[int, int], tuple[int, int]]:
        """Returns, for each two brokers, the cost and the thing of the cheapest move."""
        edges = {}
        for a in self._brokers:
            edges[_OUTSIDE, a] = (self._one_less(a), _OUTSIDE)
            edges[a, _OUTSIDE] = (self._one_more(a), _OUTSIDE)
            for b in self._brokers:
                found = self._cheapest(a, b)
                if found is not None:
                    edges[a, b] = found
        return edges


Edges = Mapping[tuple[int, int], tuple[int, int]]


def _as_moves(cycle: list[int] | None, edges: Edges) -> list[Move] | None:
    if cycle is None:
        return None
    steps = zip(cycle, [*cycle[1:], cycle[0]], strict=True)
    return [(edges[a, b][1], a, b) for a, b in steps if _OUTSIDE not in (a, b)]


def _find_cycle(nodes: Sequence[int], edges: Edges) -> list[int] | None:
    """Finds a cycle whose costs are negative in sum (Bellman and Ford, from everywhere at once)."""
    distance = dict.fromkeys(nodes, 0)
    parent: dict[int, int] = {}
    while True:
        changed = []
        for (a, b), (cost, _) in edges.items():
            if distance[a] + cost < distance[b]:
                distance[b] = distance[a] + cost
                parent[b] = a
                changed.append(b)
        if not changed:
            return None
        cycle = _cycle_of_parents(parent)
        if cycle is not None:
            return cycle


def _cycle_of_parents(parent: Mapping[int, int]) -> list[int] | None:
    seen: dict[int, int] = {}
    for start in parent:
        node: int | None = start
        path = []
        while node is not None and node not in seen:
            seen[node] = start
            path.append(node)
            node = parent.get(node)
        if node is not None and seen[node] == start:
            return path[path.index(node) :][::-1]
    return None


def _find_shortest_cycle(nodes: Sequence[int], edges: Edges) -> list[int] | None:
    """Finds one of the fewest steps: in a longer one a thing could move twice, and its second move would cost more."""
    from_each: dict[int, dict[int, tuple[int, list[int]]]] = {node: {node: (0, [node])} for node in nodes}
    for _ in nodes:
        for start, reached in from_each.items():
            further: dict[int, tuple[int, list[int]]] = {}
            for (a, b), (cost, _) in edges.items():
                if a in reached and (b not in further or reached[a][0] + cost < further[b][0]):
                    further[b] = (reached[a][0] + cost, [*reached[a][1], b])
            if start in further and further[start][0] < 0:
                return further[start][1][:-1]
            from_each[start] = further
    return None
