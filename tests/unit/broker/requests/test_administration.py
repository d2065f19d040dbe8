"""Metadata, topics, partitions, configs, coordinators."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.broker.requests.client_session import Session
from core.broker.requests.metadata_brokers import own_endpoint
from core.broker.requests.request_context import RequestContext
from core.common.config_def import ConfigSource
from core.common.endpoint import Endpoint
from core.common.error_code import ErrorCode
from core.protocol.schema import configs as alter_configs
from core.protocol.schema.configs import (
    ALTER_CONFIGS,
    DESCRIBE_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
    AlterConfigsRequest,
    ChangedConfig,
    ChangedResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResult,
    IncrementalAlterConfigsRequest,
)
from core.protocol.schema.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from core.protocol.schema.metadata import METADATA, MetadataRequest, MetadataRequestTopic, MetadataResponseTopic
from core.protocol.schema.topic_changes import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from tests.support.broker import (
    SteeredNode,
    add_topic,
    ask,
    delete_topic,
    fetch,
    open_broker,
    produce_values,
    values_of,
)
from tests.support.for_each import for_each
from tests.support.requests import changes_of

# --- metadata


def metadata(broker: SteeredNode, *names: str, version: int = 13, **fields: bool) -> list[MetadataResponseTopic]:
    topics = [MetadataRequestTopic(name=name) for name in names] if names else None
    return ask(broker, METADATA, MetadataRequest(topics=topics, **fields), version).topics


def test_a_topic_that_is_asked_for_twice_is_told_once(broker: SteeredNode) -> None:
    add_topic(broker)
    assert [topic.name for topic in metadata(broker, "t", "nope", "t", allow_auto_topic_creation=False)] == [
        "t",
        "nope",
    ]


@for_each("name", ["", "a b", "x" * 250, ".."])
@for_each("may_create", [True, False])
def test_a_name_that_no_topic_can_have_is_called_so(broker: SteeredNode, name: str, may_create: bool) -> None:
    """A producer that is told UNKNOWN_TOPIC_OR_PARTITION waits for the topic to come, `max.block.ms` long."""
    (answer,) = metadata(broker, name, allow_auto_topic_creation=may_create)
    assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    if name:
        assert alter(broker, ("retention.ms", SET, "1"), name=name) == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_metadata_of_all_topics(broker: SteeredNode) -> None:
    add_topic(broker, "a", 2)
    add_topic(broker, "b")
    broker.begin_serving(Endpoint("127.0.0.1", 9999))
    answer = ask(broker, METADATA, MetadataRequest(topics=None))
    assert [(b.node_id, b.host, b.port) for b in answer.brokers] == [(1, "127.0.0.1", 9999)]
    assert (answer.controller_id, answer.cluster_id) == (1, broker.services.node.cluster_id)
    found = {t.name: [(p.partition_index, p.leader_id, p.isr_nodes) for p in t.partitions] for t in answer.topics}
    assert found == {"a": [(0, 1, [1]), (1, 1, [1])], "b": [(0, 1, [1])]}


def test_no_topics_are_all_of_them_in_version_0_and_none_later(broker: SteeredNode) -> None:
    add_topic(broker)
    request = MetadataRequest(topics=[])
    assert len(ask(broker, METADATA, request, 0).topics) == 1
    assert ask(broker, METADATA, request, 1).topics == []


def test_a_topic_is_made_when_asked_for(broker: SteeredNode) -> None:
    (refused,) = metadata(broker, "new", allow_auto_topic_creation=False)
    assert refused.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    (made,) = metadata(broker, "new")
    assert (made.error_code, len(made.partitions)) == (0, 1)
    (internal,) = metadata(broker, "__consumer_offsets")
    assert internal.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    (bad,) = metadata(broker, "no good name")
    assert bad.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_metadata_by_id(broker: SteeredNode) -> None:
    topic_id = add_topic(broker)
    for wanted, expected in ((topic_id, (0, "t")), (b"\1" * 16, (ErrorCode.UNKNOWN_TOPIC_ID, None))):
        request = MetadataRequest(topics=[MetadataRequestTopic(topic_id=wanted, name=None)])
        (topic,) = ask(broker, METADATA, request).topics
        assert (topic.error_code, topic.name) == expected


@for_each(
    "listen, settings, reached, expected",
    [
        ("127.0.0.1", {}, "127.0.0.1", "127.0.0.1:9092"),
        ("0.0.0.0", {}, "10.0.0.5", "10.0.0.5:9092"),
        ("::", {}, "fd00::5", "fd00::5:9092"),
        ("0.0.0.0", {}, "", "localhost:9092"),
        ("0.0.0.0", {"advertised_listeners": "PLAINTEXT://kafka:29092"}, "10.0.0.5", "kafka:29092"),
        ("127.0.0.1", {"advertised_listeners": "PLAINTEXT://kafka:0"}, "127.0.0.1", "kafka:9092"),
        ("0.0.0.0", {"advertised_listeners": "PLAINTEXT://0.0.0.0:9092"}, "10.0.0.5", "10.0.0.5:9092"),
    ],
)
def test_what_is_advertised(tmp_path: Path, listen: str, settings: dict[str, str], reached: str, expected: str) -> None:
    """Never an address that a client can't connect to."""
    broker = open_broker(tmp_path, **settings)
    broker.begin_serving(Endpoint(listen, 9092))
    endpoint = own_endpoint(broker.services, RequestContext(0, None, Session(local_host=reached)))
    assert f"{endpoint.host}:{endpoint.port}" == expected


