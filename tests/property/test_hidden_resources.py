"""What somebody may not describe is not there: no answer depends on it.

Two brokers have the same topic, group and transactional id `yours`; one has a `hidden` one besides. A client with any
rights but on that one asks both for anything, and gets the same bytes. Left out are requests by a topic's id: by one
that does not exist Kafka tells so.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.broker.requests.authorizer import Authorizer
from core.broker.requests.client_session import Session
from core.common.errors import MalformedMessageError
from core.common.pending import Pending
from core.protocol.message import Api
from core.protocol.schema.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from core.protocol.schema.group_offsets import (
    OFFSET_COMMIT,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from core.protocol.schema.transactions import (
    ADD_PARTITIONS_TO_TXN,
    INIT_PRODUCER_ID,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    InitProducerIdRequest,
)
from core.security.acl import CLUSTER_NAME, Acl, AclOperation, AclPermissionType, PatternType, ResourceType
from core.security.acl_rules import AclRules
from core.security.principal import Principal
from tests.support.broker import SteeredNode, add_topic, ask, completed, joined, open_broker, produce_values, send
from tests.support.filled_requests import Names, requests_to
from tests.support.requests import SERVED_APIS

YOURS, HIDDEN = "yours", "hidden"
ME = Principal("User", "me")
TOPIC, GROUP, TRANSACTION = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID

OPERATIONS = {
    TOPIC: [AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS],
    GROUP: [AclOperation.READ, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS],
    TRANSACTION: [AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.TWO_PHASE_COMMIT],
}
"""Without those by which things come with an id of chance, or go: two brokers must stay alike."""


def make(node: SteeredNode, kind: ResourceType, name: str) -> None:
    if kind is TOPIC:
        add_topic(node, name)
        produce_values(node, b"v", topic=name)
    elif kind is GROUP:
        ask(node, FIND_COORDINATOR, FindCoordinatorRequest(key_type=0, coordinator_keys=[name]))
        commit(node, name, YOURS)
    else:
        ask(node, FIND_COORDINATOR, FindCoordinatorRequest(key_type=1, coordinator_keys=[name]))
        begin(node, name, YOURS)


def commit(node: SteeredNode, group: str, topic: str) -> None:
    offsets = [OffsetCommitRequestTopic(topic, partitions=[OffsetCommitRequestPartition(0, 0)])]
    ask(node, OFFSET_COMMIT, OffsetCommitRequest(group, topics=offsets), 9)


def begin(node: SteeredNode, transactional_id: str, *topics: str) -> None:
    producer = ask(node, INIT_PRODUCER_ID, InitProducerIdRequest(transactional_id, 60000))
    added = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(topic, [0]) for topic in topics],
    )
    ask(node, ADD_PARTITIONS_TO_TXN, added, 3)


class Pair(NamedTuple):
    """`full` has what is hidden, `bare` has not; all else is the same, the ids of topics, too."""

    full: SteeredNode
    bare: SteeredNode


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[ResourceType, Pair]]:
    directory = tmp_path_factory.mktemp("hidden")

    def open_(name: str) -> SteeredNode:
        settings = {"offsets_topic_num_partitions": "1", "transaction_state_log_num_partitions": "1"}
        return open_broker(directory / name, **settings)

    first = open_("first")
    for kind in OPERATIONS:
        make(first, kind, YOURS)
    first.close()

    def copy(name: str) -> SteeredNode:
        shutil.copytree(directory / "first", directory / name)
        return open_(name)

    found = {kind: Pair(copy(f"full {kind.name}"), copy(f"bare {kind.name}")) for kind in OPERATIONS}
    for kind, (full, bare) in found.items():
        make(full, kind, HIDDEN)
        if kind is TRANSACTION:
            ask(bare, INIT_PRODUCER_ID, InitProducerIdRequest(None))  # the ids of producers are counted
    commit(found[TOPIC].full, YOURS, HIDDEN)
    begin(found[TOPIC].full, YOURS, YOURS, HIDDEN)
    begin(found[TOPIC].bare, YOURS, YOURS)
    yield found
    for pair in found.values():
        for node in pair:
            node.close()


@st.composite
def acls(draw: Callable[..., Any], hidden: ResourceType) -> Acl:
    """Any that does not let ME do something with what is hidden."""
    kind = draw(st.sampled_from([*OPERATIONS, ResourceType.CLUSTER]))
    if kind is ResourceType.CLUSTER:
        name, operations = CLUSTER_NAME, [AclOperation.IDEMPOTENT_WRITE]
    else:
        name, operations = draw(st.sampled_from([YOURS, HIDDEN, "*", "you", "hid", ""])), OPERATIONS[kind]
    acl = Acl(
        kind,
        name,
        draw(st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED])),
        draw(st.sampled_from([str(ME), "User:*"])),
        "*",
        draw(st.sampled_from(operations)),
        AclPermissionType.ALLOW,
    )
    is_allowed = draw(st.integers(0, 3)) and not (kind is hidden and acl.applies_to(kind, HIDDEN))
    return acl if is_allowed else acl._replace(permission_type=AclPermissionType.DENY)


NAME = st.sampled_from([YOURS, HIDDEN])
TOPICS = st.sampled_from([(YOURS,), (HIDDEN,), (YOURS, HIDDEN), (HIDDEN, YOURS)])
CASES = st.sampled_from(list(OPERATIONS)).flatmap(
    lambda hidden: st.tuples(st.just(hidden), st.lists(acls(hidden), min_size=2, max_size=8))
)


@pytest.mark.longer
@given(case=CASES, names=st.builds(Names, TOPICS, NAME, NAME), number=st.integers(0, 20))
def test_no_answer_depends_on_what_one_may_not_describe(
    pairs: dict[ResourceType, Pair], case: tuple[ResourceType, list[Acl]], names: Names, number: int
) -> None:
    """Each API is asked, in the version of that number."""
    hidden, entries = case
    sessions = [Session(ME, "", "127.0.0.1", "127.0.0.1", Authorizer(AclRules(entries))) for _ in range(2)]
    for api in SERVED_APIS:
        first, last = api.versions.first, api.versions.last
        version = first + number % (last - first + 1)
        for request in requests_to(api, version, names):
            full, bare = (
                answer(node, session, api, version, request)
                for node, session in zip(pairs[hidden], sessions, strict=True)
            )
            assert full == bare, f"version {version} of {request}"


def answer(node: SteeredNode, session: Session, api: Api[Any, Any], version: int, request: Any) -> tuple[bool, bytes]:
    """Whether it waited, and what it is when its time is over."""
    try:
        sent = send(node, api, request, version, session)
    except MalformedMessageError as error:
        return False, str(error).encode()
    return isinstance(sent, Pending), joined(completed(sent))
