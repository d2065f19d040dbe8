"""A cluster of Kafka's 3.9 brokers and plog's under real clients, and a nemesis that kills and pauses any of them, cuts
them off, and fills their disks.

A life is a set of topics with three replicas each: some deeds of the nemesis, each followed by a moment, or by the time
until all replicas are in sync and every client got on; then the clients stop, all is read and held against what they
were told, and the replicas are held against each other, byte by byte. Then the topics are deleted, and the next life
makes them again, in the same cluster.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from random import Random
from typing import Any

from confluent_kafka import KafkaException
from kazoo.exceptions import KazooException

from core.files.file_names import LOG_SUFFIX, partition_directory_name
from tests.crash.chaos.checker import Report, check
from tests.crash.chaos.crew import Crew
from tests.crash.chaos.ledger import KEYED, PARTITIONS, TOPICS, Ledger
from tests.crash.chaos.reading import find_unsound, read_all
from tests.crash.chaos.small_disk import SmallDisk, may_mount
from tests.crash.cluster.cluster_nemesis import REPLICAS, ClusterNemesis
from tests.crash.cluster.network import Network
from tests.crash.cluster.operators import BYSTANDERS, Operators
from tests.crash.cluster.replicas import Metadata, differences, differences_of_keys
from tests.support.kafka39 import Kafka39Broker
from tests.support.mixed_cluster import Broker, MixedCluster
from tests.support.waiting import machine_seconds, wait_until

DEEDS_A_LIFE = 10
CLIENTS = ("producer", "plog", "plain", "member", "member", "auditor", "cutter", "teller", "copier")
SETTINGS = {
    "min.insync.replicas": "2",
    "replica.lag.time.max.ms": "5000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "log.retention.check.interval.ms": "1000",
    "log.cleaner.backoff.ms": "500",
    "log.segment.delete.delay.ms": "100",
}
_REST = 0.4
"""How often the next deed comes before all is well again."""

_DISK_BYTES = 800_000_000
_EQUAL_S = 30
"""How many of the machine's seconds replicas may differ after all are in sync."""
_GONE_S = 5
"""The same for folders of topics that are deleted."""
_FAILED_LOAD = "Uncaught exception in scheduled task 'load-"
"""What Kafka logs if its session expires while it reads transactions as their coordinator: it never ends loading them
then, and answers COORDINATOR_LOAD_IN_PROGRESS whenever it leads that partition.
"""


