"""Roundabout ways to learn of a topic that one may not describe: they lead nowhere."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.broker.requests.authorizer import Authorizer
from core.broker.requests.client_session import Session
from core.broker.requests.handlers import configs, list_offsets, metadata
from core.broker.requests.request_context import RequestContext
from core.cluster.image.broker_metadata import NewTopic
from core.cluster.image.cluster_member_metadata import NotInformedError
from core.common.config_def import ConfigResourceType
from core.common.error_code import ErrorCode
from core.log.damaged_ranges import UNEXPLAINED_OFFSETS
from core.protocol.schema.configs import DESCRIBE_CONFIGS, DescribeConfigsRequest, DescribeConfigsResource
from core.protocol.schema.consumer_group_heartbeat import (
    CONSUMER_GROUP_HEARTBEAT,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from core.protocol.schema.fetch import FETCH
from core.protocol.schema.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from core.protocol.schema.metadata import (
    DESCRIBE_TOPIC_PARTITIONS,
    METADATA,
    DescribeTopicPartitionsRequest,
    MetadataRequest,
    MetadataRequestTopic,
    TopicRequest,
)
from core.protocol.schema.topic_changes import DELETE_TOPICS, DeleteTopicsRequest, DeleteTopicState
from core.security.acl import (
    DESCRIBE_GROUP_CONFIGS,
    DESCRIBE_TOPIC,
    READ_GROUP,
)
from core.security.acl_rules import AclRules
from core.security.principal import Principal
from tests.support.broker import SteeredNode, add_topic, allow, ask, fetch_request, open_secured_broker, open_session
from tests.support.fake_entry import FakeEntry
from tests.support.member import Member

ALICE = "User:alice"
ROOT = Principal("User", "root")
NO_TOPICS_ID = b"\x11" * 16
REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[SteeredNode]:
    """Alice may describe the topic `seen`, and the settings of the group `hidden`, but not the topic `hidden`."""
    node = open_secured_broker(
        tmp_path, allow(DESCRIBE_TOPIC, ALICE, "seen"), allow(DESCRIBE_GROUP_CONFIGS, ALICE, "hidden")
    )
    yield node
    node.close()


@pytest.mark.parametrize("is_guessed", [True, False])
def test_nobody_learns_which_hidden_topic_has_an_id(broker: SteeredNode, is_guessed: bool) -> None:
    add_topic(broker, "seen")
    topic_id = add_topic(broker, "hidden" if is_guessed else "other")
    both = DeleteTopicsRequest([DeleteTopicState("hidden"), DeleteTopicState(None, topic_id)])
    answer = ask(broker, DELETE_TOPICS, both, session=open_session(broker, ALICE))
    assert [one.error_code for one in answer.responses] == [REFUSED, REFUSED]


def test_a_group_of_a_hidden_topics_name_has_no_segments_checked(
    broker: SteeredNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That takes long if there is such a topic."""
    add_topic(broker, "hidden")
    monkeypatch.setattr(configs, "_look_for_missing", lambda *_: pytest.fail("segments of the topic are checked"))
    asked = DescribeConfigsResource(int(ConfigResourceType.GROUP), "hidden", [UNEXPLAINED_OFFSETS])
    answer = ask(broker, DESCRIBE_CONFIGS, DescribeConfigsRequest([asked]), session=open_session(broker, ALICE))
    assert [(one.error_code, one.configs) for one in answer.results] == [(0, [])]


def test_an_id_that_no_topic_has_is_no_denial(broker: SteeredNode, caplog: pytest.LogCaptureFixture) -> None:
    request = fetch_request(0, "")
    request.topics[0].topic_id = NO_TOPICS_ID
    with caplog.at_level(logging.DEBUG, "plog.authorizer"):
        answer = ask(broker, FETCH, request, session=open_session(broker, ALICE))
    assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert broker.authorizer is not None
    assert (broker.authorizer.denied, caplog.messages) == (0, [])


@pytest.mark.parametrize("name", ["there", "ghost"])
async def test_a_member_that_does_not_know_all_topics_yet_refuses_each_name_alike(tmp_path: Path, name: str) -> None:
    member = Member(tmp_path, FakeEntry())
    member.assign(topic="there")
    member.update(topic="there")
    member.node.services.controller.is_informed = False
    alice, root = (
        Session(Principal("User", who), "", "127.0.0.1", "127.0.0.1", Authorizer(AclRules(super_users=[ROOT])))
        for who in ("alice", ROOT.name)
    )
    named = MetadataRequest([MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    paged = DescribeTopicPartitionsRequest([TopicRequest(name)])
    assert [one.error_code for one in ask(member.node, METADATA, named, 12, alice).topics] == [REFUSED]
    assert [one.error_code for one in ask(member.node, DESCRIBE_TOPIC_PARTITIONS, paged, 0, alice).topics] == [REFUSED]
    if name == "ghost":
        for api, request, version in ((METADATA, named, 12), (DESCRIBE_TOPIC_PARTITIONS, paged, 0)):
            with pytest.raises(NotInformedError):
                ask(member.node, api, request, version, root)  # type: ignore[type-var]
    member.node.close()


@pytest.mark.parametrize("is_named", [True, False])
def test_a_client_without_rights_holds_up_nobody(broker: SteeredNode, is_named: bool) -> None:
    """It may name thousands of topics, or ask for all of as many that it may not see."""
    names = [f"hidden-{number}" for number in range(120)]
    broker.services.controller.create_topics(
        [NewTopic(name, 1) for name in names], default_partitions=1, default_replication=1
    )
    by_name = [MetadataRequestTopic(name=name) for name in names] if is_named else None
    paged = DescribeTopicPartitionsRequest([TopicRequest(name) for name in names] if is_named else [])
    offsets = ListOffsetsRequest(topics=[ListOffsetsTopic(name, [ListOffsetsPartition(0)]) for name in names])
    for handle, request, version in (
        (metadata.handle, MetadataRequest(by_name), 12),
        (metadata.describe_topic_partitions, paged, 0),
        (list_offsets.list_offsets, offsets, 9),
    ):
        context = RequestContext(version, None, open_session(broker, ALICE))
        steps = len(list(handle(broker.services, request, context)))  # type: ignore[operator]
        assert steps == 120 // 50


def test_a_regular_expression_finds_what_one_may_see_by_now(broker: SteeredNode) -> None:
    """Rights that ZooKeeper keeps change without the metadata."""
    topic_id = add_topic(broker, "hidden")
    assert broker.authorizer is not None
    rules, session = broker.authorizer.rules, open_session(broker, ALICE)
    rules.change(added=[allow(READ_GROUP, ALICE, "g")])
    request = ConsumerGroupHeartbeatRequest("g", "a", 0, rebalance_timeout_ms=1000, topic_partitions=[])
    request.subscribed_topic_regex = "h.*"
    answer = ask(broker, CONSUMER_GROUP_HEARTBEAT, request, session=session)
    assert (answer.error_code, _assigned(answer)) == (0, [])
    describe = [allow(DESCRIBE_TOPIC, ALICE, "hidden")]
    for added, removed, found in ((describe, [], [topic_id]), ([], describe, [])):
        rules.change(added=added, removed=removed)
        again = ConsumerGroupHeartbeatRequest("g", "a", answer.member_epoch, rebalance_timeout_ms=-1)
        answer = ask(broker, CONSUMER_GROUP_HEARTBEAT, again, session=session)
        assert _assigned(answer) == found


def _assigned(answer: ConsumerGroupHeartbeatResponse) -> list[bytes]:
    assert answer.assignment is not None
    return [topic.topic_id for topic in answer.assignment.topic_partitions]
