"""What a secured Kafka answers while things go on: members in groups, long polls, and rights that are taken away.

The steps of the capture are in its order; the deviations name those that are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from core.broker.requests.handlers.produce import UnacknowledgedError
from core.common.pending import Pending
from tests.support.broker import add_topic, allow
from tests.support.raw_sasl_client import RawClient, delete_user, sasl_server, set_users, upsertion
from tests.support.security_captures import (
    ADMIN,
    Difference,
    Fields,
    SecuredBroker,
    assert_explained,
    capture,
    captured_ids,
    differences,
    matrix,
    principal,
    right_acls,
    right_of,
)

LATEST = {
    "Metadata": 13, "CreateTopics": 7, "ListGroups": 5, "DescribeCluster": 2, "ConsumerGroupDescribe": 1,
    "DescribeGroups": 6, "ConsumerGroupHeartbeat": 1, "JoinGroup": 9, "SyncGroup": 5, "Fetch": 18, "Produce": 13,
    "ListOffsets": 11, "DeleteRecords": 2, "OffsetFetch": 9, "OffsetCommit": 9, "SaslHandshake": 1,
    "SaslAuthenticate": 2,
}  # fmt: skip
"""The versions of the capture."""
SUBSCRIPTION = "000100000001000174ffffffff"
ASSIGNMENT = "000100000001000174000000010000000000000000"
NO_ID = "0" * 32
TOPIC_IDS = {name: topic_id for topic_id, name in captured_ids().items()}
CAROL = "carol"


class Live(SecuredBroker):
    """Collects where its answers differ from the captured ones."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, right_acls().values())
        self.found: dict[str, list[Difference]] = {}
        for name in ("t", "secret"):
            add_topic(self.node, name, 2)

    def say(self, user: str, api: str, version: int | None = None, **fields: Any) -> Fields:
        return self.ask(user, api, LATEST[api] if version is None else version, fields)

    def produce(self, user: str) -> Fields:
        return self.say(user, "Produce", **matrix()["Produce 13, there"].request)

    def fetch(self, user: str, session_id: int, epoch: int, *topics: str) -> Fields:
        """From offset 0."""
        return self.say(user, "Fetch", **fetch_fields(0, *topics, SessionId=session_id, SessionEpoch=epoch))

    def compare(self, step: str, user: str, ours: Fields, theirs: Fields) -> None:
        self.found.setdefault(step, []).extend(differences(user, ours, theirs))

    def check(self) -> None:
        assert_explained("live", self.found)


def fetch_fields(offset: int, *topics: str, **fields: Any) -> Fields:
    wanted = [{"Partition": 0, "FetchOffset": offset, "PartitionMaxBytes": 100}]
    by_name = [{"TopicId": TOPIC_IDS[topic], "Partitions": wanted} for topic in topics]
    return {"MaxWaitMs": 0, "MinBytes": 0, "MaxBytes": 1000, "Topics": by_name, **fields}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Live]:
    live = Live(tmp_path)
    yield live
    live.close()


def test_what_anonymous_clients_get(broker: Live) -> None:
    user = "ANONYMOUS"
    theirs = capture("live")["anonymous at PLAINTEXT"]
    new_topic = {"Name": "anon", "NumPartitions": 1, "ReplicationFactor": 1}
    asked: dict[str, Fields] = {
        "Metadata": {"Topics": [{"Name": "t", "TopicId": NO_ID}]},
        "CreateTopics": {"Topics": [new_topic], "timeoutMs": 1000},
        "ListGroups": {},
        "DescribeCluster": {},
        "SaslHandshake": {"Mechanism": "PLAIN"},
        "SaslAuthenticate": {"AuthBytes": b""},
    }
    for api, fields in asked.items():
        broker.compare(f"{api}, anonymous", user, broker.say(user, api, **fields), theirs[api])
    assert theirs.keys() == asked.keys()
    broker.check()


async def test_a_connection_outlives_its_users_credential(tmp_path: Path) -> None:
    async with sasl_server(tmp_path) as running:
        set_users(running.broker, upsertion("temporary", "pw"))
        client = await RawClient.connect(running.port)
        assert (await client.scram("temporary", "pw"))["ErrorCode"] == 0
        delete_user(running.broker, "temporary")
        answer = await client.ask("Metadata", 13, {"Topics": []})
        assert answer["ErrorCode"] == capture("live")["connection whose SCRAM credential was deleted: Metadata"]
        again = await RawClient.connect(running.port)
        assert (await again.scram("temporary", "pw"))["ErrorCode"] == 58


