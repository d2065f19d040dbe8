"""Histories of a cluster whose brokers lose power at once, under real clients. plog is the controller.

A broker that loses power keeps what it had synced, and some of the rest; or it comes back on a new disk. Of each
partition one replica keeps all: a plog of those that were in sync. So whatever was acknowledged must be there in the
end, once and in order.
"""

from __future__ import annotations

import shutil
import struct
import sys
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from random import Random
from typing import Self

from core.cluster.controller.controller_context import WITNESS
from core.common.topic_partition import TopicPartition
from core.files.file_names import LOG_SUFFIX, RECOVERY_POINT_CHECKPOINT
from tests.crash.cluster.replicas import Metadata, State, differences
from tests.crash.cluster.transfers import Transfers
from tests.support.kafka39 import HERE, Place
from tests.support.load import Load
from tests.support.mixed_cluster import MixedCluster
from tests.support.server import run_plog
from tests.support.synced_plog import Journal
from tests.support.waiting import machine_seconds, wait_until

SESSION_MS = 4000
SETTINGS = {
    "zookeeper.session.timeout.ms": str(SESSION_MS),
    "min.insync.replicas": "2",
    "transaction.state.log.min.isr": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}
NOBODY = -1
FIRST_PLOG = 5
_SILENCE_S = 10.0
"""For how long it is looked whether really nobody leads."""
_NEW_DISK = 0.2
_BATCH_START = struct.Struct(">qi")


