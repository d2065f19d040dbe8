"""Changes of metadata in a cluster of which only one broker takes them, as it is with ZooKeeper."""

from __future__ import annotations

from typing import Any

import pytest

from core.client.admin import controller_connection as controller_module
from core.client.admin.admin import LATEST, Admin
from core.client.net import kafka_client, retry
from core.client.net.kafka_client import KafkaClient, PartitionInfo, TopicInfo
from core.cluster.description.cluster_description import BrokerDescription, ClusterDescription
from core.common.error_code import ErrorCode
from core.common.errors import ConnectionFailedError, KafkaError, PlogError, UnreachableAddressError
from core.common.topic_partition import TopicPartition
from core.pipeline.embedded_transport import EmbeddedTransport
from core.protocol.message import Api
from core.protocol.schema.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from core.protocol.schema.metadata import METADATA, MetadataRequest, MetadataResponse, MetadataResponseTopic
from core.protocol.schema.topic_changes import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    CreatableTopicResult,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsResponse,
)
from tests.support.broker import SteeredNode
from tests.support.for_each import for_each
from tests.support.manual_clock import ManualTime
from tests.support.refusals import refused


class OneBroker:
    """A connection to a broker, which takes changes or does not."""

    def __init__(self, error: ErrorCode) -> None:
        self.error = error
        self.asked: list[str] = []

    def version_of(self, api: Api[Any, Any]) -> int:
        return api.versions.last

    def call(self, api: Api[Any, Any], request: object) -> Any:
        self.asked.append(api.name)
        return {
            CREATE_TOPICS: CreateTopicsResponse(0, [CreatableTopicResult("t", error_code=self.error)]),
            DELETE_TOPICS: DeleteTopicsResponse(0, [DeletableTopicResult("t", error_code=self.error)]),
            CREATE_PARTITIONS: CreatePartitionsResponse(0, [CreatePartitionsTopicResult("t", self.error)]),
        }[api]


class Cluster:
    """A client of it. Each time that somebody asks for the controller, it names the next of those given."""

    def __init__(self, any_broker: OneBroker, *controllers: OneBroker | KafkaError) -> None:
        self._any_broker = any_broker
        self._controllers = list(controllers)

    def any_connection(self) -> OneBroker:
        return self._any_broker

    def controller_connection(self) -> OneBroker:
        controller = self._controllers.pop(0)
        if isinstance(controller, KafkaError):
            raise controller
        return controller

    def forget_topic(self, name: str) -> None:
        assert name == "t"

    def refresh(self, topics: list[str], *, skips_unknown: bool) -> dict[str, TopicInfo]:
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)  # nobody is told of the topic


CHANGES = {
    "CreateTopics": lambda admin: admin.create_topic("t"),
    "DeleteTopics": lambda admin: admin.delete_topics(["t"]),
    "CreatePartitions": lambda admin: admin.create_partitions("t", 3),
}


def admin_of(*brokers: OneBroker | KafkaError) -> Admin:
    return Admin(Cluster(*brokers))  # type: ignore[arg-type]


@for_each("change", CHANGES)
def test_who_forwards_nothing_sends_us_to_the_controller(change: str) -> None:
    """A broker that takes changes is enough."""
    taking, forwarding = OneBroker(ErrorCode.NONE), OneBroker(ErrorCode.NOT_CONTROLLER)
    CHANGES[change](admin_of(taking))
    assert taking.asked == [change]
    controller = OneBroker(ErrorCode.NONE)
    CHANGES[change](admin_of(forwarding, controller))
    assert controller.asked == [change]


@for_each("change", CHANGES)
def test_a_controller_that_changes_is_asked_for_again(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "time", ManualTime())
    there = ClusterDescription("id", -1, [BrokerDescription(1, {}, zookeeper_silence_ms=0)])
    monkeypatch.setattr(controller_module, "describe_cluster", lambda *_, **__: there)
    other, controller = OneBroker(ErrorCode.NOT_CONTROLLER), OneBroker(ErrorCode.NONE)
    nobody = KafkaError(ErrorCode.BROKER_NOT_AVAILABLE)
    CHANGES[change](admin_of(other, nobody, other, controller))
    assert (other.asked, controller.asked) == ([change] * 2, [change])


@for_each("change", CHANGES)
def test_what_the_controller_refuses_is_refused(change: str) -> None:
    controller = OneBroker(ErrorCode.POLICY_VIOLATION)
    with pytest.raises(KafkaError) as refused:
        CHANGES[change](admin_of(OneBroker(ErrorCode.NOT_CONTROLLER), controller))
    assert (refused.value.code, controller.asked) == (ErrorCode.POLICY_VIOLATION, [change])


