"""Groups whose members assign: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, and what is told of groups."""

from __future__ import annotations

import threading
from typing import Any

from tests.support.answers.asked_broker import AskedBroker
from tests.support.answers.message_codec import Fields
from tests.support.answers.scenarios.offsets import commit_fields, committed
from tests.support.answers.scenarios.registry import scenario
from tests.support.waiting import wait_until

SUBSCRIPTION = b"\0\0\0\0\0\1\0\1t\0\0\0\0"
"""Of a consumer: version 0, the topic "t", no user data."""
RANGE = ("range", SUBSCRIPTION)
MEMBER_ID_REQUIRED = 79


def join_fields(group: str, member: str = "", *protocols: tuple[str, bytes], **options: Any) -> Fields:
    """Of a JoinGroup request; `range` where no protocols are given."""
    return {
        "GroupId": group,
        "SessionTimeoutMs": options.get("session_ms", 10_000),
        "RebalanceTimeoutMs": options.get("rebalance_ms", 60_000),
        "MemberId": member,
        "GroupInstanceId": options.get("instance"),
        "ProtocolType": options.get("kind", "consumer"),
        "Protocols": [
            {"Name": name, "Metadata": metadata} for name, metadata in options.get("protocols", protocols or (RANGE,))
        ],
        "Reason": "to compare",
    }


class ClassicGroup:
    """A group that is asked by one version of JoinGroup, and by the versions of the others that came with it."""

    def __init__(self, broker: AskedBroker, name: str, version: int = 9) -> None:
        self._broker = broker
        self.name = name
        self._version = version
        self.generation = -1
        self.member = ""

    def join(self, step: str, member: str = "", *protocols: tuple[str, bytes], **options: Any) -> Fields:
        """No member of the group then: see `enter`."""
        version = options.pop("version", self._version)
        fields = join_fields(self.name, member, *protocols, **options)
        answer: Fields = self._broker.ask(self._step(step), "JoinGroup", version, **fields)
        return answer

    def enter(self, step: str, member: str = "", *protocols: tuple[str, bytes], **options: Any) -> Fields:
        """As `join`, a second time where the first gives an id; it is the group's member and generation then."""
        answer = self.join(step, member, *protocols, **options)
        if answer["ErrorCode"] == MEMBER_ID_REQUIRED:
            answer = self.join(f"{step}, with its id", answer["MemberId"], *protocols, **options)
        self.member, self.generation = answer["MemberId"], answer["GenerationId"]
        return answer

    def sync(self, step: str, *assignments: tuple[str, bytes], **options: Any) -> None:
        fields = {
            "GroupId": self.name,
            "GenerationId": options.get("generation", self.generation),
            "MemberId": options.get("member", self.member),
            "GroupInstanceId": options.get("instance"),
            "ProtocolType": options.get("kind", "consumer"),
            "ProtocolName": options.get("protocol", "range"),
            "Assignments": [{"MemberId": member, "Assignment": data} for member, data in assignments],
        }
        self._broker.ask(self._step(step), "SyncGroup", min(self._version, 5), **fields)

    def beat(self, step: str, **options: Any) -> None:
        fields = {
            "GroupId": options.get("group", self.name),
            "GenerationId": options.get("generation", self.generation),
            "MemberId": options.get("member", self.member),
            "GroupInstanceId": options.get("instance"),
        }
        self._broker.ask(self._step(step), "Heartbeat", min(self._version, 4), **fields)

    def leave(self, step: str, *members: tuple[str, str | None], group: str | None = None) -> None:
        """Of each its id and its instance."""
        listed = [{"MemberId": member, "GroupInstanceId": instance, "Reason": "bye"} for member, instance in members]
        fields = {"GroupId": self.name if group is None else group, "MemberId": members[0][0], "Members": listed}
        self._broker.ask(self._step(step), "LeaveGroup", min(self._version, 5), **fields)

    def describe(self, step: str) -> None:
        fields = {"Groups": [self.name], "IncludeAuthorizedOperations": True}
        self._broker.ask(self._step(step), "DescribeGroups", **fields)

    def commit(self, step: str, topic: Any, *, generation: int, member: str, instance: str | None = None) -> None:
        fields = commit_fields(
            self.name, topic, committed(5, metadata="m"), generation=generation, member=member, instance=instance
        )
        self._broker.ask(self._step(step), "OffsetCommit", min(max(self._version, 2), 9), **fields)

    def _step(self, step: str) -> str:
        return f"version {self._version}: {step}"