class PowerCuts:
    """A cluster, and what happens to it; started by `with`, killed at its end."""

    def __init__(self, directory: Path, random: Random, *, kafkas: int = 0, plogs: int = 4) -> None:
        self._random = random
        self._directory = directory
        numbers = range(FIRST_PLOG, FIRST_PLOG + plogs)
        self.cluster = MixedCluster(directory, kafkas, numbers, SETTINGS, plog_controls=True, place_of=self._place_of)
        self.kafkas = [*self.cluster.kafka.brokers]
        self.nodes = [*self.cluster.brokers]
        self.notes: list[str] = []
        self._made = 0
        self._at_cut: dict[TopicPartition, State] = {}
        self._lost: set[tuple[int, TopicPartition]] = set()
        """Replicas that may have lost something since all were in sync."""

    def _place_of(self, node: int) -> Place:
        if node < FIRST_PLOG:
            return HERE
        return Place(command=(sys.executable, "-m", "tests.support.synced_plog", str(self._journal(node))))

    def _journal(self, node: int) -> Path:
        return self._directory / f"journal-{node}"

    def __enter__(self) -> Self:
        self.cluster.__enter__()
        self.metadata = Metadata(self.cluster.kafka.zookeeper.address)
        return self

    def __exit__(self, *exception: object) -> None:
        self.metadata.close()
        self.cluster.kill()

    def note(self, text: str) -> None:
        line = f"{time.strftime('%H:%M:%S')} {text}"
        self.notes.append(line)
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()

    # --- topics

    def make_topic(self, replicas: Sequence[int], partitions: int = 1) -> TopicPartition:
        self._made += 1
        name = f"kept-{self._made}"
        self.cluster.make_topic(name, *[replicas] * partitions)
        return TopicPartition(name, 0)

    def state(self, partition: TopicPartition) -> State:
        return self.metadata.states()[partition]

    def wait_for_leaders(self, what: str) -> None:
        """Until every partition has a leader; notes how long that took."""
        began, began_machine = time.monotonic(), machine_seconds()
        self.metadata.wait_until(
            lambda: all(state.leader != NOBODY for state in self.metadata.states().values()), f"leaders {what}"
        )
        took, machine = time.monotonic() - began, machine_seconds() - began_machine
        self.note(f"leaders {what}: {took:.1f} s, {machine:.1f} s of the machine")

    def ensure_nobody_leads(self, partition: TopicPartition, silence_s: float = _SILENCE_S) -> None:
        """From when a controller has noticed the last power cut: a broker is elected as long as its session lasts.
        If a slow machine had ended a session before the cut, those in sync may all be back: then one of them may lead.
        """
        cut = self._at_cut[partition]
        if all(self.cluster.brokers[node].is_running for node in cut.isr):
            self.note(f"  at the cut {sorted(cut.isr)} alone were in sync, which are back: one of them may lead")
            return

        def is_noticed() -> bool:
            state = self.state(partition)
            return state.epoch != cut.epoch and (
                state.leader == NOBODY or self.cluster.brokers[state.leader].is_running
            )

        wait_until(is_noticed, f"a controller notices the cut of {partition}")
        until = time.monotonic() + silence_s

        def is_over() -> bool:
            assert self.state(partition).leader == NOBODY, self.state(partition)
            return time.monotonic() > until

        wait_until(is_over)

    def settle(self) -> None:
        self.metadata.settle(self.nodes)
        self._lost.clear()
        assert self.metadata.controller() not in self.kafkas

    # --- what happens to brokers

    def start(self, *nodes: int) -> None:
        """All at once, but Kafka's after the others, so that none of them is the controller."""
        plogs = [node for node in nodes if node not in self.kafkas]
        with ThreadPoolExecutor(len(nodes)) as pool:
            list(pool.map(lambda node: self.cluster.brokers[node].start(), plogs))
            wait_until(lambda: self.metadata.controller() is not None, "somebody is the controller")
            list(pool.map(lambda node: self.cluster.brokers[node].start(), set(nodes) - set(plogs)))
        self.note(f"{sorted(nodes)} are back, the controller is {self.metadata.controller()}")

    def kill(self, node: int) -> None:
        self.note(f"{node} is killed")
        self.cluster.brokers[node].kill()

    def stop(self, *nodes: int) -> None:
        """Kafka's before the others, so that none of them is the controller in the end, whose rule is another."""
        kafkas = [node for node in nodes if node in self.kafkas]
        with ThreadPoolExecutor(len(nodes)) as pool:
            for some in (kafkas, set(nodes) - set(kafkas)):
                list(pool.map(lambda node: self.cluster.brokers[node].stop(), some))
        self.note(f"{sorted(nodes)} have stopped")

    def cut_power(self, *nodes: int, whole: Collection[int] = (), new_disks: Collection[int] = ()) -> None:
        """Of all these, some of which may be dead already. Of each partition the `whole` ones keep all, if one of them
        holds what is committed; else a plog of those in sync does.
        """
        for node in nodes:
            if self.cluster.brokers[node].is_running:
                self.cluster.brokers[node].kill()
        states = self._at_cut = self.metadata.states()
        keepers = {name: self._keepers(name, state, nodes, whole) for name, state in states.items()}
        said = {f"{name}: {state.leader} leads {sorted(state.isr)}" for name, state in states.items()}
        self.note(f"power cut of {sorted(nodes)}; {'; '.join(sorted(said))}")
        for node in nodes:
            if node in new_disks or (
                node not in whole
                and self._random.random() < _NEW_DISK
                and not any(node in keeping for keeping in keepers.values())
            ):
                assert not any({node} == keeping for keeping in keepers.values())
                shutil.rmtree(self.cluster.brokers[node].data_dir)
                self._begin_journal(node)
                self.note(f"  {node} has a new disk")
                continue
            for name in states:
                if node not in keepers[name]:
                    self._lost.add((node, name))
                    self._lose(node, name)
            self._begin_journal(node)

    def _keepers(self, name: TopicPartition, state: State, nodes: Collection[int], whole: Collection[int]) -> set[int]:
        if not state.isr <= set(nodes):
            return set()  # who lives has it
        path = f"/brokers/topics/{name.topic}/partitions/{name.partition}/state"
        epochs = self.metadata.read(path)["plog_holders"]
        holders = {node for node in map(int, epochs) if epochs[str(node)] != WITNESS and (node, name) not in self._lost}
        fit = [node for node in sorted(state.isr) if node not in self.kafkas]
        keeper = {self._random.choice(fit)} if fit else set(state.isr)
        return (holders | state.isr).intersection(whole) or keeper

    def _begin_journal(self, node: int) -> None:
        if node not in self.kafkas:
            Journal(self._journal(node)).begin_again(self.cluster.brokers[node].data_dir)

    def _lose(self, node: int, name: TopicPartition) -> None:
        data_dir = self.cluster.brokers[node].data_dir
        folder = data_dir / f"{name.topic}-{name.partition}"
        if not folder.is_dir():
            return
        if node in self.kafkas:
            done = self._lose_of_kafka(folder)
        else:
            done = Journal(self._journal(node)).lose_unsynced(folder, self._random)
        for one in done:
            self.note(f"  {node} {name}: {one}")

    def _lose_of_kafka(self, folder: Path) -> list[str]:
        """What is above the recovery point may be lost; all else was flushed."""
        flushed = 0
        for line in (folder.parent / RECOVERY_POINT_CHECKPOINT).read_text().splitlines()[2:]:
            topic, partition, offset = line.split()
            if f"{topic}-{partition}" == folder.name:
                flushed = int(offset)
        path = max(folder.glob(f"*{LOG_SUFFIX}"))
        data = path.read_bytes()
        position = 0
        while position + _BATCH_START.size <= len(data):
            offset, length = _BATCH_START.unpack_from(data, position)
            if offset >= flushed:
                break
            position += _BATCH_START.size + length
        if position >= len(data):
            return []
        left = self._random.randint(position, len(data) - 1)
        path.write_bytes(data[:left])
        return [f"{path.name} keeps {left} of {len(data)} bytes, {position} were flushed"]


