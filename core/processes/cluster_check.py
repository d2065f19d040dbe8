"""Checks, by asking each broker, whether brokers form one healthy cluster."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

from core.client.net.kafka_client import Connector
from core.common.endpoint import Endpoint
from core.common.errors import PlogError
from core.protocol.schema.metadata import METADATA, MetadataRequest, MetadataResponse
from core.security.client_security import ClientSecurity

_ANSWER_SECONDS = 5.0


def find_controller(brokers: Mapping[int, Endpoint], security: ClientSecurity | None = None) -> int | None:
    """Returns the controller that the first answering broker names, or None if there is no answer, or none of these.
    Without `security` the brokers are asked in plaintext.
    """
    for endpoint in brokers.values():
        answer = _ask(endpoint, security)
        if isinstance(answer, MetadataResponse):
            return answer.controller_id if answer.controller_id in brokers else None
    return None


def find_trouble(brokers: Mapping[int, Endpoint], security: ClientSecurity | None = None) -> str | None:
    """Returns the first problem of a cluster of which these brokers run, and no others, or None if all of them know all
    brokers and topics, have the same controller, and lead or follow each of their partitions in sync.
    """
    controllers = set[int]()
    known: dict[int, set[tuple[str, int]]] = {}
    for broker_id, endpoint in brokers.items():
        answer = _ask(endpoint, security)
        if isinstance(answer, PlogError):
            return f"broker {broker_id} does not answer: {answer.message}"
        trouble = _trouble(answer, set(brokers))
        if trouble is not None:
            return f"broker {broker_id} says: {trouble}"
        controllers.add(answer.controller_id)
        known[broker_id] = {(topic.name or "", len(topic.partitions)) for topic in answer.topics}
    if len(controllers) != 1:
        return f"the brokers name several controllers, {sorted(controllers)}"
    return _lacking(known, known[controllers.pop()])


def _lacking(known: Mapping[int, set[tuple[str, int]]], wanted: set[tuple[str, int]]) -> str | None:
    """Names the first topic of the controller's that another broker does not know in the same form. A deleted topic may
    still be known to a broker that was down meanwhile.
    """
    for broker_id, topics in known.items():
        for name, _ in sorted(wanted - topics):
            return f"broker {broker_id} does not know all of topic {name} yet"
    return None


def _trouble(answer: MetadataResponse, running: set[int]) -> str | None:
    known = {broker.node_id for broker in answer.brokers}
    if known != running:
        return f"the brokers of the cluster are {sorted(known)}, of which {sorted(running)} run"
    if answer.controller_id not in running:
        return "there is no controller"
    for topic in answer.topics:
        for partition in topic.partitions:
            name = f"{topic.name}-{partition.partition_index}"
            replicas, isr = running.intersection(partition.replica_nodes), set(partition.isr_nodes)
            if replicas and partition.leader_id not in running:
                return f"{name} has no leader"
            if replicas and isr != replicas:
                return f"{name} has replicas {sorted(replicas)}, and {sorted(isr)} are in sync"
    return None


def _ask(endpoint: Endpoint, security: ClientSecurity | None) -> MetadataResponse | PlogError:
    host = "127.0.0.1" if endpoint.is_wildcard else endpoint.host
    try:
        with closing(Connector(security, timeout_s=_ANSWER_SECONDS)(host, endpoint.port)) as connection:
            return connection.call(METADATA, MetadataRequest(None, allow_auto_topic_creation=False))
    except PlogError as error:
        return error
