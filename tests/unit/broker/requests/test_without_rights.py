"""A client without any right: each API refuses it in each version, tells nothing, and changes nothing.

Topic, group and transactional id have one name, `there`; nothing has the name `ghost`, which is as long, so that
answers about either can be compared byte by byte.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from core.broker.requests.authorizer import Asker, Authorizer
from core.broker.requests.client_session import Session
from core.broker.requests.request_dispatcher import _SERVED
from core.broker.requests.served_api import ServedApi
from core.common.error_code import ErrorCode
from core.common.pending import Pending
from core.protocol.frame import decode_response
from core.protocol.message import Api
from core.protocol.schema.api_versions import API_VERSIONS
from core.protocol.schema.cluster_nodes import DESCRIBE_CLUSTER, DescribeClusterRequest
from core.protocol.schema.consumer_group_heartbeat import CONSUMER_GROUP_HEARTBEAT, ConsumerGroupHeartbeatRequest
from core.protocol.schema.describe_log_dirs import DESCRIBE_LOG_DIRS
from core.protocol.schema.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from core.protocol.schema.groups import LIST_GROUPS
from core.protocol.schema.metadata import METADATA
from core.protocol.schema.sasl_exchange import SASL_AUTHENTICATE, SASL_HANDSHAKE
from core.protocol.schema.transaction_states import LIST_TRANSACTIONS
from core.protocol.schema.transactions import (
    ADD_PARTITIONS_TO_TXN,
    INIT_PRODUCER_ID,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    InitProducerIdRequest,
)
from core.security.acl import (
    REFUSALS,
    Acl,
    AclOperation,
    ResourceType,
    Right,
)
from core.security.acl_rules import AclRules, Decision
from core.security.principal import Principal
from tests.support.broker import (
    SteeredNode,
    add_topic,
    allow,
    ask,
    completed,
    delete_topic,
    joined,
    open_broker,
    produce,
    send,
)
from tests.support.fake_entry import FakeEntry
from tests.support.filled_requests import NO_ID, Names, general_requests, named_requests, requests_to
from tests.support.logs import make_batch
from tests.support.member import TOPIC_ID, Member

THERE, GHOST = "there", "ghost"
NO_TOPICS_ID = b"\x11" * 16
NOBODY = Principal("User", "nobody")
OWNER = Principal("User", "owner")
HOST = "127.0.0.1"
REFUSED = {*REFUSALS.values(), ErrorCode.UNSUPPORTED_VERSION}
"""Members refuse the groups of a feature that the cluster does not have before they ask for rights."""


def all_named(name: str, topic_id: bytes = NO_ID) -> Names:
    return Names((name,), name, name, topic_id)


class RecordingAuthorizer(Authorizer):
    """Notes which rights are asked for, but for those that are only shown as authorized operations."""

    def __init__(self, rules: AclRules) -> None:
        super().__init__(rules)
        self.asked: set[Right] = set()

    def decide(self, asker: Asker, right: Right, name: str) -> Decision:
        self.asked.add(right)
        return super().decide(asker, right, name)

    def authorize_somewhere(self, asker: Asker, right: Right, request: str) -> bool:
        self.asked.add(right)
        return super().authorize_somewhere(asker, right, request)

    def operations(self, asker: Asker, resource_type: ResourceType, name: str) -> Sequence[AclOperation]:
        asked = set(self.asked)
        try:
            return super().operations(asker, resource_type, name)
        finally:
            self.asked = asked


class Door:
    """A broker that has topic, group and transactional id `there`, asked by any principal."""

    topic_id: bytes

    def __init__(self, node: SteeredNode) -> None:
        self.node = node
        self.authorizer = RecordingAuthorizer(_rules())

    def prepare(self) -> None:
        """Makes what is not there any more."""

    def ask(self, principal: Principal, api: Api[Any, Any], version: int, request: Any) -> bytes:
        """Returns the answer; b"" if there is none."""
        answer = send(self.node, api, request, version, Session(principal, "", HOST, HOST, self.authorizer))
        assert not (isinstance(answer, Pending) and principal == NOBODY), "a refused client waits"
        return joined(completed(answer))

    def versions(self, served: ServedApi[Any, Any]) -> range:
        versions = served.versions(self.node.services.finalized_of_cluster)
        return range(versions.first, versions.last + 1)

    def digest(self) -> str:
        """Of all files, their names and bytes, and of the topics, groups and transactions that are known."""
        found = hashlib.sha256()
        for api in (METADATA, LIST_GROUPS, LIST_TRANSACTIONS):
            (everything,) = general_requests(api, api.versions.last, all_named(THERE))
            found.update(self.ask(OWNER, api, api.versions.last, everything))
        for path in sorted(self.node.directory.rglob("*")):
            found.update(f"{path.relative_to(self.node.directory)}\n".encode())
            if path.is_file():
                found.update(path.read_bytes())
        return found.hexdigest()


def _all_but(lacking: Right | None, served: ServedApi[Any, Any]) -> tuple[Principal, list[Acl]]:
    """Returns somebody who has the rights that the API needs, but for one, and its ACLs."""
    who = Principal("User", f"{served.api.name} without {lacking}")
    return who, [allow(right, str(who), "*") for right in served.rights if right != lacking]


def _rules() -> AclRules:
    acls = [acl for served in _SERVED.values() for lacking in served.rights for acl in _all_but(lacking, served)[1]]
    return AclRules(acls, super_users=[OWNER])


class LoneDoor(Door):
    def __init__(self, directory: Path) -> None:
        settings = {"offsets_topic_num_partitions": "1", "transaction_state_log_num_partitions": "1"}
        super().__init__(open_broker(directory, **settings))
        self.prepare()

    def prepare(self) -> None:
        """Makes the topic, a group with a member, and a transaction, if they are not there."""
        node, image = self.node, self.node.services.controller.image
        if GHOST in image.topics:
            delete_topic(node, GHOST)
        if THERE in image.topics:
            return
        self.topic_id = add_topic(node, THERE)
        for key_type in (0, 1):
            ask(node, FIND_COORDINATOR, FindCoordinatorRequest(key_type=key_type, coordinator_keys=[THERE]))
        member = ConsumerGroupHeartbeatRequest(THERE, THERE, 0, rebalance_timeout_ms=1000)
        member.subscribed_topic_names, member.topic_partitions = [THERE], []
        assert ask(node, CONSUMER_GROUP_HEARTBEAT, member).error_code == 0
        producer = ask(node, INIT_PRODUCER_ID, InitProducerIdRequest(THERE, 60000))
        added = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=THERE,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(THERE, [0])],
        )
        (result,) = ask(node, ADD_PARTITIONS_TO_TXN, added, 3).results_by_topic_v3_and_below
        assert result.results_by_partition[0].partition_error_code == 0
        assert produce(node, make_batch(b"v"), THERE).error_code == 0


class MemberDoor(Door):
    """A member of a cluster, which leads the topic."""

    def __init__(self, directory: Path) -> None:
        member = Member(directory, FakeEntry())
        member.assign(topic=THERE)
        member.update(topic=THERE)
        super().__init__(member.node)
        self.topic_id = TOPIC_ID


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Door]]:
    """A lone broker and a member of a cluster that nobody may ask for anything, and two that others may ask."""
    with asyncio.Runner() as runner:

        async def make(kind: type[Door]) -> Door:
            return kind(tmp_path_factory.mktemp("door"))

        found = {
            f"{who} {kind.__name__}": runner.run(make(kind))
            for who in ("nobody", "others")
            for kind in (LoneDoor, MemberDoor)
        }
        yield found

        async def close() -> None:
            for door in found.values():
                door.node.close()

        runner.run(close())


def doors_of(served: ServedApi[Any, Any], who: str, doors: dict[str, Door]) -> list[Door]:
    """Returns the brokers that serve the API."""
    found = [doors[f"{who} {kind.__name__}"] for kind in (LoneDoor, MemberDoor)]
    return [door for door in found if served.is_known(door.node.services.finalized_of_cluster)]


LISTINGS = {LIST_GROUPS, LIST_TRANSACTIONS, DESCRIBE_LOG_DIRS}
"""They answer that there is nothing (DescribeLogDirs before it had an error of its own)."""

each_api = pytest.mark.parametrize("served", _SERVED.values(), ids=lambda served: served.api.name)


@each_api
def test_nobody_learns_or_changes_anything(served: ServedApi[Any, Any], doors: dict[str, Door]) -> None:
    for door in doors_of(served, "nobody", doors):
        _ask_as_nobody(served, door)


def _ask_as_nobody(served: ServedApi[Any, Any], door: Door) -> None:
    api, before = served.api, door.digest()
    for version in door.versions(served):
        for requests in (named_requests, general_requests):
            about_there = requests(api, version, all_named(THERE, door.topic_id))
            about_ghost = requests(api, version, all_named(GHOST, NO_TOPICS_ID))
            for there, ghost in zip(about_there, about_ghost, strict=True):
                answer, other = (door.ask(NOBODY, api, version, request) for request in (there, ghost))
                told = _told(api, version, answer)
                assert told == _told(api, version, other), f"version {version} tells what is there"
                if served.rights and REFUSED.isdisjoint(_codes(told)):
                    may_be_empty = requests is general_requests or api in LISTINGS
                    shown = THERE.encode() in other or door.topic_id in other
                    assert may_be_empty and not shown, f"version {version} is not refused: {there}"
    assert door.digest() == before, "something was written"


def test_what_needs_nothing_tells_of_no_right(doors: dict[str, Door]) -> None:
    assert [served.api for served in _SERVED.values() if not served.rights] == [
        SASL_HANDSHAKE,
        API_VERSIONS,
        SASL_AUTHENTICATE,
        DESCRIBE_CLUSTER,
    ]
    lone = doors["nobody LoneDoor"]
    request = DescribeClusterRequest(include_cluster_authorized_operations=True)
    answer = decode_response(DESCRIBE_CLUSTER, 2, memoryview(lone.ask(NOBODY, DESCRIBE_CLUSTER, 2, request))[4:])[1]
    assert answer.cluster_authorized_operations == 0


@each_api
def test_an_api_asks_for_the_rights_that_it_declares(served: ServedApi[Any, Any], doors: dict[str, Door]) -> None:
    door = doors_of(served, "others", doors)[0]
    askers = [NOBODY, *(_all_but(lacking, served)[0] for lacking in served.rights)]
    door.authorizer.asked.clear()
    versions = door.versions(served)
    for version in {versions[0], versions[-1]}:
        for asker in askers:
            door.prepare()
            for request in (
                *requests_to(served.api, version, all_named(THERE, door.topic_id)),
                *requests_to(served.api, version, all_named(GHOST, NO_TOPICS_ID)),
            ):
                door.ask(asker, served.api, version, request)
    assert door.authorizer.asked == set(served.rights)


def _told(api: Api[Any, Any], version: int, answer: bytes) -> Any:
    """Returns the answer, in which names and ids are the same whether something is there or not. By an id that does not
    exist Kafka tells so, and refuses one that does: that is the same here, too.
    """
    assert answer, "nobody answers"
    same = answer.replace(GHOST.encode(), THERE.encode())
    return _plain(decode_response(api, version, memoryview(same)[4:])[1])


def _plain(value: Any, *, is_by_id: bool = False) -> Any:
    if isinstance(value, list):
        return [_plain(each, is_by_id=is_by_id) for each in value]
    if not isinstance(value, msgspec.Struct):
        return bytes(value) if isinstance(value, memoryview) else value
    fields = {name: getattr(value, name) for name in value.__struct_fields__}
    if fields.get("topic_id", bytes(16)) != bytes(16):
        fields["topic_id"], is_by_id = b"", True
    plain = {name: _plain(each, is_by_id=is_by_id) for name, each in fields.items()}
    if is_by_id and plain.get("error_code") == ErrorCode.UNKNOWN_TOPIC_ID:
        plain["error_code"] = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    if is_by_id:
        plain.pop("error_message", None)
    return plain


def _codes(plain: Any) -> Iterator[int]:
    if isinstance(plain, list):
        for each in plain:
            yield from _codes(each)
    elif isinstance(plain, dict):
        for name, value in plain.items():
            if name.endswith("error_code"):
                yield value
            yield from _codes(value)
