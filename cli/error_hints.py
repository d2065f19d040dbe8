"""What to do about an error code of Kafka's, for errors that have no hint of their own (docs/troubleshooting.md)."""

from __future__ import annotations

import re
from collections.abc import Mapping

from core.common import filesystem
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError

_DISK = "a disk of that broker has failed: plog cluster brokers names the directory, and the broker's log says why"
_LEADER = "plog cluster describe TOPIC-N says which brokers have the partition, and who leads it"
_MISROUTED = "if it stays: do several brokers' addresses lead to one place, by a load balancer or --resolve? " + _LEADER
_RIGHT = (
    "an ACL has to allow it to the user that --command-config logs in, or to User:ANONYMOUS without a login: "
    "plog acl explain says why none does; on the broker's machine, --data-dir needs no right"
)
_IN_SYNC = "plog cluster describe TOPIC-N says which replicas are not in sync, and why"
_MEMBERS = "stop its consumers first: plog group describe GROUP --members names them"
_REMOVED = (
    "the group took the member out: it took longer than max.poll.interval.ms, or was silent for session.timeout.ms"
)
_INSTANCE = (
    "each member needs a group.instance.id of its own: plog group describe GROUP --members says who has it, and "
    "plog group remove-members GROUP --instance ID removes one that is dead"
)
_FENCED = "another producer began with this transactional id: give each its own; plog transaction list names them"
_SEQUENCE = "the broker has lost or forgotten what this producer wrote: start it again; plog verify looks at the files"

_KEYLESS = (
    "give each record a key: --key-separator S, --key-field F, --key K, or --format envelope (plog help produce); "
    "--seed takes envelopes"
)

HINTS: Mapping[ErrorCode, str] = {
    ErrorCode.OFFSET_OUT_OF_RANGE: "plog topic describe TOPIC shows the offsets that there are",
    ErrorCode.LEADER_NOT_AVAILABLE: f"plog cluster status names partitions without a leader; {_LEADER}",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: _MISROUTED,
    ErrorCode.FENCED_LEADER_EPOCH: _MISROUTED,
    ErrorCode.REQUEST_TIMED_OUT: "plog cluster status says which brokers answer; " + _IN_SYNC,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "plog topic describe __consumer_offsets (or __transaction_state): if it is "
    "missing, a cluster of fewer than three brokers needs offsets.topic.replication.factor=1 (or "
    "transaction.state.log.replication.factor=1)",
    ErrorCode.NOT_COORDINATOR: _MISROUTED,
    ErrorCode.NOT_ENOUGH_REPLICAS: _IN_SYNC,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: _IN_SYNC,
    ErrorCode.KAFKA_STORAGE_ERROR: _DISK,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: _RIGHT,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: _RIGHT,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: _RIGHT,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: _RIGHT,
    ErrorCode.SECURITY_DISABLED: "the broker has no authorizer: authorizer.class.name and super.users in its "
    "server.properties give it one (plog help acl)",
    ErrorCode.INVALID_PARTITIONS: "a topic can get more partitions, and never fewer: make another topic, and copy it",
    ErrorCode.NON_EMPTY_GROUP: _MEMBERS,
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: _MEMBERS,
    ErrorCode.UNKNOWN_MEMBER_ID: _REMOVED,
    ErrorCode.ILLEGAL_GENERATION: _REMOVED,
    ErrorCode.FENCED_MEMBER_EPOCH: _REMOVED,
    ErrorCode.FENCED_INSTANCE_ID: _INSTANCE,
    ErrorCode.UNRELEASED_INSTANCE_ID: _INSTANCE,
    ErrorCode.PRODUCER_FENCED: _FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH: _FENCED,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: _SEQUENCE,
    ErrorCode.UNKNOWN_PRODUCER_ID: _SEQUENCE,
    ErrorCode.CONCURRENT_TRANSACTIONS: "its last transaction is still ending: plog transaction describe ID",
}


def find_hint(error: KafkaError) -> str | None:
    if error.code is ErrorCode.INVALID_RECORD and re.search("compacted topic.* without (a )?key", error.message, re.I):
        return _KEYLESS
    is_of_disk = error.code is ErrorCode.KAFKA_STORAGE_ERROR
    return (filesystem.find_hint(error.message) if is_of_disk else None) or HINTS.get(error.code)
