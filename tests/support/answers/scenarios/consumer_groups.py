"""Groups to which the broker assigns (KIP-848): ConsumerGroupHeartbeat, ConsumerGroupDescribe."""

from __future__ import annotations

from typing import Any

from tests.support.answers.asked_broker import AskedBroker, Topic
from tests.support.answers.message_codec import Fields
from tests.support.answers.scenarios.classic_groups import ClassicGroup
from tests.support.answers.scenarios.offsets import commit_fields, committed
from tests.support.answers.scenarios.registry import scenario
from tests.support.waiting import wait_until

LEAVE, LEAVE_FOR_A_WHILE = -1, -2
"""In place of an epoch."""


class Member:
    """One of a group: it knows its epoch and what it was assigned last."""

    def __init__(self, broker: AskedBroker, group: str, name: str, *, version: int = 1, step: str = "") -> None:
        self._broker = broker
        self._group = group
        self.id = name.upper() * 21 + "1"
        self._name = step or name
        self._version = version
        self.epoch = 0
        self.assigned: list[Fields] | None = None

    def beat(self, step: str, epoch: int | None = None, *, owned: Any = None, **options: Any) -> None:
        """With its own epoch where none is given. `topics`, `timeout_ms` and the like are null where they are not."""
        fields = {
            "GroupId": options.get("group", self._group),
            "MemberId": options.get("member", self.id),
            "MemberEpoch": self.epoch if epoch is None else epoch,
            "InstanceId": options.get("instance"),
            "RackId": options.get("rack"),
            "RebalanceTimeoutMs": options.get("timeout_ms", -1),
            "SubscribedTopicNames": options.get("topics"),
            "SubscribedTopicRegex": options.get("regex"),
            "ServerAssignor": options.get("assignor"),
            "TopicPartitions": owned,
        }
        name = f"{self._name} {step}"
        answer = self._broker.ask(name, "ConsumerGroupHeartbeat", self._version, **fields)
        if "member" not in options and "group" not in options:
            self._take(answer)

    def is_assigned(self) -> bool:
        """Beats once if it has nothing yet: no step, as Kafka looks up topics by an expression in its own time."""
        if not self.assigned:
            fields = {"GroupId": self._group, "MemberId": self.id, "MemberEpoch": self.epoch}
            nothing_new = {"RebalanceTimeoutMs": -1, "SubscribedTopicNames": None, "TopicPartitions": None}
            answer = self._broker.query("ConsumerGroupHeartbeat", self._version, **fields, **nothing_new)
            self._take(answer)
        return bool(self.assigned)

    def _take(self, answer: Fields) -> None:
        if answer["ErrorCode"] == 0:
            self.epoch = answer["MemberEpoch"]
            if answer["Assignment"] is not None:
                self.assigned = answer["Assignment"]["TopicPartitions"]

    def join(self, step: str, *topics: str, **options: Any) -> None:
        """With epoch 0, owning nothing."""
        self.beat(step, **{"epoch": 0, "topics": list(topics), "timeout_ms": 5000, "owned": [], **options})

    def own(self, step: str, **options: Any) -> None:
        """Says that it has what it was assigned."""
        self.beat(step, owned=self.assigned, **options)


def describe(broker: AskedBroker, step: str, group: str) -> None:
    broker.ask(step, "ConsumerGroupDescribe", GroupIds=[group], IncludeAuthorizedOperations=True)


def new_topic(broker: AskedBroker, name: str, partitions: int) -> Topic:
    """One that group coordinators know of."""
    topic = broker.create_topic(name, partitions)
    broker.wait_until_applied()
    return topic


