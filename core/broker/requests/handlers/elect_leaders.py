"""ElectLeaders: with one broker, the preferred replica leads every partition that can have a leader. In a cluster the
controller elects.
"""

from __future__ import annotations

from core.broker.controller.active_controller import ActiveController
from core.broker.requests.handlers.controller_request import find_term
from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import ServedApi
from core.broker.requests.services import Services
from core.cluster.controller.cluster_controller import Results
from core.cluster.controller.controller_writes import Decision
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.pending import Pending
from core.common.topic_partition import TopicPartition, by_topic
from core.protocol.schema.elect_leaders import (
    ELECT_LEADERS,
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
    TopicPartitions,
)

_PREFERRED, _UNCLEAN = 0, 1


def handle(
    services: Services, request: ElectLeadersRequest, context: RequestContext
) -> ElectLeadersResponse | Pending[ElectLeadersResponse]:
    """Answers for each partition; if none is named, those that need no election are left out, as Kafka does."""
    term = find_term(services)
    if term is not None and request.election_type in (_PREFERRED, _UNCLEAN):
        return term.ask(lambda: _decide(term, request)).map(lambda outcome: _answer(request, outcome))
    is_known = request.election_type in (_PREFERRED, _UNCLEAN)
    is_of_all = request.topic_partitions is None
    if is_of_all and not is_known:
        return ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST)
    asked = request.topic_partitions
    if asked is None:
        asked = [TopicPartitions(topic.name, sorted(topic.partitions)) for topic in services.image.topics.values()]
    results = []
    for topic in asked:
        found = [_elect(services, TopicPartition(topic.topic, number), request) for number in topic.partitions]
        told = [result for result in found if not (is_of_all and result.error_code == ErrorCode.ELECTION_NOT_NEEDED)]
        results.append(ReplicaElectionResult(topic.topic, told))
    code = ErrorCode.NONE if is_known or not results else ErrorCode.INVALID_REQUEST
    if is_of_all and services.membership is not None:
        return ElectLeadersResponse(error_code=ErrorCode.NOT_CONTROLLER)
    return ElectLeadersResponse(error_code=code, replica_election_results=results)


def _decide(term: ActiveController, request: ElectLeadersRequest) -> Decision[Results]:
    asked = request.topic_partitions
    if asked is None:
        partitions = [partition for partition, _ in term.context.partitions()]
    else:
        partitions = [TopicPartition(topic.topic, number) for topic in asked for number in topic.partitions]
    return term.controller.elect_leaders(partitions, is_unclean=request.election_type == _UNCLEAN)


def _answer(request: ElectLeadersRequest, outcome: Results | KafkaError) -> ElectLeadersResponse:
    if isinstance(outcome, KafkaError):
        return ElectLeadersResponse(error_code=outcome.code)
    results = by_topic(
        (partition, PartitionResult(partition.partition, error, None if error is ErrorCode.NONE else error.text))
        for partition, error in outcome.items()
        if request.topic_partitions is not None or error is not ErrorCode.ELECTION_NOT_NEEDED
    )
    return ElectLeadersResponse(replica_election_results=[ReplicaElectionResult(*topic) for topic in results.items()])


def _elect(services: Services, partition: TopicPartition, request: ElectLeadersRequest) -> PartitionResult:
    topic = services.image.topics.get(partition.topic)
    if request.election_type not in (_PREFERRED, _UNCLEAN):
        code, message = ErrorCode.INVALID_REQUEST, f"unknown election type {request.election_type}"
    elif services.membership is not None:
        code, message = ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_CONTROLLER.text
    elif topic is None or partition.partition not in topic.partitions:
        code, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {partition}"
    elif services.replicas.leads(partition):
        code, message = ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.ELECTION_NOT_NEEDED.text
    elif request.election_type == _PREFERRED:
        code, message = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE.text
    else:
        code, message = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE.text
    return PartitionResult(partition.partition, code, message)


SERVES = ServedApi(ELECT_LEADERS, handle)
