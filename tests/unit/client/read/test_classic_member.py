"""A member of a classic group whose coordinator is broken, or hostile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from core.client.admin.group_admin import GroupAdmin
from core.client.net.kafka_client import KafkaClient
from core.client.read.classic_member import ClassicMember
from core.client.read.cluster_source import Subscription
from core.common.errors import MalformedMessageError
from core.pipeline.embedded_transport import EmbeddedTransport
from core.protocol.message import Api
from core.protocol.schema.groups import JOIN_GROUP, JoinGroupRequest, JoinGroupResponse
from tests.support.broker import SteeredNode


class Strange:
    """A connection to a coordinator that makes each member the leader, and names an assignor that none offered."""

    def call(self, api: Api[Any, Any], request: JoinGroupRequest) -> JoinGroupResponse:
        assert api is JOIN_GROUP
        return JoinGroupResponse(generation_id=1, protocol_name="sticky", leader="m", member_id="m")


def test_an_assignor_that_was_not_offered_is_malformed(broker: SteeredNode, monkeypatch: pytest.MonkeyPatch) -> None:
    def at_coordinator(_admin: GroupAdmin, _group_id: str, work: Callable[[Any], Any]) -> Any:
        return work(Strange())

    monkeypatch.setattr(GroupAdmin, "at_coordinator", at_coordinator)
    client = KafkaClient([("embedded", 0)], lambda _host, _port: EmbeddedTransport(broker.dispatcher))
    member = ClassicMember(client, "g", Subscription(client, ["t"]))
    with pytest.raises(MalformedMessageError, match="the group has the assignor 'sticky', which was not offered"):
        member.assignment(frozenset())