@scenario
def classic_group_of_one(broker: AskedBroker) -> None:
    topic = broker.create_topic("classic")
    for version in range(10):
        group = ClassicGroup(broker, f"classic-{version}", version)
        group.enter("joins")
        member, generation = group.member, group.generation
        group.describe("completing")
        group.sync("syncs for the next generation", generation=generation + 1)
        group.sync("an unknown member syncs", member="nope")
        group.sync("syncs another type", kind="connect")
        group.sync("syncs another protocol", protocol="roundrobin")
        group.beat("beats before it syncs")
        group.sync("syncs", (member, b"first"), ("other", b"zz"))
        group.sync("syncs again", (member, b"other"))
        group.sync("syncs again, without assignments")
        group.beat("beats")
        for step, options in {
            "the last generation": {"generation": generation - 1},
            "the next generation": {"generation": generation + 1},
            "generation -1": {"generation": -1},
            "an unknown member": {"member": "nope"},
            "no member": {"member": ""},
            "an unknown group": {"group": "no-such-group"},
            "group ''": {"group": ""},
        }.items():
            group.beat(f"beats for {step}", **options)
        group.describe("stable")
        for step, of_generation, of_member in (
            ("right", generation, member), ("next generation", generation + 1, member),
            ("unknown member", generation, "nope"), ("no member", -1, ""), ("no generation", -1, member),
            ("generation alone", generation, ""),
        ):  # fmt: skip
            group.commit(f"commits: {step}", topic, generation=of_generation, member=of_member)
        group.enter("joins again, the same", member)
        group.sync("syncs a second time", (member, b"second"))
        group.enter("joins again with another subscription", member, ("range", SUBSCRIPTION + b"x"))
        group.sync("syncs a third time", (member, b""))
        group.join("another type joins", kind="connect")
        group.join("no protocol in common", "", ("cooperative-sticky", SUBSCRIPTION))
        group.join("no protocols", protocols=())
        group.join("an empty type", kind="")
        group.join("an unknown member joins", "nope")
        group.describe("is as it was")
        broker.ask(f"version {version}: deletes what is busy", "DeleteGroups", GroupsNames=[group.name])
        group.leave("an unknown member leaves", ("nope", None))
        group.leave("leaves an unknown group", (member, None), group="no-such-group")
        group.leave("leaves", (member, None))
        group.leave("leaves again", (member, None))
        group.beat("beats after it left")
        group.describe("empty")
        names = [group.name, "no-such-group", ""]
        broker.ask(f"version {version}: deletes", "DeleteGroups", GroupsNames=names)
        group.describe("deleted")