@scenario
def consumer_group_of_one(broker: AskedBroker) -> None:
    one, two = new_topic(broker, "consumed-one", 4), new_topic(broker, "consumed-two", 3)
    for version in (0, 1):
        group = f"consumer-{version}"
        member = Member(broker, group, "a", version=version)
        for epoch in (5, LEAVE, LEAVE_FOR_A_WHILE, -3):
            member.beat(f"beats before it joins, epoch {epoch}", epoch)
        for step, options in {
            "without an id": {"member": ""},
            "without a timeout": {"timeout_ms": -1},
            "with a timeout of 0": {"timeout_ms": 0},
            "without a subscription": {"topics": None},
            "owning something": {"owned": [{"TopicId": one.id, "Partitions": [0]}]},
            "owning null": {"owned": None},
            "group ''": {"group": ""},
            "group ' '": {"group": " "},
            "with an empty instance": {"instance": ""},
            "with an empty rack": {"rack": ""},
            "with an unknown assignor": {"assignor": "nope"},
            "with an empty assignor": {"assignor": ""},
        }.items():
            other = Member(broker, f"{group}-{step}", "b", version=version)
            other.join(f"joins {step}", one.name, **options)
        member.join("joins", one.name)
        describe(broker, f"joined by version {version}", group)
        member.own("owns")
        member.beat("beats")
        member.beat("is in another rack", rack="r2")
        member.beat("asks for another assignor", assignor="range")
        member.beat("has an empty expression", regex="")
        describe(broker, f"owned by version {version}", group)
        epoch, assigned = member.epoch, member.assigned
        member.beat("tells all again", topics=[one.name], timeout_ms=5000, owned=assigned)
        member.beat("tells the next epoch", epoch + 1)
        member.beat("beats as another", member="zz" * 11)
        member.beat("owns too much", owned=[{"TopicId": one.id, "Partitions": [0, 1, 2, 3, 9]}])
        member.beat("owns an unknown topic", owned=[{"TopicId": "f" * 32, "Partitions": [0]}])
        member.beat("subscribes to two", topics=[one.name, two.name])
        member.own("owns two")
        epoch, assigned = member.epoch, member.assigned
        member.beat("tells the last epoch and what it owns", epoch - 1, owned=assigned)
        member.beat("tells the last epoch", epoch - 1)
        member.beat("subscribes to an unknown one too", topics=[one.name, two.name, "no-such-topic"])
        member.beat("subscribes to one of them", topics=[two.name])
        describe(broker, f"gives up, by version {version}", group)
        member.own("has given up")
        member.beat("subscribes to nothing", topics=[])
        member.beat("owns nothing", owned=[])
        describe(broker, f"nothing, by version {version}", group)
        member.beat("subscribes to one twice", topics=[one.name, one.name], owned=[])
        _commit_and_fetch(broker, version, group, one, member)
        classic = ClassicGroup(broker, group, 4)
        step = f"of consumer protocol {version}"
        classic.beat(f"a classic heartbeat {step}", member=member.id, generation=member.epoch)
        classic.join(f"no protocol in common {step}", "", ("x", b"\0"), version=3)
        classic.join(f"connect {step}", kind="connect", version=3)
        classic.sync(f"a classic sync {step}", member=member.id, generation=member.epoch)
        broker.ask(f"is deleted while busy, {version}", "DeleteGroups", GroupsNames=[group])
        last = member.epoch
        member.beat("leaves", LEAVE)
        describe(broker, f"empty, by version {version}", group)
        member.beat("leaves again", LEAVE)
        member.beat("beats after it left", last)
        broker.ask(f"is deleted, {version}", "DeleteGroups", GroupsNames=[group])
        describe(broker, f"gone, by version {version}", group)


def _commit_and_fetch(broker: AskedBroker, version: int, group: str, topic: Topic, member: Member) -> None:
    epoch = member.epoch
    for step, of_epoch, of_member in (
        ("right", epoch, member.id), ("next epoch", epoch + 1, member.id), ("last epoch", epoch - 1, member.id),
        ("no member", -1, ""), ("unknown member", epoch, "x" * 22), ("epoch 0", 0, member.id),
        ("epoch -1", -1, member.id),
    ):  # fmt: skip
        name = f"{step}, of consumer protocol {version}"
        fields = commit_fields(group, topic, committed(5), generation=of_epoch, member=of_member)
        broker.ask_each(name, "OffsetCommit", (8, 9, 10), **fields)
        topics = [{"Name": topic.name, "TopicId": topic.id, "PartitionIndexes": [0]}]
        asked = {"GroupId": group, "MemberId": of_member, "MemberEpoch": of_epoch, "Topics": topics}
        broker.ask_each(name, "OffsetFetch", (9, 10), Groups=[asked])


@scenario
def consumer_group_by_regex(broker: AskedBroker) -> None:
    topic = new_topic(broker, "matched-by-regex", 2)
    member = Member(broker, "consumer-regex", "r")
    member.join("joins", regex="matched-by.*")
    wait_until(member.is_assigned)
    member.own("owns")
    describe(broker, f"has {topic.name}", "consumer-regex")
    for regex in ("(", "a{1001}", "(?=x)", "", "[", "\\p{Lu}", "*", "a**"):
        member.beat(f"subscribes to {regex!r}", regex=regex)


