"""DescribeCluster, DescribeLogDirs, DescribeQuorum, ElectLeaders, UpdateFeatures, DescribeProducers."""

from __future__ import annotations

from collections.abc import Iterable

from tests.support.answers.asked_broker import AskedBroker
from tests.support.answers.message_codec import Fields, versions_of
from tests.support.answers.scenarios.registry import scenario

PREFERRED, UNCLEAN = 0, 1
_QUORUM_MOVES = {"HighWatermark", "LogEndOffset", "LeaderEpoch", "LastCaughtUpTimestamp", "LastFetchTimestamp"}


@scenario
def cluster(broker: AskedBroker) -> None:
    for endpoint_type in (0, 1, 2, 3, -1):
        fields = {"EndpointType": endpoint_type, "IncludeClusterAuthorizedOperations": True}
        broker.ask_each(f"endpoint type {endpoint_type}", "DescribeCluster", **fields)
    for name, partitions in (("__cluster_metadata", [0]), ("__cluster_metadata", [1]), ("nope", [0]), ("", [0])):
        asked = [{"TopicName": name, "Partitions": [{"PartitionIndex": index} for index in partitions]}]
        broker.ask_each(f"quorum of {name!r} {partitions}", "DescribeQuorum", pick=_without_moves, Topics=asked)
    broker.ask_each("quorum of nothing", "DescribeQuorum", Topics=[])


def _without_moves(answer: Fields) -> Fields:
    """Where the log of the metadata stands just now is not compared."""

    def still(value: object) -> object:
        if isinstance(value, dict):
            return {name: still(each) for name, each in value.items() if name not in _QUORUM_MOVES}
        return [still(each) for each in value] if isinstance(value, list) else value

    return {name: still(value) for name, value in answer.items()}


@scenario
def log_directories(broker: AskedBroker) -> None:
    topic = broker.create_topic("directories", 2).name

    def sizes(answer: Fields) -> Fields:
        names = ("TotalBytes", "UsableBytes")
        return {
            **answer,
            "Results": [
                {**each, **{name: each[name] > 0 for name in names if name in each}} for each in answer["Results"]
            ],
        }

    for step, topics in {
        "one": [(topic, [0, 1])],
        "one partition": [(topic, [0])],
        "unknown partition": [(topic, [9])],
        "unknown": [("no-such-topic", [0])],
        "none": [],
        "twice": [(topic, [0, 1]), (topic, [0, 1])],
        "no partitions": [(topic, [])],
    }.items():
        asked = [{"Topic": name, "Partitions": partitions} for name, partitions in topics]
        broker.ask_each(step, "DescribeLogDirs", Topics=asked, pick=sizes)


@scenario
def elections(broker: AskedBroker) -> None:
    topic = broker.create_topic("elected", 2).name

    def own(answer: Fields) -> Fields:
        results = [each for each in answer["ReplicaElectionResults"] if each["Topic"] == topic]
        return {**answer, "ReplicaElectionResults": results}

    for kind in (PREFERRED, UNCLEAN, 2, -1):
        for step, topics in {
            "one": [(topic, [0])],
            "unknown partition": [(topic, [9])],
            "unknown": [("no-such-topic", [0])],
            "none": [],
            "twice": [(topic, [0, 0])],
            "no partitions": [(topic, [])],
        }.items():
            asked = [{"Topic": name, "Partitions": partitions} for name, partitions in topics]
            fields = {"ElectionType": kind, "TopicPartitions": asked, "TimeoutMs": 3000}
            versions = versions_of("ElectLeaders", 0 if kind == PREFERRED else 1)
            broker.ask_each(f"{step}, type {kind}", "ElectLeaders", versions, **fields)
        broker.ask(
            f"all, type {kind}", "ElectLeaders", pick=own, ElectionType=kind, TopicPartitions=None, TimeoutMs=3000
        )
    for step, topics in {"all": None, "one": [(topic, [0])], "unknown": [("no-such-topic", [0])], "none": []}.items():
        asked = None if topics is None else [{"Name": name, "PartitionIndexes": indexes} for name, indexes in topics]
        broker.ask(f"reassignments of {step}", "ListPartitionReassignments", Topics=asked, TimeoutMs=3000)


@scenario
def features(broker: AskedBroker) -> None:
    def ask(step: str, *updates: tuple[str, int, int], version: int = 2) -> None:
        asked = [
            {"Feature": name, "MaxVersionLevel": level, "AllowDowngrade": kind > 1, "UpgradeType": kind}
            for name, level, kind in updates
        ]
        fields = {"timeoutMs": 3000, "FeatureUpdates": asked, "ValidateOnly": True}
        broker.ask(step, "UpdateFeatures", version, **fields)

    for version in (1, 2):
        for name in ("metadata.version", "group.version", "transaction.version", "nope", ""):
            for level in (-1, 0, 1, 2, 3, 30, 100):
                for kind in (0, 1, 2, 3, 4):
                    ask(f"{name} to {level}, type {kind}", (name, level, kind), version=version)
        ask("two", ("group.version", 1, 1), ("transaction.version", 2, 1), version=version)
        ask("one good and one bad", ("group.version", 1, 1), ("nope", 2, 1), version=version)
        ask("one twice", ("group.version", 1, 1), ("group.version", 1, 1), version=version)
        ask("none", version=version)