@scenario
def classic_group_limits(broker: AskedBroker) -> None:
    def ask(step: str, group: str, *protocols: tuple[str, bytes], version: int = 3, **options: Any) -> None:
        member = options.pop("member", "")
        fields = join_fields(group, member, *protocols, **options)
        broker.ask(step, "JoinGroup", version, pick=_nameless, **fields)

    for timeout_ms in (-1, 0, 1, 5999, 6000, 1_800_000, 1_800_001, 2**31 - 1):
        for version in (0, 4, 9):
            group = f"session-{timeout_ms}-{version}"
            ask(f"session of {timeout_ms}", group, version=version, session_ms=timeout_ms)
    for timeout_ms in (-1, 0, 1, 2**31 - 1):
        ask(f"rebalance of {timeout_ms}", f"rebalance-{timeout_ms}", rebalance_ms=timeout_ms)
    for name in ("", "a b", "é", "x" * 300, "__consumer_offsets", "a/b", "."):
        ask(f"group {name[:20]!r}", name)
    ask("no protocols", "limits-1", protocols=())
    broker.ask("what was refused is deleted", "DeleteGroups", GroupsNames=["limits-1"])
    ask("an empty type", "limits-2", kind="")
    ask("a protocol without a name", "limits-3", ("", SUBSCRIPTION))
    ask("a subscription that is none", "limits-4", ("range", b"\xff"))
    ask("an empty subscription", "limits-5", ("range", b""))
    ask("a protocol twice", "limits-6", RANGE, ("range", SUBSCRIPTION + b"1"))
    ask("a subscription of 2 MB", "limits-7", ("range", SUBSCRIPTION + b"x" * 2_000_000))
    ask("an unknown member of a new group", "limits-8", version=9, member="nope-1")
    for instance in ("", "x" * 300, "a b", ".."):
        ask(f"instance {instance[:10]!r}", f"limits-{len(instance)}", version=9, instance=instance)
    for kind in ("connect", "wéird"):
        ask(f"type {kind}", f"limits-{kind}", kind=kind)


def _nameless(answer: Fields) -> Fields:
    """A member's id stands in three places; only whether there is one counts."""
    return {
        **answer,
        "MemberId": bool(answer["MemberId"]),
        "Leader": bool(answer["Leader"]),
        "Members": len(answer["Members"]),
    }


@scenario
def classic_group_of_two(broker: AskedBroker) -> None:
    topic = broker.create_topic("classic-two")
    others = (("roundrobin", SUBSCRIPTION), RANGE)
    for version in (1, 3, 5, 9):
        group = ClassicGroup(broker, f"two-{version}", version)
        group.enter("the first joins")
        first, generation = group.member, group.generation
        group.sync("the first syncs", (first, b"1"))
        answers: list[Fields] = []

        def second_joins(group: ClassicGroup = group, version: int = version, answers: list[Fields] = answers) -> None:
            """On a connection of its own: its answer comes when the first has joined again."""
            fields = join_fields(group.name, "", *others)
            answer = broker.query("JoinGroup", version, connection="second", **fields)
            if answer["ErrorCode"] == MEMBER_ID_REQUIRED:
                fields = join_fields(group.name, answer["MemberId"], *others)
                answer = broker.query("JoinGroup", version, connection="second", **fields)
            answers.append(answer)

        thread = threading.Thread(target=second_joins)
        thread.start()
        wait_until(lambda group=group: _state(broker, group.name) == "PreparingRebalance")
        group.beat("the first is told")
        group.describe("preparing")
        group.commit("the first commits", topic, generation=generation, member=first)
        group.sync("the first syncs, in vain")
        first_answer = group.enter("the first joins again", first, RANGE, others[0])
        thread.join()
        second = answers[0]["MemberId"]
        broker.keep(f"version {version}: the second has joined", answers[0])
        group.beat("the second beats", member=second)
        group.commit("the first commits while it completes", topic, generation=group.generation, member=first)
        protocol = first_answer["ProtocolName"]
        group.sync("the leader syncs", (first, b"A"), (second, b"B"), protocol=protocol)
        group.sync("the follower syncs", member=second, protocol=protocol)
        group.describe("stable")
        group.join("the follower joins again, the same", second, *others)
        group.leave("the second leaves", (second, None))
        group.beat("the first is told that it left")
        group.leave("several leave", (first, None), (second, None), ("zz", None))


def _state(broker: AskedBroker, group: str) -> Any:
    return broker.query("DescribeGroups", Groups=[group])["Groups"][0]["GroupState"]