def test_what_is_shown_of_groups_with_members(broker: Live) -> None:
    broker.say(ADMIN, "OffsetCommit", **matrix()["OffsetCommit 9, there"].request)
    member = {"GroupId": "live", "MemberId": "A" * 22, "MemberEpoch": 0, "RebalanceTimeoutMs": 60000}
    broker.say(ADMIN, "ConsumerGroupHeartbeat", **member, TopicPartitions=[], SubscribedTopicNames=["t", "secret"])
    join = {
        "GroupId": "classic", "SessionTimeoutMs": 30000, "RebalanceTimeoutMs": 30000, "ProtocolType": "consumer",
        "Protocols": [{"Name": "range", "Metadata": SUBSCRIPTION}],
    }  # fmt: skip
    member_id = broker.say(ADMIN, "JoinGroup", **join)["MemberId"]
    joined = broker.say(ADMIN, "JoinGroup", **join, MemberId=member_id)
    broker.say(
        ADMIN, "SyncGroup", GroupId="classic", GenerationId=joined["GenerationId"], MemberId=member_id,
        ProtocolType="consumer", ProtocolName="range",
        Assignments=[{"MemberId": member_id, "Assignment": ASSIGNMENT}],
    )  # fmt: skip
    asked: dict[str, Fields] = {
        "ConsumerGroupDescribe": {"GroupIds": ["live"], "IncludeAuthorizedOperations": True},
        "DescribeGroups": {"Groups": ["classic"], "IncludeAuthorizedOperations": True},
        "ListGroups": {},
        "OffsetFetch": {"Groups": [{"GroupId": "g", "Topics": None}]},
    }
    for user in ("Group-Describe", "Topic-Describe", ADMIN, "none"):
        theirs = capture("live")[f"groups with members, as {user}"]
        for api, fields in asked.items():
            step = api if api in theirs else f"{api} all"
            broker.compare(step, user, broker.say(user, api, **fields), theirs[step])
    broker.check()


def test_a_regular_expression_finds_what_the_member_may_describe(broker: Live) -> None:
    for user in ("Group-Read", ADMIN):
        epoch = 0
        for number, theirs in enumerate(capture("live")[f"regular expression, as {user}"]):
            first = {"RebalanceTimeoutMs": 60000, "TopicPartitions": [], "SubscribedTopicRegex": "t|secret"}
            later = {"RebalanceTimeoutMs": -1, "TopicPartitions": None}
            ours = broker.say(
                user, "ConsumerGroupHeartbeat", GroupId=f"re.{user}", MemberId="B" * 22, MemberEpoch=epoch,
                **(later if epoch else first),
            )  # fmt: skip
            epoch = ours["MemberEpoch"]
            broker.compare(f"regular expression, heartbeat {number + 1}", user, ours, theirs)
    broker.check()


@pytest.mark.parametrize("user", ["Cluster-Describe", "Cluster-Alter", "none", ADMIN])
def test_the_operations_on_the_cluster_are_shown_to_those_who_may_describe_it(user: str, broker: Live) -> None:
    described = broker.say(user, "DescribeCluster", IncludeClusterAuthorizedOperations=True)
    told = broker.say(user, "Metadata", 10, Topics=[], IncludeClusterAuthorizedOperations=True)
    theirs = capture("live")[f"authorised operations of the cluster, as {user}"]
    assert described["ClusterAuthorizedOperations"] == theirs["DescribeCluster"]
    assert told["ClusterAuthorizedOperations"] == theirs["Metadata v10"]


def test_a_right_that_is_taken_away_holds_from_the_next_request(broker: Live) -> None:
    theirs = dict(capture("live")["permissions that change"])
    for _ in range(10):
        broker.produce(ADMIN)
    before = [{"Name": "t", "Partitions": [{"PartitionIndex": 0, "Offset": 9}]}]
    broker.say(ADMIN, "DeleteRecords", Topics=before, TimeoutMs=1000)
    acls = [allow(right_of(right), str(principal(CAROL))) for right in ("Topic-Read", "Topic-Write")]
    for acl in acls:
        broker.rules.change(added=[acl])

    def compare(step: str, ours: Fields) -> None:
        broker.compare(step, CAROL, ours, theirs.pop(step))

    started = broker.fetch(CAROL, 0, 0, "t", "secret")
    session_id = started["SessionId"]
    compare("epoch 0: t and secret", started)
    compare("epoch 1", broker.fetch(CAROL, session_id, 1))
    compare("produce", broker.produce(CAROL))
    long_poll = fetch_fields(11, "t", SessionId=0, SessionEpoch=-1, MaxWaitMs=3000, MinBytes=1)
    waiting = broker.send(CAROL, "Fetch", LATEST["Fetch"], long_poll)
    assert isinstance(waiting, Pending)
    arrived: list[Any] = []
    waiting.on_value = arrived.append
    for acl in acls:
        broker.rules.change(removed=[acl])
    broker.produce(ADMIN)
    (pieces,) = arrived
    answered = broker.decode("Fetch", LATEST["Fetch"], pieces)
    compare("long poll begun before the ACL went, a record came after", answered)
    assert answered["Responses"][0]["Partitions"][0]["HighWatermark"] == 12
    compare("epoch 2, ACL gone", broker.fetch(CAROL, session_id, 2))
    compare("epoch 3", broker.fetch(CAROL, session_id, 3))
    compare("produce, ACL gone", broker.produce(CAROL))
    assert theirs == {"acks=0 unauthorised, then Metadata": {"closed": "closed"}}
    with pytest.raises(UnacknowledgedError):  # which closes the connection
        broker.say(CAROL, "Produce", **{**matrix()["Produce 13, there"].request, "Acks": 0})
    broker.check()
