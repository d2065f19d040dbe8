"""A group that changes its protocol while it works (KIP-848): members of both protocols, with the clock in hand."""

from __future__ import annotations

import random
from typing import Any

import pytest

from core.cluster.image.metadata_image import TopicImage
from core.common.error_code import ErrorCode
from core.common.topic_partition import TopicPartition
from core.coordinator.classic_group import ClassicGroup
from core.coordinator.consumer_group import ConsumerGroup
from core.coordinator.group_coordinator import GroupCoordinator, OffsetCommit
from core.protocol.consumer_protocol import read_consumer_protocol, write_consumer_protocol
from core.protocol.schema.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from core.protocol.schema.consumer_protocol import (
    AssignedPartitions,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from core.protocol.schema.group_records import OffsetCommitValue
from core.protocol.schema.groups import JoinGroupResponse
from core.protocol.schema.metadata_records import PartitionRecord
from tests.support.for_each import for_each
from tests.support.groups import CLIENT, Client, GroupWorld, Joined, refused
from tests.support.logs import NOW

PARTITIONS = 6


def new_world(**config: Any) -> GroupWorld:
    world = GroupWorld(group_initial_rebalance_delay_ms=0, **config)
    world.topics["t"] = TopicImage("t", b"t" * 16, {n: PartitionRecord(n, b"t" * 16) for n in range(PARTITIONS)})
    world.metadata_version += 1
    return world


@pytest.fixture
def world() -> GroupWorld:
    return new_world()


class Classic:
    """A consumer of the classic protocol, as clients are: cooperative, or eager. `step` is one turn of its loop."""

    def __init__(self, client: Client, name: str, *, is_eager: bool = False, instance_id: str | None = None) -> None:
        self.client = client
        self.name = name
        self.is_eager = is_eager
        self.instance_id = instance_id
        self.owned: set[int] = set()
        self.member_id = ""
        self.joined: JoinGroupResponse | None = None
        self._joining: Joined | None = None
        self._syncing: Any = None

    @property
    def _protocols(self) -> dict[str, bytes]:
        owned = [] if self.is_eager or not self.owned else [AssignedPartitions("t", sorted(self.owned))]
        said = ConsumerProtocolSubscription(["t"], owned_partitions=owned)
        return {"range" if self.is_eager else "cooperative-sticky": write_consumer_protocol(said, 1)}

    def step(self) -> None:
        if self._syncing is not None:
            self._end_sync()
        elif self._joining is not None:
            self._end_join()
        elif self.joined is None:
            self._join()
        else:
            code = self.client.heartbeat(self.joined, instance_id=self.instance_id)
            if code == ErrorCode.REBALANCE_IN_PROGRESS:
                self._join()
            elif code:
                self._lose(code)

    def _lose(self, code: int) -> None:
        assert code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID), code
        self.owned, self.joined = set(), None
        if code != ErrorCode.ILLEGAL_GENERATION:
            self.member_id = ""

    def _join(self) -> None:
        if self.is_eager:
            self.owned = set()  # what it has is given up before it joins
        self._joining = self.client.join(
            self.member_id, protocols=self._protocols, version=9, instance_id=self.instance_id
        )
        self._end_join()

    def _end_join(self) -> None:
        response = self._joining.response if self._joining is not None else None
        if response is None:
            return
        self._joining = None
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
            self._join()
        elif response.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
            self._join()
        elif response.error_code != ErrorCode.REBALANCE_IN_PROGRESS:  # then it asks again
            assert response.error_code == 0, ErrorCode.of(response.error_code)
            self.joined, self.member_id = response, response.member_id
            self._sync()

    def _sync(self) -> None:
        assert self.joined is not None
        assignments = {}
        if self.joined.leader == self.member_id:
            members = sorted(m.member_id for m in self.joined.members)
            held = {
                m.member_id: {
                    n
                    for owned in read_consumer_protocol(ConsumerProtocolSubscription, m.metadata).owned_partitions
                    for n in owned.partitions
                }
                for m in self.joined.members
            }
            owners = {n: member_id for member_id, numbers in held.items() for n in numbers}
            for index, member_id in enumerate(members):
                wanted = set(range(index, PARTITIONS, len(members)))
                free = {n for n in wanted if owners.get(n, member_id) == member_id}  # the rest when it was given up
                said = ConsumerProtocolAssignment([AssignedPartitions("t", sorted(free))])
                assignments[member_id] = write_consumer_protocol(said, 1)
        self._syncing = self.client.sync(self.joined, assignments, instance_id=self.instance_id)
        self._end_sync()

    def _end_sync(self) -> None:
        response = self._syncing.response
        if response is None:
            return
        self._syncing = None
        if response.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._join()
            return
        if response.error_code:
            self._lose(response.error_code)
            return
        assigned = read_consumer_protocol(ConsumerProtocolAssignment, response.assignment).assigned_partitions
        got = {n for partitions in assigned for n in partitions.partitions}
        gives_up = bool(self.owned - got)
        self.owned = got
        if gives_up and not self.is_eager:
            self._join()  # whoever gives something up joins again, so that others get it

    def leave(self) -> None:
        self.client.leave(self.member_id, self.instance_id)
        self.owned = set()

    def reconnect(self, client: Client) -> None:
        """To the next broker; what was asked of the last one and not answered is asked again."""
        self.client = client
        was_joining, was_syncing = self._joining is not None, self._syncing is not None
        self._joining = self._syncing = None
        if was_joining:
            self._join()
        elif was_syncing:
            self._sync()


