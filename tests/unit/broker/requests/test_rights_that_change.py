"""Nobody is answered by the rights of others, or by rights that are gone: what a broker remembers belongs to a session,
and lasts as long as the ACLs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from core.broker.config.broker_config import BrokerConfig
from core.broker.config.broker_settings import STANDARD_AUTHORIZER
from core.broker.requests.client_session import Session
from core.common.error_code import ErrorCode
from core.common.pending import Pending
from core.common.topic_partition import TopicPartition
from core.files.file_names import CLEAN_SHUTDOWN, OFFSET_CHECKPOINTS
from core.protocol.frame import decode_response, encode_request
from core.protocol.message import Api
from core.protocol.schema.acls import DELETE_ACLS, DeleteAclsFilter, DeleteAclsRequest
from core.protocol.schema.api_versions import API_VERSIONS, ApiVersionsRequest
from core.protocol.schema.fetch import FETCH, FetchResponse
from core.protocol.schema.list_offsets import LIST_OFFSETS, ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from core.protocol.schema.produce import PRODUCE
from core.protocol.schema.topic_changes import DELETE_RECORDS
from core.security.acl import (
    ALTER_CLUSTER,
    DESCRIBE_TOPIC,
    READ_TOPIC,
    WRITE_TOPIC,
    AclPermissionType,
)
from core.security.principal import Principal
from tests.support.broker import (
    PRODUCE_BY_NAME,
    Background,
    SteeredNode,
    Timers,
    add_topic,
    allow,
    ask,
    decode,
    fetch_request,
    open_broker,
    open_secured_broker,
    open_session,
    produce_request,
    produce_values,
    send,
    serving,
    write_acls,
)
from tests.support.logs import NOW, make_batch
from tests.support.manual_clock import ManualClock
from tests.support.requests import deletion_of
from tests.unit.broker.serving.test_connection import read_frame

ALICE, BOB, CAROL = "User:alice", "User:bob", "User:carol"
ALICES_HOST, BOBS_HOST = "127.0.0.1", "127.0.0.2"
REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
T0 = TopicPartition("t", 0)
WITHOUT_ALICES = DeleteAclsRequest([DeleteAclsFilter(*allow(WRITE_TOPIC, ALICE))])


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[SteeredNode]:
    """Alice may write to the topic `t`, and read it."""
    node = open_secured_broker(
        tmp_path, allow(WRITE_TOPIC, ALICE), allow(READ_TOPIC, ALICE), allow(ALTER_CLUSTER, ALICE)
    )
    add_topic(node)
    yield node
    node.close()


def produce_code(pieces: Any) -> int:
    return decode(PRODUCE, pieces, PRODUCE_BY_NAME).responses[0].partition_responses[0].error_code


def write(broker: SteeredNode, session: Session) -> int:
    """The error of a request whose bytes are the same each time."""
    return produce_code(send(broker, PRODUCE, produce_request(make_batch(b"v")), PRODUCE_BY_NAME, session))


def end_offset(broker: SteeredNode) -> int:
    return broker.services.replicas.partitions[T0].log.log_end_offset


def test_the_same_bytes_are_answered_by_the_rights_of_who_sends_them(broker: SteeredNode) -> None:
    alice, bob = open_session(broker, ALICE), open_session(broker, BOB)
    assert [write(broker, session) for session in (bob, alice, alice, bob, alice, bob)] == [29, 0, 0, 29, 0, 29]
    assert end_offset(broker) == 3


def test_each_produce_counts_once_and_a_refused_one_is_in_the_audit_log(
    broker: SteeredNode, caplog: pytest.LogCaptureFixture
) -> None:
    """Remembered or not; `plog.authorizer` has Kafka's line."""
    authorizer = broker.authorizer
    assert authorizer is not None
    alice, bob = open_session(broker, ALICE), open_session(broker, BOB)
    with caplog.at_level("INFO", "plog.authorizer"):
        assert [write(broker, session) for session in (alice, alice, bob)] == [0, 0, 29]
    assert (authorizer.allowed, authorizer.denied) == (2, 1)
    (line,) = [record.getMessage() for record in caplog.records if record.name == "plog.authorizer"]
    assert line.startswith("Principal = User:bob is Denied operation = WRITE from host = 127.0.0.1 on resource = ")
    assert "Topic:LITERAL:t for request = Produce with resourceRefCount = 1" in line