# --- histories


def two_back_then_the_third(cuts: PowerCuts, random: Random, led: Sequence[int], partition: TopicPartition) -> None:
    """Two are back that have lost something: nobody leads until the third is."""
    third = random.choice([node for node in led if node not in cuts.kafkas])
    cuts.cut_power(*cuts.nodes, whole=[third])
    cuts.start(*(node for node in cuts.nodes if node != third))
    cuts.ensure_nobody_leads(partition)
    cuts.start(third)


def one_after_the_other(cuts: PowerCuts, random: Random, led: Sequence[int], partition: TopicPartition) -> None:
    """Sessions end until one is in sync, which loses its tail and is back first."""
    order = random.sample(led, 3)
    while order[1] in cuts.kafkas:
        random.shuffle(order)
    first, second, last = order
    for one, left in ((first, {second, last}), (second, {last})):
        cuts.kill(one)
        cuts.metadata.wait_until(lambda left=left: cuts.state(partition).isr == left, f"in sync are {left}")  # type: ignore[misc]
    cuts.cut_power(*led, whole=[second])
    cuts.start(last)
    cuts.ensure_nobody_leads(partition)
    cuts.start(second)
    until = time.monotonic() + random.uniform(0, 5)
    wait_until(lambda: time.monotonic() > until)
    cuts.note(f"{first} is still away, {cuts.state(partition).leader} leads {partition}")
    cuts.start(first)


def another_cut(cuts: PowerCuts, random: Random, led: Sequence[int], partition: TopicPartition) -> None:
    """The power goes again soon after the election, and the winner loses what it has not synced."""
    whole = random.choice([node for node in led if node not in cuts.kafkas])
    cuts.cut_power(*cuts.nodes, whole=[whole])
    cuts.start(*cuts.nodes)
    cuts.wait_for_leaders("after the first cut")
    until = time.monotonic() + random.uniform(0, 2)
    wait_until(lambda: time.monotonic() > until)
    state = cuts.state(partition)
    others = [node for node in state.isr if node not in (state.leader, *cuts.kafkas)]
    cuts.cut_power(*cuts.nodes, whole=others)
    cuts.start(*random.sample(cuts.nodes, len(cuts.nodes)))


def stopped(cuts: PowerCuts, random: Random, led: Sequence[int], partition: TopicPartition) -> None:
    """All stop cleanly; with two of three back there are leaders at once. A Kafka does not say that it stopped so."""
    cuts.stop(*cuts.nodes)
    last = random.choice(cuts.kafkas or led)
    cuts.start(*(node for node in cuts.nodes if node != last))
    cuts.wait_for_leaders(f"without {last}")
    cuts.start(last)


def controllers_die(cuts: PowerCuts, random: Random, led: Sequence[int], partition: TopicPartition) -> None:
    """The controller is killed each 3 s while partitions wait."""
    third = random.choice(led)
    cuts.cut_power(*cuts.nodes, whole=[third])
    cuts.start(*(node for node in cuts.nodes if node != third))
    for turn in range(5):
        cuts.ensure_nobody_leads(partition, 3)
        wait_until(lambda: cuts.metadata.controller() in cuts.nodes, "somebody is the controller")
        controller = cuts.metadata.controller()
        assert controller is not None
        cuts.kill(controller)
        cuts.start(controller)
        if turn == 3:
            break
    cuts.start(third)