@scenario
def consumer_group_of_two(broker: AskedBroker) -> None:
    topic = new_topic(broker, "consumed-by-two", 4)
    for assignor in ("uniform", "range"):
        group = f"consumers-{assignor}"
        first = Member(broker, group, "b", step=f"{assignor}: the first")
        second = Member(broker, group, "c", step=f"{assignor}: the second")
        first.join("joins", topic.name, assignor=assignor)
        first.own("owns")
        second.join("joins", topic.name, assignor=assignor)
        first.beat("beats")
        describe(broker, f"{assignor}: being given up", group)
        second.beat("waits")
        first.own("has given up")
        second.beat("is given")
        second.own("owns")
        describe(broker, f"{assignor}: stable", group)
        second.beat("leaves", LEAVE)
        first.beat("beats again")
        first.own("owns all")
        describe(broker, f"{assignor}: alone", group)
        first.beat("leaves", LEAVE)


@scenario
def consumer_group_gives_up(broker: AskedBroker) -> None:
    """A member that is to give up partitions, and wants other topics before it has."""
    one, two = new_topic(broker, "given-up", 4), new_topic(broker, "given-up-too", 2)
    first, second = (Member(broker, "gives-up", name) for name in "lm")
    first.join("joins", one.name, two.name)
    first.own("owns")
    second.join("joins", one.name)
    first.beat("beats")
    first.beat("wants one topic", topics=[one.name])
    describe(broker, "one topic", "gives-up")
    first.beat("wants the other", topics=[two.name])
    first.beat("beats again")
    describe(broker, "the other topic", "gives-up")
    first.own("has given up")
    second.beat("is given")
    describe(broker, "has given up", "gives-up")


@scenario
def consumer_group_comes_back(broker: AskedBroker) -> None:
    """Members whose answer was lost, or their state: they ask with epoch 0."""
    topic, other = new_topic(broker, "comes-back", 4), new_topic(broker, "comes-back-too", 2)
    first, second = (Member(broker, "comes-back", name) for name in "de")
    first.join("joins", topic.name)
    first.join("joins again", topic.name)
    first.own("owns")
    first.join("joins owning nothing", topic.name)
    for number in range(3):
        second.join(f"joins for the {number + 1}. time", topic.name)
    describe(broker, "two", "comes-back")
    late = Member(broker, "comes-back-later", "f")
    late.join("joins", topic.name)
    late.own("owns")
    for number, topics in enumerate(([topic, other], [topic], [topic, other])):
        late.beat(f"changes for the {number + 1}. time", topics=[each.name for each in topics])
        late.own(f"owns for the {number + 1}. time")
    for number in range(3):
        late.join(f"comes back for the {number + 1}. time", topic.name, other.name)
    describe(broker, "one", "comes-back-later")


@scenario
def consumer_group_of_static_members(broker: AskedBroker) -> None:
    topic = new_topic(broker, "consumed-static", 2)
    group = "consumer-static"
    first, second = (Member(broker, group, name) for name in "gh")
    first.join("joins", topic.name, instance="i1")
    first.own("owns", instance="i1")
    second.join("joins as the same instance", topic.name, instance="i1")
    first.beat("beats without an instance")
    epoch = first.epoch
    first.beat("leaves for a while", LEAVE_FOR_A_WHILE, instance="i1")
    describe(broker, "is away", group)
    first.beat("beats while it is away", epoch, instance="i1")
    second.join("takes its place", topic.name, instance="i1")
    describe(broker, "its place is taken", group)
    first.beat("beats after that", epoch, instance="i1")
    second.beat("beats", instance="i1")
    second.beat("leaves for a while without an instance", LEAVE_FOR_A_WHILE)
    second.beat("beats as another instance", instance="i2")
    second.beat("leaves as another instance", LEAVE, instance="zz")
    second.beat("leaves", LEAVE, instance="i1")
    describe(broker, "empty", group)


@scenario
def administrator_removes_consumers(broker: AskedBroker) -> None:
    """By LeaveGroup, by id and by instance."""
    topic = new_topic(broker, "consumers-removed", 2)
    group = "consumers-removed"
    dynamic, static = (Member(broker, group, name) for name in "jk")
    dynamic.join("joins", topic.name)
    static.join("joins", topic.name, instance="i1")
    leaving = ClassicGroup(broker, group, 5)
    leaving.leave("by id, by instance and unknown", (dynamic.id, None), ("", "i1"), ("nope", None), ("", "zz"))
    describe(broker, "empty", group)
    dynamic.beat("beats")