@scenario
def static_members(broker: AskedBroker) -> None:
    topic = broker.create_topic("static")
    for version in (5, 7, 9):
        group = ClassicGroup(broker, f"static-{version}", version)
        group.enter("joins", instance="i1")
        first = group.member
        group.sync("syncs", (first, b"1"), instance="i1")
        group.describe("stable")
        for step, member, instance in (
            ("another member", "nope", "i1"), ("an unknown instance", first, "zz"),
            ("an unknown instance and member", "nope", "zz"), ("no instance", first, None),
        ):  # fmt: skip
            group.beat(f"beats as {step}", member=member, instance=instance)
        group.enter("joins again without its id", instance="i1")
        second = group.member
        broker.keep(f"version {version}: has another id", second != first)
        group.beat("the old id beats", member=first, instance="i1")
        group.sync("the old id syncs", member=first, instance="i1")
        group.join("the old id joins", first, instance="i1")
        group.join("its id joins as another instance", second, instance="i9")
        group.sync("the new id syncs", (second, b"9"), instance="i1")
        group.beat("the new id beats", instance="i1")
        for step, member in (("old", first), ("new", second)):
            name = f"the {step} id commits"
            group.commit(name, topic, generation=group.generation, member=member, instance="i1")
        group.enter("joins with another subscription", "", ("range", SUBSCRIPTION + b"z"), instance="i1")
        group.sync("syncs again", (group.member, b"7"), instance="i1")
        group.describe("stable again")
        group.leave("leaves as another member", ("nope", "i1"))
        group.leave("an unknown instance leaves", ("", "zz"))
        group.leave("an administrator removes it, twice, and another", ("", "i1"), ("", "i1"), ("x", "y"))
        group.describe("empty")


@scenario
def groups_listed(broker: AskedBroker) -> None:
    topic = broker.create_topic("listed-groups")
    for version in range(7):
        for step, groups in {"unknown": ["nope"], "group ''": [""], "none": [], "twice": ["nope", "nope"]}.items():
            broker.ask(step, "DescribeGroups", version, Groups=groups)
    broker.query("OffsetCommit", 8, **commit_fields("listed-simple", topic, committed(5)))
    group = ClassicGroup(broker, "listed-classic", 3)
    group.enter("joins")
    group.sync("syncs", (group.member, b"x"))
    ClassicGroup(broker, "listed-connect", 3).enter("joins as connect", kind="connect")
    member = {"GroupId": "listed-consumer", "MemberId": "A" * 22, "MemberEpoch": 0, "RebalanceTimeoutMs": 5000}
    joined = {**member, "SubscribedTopicNames": [topic.name], "TopicPartitions": []}
    broker.ask("joins by the new protocol", "ConsumerGroupHeartbeat", **joined)

    def listed(answer: Fields) -> Fields:
        return {**answer, "Groups": [each for each in answer["Groups"] if each["GroupId"].startswith("listed-")]}

    broker.ask_each("all", "ListGroups", pick=listed)
    for states in (
        ["Stable"], ["stable"], ["Empty"], ["Dead"], ["PreparingRebalance"], ["CompletingRebalance"],
        ["Assigning", "Reconciling"], ["Nope"], [""], ["Stable", "Empty"],
    ):  # fmt: skip
        broker.ask_each(f"states {states}", "ListGroups", (4, 5), StatesFilter=states, pick=listed)
        for kind in ("classic", "consumer"):
            step = f"states {states}, type {kind}"
            broker.ask(step, "ListGroups", StatesFilter=states, TypesFilter=[kind], pick=listed)
    for kind in ("classic", "consumer", "Classic", "share", "nope", "", "streams"):
        broker.ask(f"type {kind!r}", "ListGroups", TypesFilter=[kind], pick=listed)
    for name in ("simple", "classic", "connect", "consumer", "none"):
        group_id = f"listed-{name}"
        broker.ask_each(f"{name}, as classic", "DescribeGroups", (5, 6), Groups=[group_id])
        broker.ask_each(f"{name}, as consumer", "ConsumerGroupDescribe", GroupIds=[group_id])
    for step, groups in {"no groups": [], "group ''": [""], "twice": ["listed-consumer"] * 2}.items():
        broker.ask(f"{step}, as consumer", "ConsumerGroupDescribe", GroupIds=groups)
    names = ["listed-classic", "listed-consumer", "listed-simple", "", "listed-none", "listed-simple"]
    broker.ask_each("are deleted", "DeleteGroups", GroupsNames=names)