def test_the_controller_is_the_one_that_metadata_name(broker: SteeredNode) -> None:
    addresses: list[tuple[str, int]] = []

    def connect(host: str, port: int) -> EmbeddedTransport:
        addresses.append((host, port))
        return EmbeddedTransport(broker.dispatcher)

    client = KafkaClient([("bootstrap", 1)], connect)
    assert client.controller_connection() is client.controller_connection()
    (row,) = client.any_connection().call(METADATA, MetadataRequest([])).brokers
    assert addresses == [("bootstrap", 1), (row.host, row.port)]


def test_a_cluster_may_have_no_controller(broker: SteeredNode, monkeypatch: pytest.MonkeyPatch) -> None:
    client = KafkaClient([("bootstrap", 1)], lambda host, port: EmbeddedTransport(broker.dispatcher))
    client.refresh([])
    monkeypatch.setattr(client, "refresh", lambda topics: None)
    client.controller_id = -1
    with refused(ErrorCode.BROKER_NOT_AVAILABLE, "the cluster has no controller now"):
        client.controller_connection()


def test_a_controller_that_can_not_be_reached_is_named(broker: SteeredNode) -> None:
    """Its address is not the one that the user gave."""

    def connect(host: str, port: int) -> EmbeddedTransport:
        if host != "bootstrap":
            raise ConnectionFailedError(f"could not connect to {host}:{port}", where=host, hint="is a broker there?")
        return EmbeddedTransport(broker.dispatcher)

    client = KafkaClient([("bootstrap", 1)], connect)
    with pytest.raises(UnreachableAddressError, match="the server on bootstrap:1 answers, and names that address"):
        client.controller_connection()
    client._reached.add(("another broker", 1))
    with pytest.raises(ConnectionFailedError) as failed:
        client.controller_connection()
    assert failed.value.hint == "broker 1 is the cluster's controller, which makes this change: is it running?"


# --- a broker hears of a change later than its controller says that it is made


def made(*leaders: int) -> TopicInfo:
    partitions = {number: PartitionInfo(leader, 0, (1, 2), (1, 2)) for number, leader in enumerate(leaders)}
    return TopicInfo("t", bytes(16), is_internal=False, partitions=partitions)


LATE: dict[str, tuple[list[TopicInfo | PlogError | None], TopicInfo | None]] = {
    "CreateTopics": ([None, KafkaError(ErrorCode.LEADER_NOT_AVAILABLE), made(-1, 2)], made(1, 2)),
    "DeleteTopics": ([made(1), KafkaError(ErrorCode.LEADER_NOT_AVAILABLE)], None),
    "CreatePartitions": ([made(1, 2)], made(1, 2, -1)),
}
"""What a broker knows of the topic after each change, one answer after the other; the last one is all of it."""


Answer = TopicInfo | PlogError | None


class LateCluster(Cluster):
    """Its broker says what it is given of the topic, the last for ever; also the clock."""

    def __init__(self, *answers: Answer) -> None:
        super().__init__(OneBroker(ErrorCode.NONE))
        self.answers = list(answers)
        self.now_s = 0.0
        self.known: set[str] = set()

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def refresh(self, topics: list[str], *, skips_unknown: bool) -> dict[str, TopicInfo]:
        assert (topics, skips_unknown) == (["t"], True)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, PlogError):
            raise answer
        self.known |= set() if answer is None else {"t"}
        return {} if answer is None else {"t": answer}

    def forget_topic(self, name: str) -> None:
        self.known.discard(name)


def test_of_several_topics_the_last_is_waited_for(broker: SteeredNode, monkeypatch: pytest.MonkeyPatch) -> None:
    client = KafkaClient([("embedded", 0)], lambda host, port: EmbeddedTransport(broker.dispatcher))
    for name in "uv":
        Admin(client).create_topic(name, partitions=2)
        assert len(client.topic(name).partitions) == 2
    asked: list[list[str]] = []
    refresh = client.refresh

    def note(topics: list[str], *, skips_unknown: bool) -> dict[str, TopicInfo]:
        asked.append(topics)
        found = refresh(topics, skips_unknown=skips_unknown)
        return {"v": made(1)} if len(asked) < 3 else found

    monkeypatch.setattr(client, "refresh", note)
    Admin(client).delete_topics(["u", "v"])
    assert asked == [["u", "v"]] * 3
    assert not client._topics


