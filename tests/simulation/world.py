"""One history of one cluster: what happens, and when, is chosen by one seeded random."""

from __future__ import annotations

import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from core.files.log_config import LogConfig
from tests.simulation.history import History, ViolationError
from tests.simulation.plog_controllers import PlogControllers
from tests.simulation.simulated_controller import SimulatedController
from tests.simulation.simulated_node import SimulatedNode
from tests.simulation.virtual_time import Network, VirtualTime

NODES = 3
_SETTLES_WITHIN_MS = 60_000
_FAULT_RATES = (0.002, 0.005, 0.02)
"""By event, one of them in each history."""


@dataclass(frozen=True)
class Scenario:
    """What a history is about; what is not given is chosen by its seed."""

    faults: tuple[str, ...] | None = None
    """Names of faults; all happen equally often, the last one four times as often."""
    fault_rate: float | None = None
    slow: float | None = None
    has_power_cuts: bool | None = None
    has_plog_controllers: bool = False
    """Whether plog's own controllers decide, in place of the model of Kafka's."""


@dataclass(frozen=True)
class Result:
    """Of one history; `violation` is what did not hold, with the last things that happened before."""

    seed: int
    steps: int
    acknowledged: int
    violation: str | None = None


class World:
    def __init__(self, seed: int, scenario: Scenario) -> None:
        self.random = Random(seed)
        self.time = VirtualTime()
        self.history = History()
        self.network = Network(self.time, self.random)
        kind = PlogControllers if scenario.has_plog_controllers else SimulatedController
        self.controller = kind(self.time, self.network, self.random, self.history)
        min_isr = self.random.choice((1, 2, 2)) if scenario.has_plog_controllers else 2
        config = LogConfig(min_insync_replicas=min_isr)
        if isinstance(self.controller, PlogControllers):
            self.controller.min_isr = min_isr
        self.nodes = [
            SimulatedNode(number, self.time, self.network, self.random, self.controller, self.history, config)
            for number in range(NODES)
        ]
        self.history.nodes = self.controller.nodes = self.nodes
        self.trace: deque[str] = deque(maxlen=60)
        self.steps = 0
        self._value = 0
        self._is_healed = False
        self._power_cuts = self.random.random() < 0.5
        self._fault_rate = self.random.choice(_FAULT_RATES)
        self._weights = [self.random.choice((0, 1, 1, 4)) for _ in self._faults]
        self._narrow(scenario)
        self.controller.begin()

    def _narrow(self, scenario: Scenario) -> None:
        if scenario.faults is not None:
            names = [fault.__name__.removeprefix("_") for fault in self._faults]
            assert set(scenario.faults) <= set(names)
            self._weights = [
                0 if name not in scenario.faults else 4 if name == scenario.faults[-1] else 1 for name in names
            ]
        if scenario.fault_rate is not None:
            self._fault_rate = scenario.fault_rate
        if scenario.slow is not None:
            self.network.slow = scenario.slow
        if scenario.has_power_cuts is not None:
            self._power_cuts = scenario.has_power_cuts

    def run(self, events: int) -> None:
        """Faults and clients for so many events; then all is well, and everything must come to rest."""
        self._chatter()
        while self.steps < events:
            self._step()
            if self.random.random() < self._fault_rate:
                self._do_something()
        self._heal()
        end_ms = self.time.now_ms + _SETTLES_WITHIN_MS
        while not self._is_settled():
            if self.time.now_ms > end_ms:
                raise ViolationError(f"it does not settle: {self._describe()}")
            self._step()
        self.history.ensure_settled(node.log for node in self.nodes)

    def _step(self) -> None:
        self.steps += 1
        self.time.step()

    # --- clients, and what nodes do by themselves

    def _chatter(self) -> None:
        flushed_within_ms = self.random.choice((100, 1000, 20_000))
        self._repeat(self._produce, 4, 30)
        for node in self.nodes:
            self._repeat(lambda node=node: self._live(node, node.fetch), 2, 15)  # type: ignore[misc]
            self._repeat(lambda node=node: self._live(node, node.flush), 20, flushed_within_ms)  # type: ignore[misc]
            self._repeat(lambda node=node: self._live(node, node.log.checkpoint), 20, 900)  # type: ignore[misc]

    def _repeat(self, work: Callable[[], None], least_ms: int, most_ms: int) -> None:
        def again() -> None:
            work()
            self.time.call_later(self.random.randint(least_ms, most_ms), again)

        self.time.call_later(self.random.randint(least_ms, most_ms), again)

    def _live(self, node: SimulatedNode, work: Callable[[], None]) -> None:
        if node.is_up and not node.is_paused:
            work()

    def _produce(self) -> None:
        if self._is_healed:
            return
        self._value += 1
        self.random.choice(self.nodes).produce(self._value)

    # --- faults

    def _do_something(self) -> None:
        """A fault of those that this history has, some of them often: a history of all of them has no time for rare
        sequences of a few.
        """
        if any(self._weights):
            (fault,) = self.random.choices(self._faults, self._weights)
            fault(self.random.choice(self.nodes))

    @property
    def _faults(self) -> list[Callable[[SimulatedNode], None]]:
        return [
            self._kill, self._kill_who_joins, self._pause, self._expire, self._move_leader, self._change_controller,
            self._jump_clock, self._change_network,
            *([self._reassign, self._cut_power, self._stop] if self._can_reassign else []),
        ]  # fmt: skip

    def _note(self, what: str) -> None:
        self.trace.append(f"{self.time.now_ms:>7} ms: {what}")

    def _kill_who_joins(self, _node: SimulatedNode) -> None:
        """A replica that is about to join those in sync starts again before that is written down."""
        for leader in self.nodes:
            proposal = leader.proposal
            joining = set(proposal.isr) - self.controller.isr if proposal is not None else set()
            for node_id in joining:
                self._kill(self.nodes[node_id], most_ms=100)

    def _kill(self, node: SimulatedNode, most_ms: int = 3000) -> None:
        if not node.is_up:
            return
        self._note(f"node {node.node_id} is killed")
        session = node.session
        node.kill()
        if self.random.random() < 0.7:
            self.time.call_later(self.random.randint(300, 2500), lambda: self.controller.expire(node.node_id, session))
        self.time.call_later(self.random.randint(10, most_ms), lambda: self._start(node))

    def _start(self, node: SimulatedNode, *, was_stopped: bool = False) -> None:
        """After a power cut, perhaps. Kafka's controller loses what the last replica in sync loses then, so that it
        must not be that one. What it has proposed before it was killed may be on its way still, and make it the last.
        """
        loses = self._power_cuts and not was_stopped
        has_new_disk = False
        if isinstance(self.controller, PlogControllers):
            loses = loses and self.random.random() < 0.7
            has_new_disk = loses and self.random.random() < 0.1
        else:
            others = self.controller.isr - {node.node_id}
            if node.last_proposal is not None:
                others &= set(node.last_proposal.isr)
            are_well = all(self.nodes[one].is_up and self.controller.knows(self.nodes[one]) for one in others)
            loses = loses and bool(others) and are_well
        how = ", on a new disk" if has_new_disk else ", and has lost what was not synced" if loses else ""
        self._note(f"node {node.node_id} starts{how}")
        node.start(loses_unsynced=loses, was_stopped=was_stopped, has_new_disk=has_new_disk)

    def _cut_power(self, _node: SimulatedNode) -> None:
        """All nodes that live are cut off at once; they come back one after the other, or the cut comes again."""
        if isinstance(self.controller, PlogControllers):
            most_ms = self.random.choice((300, 3000, 8000))
            for node in self.nodes:
                self._kill(node, most_ms=most_ms)

    def _stop(self, node: SimulatedNode) -> None:
        """A node stops cleanly, once the controller has had a moment to take over what it leads."""
        if not node.is_up or node.is_paused or not isinstance(self.controller, PlogControllers):
            return
        life = node.life
        self._note(f"node {node.node_id} is about to stop")
        self.controller.shut_down(node)

        def stop() -> None:
            self._note(f"node {node.node_id} stops")
            node.stop()
            self.time.call_later(self.random.randint(10, 3000), lambda: self._start(node, was_stopped=True))

        self.time.call_later(self.random.randint(0, 600), lambda: node.receive(life, stop))

    def _pause(self, node: SimulatedNode) -> None:
        if not node.is_up or node.is_paused:
            return
        self._note(f"node {node.node_id} is paused")
        node.pause()
        life, session = node.life, node.session
        expires = self.random.random() < 0.4
        if expires:
            self.time.call_later(self.random.randint(100, 1500), lambda: self.controller.expire(node.node_id, session))

        def resume() -> None:
            if node.life == life:
                self._note(f"node {node.node_id} goes on")
                node.resume()

        self.time.call_later(self.random.randint(50, 4000), resume)

    def _expire(self, node: SimulatedNode) -> None:
        """Its session ends though it lives; it notices when it looks next."""
        if not node.is_up or node.is_paused:
            return
        self._note(f"node {node.node_id} loses its session")
        self.controller.expire(node.node_id, node.session)

    def _move_leader(self, _node: SimulatedNode) -> None:
        before = self.controller.leader
        self.controller.move_leader()
        self._note(f"leadership moves from {before} to {self.controller.leader}")

    @property
    def _can_reassign(self) -> bool:
        return isinstance(self.controller, PlogControllers)

    def _reassign(self, _node: SimulatedNode) -> None:
        self._note("an operator wants other replicas")
        self.controller.reassign()

    def _change_controller(self, _node: SimulatedNode) -> None:
        self._note("another controller takes office")
        self.controller.change()

    def _jump_clock(self, node: SimulatedNode) -> None:
        self._note(f"node {node.node_id}'s clock jumps")
        node.jump_clock(self.random.randint(1, 5000))

    def _change_network(self, _node: SimulatedNode) -> None:
        self.network.loss = self.random.choice((0.0, 0.02, 0.1, 0.3))
        self.network.slow = self.random.choice((0.0, 0.08, 0.3, 0.6))
        self._note(f"the network loses {self.network.loss:.0%} and is slow for {self.network.slow:.0%}")

    # --- the end

    def _heal(self) -> None:
        self.network.loss = self.network.slow = 0.0
        self._is_healed = True

    def _is_settled(self) -> bool:
        first = self.nodes[0].log
        if self.steps % 500 == 0:
            self.controller.heal()
        return (
            self.steps % 50 == 0
            and all(node.is_up and not node.is_paused and node.partition is not None for node in self.nodes)
            and len(self.controller.isr) == NODES
            and all(len(node.log.entries) == len(first.entries) for node in self.nodes)
            and all(node.log.high_watermark == len(first.entries) for node in self.nodes)
        )

    def _describe(self) -> str:
        nodes = [
            f"{node.node_id}: {node.partition.role.value if node.partition else 'nothing'}, epoch "
            f"{node.partition.leader_epoch if node.partition else -1}, {len(node.log.entries)} records, "
            f"high watermark {node.log.high_watermark}"
            for node in self.nodes
        ]
        c = self.controller
        return f"leader {c.leader}, epoch {c.leader_epoch}, in sync {sorted(c.isr)}; {'; '.join(nodes)}"


def play(seed: int, scenario: Scenario = Scenario(), events: int = 2500) -> Result:
    """One history, to its end or to the first thing that does not hold."""
    world = World(seed, scenario)
    try:
        world.run(events)
    except (ViolationError, AssertionError) as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        what = f"{type(error).__name__}: {error} ({where.line}, in {where.name})"
        told = "\n".join([f"seed {seed}, event {world.steps}: {what}", *world.trace])
        return Result(seed, world.steps, len(world.history.acknowledged), told)
    return Result(seed, world.steps, len(world.history.acknowledged))
