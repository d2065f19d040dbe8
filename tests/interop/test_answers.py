"""plog answers as Apache Kafka does, but where the documents say why not.

Kafka's answers are recorded in tests/golden/answers, so that this needs no JVM; `scripts/compare-with-kafka` asks both.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.answers import recorded
from tests.support.answers.asked_broker import PLOG, Step
from tests.support.answers.brokers import ask, plog_server, prepare
from tests.support.answers.comparison import ABSENT, Difference, differences
from tests.support.answers.known_differences import AT_RANDOM, KNOWN, find_known
from tests.support.answers.message_codec import DEFINITIONS, GOLDEN
from tests.support.answers.scenarios import SCENARIOS
from tests.support.oracle import requires_kafka

DOCUMENTS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with plog_server(tmp_path_factory.mktemp("answers")) as server:
        prepare(server.address, PLOG)
        yield server.address


@pytest.mark.first
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_answers_are_kafkas_but_for_the_known_differences(scenario: str, address: str) -> None:
    found = differences(ask(SCENARIOS[scenario], address, PLOG), recorded.read_answers(scenario))
    explained = [find_known(scenario, difference) for difference in found]
    unexplained = [str(difference) for difference, known in zip(found, explained, strict=True) if known is None]
    assert not unexplained, "\n".join(unexplained)
    if scenario == AT_RANDOM:  # what a seed meets is chance
        return
    needless = [known for known in KNOWN if scenario in known.scenarios and known not in explained]
    assert not needless, f"these differ no longer: {needless}"


@pytest.mark.first
def test_a_change_anywhere_in_an_answer_is_a_difference() -> None:
    """Else equal answers would say nothing."""
    step = Step("offset 0", "Fetch", 18)
    answer = recorded.read_answers("fetch-one-partition")[step]
    assert differences({step: answer}, {step: answer}) == []
    assert differences({}, {step: answer}) != []
    changed = list(_changed(answer))
    assert len(changed) > 20
    assert [other for other in changed if differences({step: other}, {step: answer}) == []] == []


def _changed(value: Any) -> Iterator[Any]:
    """The value with each of its parts changed, one at a time."""
    if isinstance(value, dict):
        for name, part in value.items():
            yield from ({**value, name: other} for other in _changed(part))
            yield {other: each for other, each in value.items() if other != name}
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield from ([*value[:index], other, *value[index + 1 :]] for other in _changed(part))
            yield [*value[:index], *value[index + 1 :]]
    else:
        yield "something else"


_PARTITION = {"PartitionIndex": 0, "ErrorCode": 0, "OfflineReplicas": []}


@pytest.mark.first
@pytest.mark.parametrize(
    ("api", "version", "step", "path", "plog", "kafka"),
    [
        ("OffsetCommit", 9, "1.1 twice {}", "Topics[t].Partitions[0].ErrorCode", 0, 69),
        ("TxnOffsetCommit", 5, "1.1 twice {}", "Topics[t].Partitions[0].ErrorCode", 0, 49),
        ("Fetch", 12, "1.1 twice {}", "Responses[t].Partitions[0].HighWatermark", 3, 4),
        ("Fetch", 12, "1.1 {}", "Responses[t].Partitions[0].Records", "", {"batches": []}),
        ("Fetch", 17, '1.1 {"ReplicaId": 5}', "NodeEndpoints", [], ABSENT),
        ("Fetch", 12, '1.1 {"IsolationLevel": 1}', "Responses[t].Partitions[0].ErrorCode", 0, -1),
        ("ListOffsets", 7, '1.1 {"Timestamp": -3}', "Topics[t].Partitions[0].Offset", 3, 4),  # nothing was deleted
        ("ListOffsets", 7, '1.1 after DeleteRecords {"Timestamp": -1}', "Topics[t].Partitions[0].Offset", 3, 4),
        ("ListOffsets", 7, '1.1 after DeleteRecords {"Timestamp": 0}', "Topics[t].Partitions[0].ErrorCode", 0, 1),
        ("Metadata", 9, "1.1 {}", "Topics[t].Partitions[0]", {**_PARTITION, "ErrorCode": 5}, ABSENT),
        ("Metadata", 9, '1.1 {"AllowAutoTopicCreation": false}', "Topics[t].Partitions[0]", _PARTITION, ABSENT),
        ("Metadata", 9, "1.1 {}", "Topics[t].ErrorCode", 0, -1),
        ("Metadata", 12, '1.1 {"TopicId": "<id of a>"}', "Topics[t].ErrorCode", 0, 100),
        ("CreateTopics", 7, "1.1 {}", "Topics[t].ErrorCode", 39, 36),
        ("CreateTopics", 7, "1.1 {}", "Topics[t].Configs[retention.ms].ConfigSource", 5, 3),
        ("CreateTopics", 7, "1.1 {}", "Topics[t].ErrorMessage", "<message>", None),
        ("Produce", 12, "1.1 {}", "Responses[t].PartitionResponses[0].ErrorCode", 0, 2),
        ("Produce", 12, "1.1 {}", "Responses[t].PartitionResponses[0].BaseOffset", 3, 4),
        ("DescribeGroups", 6, "1.1 {}", "Groups[g].GroupState", "Empty", "Stable"),
        ("DescribeGroups", 6, "1.1 {}", "Groups[g].Members[m]", ABSENT, {"MemberId": "m"}),
        ("ListGroups", 5, "1.1 {}", "Groups[g]", {"GroupId": "g"}, ABSENT),
        ("OffsetDelete", 0, "1.1 {}", "ErrorCode", 0, 69),
        ("ConsumerGroupHeartbeat", 1, "1.1 {}", "MemberEpoch", 8, 9),
        ("ConsumerGroupHeartbeat", 1, "1.1 {}", "Assignment.TopicPartitions[t].Partitions", [0], [1]),
        ("IncrementalAlterConfigs", 1, '1.1 {"ConfigOperation": 3}', "Responses[t].ErrorCode", 0, -1),
        ("AlterConfigs", 2, "1.1 {}", "", {"Responses": []}, "no answer"),
        ("DescribeConfigs", 4, "1.1 {}", "Results[t].Configs[retention.ms]", {"Name": "retention.ms"}, ABSENT),
        ("WriteTxnMarkers", 1, "1.1 {}", "Markers[7].Topics[t].Partitions[0].ErrorCode", 47, -1),
        ("DeleteTopics", 6, '1.1 twice {"Name": "a"}', "Responses[a].ErrorCode", 0, 42),
    ],
)
def test_at_random_a_known_difference_hides_no_other(
    api: str, version: int, step: str, path: str, plog: Any, kafka: Any
) -> None:
    assert find_known(AT_RANDOM, Difference(Step(step, api, version), path, plog, kafka)) is None


@pytest.mark.first
def test_each_reason_is_in_its_document() -> None:
    missing = [
        known.reason
        for known in KNOWN
        if known.reason.text not in " ".join((DOCUMENTS / known.reason.document).read_text().split())
    ]
    assert missing == []


@pytest.mark.first
def test_the_table_and_the_records_are_of_scenarios_that_there_are() -> None:
    assert {scenario for known in KNOWN for scenario in known.scenarios} <= set(SCENARIOS)
    assert {path.stem for path in GOLDEN.glob("*.ndjson")} == set(SCENARIOS)


@requires_kafka
@pytest.mark.java
def test_the_recorded_definitions_are_kafkas() -> None:
    assert DEFINITIONS.read_text() == recorded.definitions_text()