def make(change: str, cluster: LateCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "time", cluster)
    client: Any = cluster
    CHANGES[change](Admin(client))


@for_each("change", CHANGES)
def test_who_made_a_change_finds_it_made(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before, after = LATE[change]
    cluster = LateCluster(*before, after, KafkaError(ErrorCode.INVALID_REQUEST))
    make(change, cluster, monkeypatch)
    assert len(cluster.answers) == 1, "the broker was asked until it knew, and not again"
    assert cluster.now_s > 0
    assert not cluster.known, "what was known before is not believed any more"


@for_each("change", CHANGES)
def test_a_broker_that_never_hears_of_a_change_is_not_waited_for(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = LateCluster(LATE[change][0][0])
    make(change, cluster, monkeypatch)
    assert cluster.now_s == pytest.approx(5, abs=0.2)
    assert not cluster.known


@for_each("change", CHANGES)
@for_each(
    "answer",
    [
        KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR),
        ConnectionFailedError("lost the connection", where="a broker"),
    ],
)
def test_a_broker_that_does_not_tell_of_a_change_is_asked_once(
    change: str, answer: PlogError, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = LateCluster(answer)
    make(change, cluster, monkeypatch)
    assert cluster.now_s == 0


def test_what_is_only_tried_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = LateCluster(None)
    monkeypatch.setattr(retry, "time", cluster)
    client: Any = cluster
    Admin(client).create_topic("t", validate_only=True)
    Admin(client).create_partitions("t", 3, validate_only=True)
    assert cluster.now_s == 0


class NewLeader:
    """A client of a broker that hears of the partition which it leads when it is asked the second time; or in vain, if
    others know no such partition.
    """

    def __init__(self, *, is_there: bool = True) -> None:
        self.node_ids = [1, 2]
        self.asked = 0
        self.is_there = is_there

    by_leader = KafkaClient.by_leader

    def leader_of(self, partition: TopicPartition) -> int:
        return 1

    def refresh(self, topics: list[str], *, skips_unknown: bool) -> dict[str, TopicInfo]:
        return {"t": made(1)} if self.is_there else {}

    def connection_to(self, node_id: int) -> Any:
        return self

    def call(self, api: Api[Any, Any], request: object) -> ListOffsetsResponse:
        self.asked += 1
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if self.asked == 1 else ErrorCode.NONE
        return ListOffsetsResponse(
            0, [ListOffsetsTopicResponse("t", [ListOffsetsPartitionResponse(0, code, offset=7)])]
        )

    def forget_topics(self) -> None: ...

    retry_while_leader_moves = KafkaClient.retry_while_leader_moves


def test_a_leader_that_has_not_heard_of_its_partition_is_asked_again() -> None:
    client: Any = NewLeader()
    assert Admin(client).list_offsets({TopicPartition("t", 0): LATEST}) == {TopicPartition("t", 0): 7}
    assert client.asked == 2


def test_a_topic_that_is_deleted_meanwhile_is_not_waited_for() -> None:
    client: Any = NewLeader(is_there=False)
    with refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
        Admin(client).list_offsets({TopicPartition("t", 0): LATEST})
    assert client.asked == 1


@for_each("change", CHANGES)
def test_an_error_without_words_gets_a_hint(change: str) -> None:
    """So does Kafka answer, for example, if only some of its brokers have a rack."""
    with pytest.raises(KafkaError) as refused:
        CHANGES[change](admin_of(OneBroker(ErrorCode.UNKNOWN_SERVER_ERROR)))
    assert ("the controller's log says why" in str(refused.value.hint)) is (change == "CreateTopics")


def test_a_topic_that_could_not_be_made_yet(broker: SteeredNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker answers so until the controller has made it; of one that is there it says so of its partitions."""
    monkeypatch.setattr(kafka_client, "_LEADER_TIMEOUT_SECONDS", -1.0)
    code = ErrorCode.LEADER_NOT_AVAILABLE
    client = KafkaClient(
        [("embedded", 0)],
        lambda _host, _port: EmbeddedTransport(broker.dispatcher),
        find_metadata=lambda names: MetadataResponse(topics=[MetadataResponseTopic(code, name) for name in names]),
    )
    with pytest.raises(KafkaError, match="topic 'new' does not exist, and could not be created yet") as raised:
        client.topic("new", may_create=True)
    assert raised.value.code is code
    assert "the controller creates topics" in (raised.value.hint or "")
    with pytest.raises(KafkaError, match="topic 'new': "):
        client.topic("new")