class ClusterChaos:
    """`run` it once. What it leaves in `directory` after a problem is the evidence."""

    def __init__(
        self,
        directory: Path,
        *,
        seed: int = 1,
        kafkas: int = 2,
        plogs: int = 2,
        plog_controls: bool = False,
        only: str = "",
    ) -> None:
        """With `plog_controls` the first of plog's begins as the controller, and any broker may follow it. `only` is a
        pattern, of the deeds that are done.
        """
        self.report = Report(seed)
        self._directory = directory
        self._random = Random(seed)
        directory.mkdir(parents=True, exist_ok=True)
        self._journal = (directory / "journal").open("w", buffering=1)
        self._kafkas = kafkas
        self._plogs = range(5, 5 + plogs)
        self._plog_controls = plog_controls or not kafkas
        self._only = only
        self._failed_loads: dict[int, int] = {}

    def run(self, deeds: int) -> Report:
        """Ends after the first life with a problem."""
        started_s = time.monotonic()
        self._note(f"seed {self.report.seed}, {deeds} deeds, in {self._directory}")
        with Network([*range(1, 1 + self._kafkas), *self._plogs], self._note) as network, ExitStack() as disks:
            self._make_cluster(network)
            has_disks = may_mount(self._directory)
            if not has_disks:
                self._note("no disk is filled: only root may mount some")
            brokers = self._cluster.brokers.values() if has_disks else ()
            mounted = [disks.enter_context(SmallDisk(broker.data_dir, _DISK_BYTES)) for broker in brokers]
            with self._cluster, closing(Metadata(self._cluster.kafka.zookeeper.address)) as self._metadata:
                self._operators = Operators(self._cluster, self._metadata, self._random)
                self._nemesis = ClusterNemesis(
                    self._cluster,
                    self._metadata,
                    self._random,
                    self._operators,
                    network,
                    self._verify_killed,
                    has_disks=has_disks,
                    only=self._only,
                )
                self._live(deeds)
            for disk in mounted:
                disk.is_kept = bool(self.report.problems)
        self.report.seconds = round(time.monotonic() - started_s)
        self._note(f"{self.report}")
        self._journal.close()
        return self.report

    def _make_cluster(self, network: Network) -> None:
        self._cluster = MixedCluster(
            self._directory,
            self._kafkas,
            self._plogs,
            SETTINGS,
            plog_controls=self._plog_controls,
            place_of=network.place_of,
            zookeeper=network.zookeeper,
        )

    def _live(self, deeds: int) -> None:
        try:
            for done in range(0, deeds, DEEDS_A_LIFE):
                self._life(self._directory / f"life-{done}", min(DEEDS_A_LIFE, deeds - done))
                if self.report.problems:
                    break
            self._stop_plogs()
        except (AssertionError, KafkaException, KazooException) as error:
            self._problem(f"{repr(error)[:1000]} .. {repr(error)[-1000:]}")

    def _note(self, text: str) -> None:
        line = f"{time.strftime('%H:%M:%S')} {text}\n"
        self._journal.write(line)
        sys.stdout.write(line)
        sys.stdout.flush()

    def _problem(self, text: str) -> None:
        self._note(f"PROBLEM {text}")
        self.report.problems.append(text)

    # --- a life

    def _life(self, directory: Path, deeds: int) -> None:
        directory.mkdir()
        crew = Crew(directory, CLIENTS, self._random, stuck=self.report.stuck, note=self._note, problem=self._problem)
        try:
            self._make_topics()
            crew.start(self._cluster.address)
            self._let_them_get_on(crew)
            for _ in range(deeds):
                self._deed(crew)
            self._let_them_get_on(crew)
            crew.stop()
            self._check(crew.ledger())
        finally:
            crew.kill()
        if not self.report.problems:
            topics = [*TOPICS, *(topic for topic in self._metadata.topics() if topic.startswith(BYSTANDERS))]
            for topic in topics:
                self._cluster.delete_topic(topic)
            wait_until(lambda: all(map(self._cluster.is_deleted, topics)), "the topics are deleted")
            self._note_left(topics)
            shutil.rmtree(directory)

    def _make_topics(self) -> None:
        """Each broker is the preferred leader of some partitions."""
        nodes = list(self._cluster.brokers)
        turn = 0
        for topic, settings in TOPICS.items():
            replicas = []
            for _ in range(PARTITIONS):
                replicas.append([nodes[(turn + i) % len(nodes)] for i in range(REPLICAS)])
                turn += 1
            config = {name.removeprefix("internal."): value for name, value in settings.items()}
            self._cluster.make_topic(topic, *replicas, **config)

    def _deed(self, crew: Crew) -> None:
        deed = self._nemesis.draw()
        self.report.deeds[deed] += 1
        self._note(f"{deed} ..")
        self._note(f"{deed}: {self._nemesis.strike(deed)}")
        if self._random.random() < _REST:
            self._note(f"rest: {self._nemesis.rest()}")
            self._ensure_running()
        else:
            self._let_them_get_on(crew)

    def _let_them_get_on(self, crew: Crew) -> None:
        """Until all replicas are in sync, and every client has got on after that."""
        self._wait_for_sync()
        crew.wait_for_progress(self._ensure_running)
        self._note("all is well")

    def _wait_for_sync(self) -> None:
        self._metadata.settle(self._cluster.brokers, self._ensure_running)

    def _ensure_running(self) -> None:
        """Nobody ends by himself. If Kafka does it is noted, and it is started again, and so if it can't go on."""
        for member in self._cluster.plogs.values():
            process = member.server.process
            if process is not None and not member.is_running:
                self._problem(f"plog {member.node_id} ended by itself with {process.returncode}")
                member.start()
        for broker in self._cluster.kafka.brokers.values():
            if not broker.is_running:
                self._start_again(broker, "Kafka ended by itself")
            elif (failed := broker.log.read_text().count(_FAILED_LOAD)) > self._failed_loads.get(broker.node_id, 0):
                self._failed_loads[broker.node_id] = failed
                self._start_again(broker, "Kafka loads for ever")

    def _start_again(self, broker: Kafka39Broker, reason: str) -> None:
        self._note(f"{reason}: {broker.node_id}")
        self.report.deeds[reason] += 1
        broker.kill()
        broker.start()

    # --- what must be so

    def _verify_killed(self, broker: Broker) -> None:
        if not isinstance(broker, Kafka39Broker):
            self._verify(broker, was_killed=True)

    def _verify(self, broker: Broker, *, was_killed: bool = False) -> None:
        if wrong := find_unsound(broker.data_dir, was_killed=was_killed, may_be=_may_be):
            self._problem(f"verify of plog {broker.node_id} {wrong}")

    def _stop_plogs(self) -> None:
        for member in self._cluster.plogs.values():
            member.stop()
            self._verify(member)

    def _check(self, ledger: Ledger) -> None:
        self._wait_for_sync()
        found = read_all(self._cluster.address, self._problem)
        for problem in check(ledger, found):
            self._problem(problem)
        self._compare()
        self.report.controllers = self._metadata.controllers()
        self.report.count(ledger, found)
        self._note(f"checked: {self.report}")

    def _note_left(self, topics: Sequence[str]) -> None:
        """Notes folders of deleted topics, which is no problem: of a replica that was moved away while its broker was
        not there to hear of it. It may take a moment until the last file is deleted.
        """

        def find_left() -> list[str]:
            return [
                f"broker {node} has {folder.name}"
                for node, broker in self._cluster.brokers.items()
                for topic in topics
                for folder in broker.data_dir.glob(f"{topic}-*")
                if folder.name.removeprefix(f"{topic}-").isdecimal()
            ]

        deadline = machine_seconds() + _GONE_S
        while (left := find_left()) and machine_seconds() < deadline:
            time.sleep(1)
        for one in left:
            self._note(f"{one}, of a topic that is deleted")
            self.report.deeds["folders left"] += 1

    def _compare(self) -> None:
        """All replicas byte by byte; of what each broker compacts by itself, the latest records."""
        replicas = {name: state.replicas for name, state in self._metadata.states().items()}

        def find_differences() -> list[str]:
            return [
                f"{name}: {found}"
                for name, nodes in replicas.items()
                for found in (differences_of_keys if name.topic == KEYED else differences)(
                    {node: self._cluster.brokers[node].data_dir / partition_directory_name(name) for node in nodes}
                )
            ]

        deadline = machine_seconds() + _EQUAL_S
        while (found := find_differences()) and machine_seconds() < deadline:
            time.sleep(1)
        for difference in found:
            self._problem(difference)


def _may_be(finding: dict[str, Any]) -> bool:
    """Says whether it is a folder that was left behind (`_note_left`), or a hole that a follower copied from a leader
    whose cleaner had made it. In the last segment, which no cleaner touches, nothing proves that.
    """
    if finding["code"] == "topic-id-mismatch":
        return True
    if finding["code"] != "offsets-missing":
        return False
    log = Path(finding["path"])
    return log.parent.name.startswith(f"{KEYED}-") and log == max(log.parent.glob(f"*{LOG_SUFFIX}"))