async def exchange(server: Any, host: str, *frames: tuple[Api[Any, Any], Any, int]) -> list[Any]:
    """The answers to requests that are sent at once, from an address of the machine's own."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.endpoint.port, local_addr=(host, 0))
    writer.write(b"".join(encode_request(api, version, 7, "test", request) for api, request, version in frames))
    answers = [
        decode_response(api, version, memoryview(await read_frame(reader)))[1] for api, _request, version in frames
    ]
    writer.close()
    return answers


def by_host(_listener: str, host: str) -> Principal:
    return Principal.parse(ALICE if host == ALICES_HOST else BOB)


async def test_two_clients_send_the_same_bytes(broker: SteeredNode) -> None:
    request = PRODUCE, produce_request(make_batch(b"v")), PRODUCE_BY_NAME
    async with serving(broker, by_host) as server:
        for host, code in ((ALICES_HOST, 0), (BOBS_HOST, 29), (ALICES_HOST, 0), (BOBS_HOST, 29)):
            answers = await exchange(server, host, request, request)
            codes = [answer.responses[0].partition_responses[0].error_code for answer in answers]
            assert codes == [code, code], host
    assert end_offset(broker) == 4


async def test_a_right_is_taken_away_between_two_requests_that_came_together(broker: SteeredNode) -> None:
    request = PRODUCE, produce_request(make_batch(b"v")), PRODUCE_BY_NAME
    removal = DELETE_ACLS, WITHOUT_ALICES, 3
    async with serving(broker, by_host) as server:
        first, second, removed, third, fourth = await exchange(
            server, ALICES_HOST, request, request, removal, request, request
        )
    assert [len(found.matching_acls) for found in removed.filter_results] == [1]
    codes = [one.responses[0].partition_responses[0].error_code for one in (first, second, third, fourth)]
    assert codes == [0, 0, 29, 29]
    assert end_offset(broker) == 2


async def test_a_refused_request_without_answer_closes_the_connection(broker: SteeredNode) -> None:
    """The client could not learn otherwise that its records are not there; what it sent after them is not answered."""
    request = produce_request(make_batch(b"v"), acks=0)
    async with serving(broker, by_host) as server:
        for host, answers in ((ALICES_HOST, 1), (BOBS_HOST, 0)):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.endpoint.port, local_addr=(host, 0))
            for api, version, one in ((PRODUCE, PRODUCE_BY_NAME, request), (API_VERSIONS, 3, ApiVersionsRequest())):
                writer.write(encode_request(api, version, 7, "test", one))
            if answers:
                assert await read_frame(reader)
            else:
                assert await reader.read() == b""
            writer.close()
    assert end_offset(broker) == 1


def test_a_remembered_produce_ends_with_the_right_and_begins_with_it(broker: SteeredNode) -> None:
    alice = open_session(broker, ALICE)
    assert [write(broker, alice), write(broker, alice)] == [0, 0]
    ask(broker, DELETE_ACLS, WITHOUT_ALICES, 3)
    assert [write(broker, alice), write(broker, alice)] == [29, 29]
    write_acls(broker, allow(WRITE_TOPIC, ALICE))
    assert [write(broker, alice), write(broker, alice)] == [0, 0]
    deny = allow(WRITE_TOPIC, "User:*")._replace(permission_type=AclPermissionType.DENY)
    write_acls(broker, deny)
    assert write(broker, alice) == 29
    assert end_offset(broker) == 4


def test_a_fetch_session_is_its_principals_alone(broker: SteeredNode) -> None:
    """Else somebody would read what another one may, or end its session."""
    alice, bob = open_session(broker, ALICE), open_session(broker, BOB)
    produce_values(broker, b"v")

    def fetch(session: Session, session_id: int, epoch: int, *, names_topic: bool = False) -> FetchResponse:
        request = fetch_request(0, session_id=session_id, session_epoch=epoch)
        if not names_topic:
            request.topics = []
        return decode(FETCH, send(broker, FETCH, request, PRODUCE_BY_NAME, session), PRODUCE_BY_NAME)

    session_id = fetch(alice, 0, 0, names_topic=True).session_id
    assert session_id > 0
    for epoch in (1, 2):
        stolen = fetch(bob, session_id, epoch)
        assert (stolen.error_code, stolen.responses) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, [])
    assert fetch(bob, session_id, -1).session_id == 0
    bobs_id = fetch(bob, session_id, 0, names_topic=True).session_id
    assert bobs_id not in (0, session_id)
    assert fetch(alice, session_id, 1).error_code == 0
    same_principal = open_session(broker, ALICE, BOBS_HOST)
    assert fetch(same_principal, session_id, 2).error_code == 0


@pytest.fixture
def unloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SteeredNode]:
    """A broker that opens logs when they are asked for, and a thread that does nothing yet. Alice may write, Bob only
    describe; Carol may write what she may not describe.
    """
    monkeypatch.setattr("core.broker.partitions.lazy_logs.AT_ONCE_BYTES", 0)
    node = open_broker(tmp_path)
    add_topic(node)
    produce_values(node, b"v")
    hides = allow(DESCRIBE_TOPIC, CAROL)._replace(permission_type=AclPermissionType.DENY)
    write_acls(node, allow(WRITE_TOPIC, ALICE), allow(DESCRIBE_TOPIC, BOB), allow(WRITE_TOPIC, CAROL), hides)
    node.close()
    for name in (*OFFSET_CHECKPOINTS, CLEAN_SHUTDOWN):
        (tmp_path / name).unlink(missing_ok=True)
    config = BrokerConfig.parse({"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:admin"})
    late = SteeredNode(tmp_path, config, clock=ManualClock(NOW), loads_late=True)
    late.runtime.use(run_loading=Background(), schedule=Timers())
    yield late
    late.runtime.use()
    late.close()


LATE_REQUESTS = {
    "Produce": (PRODUCE, produce_request(make_batch(b"v")), PRODUCE_BY_NAME),
    "Fetch": (FETCH, fetch_request(0), PRODUCE_BY_NAME),
    "ListOffsets": (
        LIST_OFFSETS,
        ListOffsetsRequest(topics=[ListOffsetsTopic("t", [ListOffsetsPartition(0, timestamp=-1)])]),
        9,
    ),
    "DeleteRecords": (DELETE_RECORDS, deletion_of("t", 0, 1), 2),
}


@pytest.mark.parametrize(
    ("who", "api"),
    [*(("User:nobody", api) for api in LATE_REQUESTS), (BOB, "Produce"), (BOB, "Fetch"), (BOB, "DeleteRecords"),
     (ALICE, "Fetch"), (ALICE, "DeleteRecords")],
)  # fmt: skip
def test_a_refused_request_neither_waits_for_a_log_nor_has_it_opened(who: str, api: str, unloaded: SteeredNode) -> None:
    log_manager = unloaded.services.log_manager
    assert T0 in log_manager.unloaded
    asked, request, version = LATE_REQUESTS[api]
    answer = send(unloaded, asked, request, version, open_session(unloaded, who))
    assert not isinstance(answer, Pending)
    assert str(int(REFUSED)) in str(decode(asked, answer, version))
    assert not unloaded.runtime._run_loading.waiting  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("who", "api"), [(ALICE, "Produce"), (ALICE, "ListOffsets"), (BOB, "ListOffsets"), (CAROL, "Produce")]
)
def test_who_may_has_the_log_opened(who: str, api: str, unloaded: SteeredNode) -> None:
    asked, request, version = LATE_REQUESTS[api]
    answer = send(unloaded, asked, request, version, open_session(unloaded, who))
    assert isinstance(answer, Pending)
    arrived: list[Any] = []
    answer.on_value = arrived.append
    unloaded.runtime._run_loading.run_all()  # type: ignore[attr-defined]
    assert str(int(REFUSED)) not in str(decode(asked, arrived[0], version))
