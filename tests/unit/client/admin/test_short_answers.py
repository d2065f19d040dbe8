"""Answers without what was asked for: a broker that is broken, or hostile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from core.client.admin.admin import LATEST, Admin
from core.client.admin.group_admin import GroupAdmin
from core.client.admin.security_admin import SecurityAdmin
from core.client.cluster_admin.replica_check import ReplicaReader
from core.client.net.client_connection import ClientConnection
from core.client.net.kafka_client import KafkaClient
from core.client.write.transaction_admin import TransactionAdmin
from core.common.errors import MalformedMessageError
from core.common.topic_partition import TopicPartition
from core.pipeline.embedded_transport import EmbeddedTransport
from core.protocol.message import Api
from core.protocol.schema.acls import CREATE_ACLS, DELETE_ACLS
from core.protocol.schema.consumer_group_describe import CONSUMER_GROUP_DESCRIBE
from core.protocol.schema.find_coordinator import FIND_COORDINATOR
from core.protocol.schema.group_offsets import OFFSET_FETCH
from core.protocol.schema.groups import DESCRIBE_GROUPS
from core.protocol.schema.list_offsets import LIST_OFFSETS
from core.protocol.schema.transaction_states import DESCRIBE_TRANSACTIONS
from core.security.acl import Acl, AclOperation, AclPermissionType, PatternType, ResourceType
from tests.support.broker import SteeredNode
from tests.support.for_each import for_each

T0 = TopicPartition("t", 0)
ACL = Acl(
    ResourceType.TOPIC, "t", PatternType.LITERAL, "User:a", "*", AclOperation.READ, AclPermissionType.ALLOW
)  # fmt: skip


@for_each(
    "api, ask",
    [
        (FIND_COORDINATOR, lambda client: GroupAdmin(client).offsets("g")),
        (CONSUMER_GROUP_DESCRIBE, lambda client: GroupAdmin(client).find("g")),
        (DESCRIBE_GROUPS, lambda client: GroupAdmin(client).find("g")),
        (OFFSET_FETCH, lambda client: GroupAdmin(client).offsets("g")),
        (DESCRIBE_TRANSACTIONS, lambda client: TransactionAdmin(client).find("x")),
        (CREATE_ACLS, lambda client: SecurityAdmin(client).create_acls([ACL])),
        (DELETE_ACLS, lambda client: SecurityAdmin(client).delete_acls([ACL])),
        (LIST_OFFSETS, lambda client: Admin(client).list_offsets({T0: LATEST})),
        (LIST_OFFSETS, lambda client: ReplicaReader(client, client.leader_of(T0), T0, is_compacted=False).find_start()),
    ],
)
def test_an_answer_that_lacks_what_was_asked_for_is_malformed(
    api: Api[Any, Any], ask: Callable[[KafkaClient], object], broker: SteeredNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = ClientConnection.call

    def call(self: ClientConnection, asked: Api[Any, Any], request: object, **options: Any) -> Any:
        return api.response() if asked is api else real(self, asked, request, **options)

    monkeypatch.setattr(ClientConnection, "call", call)
    client = KafkaClient([("embedded", 0)], lambda _host, _port: EmbeddedTransport(broker.dispatcher))
    with pytest.raises(MalformedMessageError, match=f"a {api.name} answer|does not answer for t-0"):
        ask(client)