class Modern:
    """A consumer of the consumer protocol."""

    def __init__(self, client: Client, name: str, instance_id: str | None = None) -> None:
        self.client = client
        self.name = name
        self.instance_id = instance_id
        self.epoch = 0
        self.owned: set[int] = set()

    def send(self, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        request = ConsumerGroupHeartbeatRequest("g", self.name, self.epoch, instance_id=self.instance_id)
        if self.epoch == 0:
            request.rebalance_timeout_ms, request.topic_partitions = 30_000, []
            request.subscribed_topic_names = ["t"]
        elif self.epoch > 0:
            request.topic_partitions = [TopicPartitions(b"t" * 16, sorted(self.owned))] if self.owned else []
        for name, value in fields.items():
            setattr(request, name, value)
        return self.client.coordinator.consumer_heartbeat(request, CLIENT, 1)

    def step(self) -> None:
        response = self.send()
        if response.error_code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
            self.epoch, self.owned = 0, set()
            return
        assert response.error_code == 0, response.error_message
        self.epoch = response.member_epoch
        if response.assignment is not None:
            self.owned = {n for p in response.assignment.topic_partitions for n in p.partitions}

    def reconnect(self, client: Client) -> None:
        self.client = client

    def leave(self, epoch: int = -1) -> None:
        self.epoch = epoch
        assert self.send().error_code == 0
        self.owned = set()


AnyMember = Classic | Modern


def settle(*members: AnyMember, pause_ms: int = 1) -> None:
    """Until nothing moves; nobody reads what another reads at any time."""
    for _ in range(30):
        for member in members:
            member.step()
            member.client.world.advance(pause_ms)
            ensure_apart(members)
    assert sorted(n for member in members for n in member.owned) == list(range(PARTITIONS))
    sizes = sorted(len(member.owned) for member in members)
    assert sizes[-1] - sizes[0] <= 1


def ensure_apart(members: tuple[AnyMember, ...]) -> None:
    for member in members:
        member.client.coordinator._check_invariants()
    held = [n for member in members for n in member.owned]
    assert len(set(held)) == len(held), {member.name: member.owned for member in members}


def kind_of(client: Client) -> type:
    return type(client.coordinator.groups["g"])


@pytest.fixture
def client(world: GroupWorld) -> Client:
    return Client(world)


@pytest.mark.parametrize("is_eager", [False, True])
def test_a_rolling_upgrade_and_back(client: Client, is_eager: bool) -> None:
    old = [Classic(client, f"c{n}", is_eager=is_eager) for n in range(3)]
    settle(*old)
    assert kind_of(client) is ClassicGroup
    members: list[AnyMember] = list(old)
    for number in range(3):
        old[number].leave()
        members[number] = Modern(client, f"m{number}")
        settle(*members)
        assert kind_of(client) is ConsumerGroup
    for number in range(3):
        leaving = members[number]
        assert isinstance(leaving, Modern)
        leaving.leave()
        members[number] = Classic(client, f"d{number}", is_eager=is_eager)
        settle(*members)
    assert kind_of(client) is ClassicGroup


def test_a_member_more_of_the_other_protocol_upgrades_and_its_leave_downgrades(client: Client) -> None:
    first, second = Classic(client, "a"), Classic(client, "b", is_eager=False)
    settle(first, second)
    generation = client.coordinator.groups["g"].generation_id  # type: ignore[union-attr]
    modern = Modern(client, "m")
    settle(first, second, modern)
    group = client.coordinator.groups["g"]
    assert isinstance(group, ConsumerGroup)
    assert group.epoch > generation
    assert sorted(member.is_classic for member in group.members.values()) == [False, True, True]
    modern.leave()
    assert kind_of(client) is ClassicGroup
    settle(first, second)


def test_a_silent_member_downgrades_too(world: GroupWorld, client: Client) -> None:
    first, modern = Classic(client, "a"), Modern(client, "m")
    settle(first)
    settle(first, modern)
    for _ in range(9):
        world.advance(5000)
        first.step()
    world.advance(5000)
    assert kind_of(client) is ClassicGroup
    settle(first)


def test_a_silent_classic_member_is_fenced(world: GroupWorld, client: Client) -> None:
    """After its own session timeout."""
    first, modern = Classic(client, "a"), Modern(client, "m")
    settle(first)
    settle(first, modern)
    for _ in range(3):
        world.advance(4000)
        modern.step()
    settle(modern)
    assert client.heartbeat(first.joined) == ErrorCode.UNKNOWN_MEMBER_ID  # type: ignore[arg-type]


def test_a_classic_member_that_does_not_rejoin_is_fenced(world: GroupWorld, client: Client) -> None:
    """It has its rebalance timeout from when it is told to."""
    first, modern = Classic(client, "a"), Modern(client, "m")
    settle(first)
    modern.step()
    assert first.joined is not None
    for _ in range(20):
        assert client.heartbeat(first.joined) == ErrorCode.REBALANCE_IN_PROGRESS
        world.advance(1000)
        modern.step()
    for _ in range(50):
        if client.heartbeat(first.joined) == ErrorCode.UNKNOWN_MEMBER_ID:
            break
        world.advance(1000)
        modern.step()
    settle(modern)


@for_each(
    "policy, upgrades, downgrades",
    [("bidirectional", True, True), ("upgrade", True, False), ("downgrade", False, True), ("disabled", False, False)],
)
def test_the_policy(policy: str, upgrades: bool, downgrades: bool) -> None:
    client = Client(new_world(group_consumer_migration_policy=policy))
    classic = Classic(client, "a")
    settle(classic)
    response = Modern(client, "m").send()
    assert response.error_code == (0 if upgrades else ErrorCode.GROUP_ID_NOT_FOUND)
    assert kind_of(client) is (ConsumerGroup if upgrades else ClassicGroup)
    client = Client(new_world(group_consumer_migration_policy=policy))
    modern, classic = Modern(client, "m"), Classic(client, "a")
    settle(modern)
    settle(modern, classic)
    modern.leave()
    assert kind_of(client) is (ClassicGroup if downgrades else ConsumerGroup)
    settle(classic)


def test_static_members_take_their_places_with_another_protocol(client: Client) -> None:
    old = [Classic(client, f"c{n}", instance_id=f"i{n}") for n in range(2)]
    settle(*old)
    new = [Modern(client, f"m{n}", instance_id=f"i{n}") for n in range(2)]
    settle(new[0], old[1])
    assert kind_of(client) is ConsumerGroup
    settle(*new)
    again = [Classic(client, f"d{n}", instance_id=f"i{n}") for n in range(2)]
    new[0].leave(-2)
    settle(again[0], new[1])
    assert kind_of(client) is ConsumerGroup
    new[1].leave(-2)
    settle(*again)
    assert kind_of(client) is ClassicGroup


def test_who_may_not_take_a_static_place_does_not_empty_it(client: Client) -> None:
    first, last = Classic(client, "a", instance_id="i0"), Modern(client, "m", instance_id="i1")
    settle(first)
    settle(first, last)
    wrong = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert client.join(instance_id="i1", protocols={"cooperative-sticky": b"?"}).answered.error_code == wrong
    assert client.join(instance_id="i1", protocol_type="connect").answered.error_code == wrong
    assert kind_of(client) is ConsumerGroup
    settle(first, last)


@pytest.mark.parametrize("protocol_type", ["connect", "consumer"])
def test_groups_that_are_no_consumers_stay_what_they_are(world: GroupWorld, client: Client, protocol_type: str) -> None:
    """Or that say to be consumers, with metadata that nobody can read."""
    joining = client.join(protocol_type=protocol_type, protocols={"default": b"x"})
    world.advance(1)
    joined = joining.answered
    client.sync(joined, {joined.member_id: b"y"})
    assert Modern(client, "m").send().error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert client.heartbeat(joined) == 0


def test_who_may_not_join_a_consumer_group(world: GroupWorld, client: Client) -> None:
    modern = Modern(client, "m")
    settle(modern)
    subscription = write_consumer_protocol(ConsumerProtocolSubscription(["t"]), 1)
    wrong = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert client.join(protocol_type="connect", protocols={"default": subscription}).answered.error_code == wrong
    assert client.join(protocols={"range": b"\0"}).answered.error_code == wrong
    assert client.join(protocols={}).answered.error_code == wrong
    settle(modern, Classic(client, "a"))
    assert client.join(protocols={"range": subscription}).answered.error_code == wrong  # nothing in common
    other = client.join(protocols={"cooperative-sticky": subscription}).answered
    assert client.sync(other, protocol_name="range").answered.error_code == wrong
    assert client.sync(other, generation=other.generation_id + 1).answered.error_code == ErrorCode.ILLEGAL_GENERATION
    full = Client(new_world(group_consumer_max_size=1))
    settle(Modern(full, "m"))
    joined = full.join(protocols={"range": subscription}).answered
    assert joined.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_commits_of_classic_members_go_by_their_generation(world: GroupWorld, client: Client) -> None:
    classic, modern = Classic(client, "a"), Modern(client, "m")
    settle(classic)
    settle(classic, modern)
    assert classic.joined is not None
    offsets = {TopicPartition("t", 0): OffsetCommitValue(1, -1, "", NOW)}

    def commit(member_id: str, epoch: int) -> None:
        client.coordinator.commit(OffsetCommit("g", member_id, None, epoch, offsets))

    commit(classic.member_id, classic.joined.generation_id)
    assert refused(commit, classic.member_id, 99) == ErrorCode.ILLEGAL_GENERATION
    assert refused(commit, modern.name, 99) == ErrorCode.STALE_MEMBER_EPOCH


def test_a_disk_that_refuses_changes_nothing(world: GroupWorld, client: Client) -> None:
    classic, modern = Classic(client, "a"), Modern(client, "m")
    settle(classic)
    world.refuses = True
    assert modern.send().error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert kind_of(client) is ClassicGroup
    world.refuses = False
    settle(classic, modern)
    world.refuses = True
    modern.epoch = -1
    assert modern.send().error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert kind_of(client) is ConsumerGroup


def replayed(world: GroupWorld) -> Client:
    """The next broker, which knows what the log says."""
    client = Client(world)
    read = client.coordinator.beside()
    for record in world.written:
        read.replay(*record)
    client.coordinator.take_over(read)
    return client


def test_what_the_log_says_is_what_there_was(world: GroupWorld, client: Client) -> None:
    classic, modern = Classic(client, "a"), Modern(client, "m")
    settle(classic)
    settle(classic, modern)
    client = replayed(world)
    assert kind_of(client) is ConsumerGroup
    classic.client = modern.client = client
    settle(classic, modern)
    modern.leave()
    settle(classic)
    classic.client = client = replayed(world)
    assert kind_of(client) is ClassicGroup
    settle(classic)


@for_each("seed", range(30), first=20)
def test_members_come_and_go_in_any_order(seed: int) -> None:
    """Nobody ever reads what another reads, and when all is quiet everything is read."""
    rng = random.Random(seed)
    world = new_world()
    client = Client(world)
    members: list[AnyMember] = []
    for number in range(40):
        action = rng.random()
        if action < 0.3 and len(members) < 5:
            members.append(Classic(client, f"c{number}") if rng.random() < 0.5 else Modern(client, f"m{number}"))
        elif action < 0.45 and members:
            member = rng.choice(members)
            if member.joined is not None if isinstance(member, Classic) else member.epoch > 0:
                member.leave()
                members.remove(member)
        elif action < 0.5:
            client = replayed(world)
            for member in members:
                member.reconnect(client)
        for _ in range(rng.randrange(6)):
            if members:
                rng.choice(members).step()
                world.advance(1)
                ensure_apart(tuple(members))
    if members:  # a member that left when the log did not say so any more is there until its session is over
        settle(*members, pause_ms=1000)


def test_a_coordinator_of_its_own(world: GroupWorld) -> None:
    """Members of both protocols that meet in an empty group."""
    coordinator = GroupCoordinator(world)
    client = Client(world)
    client.coordinator = coordinator
    settle(Modern(client, "m"), Classic(client, "a"), Classic(client, "b"))