@scenario
def describe_producers(broker: AskedBroker) -> None:
    topic = broker.create_topic("without-producers", 2).name
    for step, topics in {
        "one": [(topic, [0, 1])],
        "unknown partitions": [(topic, [9, -1])],
        "unknown": [("no-such-topic", [0])],
        "invalid": [("a b", [0]), ("", [0])],
        "twice": [(topic, [0]), (topic, [1])],
        "none": [],
        "no partitions": [(topic, [])],
    }.items():
        asked = [{"Name": name, "PartitionIndexes": partitions} for name, partitions in topics]
        broker.ask(step, "DescribeProducers", Topics=asked)


@scenario
def quotas_and_users(broker: AskedBroker) -> None:
    """Of a broker that has neither."""
    filters = {
        "users": [("user", 2, None)],
        "one user": [("user", 0, "ann")],
        "one user, no name": [("user", 0, None)],
        "the default, a name": [("user", 1, "ann")],
        "any, a name": [("user", 2, "ann")],
        "no type": [("", 2, None)],
        "another type": [("nope", 2, None)],
        "another type twice": [("nope", 2, None), ("nope", 2, None)],
        "one type twice": [("user", 2, None), ("user", 1, None)],
        "an address": [("ip", 0, "127.0.0.1")],
        "an address of a user": [("ip", 2, None), ("user", 2, None)],
        "a match of no kind": [("user", 3, None)],
        "a client of a user": [("user", 2, None), ("client-id", 2, None)],
    }
    for step, components in filters.items():
        asked = [{"EntityType": kind, "MatchType": match, "Match": name} for kind, match, name in components]
        broker.ask(step, "DescribeClientQuotas", Components=asked)
    for step, users in {
        "all": None,
        "none": [],
        "two": ["ann", "bob"],
        "twice": ["ann", "ann"],
        "no name": [""],
    }.items():
        asked_users = None if users is None else [{"Name": name} for name in users]
        broker.ask(step, "DescribeUserScramCredentials", Users=asked_users)
    for controller_id in (broker.id, -1, 99):
        name = "itself" if controller_id == broker.id else f"{controller_id}"
        broker.ask(f"controller {name}", "UnregisterController", ControllerId=controller_id)


@scenario
def scram_users(broker: AskedBroker) -> None:
    """All that are made are deleted."""
    name, odd = "sue", "sue=,\0\u20ac"
    key: Fields = {"Mechanism": 1, "Salt": b"s" * 16, "SaltedPassword": b"p" * 32, "Iterations": 4096}

    def alter(step: str, upserted: Iterable[Fields] = (), deleted: Iterable[tuple[str, int]] = ()) -> None:
        deletions = [{"Name": user, "Mechanism": mechanism} for user, mechanism in deleted]
        upsertions = [{"Name": name, **key, **changes} for changes in upserted]
        broker.ask(step, "AlterUserScramCredentials", Deletions=deletions, Upsertions=upsertions)

    def show(step: str, *names: str) -> None:
        broker.ask(step, "DescribeUserScramCredentials", Users=[{"Name": each} for each in names])

    alter("nobody")
    alter("the first", [{}])
    alter("the other mechanism, and another user", [{"Mechanism": 2, "Iterations": 16384}, {"Name": odd}])
    show("all that there are", name, odd, "")
    for step, changes in {
        "mechanism 0": {"Mechanism": 0},
        "mechanism 3": {"Mechanism": 3},
        "a mechanism and no name": {"Mechanism": 3, "Name": ""},
        "no name, few iterations": {"Name": "", "Iterations": 1},
        "few iterations": {"Iterations": 4095},
        "many iterations": {"Iterations": 16385},
        "no salt": {"Name": name + "2", "Salt": b""},
        "no salted password": {"Name": name + "3", "SaltedPassword": b""},
        "a short salted password": {"Name": name + "3", "SaltedPassword": b"p"},
    }.items():
        alter(step, [changes])
    alter("twice, and another", [{}, {}, {"Name": name + "4"}])
    alter("with two mechanisms", [{}, {"Mechanism": 2}])
    alter("one too weak, and again", [{"Iterations": 1}, {}])
    alter("deleted and set", [{}], [(name, 1)])
    alter("deleted twice", deleted=[(name, 1), (name, 2)])
    alter("deleted three times", deleted=[(name, 1), (name, 2), (name, 1)])
    alter("deleted of another mechanism", deleted=[(name + "2", 2), (name + "2", 9), ("", 1)])
    show("what is left", name, *(f"{name}{number}" for number in range(2, 5)))
    alter("all deleted", deleted=[(name, 1), (odd, 1), (name + "2", 1), (name + "3", 1), (name + "4", 1)])
    alter("the other mechanism deleted", deleted=[(name, 2)])
    show("what is gone", name, odd)


@scenario
def acls(broker: AskedBroker) -> None:
    """Of a broker without an authorizer."""
    acl = {"ResourceType": 2, "ResourceName": "t", "Principal": "User:ann", "Host": "*", "Operation": 3}
    wanted = {"ResourceTypeFilter": 1, "Operation": 1, "PermissionType": 1}
    for step, several in {"none": [], "one": [{}], "two": [{}, {"ResourceName": ""}]}.items():
        creations = [{**acl, "PermissionType": 3, **changes} for changes in several]
        broker.ask_each(step, "CreateAcls", Creations=creations)
        broker.ask_each(step, "DeleteAcls", Filters=[wanted for _ in several])
    broker.ask("an unknown operation", "CreateAcls", Creations=[{**acl, "Operation": 0, "PermissionType": 3}])
    broker.ask("an unknown operation", "DeleteAcls", Filters=[{**wanted, "Operation": 0}])
    broker.ask_each("all", "DescribeAcls", **wanted)
    broker.ask_each("of no kind", "DescribeAcls", **{**wanted, "ResourceTypeFilter": 99})