def zookeeper_away(cuts: PowerCuts, random: Random, led: Sequence[int], partition: TopicPartition) -> None:
    """For two sessions; all brokers live."""
    zookeeper = cuts.cluster.kafka.zookeeper
    is_paused = random.random() < 0.5
    cuts.note(f"ZooKeeper {'stands still' if is_paused else 'is killed'}")
    zookeeper.pause() if is_paused else zookeeper.kill()
    until = time.monotonic() + 2 * SESSION_MS / 1000
    wait_until(lambda: time.monotonic() > until)
    zookeeper.resume() if is_paused else zookeeper.start()
    cuts.wait_for_leaders("with ZooKeeper back")
    cuts.metadata.settle(cuts.nodes)


def controller_survives(cuts: PowerCuts, random: Random, led: Sequence[int], partition: TopicPartition) -> None:
    """The broker that has no replica is the controller, and lives on."""
    (survivor,) = set(cuts.nodes) - set(led)
    while cuts.metadata.controller() != survivor:
        cuts.metadata.depose()
        wait_until(lambda: cuts.metadata.controller() is not None, "somebody is the controller")
    third = random.choice([node for node in led if node not in cuts.kafkas])
    cuts.cut_power(*led, whole=[third])
    cuts.start(*(node for node in led if node != third))
    cuts.ensure_nobody_leads(partition)
    cuts.start(third)


def gone_for_good(cuts: PowerCuts, random: Random, led: Sequence[int], partition: TopicPartition) -> None:
    """One never comes back, one has a new disk: somebody has to say so."""
    whole = random.choice([node for node in led if node not in cuts.kafkas])
    gone, new = random.sample([node for node in led if node != whole], 2)
    others = set(cuts.nodes) - {gone, new}
    cuts.cut_power(*cuts.nodes, whole=others, new_disks=[gone, new])
    cuts.start(*(node for node in cuts.nodes if node != gone))
    cuts.ensure_nobody_leads(partition)
    done = run_plog(
        "cluster", "forget-replica", str(gone), "--yes", "--bootstrap-server", cuts.cluster.brokers[whole].address
    )
    assert done.returncode == 0, done.stderr.decode()
    cuts.wait_for_leaders(f"without {gone} for good")
    assert cuts.state(partition).leader == whole
    cuts.start(gone)


History = Callable[[PowerCuts, Random, Sequence[int], TopicPartition], None]
HISTORIES: tuple[History, ...] = (
    two_back_then_the_third, one_after_the_other, another_cut, stopped, controllers_die, zookeeper_away,
    controller_survives, gone_for_good,
)  # fmt: skip
NEEDS_PLOGS_ALONE = {controllers_die}
"""A Kafka that lives when the controller dies may follow it, and decides by its own rule."""


def play(cuts: PowerCuts, history: History, random: Random, *, with_transfers: bool = True) -> None:
    """One history in a cluster that is well, and is again after it; AssertionError if something is not as it should."""
    cuts.settle()
    led = [*cuts.kafkas, *random.sample([node for node in cuts.nodes if node not in cuts.kafkas], 3 - len(cuts.kafkas))]
    random.shuffle(led)
    partition = cuts.make_topic(led)
    cuts.note(f"--- {history.__name__}, {partition} on {led}")
    address = cuts.cluster.address
    load = Load(address, partition.topic)
    transfers = Transfers(address, cuts.make_topic(led, 2).topic, random) if with_transfers else None
    with load:
        if transfers is not None:
            with transfers:
                _happen(cuts, history, random, led, partition)
                transfers.wait_for_more()
                load.wait_for_more()
        else:
            _happen(cuts, history, random, led, partition)
            load.wait_for_more()
    cuts.note(f"acknowledged {len(load.acknowledged)}")
    load.verify()
    if transfers is not None:
        cuts.note(f"committed {len(transfers.committed)}, unknown {len(transfers.unknown)}: {transfers.troubles[:5]}")
        transfers.verify()
    cuts.settle()
    for name, state in cuts.metadata.states().items():
        folders = {
            node: cuts.cluster.brokers[node].data_dir / f"{name.topic}-{name.partition}" for node in state.replicas
        }
        differ = partial(differences, folders)
        wait_until(
            lambda differ=differ: differ() == [],  # type: ignore[misc]
            lambda name=name, differ=differ: f"{name}: {differ()}",  # type: ignore[misc]
        )


def _happen(cuts: PowerCuts, history: History, random: Random, led: Sequence[int], partition: TopicPartition) -> None:
    until = time.monotonic() + random.uniform(0, 3)
    wait_until(lambda: time.monotonic() > until and cuts.state(partition).is_whole)
    history(cuts, random, led, partition)
    cuts.wait_for_leaders("when all are back")
    cuts.settle()
