"""Removes members from a group, as Kafka's Admin.removeMembersFromConsumerGroup does (KIP-345, KIP-571)."""

from __future__ import annotations

from collections.abc import Sequence

from core.client.admin.group_admin import GroupAdmin
from core.client.net.client_connection import ClientConnection
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError, ensure_success
from core.protocol.schema.groups import LEAVE_GROUP, LeaveGroupRequest, LeaveGroupResponse, MemberIdentity

_FIRST_VERSION_OF_SEVERAL = 3  # KIP-345
_REASON = "removed by plog group remove-members"


def remove_members(admin: GroupAdmin, group_id: str, members: Sequence[MemberIdentity]) -> list[ErrorCode]:
    """Removes the members by their instance ids, or their member ids if those are None; returns an error code for each.
    Raises KafkaError if the group as a whole refuses, or its coordinator is older than Kafka 2.4.
    """
    for member in members:
        member.reason = _REASON

    def leave(connection: ClientConnection) -> LeaveGroupResponse:
        if connection.version_of(LEAVE_GROUP) < _FIRST_VERSION_OF_SEVERAL:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"the coordinator of group {group_id} removes no others: it needs Kafka 2.4",
            )
        return connection.call(LEAVE_GROUP, LeaveGroupRequest(group_id, members=list(members)))

    answer = admin.at_coordinator(group_id, leave)
    ensure_success(answer.error_code, f"group {group_id}")
    return [ErrorCode.of(one.error_code) for one in answer.members]
