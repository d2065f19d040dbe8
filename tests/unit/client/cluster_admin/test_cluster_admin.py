"""What a cluster's controller answers, as the command line hears it: the connections are the test's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from core.client.cluster_admin.cluster_admin import ClusterAdmin, ElectionType, OngoingReassignment
from core.cluster.image.feature_levels import FeatureUpdate, UpgradeType
from core.common.error_code import ErrorCode
from core.common.errors import KafkaError
from core.common.topic_partition import TopicPartition
from core.protocol.schema.cluster_nodes import UpdatableFeatureResult, UpdateFeaturesResponse
from core.protocol.schema.reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsResponse,
    PartitionResult,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
    ReplicaElectionResult,
)
from tests.support.for_each import for_each

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Client:
    """Both the client and its connections: `any` and `controller` answer, by turns."""

    def __init__(self, answer: Callable[[Any], Any], at_controller: Callable[[Any], Any] | None = None) -> None:
        self._answer = answer
        self._at_controller = at_controller or answer
        self.version = 2
        self.asked: list[Any] = []

    def any_connection(self) -> Client:
        return self

    def controller_connection(self) -> Client:
        return Client(self._at_controller)

    def version_of(self, _api: object) -> int:
        return self.version

    def call(self, _api: object, request: Any) -> Any:
        self.asked.append(request)
        return self._answer(request)


def admin(client: Client) -> ClusterAdmin:
    some: Any = client
    return ClusterAdmin(some)


def elected(*codes: ErrorCode) -> ElectLeadersResponse:
    results = [PartitionResult(number, code, None) for number, code in enumerate(codes)]
    return ElectLeadersResponse(replica_election_results=[ReplicaElectionResult("t", results)])


def refuse(code: ErrorCode) -> Callable[[Any], AlterPartitionReassignmentsResponse]:
    return lambda _request: AlterPartitionReassignmentsResponse(error_code=code, error_message=None)


def test_each_partition_has_its_result_and_only_late_ones_are_asked_for_again() -> None:
    answers = [
        elected(ErrorCode.REQUEST_TIMED_OUT, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
        elected(ErrorCode.ELECTION_NOT_NEEDED),
    ]
    client = Client(lambda _request: answers.pop(0))
    results = admin(client).elect_leaders(ElectionType.PREFERRED, [T1, T0])
    codes = {partition: error.code if error else None for partition, error in results.items()}
    assert codes == {T0: ErrorCode.ELECTION_NOT_NEEDED, T1: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    asked: list[ElectLeadersRequest] = client.asked
    assert [[(one.topic, one.partitions) for one in request.topic_partitions or ()] for request in asked] == [
        [("t", [0, 1])],
        [("t", [0])],
    ]


def test_a_broker_that_is_not_the_controller_sends_us_to_it() -> None:
    client = Client(lambda _request: elected(ErrorCode.NOT_CONTROLLER), lambda _request: elected(ErrorCode.NONE))
    assert admin(client).elect_leaders(ElectionType.PREFERRED, [T0]) == {T0: None}
    listed = ListPartitionReassignmentsResponse(error_message=None)
    refused = ListPartitionReassignmentsResponse(error_code=ErrorCode.NOT_CONTROLLER, error_message=None)
    assert admin(Client(lambda _request: refused, lambda _request: listed)).list_reassignments() == {}


def test_an_unclean_election_needs_a_version_that_has_it() -> None:
    client = Client(lambda _request: elected(ErrorCode.NONE))
    client.version = 0
    with pytest.raises(KafkaError, match="too old for unclean elections"):
        admin(client).elect_leaders(ElectionType.UNCLEAN, [T0])
    assert admin(client).elect_leaders(ElectionType.PREFERRED, [T0]) == {T0: None}


def test_what_may_not_be_asked_names_the_right_that_is_missing() -> None:
    with pytest.raises(KafkaError) as caught:
        admin(Client(refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))).alter_reassignments({T0: (1, 2)})
    assert caught.value.exit_code == 1
    assert (
        caught.value.hint
        == "AlterPartitionReassignments needs the right Alter on the cluster (kafka-acls.sh --cluster)"
    )


def test_a_cluster_that_is_too_old_is_said_to_be_so() -> None:
    def too_old(_request: Any) -> Any:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "the broker does not serve it")

    with pytest.raises(KafkaError) as caught:
        admin(Client(too_old)).list_reassignments()
    assert "Apache Kafka 2.4 and later can do it" in (caught.value.hint or "")


def test_refusals_are_given_by_partition_and_null_cancels() -> None:
    def answer(_request: Any) -> AlterPartitionReassignmentsResponse:
        results = [
            ReassignablePartitionResponse(0, 0, None),
            ReassignablePartitionResponse(1, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "nothing to cancel"),
        ]
        return AlterPartitionReassignmentsResponse(
            error_message=None, responses=[ReassignableTopicResponse("t", results)]
        )

    client = Client(answer)
    refused = admin(client).alter_reassignments({T1: None, T0: (3, 1)})
    assert [(partition, error.message) for partition, error in refused.items()] == [(T1, "nothing to cancel")]
    (request,) = client.asked
    assert isinstance(request, AlterPartitionReassignmentsRequest)
    assert [(one.partition_index, one.replicas) for one in request.topics[0].partitions] == [(0, [3, 1]), (1, None)]


def test_what_is_under_way_has_a_before_and_an_after() -> None:
    one = OngoingReassignment((3, 1, 2), (3,), (2,))
    assert (one.before, one.target) == ((1, 2), (3, 1))


# --- features

UPDATES = [FeatureUpdate("a", 1, UpgradeType.UPGRADE), FeatureUpdate("b", 0, UpgradeType.UNSAFE_DOWNGRADE)]


@for_each("version", [0, 1, 2])
def test_which_way_a_level_goes_is_said_as_the_version_has_it(version: int) -> None:
    client = Client(lambda _request: UpdateFeaturesResponse(error_message=None))
    client.version = version
    assert admin(client).update_features(UPDATES) == {}
    keys = [(one.feature, one.max_version_level, one.allow_downgrade) for one in client.asked[0].feature_updates]
    ways = [one.upgrade_type for one in client.asked[0].feature_updates]
    assert keys == [("a", 1, False), ("b", 0, version == 0)]
    assert ways == ([1, 1] if version == 0 else [1, 3])


def test_features_are_refused_one_by_one_or_all_together() -> None:
    code = ErrorCode.INVALID_UPDATE_VERSION
    results = [UpdatableFeatureResult("a", code, "too high"), UpdatableFeatureResult("b", ErrorCode.NONE, None)]
    one_by_one = Client(lambda _request: UpdateFeaturesResponse(error_message=None, results=results))
    refused = admin(one_by_one).update_features(UPDATES)
    assert {name: (error.code, error.message) for name, error in refused.items()} == {"a": (code, "too high")}
    together = Client(lambda _request: UpdateFeaturesResponse(error_code=code, error_message="a is too high"))
    with pytest.raises(KafkaError, match="a is too high"):
        admin(together).update_features(UPDATES)
    elsewhere = UpdateFeaturesResponse(error_code=ErrorCode.NOT_CONTROLLER, error_message=None)
    accepted = UpdateFeaturesResponse(error_message=None)
    assert admin(Client(lambda _request: elsewhere, lambda _request: accepted)).update_features(UPDATES) == {}


def test_features_are_not_changed_where_they_can_not_be_checked_only() -> None:
    client = Client(lambda _request: UpdateFeaturesResponse(error_message=None))
    client.version = 0
    with pytest.raises(KafkaError, match="too old to check features only") as refusal:
        admin(client).update_features(UPDATES, validate_only=True)
    assert refusal.value.hint == "Apache Kafka 2.7 and later can do it, 3.3 and later also a dry run"
    assert client.asked == []
    client.version = 1
    admin(client).update_features(UPDATES, validate_only=True)
    assert client.asked[0].validate_only
