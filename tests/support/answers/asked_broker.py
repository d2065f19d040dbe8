"""A broker that a scenario asks, and the answers that it gave."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.support.answers.connection import Connection, ConnectionLostError
from tests.support.answers.message_codec import Fields, api_keys, decode_response, encode_request, versions_of
from tests.support.answers.record_batches import batch
from tests.support.answers.symbols import Symbols
from tests.support.waiting import wait_until

CLIENT_ID = "compare"
CLOSED = "the connection is closed"
NO_ANSWER = "no answer"
_COORDINATORS_START = (14, 15, 16)
"""COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR."""


class Step(NamedTuple):
    """What a scenario asked: unique in it."""

    name: str
    api: str
    version: int


class Topic(NamedTuple):
    name: str
    id: str


@dataclass(frozen=True)
class Habits:
    """What of a broker is no difference, but its way.

    `seconds_to_apply`: how long after its answer a change of metadata may take until the broker acts on it.
    `answer_seconds`: when an answer is taken to never come.
    """

    seconds_to_apply: float
    answer_seconds: float
    first_group_epoch: int


PLOG = Habits(seconds_to_apply=0, answer_seconds=60, first_group_epoch=1)
KAFKA = Habits(seconds_to_apply=0.3, answer_seconds=5, first_group_epoch=2)
"""Some requests Kafka never answers; plog answers all."""


class AskedBroker:
    """One broker in one scenario: `answers` has what it said so far, ready to be compared. Owned by one thread.

    Requests are built from Kafka's names: `broker.ask("one topic", "Metadata", Topics=[{"Name": "t"}])`.
    """

    def __init__(self, address: str, habits: Habits) -> None:
        self.answers: dict[Step, Any] = {}
        self._address = address
        self._habits = habits
        self._symbols = Symbols(habits.first_group_epoch)
        self._connections: dict[str, Connection] = {}
        self._correlation_id = 0

    def close(self) -> None:
        for name in list(self._connections):
            self.disconnect(name)

    # asking

    def ask(
        self,
        step: str,
        api: str,
        version: int | None = None,
        *,
        connection: str = "",
        pick: Callable[[Fields], Any] | None = None,
        **fields: Any,
    ) -> Any:
        """Its answer, which is kept as the step's; `pick` says what of it. The latest version where none is given.

        A text (`CLOSED`, `NO_ANSWER`) where there is no answer.
        """
        version = versions_of(api)[-1] if version is None else version
        answer = self.query(api, version, connection=connection, **fields)
        self.keep(step, answer if pick is None or isinstance(answer, str) else pick(answer), api, version)
        return answer

    def ask_each(self, step: str, api: str, versions: Iterable[int] | None = None, **arguments: Any) -> None:
        """The same by each of the versions; by all where none are given."""
        for version in versions_of(api) if versions is None else versions:
            self.ask(step, api, version, **arguments)

    def query(self, api: str, version: int | None = None, *, connection: str = "", **fields: Any) -> Any:
        """As `ask`, but no step: what a scenario must know or do besides."""
        version = versions_of(api)[-1] if version is None else version
        self._correlation_id += 1
        frame = encode_request(api, version, self._correlation_id, CLIENT_ID, fields)
        answer = self._exchange(connection, lambda wire: wire.send(frame))
        return answer if isinstance(answer, str) else decode_response(api, version, answer)

    def ask_frame(self, step: str, frame: bytes, api: str, version: int, *, decode_as: int | None = None) -> None:
        """A frame as it is. Its answer is decoded by `decode_as`, else by `version`."""
        answer = self._exchange("frame", lambda wire: wire.send(frame))
        if not isinstance(answer, str):
            answer = decode_response(api, version if decode_as is None else decode_as, answer)
        self.keep(step, answer, api, version)

    def ask_bytes(self, step: str, data: bytes) -> None:
        """Bytes in place of a frame with its length: only whether there is an answer."""
        self.disconnect("frame")
        answer = self._exchange("frame", lambda wire: wire.send_bytes(data))
        self.keep(step, answer if isinstance(answer, str) else "an answer")

    def send_only(self, api: str, version: int, *, connection: str, **fields: Any) -> None:
        """A request that has no answer."""
        wire = self._connection(connection)
        wire.send(encode_request(api, version, 0, CLIENT_ID, fields))

    def keep(self, step: str, answer: Any, api: str = "", version: int = -1) -> None:
        """A step whose answer the scenario made itself."""
        key = Step(step, api, version)
        assert key not in self.answers, f"two steps are called {key}"
        self.answers[key] = self._symbols.comparable(answer)

    def disconnect(self, connection: str = "") -> None:
        wire = self._connections.pop(connection, None)
        if wire is not None:
            wire.close()

    def _exchange(self, connection: str, send: Callable[[Connection], None]) -> Any:
        wire = self._connection(connection)
        try:
            send(wire)
            return wire.receive()
        except ConnectionLostError:
            self.disconnect(connection)
            return CLOSED
        except TimeoutError:
            self.disconnect(connection)
            return NO_ANSWER

    def _connection(self, name: str) -> Connection:
        if name not in self._connections:
            self._connections[name] = Connection(self._address, self._habits.answer_seconds)
        return self._connections[name]

    # what scenarios have in common

    @property
    def id(self) -> int:
        found: int = self.query("Metadata", Topics=[])["Brokers"][0]["NodeId"]
        return found

    def create_topic(self, name: str, partitions: int = 1, **configs: str) -> Topic:
        """Returns when each partition has a leader. `configs` by Kafka's names, with _ for a dot."""
        settings = [{"Name": key.replace("_", "."), "Value": value} for key, value in configs.items()]
        topic = {"Name": name, "NumPartitions": partitions, "ReplicationFactor": 1, "Configs": settings}
        created = self.query("CreateTopics", Topics=[topic], timeoutMs=10_000)["Topics"][0]
        assert created["ErrorCode"] == 0, created
        self._symbols.name_topic(created["TopicId"], name)
        wait_until(lambda: self.leads(name, partitions))
        return Topic(name, created["TopicId"])

    def leads(self, name: str, partitions: int) -> bool:
        """Whether it has the topic, with that many partitions, and leads each."""
        found = self.query("Metadata", Topics=[{"Name": name}], AllowAutoTopicCreation=False)["Topics"][0]
        if found["ErrorCode"] or len(found["Partitions"]) != partitions:
            return False
        asked = [{"PartitionIndex": index, "Timestamp": -1, "CurrentLeaderEpoch": -1} for index in range(partitions)]
        ends = self.query("ListOffsets", ReplicaId=-1, Topics=[{"Name": name, "Partitions": asked}])["Topics"][0]
        return not any(partition["ErrorCode"] for partition in ends["Partitions"])

    def delete_topic(self, topic: Topic) -> None:
        """Returns when nobody finds it any more."""
        self.query("DeleteTopics", Topics=[{"Name": topic.name}], TimeoutMs=5000)
        asked = {"Topics": [{"Name": topic.name}], "AllowAutoTopicCreation": False}
        wait_until(lambda: self.query("Metadata", **asked)["Topics"][0]["ErrorCode"] != 0)
        self.wait_until_applied()

    def start_coordinators(self) -> None:
        """Makes the internal topics and waits until their partitions are loaded: no scenario meets a start."""
        for key_type in (0, 1):
            wait_until(lambda kind=key_type: self._finds_coordinator(kind))
        wait_until(lambda: self.query("OffsetFetch", 7, GroupId="first", Topics=None)["ErrorCode"] == 0)
        wait_until(self._describes_transactions)
        wait_until(lambda: self.new_producer()[0] >= 0)

    def _finds_coordinator(self, key_type: int) -> bool:
        return bool(self.query("FindCoordinator", 3, Key="first", KeyType=key_type)["ErrorCode"] == 0)

    def _describes_transactions(self) -> bool:
        states = self.query("DescribeTransactions", TransactionalIds=["first"])["TransactionStates"]
        return states[0]["ErrorCode"] not in _COORDINATORS_START

    def new_producer(self) -> tuple[int, int]:
        """(producer id, epoch) of no transactional id."""
        found = self.query(
            "InitProducerId", TransactionalId=None, TransactionTimeoutMs=1000, ProducerId=-1, ProducerEpoch=-1
        )
        return found["ProducerId"], found["ProducerEpoch"]

    def produce(self, topic: Topic, records: bytes | None = None, partition: int = 0) -> None:
        """No step: records that a scenario needs, one batch of three where none are given."""
        answer = self.query("Produce", **produce_fields(topic, batch() if records is None else records, partition))
        assert answer["Responses"][0]["PartitionResponses"][0]["ErrorCode"] == 0, answer

    def wait_until_applied(self) -> None:
        """After a change of metadata, until the broker acts on it."""
        if self._habits.seconds_to_apply:
            time.sleep(self._habits.seconds_to_apply)  # Kafka says nowhere how far it is