# --- topics


def create(broker: SteeredNode, *topics: CreatableTopic, validate_only: bool = False) -> list[CreatableTopicResult]:
    return ask(broker, CREATE_TOPICS, CreateTopicsRequest(list(topics), 1000, validate_only)).topics


def test_a_message_that_quotes_much_fits_into_the_oldest_answer(broker: SteeredNode) -> None:
    """Its texts have 32,767 bytes at most, and the other topics of the request are in it, too."""
    wrong = CreatableTopic("t", 1, 1, configs=[CreatableTopicConfig("cleanup.policy", "x" * 32_700)])
    request = CreateTopicsRequest([wrong, CreatableTopic("good", 1, 1)], 1000)
    refused, made = ask(broker, CREATE_TOPICS, request, CREATE_TOPICS.versions.first).topics
    assert (refused.error_code, made.error_code) == (ErrorCode.INVALID_CONFIG, ErrorCode.NONE)
    assert (refused.error_message or "").endswith("more characters)")


def test_create(broker: SteeredNode) -> None:
    configs = [CreatableTopicConfig("retention.ms", "5")]
    (made,) = create(broker, CreatableTopic("t", 3, 1, configs=configs))
    assert (made.error_code, made.num_partitions, made.replication_factor) == (0, 3, 1)
    assert made.error_message is None, "aiokafka takes any text for an error"
    assert {c.name: c.value for c in made.configs or ()}["retention.ms"] == "5"
    assert broker.services.image.topics_by_id[made.topic_id].name == "t"
    assert sorted(p.name for p in broker.directory.glob("t-*")) == ["t-0", "t-1", "t-2"]


