"""Control requests that no controller sends: they are refused, and nothing outside of the data directory is touched."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from core.broker.requests.authorizer import Authorizer
from core.broker.requests.client_session import Session
from core.broker.requests.handlers.produce import UnacknowledgedError
from core.cluster.partition.partition import Role
from core.common.error_code import ErrorCode
from core.common.errors import MalformedMessageError
from core.common.pending import Pending
from core.common.topic_partition import TopicPartition
from core.protocol.frame import encode_request
from core.protocol.message import Api
from core.protocol.schema.cluster_nodes import UPDATE_FEATURES, FeatureUpdateKey, UpdateFeaturesRequest
from core.protocol.schema.control_request import (
    LEADER_AND_ISR,
    STOP_REPLICA,
    UPDATE_METADATA,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from core.protocol.schema.controller_request import (
    ALLOCATE_PRODUCER_IDS,
    ALTER_PARTITION,
    CONTROLLED_SHUTDOWN,
    AllocateProducerIdsRequest,
    AlterPartitionRequest,
    ControlledShutdownRequest,
)
from core.protocol.schema.fetch import FETCH, ReplicaState
from core.protocol.schema.produce import PRODUCE
from core.protocol.schema.reassignments import (
    ALTER_PARTITION_REASSIGNMENTS,
    ELECT_LEADERS,
    LIST_PARTITION_REASSIGNMENTS,
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
    TopicPartitions,
)
from core.protocol.schema.topic_changes import CREATE_TOPICS, CreatableTopic, CreateTopicsRequest
from core.security.acl_rules import ZooKeeperAclRules
from core.security.principal import ANONYMOUS, Principal
from tests.support.broker import PRODUCE_BY_NAME, ask, decode, fetch_request, produce_request, send
from tests.support.for_each import for_each
from tests.support.logs import make_batch
from tests.support.member import ANOTHER_ID, OTHER, TOPIC_ID, US, Member, playing

NO_NAMES = ["../x", "a/b", "", ".", "..", "x\0", "x" * 250, "__cluster_metadata"]
_OF_DELETED_TOPICS = -2
BROKER = Principal("User", "broker")


def folders(directory: Path) -> set[Path]:
    return {path for path in directory.rglob("*") if path.is_dir()}


@for_each("name", NO_NAMES)
async def test_a_name_that_is_no_topics_is_refused(tmp_path: Path, name: str) -> None:
    """Or its folder would be anywhere on the disk: to be made, and to be deleted."""
    async with playing(tmp_path / "outside" / "data") as member:
        for folder in ("outside/x-0", "outside/data/__cluster_metadata-0"):
            (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        before = folders(tmp_path)
        assert member.assign(topic=name) is ErrorCode.INVALID_TOPIC_EXCEPTION
        states = [StopReplicaTopicState(name, [StopReplicaPartitionState(0, _OF_DELETED_TOPICS, True)])]
        answer = ask(member.node, STOP_REPLICA, StopReplicaRequest(OTHER, False, 1, -1, topic_states=states))
        assert answer.partition_errors[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert folders(tmp_path) == before


async def test_a_request_that_contradicts_itself_is_refused(member: Member) -> None:
    first, second = member.assignment(), member.assignment(leader=OTHER, epoch=1)
    for states in (
        [*first.topic_states, *second.topic_states],
        [*first.topic_states, *member.assignment(topic="u").topic_states],
        [LeaderAndIsrTopicState("t", TOPIC_ID, first.topic_states[0].partition_states * 2)],
        member.assignment(-1).topic_states,
    ):
        with pytest.raises(MalformedMessageError, match="a control request has"):
            ask(member.node, LEADER_AND_ISR, LeaderAndIsrRequest(OTHER, False, 1, -1, topic_states=states))
    assert member.role() is None


async def test_two_topics_never_have_the_same_id(member: Member) -> None:
    assert member.assign() is ErrorCode.NONE
    assert member.assign(topic="u") is ErrorCode.INCONSISTENT_TOPIC_ID
    member.update()
    request = UpdateMetadataRequest(OTHER, controller_epoch=1, broker_epoch=-1)
    request.topic_states = [UpdateMetadataTopicState("u", TOPIC_ID)]
    before = member.node.services.image
    with pytest.raises(MalformedMessageError, match="has the id of topic 't' for 'u'"):
        ask(member.node, UPDATE_METADATA, request)
    assert member.node.services.image is before


async def test_a_leader_that_is_not_in_sync_with_itself_is_refused(member: Member) -> None:
    request = member.assignment()
    request.topic_states[0].partition_states[0].isr = [OTHER]
    answer = ask(member.node, LEADER_AND_ISR, request)
    assert answer.topics[0].partition_errors[0].error_code == ErrorCode.INVALID_REQUEST
    assert member.role(TopicPartition("t", 0)) is None
    assert member.assign() is ErrorCode.NONE
    assert member.role() is Role.LEADING


@pytest.mark.parametrize(
    ("listener", "code"), [("CLIENT", ErrorCode.TOPIC_AUTHORIZATION_FAILED), ("PLAINTEXT", ErrorCode.NONE)]
)
async def test_a_client_that_says_to_be_a_replica_is_refused(member: Member, listener: str, code: ErrorCode) -> None:
    """What it says it has would be committed: it comes to a listener that replicas do not come to."""
    member.assign()
    partition = member.node.services.replicas.find("t", 0)
    partition.append(make_batch(b"a"), required_acks=1)
    request = fetch_request(1, max_wait_ms=500)
    request.topics[0].topic_id = TOPIC_ID
    request.replica_state = ReplicaState(OTHER, -1)
    frame = memoryview(bytearray(encode_request(FETCH, FETCH.versions.last, 77, "test", request)))[4:]
    answer = member.node.dispatcher.handle(frame, Session(ANONYMOUS, listener))
    if code is ErrorCode.NONE:
        assert isinstance(answer, Pending)
        answer.complete_now()
    else:
        assert answer is not None
        assert not isinstance(answer, Pending)
        (data,) = decode(FETCH, answer, FETCH.versions.last).responses[0].partitions
        assert data.error_code == code
    assert partition.log.high_watermark == (1 if code is ErrorCode.NONE else 0)


@pytest.mark.parametrize(
    ("api", "request_"),
    [
        (LEADER_AND_ISR, LeaderAndIsrRequest()),
        (ALTER_PARTITION, AlterPartitionRequest(OTHER, 1)),
        (ALLOCATE_PRODUCER_IDS, AllocateProducerIdsRequest(OTHER, 1)),
        (CONTROLLED_SHUTDOWN, ControlledShutdownRequest(OTHER, -1)),
    ],
    ids=lambda one: getattr(one, "name", ""),
)
async def test_what_brokers_say_is_heard_on_their_listener_alone(
    member: Member, api: Api[Any, Any], request_: Any
) -> None:
    """A client could take partitions from their leaders by it."""
    frame = memoryview(bytearray(encode_request(api, api.versions.last, 77, "test", request_)))[4:]
    with pytest.raises(MalformedMessageError, match="came to listener CLIENT"):
        member.node.dispatcher.handle(frame, Session(ANONYMOUS, "CLIENT"))


@pytest.mark.parametrize(
    ("who", "has_authorizer", "is_heard"),
    [(BROKER, True, True), (BROKER, False, False), (ANONYMOUS, True, False)],
)
async def test_a_broker_that_is_known_by_name_may_come_by_any_listener(
    member: Member, who: Principal, *, has_authorizer: bool, is_heard: bool
) -> None:
    """As with Kafka, so that a cluster can change its listener for brokers one broker after the other."""
    authorizer = Authorizer(ZooKeeperAclRules(super_users=[BROKER, ANONYMOUS])) if has_authorizer else None
    session = Session(who, "CLIENT", authorizer=authorizer)
    asked = AllocateProducerIdsRequest(OTHER, 1)
    frame = memoryview(bytearray(encode_request(ALLOCATE_PRODUCER_IDS, 0, 77, "test", asked)))[4:]
    if not is_heard:
        with pytest.raises(MalformedMessageError, match="came to listener CLIENT"):
            member.node.dispatcher.handle(frame, session)
        return
    answer = member.node.dispatcher.handle(frame, session)
    assert answer is not None
    assert not isinstance(answer, Pending)
    assert decode(ALLOCATE_PRODUCER_IDS, answer, 0).error_code == ErrorCode.NOT_CONTROLLER


async def test_who_is_not_the_controller_says_so(member: Member) -> None:
    member.update()
    a_partition = ElectLeadersRequest(0, [TopicPartitions("t", [0])])
    for api, request, version, error_of in (
        (ALTER_PARTITION, AlterPartitionRequest(OTHER, 1), 3, None),
        (ALLOCATE_PRODUCER_IDS, AllocateProducerIdsRequest(OTHER, 1), 0, None),
        (CONTROLLED_SHUTDOWN, ControlledShutdownRequest(OTHER, -1), 3, None),
        (ALTER_PARTITION_REASSIGNMENTS, AlterPartitionReassignmentsRequest(), 0, None),
        (LIST_PARTITION_REASSIGNMENTS, ListPartitionReassignmentsRequest(1000, None), 0, None),
        (UPDATE_FEATURES, UpdateFeaturesRequest(feature_updates=[FeatureUpdateKey("group.version", 1)]), 2, None),
        (ELECT_LEADERS, ElectLeadersRequest(0, None), 2, None),
        (ELECT_LEADERS, a_partition, 2, lambda answer: answer.replica_election_results[0].partition_result[0]),
        (CREATE_TOPICS, CreateTopicsRequest([CreatableTopic("new", 1, 1)]), 7, lambda answer: answer.topics[0]),
    ):
        answer: Any = ask(member.node, api, request, version)  # type: ignore[type-var]
        refused = error_of(answer) if error_of is not None else answer
        assert refused.error_code == ErrorCode.NOT_CONTROLLER, (api.name, request)


# --- at random


class Dice:
    """Control requests whose fields fit together by chance alone."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def one_of(self, *choices: object) -> object:
        return self._random.choice(choices)

    def some(self, *choices: int) -> list[int]:
        return self._random.sample(choices, self._random.randrange(len(choices) + 1))

    def state(self, kind: type, name: str) -> object:
        replicas = self.some(US, OTHER, 6, -1)
        isr = [one for one in replicas if self.one_of(True, False)]
        leader = self.one_of(US, US, OTHER, 6, -1, -2, 77)
        epoch = self.one_of(*range(12), -1, 2**31 - 1)
        number = self.one_of(0, 0, 1, 1, 2, 1_000_000)
        return kind(name, number, 1, leader, epoch, isr, self.one_of(*range(6)), replicas)

    def leader_and_isr(self) -> LeaderAndIsrRequest:
        states = [
            LeaderAndIsrTopicState(name, self.topic_id(), [self.state(LeaderAndIsrPartitionState, name)])  # type: ignore[list-item]
            for name in self._random.sample("tuv", 2)
        ]
        return LeaderAndIsrRequest(OTHER, False, 1, -1, topic_states=states)

    def topic_id(self) -> bytes:
        return self._random.choice((TOPIC_ID, ANOTHER_ID, bytes(15) + b"\7"))

    def stop_replica(self) -> StopReplicaRequest:
        state = StopReplicaPartitionState(self.one_of(0, 1, 2), self.one_of(-1, -2, 0, 5), self.one_of(True, False))  # type: ignore[arg-type]
        states = [StopReplicaTopicState(self._random.choice("tuv"), [state])]
        return StopReplicaRequest(OTHER, False, 1, -1, topic_states=states)

    def update_metadata(self) -> UpdateMetadataRequest:
        states = [
            UpdateMetadataTopicState(name, self.topic_id(), [self.state(UpdateMetadataPartitionState, name)])  # type: ignore[list-item]
            for name in self._random.sample("tuv", 2)
        ]
        endpoint = UpdateMetadataEndpoint(1, "127.0.0.1", "PLAINTEXT", 0)
        brokers = [UpdateMetadataBroker(one, endpoints=[endpoint]) for one in self.some(US, OTHER, 6)]
        return UpdateMetadataRequest(
            OTHER, controller_epoch=1, broker_epoch=-1, topic_states=states, live_brokers=brokers
        )


@for_each("seed", range(12))
async def test_whatever_a_controller_says_the_broker_stays_sound(tmp_path: Path, seed: int) -> None:
    async with playing(tmp_path) as member:
        dice = Dice(seed)
        for _ in range(30):
            try:
                match dice.one_of("assign", "assign", "stop", "update", "produce"):
                    case "assign":
                        ask(member.node, LEADER_AND_ISR, dice.leader_and_isr())
                    case "stop":
                        ask(member.node, STOP_REPLICA, dice.stop_replica())
                    case "update":
                        ask(member.node, UPDATE_METADATA, dice.update_metadata())
                    case _:
                        for name in list(member.node.services.replicas.partitions):
                            send(member.node, PRODUCE, produce_request(make_batch(b"v"), *name), PRODUCE_BY_NAME)
            except (MalformedMessageError, UnacknowledgedError):
                pass
            for partition in member.node.services.replicas.partitions.values():
                partition.check_invariants()
                partition.log.check_invariants()
            member.membership._fetchers.check_invariants()
