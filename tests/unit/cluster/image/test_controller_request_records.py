"""What UpdateMetadata makes of an image, beside a plain model of it; and which control requests are let through."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from core.cluster.image.cluster_member_metadata import LOST_DIRECTORY, ControlFence, records_of_update
from core.cluster.image.metadata_delta import MetadataDelta
from core.cluster.image.metadata_image import MetadataImage
from core.common.error_code import ErrorCode
from core.protocol.frame import Endpoint
from core.protocol.schema.control_request import (
    UPDATE_METADATA,
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from tests.golden.test_between_brokers import SAMPLES
from tests.support.for_each import for_each


def updated(image: MetadataImage, request: UpdateMetadataRequest) -> MetadataImage:
    image = MetadataDelta(image).replay(records_of_update(request, image)).apply()
    image._check_invariants()
    return image


def captured(name: str) -> tuple[UpdateMetadataRequest, dict[str, Any]]:
    """A request of a real controller's, and its fields by Kafka's names."""
    sample = next(sample for sample in SAMPLES if sample.name == name)
    _, request = Endpoint(UPDATE_METADATA, sample.version).decode_request(memoryview(bytes.fromhex(sample.hex)))
    return request, sample.body


@for_each("name", ["UpdateMetadata-v8-request", "UpdateMetadata-v8-request-partitions"])
def test_requests_of_a_real_controller(name: str) -> None:
    request, body = captured(name)
    image = updated(MetadataImage(), request)
    listeners = {
        broker["Id"]: [(e["Listener"], e["Host"], e["Port"], e["SecurityProtocol"]) for e in broker["Endpoints"]]
        for broker in body["LiveBrokers"]
    }
    assert listeners == {
        broker.broker_id: [(e.name, e.host, e.port, e.security_protocol) for e in broker.end_points]
        for broker in image.brokers.values()
    }
    assert not any(broker.fenced for broker in image.brokers.values())
    told = {
        (topic["TopicName"], state["PartitionIndex"]): (
            state["Leader"], state["LeaderEpoch"], state["Isr"], state["ZkVersion"], state["Replicas"]
        )
        for topic in body["TopicStates"]
        for state in topic["PartitionStates"]
    }  # fmt: skip
    assert told == {
        (topic.name, number): (p.leader, p.leader_epoch, p.isr, p.partition_epoch, p.replicas)
        for topic in image.topics.values()
        for number, p in topic.partitions.items()
    }
    assert records_of_update(request, image) == [], "all of it is known"


def test_a_topic_that_a_real_controller_deletes() -> None:
    request, body = captured("UpdateMetadata-v8-request-topic-deleted")
    (deleted,) = request.topic_states
    before = UpdateMetadataRequest(
        live_brokers=request.live_brokers,
        topic_states=[
            UpdateMetadataTopicState(
                deleted.topic_name,
                deleted.topic_id,
                [partition_state(s.partition_index) for s in deleted.partition_states],
            )
        ],
    )
    image = updated(MetadataImage(), before)
    assert deleted.topic_name in image.topics
    assert body["TopicStates"][0]["PartitionStates"][0]["Leader"] == -2
    assert updated(image, request).topics == {}


def partition_state(number: int, leader: int = 1, epoch: int = 0, isr: tuple[int, ...] = (1, 2)) -> Any:
    return UpdateMetadataPartitionState(
        partition_index=number, leader=leader, leader_epoch=epoch, isr=list(isr), zk_version=epoch, replicas=[1, 2, 3]
    )


def test_replicas_whose_disk_failed_are_known() -> None:
    state = partition_state(0)
    state.offline_replicas = [2]
    image = updated(
        MetadataImage(), UpdateMetadataRequest(topic_states=[UpdateMetadataTopicState("t", b"1" * 16, [state])])
    )
    partition = image.topics["t"].partitions[0]
    lost = [directory == LOST_DIRECTORY for directory in partition.directories]
    assert dict(zip(partition.replicas, lost, strict=True)) == {1: False, 2: True, 3: False}


# --- any sequence of requests, beside a model


@dataclass
class Model:
    """Dicts that each request writes over, as Kafka's metadata cache is documented to."""

    brokers: dict[int, int] = field(default_factory=dict)
    topics: dict[str, tuple[bytes, dict[int, tuple[int, int]]]] = field(default_factory=dict)

    def update(self, request: UpdateMetadataRequest) -> None:
        self.brokers = {broker.id: broker.endpoints[0].port for broker in request.live_brokers}
        for topic in request.topic_states:
            if any(state.leader == -2 for state in topic.partition_states):
                self.topics.pop(topic.topic_name, None)
                continue
            if topic.topic_name not in self.topics or self.topics[topic.topic_name][0] != topic.topic_id:
                self.topics[topic.topic_name] = topic.topic_id, {}
            for state in topic.partition_states:
                self.topics[topic.topic_name][1][state.partition_index] = state.leader, state.leader_epoch


LIVE_BROKERS = st.dictionaries(st.integers(0, 4), st.integers(1, 3), max_size=4).map(
    lambda ports: [
        UpdateMetadataBroker(n, endpoints=[UpdateMetadataEndpoint(p, "h", "L", 0)]) for n, p in ports.items()
    ]
)
STATES = st.dictionaries(st.integers(0, 3), st.tuples(st.sampled_from([-2, -1, 1, 2]), st.integers(0, 5)), min_size=1)
TOPICS = st.dictionaries(
    st.sampled_from(["a", "b", "c"]), st.tuples(st.sampled_from([b"1", b"2"]), STATES), max_size=3
).map(
    lambda topics: [
        UpdateMetadataTopicState(
            name,
            (name.encode() + number) * 8,
            [partition_state(n, leader, epoch) for n, (leader, epoch) in states.items()],
        )
        for name, (number, states) in topics.items()
    ]
)
REQUESTS = st.lists(st.builds(UpdateMetadataRequest, live_brokers=LIVE_BROKERS, topic_states=TOPICS), max_size=8)


@given(REQUESTS)
def test_any_requests_make_the_image_that_they_say(requests: list[UpdateMetadataRequest]) -> None:
    image, model = MetadataImage(), Model()
    for request in requests:
        image = updated(image, request)
        model.update(request)
        assert {n: broker.end_points[0].port for n, broker in image.brokers.items()} == model.brokers
        assert {
            name: (topic.topic_id, {n: (p.leader, p.leader_epoch) for n, p in topic.partitions.items()})
            for name, topic in image.topics.items()
        } == model.topics
        assert {topic_id: topic.name for topic_id, topic in image.topics_by_id.items()} == {
            topic_id: name for name, (topic_id, _) in model.topics.items()
        }
        assert records_of_update(request, image) == []


# --- the fence


def test_requests_of_an_earlier_controller_or_for_an_earlier_life_are_refused() -> None:
    fence = ControlFence()
    fence.broker_epoch = 50
    assert fence.find_error(3, 50) is None
    assert fence.find_error(2, 50) is ErrorCode.STALE_CONTROLLER_EPOCH
    assert fence.find_error(4, 49) is ErrorCode.STALE_BROKER_EPOCH
    assert fence.controller_epoch == 3, "a request that is refused says nothing of who is the controller"
    assert fence.find_error(3, 51) is None, "the controller may know of the registration first"
    assert fence.find_error(3, -1) is None, "senders before KIP-380 name no epoch"
    assert fence.find_error(5, 50) is None
    assert fence.find_error(4, 50) is ErrorCode.STALE_CONTROLLER_EPOCH