def test_create_only_to_see(broker: SteeredNode) -> None:
    (seen,) = create(broker, CreatableTopic("t", 3, 1), validate_only=True)
    assert (seen.error_code, seen.num_partitions) == (0, 3)
    assert broker.services.image.topics == {}


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (CreatableTopic("t", 1, 1), ErrorCode.TOPIC_ALREADY_EXISTS),
        (CreatableTopic("a.b", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),  # collides with a_b
        (CreatableTopic("__cluster_metadata", 1, 1), ErrorCode.INVALID_REQUEST),
        (CreatableTopic("x", 0, 1), ErrorCode.INVALID_PARTITIONS),
        (CreatableTopic("x", 1, 2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (CreatableTopic("x", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (CreatableTopic("x", 1, 1, configs=[CreatableTopicConfig("nope", "1")]), ErrorCode.INVALID_CONFIG),
        (CreatableTopic("x", 1, 1, configs=[CreatableTopicConfig("retention.ms", None)]), ErrorCode.INVALID_CONFIG),
        (CreatableTopic("x", -1, -1, [CreatableReplicaAssignment(0, [9])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (CreatableTopic("x", -1, -1, [CreatableReplicaAssignment(1, [1])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (CreatableTopic("x", -1, -1, [CreatableReplicaAssignment(0, [1])] * 2), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (CreatableTopic("t", -1, -1, [CreatableReplicaAssignment(0, [1])] * 2), ErrorCode.TOPIC_ALREADY_EXISTS),
        (CreatableTopic("x", 1, 1, [CreatableReplicaAssignment(0, [1])] * 2), ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_can_not_be_created(broker: SteeredNode, topic: CreatableTopic, code: ErrorCode) -> None:
    add_topic(broker)
    add_topic(broker, "a_b")
    good = CreatableTopic("good", 1, 1)
    results = {r.name: r for r in create(broker, topic, good)}
    assert results[topic.name].error_code == code, results[topic.name]
    assert results[topic.name].error_message
    assert results["good"].error_code == 0
    assert set(broker.services.image.topics) == {"t", "a_b", "good"}


@for_each("validate_only", [True, False])
@for_each("partitions", [[10_001], [4_000, 4_000, 2_001], [9_999, -1, -1]])
def test_a_request_makes_so_many_partitions_at_most(
    broker: SteeredNode, partitions: list[int], validate_only: bool
) -> None:
    """However many topics they are of: so many batches of metadata, and logs, keep everybody waiting."""
    wanted = [CreatableTopic(f"t{number}", count, 1) for number, count in enumerate(partitions)]
    results = create(broker, *wanted, validate_only=validate_only)
    assert {result.error_code for result in results} == {ErrorCode.POLICY_VIOLATION}
    assert "10001 partitions are more than the 10000" in (results[0].error_message or "")
    assert broker.services.image.topics == {}


def test_a_request_adds_so_many_partitions_at_most(broker: SteeredNode) -> None:
    for name in "ab":
        add_topic(broker, name)
    wanted = [CreatePartitionsTopic("a", 5_001, None), CreatePartitionsTopic("b", 5_002, None)]
    answer = ask(broker, CREATE_PARTITIONS, CreatePartitionsRequest(wanted, 1000, validate_only=False))
    assert [result.error_code for result in answer.results] == [ErrorCode.INVALID_PARTITIONS] * 2
    assert len(broker.services.replicas.partitions) == 2


def test_the_same_topic_twice_in_a_request(broker: SteeredNode) -> None:
    results = create(broker, CreatableTopic("x", 1, 1), CreatableTopic("x", 1, 1))
    assert [(r.name, r.error_code) for r in results] == [("x", ErrorCode.INVALID_REQUEST)]


@for_each("version", range(1, 7))
def test_delete_in_every_version(broker: SteeredNode, version: int) -> None:
    add_topic(broker)
    names = ["t", "nope"]
    states = [DeleteTopicState(name) for name in names] if version >= 6 else []
    answer = ask(broker, DELETE_TOPICS, DeleteTopicsRequest(states, names, 1000), version)
    assert [(r.name, r.error_code) for r in answer.responses] == [
        ("t", 0),
        ("nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert fetch(broker, 0).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert not (broker.directory / "t-0").exists()


def test_delete_by_id(broker: SteeredNode) -> None:
    topic_id = add_topic(broker)
    states = [
        DeleteTopicState(None, topic_id),
        DeleteTopicState(None, b"\1" * 16),
        DeleteTopicState(None),
        DeleteTopicState("t", topic_id),
    ]
    answer = ask(broker, DELETE_TOPICS, DeleteTopicsRequest(states))
    assert [r.error_code for r in answer.responses] == [
        0, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST,
    ]  # fmt: skip


@for_each("kind", ["name", "id", "both", "unknown"])
def test_a_topic_that_is_named_twice_is_not_deleted(tmp_path: Path, kind: str) -> None:
    broker = open_broker(tmp_path)
    topic_id = add_topic(broker)
    add_topic(broker, "other")
    by_name, by_id = DeleteTopicState("t"), DeleteTopicState(None, topic_id)
    twice = {
        "name": [by_name, by_name],
        "id": [by_id, by_id],
        "both": [by_name, by_id],
        "unknown": [DeleteTopicState("nope"), DeleteTopicState("nope")],
    }[kind]
    answer = ask(broker, DELETE_TOPICS, DeleteTopicsRequest([*twice, DeleteTopicState("other")]))
    refused = [ErrorCode.INVALID_REQUEST] * len({(state.name, state.topic_id) for state in twice})
    assert [r.error_code for r in answer.responses] == [*refused, 0]
    assert list(broker.services.image.topics) == ["t"]


def test_nothing_is_made_or_deleted_where_that_is_switched_off(tmp_path: Path) -> None:
    broker = open_broker(tmp_path, delete_topic_enable="false", auto_create_topics_enable="false")
    assert metadata(broker, "new")[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    add_topic(broker)
    answer = ask(broker, DELETE_TOPICS, DeleteTopicsRequest([DeleteTopicState("t")]))
    assert answer.responses[0].error_code == ErrorCode.TOPIC_DELETION_DISABLED
    assert list(broker.services.image.topics) == ["t"]


def test_topics_grow(broker: SteeredNode) -> None:
    add_topic(broker)
    produce_values(broker, b"a")

    def grow(count: int, *, validate_only: bool = False) -> int:
        request = CreatePartitionsRequest([CreatePartitionsTopic("t", count, None)], 1000, validate_only)
        return ask(broker, CREATE_PARTITIONS, request).results[0].error_code

    assert grow(3, validate_only=True) == 0
    assert len(broker.services.image.topics["t"].partitions) == 1
    assert grow(3) == 0
    assert [grow(n) for n in (3, 2, 0)] == [ErrorCode.INVALID_PARTITIONS] * 3
    produce_values(broker, b"b", partition=2)
    assert [values_of(fetch(broker, 0, partition=n)) for n in range(3)] == [[b"a"], [], [b"b"]]


def test_topics_and_their_settings_are_there_after_a_restart(tmp_path: Path) -> None:
    broker = open_broker(tmp_path)
    topic_id = add_topic(broker, "t", 2, retention_ms="77")
    add_topic(broker, "gone")
    delete_topic(broker, "gone")
    produce_values(broker, b"a", partition=1)
    cluster = broker.services.node.cluster_id
    broker.close()
    broker = open_broker(tmp_path)
    assert broker.services.node.cluster_id == cluster
    assert {name: t.topic_id for name, t in broker.services.image.topics.items()} == {"t": topic_id}
    assert broker.services.image.topic_configs("t") == {"retention.ms": "77"}
    assert broker.services.replicas.find("t", 1).log.config.retention_ms == 77
    assert values_of(fetch(broker, 0, partition=1)) == [b"a"]


# --- configs

TOPIC, BROKER = 2, 4


def described(broker: SteeredNode, resource: int, name: str, **fields: bool) -> DescribeConfigsResult:
    request = DescribeConfigsRequest([DescribeConfigsResource(resource, name, None)], **fields)
    return ask(broker, DESCRIBE_CONFIGS, request).results[0]


def test_where_a_setting_comes_from(tmp_path: Path) -> None:
    broker = open_broker(tmp_path, log_retention_ms="99")
    add_topic(broker, segment_bytes="2000000")
    result = described(broker, TOPIC, "t", include_synonyms=True)
    configs = {c.name: c for c in result.configs}
    for name, value, source in (
        ("segment.bytes", "2000000", ConfigSource.TOPIC_CONFIG),
        ("retention.ms", "99", ConfigSource.STATIC_BROKER_CONFIG),
        ("cleanup.policy", "delete", ConfigSource.DEFAULT_CONFIG),
    ):
        assert (configs[name].value, configs[name].config_source) == (value, source)
    assert [(s.name, s.value) for s in configs["segment.bytes"].synonyms] == [
        ("segment.bytes", "2000000"),
        ("log.segment.bytes", "1073741824"),
    ]
    own = {c.name: c for c in described(broker, BROKER, "1").configs}
    assert own["log.retention.ms"].value == "99"


def test_configs_that_there_are_not(broker: SteeredNode) -> None:
    add_topic(broker)
    assert described(broker, TOPIC, "nope").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert described(broker, TOPIC, "a b").error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert described(broker, BROKER, "7").error_code == ErrorCode.INVALID_REQUEST
    assert described(broker, 99, "t").error_code == ErrorCode.INVALID_REQUEST
    wanted = DescribeConfigsRequest([DescribeConfigsResource(TOPIC, "t", ["retention.ms"])])
    assert [c.name for c in ask(broker, DESCRIBE_CONFIGS, wanted).results[0].configs] == ["retention.ms"]
    wanted = DescribeConfigsRequest([DescribeConfigsResource(TOPIC, "t", [])])
    of_no_keys = ask(broker, DESCRIBE_CONFIGS, wanted).results[0].configs
    assert of_no_keys == described(broker, TOPIC, "t").configs, "all of them"


SET, DELETE, APPEND, SUBTRACT = range(4)


def alter(broker: SteeredNode, *changes: tuple[str, int, str | None], name: str = "t") -> int:
    return ask(broker, INCREMENTAL_ALTER_CONFIGS, changes_of(TOPIC, name, *changes)).responses[0].error_code


def test_settings_change_while_the_log_is_open(broker: SteeredNode) -> None:
    add_topic(broker)
    log = broker.services.replicas.find("t", 0).log
    assert alter(broker, ("max.message.bytes", SET, "100")) == 0
    assert log.config.max_message_bytes == 100
    assert alter(broker, ("max.message.bytes", DELETE, None)) == 0
    assert log.config.max_message_bytes == 1048588
    assert alter(broker, ("cleanup.policy", APPEND, "compact")) == 0
    assert broker.services.image.topic_configs("t") == {"cleanup.policy": "delete,compact"}
    assert alter(broker, ("cleanup.policy", SUBTRACT, "delete")) == 0
    assert broker.services.image.topic_configs("t") == {"cleanup.policy": "compact"}
    assert alter(broker, ("cleanup.policy", SUBTRACT, "compact")) == 0
    assert broker.services.image.topic_configs("t") == {"cleanup.policy": ""}
    assert log.config.cleanup_policy == frozenset(), "which keeps everything"


def test_who_changes_settings_or_adds_partitions_is_logged(
    broker: SteeredNode, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    add_topic(broker)
    caplog.clear()

    def grow(name: str, *, validate_only: bool) -> None:
        wanted = [CreatePartitionsTopic(name, 3, None)]
        ask(broker, CREATE_PARTITIONS, CreatePartitionsRequest(wanted, 1000, validate_only=validate_only))

    for validate_only in (True, False):
        changes = [("retention.ms", SET, "1000"), ("cleanup.policy", DELETE, None)]
        ask(broker, INCREMENTAL_ALTER_CONFIGS, changes_of(TOPIC, "t", *changes, validate_only=validate_only))
        replaced = AlterConfigsRequest([alter_configs.AlterConfigsResource(TOPIC, "nobody")], validate_only)
        ask(broker, ALTER_CONFIGS, replaced)
        grow("t", validate_only=validate_only)
    assert alter(broker, ("retention.ms", SET, "long")) == ErrorCode.INVALID_CONFIG
    grow("nobody", validate_only=False)
    who = "client 'test' at no address"
    assert [record.getMessage() for record in caplog.records if record.levelname == "INFO"] == [
        f"changed settings of topic 't' for {who}: cleanup.policy (removed), retention.ms",
        f"added partitions to topic t, which has 3 now, for {who}",
    ]


def test_a_resource_that_is_named_twice_is_not_altered(broker: SteeredNode) -> None:
    add_topic(broker)
    add_topic(broker, "other")
    resources = [
        ChangedResource(TOPIC, name, [ChangedConfig("max.message.bytes", SET, "100")]) for name in ("t", "other", "t")
    ]
    answer = ask(broker, INCREMENTAL_ALTER_CONFIGS, IncrementalAlterConfigsRequest(resources))
    twice = ErrorCode.INVALID_REQUEST
    assert [response.error_code for response in answer.responses] == [twice, 0, twice]
    assert not broker.services.image.topic_configs("t")
    assert broker.services.image.topic_configs("other") == {"max.message.bytes": "100"}


def test_changes_that_are_refused(broker: SteeredNode) -> None:
    add_topic(broker)
    set_ = ("retention.ms", SET, "1")
    assert alter(broker, ("nope", SET, "1")) == ErrorCode.INVALID_CONFIG
    assert alter(broker, ("retention.ms", SET, "soon")) == ErrorCode.INVALID_CONFIG
    assert alter(broker, ("retention.ms", APPEND, "1")) == ErrorCode.INVALID_CONFIG
    assert alter(broker, ("retention.ms", SET, None)) == ErrorCode.INVALID_REQUEST
    assert alter(broker, ("retention.ms", 9, "1")) == ErrorCode.INVALID_REQUEST
    assert alter(broker, set_, set_) == ErrorCode.INVALID_REQUEST
    assert alter(broker, set_, name="nope") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert broker.services.image.topic_configs("t") == {}


# --- coordinators


@for_each("version", range(7))
def test_this_broker_coordinates_every_group(broker: SteeredNode, version: int) -> None:
    request = FindCoordinatorRequest(key="g") if version < 4 else FindCoordinatorRequest(coordinator_keys=["g", "h"])
    answer = ask(broker, FIND_COORDINATOR, request, version)
    found = [answer] if version < 4 else answer.coordinators
    assert [(c.error_code, c.node_id) for c in found] == [(0, broker.services.node.node_id)] * (1 if version < 4 else 2)
    assert len(broker.services.image.topics["__consumer_offsets"].partitions) == 50
    assert broker.services.image.topic_configs("__consumer_offsets")["cleanup.policy"] == "compact"


def test_the_first_transactional_id_that_is_looked_for_makes_the_topic_of_all(broker: SteeredNode) -> None:
    answer = ask(broker, FIND_COORDINATOR, FindCoordinatorRequest(key_type=1, coordinator_keys=["x"]))
    assert [(c.error_code, c.node_id) for c in answer.coordinators] == [(0, broker.services.node.node_id)]
    assert len(broker.services.image.topics["__transaction_state"].partitions) == 50
    assert broker.services.image.topic_configs("__transaction_state")["cleanup.policy"] == "compact"


def test_nobody_coordinates_share_groups_and_what_there_is_not(broker: SteeredNode) -> None:
    for key_type, code in ((2, ErrorCode.COORDINATOR_NOT_AVAILABLE), (9, ErrorCode.INVALID_REQUEST)):
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["x"])
        assert [c.error_code for c in ask(broker, FIND_COORDINATOR, request).coordinators] == [code]
    assert broker.services.image.topics == {}
