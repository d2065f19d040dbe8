"""What is done to a cluster, drawn from a seed. Each of the deeds does its harm, and all brokers run again when it
returns; they may be out of sync then.

Nobody is taken down while that could leave a partition without a living replica in sync: a deed waits until it may.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from random import Random

from tests.crash.chaos.small_disk import filled
from tests.crash.cluster.network import Network
from tests.crash.cluster.operators import BYSTANDERS, Operators
from tests.crash.cluster.replicas import Metadata
from tests.support.kafka39 import Kafka39Broker
from tests.support.mixed_cluster import SESSION_MS, Broker, MixedCluster, PlogMember

REPLICAS = 3
"""Of each partition that clients use."""

_SHORT_S = (0.3, SESSION_MS / 1000 * 0.6)
_LONG_S = (SESSION_MS / 1000 * 1.3, SESSION_MS / 1000 * 2.2)
_ANY_S = (_SHORT_S[0], _LONG_S[1])


class ClusterNemesis:
    """Owned by one thread. `before_start` is called with a broker that is down, before it starts again."""

    def __init__(
        self,
        cluster: MixedCluster,
        metadata: Metadata,
        random: Random,
        operators: Operators,
        network: Network,
        before_start: Callable[[Broker], None],
        *,
        has_disks: bool,
        only: str = "",
    ) -> None:
        """With `has_disks` each broker has one of its own, which can be filled. `only` is a pattern, of the names of
        deeds.
        """
        self._operators = operators
        self._network = network
        self._cluster = cluster
        self._metadata = metadata
        self._random = random
        self._before_start = before_start
        self._deeds: dict[str, tuple[int, Callable[[], str]]] = {
            "kill plog": (5, lambda: self._kill(self._plogs)),
            "kill Kafka": (4, lambda: self._kill(self._kafkas)),
            "kill two": (3, lambda: self._kill(self._all, 2)),
            "kill plog twice": (1, lambda: self._kill_twice(self._plogs)),
            "pause plog": (2, lambda: self._pause(self._plogs, _SHORT_S)),
            "pause plog for long": (3, lambda: self._pause(self._plogs, _LONG_S)),
            "pause Kafka": (1, lambda: self._pause(self._kafkas, _SHORT_S)),
            "pause Kafka for long": (3, lambda: self._pause(self._kafkas, _LONG_S)),
            "pause two for long": (2, lambda: self._pause(self._all, _LONG_S, 2)),
            "pause and kill": (2, lambda: self._pause_and_kill(self._all)),
            "stop plog": (2, lambda: self._stop(self._plogs)),
            "stop Kafka": (1, lambda: self._stop(self._kafkas)),
            "elect": (3, self._elect),
            "pause ZooKeeper": (1, lambda: self._pause_zookeeper(_SHORT_S)),
            "pause ZooKeeper for long": (1, lambda: self._pause_zookeeper(_LONG_S)),
            "topics": (4, self._topics),
            "move": (4, operators.move),
            "grow": (2, operators.grow_kept),
            "depose": (2, operators.depose),
            "kill the controller": (3, lambda: self._kill(self._controller)),
            "kill the controller at work": (4, lambda: self._at_work(self._kill)),
            "pause the controller at work": (3, lambda: self._at_work(lambda some: self._pause(some, _LONG_S))),
            "stop the controller": (2, lambda: self._stop(self._controller)),
        }
        if network.is_possible:
            self._deeds |= {
                "cut off": (2, lambda: self._cut(network.cut_off, _ANY_S)),
                "cut from ZooKeeper": (3, lambda: self._cut(network.cut_from_zookeeper, _LONG_S)),
                "unreachable": (2, lambda: self._cut(network.unreachable, _ANY_S)),
                "mute": (2, lambda: self._cut(network.mute, _ANY_S)),
                "part two": (2, self._part),
                "slow": (1, lambda: self._cut(network.slow, _ANY_S)),
                "cut the controller off at work": (2, lambda: self._at_work(self._cut_controller)),
            }
        if has_disks:
            self._deeds |= {
                "full disk of plog": (4, lambda: self._fill(self._plogs)),
                "full disk of Kafka": (2, lambda: self._fill(self._kafkas)),
                "full disk of the controller at work": (2, lambda: self._at_work(self._fill)),
                "start on a full disk": (1, self._start_on_full_disk),
            }
        self._works = [operators.come_and_go, operators.move, operators.grow_kept]
        if len(cluster.brokers) > REPLICAS:
            self._works.append(operators.drain)
            self._deeds["drain"] = (4, operators.drain)
        for name in list(self._deeds):
            if not re.search(only, name) or ("Kafka" in name and not cluster.kafka.brokers):
                del self._deeds[name]

    def draw(self) -> str:
        names = list(self._deeds)
        return self._random.choices(names, [self._deeds[name][0] for name in names])[0]

    def strike(self, name: str) -> str:
        """Does the deed; gives its details."""
        return self._deeds[name][1]()

    def rest(self) -> str:
        """Waits for a moment, so that the next deed meets what the last one left half done."""
        seconds = self._random.uniform(0, 4)
        time.sleep(seconds)
        return f"{seconds:.1f} s"

    @property
    def _all(self) -> list[Broker]:
        return list(self._cluster.brokers.values())

    @property
    def _plogs(self) -> list[Broker]:
        return list(self._cluster.plogs.values())

    @property
    def _kafkas(self) -> list[Broker]:
        return list(self._cluster.kafka.brokers.values())

    def _choose(self, brokers: Collection[Broker], number: int = 1) -> list[Broker]:
        """Some that may be taken down, at the moment when they may."""
        chosen = self._random.sample(list(brokers), number)
        names = {broker.node_id for broker in chosen}

        def may_go() -> bool:
            alive = self._metadata.alive() - names
            states = self._metadata.states().items()
            return all(state.isr & alive for name, state in states if not name.topic.startswith(BYSTANDERS))

        self._metadata.wait_until(may_go, f"a replica in sync is left everywhere without {names}")
        return chosen

    def _down_time(self) -> float:
        return self._random.choice((0, 0, self._random.uniform(0, 3), self._random.uniform(*_LONG_S)))

    def _start(self, brokers: Collection[Broker]) -> None:
        """Starts Kafka's at once, as they take long."""
        for broker in brokers:
            self._before_start(broker)
        kafkas = [broker for broker in brokers if isinstance(broker, Kafka39Broker)]
        for kafka in kafkas:
            kafka.start_without_waiting()
        for broker in brokers:
            if not isinstance(broker, Kafka39Broker):
                broker.start()
        for kafka in kafkas:
            kafka.wait_until_ready()

    # --- the deeds

    def _kill(self, among: Collection[Broker], number: int = 1) -> str:
        brokers = self._choose(among, number)
        for broker in brokers:
            broker.kill()
        down_s = self._down_time()
        time.sleep(down_s)
        self._start(brokers)
        return f"{_names(brokers)}, down for {down_s:.1f} s"

    def _kill_twice(self, among: Collection[Broker]) -> str:
        """The second time while it starts, or has just started."""
        (broker,) = self._choose(among)
        broker.kill()
        self._start([broker])
        after_s = self._random.uniform(0, 2)
        time.sleep(after_s)
        broker.kill()
        self._start([broker])
        return f"{_names([broker])}, {after_s:.1f} s after its start"

    def _pause(self, among: Collection[Broker], span_s: tuple[float, float], number: int = 1) -> str:
        brokers = self._choose(among, number)
        seconds = self._random.uniform(*span_s)
        for broker in brokers:
            broker.pause()
        time.sleep(seconds)
        for broker in brokers:
            broker.resume()
        return f"{_names(brokers)} for {seconds:.1f} s"

    def _pause_and_kill(self, among: Collection[Broker]) -> str:
        (broker,) = self._choose(among)
        seconds = self._random.choice((0.5, self._random.uniform(*_LONG_S)))
        broker.pause()
        time.sleep(seconds)
        broker.kill()
        self._start([broker])
        return f"{_names([broker])} after {seconds:.1f} s"

    def _stop(self, among: Collection[Broker]) -> str:
        brokers = self._choose(among)
        for broker in brokers:
            broker.stop()
        down_s = self._down_time()
        time.sleep(down_s)
        self._start(brokers)
        return f"{_names(brokers)}, down for {down_s:.1f} s"

    def _elect(self) -> str:
        names = list(self._metadata.states())
        chosen = self._random.sample(names, self._random.randint(1, len(names)))
        refused = self._cluster.elect_preferred(chosen)
        return f"{len(chosen)} partitions, {refused} refused"

    @property
    def _controller(self) -> list[Broker]:
        """The broker that is the controller; all, while nobody is."""
        found = self._operators.find_controller()
        return self._all if found is None else [found]

    def _topics(self) -> str:
        return "; ".join(self._operators.come_and_go() for _ in range(self._random.randint(1, 4)))

    def _at_work(self, harm: Callable[[Collection[Broker]], str]) -> str:
        """Harms the controller a moment after it was asked for something."""
        controller = self._controller
        work = self._random.choice(self._works)
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(work)
            time.sleep(self._random.uniform(0, 0.2))
            done = harm(controller)
            return f"{done}; {asked.result()}"

    def _cut(self, how: Callable[[int], AbstractContextManager[None]], span_s: tuple[float, float]) -> str:
        return self._cut_one_of(self._all, how, span_s)

    def _cut_controller(self, among: Collection[Broker]) -> str:
        how = self._random.choice((self._network.cut_off, self._network.cut_from_zookeeper, self._network.mute))
        return f"{how.__name__}: {self._cut_one_of(among, how, _LONG_S)}"

    def _cut_one_of(
        self, among: Collection[Broker], how: Callable[[int], AbstractContextManager[None]], span_s: tuple[float, float]
    ) -> str:
        (broker,) = self._choose(among)
        seconds = self._random.uniform(*span_s)
        with how(broker.node_id):
            time.sleep(seconds)
        return f"{_names([broker])} for {seconds:.1f} s"

    def _part(self) -> str:
        brokers = self._choose(self._all, 2)
        seconds = self._random.uniform(*_ANY_S)
        with self._network.parted(*(broker.node_id for broker in brokers)):
            time.sleep(seconds)
        return f"{_names(brokers)} for {seconds:.1f} s"

    def _fill(self, among: Collection[Broker]) -> str:
        """There is room again after a while, and the broker is started again, as partitions that it gave up need it.
        plog goes on by itself until then; Kafka gives up everything.
        """
        (broker,) = self._choose(among)
        seconds = self._random.uniform(*_ANY_S)
        with filled(broker.data_dir) as free_bytes:
            time.sleep(seconds)
        return f"{_names([broker])} for {seconds:.1f} s, {free_bytes} bytes were free; {self._start_again(broker)}"

    def _start_again(self, broker: Broker) -> str:
        is_killed = isinstance(broker, Kafka39Broker) or self._random.random() < 0.5
        if is_killed:
            assert isinstance(broker, Kafka39Broker) or broker.is_running, f"{_names([broker])} ended by itself"
            broker.kill()
        else:
            broker.stop()
        self._start([broker])
        return f"{'killed' if is_killed else 'stopped'} then"

    def _start_on_full_disk(self) -> str:
        """It is killed again, and started when there is room."""
        (broker,) = self._choose(self._plogs)
        assert isinstance(broker, PlogMember)
        seconds = self._random.uniform(*_SHORT_S)
        with filled(broker.data_dir):
            broker.kill()
            broker.server.start_without_waiting()
            time.sleep(seconds)
            broker.kill()
        self._start([broker])
        return f"{_names([broker])} for {seconds:.1f} s"

    def _pause_zookeeper(self, span_s: tuple[float, float]) -> str:
        seconds = self._random.uniform(*span_s)
        self._cluster.kafka.zookeeper.pause()
        time.sleep(seconds)
        self._cluster.kafka.zookeeper.resume()
        return f"for {seconds:.1f} s"


def _names(brokers: Collection[Broker]) -> str:
    return ", ".join(
        f"{'Kafka' if isinstance(broker, Kafka39Broker) else 'plog'} {broker.node_id}" for broker in brokers
    )
