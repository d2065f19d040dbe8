"""What operators do with a cluster while it is in trouble: they make topics, grow them, delete them, move replicas,
drain brokers, and take the controller's office away. Whatever is asked may be cut off by what the nemesis does
meanwhile; in the end it is done wholly or not at all, and that is looked at.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from random import Random

from core.client.net.client_connection import ClientConnection
from core.client.net.kafka_client import KafkaClient
from core.common.endpoint import parse_endpoint
from core.common.error_code import ErrorCode
from core.common.errors import AccessError, KafkaError
from core.common.topic_partition import TopicPartition
from core.protocol.schema.reassignments import (
    ALTER_PARTITION_REASSIGNMENTS,
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from core.protocol.schema.topic_changes import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)
from tests.crash.chaos.ledger import KEPT, TOPICS
from tests.crash.cluster.replicas import Metadata
from tests.support.mixed_cluster import Broker, MixedCluster
from tests.support.server import run_plog

BYSTANDERS = "bystander-"
"""How the names begin of topics that come and go, which no client uses."""
_TIMEOUT_MS = 5000
_MOST_PARTITIONS = 8
_BUG = 4
"""The exit code of a command that met a mistake of its own."""


class Operators:
    """Owned by one thread. What is asked is asked once, and of the controller alone."""

    def __init__(self, cluster: MixedCluster, metadata: Metadata, random: Random) -> None:
        self._cluster = cluster
        self._metadata = metadata
        self._random = random
        self._made = 0

    def find_controller(self) -> Broker | None:
        """Finds the broker that is the controller, as ZooKeeper says."""
        found = self._metadata.controller()
        return None if found is None else self._cluster.brokers.get(found)

    # --- what is asked for

    def come_and_go(self) -> str:
        """Makes, grows or deletes a topic that no client uses."""
        present = [name for name in self._metadata.topics() if name.startswith(BYSTANDERS)]
        what = self._random.choice(("make", "make", "grow", "delete")) if present else "make"
        if what == "make":
            self._made += 1
            return self.make(f"{BYSTANDERS}{self._made}", self._random.randint(1, 20))
        name = self._random.choice(present)
        return self.grow(name, self._random.randint(1, 10)) if what == "grow" else self.delete(name)

    def make(self, name: str, partitions: int) -> str:
        replicas = self._random.randint(1, min(3, len(self._cluster.brokers)))
        request = CreateTopicsRequest([CreatableTopic(name, partitions, replicas)], _TIMEOUT_MS, validate_only=False)
        return self._ask(
            f"make {name}", lambda controller: controller.call(CREATE_TOPICS, request).topics[0].error_code
        )

    def grow(self, name: str, added: int) -> str:
        count = len(self._metadata.assignment(name)) + added
        request = CreatePartitionsRequest([CreatePartitionsTopic(name, count, None)], _TIMEOUT_MS, validate_only=False)
        return self._ask(
            f"grow {name} to {count}",
            lambda controller: controller.call(CREATE_PARTITIONS, request).results[0].error_code,
        )

    def grow_kept(self) -> str:
        """Gives another partition to the topic that most clients use."""
        count = len(self._metadata.assignment(KEPT))
        return self.grow(KEPT, 1) if count < _MOST_PARTITIONS else f"{KEPT} has {count} partitions"

    def delete(self, name: str) -> str:
        request = DeleteTopicsRequest(topic_names=[name], timeout_ms=_TIMEOUT_MS)
        return self._ask(
            f"delete {name}",
            lambda controller: controller.call(DELETE_TOPICS, request, at_most=5).responses[0].error_code,
        )

    def move(self) -> str:
        """Moves replicas of some partitions to brokers that live, or gives up what is under way."""
        states = self._metadata.states()
        alive = sorted(self._metadata.alive())
        targets: dict[TopicPartition, list[int] | None] = {}
        for name in self._random.sample(list(states), min(len(states), self._random.randint(1, 6))):
            count = min(len(alive), 3)
            targets[name] = None if self._random.random() < 0.2 else self._random.sample(alive, count)
        return self.reassign(targets)

    def reassign(self, targets: Mapping[TopicPartition, Sequence[int] | None]) -> str:
        topics: dict[str, list[ReassignablePartition]] = {}
        for name, replicas in targets.items():
            one = ReassignablePartition(name.partition, None if replicas is None else list(replicas))
            topics.setdefault(name.topic, []).append(one)
        request = AlterPartitionReassignmentsRequest(
            _TIMEOUT_MS, topics=[ReassignableTopic(topic, found) for topic, found in topics.items()]
        )
        return self._ask(
            f"reassign {len(targets)} partitions",
            lambda controller: controller.call(ALTER_PARTITION_REASSIGNMENTS, request, at_most=0).error_code,
        )

    def drain(self) -> str:
        """Moves everything off a broker, by plog's command; what one holds that is drained already is spread over all
        again. AssertionError if the command says that it is done, and it is not.
        """
        topics = sorted(TOPICS)
        held = self._held_by(topics)
        empty = [node for node in self._cluster.brokers if not held[node]]
        node = self._random.choice(list(self._cluster.brokers))
        what = ["reassign", "--topics", ",".join(topics)] if empty else ["drain", str(node)]
        done = run_plog("cluster", *what, "--bootstrap-server", self._cluster.address)
        said = done.stderr.decode().strip()
        told = f"{what[0]} {empty or node} ends with {done.returncode}: {said.splitlines()[-1:]}"
        left = self._held_by(topics)[node]
        assert done.returncode < _BUG, f"{told}: {said}"
        assert empty or done.returncode or not left, f"{told}, and it has {left}: {said}"
        return told

    def _held_by(self, topics: Collection[str]) -> Mapping[int, list[str]]:
        """Which partitions of these topics have a replica on each broker, as the controller has decided."""
        held: dict[int, list[str]] = defaultdict(list)
        for topic in topics:
            for number, replicas in self._metadata.assignment(topic).items():
                for node in replicas:
                    held[node].append(f"{topic}-{number}")
        return held

    def depose(self) -> str:
        """Deletes /controller: whoever held the office goes on until it hears of that."""
        return f"{self._metadata.depose()} was in office"

    def _ask(self, what: str, work: Callable[[ClientConnection], int]) -> str:
        """Gives what became of it, in words."""
        controller = self.find_controller()
        if controller is None:
            return f"{what}: nobody is the controller"
        endpoint = parse_endpoint(controller.address)
        try:
            with closing(KafkaClient([(endpoint.host, endpoint.port)])) as client:
                return f"{what}: {ErrorCode.of(work(client.any_connection())).name}"
        except (AccessError, KafkaError) as error:
            return f"{what}: {error}"