def produce_fields(
    topic: Topic, records: bytes | None, partition: int = 0, *, acks: int = -1, transactional_id: str | None = None
) -> Fields:
    """Of a Produce request for one partition."""
    data = [{"Index": partition, "Records": records}]
    return {
        "TransactionalId": transactional_id,
        "Acks": acks,
        "TimeoutMs": 5000,
        "TopicData": [{"Name": topic.name, "TopicId": topic.id, "PartitionData": data}],
    }


def fetch_fields(
    topic: Topic,
    offset: int = 0,
    partition: int = 0,
    *,
    max_bytes: int = 1 << 20,
    partition_max_bytes: int = 1 << 20,
    isolation_level: int = 0,
    leader_epoch: int = -1,
    last_fetched_epoch: int = -1,
) -> Fields:
    """Of a Fetch request for one partition that waits for nothing."""
    asked = fetch_partition(
        partition,
        offset,
        max_bytes=partition_max_bytes,
        leader_epoch=leader_epoch,
        last_fetched_epoch=last_fetched_epoch,
    )
    return {
        **FETCH_NOTHING,
        "MaxBytes": max_bytes,
        "IsolationLevel": isolation_level,
        "Topics": [{"Topic": topic.name, "TopicId": topic.id, "Partitions": [asked]}],
    }


def fetch_partition(
    partition: int,
    offset: int = 0,
    *,
    max_bytes: int = 1 << 20,
    leader_epoch: int = -1,
    last_fetched_epoch: int = -1,
) -> Fields:
    return {
        "Partition": partition,
        "CurrentLeaderEpoch": leader_epoch,
        "FetchOffset": offset,
        "LastFetchedEpoch": last_fetched_epoch,
        "LogStartOffset": -1,
        "PartitionMaxBytes": max_bytes,
    }


FETCH_NOTHING: Fields = {
    "ReplicaId": -1, "MaxWaitMs": 0, "MinBytes": 0, "MaxBytes": 1 << 20, "SessionId": 0, "SessionEpoch": -1,
    "Topics": [],
}  # fmt: skip
"""Of a Fetch request outside any session, for no topic."""


def raw_header(api: str, version: int, *, client_id: bytes | None = None) -> bytes:
    """Of a request in header version 1, which a scenario goes on with by hand."""
    name = struct.pack(">h", -1) if client_id is None else struct.pack(">h", len(client_id)) + client_id
    return struct.pack(">hhi", api_keys()[api], version, 7) + name
