"""The replicas of partitions move to other brokers (KIP-455), and one of them is elected leader."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from core.broker.controller.active_controller import ActiveController
from core.broker.requests.handlers.controller_request import decide_in_office, find_term
from core.broker.requests.request_context import RequestContext
from core.broker.requests.served_api import serves
from core.broker.requests.services import Services
from core.cluster.controller.cluster_controller import Results
from core.cluster.controller.controller_writes import Decision
from core.cluster.controller.reassignment import Outcomes, Reassignments, is_moving
from core.cluster.image.metadata_image import MetadataImage, PartitionState
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.pending import Pending
from core.common.task import Task
from core.common.topic_partition import TopicPartition, by_partition, by_topic
from core.protocol.schema import reassignments as schema
from core.protocol.schema.metadata_records import PartitionRecord
from core.security.acl import ALTER_CLUSTER, DESCRIBE_THE_CLUSTER

_LAST_VERSION_OF_KAFKA_3 = 0  # KIP-860 came later


@serves(
    schema.ALTER_PARTITION_REASSIGNMENTS,
    ALTER_CLUSTER,
    is_whole=True,
    is_for_controllers=True,
    last_of_members=_LAST_VERSION_OF_KAFKA_3,
)
def alter_partition_reassignments(
    services: Services, request: schema.AlterPartitionReassignmentsRequest, context: RequestContext
) -> Task[schema.AlterPartitionReassignmentsResponse]:
    """AlterPartitionReassignments: moves the replicas of partitions to other brokers, or cancels that (KIP-455)."""
    try:
        outcomes = yield from decide_in_office(services, lambda term: _alter(term.controller.reassignments, request))
    except KafkaError as error:
        return schema.AlterPartitionReassignmentsResponse(error_code=error.code, error_message=error.message)
    topics = by_topic((p, _partition_answer(p.partition, error)) for p, error in outcomes.items())
    responses = [schema.ReassignableTopicResponse(*topic) for topic in topics.items()]
    return schema.AlterPartitionReassignmentsResponse(error_message=None, responses=responses)


def _alter(reassignments: Reassignments, request: schema.AlterPartitionReassignmentsRequest) -> Decision[Outcomes]:
    targets: dict[TopicPartition, Sequence[int] | None] = {}
    twice: set[TopicPartition] = set()
    for partition, one in by_partition(request.topics):
        if partition in targets:
            twice.add(partition)
        targets[partition] = one.replicas
    known = {partition: target for partition, target in targets.items() if partition not in twice}
    outcomes = yield from reassignments.alter(known)
    doubled = KafkaError(ErrorCode.INVALID_REQUEST, "The partition is named twice.")
    return outcomes | dict.fromkeys(twice, doubled)


def _partition_answer(number: int, error: KafkaError | None) -> schema.ReassignablePartitionResponse:
    code, message = (ErrorCode.NONE, None) if error is None else (error.code, error.message)
    return schema.ReassignablePartitionResponse(number, code, message)


@serves(schema.LIST_PARTITION_REASSIGNMENTS, DESCRIBE_THE_CLUSTER, is_whole=True)
def list_partition_reassignments(
    services: Services, request: schema.ListPartitionReassignmentsRequest, context: RequestContext
) -> schema.ListPartitionReassignmentsResponse:
    """ListPartitionReassignments: the reassignments in the metadata; this broker starts none. In a cluster only the
    controller knows them.
    """
    wanted = None
    if request.topics is not None:
        wanted = [TopicPartition(topic.name, number) for topic in request.topics for number in topic.partition_indexes]
    listed: Mapping[TopicPartition, PartitionRecord | PartitionState]
    term = find_term(services)
    if term is not None:
        listed = term.controller.reassignments.listed(wanted)
    elif services.membership is not None:
        code = ErrorCode.NOT_CONTROLLER
        return schema.ListPartitionReassignmentsResponse(error_code=code, error_message=code.text)
    else:
        listed = _listed_alone(services.image, wanted)
    topics = by_topic((partition, _ongoing(partition.partition, state)) for partition, state in listed.items())
    return schema.ListPartitionReassignmentsResponse(
        error_message=None, topics=[schema.OngoingTopicReassignment(*topic) for topic in topics.items()]
    )


def _listed_alone(
    image: MetadataImage, wanted: Iterable[TopicPartition] | None
) -> Mapping[TopicPartition, PartitionRecord]:
    """Returns what `Reassignments.listed` returns, for a lone broker."""
    if wanted is None:
        topics = image.topics.values()
        wanted = [TopicPartition(topic.name, number) for topic in topics for number in sorted(topic.partitions)]
    found = {one: image.find_partition(one) for one in wanted}
    return {one: state for one, state in found.items() if state is not None and is_moving(state)}


def _ongoing(number: int, state: PartitionRecord | PartitionState) -> schema.OngoingPartitionReassignment:
    return schema.OngoingPartitionReassignment(
        number, list(state.replicas), list(state.adding_replicas), list(state.removing_replicas)
    )


_PREFERRED, _UNCLEAN = 0, 1


@serves(schema.ELECT_LEADERS, ALTER_CLUSTER)
def elect_leaders(
    services: Services, request: schema.ElectLeadersRequest, context: RequestContext
) -> schema.ElectLeadersResponse | Pending[schema.ElectLeadersResponse]:
    """ElectLeaders: with one broker, the preferred replica leads every partition that can have a leader. In a cluster
    the controller elects.

    Answers for each partition; if none is named, those that need no election are left out, as Kafka
    does.
    """
    if not context.may(ALTER_CLUSTER):
        code = ALTER_CLUSTER.refusal
        refused = [
            schema.ReplicaElectionResult(
                topic.topic, [schema.PartitionResult(number, code, code.text) for number in topic.partitions]
            )
            for topic in request.topic_partitions or ()
        ]
        return schema.ElectLeadersResponse(error_code=code, replica_election_results=refused)
    term = find_term(services)
    if term is not None and request.election_type in (_PREFERRED, _UNCLEAN):
        return term.ask(lambda: _decide(term, request)).map(lambda outcome: _election_answer(request, outcome))
    is_known = request.election_type in (_PREFERRED, _UNCLEAN)
    is_of_all = request.topic_partitions is None
    if is_of_all and not is_known:
        return schema.ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST)
    asked = request.topic_partitions
    if asked is None:
        asked = [
            schema.TopicPartitions(topic.name, sorted(topic.partitions)) for topic in services.image.topics.values()
        ]
    results = []
    for topic in asked:
        found = [_elect(services, TopicPartition(topic.topic, number), request) for number in topic.partitions]
        told = [result for result in found if not (is_of_all and result.error_code == ErrorCode.ELECTION_NOT_NEEDED)]
        results.append(schema.ReplicaElectionResult(topic.topic, told))
    code = ErrorCode.NONE if is_known or not results else ErrorCode.INVALID_REQUEST
    if is_of_all and services.membership is not None:
        return schema.ElectLeadersResponse(error_code=ErrorCode.NOT_CONTROLLER)
    return schema.ElectLeadersResponse(error_code=code, replica_election_results=results)


def _decide(term: ActiveController, request: schema.ElectLeadersRequest) -> Decision[Results]:
    asked = request.topic_partitions
    if asked is None:
        partitions = [partition for partition, _ in term.context.partitions()]
    else:
        partitions = [TopicPartition(topic.topic, number) for topic in asked for number in topic.partitions]
    return term.controller.elect_leaders(partitions, is_unclean=request.election_type == _UNCLEAN)


def _election_answer(request: schema.ElectLeadersRequest, outcome: Results | KafkaError) -> schema.ElectLeadersResponse:
    if isinstance(outcome, KafkaError):
        return schema.ElectLeadersResponse(error_code=outcome.code)
    results = by_topic(
        (partition, schema.PartitionResult(partition.partition, error, None if error is ErrorCode.NONE else error.text))
        for partition, error in outcome.items()
        if request.topic_partitions is not None or error is not ErrorCode.ELECTION_NOT_NEEDED
    )
    return schema.ElectLeadersResponse(
        replica_election_results=[schema.ReplicaElectionResult(*topic) for topic in results.items()]
    )


def _elect(
    services: Services, partition: TopicPartition, request: schema.ElectLeadersRequest
) -> schema.PartitionResult:
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
    return schema.PartitionResult(partition.partition, code, message)
